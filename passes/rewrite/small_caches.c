/* Stores caches in 16 bits (--cache-dtype): the buffers to which steps add rows (Note [State] in state.c).
 *
 *     state %0 f32                              state %0 bf16
 *     %2 = Append(%0, %1)             becomes   %2 = Append(%0, Cast(%1))
 *     %3 = Slice(%2)                            %3 = Slice(%2)
 *     %4 = Attention(%q, %3, ..)                %4 = Attention(%q, %3, ..)
 *
 * Rows are rounded when they are added. Attention of f32 has kernels that widen keys and values while it reads them;
 * what else reads a cache reads a Cast of it. */
#include "ir/build.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

enum { KEYS = 1, VALUES = 2 };

struct caches {
    struct build builder;
    const struct pass_context *context;
    struct rewrite rewrite;
    enum rt_dtype dtype, computed; /* of caches, and of what reads them */
    bool *small;                   /* per tensor of the old graph: it has become one of `dtype` */
    int *wide;                     /* its Cast, -1: not made yet */
    int tensors;
};

static struct tensor *tensor_of(const struct caches *caches, int tensor) {
    return &caches->builder.graph->tensors.at[tensor];
}

static bool is_small(const struct caches *caches, int tensor) {
    return tensor >= 0 && tensor < caches->tensors && caches->small[tensor];
}

static void make_small(struct caches *caches, int tensor) {
    tensor_of(caches, tensor)->dtype = caches->dtype;
    caches->small[tensor] = true;
}

/* The operand of a node that has the rows which it adds to its first one; -1: the node adds none. */
static int rows_of(const struct node *node) {
    return node->op->id == OP_Append ? 1 : node->op->id == OP_ScatterND ? 2 : -1;
}

/* True if the operator moves elements of its first operand only. */
static bool moves(const struct node *node) {
    static const enum op_id list[] = {OP_Slice, OP_Transpose, OP_Reshape, OP_NONE};
    return op_is_listed(node->op, list);
}

/* The states to which nodes add rows; returns how many there are. */
static int find_states(struct caches *caches) {
    const struct graph *graph = caches->builder.graph;
    int found = 0;
    for (int u = 0; u < graph->updates.n; u++) {
        const struct update *update = &graph->updates.at[u];
        const struct node *writer = graph_producer(graph, update->value);
        const struct tensor *state = tensor_of(caches, update->weight);
        if (state->kind != TENSOR_STATE || !writer || rows_of(writer) < 0 || writer->inputs[0] != update->weight ||
            !rt_dtype_is_float(state->dtype))
            continue;
        found++;
        if (rt_dtype_bytes(state->dtype) <= rt_dtype_bytes(caches->dtype)) continue;
        caches->computed = state->dtype;
        make_small(caches, update->weight);
    }
    return found;
}

static int widened(struct caches *caches, int tensor) {
    if (caches->wide[tensor] < 0) caches->wide[tensor] = build_cast(&caches->builder, tensor, caches->computed);
    return caches->wide[tensor];
}

/* Writes and moves of a cache in 16 bits give 16 bits. */
static int carry(struct caches *caches, int id) {
    const struct node *node = &caches->builder.graph->nodes.at[id];
    const int rows = rows_of(node), result = node->outputs[0];
    if (rows >= 0) {
        const int rounded = build_cast(&caches->builder, node->inputs[rows], caches->dtype);
        if (rounded < 0) return -1;
        caches->builder.graph->nodes.at[id].inputs[rows] = rounded;
    }
    make_small(caches, result);
    return 0;
}

/* True if the kernel reads the cache as it is. */
static bool reads_small(const struct caches *caches, const struct node *node) {
    return node->op->id == OP_Attention && rewrite_takes_halves(caches->context, node->op) &&
           tensor_of(caches, node->inputs[0])->dtype == RT_F32 && is_small(caches, node->inputs[KEYS]) &&
           is_small(caches, node->inputs[VALUES]);
}

static int read_widened(struct caches *caches, int id) {
    for (int k = 0; k < caches->builder.graph->nodes.at[id].ninputs; k++) {
        const int tensor = caches->builder.graph->nodes.at[id].inputs[k];
        if (!is_small(caches, tensor)) continue;
        const int wide = widened(caches, tensor);
        if (wide < 0) return -1;
        caches->builder.graph->nodes.at[id].inputs[k] = wide;
    }
    return 0;
}

static int visit(struct caches *caches, int id) {
    const struct node *node = &caches->builder.graph->nodes.at[id];
    const bool reads_first = node->ninputs > 0 && is_small(caches, node->inputs[0]);
    caches->builder.node = node->name;
    if (reads_first && (rows_of(node) >= 0 || moves(node))) return carry(caches, id);
    return reads_small(caches, node) ? 0 : read_widened(caches, id);
}

int pass_small_caches(struct graph *graph, const struct pass_context *context) {
    struct caches caches = {.builder = {graph, context->diags, NULL}, .context = context, .tensors = graph->tensors.n};
    if (!context->cache_dtype) return 0;
    caches.dtype = rt_dtype_by_name(context->cache_dtype), caches.computed = RT_F32;
    caches.small = ARENA_ARRAY(graph->arena, bool, caches.tensors + 1);
    caches.wide = ARENA_ARRAY(graph->arena, int, caches.tensors + 1);
    for (int t = 0; t < caches.tensors; t++) caches.wide[t] = -1;
    if (!find_states(&caches))
        return diag_error(context->diags, 205, EXIT_USAGE, "--cache-dtype",
                          "the model keeps no caches to which steps add rows (--state)");
    rewrite_begin(&caches.rewrite, graph);
    for (int i = 0; i < caches.rewrite.order_n; i++) {
        const int id = rewrite_next(&caches.rewrite, i);
        if (visit(&caches, id) < 0) return -1;
        rewrite_keep(&caches.rewrite, id);
    }
    rewrite_end(&caches.rewrite);
    return 0;
}
