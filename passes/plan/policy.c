#include "passes/plan/plan_file.h"
#include "passes/plan/policy.h"

#include <string.h>

const struct policy policies[] = {
#define POLICY(name, axes, decide, help) {#name, axes, decide, help},
#include "passes/plan/policies.def"
#undef POLICY
};
const int npolicies = sizeof policies / sizeof *policies;

const struct policy *policy_find(const char *name) {
    for (int i = 0; i < npolicies; i++)
        if (strcmp(policies[i].name, name) == 0) return &policies[i];
    return NULL;
}

/* Lists the nodes that the plan describes; later passes may replace them in the order. */
static void list_placed(struct graph *graph) {
    graph->placed.n = 0;
    for (int i = 0; i < graph->order.n; i++) VEC_PUSH(graph->arena, &graph->placed, graph->order.at[i]);
}

/* Remarks that the user asked for a policy that splits, but gave no number of devices. */
static void report_one_device(const struct policy *policy, struct diags *diags) {
    const int length = (int)strcspn(policy->axes, " ");
    diag_remark(diags, NULL,
                "policy %s: nothing is split because there is only one device; set --plan-ngpus N or --pas %s:%.*s=N",
                policy->name, policy->name, length, policy->axes);
}

int pass_policy(struct graph *graph, const struct pass_context *context) {
    list_placed(graph);
    if (context->plan) return plan_apply(graph, context->plan_file, context->plan, context->diags);
    const struct policy *policy = policy_find(context->policy);
    if (!policy) return diag_error(context->diags, 202, EXIT_USAGE, NULL, "unknown policy '%s'", context->policy);
    if (*policy->axes && strcmp(policy->axes, "FILE") != 0 && mesh_size(&graph->mesh) == 1)
        report_one_device(policy, context->diags);
    return policy->decide(graph, context);
}

int policy_dp(struct graph *graph, const struct pass_context *context) {
    (void)graph;
    (void)context;
    return 0;
}
