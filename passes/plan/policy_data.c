/* The batch is divided: dimension 0 of every input, and all that follows from it. */
#include "passes/plan/policy.h"

#include "ir/base/str.h"

/* What the ranks do alike although the batch is divided. */
static void report_whole(const struct flood *flood, struct diags *diags) {
    const struct graph *graph = flood->graph;
    int whole = 0;
    double flops = 0, all = 0;
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        double cost = dims_flops(flood_dims((struct flood *)flood, id), graph->nodes.at[id].op->flops);
        all += cost;
        if (graph->nodes.at[id].split[flood->axis].factor >= 0) continue;
        whole++;
        flops += cost;
    }
    if (flops > 0.01 * all)
        diag_remark(diags, graph->name,
                    "policy data: %d of %d nodes (%.0f %% of the work) are replicated on every rank", whole,
                    graph->order.n, 100 * flops / all);
}

int policy_data(struct graph *graph, const struct pass_context *context) {
    struct diags *diags = context->diags;
    int axis = mesh_axis_by_name(&graph->mesh, "data");
    if (axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    struct flood flood;
    flood_init(&flood, graph, graph->arena, axis);
    for (int i = 0; i < graph->inputs.n; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        if (input->ndim == 0 || input->dims[0] < flood.ways) {
            diag_remark(diags, graph->name, "policy data: input %s %s has fewer than %d samples and is replicated",
                        diag_quote(diags, input->name), tensor_type(graph->arena, input), flood.ways);
            continue;
        }
        flood_input(&flood, graph->inputs.at[i], 0, FLOOD_GATHER);
    }
    report_whole(&flood, diags);
    return 0;
}
