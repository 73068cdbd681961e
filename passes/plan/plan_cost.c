#include "passes/plan/plan_cost.h"

static struct holding wanted_by(struct flood *flood, int node, int tensor) {
    const struct node *n = &flood->graph->nodes.at[node];
    int k = 0;
    while (n->inputs[k] != tensor) k++;
    return dims_holding(flood_dims(flood, node), k, &n->split[flood->axis]);
}

/* An earlier reader in the list of uses wants the tensor so, too. */
static bool is_served(struct flood *flood, int tensor, int use, const struct holding *wanted) {
    for (int u = flood->uses.first[tensor]; u < use; u++) {
        struct holding other = wanted_by(flood, flood->uses.users[u], tensor);
        if (holding_equal(&other, wanted)) return true;
    }
    return false;
}

/* What the readers of a node's result ask for. What one of them wants whole serves all. */
static double cost_of_moves(struct flood *flood, int tensor, const struct holding *given,
                            const struct machine *machine) {
    const struct tensor *t = &flood->graph->tensors.at[tensor];
    const struct holding whole = {HOLD_WHOLE};
    double seconds = 0;
    for (int u = flood->uses.first[tensor]; u < flood->uses.first[tensor + 1]; u++) {
        struct holding wanted = wanted_by(flood, flood->uses.users[u], tensor);
        if (wanted.kind == HOLD_WHOLE) return cost_move(t, given, &whole, flood->ways, machine);
        if (!is_served(flood, tensor, u, &wanted)) seconds += cost_move(t, given, &wanted, flood->ways, machine);
    }
    return seconds;
}

double plan_cost(struct flood *flood, const struct machine *machine) {
    const struct graph *graph = flood->graph;
    double seconds = 0;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const struct dims *dims = flood_dims(flood, graph->order.at[i]);
        const struct node_split *split = &node->split[flood->axis];
        seconds += cost_share(graph, node, dims, split, flood->ways, machine);
        for (int k = 0; k < node->noutputs; k++) {
            struct holding given = dims_holding(dims, dims->ninputs + k, split);
            if (node->outputs[k] >= 0) seconds += cost_of_moves(flood, node->outputs[k], &given, machine);
        }
    }
    return seconds;
}
