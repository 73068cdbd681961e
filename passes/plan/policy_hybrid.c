/* Pipeline, tensor and data parallelism on one mesh, decided in this order by the three policies. They do not conflict,
 * because no dimension is split along two axes. */
#include "passes/plan/policy.h"

int policy_hybrid(struct draft *draft, const struct pass_context *context) {
    if (policy_pp(draft, context) < 0 || policy_tp(draft, context) < 0) return -1;
    return policy_data(draft, context);
}
