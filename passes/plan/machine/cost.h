/* Cost model, for the typical sizes where sizes are open (graph_typical): the time of a node from its annotation
 * (flops, bytes) and a machine. It serves to balance pipeline stages and to choose between plans; no plan is correct or
 * refused because of it. */
#ifndef PASSES_PLAN_COST_H
#define PASSES_PLAN_COST_H

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/plan/machine/machine.h"
#include "runtime/base/scratch.h"

/* The balance of causal attention: rows at later positions see more keys, so ranks with equal parts of the rows have
 * unequal work unless the cut is mirrored (Note [Mirrored cuts] in runtime/base/shape/part.h).
 *
 * The products of the rank that computes most of an attention, as a multiple of the mean of all ranks: 1 if the node is
 * no causal attention, or its rows are not split. dims: the node's annotation, bound; splits: of `naxes` axes, among
 * ways[axis] ranks each. Kernels skip the keys that a row does not see. */
double causal_excess(const struct node *node, const struct dims *dims, const struct node_split *splits, const int *ways,
                     int naxes);

/* Attention that a program may leave to its target's library (attribute library; runtime/cuda/attend.cuh).
 *
 * Of a FlashAttention or FlashAttentionGrad; q, k, v: extents of these operands on a rank. */
struct rt_attend_size library_attention_size(const struct graph *graph, const struct node *node, const int64_t *q,
                                             const int64_t *k, const int64_t *v);

/* True if the library is asked to compute the node, in 16-bit floats; the gradient only without masks, and if its
 * memory is limited. */
bool library_attention(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                       const int64_t *v);

/* Per node id: seconds for the whole node on one device in a program, where elementwise operators are computed in one
 * loop with their only reader, if that is one of the same shape and phase: such a result is neither written nor read.
 * In `arena`. */
double *cost_nodes(const struct graph *graph, const struct machine *machine, struct arena *arena);

/* Seconds of attention, or its gradient, for `flops` operations; q and k: extents, of which the rank has `share`. */
double cost_attention(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                      const struct machine *machine, double flops, double share);

/* Seconds of the slowest of `ways` ranks for its part of the node under the split; dims: the node's annotation,
 * bound. */
double cost_share(const struct graph *graph, const struct node *node, const struct dims *dims,
                  const struct node_split *split, int ways, const struct machine *machine);

/* Seconds that the collectives of redist.c take to bring a tensor from one placement to another among the group's
 * ranks. */
double cost_move(const struct tensor *tensor, const struct placement *from, const struct placement *to,
                 const struct machine_group *group);

#endif
