#include "passes/plan/policy/policy.h"

#include <string.h>

#include "ir/schedule.h"
#include "passes/plan/constrain/constraints.h"
#include "passes/plan/machine/machine.h"
#include "passes/plan/schedule/schedules.h"
#include "passes/plan/stages.h"

const struct policy policies[] = {
#define POLICY(name, axes, decide, help) {#name, axes, decide, help},
#include "passes/plan/policy/policies.def"
#undef POLICY
};
const int npolicies = sizeof policies / sizeof *policies;

/* NULL if there is no policy of that name. */
static const struct policy *policy_find(const char *name) {
    for (int i = 0; i < npolicies; i++)
        if (strcmp(policies[i].name, name) == 0) return &policies[i];
    return NULL;
}

/* Remarks that the user asked for a policy that splits, but gave no number of devices. */
static void report_one_device(const struct policy *policy, struct diags *diags) {
    const int length = (int)strcspn(policy->axes, " ");
    diag_remark(diags, NULL,
                "policy %s: nothing is split because there is only one device; set --plan-ngpus N or --pas %s:%.*s=N",
                policy->name, policy->name, length, policy->axes);
}

/* The pipeline stages of the schedule that the program has. */
static int find_chunks(struct chunks *chunks, const struct graph *graph, const struct pass_context *context) {
    const int coordinates = schedule_coordinates(graph);
    struct schedule_choice choice;
    *chunks = (struct chunks){0};
    if (!context->training || coordinates == 1) return 0;
    if (schedule_choose(&choice, context->decisions.schedule, context->diags) < 0) return -1;
    *chunks = schedule_chunks_of(&choice, coordinates, graph->arena);
    return schedule_check_sizes(&choice, coordinates, (int)context->decisions.micro_batches, context->diags);
}

/* E0424 if a plan that was given has other stages than the schedule. */
static int check_chunks(const struct graph *graph, const struct pass_context *context) {
    const struct plan *plan = context->given;
    struct chunks chunks;
    if (find_chunks(&chunks, graph, context) < 0) return -1;
    if (chunks.n == plan->chunks.n &&
        (!chunks.n || memcmp(chunks.home, plan->chunks.home, (size_t)chunks.n * sizeof *chunks.home) == 0))
        return 0;
    return diag_error(context->diags, 424, EXIT_MALFORMED, plan->file ? plan->file : graph->name,
                      "plan: its stages are at other coordinates of the pipeline axis than those of schedule %s",
                      context->decisions.schedule ? diag_quote(context->diags, context->decisions.schedule)
                                                  : schedule_default);
}

/* The plan that the policy context->policy decides for a TYPED graph, which is not changed. Memory is of graph->arena.
 * 0, or -1 after diagnostics. */
static int policy_plan(struct plan *plan, const struct graph *graph, const struct pass_context *context) {
    struct draft draft;
    const struct policy *policy = policy_find(context->policy);
    if (!policy) return diag_error(context->diags, 202, EXIT_USAGE, NULL, "unknown policy '%s'", context->policy);
    if (*policy->axes && strcmp(policy->axes, "FILE") != 0 && mesh_size(&graph->mesh) == 1)
        report_one_device(policy, context->diags);
    draft_init(&draft, graph);
    if (find_chunks(&draft.chunks, graph, context) < 0) return -1;
    if ((context->constraints || context->rules) && policy_constrain(&draft, context) < 0) return -1;
    if (policy->decide(&draft, context) < 0) return -1;
    if (draft.limits && limits_check(&draft, context->diags) < 0) return -1;
    plan_of_draft(plan, &draft);
    return 0;
}

int pass_policy(struct graph *graph, const struct pass_context *context) {
    struct plan decided;
    if (!context->given && policy_plan(&decided, graph, context) < 0) return -1;
    const struct plan *plan = context->given ? context->given : &decided;
    if (context->given && check_chunks(graph, context) < 0) return -1;
    if (plan_apply(graph, plan, context->diags) < 0) return -1;
    if (!mesh_is_even(&graph->mesh) && stages_check_axes(graph, context->diags) < 0) return -1;
    if (context->plan) {
        *context->plan = *plan;
        context->plan->decisions = context->decisions;
        context->plan->decisions.mesh = graph->mesh;
    }
    return 0;
}

void policy_report_replicated(struct propagation *decided, const char *policy, struct diags *diags) {
    struct propagation *const propagation = propagation_typical(decided);
    const struct graph *graph = propagation->graph;
    int whole = 0;
    double flops = 0, all = 0;
    VEC_EACH_VALUE(&graph->order, i, const int id) {
        if (propagation_lacks_axis(propagation, id)) continue;
        const double cost = dims_flops(propagation_dims(propagation, id), graph->nodes.at[id].op->flops);
        all += cost;
        if (propagation->split[id][propagation->axis].factor >= 0) continue;
        whole++;
        flops += cost;
    }
    if (flops > 0.01 * all)
        diag_remark(diags, graph->name, "policy %s: %d of %d nodes (%.0f %% of the work) are replicated on every rank",
                    policy, whole, graph->order.n, 100 * flops / all);
}

int policy_dp(struct draft *draft, const struct pass_context *context) {
    (void)draft;
    (void)context;
    return 0;
}
