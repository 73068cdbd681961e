/* Tensor, context, data, expert and pipeline parallelism on one mesh, decided in this order by the five policies:
 * stages are balanced by the parts that their ranks have. Where stages have different axes they come first, since the
 * splits of a node depend on the axes of its stage. Parts of the sequence along context are divided further along
 * tensor with --sequence-parallel: gathers along tensor undo the inner cut. Parts of the batch along data are divided
 * further along expert. */
#include "passes/plan/policy/policy.h"

int policy_hybrid(struct draft *draft, const struct pass_context *context) {
    const bool even = mesh_is_even(&draft->graph->mesh);
    if (!even && policy_pp(draft, context) < 0) return -1;
    policy_products(draft, context);
    if (policy_context(draft, context) < 0) return -1;
    if (policy_sequence(draft, context) < 0) return -1;
    if (policy_data(draft, context) < 0) return -1;
    if (policy_expert(draft, context) < 0) return -1;
    return even ? policy_pp(draft, context) : 0;
}
