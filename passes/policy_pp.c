/* Pipeline stages: the order of the graph is cut into as many runs as the pipeline axis has ranks, so that the slowest
 * stage, with what crosses into it, is as fast as can be. */
#include "passes/policy.h"

#include "passes/cost.h"
#include "passes/stage.h"

enum { MAX_CUTS = 1024 }; /* places considered: those where least crosses */

struct places {
    int n;
    int at[MAX_CUTS + 2];      /* position in the order before which a cut may be; 0 and the end included */
    double cost[MAX_CUTS + 2]; /* seconds of all before it */
    double crossing[MAX_CUTS + 2];
};

/* Seconds that the values live across each position of the order take to cross. Values that are made again are free. */
static double *crossings(const struct graph *graph, const bool *remade) {
    int n = graph->order.n;
    double *cross = ARENA_ARRAY(graph->arena, double, n + 2);
    int *last = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int i = 0; i < n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) last[node->inputs[k]] = i;
    }
    for (int i = 0; i < n; i++) { /* differences first, their sums below */
        int id = graph->order.at[i], out = graph->nodes.at[id].outputs[0];
        if (remade[id] || last[out] <= i) continue;
        double seconds = (double)tensor_bytes(&graph->tensors.at[out]) / machine_default.link_bytes;
        cross[i + 1] += seconds;
        cross[last[out] + 1] -= seconds;
    }
    for (int i = 1; i <= n; i++) cross[i] += cross[i - 1];
    return cross;
}

/* The least crossing that leaves at most MAX_CUTS places is the threshold; found by halving. */
static double threshold(const double *cross, int n) {
    double low = 0, high = 0;
    for (int i = 1; i < n; i++)
        if (cross[i] > high) high = cross[i];
    if (n <= MAX_CUTS) return high;
    for (int round = 0; round < 60; round++) {
        double middle = (low + high) / 2;
        int count = 0;
        for (int i = 1; i < n; i++) count += cross[i] <= middle;
        if (count > MAX_CUTS)
            high = middle;
        else
            low = middle;
    }
    return low;
}

static void list_places(struct places *places, const struct graph *graph, const bool *remade) {
    int n = graph->order.n;
    const double *cross = crossings(graph, remade);
    double most = threshold(cross, n), cost = 0;
    places->n = 0;
    for (int i = 0; i <= n; i++) {
        bool end = i == 0 || i == n;
        if (end || (cross[i] <= most && places->n <= MAX_CUTS)) {
            places->at[places->n] = i;
            places->cost[places->n] = cost;
            places->crossing[places->n++] = end ? 0 : cross[i];
        }
        if (i < n) cost += cost_node(graph, &graph->nodes.at[graph->order.at[i]], &machine_default);
    }
}

/* best[s][j]: the slowest of s stages that end at place j, at its fastest; from[s][j]: where the last of them begins.
 * Every stage has at least one node. */
static void balance(const struct places *p, int stages, struct arena *arena, int *cuts) {
    double *best = ARENA_ARRAY(arena, double, (stages + 1) * p->n);
    int *from = ARENA_ARRAY(arena, int, (stages + 1) * p->n);
    for (int i = 0; i < (stages + 1) * p->n; i++) best[i] = 1e300;
    best[0] = 0;
    for (int s = 1; s <= stages; s++)
        for (int j = s; j < p->n; j++)
            for (int i = s - 1; i < j; i++) {
                double stage = p->cost[j] - p->cost[i] + p->crossing[i] + p->crossing[j];
                double slowest = best[(s - 1) * p->n + i] > stage ? best[(s - 1) * p->n + i] : stage;
                if (slowest >= best[s * p->n + j]) continue;
                best[s * p->n + j] = slowest;
                from[s * p->n + j] = i;
            }
    for (int s = stages, j = p->n - 1; s > 0; s--) cuts[s] = j, j = from[s * p->n + j];
    cuts[0] = 0;
}

int policy_pp(struct graph *graph, const struct pass_context *context) {
    struct diags *diags = context->diags;
    int axis = mesh_pipeline_axis(&graph->mesh), stages = axis < 0 ? 1 : graph->mesh.axis[axis].size;
    if (stages == 1) return 0;
    if (graph->order.n < stages)
        return diag_error(diags, 421, EXIT_LIMIT, graph->name, "%d stages, but the model has %d nodes", stages,
                          graph->order.n);
    struct places *places = ARENA_NEW(graph->arena, struct places);
    int *cuts = ARENA_ARRAY(graph->arena, int, stages + 1);
    list_places(places, graph, stage_remade(graph));
    if (places->n - 1 < stages)
        return diag_error(diags, 421, EXIT_LIMIT, graph->name, "%d stages, but only %d places to cut", stages,
                          places->n - 1);
    balance(places, stages, graph->arena, cuts);
    for (int s = 0; s < stages; s++)
        for (int i = places->at[cuts[s]]; i < places->at[cuts[s + 1]]; i++)
            graph->nodes.at[graph->order.at[i]].stage = s;
    return 0;
}
