/* Takes a Transpose of the last two dimensions into the product that reads it, as trans_a or trans_b. Exporters
 * write Linear layers as MatMul(x, Transpose(w)); fused, a weight is read as it is stored, and a tied one stays
 * one. */
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

/* Batched transposed products of computed values pay only in reading order, so those keep their Transpose unless
 * the operand is stored. */
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
