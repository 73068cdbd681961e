/* Expert parallelism: splits the experts of mixtures, with their weights, and the batch for everything else (Note
 * [Buffers of experts] in ir/ops/experts.c; GShard, arXiv 2006.16668; DeepSpeed-MoE, arXiv 2201.05596).
 *
 * Without a capacity, ExpertDispatch and ExpertCombine are split by experts: redistribution gathers the tokens of all
 * ranks for the first, and scatters the partial sums of the second. As memory is static, buffers must have a place for
 * every token anyway, so an exchange of buffers would send more. With a capacity the two are split by groups of tokens,
 * the products between them by experts, and redistribution exchanges the buffers by an all-to-all. */
#include "passes/plan/policy/policy.h"

#include "ir/base/str.h"
#include "ir/op.h"

static bool is_exchange(const struct node *node) {
    return node->op->id == OP_ExpertDispatch || node->op->id == OP_ExpertCombine;
}

/* The number of groups with which each rank of the axis holds one: axis data divides them too. */
static int64_t groups_to_exchange(const struct propagation *propagation) {
    const struct mesh *mesh = &propagation->graph->mesh;
    const int data = mesh_axis(mesh, AXIS_DATA);
    return (int64_t)propagation->ways * (data < 0 ? 1 : mesh->axis[data].size);
}

static bool exchanges_groups(struct propagation *propagation, int id) {
    const struct dims *dims = propagation_dims(propagation, id);
    return dims->factor[dims_find(dims, "g")].extent == groups_to_exchange(propagation);
}

/* Splits dimension 0 of the buffers that the node reads, if it is not split. */
static void split_buffers(struct propagation *propagation, int id, int tensor) {
    struct cut_option options[RT_MAX_NDIM];
    const int operand = node_operand(&propagation->graph->nodes.at[id], tensor);
    const int n = dims_cut_options(propagation_dims(propagation, id), operand, 0, 1, 1, options);
    for (int i = 0; i < n && !propagation->decided[id] && !propagation->closed[id]; i++)
        if (options[i].more_blocks == 1 && options[i].more_grain == 1)
            propagate_region(propagation, id, options[i].split.factor);
}

/* Splits what is computed of buffers by experts. */
static void split_experts(struct propagation *propagation) {
    const struct graph *graph = propagation->graph;
    VEC_EACH_VALUE(&graph->order, i, const int id)
        propagation->closed[id] = is_exchange(&graph->nodes.at[id]) && exchanges_groups(propagation, id);
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i], tensor = graph->nodes.at[id].outputs[0];
        if (!is_exchange(&graph->nodes.at[id])) continue;
        if (!propagation->closed[id]) {
            const int experts = dims_find(propagation_dims(propagation, id), "e");
            if (!propagation->decided[id]) propagate_factor(propagation, id, experts, PROPAGATE_GATHER);
        } else if (graph->nodes.at[id].op->id == OP_ExpertDispatch) {
            for (int u = propagation->uses.first[tensor]; u < propagation->uses.first[tensor + 1]; u++)
                split_buffers(propagation, propagation->uses.users[u], tensor);
        }
    }
    for (int i = 0; i < graph->order.n; i++) propagation->closed[graph->order.at[i]] = false;
}

int policy_expert(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    const int axis = mesh_axis(&graph->mesh, AXIS_EXPERT);
    if (axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    struct propagation propagation;
    propagation_init(&propagation, draft, graph->arena, axis);
    propagation.nests = true; /* parts of the batch along data are divided further */
    split_experts(&propagation);
    for (int i = 0; i < graph->order.n && graph->nodes.at[graph->order.at[i]].phase == PHASE_FORWARD; i++)
        policy_divide_updates(&propagation, graph->order.at[i]);
    const int64_t groups = policy_groups(graph);
    if (policy_split_batch(&propagation, groups == groups_to_exchange(&propagation) ? groups : 1, "expert",
                           context->diags) < 0)
        return -1;
    policy_report_replicated(&propagation, "expert", context->diags);
    return 0;
}
