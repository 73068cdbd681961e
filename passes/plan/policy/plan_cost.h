/* Cost of a whole graph under a draft's splits along one mesh axis, for policies that compare several. */
#ifndef PASSES_PLAN_PLAN_COST_H
#define PASSES_PLAN_PLAN_COST_H

#include "passes/plan/machine/cost.h"
#include "passes/plan/propagation.h"

/* Seconds of a step: the sum over all nodes of the slowest rank's time, and of all redistributions between them. */
double plan_cost(struct propagation *propagation, const struct machine *machine);

/* Bytes of weights that the plan leaves whole on every rank of the axis; *divided: of those that ranks divide. */
int64_t plan_whole_weights(struct propagation *propagation, int64_t *divided);
/* True if a reader of the stored tensor needs it whole. */
bool plan_needs_whole(struct propagation *propagation, int tensor);

#endif
