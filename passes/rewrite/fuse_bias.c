/* Makes a 32-bit integer for each column, which is added to the sums of a product of integers, the product's bias: its
 * kernel begins the sums with it. QLinearConv and QGemm add theirs so. */

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/epilogues.h"

/* Adds the product with the bias, outside of the order, and returns its id; -1 if operand 1 - k of the sum is none. */
static int join(struct graph *graph, const struct node *product, const struct node *sum, int k) {
    struct node joined = *product;
    struct dims dims;
    joined.inputs = ARENA_ARRAY(graph->arena, int, OP_INTEGER_INPUTS);
    joined.ninputs = OP_INTEGER_INPUTS;
    for (int i = 0; i < OP_INTEGER_BIAS; i++) joined.inputs[i] = i < product->ninputs ? product->inputs[i] : -1;
    joined.inputs[OP_INTEGER_BIAS] = sum->inputs[1 - k];
    joined.outputs = sum->outputs;
    if (dims_bind(graph->arena, graph, &joined, &dims, NULL) < 0) return -1;
    const int made = graph_add_copy(graph, &joined);
    graph->order.n--; /* it takes the sum's place */
    return made;
}

/* The node that replaces sum `id`; -1: none does. gone: per node, those that are part of another now. */
static int with_bias(struct graph *graph, const struct pass_context *context, const int *readers, bool *gone, int id) {
    const struct node sum = graph->nodes.at[id];
    for (int k = 0; k < 2; k++) {
        const struct node *product =
            readers[sum.inputs[k]] == 1 ? epilogue_product_of(graph, context, &sum, sum.inputs[k]) : NULL;
        if (!product || !op_multiplies_integers(product->op) || product->ninputs > OP_INTEGER_BIAS) continue;
        const struct node of = *product;
        const int before = graph->tensors.at[sum.inputs[k]].producer, made = join(graph, &of, &sum, k);
        if (made < 0) continue;
        gone[before] = true;
        return made;
    }
    return -1;
}

int pass_fuse_bias(struct graph *graph, const struct pass_context *context) {
    const int *readers = graph_readers(graph, graph->arena);
    bool *gone = ARENA_ARRAY(graph->arena, bool, 2 * graph->nodes.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        if (node->op->id != OP_Add || graph->tensors.at[node->outputs[0]].dtype != RT_I32) continue;
        const int made = with_bias(graph, context, readers, gone, graph->order.at[i]);
        if (made >= 0) graph->order.at[i] = made;
    }
    graph_keep(graph, gone, false);
    return 0;
}
