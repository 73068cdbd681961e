/* Pipeline, tensor, context, data and expert parallelism on one mesh, decided in this order by the five policies. Parts
 * of the sequence along context are then divided further along tensor with --sequence-parallel: gathers along tensor
 * undo the inner cut. Parts of the batch along data are divided further along expert. */
#include "passes/plan/policy/policy.h"

int policy_hybrid(struct draft *draft, const struct pass_context *context) {
    if (policy_pp(draft, context) < 0) return -1;
    policy_products(draft, context);
    if (policy_context(draft, context) < 0) return -1;
    if (policy_sequence(draft, context) < 0) return -1;
    if (policy_data(draft, context) < 0) return -1;
    return policy_expert(draft, context);
}
