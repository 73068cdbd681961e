/* Dead code elimination: removes nodes on whose results no output and no update depends. */
#include "passes/pipeline.h"

int pass_dce(struct graph *graph, const struct pass_context *context) {
    const bool *live = graph_live(graph, graph->arena);
    (void)context;
    graph_keep(graph, live, true);
    return 0;
}
