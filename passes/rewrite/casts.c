/* Casts of casts: what was widened, and holds what it held, is cast as it was before, and back to its own type not at
 * all. Gradients turn every cast around, so they are full of these; 16-bit floats pass through f32 and stay what they
 * are. */
#include <string.h>

#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

static bool is_cast(const struct node *node) {
    return node->op->id == OP_Cast;
}

/* Every number of the one type is one of the other. */
static bool holds(enum rt_dtype wide, enum rt_dtype narrow) {
    return rt_dtype_is_float(wide) && rt_dtype_is_float(narrow) && rt_dtype_bytes(wide) > rt_dtype_bytes(narrow);
}

/* The tensor, or what it is wherever that was only widened to make it. */
static int before_widening(const struct graph *graph, int tensor) {
    for (;;) {
        const struct tensor *t = &graph->tensors.at[tensor];
        const struct node *producer = t->producer < 0 ? NULL : &graph->nodes.at[t->producer];
        if (!producer || !is_cast(producer) || !holds(t->dtype, graph->tensors.at[producer->inputs[0]].dtype))
            return tensor;
        tensor = producer->inputs[0];
    }
}

int pass_casts(struct graph *graph, const struct pass_context *context) {
    struct rewrite rewrite;
    bool changed = false;
    rewrite_begin(&rewrite, graph);
    for (int i = 0; i < rewrite.order_n; i++) {
        int id = rewrite_next(&rewrite, i), before = -1;
        struct node *node = &graph->nodes.at[id];
        if (is_cast(node)) before = before_widening(graph, node->inputs[0]);
        if (before >= 0 && before != node->inputs[0]) node->inputs[0] = before, changed = true;
        if (before >= 0 && graph->tensors.at[before].dtype == graph->tensors.at[node->outputs[0]].dtype)
            rewrite_replace(&rewrite, node->outputs[0], before), changed = true;
        else
            rewrite_keep(&rewrite, id);
    }
    rewrite_end(&rewrite);
    return changed ? pass_dce(graph, context) : 0;
}
