/* Constant folding: replaces nodes whose inputs are all constants by a constant, and those whose result is one of their
 * inputs by that input. The importer folds while it builds
 * (ir/build.h); this pass serves graphs that were read as text, and constants that other passes produce. */
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

static int folded(void *env, int id) {
    struct graph *graph = env;
    const struct node node = graph->nodes.at[id];
    const bool plain = node.noutputs == 1 && !node.op->user;
    int same = plain ? build_same(graph, node.op->id, node.ninputs, node.inputs, node.nattrs, node.attrs) : -1;
    if (same < 0) same = build_fold(graph, id);
    return same < 0 ? REWRITE_KEPT : same;
}

int pass_fold(struct graph *graph, const struct pass_context *context) {
    (void)context;
    return rewrite_each(graph, folded, graph);
}
