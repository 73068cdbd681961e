/* Ring attention: where a sequence is cut along mesh axis `context`, a rank has the keys and values of one rank at a
 * time, in place of all (Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite
 * Context", 2023). */

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/pipeline.h"

/* True if the ranks along the axis compute parts of what the operand holds. */
static bool is_computed_in_parts(const struct graph *graph, int tensor, int axis) {
    const struct node *producer = graph_producer(graph, tensor);
    return producer && producer->split[axis].factor >= 0;
}

/* True for flash attention, or its gradient, if this axis cuts its rows of queries and no other axis does. */
static bool is_cut(struct graph *graph, const struct node *node, int axis) {
    struct dims dims;
    const bool attention = node->op->id == OP_FlashAttention || node->op->id == OP_FlashAttentionGrad;
    if (!attention || dims_bind(graph->arena, graph, node, &dims, NULL) < 0) return false;
    const int rows = dims_find(&dims, "t");
    for (int a = 0; a < graph->mesh.naxes; a++)
        if ((node->split[a].factor == rows) != (a == axis)) return false;
    return true;
}

/* The ring operator that replaces the node. NULL if keys and queries do not have the same positions, or if every rank
 * has all keys or values. */
static const struct op *ring_of(const struct graph *graph, const struct node *node, int axis) {
    const bool gradient = node->op->id == OP_FlashAttentionGrad;
    const int *keys = &node->inputs[gradient ? 2 : 1], line = graph->tensors.at[keys[0]].ndim - 2;
    if (graph->tensors.at[node->inputs[gradient]].dims[line] != graph->tensors.at[keys[0]].dims[line]) return NULL;
    if (!is_computed_in_parts(graph, keys[0], axis) || !is_computed_in_parts(graph, keys[1], axis)) return NULL;
    return &ops[gradient ? OP_RingAttentionGrad : OP_RingAttention];
}

int pass_ring(struct graph *graph, const struct pass_context *context) {
    const int axis = mesh_axis(&graph->mesh, AXIS_CONTEXT);
    int rings = 0, gathered = 0;
    if (context->decisions.attention != ATTENTION_RING || axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    GRAPH_EACH(graph, i, struct node *const node) {
        const struct op *ring = is_cut(graph, node, axis) ? ring_of(graph, node, axis) : NULL;
        rings += ring != NULL || node->op->ring;
        gathered += !ring && op_is_attention(node->op) && !node->op->ring;
        if (!ring) continue;
        node->op = ring;
        attr_set(graph, node, attr_of_int("mesh", axis));
        attr_set(graph, node, attr_of_int("library", 0));
    }
    if (gathered || !rings)
        diag_remark(
            context->diags, graph->name,
            "attention=ring: %d of %d attentions gather keys and values, or compute them whole: they are not of "
            "one sequence with itself, or not flash attention",
            gathered, rings + gathered);
    return 0;
}
