/* Divides the order into segments (ir/schedule.h): one for each phase and chunk, with the values that cross them. */
#include "ir/schedule.h"
#include "passes/pipeline.h"

struct crossing {
    struct graph *graph;
    int *home; /* per tensor: 1 + the segment of the current coordinate that computes it, 0: none does */
    int *last; /* per tensor: 1 + the last segment that lists it in `in` */
    bool *out; /* per tensor: true if another segment of the coordinate reads it or it is an output */
};

/* Positions [first, end): from the first to the last node of the phase that the chunk takes part in. */
static struct segment find_segment(const struct graph *graph, int chunk, enum phase phase, int begin, int end) {
    struct segment segment = {.phase = phase, .chunk = chunk, .first = begin, .end = begin};
    bool any = false;
    for (int i = begin; i < end; i++) {
        if (stage_part(&graph->nodes.at[graph->order.at[i]], chunk) == STAGE_NONE) continue;
        if (!any) segment.first = i;
        segment.end = i + 1;
        any = true;
    }
    return segment;
}

static void find_segments(struct graph *graph) {
    const int phases = schedule_phases(graph), chunks = schedule_chunks(graph);
    const enum phase last = schedule_last_phase(graph);
    int end[PHASES + 1] = {0}; /* end[p + 1]: position behind the nodes of phase p */
    EACH_VALUE(end, phases, p, int i) {
        while (i < graph->order.n && (int)graph->nodes.at[graph->order.at[i]].phase <= p) i++;
        end[p + 1] = i;
    }
    for (int chunk = 0; chunk < chunks; chunk++)
        for (int p = 0; p < phases; p++) {
            const struct segment segment = find_segment(graph, chunk, (enum phase)p, end[p], end[p + 1]);
            if (p == PHASE_WEIGHT && last != PHASE_WEIGHT) continue;
            if (p >= PHASE_REDUCE && schedule_number(graph, chunk)) continue;
            VEC_PUSH(graph->arena, &graph->segments, segment);
        }
}

/* The segment reads the tensor, which another may compute. */
static void read_value(struct crossing *c, int s, int tensor) {
    if (tensor < 0 || !c->home[tensor] || c->home[tensor] == s + 1 || c->last[tensor] == s + 1) return;
    c->last[tensor] = s + 1;
    c->out[tensor] = true;
    VEC_PUSH(c->graph->arena, &c->graph->segments.at[s].in, tensor);
}

static void find_homes(struct crossing *c, int s) {
    const struct segment *segment = &c->graph->segments.at[s];
    for (int i = segment->first; i < segment->end; i++) {
        const struct node *node = &c->graph->nodes.at[c->graph->order.at[i]];
        for (int k = 0; k < node->noutputs && stage_part(node, segment->chunk) & STAGE_WRITES; k++)
            c->home[node->outputs[k]] = s + 1;
    }
}

static void find_in(struct crossing *c, int s) {
    const struct graph *graph = c->graph;
    const int chunk = graph->segments.at[s].chunk, end = graph->segments.at[s].end;
    for (int i = graph->segments.at[s].first; i < end; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs && stage_part(node, chunk) & STAGE_READS; k++)
            read_value(c, s, node->inputs[k]);
    }
    for (int i = 0; i < graph->updates.n; i++)
        if (schedule_stores(graph, &graph->segments.at[s], &graph->updates.at[i]))
            read_value(c, s, graph->updates.at[i].value);
}

static void find_out(struct crossing *c, int s) {
    struct segment *segment = &c->graph->segments.at[s];
    for (int i = segment->first; i < segment->end; i++) {
        const struct node *node = &c->graph->nodes.at[c->graph->order.at[i]];
        for (int k = 0; k < node->noutputs && stage_part(node, segment->chunk) & STAGE_WRITES; k++)
            if (c->out[node->outputs[k]]) VEC_PUSH(c->graph->arena, &segment->out, node->outputs[k]);
    }
}

/* Of the segments of one coordinate. */
static void find_crossing(struct graph *graph, struct arena *scratch, int coordinate) {
    struct crossing c = {.graph = graph};
    VEC(int) own = {0};
    c.home = ARENA_ARRAY(scratch, int, graph->tensors.n + 1);
    c.last = ARENA_ARRAY(scratch, int, graph->tensors.n + 1);
    c.out = ARENA_ARRAY(scratch, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->outputs.n; i++) c.out[graph->outputs.at[i]] = true;
    for (int s = 0; s < graph->segments.n; s++)
        if (schedule_home(graph, graph->segments.at[s].chunk) == coordinate) VEC_PUSH(scratch, &own, s);
    for (int i = 0; i < own.n; i++) find_homes(&c, own.at[i]);
    for (int i = 0; i < own.n; i++) find_in(&c, own.at[i]);
    for (int i = 0; i < own.n; i++) find_out(&c, own.at[i]);
}

int pass_segments(struct graph *graph, const struct pass_context *context) {
    (void)context;
    find_segments(graph);
    for (int coordinate = 0; coordinate < schedule_coordinates(graph); coordinate++) {
        struct arena *scratch = arena_scratch(graph->arena);
        find_crossing(graph, scratch, coordinate);
        arena_release(graph->arena, scratch);
    }
    return 0;
}
