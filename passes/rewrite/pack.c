/* Marks the products (attribute packed) that read a stored matrix which only products read. Such a matrix is packed
 * once, when it is loaded. */
#include "ir/packing.h"
#include "passes/pipeline.h"

int pass_pack(struct graph *graph, const struct pass_context *context) {
    struct uses uses;
    if (context->library_products) return 0;
    graph_uses(graph, graph->arena, &uses);
    const bool *excluded = packing_excluded(graph, graph->arena);
    for (int t = 0; t < graph->tensors.n; t++) {
        if (packing_possible(graph, &uses, excluded, t) == RT_PLAIN) continue;
        for (int u = uses.first[t]; u < uses.first[t + 1]; u++)
            attr_set(graph, &graph->nodes.at[uses.users[u]], attr_of_int("packed", 1));
    }
    return 0;
}
