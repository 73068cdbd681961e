/* Inserts casts around operators without a kernel for 16-bit floats: their operands are cast to f32, their results
 * back. So sums, norms and softmax of 16-bit floats accumulate in f32, and their kernels are written for one type only.
 * In graphs of f64, such as the reference of `verify --numeric`, operators of the user that have a kernel for f32 but
 * none for f64 compute in f32, too. */
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

struct promotion {
    struct rewrite rewrite;
    struct build builder;
    int *wide, tensors; /* per tensor of the old graph (`tensors` of them): its cast to f32, -1: not made yet */
    const int *readers; /* per tensor of the old graph */
};

static bool is_half(const struct graph *graph, int tensor) {
    return tensor >= 0 && rt_dtypes[graph->tensors.at[tensor].dtype].kind == RT_KIND_HALF;
}

/* True if the user declares a kernel for f32, but none for f64. */
static bool is_single(const struct op *op) {
    return op->user && op_has_kernel(op, RT_F32) && !op_has_kernel(op, RT_F64);
}

/* True if a node that computes in f32 instead needs a cast of its input k. Letter d is f64 in any case, and c as it is
 * stored. */
static bool needs_cast(const struct graph *graph, const struct node *node, int k) {
    const int tensor = node->inputs[k];
    const char letter = *op_input_letter(node->op, k);
    if (is_half(graph, tensor)) return letter != 'c';
    return tensor >= 0 && is_single(node->op) && graph->tensors.at[tensor].dtype == RT_F64 && letter != 'd';
}

/* Adds a cast; `phase` is that of the node that needs it. */
static int cast(struct promotion *p, int tensor, enum rt_dtype dtype, enum phase phase) {
    struct graph *graph = p->builder.graph;
    p->builder.node = arena_printf(graph->arena, "%s.%s", graph->tensors.at[tensor].name, rt_dtypes[dtype].name);
    int made = build_cast(&p->builder, tensor, dtype), producer = made < 0 ? -1 : graph->tensors.at[made].producer;
    if (producer >= 0) graph->nodes.at[producer].phase = phase;
    return made;
}

static int operand_in_f32(struct promotion *p, int tensor, enum phase phase) {
    if (tensor >= p->tensors) return cast(p, tensor, RT_F32, phase);
    if (p->wide[tensor] < 0) p->wide[tensor] = cast(p, tensor, RT_F32, phase);
    return p->wide[tensor];
}

/* Makes the node compute in f32: casts its operands to f32 and, for its readers, f32 results back. */
static int promote(struct promotion *p, int id) {
    struct graph *graph = p->builder.graph;
    const int noutputs = graph->nodes.at[id].noutputs, *outputs = graph->nodes.at[id].outputs;
    enum rt_dtype *dtypes = ARENA_ARRAY(graph->arena, enum rt_dtype, noutputs);
    enum phase phase = graph->nodes.at[id].phase;
    for (int i = 0; i < noutputs; i++) dtypes[i] = outputs[i] < 0 ? RT_DTYPE_NONE : graph->tensors.at[outputs[i]].dtype;
    for (int k = 0; k < graph->nodes.at[id].ninputs; k++) {
        if (!needs_cast(graph, &graph->nodes.at[id], k)) continue;
        int wide = operand_in_f32(p, graph->nodes.at[id].inputs[k], phase);
        if (wide < 0) return -1;
        graph->nodes.at[id].inputs[k] = wide;
    }
    rewrite_keep(&p->rewrite, id);
    if (op_infer(graph, id, p->builder.diags) < 0) return -1;
    for (int i = 0; i < noutputs; i++) {
        if (outputs[i] < 0 || !p->readers[outputs[i]] || graph->tensors.at[outputs[i]].dtype == dtypes[i]) continue;
        const int half = cast(p, outputs[i], dtypes[i], phase);
        if (half < 0) return -1;
        rewrite_replace(&p->rewrite, outputs[i], half);
    }
    return 0;
}

int pass_promote_to_f32(struct graph *graph, const struct pass_context *context) {
    struct promotion p = {.builder = {graph, context->diags, NULL}, .tensors = graph->tensors.n};
    p.wide = ARENA_ARRAY(graph->arena, int, p.tensors + 1);
    p.readers = graph_readers(graph, graph->arena);
    for (int t = 0; t < p.tensors; t++) p.wide[t] = -1;
    rewrite_begin(&p.rewrite, graph);
    for (int i = 0; i < p.rewrite.order_n; i++) {
        int id = rewrite_next(&p.rewrite, i);
        const struct node *node = &graph->nodes.at[id];
        const int input = op_typed_input(node->op), typed = input < node->ninputs ? node->inputs[input] : -1;
        bool has_kernel = typed >= 0 && op_has_kernel(node->op, graph->tensors.at[typed].dtype);
        bool single = typed >= 0 && graph->tensors.at[typed].dtype == RT_F64 && is_single(node->op);
        if (single)
            diag_remark(context->diags, node_place(graph, id), "computed in f32: %s has no kernel for f64",
                        node->op->name);
        if ((!is_half(graph, typed) && !single) || has_kernel || rewrite_takes_halves(context, node->op))
            rewrite_keep(&p.rewrite, id);
        else if (promote(&p, id) < 0)
            return -1;
    }
    rewrite_end(&p.rewrite);
    return 0;
}
