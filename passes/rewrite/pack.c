/* Marks the products (attribute packed) that read a stored matrix which only products read. Such a matrix is packed
 * once, when it is loaded. A product with quantised weights reads its scales as it reads the weights. */
#include "ir/op.h"
#include "ir/packing.h"
#include "passes/pipeline.h"

/* Excludes weights and scales of which only the others could be packed; true if there were any. */
static bool exclude_halves(const struct graph *graph, const struct uses *uses, bool *excluded) {
    bool found = false;
    GRAPH_EACH(graph, i, const struct node *node) {
        if (node->op->id != OP_DequantMatMul || node->inputs[2] < 0) continue;
        const int w = node->inputs[1], scale = node->inputs[2];
        if ((packing_possible(graph, uses, excluded, w) == RT_PLAIN) ==
            (packing_possible(graph, uses, excluded, scale) == RT_PLAIN))
            continue;
        excluded[w] = excluded[scale] = found = true;
    }
    return found;
}

int pass_pack(struct graph *graph, const struct pass_context *context) {
    if (context->library_products) return 0;
    const struct uses uses = graph_uses(graph, graph->arena);
    bool *excluded = packing_excluded(graph, graph->arena);
    while (exclude_halves(graph, &uses, excluded)) {
    }
    for (int t = 0; t < graph->tensors.n; t++) {
        if (packing_possible(graph, &uses, excluded, t) == RT_PLAIN) continue;
        for (int u = uses.first[t]; u < uses.first[t + 1]; u++)
            attr_set(graph, &graph->nodes.at[uses.users[u]], attr_of_int("packed", 1));
    }
    return 0;
}
