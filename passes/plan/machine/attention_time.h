/* What attention costs that other products do not: unequal rows under a causal mask, and a library's kernels. */
#ifndef PASSES_PLAN_ATTENTION_TIME_H
#define PASSES_PLAN_ATTENTION_TIME_H

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/plan/machine/machine.h"
#include "runtime/base/scratch.h"

/* The balance of causal attention: rows at later positions see more keys, so ranks with equal parts of the rows have
 * unequal work unless the cut is mirrored (Note [Mirrored cuts] in runtime/base/shape/part.h).
 *
 * The products of the rank that computes most of an attention, as a multiple of the mean of all ranks: 1 if the node is
 * no causal attention, or its rows are not split. dims: the node's annotation, bound; splits: per axis of the mesh.
 * Kernels skip the keys that a row does not see. */
double causal_excess(const struct node *node, const struct dims *dims, const struct node_split *splits,
                     const struct mesh *mesh);

/* Attention that a program may leave to its target's library (attribute library; runtime/cuda/attend.cuh).
 *
 * Of a FlashAttention or FlashAttentionGrad; q, k, v: extents of these operands on a rank. */
struct rt_attend_size library_attention_size(const struct graph *graph, const struct node *node, const int64_t *q,
                                             const int64_t *k, const int64_t *v);

/* True if the library is asked to compute the node, in 16-bit floats; the gradient only without masks, and if its
 * memory is limited. */
bool library_attention(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                       const int64_t *v);

/* Seconds of attention, or its gradient, for `flops` operations; q and k: extents on a rank. */
double attention_seconds(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                         const struct machine *machine, double flops);

#endif
