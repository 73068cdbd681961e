#include "passes/rank/slots.h"

static enum rt_arena arena_of(const struct rankplan *plan, int root) {
    return plan->shared[root] ? RT_COMMUNICATION : RT_ACTIVATIONS;
}

static void keep(const struct rankplan *plan, struct rank_class *class, bool *listed, int tensor) {
    const int root = plan->root[tensor];
    if (listed[root] || plan->graph->tensors.at[root].kind != TENSOR_VALUE || class->place[root].offset >= 0) return;
    listed[root] = true;
    VEC_PUSH(plan->graph->arena, &class->kept, root);
}

/* Lists the roots of the values that backward segments read and others compute, and of those that other chunks read. */
static void list_kept(const struct rankplan *plan, struct rank_class *class) {
    const struct graph *graph = plan->graph;
    const struct transfer_ends ends = schedule_ends(graph, class->stage);
    bool *listed = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int e = 0; e < ends.all.n; e++) {
        const struct node *node = &graph->nodes.at[ends.all.at[e].node];
        keep(plan, class, listed, ends.all.at[e].sends ? node->inputs[0] : node->outputs[0]);
    }
    class->transferred = class->kept.n;
    for (int s = 0; s < class->nsegments; s++) {
        const struct segment *segment = &graph->segments.at[class->segments[s]];
        for (int i = 0; i < segment->in.n && segment->phase == PHASE_BACKWARD; i++)
            keep(plan, class, listed, segment->in.at[i]);
    }
}

/* Number of the first kept values that lie in the region of slots. */
static int in_region(const struct rank_class *class) {
    return class->schedule->slots > 1 ? class->kept.n : class->transferred;
}

void slots_find(const struct rankplan *plan, struct rank_class *class) {
    list_kept(plan, class);
    for (int i = 0; i < class->kept.n; i++) {
        const int root = class->kept.at[i];
        int64_t *bytes = &class->slot_bytes[arena_of(plan, root)];
        if (i < in_region(class)) class->place[root] = (struct plan_place){arena_of(plan, root), *bytes, 0};
        *bytes += rankplan_memory(plan, class, root);
    }
}

/* Size of a slot in the region: with one slot, only the first values lie there. */
static int64_t stride_of(const struct rankplan *plan, const struct rank_class *class, enum rt_arena arena) {
    int64_t bytes = 0;
    for (int i = 0; i < in_region(class); i++)
        if (arena_of(plan, class->kept.at[i]) == arena) bytes += rankplan_memory(plan, class, class->kept.at[i]);
    return bytes;
}

void slots_place(const struct rankplan *plan, struct rank_class *class) {
    static const enum rt_arena arenas[] = {RT_ACTIVATIONS, RT_COMMUNICATION};
    int64_t stride[RT_ARENAS] = {0};
    for (int a = 0; a < 2; a++) stride[arenas[a]] = stride_of(plan, class, arenas[a]);
    for (int i = 0; i < in_region(class); i++) {
        struct plan_place *place = &class->place[class->kept.at[i]];
        place->offset += class->bytes[place->arena];
        place->stride = stride[place->arena];
    }
    for (int a = 0; a < 2; a++) class->bytes[arenas[a]] += class->schedule->slots * stride[arenas[a]];
}

int slots_verify(const struct rankplan *plan, const struct rank_class *class, struct diags *diags) {
    const struct graph *graph = plan->graph;
    int64_t first[RT_ARENAS], end[RT_ARENAS] = {0}; /* of the region of slots */
    if (!in_region(class)) return 0;
    for (int a = 0; a < RT_ARENAS; a++) first[a] = INT64_MAX;
    for (int i = 0; i < in_region(class); i++) {
        const struct plan_place *place = &class->place[class->kept.at[i]];
        if (place->offset < first[place->arena]) first[place->arena] = place->offset;
        end[place->arena] = first[place->arena] + class->schedule->slots * place->stride;
    }
    for (int t = 0; t < graph->tensors.n; t++) {
        const struct plan_place *place = &class->place[t];
        if (place->offset < 0 || place->arena >= RT_ARENAS || end[place->arena] == 0) continue;
        const int64_t behind = place->offset + rankplan_bytes(class, graph, t);
        const bool good = place->stride ? behind <= first[place->arena] + place->stride
                                        : behind <= first[place->arena] || place->offset >= end[place->arena];
        if (!good)
            return diag_error(diags, 1103, EXIT_INTERNAL, graph->name, "memory plan: '%s' overlaps another slot",
                              graph->tensors.at[t].name);
    }
    return 0;
}
