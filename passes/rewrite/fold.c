/* Constant folding: replaces nodes whose inputs are all constants by a constant. The importer folds while it builds
 * (ir/build.h); this pass serves graphs that were read as text, and constants that other passes produce. */
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

int pass_fold(struct graph *graph, const struct pass_context *context) {
    struct rewrite rewrite;
    (void)context;
    rewrite_begin(&rewrite, graph);
    for (int i = 0; i < rewrite.order_n; i++) {
        int id = rewrite_next(&rewrite, i);
        int constant = build_fold(graph, id);
        if (constant >= 0)
            rewrite_replace(&rewrite, graph->nodes.at[id].outputs[0], constant);
        else
            rewrite_keep(&rewrite, id);
    }
    rewrite_end(&rewrite);
    return 0;
}
