/* Makes one node of two reductions over the same dimensions of one tensor, so that it is read once. An example are the
 * largest and the least element, from which the scale of a dynamic quantisation follows.
 *
 * Runs after fuse_rows and fuse_sums, which fuse reductions with what computes or reads their operand. The second
 * reduction moves to the place of the first: the operand is there, and the result is no larger. */
#include <string.h>

#include "ir/op.h"
#include "passes/pipeline.h"

static bool is_reduction(const struct graph *graph, const struct node *node) {
    if (!node->op->fold || !op_has_kernel(&ops[OP_ReducePair], graph->tensors.at[node->inputs[0]].dtype)) return false;
    for (int axis = 0; axis < mesh_layout_axes(&graph->mesh); axis++)
        if (node->split[axis].factor < SPLIT_NONE) return false; /* addends of a partial sum */
    return true;
}

static bool is_alike(const struct node *a, const struct node *b) {
    int m, n;
    const int64_t *axes = attr_ints(a, "axes", &m), *others = attr_ints(b, "axes", &n);
    return a->stage == b->stage && a->phase == b->phase && memcmp(a->split, b->split, sizeof a->split) == 0 && m == n &&
           (!n || memcmp(axes, others, (size_t)n * sizeof *axes) == 0) &&
           attr_int(a, "keepdims", 1) == attr_int(b, "keepdims", 1);
}

/* Adds the node outside of the order, and returns its id. */
static int join(struct graph *graph, int first, int second) {
    const struct node a = graph->nodes.at[first], b = graph->nodes.at[second];
    struct node pair = a;
    pair.op = &ops[OP_ReducePair];
    pair.outputs = (int[]){a.outputs[0], b.outputs[0]}, pair.noutputs = 2;
    attr_set(graph, &pair, attr_of_text("first", a.op->fold));
    attr_set(graph, &pair, attr_of_text("second", b.op->fold));
    const int made = graph_add_copy(graph, &pair);
    graph->order.n--; /* it takes their place */
    VEC_PUSH(graph->arena, &graph->members, (struct member){made, a.name});
    VEC_PUSH(graph->arena, &graph->members, (struct member){made, b.name});
    return made;
}

int pass_fuse_reductions(struct graph *graph, const struct pass_context *context) {
    if (context->kernels && context->kernels[OP_ReducePair].missing) return 0;
    struct arena *scratch = arena_scratch(graph->arena);
    /* per tensor: the place in the order, from 1 on, of a reduction that reads it and is in no pair; 0: none */
    int *alone = ARENA_ARRAY(scratch, int, graph->tensors.n + 1), live = 0;
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        int *place = is_reduction(graph, node) ? &alone[node->inputs[0]] : NULL;
        const int first = place && *place ? graph->order.at[*place - 1] : -1;
        if (first >= 0 && is_alike(&graph->nodes.at[first], node)) {
            const int made = join(graph, first, id);
            graph->order.at[*place - 1] = made, *place = 0;
            continue;
        }
        graph->order.at[live++] = id;
        if (place) *place = live;
    }
    graph->order.n = live;
    arena_release(graph->arena, scratch);
    return 0;
}
