#include "passes/plan/policy/policy.h"

static struct placement wanted_by(struct propagation *propagation, int node, int tensor) {
    const struct node *n = &propagation->graph->nodes.at[node];
    int k = 0;
    while (n->inputs[k] != tensor) k++;
    return dims_placement(propagation_dims(propagation, node), k, &propagation->split[node][propagation->axis]);
}

/* True if an earlier reader in the list of uses needs the tensor in the same placement: it is redistributed once. */
static bool is_served(struct propagation *propagation, int tensor, int use, const struct placement *wanted) {
    for (int u = propagation->uses.first[tensor]; u < use; u++) {
        struct placement other = wanted_by(propagation, propagation->uses.users[u], tensor);
        if (placement_equal(&other, wanted)) return true;
    }
    return false;
}

/* Seconds to redistribute the node's result for its readers. If one of them needs it whole, that serves all. */
static double cost_of_moves(struct propagation *propagation, int tensor, const struct placement *given,
                            const struct machine_group *group) {
    const struct tensor *t = &propagation->graph->tensors.at[tensor];
    const struct placement whole = {PLACED_WHOLE};
    double seconds = 0;
    for (int u = propagation->uses.first[tensor]; u < propagation->uses.first[tensor + 1]; u++) {
        struct placement wanted = wanted_by(propagation, propagation->uses.users[u], tensor);
        if (wanted.kind == PLACED_WHOLE) return cost_move(t, given, &whole, group);
        if (!is_served(propagation, tensor, u, &wanted)) seconds += cost_move(t, given, &wanted, group);
    }
    return seconds;
}

double plan_cost(struct propagation *decided, const struct machine *machine) {
    struct propagation *const propagation = propagation_typical(decided);
    const struct graph *graph = propagation->graph;
    const int axis = propagation->axis, stage = graph->mesh.axis[axis].first;
    const struct machine_group group = {machine, propagation->ways, mesh_stride(&graph->mesh, axis, stage)};
    double seconds = 0;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const struct dims *dims = propagation_dims(propagation, graph->order.at[i]);
        const struct node_split *split = &propagation->split[graph->order.at[i]][propagation->axis];
        seconds += cost_share(graph, node, dims, split, propagation->ways, machine);
        for (int k = 0; k < node->noutputs; k++) {
            struct placement given = dims_placement(dims, dims->ninputs + k, split);
            if (node->outputs[k] >= 0) seconds += cost_of_moves(propagation, node->outputs[k], &given, &group);
        }
    }
    return seconds;
}

bool plan_needs_whole(struct propagation *propagation, int tensor) {
    for (int u = propagation->uses.first[tensor]; u < propagation->uses.first[tensor + 1]; u++) {
        const int reader = propagation->uses.users[u];
        if (propagation_lacks_axis(propagation, reader)) continue;
        if (wanted_by(propagation, reader, tensor).kind == PLACED_WHOLE) return true;
    }
    return false;
}

/* True if a stage that has the axis reads the tensor. */
static bool is_read(const struct propagation *propagation, int tensor) {
    bool read = false;
    for (int u = propagation->uses.first[tensor]; u < propagation->uses.first[tensor + 1] && !read; u++)
        read = !propagation_lacks_axis(propagation, propagation->uses.users[u]);
    return read;
}

int64_t plan_whole_weights(struct propagation *propagation, int64_t *divided) {
    int64_t whole = 0;
    *divided = 0;
    for (int t = 0; t < propagation->graph->tensors.n; t++) {
        const struct tensor *tensor = &propagation->graph->tensors.at[t];
        if (tensor->kind != TENSOR_WEIGHT || !is_read(propagation, t)) continue;
        *(plan_needs_whole(propagation, t) ? &whole : divided) += tensor_bytes(tensor);
    }
    return whole;
}
