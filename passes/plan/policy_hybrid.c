/* Pipeline, tensor, context and data parallelism on one mesh, decided in this order by the four policies. */
#include "passes/plan/policy.h"

int policy_hybrid(struct draft *draft, const struct pass_context *context) {
    if (policy_pp(draft, context) < 0 || policy_tp(draft, context) < 0) return -1;
    if (policy_context(draft, context) < 0) return -1;
    return policy_data(draft, context);
}
