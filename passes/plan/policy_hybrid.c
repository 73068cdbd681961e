/* Any mesh of the named axes: stages, then tensor parallelism, then the batch, each as its own policy decides it. The
 * axes do not disturb each other: no dimension is cut along two of them. */
#include "passes/plan/policy.h"

int policy_hybrid(struct graph *graph, const struct pass_context *context) {
    if (policy_pp(graph, context) < 0 || policy_tp(graph, context) < 0) return -1;
    return policy_data(graph, context);
}
