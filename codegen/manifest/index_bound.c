#include "codegen/manifest/manifest_parts.h"

#include "ir/op.h"

/* Operators whose input 1 has indices of input 0 along attribute axis. */
static const enum op_id indexing[] = {OP_Gather, OP_GatherElements, OP_NONE};

/* Operators whose result has elements of input 0. */
static const enum op_id moving[] = {OP_Cast, OP_Reshape, OP_Transpose, OP_Expand, OP_Slice, OP_NONE};

struct search {
    const struct graph *graph;
    bool *seen; /* tensors */
    int *stack, n;
    struct index_use use;
};

static void add(struct search *search, int tensor) {
    if (tensor < 0 || search->seen[tensor]) return;
    search->seen[tensor] = true;
    search->stack[search->n++] = tensor;
}

static void visit(struct search *search, const struct node *node, int tensor) {
    if (node->op->kind == OP_COMM || op_is_listed(node->op, moving))
        for (int o = 0; o < node->noutputs; o++) add(search, node->outputs[o]);
    if (node->op->id == OP_ClassIndex && attr_int(node, "ignores", 0)) {
        search->use.ignores = true;
        search->use.ignored = attr_int(node, "ignored", 0);
    }
    if (!op_is_listed(node->op, indexing) || node->inputs[1] != tensor) return;
    const struct tensor *table = &search->graph->tensors.at[node->inputs[0]];
    const int64_t axis = attr_int(node, "axis", 0);
    if (axis < 0 || axis >= table->ndim) return;
    if (!search->use.below || table->dims[axis] < search->use.below) search->use.below = table->dims[axis];
}

struct index_use index_use_of(const struct graph *graph, const struct uses *uses, int tensor, struct arena *scratch) {
    struct search search = {.graph = graph};
    if (!rt_dtype_is_integer(graph->tensors.at[tensor].dtype)) return search.use;
    search.seen = ARENA_ARRAY(scratch, bool, graph->tensors.n);
    search.stack = ARENA_ARRAY(scratch, int, graph->tensors.n);
    for (add(&search, tensor); search.n;) {
        const int at = search.stack[--search.n];
        for (int u = uses->first[at]; u < uses->first[at + 1]; u++)
            visit(&search, &graph->nodes.at[uses->users[u]], at);
    }
    return search.use;
}
