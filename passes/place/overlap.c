/* Overlaps the reduction of gradients with the backward phase. Each reduction along a mesh axis, replica axes
 * included, is divided into a node that starts it, right after the node that computes the gradient, and the node that
 * waits for the sum. In between the runtime collects gradients in buckets and reduces them (Note [Buckets] in
 * runtime/core/sums.c). */
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/train/training.h"
#include "runtime/base/shape/flat.h"

/* Adds the node that starts the reduction of `tensor`, for the node `like` that waits for it. Returns its result,
 * the same tensor. */
static int add_start(struct graph *graph, enum op_id op, int tensor, int like, int nattrs, const struct attr *attrs) {
    int out = graph_add_like(graph, tensor, ".start");
    struct node start = graph->nodes.at[like];
    start.op = &ops[op], start.ninputs = 1, start.inputs = &tensor, start.outputs = &out;
    start.nattrs = nattrs, start.attrs = (struct attr *)attrs;
    start.phase = graph_phase_of(graph, tensor), start.origin = -1;
    graph_add_copy(graph, &start);
    return out;
}

static bool is_along_replicas(const struct graph *graph, const struct node *node) {
    return attr_int(node, "mesh", 0) >= graph->mesh.naxes;
}

/* True for a gradient of scale units, also after collectives along other axes. Other partial sums along replica axes,
 * such as squares of slices, are computed from gradients that have been reduced: a dummy micro-batch does not empty
 * them. */
static bool is_gradient(const struct graph *graph, int tensor) {
    const struct node *move;
    while ((move = graph_producer(graph, tensor)) && move->op->kind == OP_COMM) tensor = move->inputs[0];
    return graph->tensors.at[tensor].joined == JOINED_SUM;
}

/* The operator that starts the reduction of `tensor` by the node; OP_NONE: it does not begin early. Sums of what the
 * backward phase computes begin early if the reduce or update phase waits for them: all-reduces, and reduce-scatters to
 * slices (ZeRO 1). An all-reduce along a replica axis is divided also of other gradients: its start leaves out those of
 * dummy micro-batches. */
static enum op_id start_of(const struct graph *graph, const struct node *node, int tensor) {
    const bool early = graph_phase_of(graph, tensor) == PHASE_BACKWARD;
    if (node->phase < PHASE_REDUCE || !rt_dtype_is_float(graph->tensors.at[tensor].dtype)) return OP_NONE;
    if (node->op->id == OP_AllReduce && op_reduction(node) == RT_SUM &&
        (early || (is_along_replicas(graph, node) && is_gradient(graph, tensor))))
        return OP_AllReduceStart;
    const bool slices = layout_flat_axes(&graph->tensors.at[node->outputs[0]].layout) != 0;
    return node->op->id == OP_ReduceScatter && op_reduction(node) == RT_SUM && slices && early ? OP_ReduceScatterStart
                                                                                               : OP_NONE;
}

static void begin_sum(struct graph *graph, int id, int tensor, bool axes_too) {
    const struct node *node = &graph->nodes.at[id];
    const unsigned kind = layout_slices(&graph->tensors.at[node->outputs[0]].layout) & RT_FLAT_KINDS;
    const struct attr attrs[] = {attr_of_int("mesh", attr_int(node, "mesh", 0)), attr_of_text("reduce", "sum"),
                                 attr_of_int("slices", kind)};
    const enum op_id op = start_of(graph, node, tensor);
    if (op == OP_NONE || !(axes_too || is_along_replicas(graph, node))) return;
    const int start = add_start(graph, op, tensor, id, kind ? 3 : 2, attrs);
    graph->nodes.at[id].inputs[0] = start;
    attr_set(graph, &graph->nodes.at[id], attr_of_int("begun", 1));
}

int pass_overlap(struct graph *graph, const struct pass_context *context) {
    const bool axes_too = !context->training || context->training->bucket_bytes > 0;
    int n;
    const struct uses uses = graph_uses(graph, graph->arena);
    const int *order = graph_take_order(graph, &n);
    for (int i = 0; i < n; i++) {
        VEC_PUSH(graph->arena, &graph->order, order[i]);
        EACH_VALUE(graph->nodes.at[order[i]].outputs, graph->nodes.at[order[i]].noutputs, k, const int tensor) {
            for (int u = uses.first[tensor]; u < uses.first[tensor + 1]; u++)
                begin_sum(graph, uses.users[u], tensor, axes_too);
        }
    }
    return 0;
}
