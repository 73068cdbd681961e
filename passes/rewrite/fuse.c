/* Replaces MatMul(x, Transpose(w)), where the Transpose exchanges the last two dimensions of a stored weight, by a
 * MatMul with trans_b. Exporters write Linear layers so. The weight is then read as it is stored, and a tied weight
 * stays one tensor. */
#include "ir/op.h"
#include "passes/pipeline.h"

/* The input of the Transpose that exchanges the last two dimensions and makes `tensor`, or -1. */
static int transposed(const struct graph *graph, int tensor) {
    const struct node *producer = graph_producer(graph, tensor);
    return producer && op_exchanges_last(producer) ? producer->inputs[0] : -1;
}

/* Sets the attribute `key` of the product if its operand is the Transpose of a stored tensor. Products of computed
 * tensors keep their Transpose: reading the operand the other way round costs as much. */
static void fuse_operand(struct graph *graph, struct node *node, int operand, const char *key) {
    int source = transposed(graph, node->inputs[operand]);
    if (source < 0 || !tensor_is_stored(&graph->tensors.at[source])) return;
    node->inputs[operand] = source;
    attr_set(graph, node, attr_of_int(key, !attr_int(node, key, 0)));
}

int pass_fuse(struct graph *graph, const struct pass_context *context) {
    (void)context;
    GRAPH_EACH(graph, i, struct node *const node)
        if (node->op->id == OP_MatMul) fuse_operand(graph, node, 1, "trans_b");
    return 0;
}
