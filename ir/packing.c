#include "ir/packing.h"

#include "ir/op.h"
#include "runtime/base/shape/panel.h"

/* True for weights (n,k) that the kernel converts in registers (Note [Products in groups] in
 * runtime/kernels/gemm_grouped.h): of 4 or 8 bits, with groups of whole 32-bit lanes. */
static bool codes_fit_panels(const struct graph *graph, const struct node *node) {
    if (node->inputs[2] < 0) return false;
    const struct tensor *x = &graph->tensors.at[node->inputs[0]], *w = &graph->tensors.at[node->inputs[1]],
                        *scale = &graph->tensors.at[node->inputs[2]];
    const enum rt_dtype codes = rt_dtype_by_name(attr_text(node, "codes", ""));
    if (x->dtype != RT_F32 || !attr_int(node, "trans_b", 0) || attr_int(node, "across", 0) || scale->dims[1] < 1)
        return false;
    const bool bytes = (codes == RT_I8 || codes == RT_U8) && w->dtype == codes;
    const bool nibbles = (codes == RT_I4 || codes == RT_U4) && w->dtype == RT_U8;
    return (bytes || nibbles) && (scale->dims[1] == 1 || w->dims[1] / scale->dims[1] % 4 == 0);
}

enum rt_packing packing_read(const struct graph *graph, const struct node *node, int k) {
    const struct tensor *t = &graph->tensors.at[node->inputs[k]];
    if (!tensor_is_stored(t)) return RT_PLAIN;
    if (node->op->id == OP_Conv || node->op->id == OP_IntConv)
        return k != 1 || (t->dtype != RT_F32 && rt_dtype_bytes(t->dtype) != 1) || !attr_int(node, "channels_last", 0)
                   ? RT_PLAIN
               : attr_int(node, "algorithm", RT_CONV_PRODUCT) == RT_CONV_WINOGRAD ? RT_PACK_WINOGRAD
                                                                                  : RT_PACK_WINDOWS;
    if (t->ndim != 2) return RT_PLAIN;
    if (node->op->id == OP_DequantMatMul)
        return (k == 1 || k == 2) && codes_fit_panels(graph, node) ? RT_PACK_COLUMNS : RT_PLAIN;
    if (!rt_is_packable(t->dtype)) return RT_PLAIN;
    if (node->op->id == OP_Gather) return k == 0 && attr_int(node, "axis", 0) == 0 ? RT_PACK_COLUMNS : RT_PLAIN;
    const enum op_id product = rt_dtype_bytes(t->dtype) == 1 ? OP_IntMatMul : OP_MatMul;
    if (node->op->id != product || k != 1 || attr_int(node, "trans_a", 0)) return RT_PLAIN;
    return attr_int(node, "trans_b", 0) ? RT_PACK_COLUMNS : RT_PACK_ROWS;
}

bool *packing_excluded(const struct graph *graph, struct arena *arena) {
    bool *excluded = graph_kept(graph, arena);
    for (int i = 0; i < graph->updates.n; i++) excluded[graph->updates.at[i].weight] = true;
    return excluded;
}

enum rt_packing packing_possible(const struct graph *graph, const struct uses *uses, const bool *excluded, int tensor) {
    enum rt_packing all = RT_PLAIN;
    bool multiplied = false;
    for (int u = uses->first[tensor]; u < uses->first[tensor + 1]; u++) {
        const struct node *node = &graph->nodes.at[uses->users[u]];
        for (int k = 0; k < node->ninputs; k++) {
            if (node->inputs[k] != tensor) continue;
            enum rt_packing one = packing_read(graph, node, k);
            if (one == RT_PLAIN || (all != RT_PLAIN && one != all)) return RT_PLAIN;
            all = one;
            multiplied = multiplied || node->op->id != OP_Gather;
        }
    }
    return multiplied && !excluded[tensor] ? all : RT_PLAIN;
}

enum rt_packing packing_of(const struct graph *graph, const struct node *node, int k) {
    return attr_int(node, "packed", 0) ? packing_read(graph, node, k) : RT_PLAIN;
}
