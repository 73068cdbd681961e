/* Tensor parallelism, found from the graph (Megatron-LM's column and row splits, without its names).
 *
 * In order of execution, each product or convolution with stored weights that is still undecided is cut by columns, and the cut
 * is spread (Note [Flood]): through activations and attention heads until a product sums over it (the row split),
 * or to an output. Where that cannot be, the product alone is cut by columns and its result gathered. Embeddings of
 * the model's inputs are cut by vocabulary. What stays whole is reported. */
#include "passes/policy.h"

#include <stdio.h>
#include <string.h>

static bool is_op(const struct graph *graph, int node, const char *op) {
    return strcmp(graph->nodes.at[node].op->name, op) == 0;
}

static bool is_stored(const struct graph *graph, int tensor) {
    return tensor >= 0 && tensor_is_stored(&graph->tensors.at[tensor]);
}

/* The tensor is an input of the model, or that under another shape or type. */
static bool is_given(const struct graph *graph, int tensor) {
    while (graph->tensors.at[tensor].kind == TENSOR_VALUE) {
        const struct node *node = &graph->nodes.at[graph->tensors.at[tensor].producer];
        if (node->op->class != OP_VIEW && strcmp(node->op->name, "Cast") != 0) return false;
        tensor = node->inputs[0];
    }
    return graph->tensors.at[tensor].kind == TENSOR_INPUT;
}

static bool is_embedding(const struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    return is_op(graph, id, "Gather") && is_stored(graph, node->inputs[0]) && is_given(graph, node->inputs[1]) &&
           attr_int(node, "axis", 0) == 0;
}

static bool is_linear(const struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    return node->op->columns && is_stored(graph, node->inputs[1]);
}

/* Tries the operator's column factors in turn, with what follows from the cut, or the node alone. */
static bool decide_columns(struct flood *flood, int id, bool spread) {
    char name[8];
    for (const char *at = flood->graph->nodes.at[id].op->columns; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        at += length;
        int factor = dims_find(flood_dims(flood, id), name);
        if (factor < 0) continue;
        if (spread ? flood_node(flood, id, factor, FLOOD_STRICT) : flood_alone(flood, id, factor)) return true;
    }
    return false;
}

/* Cuts the node as far as it can be cut; false if it stays whole. */
static bool decide(struct flood *flood, int id) {
    if (is_embedding(flood->graph, id)) return flood_alone(flood, id, dims_find(flood_dims(flood, id), "v"));
    return decide_columns(flood, id, true) || decide_columns(flood, id, false);
}

static void report(const struct graph *graph, int id, int ways, struct diags *diags) {
    const struct node *node = &graph->nodes.at[id];
    int stored = is_op(graph, id, "Gather") ? node->inputs[0] : node->inputs[1];
    const struct tensor *weight = &graph->tensors.at[stored];
    diag_remark(
        diags, node_place(graph, id), "policy tp: stays whole on all %d ranks: weight %s %s, %lld bytes each", ways,
        diag_quote(diags, weight->name), tensor_type(graph->arena, weight), (long long)tensor_bytes(weight));
}

int policy_tp(struct graph *graph, const struct pass_context *context) {
    struct diags *diags = context->diags;
    int axis = mesh_axis_by_name(&graph->mesh, "tensor");
    if (axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    struct flood flood;
    flood_init(&flood, graph, graph->arena, axis);
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        if (flood.decided[id] || !(is_embedding(graph, id) || is_linear(graph, id))) continue;
        if (!decide(&flood, id)) report(graph, id, flood.ways, diags);
    }
    return 0;
}
