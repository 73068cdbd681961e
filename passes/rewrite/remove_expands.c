/* Removes Expand nodes before elementwise operators that broadcast the operand by themselves, as their annotations say.
 * The gradient of a sum is an Expand, and most of its readers have another operand of the full shape. */

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/pipeline.h"

/* True if the node takes inputs of these shapes, and broadcasts them to the shape of its result. */
static bool keeps_shape(const struct graph *graph, const struct node *node) {
    struct dims dims;
    return dims_bind(graph->arena, graph, node, &dims, NULL) == 0 &&
           dims_fits(&dims, dims.ninputs, &graph->tensors.at[node->outputs[0]]);
}

/* The input of the Expand that computes the tensor; -1 if its producer is none. An Expand whose result is summed over
 * replicas stays: its input is not. */
static int before_expand(const struct graph *graph, int tensor) {
    const struct node *expand = made_by(graph, tensor, OP_Expand);
    return expand && !graph->tensors.at[tensor].joined ? expand->inputs[0] : -1;
}

static void read_unexpanded(const struct graph *graph, struct node *node, int k) {
    for (int before; (before = before_expand(graph, node->inputs[k])) >= 0;) {
        int expanded = node->inputs[k];
        node->inputs[k] = before;
        if (keeps_shape(graph, node)) continue;
        node->inputs[k] = expanded;
        return;
    }
}

int pass_remove_expands(struct graph *graph, const struct pass_context *context) {
    (void)context;
    GRAPH_EACH(graph, i, struct node *const node) {
        for (int k = 0; k < node->ninputs && node->op->kind == OP_ELEMENTWISE; k++)
            if (node->inputs[k] >= 0) read_unexpanded(graph, node, k);
    }
    return 0;
}
