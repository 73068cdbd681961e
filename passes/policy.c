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

/* The nodes that the plan is about: passes that come later may do them by others. */
static void list_placed(struct graph *graph) {
    graph->placed.n = 0;
    for (int i = 0; i < graph->order.n; i++) VEC_PUSH(graph->arena, &graph->placed, graph->order.at[i]);
}

int pass_policy(struct graph *graph, const struct pass_context *context) {
    list_placed(graph);
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
