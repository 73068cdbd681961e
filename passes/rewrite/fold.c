/* Computes nodes whose inputs are known. Imported graphs arrive folded (ir/build.h); this serves graphs from text
 * and what other passes uncover. Readers of a folded node read the constant. */
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
