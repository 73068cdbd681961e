/* Data parallelism within a scale unit: splits dimension 0 of every input that has samples, and propagates. */
#include "passes/plan/policy/policy.h"

#include "ir/base/str.h"
#include "ir/op.h"

int64_t policy_groups(const struct graph *graph) {
    int64_t groups = 1;
    GRAPH_EACH(graph, i, const struct node *node) {
        const int64_t own = node->op->id == OP_ExpertDispatch ? graph->tensors.at[node->inputs[0]].dims[0] : 1;
        if (own > groups) groups = own;
    }
    return groups;
}

/* Why the samples of the input cannot be divided, although their number is open. */
static const char *refused(const struct propagation *propagation, const struct tensor *input) {
    const struct mesh *mesh = &propagation->graph->mesh;
    const int data = mesh_axis(mesh, AXIS_DATA);
    const bool nested = data >= 0 && data != propagation->axis;
    return open_cut_refused(propagation->graph, input->dims[0],
                            (int64_t)propagation->ways * (nested ? mesh->axis[data].size : 1));
}

int policy_split_batch(struct propagation *propagation, int64_t groups, const char *policy, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    for (int i = 0; i < graph->inputs.n; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        const char *why = input->shared ? "is the same for all samples"
                          : input->dims[0] < propagation->ways
                              ? arena_printf(graph->arena, "has fewer than %d samples", propagation->ways)
                              : NULL;
        if (why) {
            diag_remark(diags, graph->name, "policy %s: input %s %s %s and is replicated", policy,
                        diag_quote(diags, input->name), tensor_type(graph->arena, input), why);
            continue;
        }
        if ((why = refused(propagation, input)))
            return diag_error(diags, 420, EXIT_LIMIT, graph->name,
                              "policy %s: dimension 0 of input %s cannot be divided among %d rank(s): %s", policy,
                              diag_quote(diags, input->name), propagation->ways, why);
        const int64_t grain = groups == 1 || input->dims[0] % groups ? 1 : input->dims[0] / groups;
        propagate_input(propagation, graph->inputs.at[i], 0, 1, grain, PROPAGATE_GATHER);
    }
    return 0;
}

int policy_data(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    struct diags *diags = context->diags;
    int axis = mesh_axis(&graph->mesh, AXIS_DATA);
    if (axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    struct propagation propagation;
    propagation_init(&propagation, draft, graph->arena, axis);
    const int64_t groups = policy_groups(graph);
    if (policy_split_batch(&propagation, groups % propagation.ways ? 1 : groups, "data", diags) < 0) return -1;
    policy_report_replicated(&propagation, "data", diags);
    return 0;
}
