/* Spreading a cut over a graph: from one tensor to all that must be cut with it.
 *
 * Note [Flood]
 * A policy decides little: "cut the columns of this product", "cut the batch of this input". What follows is the
 * same for every model. A part of a tensor makes each reader cut the factor it meets there; that cuts the reader's
 * other operands and its results, and so on, forward to readers and backward to producers. A flood ends where a
 * factor is summed (the result is partial), where an operand is stored (each rank loads its part), and at the
 * graph's outputs.
 *
 * Where a dimension is a product of factors (heads times head size) or holds several pieces (a fused
 * query-key-value product), the cut at the origin was too fine: the flood starts again from a cut of larger units
 * or of more blocks. So heads stay whole, and a fused weight is cut in three places, because the graph says so; no
 * pattern is matched.
 */
#ifndef PASSES_PLAN_FLOOD_H
#define PASSES_PLAN_FLOOD_H

#include "ir/dims.h"
#include "ir/op.h"

struct flood {
    struct graph *graph;
    struct arena *arena;
    int axis, ways; /* mesh axis along which is cut */
    struct uses uses;
    struct dims **dims; /* per node, bound on demand */
    bool *decided;      /* per node: has a split on this axis, or is to stay as it is */
    int *wished;        /* per tensor, during an attempt: the number of its wish + 1 */
    bool *closed;       /* per node: is to be cut on its own account; a flood that may gather ends there */
};

void flood_init(struct flood *flood, struct graph *graph, struct arena *arena, int axis);

/* The node's annotation bound to its shapes. */
const struct dims *flood_dims(struct flood *flood, int node);

/* The mesh axis along which the node is cut already in what `split` would cut along `axis`; -1 if there is none. */
int flood_other_axis(const struct node *node, const struct dims *dims, int axis, const struct node_split *split);

/* How a flood meets readers that cannot take the cut. */
enum flood_end {
    FLOOD_STRICT, /* it fails */
    FLOOD_GATHER  /* they read the whole tensor */
};

/* Cuts `factor` of `node` and spreads; true if the splits stand. False: the graph is unchanged. */
bool flood_node(struct flood *flood, int node, int factor, enum flood_end end);

/* Cuts dimension `dim` of a graph input and spreads from there. */
bool flood_input(struct flood *flood, int tensor, int dim, enum flood_end end);

/* Cuts the node as given, or in larger units or more blocks, and spreads to all that it touches; where that cannot be,
 * as far as it can; or cuts it alone. False if it cannot be cut at all. */
bool flood_from(struct flood *flood, int node, const struct node_split *split);

/* Cuts the factor of the node alone, readers gather; true if it can be. */
bool flood_alone(struct flood *flood, int node, int factor);

#endif
