/* What a node costs: from its annotation (flops, bytes) and a machine. For balancing and for choosing between plans
 * that are both right; never for whether a plan is right. */
#ifndef PASSES_PLAN_COST_H
#define PASSES_PLAN_COST_H

#include "ir/dims.h"
#include "ir/op.h"

/* Rates in units per second; `latency`: seconds of a collective that moves nothing. */
struct machine {
    double flops, bytes, link_bytes, latency;
};

/* One core of a server of today, ranks on one host (docs: a measured machine file will take its place). */
extern const struct machine machine_default;

/* Seconds one device needs for the whole node. */
double cost_node(const struct graph *graph, const struct node *node, const struct machine *machine);

/* Seconds the slowest of `ways` ranks needs for its share of the node, cut so; dims are the node's. */
double cost_share(const struct graph *graph, const struct node *node, const struct dims *dims,
                  const struct node_split *split, int ways, const struct machine *machine);

/* Seconds to bring the tensor from one holding to another among `ways` ranks, by the moves of redist.c. */
double cost_move(const struct tensor *tensor, const struct holding *from, const struct holding *to, int ways,
                 const struct machine *machine);

#endif
