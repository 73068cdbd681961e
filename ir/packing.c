#include "ir/packing.h"

#include <string.h>

#include "ir/op.h"

enum packing packing_read(const struct graph *graph, const struct node *node, int k) {
    const struct tensor *t = &graph->tensors.at[node->inputs[k]];
    if (!tensor_is_stored(t) || t->dtype != RT_F32 || t->ndim != 2) return PACK_NONE;
    if (node->op->id == OP_Gather) return k == 0 && attr_int(node, "axis", 0) == 0 ? PACK_COLUMNS : PACK_NONE;
    if (node->op->id != OP_MatMul || k != 1 || attr_int(node, "trans_a", 0)) return PACK_NONE;
    return attr_int(node, "trans_b", 0) ? PACK_COLUMNS : PACK_ROWS;
}

static bool is_needed_plain(const struct graph *graph, int tensor) {
    for (int i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i] == tensor) return true;
    for (int i = 0; i < graph->updates.n; i++)
        if (graph->updates.at[i].weight == tensor || graph->updates.at[i].value == tensor) return true;
    return false;
}

enum packing packing_possible(const struct graph *graph, const struct uses *uses, int tensor) {
    enum packing all = PACK_NONE;
    bool multiplied = false;
    for (int u = uses->first[tensor]; u < uses->first[tensor + 1]; u++) {
        const struct node *node = &graph->nodes.at[uses->users[u]];
        for (int k = 0; k < node->ninputs; k++) {
            if (node->inputs[k] != tensor) continue;
            enum packing one = packing_read(graph, node, k);
            if (one == PACK_NONE || (all != PACK_NONE && one != all)) return PACK_NONE;
            all = one;
            multiplied = multiplied || node->op->id == OP_MatMul;
        }
    }
    return multiplied && !is_needed_plain(graph, tensor) ? all : PACK_NONE;
}

enum packing packing_of(const struct graph *graph, const struct node *node, int k) {
    return attr_int(node, "packed", 0) ? packing_read(graph, node, k) : PACK_NONE;
}
