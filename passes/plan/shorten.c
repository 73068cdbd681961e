#include "passes/plan/shorten.h"

#include <stdlib.h>

static const struct node *node_at(const struct graph *graph, int place) {
    return &graph->nodes.at[graph->order.at[place]];
}

/* Places of the order that a shortening removes: `nodes` times `times` of them, from `first` on. */
struct gap {
    int first, end, nodes;
};

static struct gap gap_of(const struct block *block, int left) {
    const int kept = left < block->times ? left : block->times;
    return (struct gap){block->first + kept * block->nodes, block->first + block->times * block->nodes, block->nodes};
}

/* The tensor that takes the place of `tensor`, which is computed in the block of the gap: the result of the node that
 * is before it by as many repetitions as are removed. -1: there is no such repetition. */
static int counterpart(const struct graph *graph, const int *places, const struct block *block, const struct gap *gap,
                       int tensor) {
    const int place = places[tensor] - (gap->end - gap->first);
    if (place < block->first) return -1;
    const struct node *was = node_at(graph, places[tensor]), *is = node_at(graph, place);
    for (int o = 0; o < was->noutputs; o++)
        if (was->outputs[o] == tensor) return is->outputs[o];
    return -1;
}

static bool is_removed(const int *places, const struct gap *gap, int tensor) {
    return tensor >= 0 && places[tensor] >= gap->first && places[tensor] < gap->end;
}

static bool can_shorten(const struct graph *graph, const int *places, const struct block *block, int left) {
    const struct gap gap = gap_of(block, left);
    for (int i = gap.end; i < graph->order.n; i++) {
        const struct node *node = node_at(graph, i);
        for (int k = 0; k < node->ninputs; k++)
            if (is_removed(places, &gap, node->inputs[k]) &&
                counterpart(graph, places, block, &gap, node->inputs[k]) < 0)
                return false;
    }
    return gap.end > gap.first;
}

static int by_nodes(const void *left, const void *right) {
    const struct block *a = left, *b = right;
    const int x = a->nodes * a->times, y = b->nodes * b->times;
    return x != y ? (x > y ? -1 : 1) : (a->first > b->first) - (a->first < b->first);
}

void repeated_find(const struct graph *graph, struct arena *arena, int least, struct repeated *out) {
    struct blocks blocks;
    *out = (struct repeated){0};
    if (graph->level != TYPED || graph->counted.n) return;
    blocks_find(graph, arena, node_kinds(graph, arena, ALIKE), 0, graph->order.n, &blocks);
    for (int b = 0; b < blocks.all.n; b++)
        if (can_shorten(graph, blocks.places, &blocks.all.at[b], least)) VEC_PUSH(arena, &out->all, blocks.all.at[b]);
    if (out->all.n) qsort(out->all.at, (size_t)out->all.n, sizeof *out->all.at, by_nodes);
}

/* An output of a removed repetition becomes that of its counterpart, unless it has one already. */
static void keep_outputs(struct graph *graph, const int *places, const struct block *block, const struct gap *gap) {
    int n = 0;
    VEC_EACH_VALUE(&graph->outputs, i, int tensor) {
        if (is_removed(places, gap, tensor)) {
            tensor = counterpart(graph, places, block, gap, tensor);
            if (tensor < 0 || graph_is_output(graph, tensor)) continue;
        }
        graph->outputs.at[n] = tensor;
        graph->output_names.at[n++] = graph->output_names.at[i];
    }
    graph->outputs.n = graph->output_names.n = n;
}

static void keep_updates(struct graph *graph, const int *places, const struct gap *gap) {
    int n = 0;
    for (int i = 0; i < graph->updates.n; i++)
        if (!is_removed(places, gap, graph->updates.at[i].value)) graph->updates.at[n++] = graph->updates.at[i];
    graph->updates.n = n;
}

static void remove_gap(struct graph *graph, const int *places, const struct block *block, const struct gap *gap) {
    for (int i = gap->end; i < graph->order.n; i++) {
        struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++)
            if (is_removed(places, gap, node->inputs[k]))
                node->inputs[k] = counterpart(graph, places, block, gap, node->inputs[k]);
    }
    keep_outputs(graph, places, block, gap);
    keep_updates(graph, places, gap);
}

/* Removes the inputs that were read and no longer are. */
static void keep_inputs(struct graph *graph, const int *readers_before) {
    const int *readers = graph_readers(graph, graph->arena);
    int n = 0;
    VEC_EACH_VALUE(&graph->inputs, i, const int tensor)
        if (readers[tensor] || !readers_before[tensor]) graph->inputs.at[n++] = tensor;
    graph->inputs.n = n;
}

void shorten(struct graph *graph, const struct repeated *repeated, const int *times) {
    const int *places = node_places(graph, graph->arena), *readers = graph_readers(graph, graph->arena);
    bool *gone = ARENA_ARRAY(graph->arena, bool, graph->order.n + 1);
    int n = 0;
    VEC_EACH(&repeated->all, b, const struct block *block) {
        const struct gap gap = gap_of(block, times[b]);
        remove_gap(graph, places, block, &gap);
        for (int i = gap.first; i < gap.end; i++) gone[i] = true;
    }
    for (int i = 0; i < graph->order.n; i++)
        if (!gone[i]) graph->order.at[n++] = graph->order.at[i];
    graph->order.n = n;
    keep_inputs(graph, readers);
    graph_compact(graph);
}
