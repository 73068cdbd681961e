/* Attention that a program may leave to its target's library (attribute library; runtime/cuda/attend.cuh). */
#ifndef PASSES_PLAN_LIBRARY_ATTENTION_H
#define PASSES_PLAN_LIBRARY_ATTENTION_H

#include "ir/op.h"
#include "runtime/base/scratch.h"

/* Of a FlashAttention or FlashAttentionGrad; q, k, v: extents of these operands on a rank. */
struct rt_attend_size library_attention_size(const struct graph *graph, const struct node *node, const int64_t *q,
                                             const int64_t *k, const int64_t *v);

/* True if the library is asked to compute the node, in 16-bit floats; the gradient only without masks, and if its
 * memory is limited. */
bool library_attention(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                       const int64_t *v);

/* Bytes that the library's gradient writes and reads for the gradients of scores; 0 where it stores none. Where the
 * attention is causal it leaves out those of hidden keys. */
double library_attention_scores(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                                const int64_t *v);

#endif
