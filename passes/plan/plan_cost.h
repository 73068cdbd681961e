/* Cost of a whole graph under a draft's splits along one mesh axis, for policies that compare several. */
#ifndef PASSES_PLAN_PLAN_COST_H
#define PASSES_PLAN_PLAN_COST_H

#include "passes/plan/cost.h"
#include "passes/plan/propagation.h"

/* Seconds of a step: the sum over all nodes of the slowest rank's time, and of all redistributions between them. */
double plan_cost(struct propagation *propagation, const struct machine *machine);

#endif
