/* What a graph costs as it is cut along one mesh axis, for policies that try several cuts. */
#ifndef PASSES_PLAN_PLAN_COST_H
#define PASSES_PLAN_PLAN_COST_H

#include "passes/plan/cost.h"
#include "passes/plan/flood.h"

/* Seconds of a step: the slowest rank's shares of all nodes, one after the other, and what is moved between them. */
double plan_cost(struct flood *flood, const struct machine *machine);

#endif
