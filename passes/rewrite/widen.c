/* Inserts casts around operators without a kernel for 16-bit floats: their operands are cast to f32, their results
 * back. So sums, norms and softmax of 16-bit floats accumulate in f32, and their kernels are written for one type
 * only. */
#include "ir/build.h"
#include "ir/infer.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

struct widener {
    struct rewrite rewrite;
    struct build b;
    int *wide, tensors; /* per tensor of the old graph (`tensors` of them): its cast to f32, -1: not made yet */
};

static bool is_half(const struct graph *graph, int tensor) {
    return tensor >= 0 && rt_dtypes[graph->tensors.at[tensor].dtype].kind == RT_KIND_HALF;
}

/* Adds a cast; `phase` is that of the node that needs it. */
static int cast(struct widener *w, int tensor, enum rt_dtype dtype, enum phase phase) {
    struct graph *graph = w->b.graph;
    w->b.node = arena_printf(graph->arena, "%s.%s", graph->tensors.at[tensor].name, rt_dtypes[dtype].name);
    int made = build_cast(&w->b, tensor, dtype), producer = made < 0 ? -1 : graph->tensors.at[made].producer;
    if (producer >= 0) graph->nodes.at[producer].phase = phase;
    return made;
}

static int widened(struct widener *w, int tensor, enum phase phase) {
    if (tensor >= w->tensors) return cast(w, tensor, RT_F32, phase);
    if (w->wide[tensor] < 0) w->wide[tensor] = cast(w, tensor, RT_F32, phase);
    return w->wide[tensor];
}

/* Makes the node compute in f32: casts its 16-bit operands to f32 and, for its readers, an f32 result back. */
static int widen(struct widener *w, int id) {
    struct graph *graph = w->b.graph;
    int y = graph->nodes.at[id].outputs[0];
    enum rt_dtype dtype = graph->tensors.at[y].dtype;
    enum phase phase = graph->nodes.at[id].phase;
    for (int k = 0; k < graph->nodes.at[id].ninputs; k++) {
        if (!is_half(graph, graph->nodes.at[id].inputs[k])) continue;
        int wide = widened(w, graph->nodes.at[id].inputs[k], phase);
        if (wide < 0) return -1;
        graph->nodes.at[id].inputs[k] = wide;
    }
    rewrite_keep(&w->rewrite, id);
    if (op_infer(graph, id, w->b.diags) < 0) return -1;
    if (graph->tensors.at[y].dtype == dtype) return 0;
    int half = cast(w, y, dtype, phase);
    if (half >= 0) rewrite_replace(&w->rewrite, y, half);
    return half < 0 ? -1 : 0;
}

int pass_widen(struct graph *graph, const struct pass_context *context) {
    struct widener w = {.b = {graph, context->diags, NULL}, .tensors = graph->tensors.n};
    w.wide = ARENA_ARRAY(graph->arena, int, w.tensors + 1);
    for (int t = 0; t < w.tensors; t++) w.wide[t] = -1;
    rewrite_begin(&w.rewrite, graph);
    for (int i = 0; i < w.rewrite.order_n; i++) {
        int id = rewrite_next(&w.rewrite, i);
        const struct node *node = &graph->nodes.at[id];
        int typed = node->ninputs ? node->inputs[op_typed_input(node->op)] : -1;
        bool has_kernel = typed >= 0 && op_has_kernel(node->op, graph->tensors.at[typed].dtype);
        if (!is_half(graph, typed) || has_kernel || op_is_listed(node->op, context->halves))
            rewrite_keep(&w.rewrite, id);
        else if (widen(&w, id) < 0)
            return -1;
    }
    rewrite_end(&w.rewrite);
    return 0;
}
