/* Data parallelism within a scale unit: splits dimension 0 of every input, and propagates. */
#include "passes/plan/policy.h"

#include "ir/base/str.h"

int policy_data(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    struct diags *diags = context->diags;
    int axis = mesh_axis_by_name(&graph->mesh, "data");
    if (axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    struct propagation propagation;
    propagation_init(&propagation, draft, graph->arena, axis);
    for (int i = 0; i < graph->inputs.n; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        if (input->ndim == 0 || input->dims[0] < propagation.ways) {
            diag_remark(diags, graph->name, "policy data: input %s %s has fewer than %d samples and is replicated",
                        diag_quote(diags, input->name), tensor_type(graph->arena, input), propagation.ways);
            continue;
        }
        propagate_input(&propagation, graph->inputs.at[i], 0, PROPAGATE_GATHER);
    }
    policy_report_replicated(&propagation, "data", diags);
    return 0;
}
