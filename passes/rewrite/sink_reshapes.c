/* Moves a Reshape that only merges leading dimensions from the operand of an operator to its result, where the operator
 * works on the last dimension alone: MatMul(Reshape(x), w) becomes Reshape(MatMul(x, w)), and likewise elementwise
 * operators whose other operands are vectors or scalars. Exporters of GPT-2 flatten (batch, sequence) around every
 * product; moved down, these reshapes meet and cancel, and no longer separate elementwise operators from each other. */
#include <string.h>

#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

/* The input of a Reshape that merges leading dimensions, and its shape; the trailing dimensions that make up the last
 * one of the result count as one. */
struct unmerged {
    int source, ndim; /* ndim 0: the tensor is not the result of such a Reshape */
    int64_t dims[RT_MAX_NDIM];
};

static struct unmerged before_merge(const struct graph *graph, int tensor) {
    const struct tensor *t = &graph->tensors.at[tensor];
    struct unmerged before = {.ndim = 0};
    if (t->producer < 0 || t->ndim < 1 || graph->nodes.at[t->producer].op->id != OP_Reshape) return before;
    before.source = graph->nodes.at[t->producer].inputs[0];
    const struct tensor *x = &graph->tensors.at[before.source];
    int64_t last = 1;
    int i = x->ndim;
    while (i > 0 && last < t->dims[t->ndim - 1]) last *= x->dims[--i];
    const int ndim = i + 1; /* a last dimension of 1 may be one more than x has */
    if (x->kind != TENSOR_VALUE || last != t->dims[t->ndim - 1] || ndim <= t->ndim || ndim > RT_MAX_NDIM ||
        !tensor_elements(t))
        return before;
    before.ndim = ndim;
    memcpy(before.dims, x->dims, (size_t)i * sizeof *x->dims);
    before.dims[i] = last;
    return before;
}

static bool is_plain_product(const struct graph *graph, const struct node *node) {
    return node->op->id == OP_MatMul && !attr_int(node, "trans_a", 0) && graph->tensors.at[node->inputs[1]].ndim == 2;
}

/* Vectors along the last dimension and scalars broadcast alike to either shape. */
static bool is_indifferent(const struct graph *graph, int tensor) {
    return graph->tensors.at[tensor].ndim <= 1;
}

/* The operand whose Reshape can move below the node; -1 if there is none. */
static int sinks_past(const struct graph *graph, const struct node *node) {
    int merged = -1;
    if (is_plain_product(graph, node)) return before_merge(graph, node->inputs[0]).ndim ? 0 : -1;
    if (node->op->kind != OP_ELEMENTWISE) return -1;
    for (int k = 0; k < node->ninputs; k++) {
        if (is_indifferent(graph, node->inputs[k])) continue;
        if (merged >= 0 || !before_merge(graph, node->inputs[k]).ndim) return -1;
        merged = k;
    }
    return merged;
}

static int sink(struct build *builder, int id, int operand) {
    const struct graph *graph = builder->graph;
    const struct node *node = &graph->nodes.at[id];
    const struct tensor out = graph->tensors.at[node->outputs[0]];
    int inputs[3];
    memcpy(inputs, node->inputs, (size_t)node->ninputs * sizeof *inputs);
    struct unmerged before = before_merge(graph, inputs[operand]);
    inputs[operand] = build_reshape(builder, before.source, before.ndim, before.dims);
    if (inputs[operand] < 0) return -1;
    int result = build(builder, node->op->id, node->ninputs, inputs, node->nattrs, node->attrs);
    return result < 0 ? -1 : build_reshape(builder, result, out.ndim, out.dims);
}

/* The tensor that replaces the node's result, as rewrite_each wants it. */
static int sunk(void *env, int id) {
    struct build *builder = env;
    const struct graph *graph = builder->graph;
    const struct node *node = &graph->nodes.at[id];
    int operand = sinks_past(graph, node);
    builder->node = node->name;
    if (operand >= 0) return sink(builder, id, operand);
    if (node->op->id != OP_Reshape || !made_by(graph, node->inputs[0], OP_Reshape)) return REWRITE_KEPT;
    const struct tensor out = graph->tensors.at[node->outputs[0]];
    return build_reshape(builder, node->inputs[0], out.ndim, out.dims); /* of the tensor before all reshapes */
}

int pass_sink_reshapes(struct graph *graph, const struct pass_context *context) {
    struct build builder = {graph, context->diags, NULL};
    return rewrite_each(graph, sunk, &builder);
}
