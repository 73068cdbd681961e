/* Replaces MatMul(x, Transpose(w)), where the Transpose exchanges the last two dimensions of a stored weight, by a
 * MatMul with trans_b. Exporters write Linear layers so. The weight is then read as it is stored, and a tied weight
 * stays one tensor. */
#include "ir/op.h"
#include "passes/pipeline.h"

#include <string.h>

/* The input of the Transpose that exchanges the last two dimensions and makes `tensor`, or -1. */
static int transposed(const struct graph *graph, int tensor) {
    int producer = graph->tensors.at[tensor].producer, n;
    if (producer < 0 || graph->nodes.at[producer].op->id != OP_Transpose) return -1;
    const int64_t *perm = attr_ints(&graph->nodes.at[producer], "perm", &n);
    if (n < 2 || perm[n - 1] != n - 2 || perm[n - 2] != n - 1) return -1;
    for (int d = 0; d < n - 2; d++)
        if (perm[d] != d) return -1;
    return graph->nodes.at[producer].inputs[0];
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
    for (int i = 0; i < graph->order.n; i++) {
        struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (node->op->id == OP_MatMul) fuse_operand(graph, node, 1, "trans_b");
    }
    return 0;
}
