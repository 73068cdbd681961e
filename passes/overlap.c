/* Sums over units begin where their operands are made, in the backward phase, and end where they are wanted. What happens in
 * between is the runtime's affair (Note [Buckets] in runtime/unit_sum.c). */
#include <string.h>

#include "ir/op.h"
#include "passes/pipeline.h"

/* UnitSum's operand becomes the result of a node that says that it is complete. */
static void add_start(struct graph *graph, int id) {
    const struct node sum = graph->nodes.at[id];
    const struct tensor t = graph->tensors.at[sum.inputs[0]];
    int out = graph_add_tensor(graph, TENSOR_VALUE, arena_printf(graph->arena, "%s.start", t.name), t.dtype, t.ndim, t.dims);
    graph->tensors.at[out].layout = t.layout;
    int start = graph_add_node(graph, op_named("UnitSumStart"), sum.name, 1, sum.inputs, 1, &out, 0, NULL);
    struct node *node = &graph->nodes.at[start];
    memcpy(node->split, sum.split, sizeof sum.split);
    node->stage = sum.stage;
    node->phase = graph_phase_of(graph, sum.inputs[0]);
    graph->nodes.at[id].inputs[0] = out;
}

/* The UnitSum that reads the tensor, -1 if there is none. */
static int sum_of(const struct graph *graph, const struct uses *uses, int tensor) {
    for (int u = uses->first[tensor]; u < uses->first[tensor + 1]; u++)
        if (strcmp(graph->nodes.at[uses->users[u]].op->name, "UnitSum") == 0) return uses->users[u];
    return -1;
}

int pass_overlap(struct graph *graph, const struct pass_context *context) {
    struct uses uses;
    const int *order = graph->order.at, n = graph->order.n;
    (void)context;
    graph_uses(graph, graph->arena, &uses);
    graph->order.at = NULL;
    graph->order.n = graph->order.capacity = 0;
    for (int i = 0; i < n; i++) {
        VEC_PUSH(graph->arena, &graph->order, order[i]);
        int sum = sum_of(graph, &uses, graph->nodes.at[order[i]].outputs[0]);
        if (sum >= 0) add_start(graph, sum);
    }
    return 0;
}
