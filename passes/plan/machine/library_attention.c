#include "passes/plan/machine/library_attention.h"

struct rt_attend_size library_attention_size(const struct graph *graph, const struct node *node, const int64_t *q,
                                             const int64_t *k, const int64_t *v) {
    const int ndim = graph->tensors.at[node->inputs[op_query(node)]].ndim;
    return (struct rt_attend_size){.group = k[ndim - 3] > 0 ? q[ndim - 3] / k[ndim - 3] : 1,
                                   .t = q[ndim - 2],
                                   .s = k[ndim - 2],
                                   .d = q[ndim - 1],
                                   .e = v[ndim - 1],
                                   .atomic = attr_int(node, "library", 0) == RT_LIBRARY_ATOMIC};
}

bool library_attention(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                       const int64_t *v) {
    enum { OPERANDS = 6 }; /* of the gradient without masks */
    const enum rt_dtype dtype = graph->tensors.at[node->inputs[op_query(node)]].dtype;
    if (!attr_int(node, "library", 0) || rt_dtypes[dtype].kind != RT_KIND_HALF) return false;
    if (node->op->id != OP_FlashAttentionGrad) return true;
    const struct rt_attend_size size = library_attention_size(graph, node, q, k, v);
    return node->ninputs <= OPERANDS && rt_attend_is_small(&size);
}

double library_attention_scores(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                                const int64_t *v) {
    enum { BYTES = 2, WRITTEN_AND_READ = 2 };
    const int ndim = graph->tensors.at[node->inputs[op_query(node)]].ndim;
    double scores = attr_int(node, "causal", 0) ? 0.5 : 1;
    if (node->op->id != OP_FlashAttentionGrad || attr_int(node, "library", 0) != RT_LIBRARY ||
        !library_attention(graph, node, q, k, v))
        return 0;
    for (int d = 0; d < ndim - 1; d++) scores *= (double)q[d];
    return scores * (double)k[ndim - 2] * BYTES * WRITTEN_AND_READ;
}
