/* Redistribution: the cheapest way from the layout a tensor has to the one a reader wants.
 *
 * Along one mesh axis a tensor is whole, a part, or partial. Moves between these states are collectives over the
 * ranks of the axis; a change is the shortest path over them (nnScaler's RVD, one mesh axis at a time). */
#ifndef PASSES_REDIST_H
#define PASSES_REDIST_H

#include "ir/dims.h"
#include "ir/op.h"

/* What the node wants of input operand `operand` along `axis`, and gives as its output number `output`. */
struct holding redist_wanted(const struct graph *graph, const struct dims *dims, const struct node *node,
                             int operand, int axis);
struct holding redist_given(const struct dims *dims, const struct node *node, int output, int axis);

#endif
