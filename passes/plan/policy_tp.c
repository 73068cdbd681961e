/* Tensor parallelism, found from the graph (Megatron-LM's column and row splits, without its names).
 *
 * In order of execution, each product or convolution with stored weights that is still undecided is cut by columns, and
 * the cut is spread (Note [Flood]): through activations and attention heads until a product sums over it (the row
 * split), or to an output. Where that cannot be, the product alone is cut by columns and its result gathered.
 * Embeddings of the model's inputs are cut by vocabulary. What stays whole is reported.
 *
 * Note [Rows before columns]
 * Early in a convolutional network images are large and channels few: there a cut by rows exchanges a few rows beside
 * every cut where one by columns brings whole images together, but has all of the weights on every rank. Later it is
 * the other way round. So the first convolutions, in order of execution, are cut by rows and with them what follows, up
 * to the next convolution or product; how many is the number for which the whole plan costs least (plan_cost.h). */
#include "passes/plan/policy.h"

#include <stdio.h>
#include <string.h>

#include "passes/plan/plan_cost.h"

enum { MOST_TRIES = 32 }; /* numbers of convolutions by rows that are tried, evenly spaced if there are more */

/* What is stored and read under another type, -1 if the tensor is computed. */
static int stored_behind(const struct graph *graph, int tensor) {
    while (tensor >= 0 && graph->tensors.at[tensor].kind == TENSOR_VALUE) {
        const struct node *node = &graph->nodes.at[graph->tensors.at[tensor].producer];
        tensor = node->op->id == OP_Cast ? node->inputs[0] : -1;
    }
    return tensor >= 0 && tensor_is_stored(&graph->tensors.at[tensor]) ? tensor : -1;
}

static bool is_stored(const struct graph *graph, int tensor) {
    return stored_behind(graph, tensor) >= 0;
}

/* The tensor is an input of the model, or that under another shape or type. */
static bool is_given(const struct graph *graph, int tensor) {
    while (graph->tensors.at[tensor].kind == TENSOR_VALUE) {
        const struct node *node = &graph->nodes.at[graph->tensors.at[tensor].producer];
        if (node->op->class != OP_VIEW && node->op->id != OP_Cast) return false;
        tensor = node->inputs[0];
    }
    return graph->tensors.at[tensor].kind == TENSOR_INPUT;
}

static bool is_embedding(const struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    return node->op->id == OP_Gather && is_stored(graph, node->inputs[0]) && is_given(graph, node->inputs[1]) &&
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
    int stored = node->op->id == OP_Gather ? node->inputs[0] : node->inputs[1];
    const struct tensor *weight = &graph->tensors.at[stored_behind(graph, stored)];
    diag_remark(diags, node_place(graph, id), "policy tp: replicated on all %d ranks: weight %s %s, %lld bytes each",
                ways, diag_quote(diags, weight->name), tensor_type(graph->arena, weight),
                (long long)tensor_bytes(weight));
}

/* The first spatial dimension of a convolution's result, -1 for other nodes. */
static int rows_of(struct flood *flood, int id) {
    if (flood->graph->nodes.at[id].op->id != OP_Conv || !is_linear(flood->graph, id)) return -1;
    int factor = dims_find(flood_dims(flood, id), "o0");
    return factor >= 0 ? factor : dims_find(flood_dims(flood, id), "i0");
}

static void start_over(struct flood *flood) {
    for (int i = 0; i < flood->graph->order.n; i++) {
        int id = flood->graph->order.at[i];
        flood->graph->nodes.at[id].split[flood->axis] = (struct node_split){SPLIT_NONE, 1, 1};
        flood->decided[id] = false;
    }
}

/* Cuts the first `count` convolutions by rows, with what follows up to nodes that are to be cut by columns. */
static void decide_rows(struct flood *flood, int count) {
    const struct graph *graph = flood->graph;
    int seen = 0;
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        bool by_rows = rows_of(flood, id) >= 0 && seen++ < count;
        flood->closed[id] = !by_rows && (is_linear(graph, id) || is_embedding(graph, id));
    }
    for (int i = 0; i < graph->order.n && count; i++) {
        int id = graph->order.at[i], factor = flood->closed[id] ? -1 : rows_of(flood, id);
        if (factor >= 0 && !flood->decided[id]) flood_node(flood, id, factor, FLOOD_GATHER);
    }
}

/* Decides all nodes, with the first `rows` convolutions by rows; reports what stays whole if `diags` is not NULL. */
static void decide_all(struct flood *flood, int rows, struct diags *diags) {
    const struct graph *graph = flood->graph;
    start_over(flood);
    decide_rows(flood, rows);
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        if (flood->decided[id] || !(is_embedding(graph, id) || is_linear(graph, id))) continue;
        if (!decide(flood, id) && diags) report(graph, id, flood->ways, diags);
    }
}

/* How many of the convolutions to cut by rows. */
static int choose_rows(struct flood *flood) {
    int convolutions = 0, best = 0;
    double least = 0;
    for (int i = 0; i < flood->graph->order.n; i++) convolutions += rows_of(flood, flood->graph->order.at[i]) >= 0;
    int step = convolutions / MOST_TRIES + 1;
    for (int rows = 0; convolutions && rows < convolutions + step; rows += step) {
        decide_all(flood, rows, NULL);
        double cost = plan_cost(flood, &machine_default);
        if (rows == 0 || cost < least) least = cost, best = rows;
    }
    return best;
}

/* Rows are no replication of work, but of weights. */
static void report_rows(struct flood *flood, struct diags *diags) {
    const struct graph *graph = flood->graph;
    int64_t bytes = 0;
    int n = 0;
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i], factor = rows_of(flood, id);
        const struct node *node = &graph->nodes.at[id];
        if (factor < 0 || node->split[flood->axis].factor != factor) continue;
        bytes += tensor_bytes(&graph->tensors.at[stored_behind(graph, node->inputs[1])]);
        n++;
    }
    if (n)
        diag_remark(
            diags, graph->name,
            "policy tp: %d convolutions are split by rows; their weights, %lld bytes, are replicated on all %d ranks",
            n, (long long)bytes, flood->ways);
}

int policy_tp(struct graph *graph, const struct pass_context *context) {
    int axis = mesh_axis_by_name(&graph->mesh, "tensor");
    if (axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    struct arena *scratch = arena_scratch(graph->arena);
    struct flood flood;
    flood_init(&flood, graph, scratch, axis);
    decide_all(&flood, choose_rows(&flood), context->diags);
    report_rows(&flood, context->diags);
    arena_release(graph->arena, scratch);
    return 0;
}
