/* What a node costs: from its annotation (flops, bytes) and a machine. For balancing and for choosing between plans that
 * are both right; never for whether a plan is right. */
#ifndef PASSES_COST_H
#define PASSES_COST_H

#include "ir/op.h"

/* Rates in units per second. */
struct machine {
    double flops, bytes, link_bytes;
};

/* One core of a server of today, ranks on one host (docs: a measured machine file will take its place). */
extern const struct machine machine_default;

/* Seconds one device needs for the whole node. */
double cost_node(const struct graph *graph, const struct node *node, const struct machine *machine);

#endif
