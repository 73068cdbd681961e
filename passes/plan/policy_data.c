/* Data parallelism within a scale unit: splits dimension 0 of every input, and propagates. */
#include "passes/plan/policy.h"

#include "ir/base/str.h"

/* Remarks how much of the work every rank does in full although the batch is split. */
static void report_whole(const struct propagation *propagation, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    int whole = 0;
    double flops = 0, all = 0;
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        double cost =
            dims_flops(propagation_dims((struct propagation *)propagation, id), graph->nodes.at[id].op->flops);
        all += cost;
        if (propagation->split[id][propagation->axis].factor >= 0) continue;
        whole++;
        flops += cost;
    }
    if (flops > 0.01 * all)
        diag_remark(diags, graph->name,
                    "policy data: %d of %d nodes (%.0f %% of the work) are replicated on every rank", whole,
                    graph->order.n, 100 * flops / all);
}

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
    report_whole(&propagation, diags);
    return 0;
}
