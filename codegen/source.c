#include "codegen/source.h"

#include "ir/base/map.h"
#include "ir/base/str.h"

const char *source_name(struct arena *arena, const struct target *target, int source) {
    return arena_printf(arena, "rank_%d%s", source, target->source_suffix);
}

const char *source_function(const struct graph *graph, const struct segment *segment, int source) {
    const char *phase = phase_names[segment->phase];
    if (segment->phase >= PHASE_REDUCE || !graph->chunks.n) return arena_printf(graph->arena, "%s_%d", phase, source);
    return arena_printf(graph->arena, "%s_chunk%d_%d", phase, schedule_number(graph, segment->chunk), source);
}

/* Values lie in one of two arenas, according to whether they or others at the same time are communicated, and some in
 * slots of micro-batches. Calls may differ in that: the place is then read from a table. */
static int kind_of_arena(int arena) {
    return arena == RT_COMMUNICATION ? RT_ACTIVATIONS : arena;
}

void instruction_kind(struct strbuf *out, const struct rankplan *plan, const struct rank_class *class,
                      const struct instruction *instruction) {
    strbuf_puts(out, instruction->text);
    VEC_EACH_VALUE(&instruction->tensors, t, int tensor) {
        const struct tensor *type = &plan->graph->tensors.at[tensor];
        strbuf_printf(out, "|%d:%d:%d:", (int)type->dtype, (int)type->kind, kind_of_arena(class->place[tensor].arena));
        for (int d = 0; d < type->ndim; d++) strbuf_printf(out, "%lld ", (long long)class->dims[tensor][d]);
    }
}

struct instructions {
    struct instruction *at;
    int n, capacity;
};

/* Appends the instructions of a segment. numbers: by position of the order (Note [Instruction numbers] in rank.c). */
static void add_segment(struct source *source, const struct rankplan *plan, const struct rank_class *class,
                        const struct segment *segment, const int *numbers, struct instructions *all) {
    const struct graph *graph = plan->graph;
    for (int i = segment->first; i < segment->end; i++) {
        struct instruction instruction = {.number = numbers[i]};
        const int id = graph->order.at[i];
        if (plan->moves_nothing[id] || !stage_part(&graph->nodes.at[id], segment->chunk) ||
            schedule_posts(graph, &graph->nodes.at[id]) ||
            !instruction_write(plan, class, source->kernels, id, &instruction))
            continue;
        VEC_PUSH(graph->arena, all, instruction);
    }
}

/* The instructions that ranks of the class execute, segment by segment. Allocates at least one. */
static void find_instructions(struct source *source, const struct rankplan *plan, const struct rank_class *class,
                              const int *numbers) {
    struct instructions all = {0};
    VEC_PUSH(plan->graph->arena, &all, (struct instruction){0});
    all.n = 0;
    source->segment_end = ARENA_ARRAY(plan->graph->arena, int, class->nsegments + 1);
    for (int s = 0; s < class->nsegments; s++) {
        add_segment(source, plan, class, &plan->graph->segments.at[class->segments[s]], numbers, &all);
        source->segment_end[s] = all.n;
    }
    source->instructions[0] = all.at;
    source->n = all.n;
}

static void put_place(struct strbuf *out, const struct plan_place *place) {
    strbuf_printf(out, "%d:%lld:%d:%lld ", place->arena, (long long)place->offset, place->set,
                  (long long)place->stride);
}

/* A text that is equal for alike classes. It includes the addresses of updates, which are copies at fixed addresses. */
static const char *kind_of(const struct source *source, const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    struct strbuf out = {.arena = graph->arena};
    for (int s = 0; s < class->nsegments; s++)
        strbuf_printf(&out, "%s %d ", phase_names[graph->segments.at[class->segments[s]].phase],
                      source->segment_end[s]);
    for (int i = 0; i < source->n; i++) {
        const struct instruction *all = source->instructions[0];
        bool all_stages = graph->nodes.at[all[i].node].stage == STAGE_ALL;
        strbuf_printf(&out, "\n%s%d ", all_stages ? "=" : "+", all[i].number - (all_stages ? 0 : all[0].number));
        instruction_kind(&out, plan, class, &all[i]);
    }
    for (int i = 0; i < graph->updates.n; i++) {
        strbuf_puts(&out, "\n");
        put_place(&out, &class->place[graph->updates.at[i].weight]);
        put_place(&out, &class->place[graph->updates.at[i].value]);
    }
    strbuf_puts(&out, kernels_text(source->kernels));
    return strbuf_text(&out);
}

/* By position of the order: number of the nodes before it that are executed. */
static const int *number_instructions(const struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    int *numbers = ARENA_ARRAY(graph->arena, int, graph->order.n + 1);
    for (int i = 0; i < graph->order.n; i++) numbers[i + 1] = numbers[i] + !plan->moves_nothing[graph->order.at[i]];
    return numbers;
}

int sources_find(struct sources *sources, const struct rankplan *plan, const struct target *target,
                 struct diags *diags) {
    if (instruction_check(plan->graph, target, diags) < 0) return -1;
    struct arena *arena = plan->graph->arena;
    const int *numbers = number_instructions(plan);
    const struct sizes *sizes = sizes_find(plan->graph);
    struct map known = {.arena = arena};
    *sources = (struct sources){.at = ARENA_ARRAY(arena, struct source, plan->nclasses),
                                .of_class = ARENA_ARRAY(arena, int, plan->nclasses),
                                .row = ARENA_ARRAY(arena, int, plan->nclasses),
                                .numbers = numbers};
    for (int c = 0; c < plan->nclasses; c++) {
        struct source *source = &sources->at[sources->n];
        *source = (struct source){.classes = ARENA_ARRAY(arena, int, plan->nclasses),
                                  .instructions = ARENA_ARRAY(arena, struct instruction *, plan->nclasses),
                                  .kernels = kernels_new(arena, target, sizes)};
        find_instructions(source, plan, &plan->classes[c], numbers);
        const char *kind = kind_of(source, plan, &plan->classes[c]);
        int s = map_find(&known, kind);
        if (s < 0) map_set(&known, kind, s = sources->n++);
        struct source *shared = &sources->at[s];
        shared->instructions[shared->nclasses] = source->instructions[0];
        sources->of_class[c] = s;
        sources->row[c] = shared->nclasses;
        shared->classes[shared->nclasses++] = c;
    }
    return 0;
}

int sources_number(struct sources *sources, const struct rankplan *plan, const struct target *target,
                   struct diags *diags) {
    if (plan->nclasses > 1) return sources_find(sources, plan, target, diags);
    *sources = (struct sources){.n = 1, .of_class = ARENA_ARRAY(plan->graph->arena, int, 1)};
    return 0;
}
