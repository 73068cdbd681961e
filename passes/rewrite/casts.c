/* Removes casts to a wider float type between casts: Cast(Cast(x: f16, f32), f64) becomes Cast(x, f64), and a cast back
 * to the type of x becomes x. Widening is exact, so the values do not change. The gradient of a cast is the reverse
 * cast, so backward graphs have many such pairs. */
#include <string.h>

#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

static bool is_cast(const struct node *node) {
    return node->op->id == OP_Cast;
}

/* True if the wide float type represents every value of the narrow one. */
static bool holds(enum rt_dtype wide, enum rt_dtype narrow) {
    return rt_dtype_is_float(wide) && rt_dtype_is_float(narrow) && rt_dtype_bytes(wide) > rt_dtype_bytes(narrow);
}

/* The tensor before all casts to wider types that lead to it; itself if there are none. */
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
