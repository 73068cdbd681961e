/* Dead code elimination: removes nodes on whose results no output and no update depends. */
#include "passes/pipeline.h"

int pass_dce(struct graph *graph, const struct pass_context *context) {
    bool *needed = graph_kept(graph, graph->arena);
    int *live = ARENA_ARRAY(graph->arena, int, graph->order.n + 1), n = 0;
    (void)context;
    for (int i = graph->order.n - 1; i >= 0; i--) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        bool used = false;
        for (int k = 0; k < node->noutputs; k++) used = used || (node->outputs[k] >= 0 && needed[node->outputs[k]]);
        if (!used) continue;
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) needed[node->inputs[k]] = true;
        live[n++] = graph->order.at[i];
    }
    for (int i = 0; i < n; i++) graph->order.at[i] = live[n - 1 - i];
    graph->order.n = n;
    return 0;
}
