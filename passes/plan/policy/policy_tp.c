/* Tensor parallelism: the column and row splits of Megatron-LM, found from the graph and not from names of layers.
 *
 * In order of execution, each product or convolution with stored weights that is not split yet is split by columns,
 * that is by output features. The split propagates (Note [Propagation]) through activations and attention heads to a
 * product that sums over it (the row split) or to an output. If that is not possible, the product alone is split by
 * columns and its result gathered. Embeddings of the model's inputs are split by vocabulary. Layers and attentions that
 * stay whole are reported.
 *
 * Note [Rows before columns]
 * Early in a convolutional network images are large and channels few. There a split by rows of the image exchanges
 * only halos, where a split by channels gathers whole images, but every rank needs all weights. Later it is the
 * other way round. So the first convolutions are split by rows, with the nodes that follow, up to the next
 * convolution or product that is split by columns. Their number is chosen so that the whole plan costs least
 * (plan_cost.h). */
#include "passes/plan/policy/policy.h"

#include <stdio.h>
#include <string.h>

enum { WHOLE_BYTES = 1 << 16 }; /* less than that of whole weights is not reported */
enum { MOST_TRIES = 32 };       /* how many numbers of convolutions split by rows are tried, evenly spaced */

/* The stored tensor that the tensor is or is cast from; -1 if it is computed in another way. */
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

/* True if the tensor is an input of the model, possibly reshaped or cast. */
static bool is_given(const struct graph *graph, int tensor) {
    while (graph->tensors.at[tensor].kind == TENSOR_VALUE) {
        const struct node *node = &graph->nodes.at[graph->tensors.at[tensor].producer];
        if (node->op->kind != OP_VIEW && node->op->id != OP_Cast) return false;
        tensor = node->inputs[0];
    }
    return graph->tensors.at[tensor].kind == TENSOR_INPUT;
}

static bool is_embedding(const struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    return node->op->id == OP_Gather && is_stored(graph, node->inputs[0]) && is_given(graph, node->inputs[1]) &&
           attr_int(node, "axis", 0) == 0;
}

/* A matrix of an adapter is divided as the layer beside it asks for (passes/train/lora.h), and else whole. */
static bool is_linear(const struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    const int stored = node->op->columns ? stored_behind(graph, node->inputs[1]) : -1;
    return stored >= 0 && graph->tensors.at[stored].mark != MARK_ADAPTER;
}

/* Splits the first possible column factor of the node's operator: with propagation, or of the node alone. */
static bool decide_columns(struct propagation *propagation, int id, bool spread) {
    char name[8];
    for (const char *at = propagation->graph->nodes.at[id].op->columns; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        at += length;
        int factor = dims_find(propagation_dims(propagation, id), name);
        if (factor < 0) continue;
        if (spread ? propagate_factor(propagation, id, factor, PROPAGATE_STRICT) : split_alone(propagation, id, factor))
            return true;
    }
    return false;
}

/* Splits the node, with propagation if possible; false if it stays whole. */
static bool decide(struct propagation *propagation, int id) {
    if (is_embedding(propagation->graph, id))
        return split_alone(propagation, id, dims_find(propagation_dims(propagation, id), "v"));
    return decide_columns(propagation, id, true) || decide_columns(propagation, id, false);
}

static void report(const struct graph *graph, int id, int ways, struct diags *diags) {
    const struct node *node = &graph->nodes.at[id];
    int stored = node->op->id == OP_Gather ? node->inputs[0] : node->inputs[1];
    const struct tensor *weight = &graph->tensors.at[stored_behind(graph, stored)];
    diag_remark(diags, node_place(graph, id), "policy tp: replicated on all %d ranks: weight %s %s, %lld bytes each",
                ways, diag_quote(diags, weight->name), tensor_type(graph->arena, weight),
                (long long)tensor_bytes(weight));
}

/* The factor of the first spatial dimension of a convolution with stored weights; -1 for other nodes. */
static int rows_of(struct propagation *propagation, int id) {
    if (propagation->graph->nodes.at[id].op->id != OP_Conv || !is_linear(propagation->graph, id)) return -1;
    int factor = dims_find(propagation_dims(propagation, id), "o0");
    return factor >= 0 ? factor : dims_find(propagation_dims(propagation, id), "i0");
}

static void start_over(struct propagation *propagation) {
    VEC_EACH_VALUE(&propagation->graph->order, i, int id) {
        if (propagation_is_fixed(propagation, id)) continue;
        propagation->split[id][propagation->axis] = (struct node_split){.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
        propagation->decided[id] = false;
    }
}

/* Splits the first `count` convolutions by rows and propagates, up to the nodes that are split by columns. */
static void decide_rows(struct propagation *propagation, int count) {
    const struct graph *graph = propagation->graph;
    int seen = 0;
    VEC_EACH_VALUE(&graph->order, i, int id) {
        bool by_rows = rows_of(propagation, id) >= 0 && seen++ < count;
        propagation->closed[id] = !by_rows && (is_linear(graph, id) || is_embedding(graph, id));
    }
    for (int i = 0; i < graph->order.n && count; i++) {
        int id = graph->order.at[i], factor = propagation->closed[id] ? -1 : rows_of(propagation, id);
        if (factor >= 0 && !propagation->decided[id]) propagate_factor(propagation, id, factor, PROPAGATE_GATHER);
    }
}

void policy_divide_updates(struct propagation *propagation, int id) {
    const struct graph *graph = propagation->graph;
    const struct node *node = &graph->nodes.at[id];
    for (int k = 0; k < node->ninputs && graph->updates.n; k++) {
        const int stored = stored_behind(graph, node->inputs[k]);
        const struct placement held =
            dims_placement(propagation_dims(propagation, id), k, &propagation->split[id][propagation->axis]);
        if (stored >= 0 && held.kind == PLACED_PART) propagate_update(propagation, stored, &held);
    }
}

/* Decides the layers at position `first` of the order and behind, up to the end of the phase, which it returns. */
static int decide_layers(struct propagation *propagation, int first, enum phase last, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    int i = first;
    for (; i < graph->order.n && graph->nodes.at[graph->order.at[i]].phase <= last; i++) {
        int id = graph->order.at[i];
        if (propagation->decided[id] || !(is_embedding(graph, id) || is_linear(graph, id))) continue;
        if (!decide(propagation, id) && diags && !propagation_lacks_axis(propagation, id))
            report(graph, id, propagation->ways, diags);
    }
    return i;
}

/* Decides the splits of all nodes, the first `rows` convolutions by rows; reports layers that stay whole if diags is
 * not NULL. */
static void decide_all(struct propagation *propagation, int rows, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    start_over(propagation);
    decide_rows(propagation, rows);
    int done = decide_layers(propagation, 0, PHASE_FORWARD, diags);
    for (int i = 0; i < done; i++) policy_divide_updates(propagation, graph->order.at[i]);
    decide_layers(propagation, done, PHASE_UPDATE, diags);
}

/* What a plan is chosen by: seconds, or, where memory is preferred, bytes of weights per rank and then seconds. */
struct merit {
    double bytes, seconds;
};

static struct merit merit_of(struct propagation *propagation, const struct pass_context *context) {
    int64_t divided, whole = plan_whole_weights(propagation, &divided);
    return (struct merit){
        context->decisions.prefer == PREFER_MEMORY ? (double)whole + (double)divided / propagation->ways : 0,
        plan_seconds(propagation->draft, context, NULL)};
}

/* The number of convolutions to split by rows for which the plan is best. */
static int choose_rows(struct propagation *propagation, const struct pass_context *context) {
    int convolutions = 0, best = 0;
    struct merit least = {0, 0};
    for (int i = 0; i < propagation->graph->order.n; i++)
        convolutions += rows_of(propagation, propagation->graph->order.at[i]) >= 0;
    int step = convolutions / MOST_TRIES + 1;
    for (int rows = 0; convolutions && rows < convolutions + step; rows += step) {
        decide_all(propagation, rows, NULL);
        const struct merit merit = merit_of(propagation, context);
        const bool less = merit.bytes < least.bytes || (merit.bytes == least.bytes && merit.seconds < least.seconds);
        if (rows == 0 || less) least = merit, best = rows;
    }
    return best;
}

/* Remarks the convolutions split by rows: they replicate weights, though no work. */
static void report_rows(struct propagation *propagation, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    int64_t bytes = 0;
    int n = 0;
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i], factor = rows_of(propagation, id);
        const struct node *node = &graph->nodes.at[id];
        if (factor < 0 || propagation->split[id][propagation->axis].factor != factor) continue;
        bytes += tensor_bytes(&graph->tensors.at[stored_behind(graph, node->inputs[1])]);
        n++;
    }
    if (n)
        diag_remark(
            diags, graph->name,
            "policy tp: %d convolutions are split by rows; their weights, %lld bytes, are replicated on all %d ranks",
            n, (long long)bytes, propagation->ways);
}

/* Remarks how many bytes of weights stay whole, with the largest, where that is more than a hundredth of all and not
 * negligible. */
static void report_whole(struct propagation *propagation, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    int64_t divided, whole = plan_whole_weights(propagation, &divided);
    int n = 0, largest = -1;
    if (whole * 100 <= whole + divided || whole < WHOLE_BYTES) return;
    VEC_EACH(&graph->tensors, t, const struct tensor *tensor) {
        if (tensor->kind != TENSOR_WEIGHT || !plan_needs_whole(propagation, t)) continue;
        n++;
        if (largest < 0 || tensor_bytes(tensor) > tensor_bytes(&graph->tensors.at[largest])) largest = t;
    }
    const struct tensor *tensor = &graph->tensors.at[largest];
    diag_remark(
        diags, graph->name,
        "policy tp: %d weights, %lld bytes (%.0f %% of all), are whole on each of %d ranks; the largest is %s %s, "
        "%lld bytes",
        n, (long long)whole, 100.0 * (double)whole / (double)(whole + divided), propagation->ways,
        diag_quote(diags, tensor->name), tensor_type(graph->arena, tensor), (long long)tensor_bytes(tensor));
}

/* Remarks the attentions that each rank computes whole. */
static void report_attention(const struct propagation *propagation, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    int n = 0, first = -1;
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        if (node->op->id != OP_Attention && node->op->id != OP_FlashAttention) continue;
        if (node->phase != PHASE_FORWARD || propagation_lacks_axis(propagation, id)) continue;
        if (propagation->split[id][propagation->axis].factor != SPLIT_NONE) continue;
        if (n++ == 0) first = id;
    }
    if (!n) return;
    const struct tensor *q = &graph->tensors.at[graph->nodes.at[first].inputs[0]];
    diag_remark(diags, node_place(graph, first),
                "policy tp: %d attentions are computed whole on each of %d ranks; this one has %lld heads", n,
                propagation->ways, (long long)q->dims[q->ndim - 3]);
}

void policy_products(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    int axis = mesh_axis(&graph->mesh, AXIS_TENSOR);
    if (axis < 0 || graph->mesh.axis[axis].size == 1) return;
    struct arena *scratch = arena_scratch(graph->arena);
    struct propagation propagation;
    propagation_init(&propagation, draft, scratch, axis);
    decide_all(&propagation, choose_rows(&propagation, context), context->diags);
    report_rows(&propagation, context->diags);
    report_whole(&propagation, context->diags);
    report_attention(&propagation, context->diags);
    arena_release(graph->arena, scratch);
}

int policy_tp(struct draft *draft, const struct pass_context *context) {
    policy_products(draft, context);
    return policy_sequence(draft, context);
}
