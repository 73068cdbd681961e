/* The balance of causal attention: rows at later positions see more keys, so ranks with equal parts of the rows have
 * unequal work unless the cut is mirrored (Note [Mirrored cuts] in runtime/base/shape/part.h). */
#ifndef PASSES_PLAN_CAUSAL_H
#define PASSES_PLAN_CAUSAL_H

#include "ir/dims.h"

/* The products of the rank that computes most of an attention, as a multiple of the mean of all ranks: 1 if the node is
 * no causal attention, or its rows are not split. dims: the node's annotation, bound; splits: of `naxes` axes, among
 * ways[axis] ranks each. Kernels skip the keys that a row does not see. */
double causal_excess(const struct node *node, const struct dims *dims, const struct node_split *splits, const int *ways,
                     int naxes);

#endif
