/* Moves a Slice that leaves the last dimension whole from the result of an operator to its operand, where the operator
 * works on the last dimension alone and nothing else reads the result: Slice(MatMul(x, w)) becomes MatMul(Slice(x), w),
 * and likewise elementwise operators whose other operands are vectors or scalars. Rows that nobody reads are then not
 * computed, as the logits of all tokens of a prompt but the last. */
#include <string.h>

#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

struct raise {
    struct build builder;
    struct uses uses; /* of the tensors before the walk, and which of them are kept */
    const bool *kept;
    int ntensors;
};

/* Starts and steps of a Slice, per dimension. */
struct rows {
    const int64_t *start, *step, *size;
};

static bool leaves_rows_whole(const struct tensor *x, const struct rows *rows) {
    const int last = x->ndim - 1;
    bool smaller = false;
    for (int d = 0; d < last; d++) smaller = smaller || rows->size[d] < x->dims[d];
    return smaller && rows->start[last] == 0 && rows->step[last] == 1 && rows->size[last] == x->dims[last];
}

/* The operand of the tensor's producer whose rows are those of the tensor; -1: none alone, or others read it. */
static int operand_of(const struct raise *raise, int tensor) {
    const struct graph *graph = raise->builder.graph;
    const struct tensor *t = &graph->tensors.at[tensor];
    if (tensor >= raise->ntensors || t->producer < 0 || raise->kept[tensor] ||
        raise->uses.first[tensor + 1] - raise->uses.first[tensor] != 1)
        return -1;
    const struct node *node = &graph->nodes.at[t->producer];
    if (node->op->id == OP_MatMul)
        return !attr_int(node, "trans_a", 0) && graph->tensors.at[node->inputs[1]].ndim == 2 ? 0 : -1;
    if (node->op->kind != OP_ELEMENTWISE) return -1;
    int operand = -1;
    for (int k = 0; k < node->ninputs; k++) {
        const struct tensor *x = &graph->tensors.at[node->inputs[k]];
        if (x->ndim <= 1) continue;
        if (operand >= 0 || !tensor_same_shape(x, t)) return -1;
        operand = k;
    }
    return operand;
}

/* The tensor that has the rows; -1 after a diagnostic. */
static int rows_of(struct raise *raise, int tensor, const struct rows *rows) {
    const struct graph *graph = raise->builder.graph;
    const int operand = operand_of(raise, tensor);
    if (operand < 0) return build_slice(&raise->builder, tensor, rows->start, rows->step, rows->size);
    const struct node node = graph->nodes.at[graph->tensors.at[tensor].producer];
    const struct tensor *x = &graph->tensors.at[node.inputs[operand]];
    int inputs[3];
    int64_t size[RT_MAX_NDIM];
    memcpy(inputs, node.inputs, (size_t)node.ninputs * sizeof *inputs);
    memcpy(size, rows->size, (size_t)x->ndim * sizeof *size);
    size[x->ndim - 1] = x->dims[x->ndim - 1];
    inputs[operand] = rows_of(raise, node.inputs[operand], &(struct rows){rows->start, rows->step, size});
    if (inputs[operand] < 0) return -1;
    raise->builder.node = node.name;
    return build(&raise->builder, node.op->id, node.ninputs, inputs, node.nattrs, node.attrs);
}

static int raised(void *env, int id) {
    struct raise *raise = env;
    const struct graph *graph = raise->builder.graph;
    const struct node *node = &graph->nodes.at[id];
    raise->builder.node = node->name;
    if (node->op->id != OP_Slice || operand_of(raise, node->inputs[0]) < 0) return REWRITE_KEPT;
    const struct rows rows = {attr_ints(node, "start", NULL), attr_ints(node, "step", NULL),
                              attr_ints(node, "size", NULL)};
    if (!leaves_rows_whole(&graph->tensors.at[node->inputs[0]], &rows)) return REWRITE_KEPT;
    return rows_of(raise, node->inputs[0], &rows);
}

int pass_raise_slices(struct graph *graph, const struct pass_context *context) {
    struct raise raise = {.builder = {graph, context->diags, NULL}, .ntensors = graph->tensors.n};
    raise.uses = graph_uses(graph, graph->arena);
    raise.kept = graph_kept(graph, graph->arena);
    return rewrite_each(graph, raised, &raise);
}
