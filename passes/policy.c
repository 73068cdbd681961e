#include "passes/policy.h"
#include "passes/plan_file.h"

#include <string.h>

const struct policy policies[] = {
#define POLICY(name, axes, decide, help) {#name, axes, decide, help},
#include "passes/policies.def"
#undef POLICY
};
const int npolicies = sizeof policies / sizeof *policies;

const struct policy *policy_find(const char *name) {
    for (int i = 0; i < npolicies; i++)
        if (strcmp(policies[i].name, name) == 0) return &policies[i];
    return NULL;
}

int pass_policy(struct graph *graph, const struct pass_context *context) {
    if (context->plan) return plan_apply(graph, context->plan_file, context->plan, context->diags);
    const struct policy *policy = policy_find(context->policy);
    if (!policy) return diag_error(context->diags, 202, EXIT_USAGE, NULL, "unknown policy '%s'", context->policy);
    return policy->decide(graph, context);
}

int policy_dp(struct graph *graph, const struct pass_context *context) {
    (void)graph;
    (void)context;
    return 0;
}
