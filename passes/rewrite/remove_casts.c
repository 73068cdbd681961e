/* Removes casts to a wider float type between casts: Cast(Cast(x: f16, f32), f64) becomes Cast(x, f64), and a cast back
 * to the type of x becomes x. Widening is exact, so the values do not change. The gradient of a cast is the reverse
 * cast, so backward graphs have many such pairs.
 *
 * Also casts around an operator whose kernel for 16-bit floats computes in f32 and rounds once: --amp has rotary
 * embeddings in f32 between products in 16-bit floats. */

#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

/* The tensor before all casts to wider types that lead to it; itself if there are none. */
static int before_widening(const struct graph *graph, int tensor) {
    for (;;) {
        const struct tensor *wide = &graph->tensors.at[tensor];
        const struct node *producer = made_by(graph, tensor, OP_Cast);
        if (!producer) return tensor;
        const struct tensor *narrow = &graph->tensors.at[producer->inputs[0]];
        if (!rt_dtype_is_float(wide->dtype) || !rt_dtype_is_float(narrow->dtype) ||
            rt_dtype_bytes(wide->dtype) <= rt_dtype_bytes(narrow->dtype))
            return tensor;
        tensor = producer->inputs[0];
    }
}

/* Such operators: of input 0 and the result; the other inputs may be f32 (ir/ops.def). */
static const enum op_id rounding_once[] = {OP_Rope, OP_NONE};

/* Replaces a cast to a narrow type by letting the operand's producer round. The producer's input 0 was widened from
 * that type, and is replaced by the tensor before it was widened. Returns the producer's result; -1 if the producer is
 * no such operator, or other nodes read its result. */
static int rounded_by_producer(struct graph *graph, const struct pass_context *context, const int *readers, int cast) {
    const int id = graph->nodes.at[cast].inputs[0], narrow = graph->nodes.at[cast].outputs[0];
    const int producer = graph->tensors.at[id].producer;
    struct node *node = producer < 0 ? NULL : &graph->nodes.at[producer];
    if (!node || !op_is_listed(node->op, rounding_once) || !rewrite_takes_halves(context, node->op)) return -1;
    const int before = before_widening(graph, node->inputs[0]);
    const enum rt_dtype dtype = graph->tensors.at[narrow].dtype;
    if (readers[id] != 1 || graph->tensors.at[before].dtype != dtype || op_summed_in(dtype) == dtype ||
        op_summed_in(dtype) != graph->tensors.at[id].dtype)
        return -1;
    node->inputs[0] = before;
    graph->tensors.at[id].dtype = dtype;
    return id;
}

int pass_remove_casts(struct graph *graph, const struct pass_context *context) {
    struct rewrite rewrite;
    bool changed = false;
    const int *readers = graph_readers(graph, graph->arena);
    rewrite_begin(&rewrite, graph);
    for (int i = 0; i < rewrite.order_n; i++) {
        int id = rewrite_next(&rewrite, i), before = -1;
        struct node *node = &graph->nodes.at[id];
        if (node->op->id == OP_Cast) before = before_widening(graph, node->inputs[0]);
        if (before >= 0 && before == node->inputs[0]) {
            const int rounded = rounded_by_producer(graph, context, readers, id);
            if (rounded >= 0) before = rounded, changed = true;
        }
        if (before >= 0 && before != node->inputs[0]) node->inputs[0] = before, changed = true;
        if (before >= 0 && graph->tensors.at[before].dtype == graph->tensors.at[node->outputs[0]].dtype)
            rewrite_replace(&rewrite, node->outputs[0], before), changed = true;
        else
            rewrite_keep(&rewrite, id);
    }
    rewrite_end(&rewrite);
    return changed ? pass_dce(graph, context) : 0;
}
