/* Constant folding: replaces nodes whose inputs are all constants by a constant. The importer folds while it builds
 * (ir/build.h); this pass serves graphs that were read as text, and constants that other passes produce. */
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

static int folded(void *graph, int node) {
    const int constant = build_fold(graph, node);
    return constant < 0 ? REWRITE_KEPT : constant;
}

int pass_fold(struct graph *graph, const struct pass_context *context) {
    (void)context;
    return rewrite_each(graph, folded, graph);
}
