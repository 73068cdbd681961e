/* Removes casts to a wider float type between casts: Cast(Cast(x: f16, f32), f64) becomes Cast(x, f64), and a cast back
 * to the type of x becomes x. Widening is exact, so the values do not change. The gradient of a cast is the reverse
 * cast, so backward graphs have many such pairs. */
#include <string.h>

#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

/* The tensor before all casts to wider types that lead to it; itself if there are none. */
static int before_widening(const struct graph *graph, int tensor) {
    for (;;) {
        const struct tensor *wide = &graph->tensors.at[tensor];
        const struct node *producer = wide->producer < 0 ? NULL : &graph->nodes.at[wide->producer];
        if (!producer || producer->op->id != OP_Cast) return tensor;
        const struct tensor *narrow = &graph->tensors.at[producer->inputs[0]];
        if (!rt_dtype_is_float(wide->dtype) || !rt_dtype_is_float(narrow->dtype) ||
            rt_dtype_bytes(wide->dtype) <= rt_dtype_bytes(narrow->dtype))
            return tensor;
        tensor = producer->inputs[0];
    }
}

int pass_remove_casts(struct graph *graph, const struct pass_context *context) {
    struct rewrite rewrite;
    bool changed = false;
    rewrite_begin(&rewrite, graph);
    for (int i = 0; i < rewrite.order_n; i++) {
        int id = rewrite_next(&rewrite, i), before = -1;
        struct node *node = &graph->nodes.at[id];
        if (node->op->id == OP_Cast) before = before_widening(graph, node->inputs[0]);
        if (before >= 0 && before != node->inputs[0]) node->inputs[0] = before, changed = true;
        if (before >= 0 && graph->tensors.at[before].dtype == graph->tensors.at[node->outputs[0]].dtype)
            rewrite_replace(&rewrite, node->outputs[0], before), changed = true;
        else
            rewrite_keep(&rewrite, id);
    }
    rewrite_end(&rewrite);
    return changed ? pass_dce(graph, context) : 0;
}
