/* Stores caches in 16 or 8 bits (--cache-dtype): the buffers to which steps add rows (Note [State] in state.c).
 *
 *     state %0 f32                              state %0 bf16
 *     %2 = Append(%0, %1)             becomes   %2 = Append(%0, Cast(%1))
 *     %3 = Slice(%2)                            %3 = Slice(%2)
 *     %4 = Attention(%q, %3, ..)                %4 = Attention(%q, %3, ..)
 *
 * Rows are rounded when they are added. Attention of f32 has kernels that widen keys and values while it reads them;
 * what else reads a cache reads a Cast of it.
 *
 * Rows of 8 bits are codes: the last dimension of a cache, a row of one head, has a scale, its largest magnitude / 127,
 * and code = value / scale, rounded. Scales are a cache of their own, of extent 1 in the last dimension, which is
 * written, moved and read as the codes are; ranks that divide heads have the codes of one. */
#include "ir/build.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

enum { KEYS = 1, VALUES = 2, KEY_SCALES = 6, VALUE_SCALES = 7, OPERANDS = 8 };

struct caches {
    struct build builder;
    const struct pass_context *context;
    struct rewrite rewrite;
    enum rt_dtype dtype, computed; /* of caches, and of what reads them */
    bool *small;                   /* per tensor of the old graph: it has become one of `dtype` */
    int *scales;                   /* of codes */
    int *wide;                     /* its Cast, or the product of codes and scales; -1: not made yet */
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

/* The number of the operand whose rows the node adds to its first operand; -1: it adds none. */
static int rows_of(const struct node *node) {
    return node->op->id == OP_Append ? 1 : node->op->id == OP_ScatterND ? 2 : -1;
}

static bool has_codes(const struct caches *caches) {
    return caches->dtype == RT_I8;
}

/* True if the operator moves the elements of its first operand, whole rows if rows have scales. */
static bool moves(const struct caches *caches, const struct node *node) {
    static const enum op_id list[] = {OP_Slice, OP_Transpose, OP_Reshape, OP_NONE};
    const struct tensor *x = tensor_of(caches, node->inputs[0]), *y = tensor_of(caches, node->outputs[0]);
    const int last = x->ndim - 1;
    if (!has_codes(caches)) return op_is_listed(node->op, list);
    if (node->op->id == OP_Transpose) return attr_ints(node, "perm", &(int){0})[last] == last;
    return node->op->id == OP_Slice && x->dims[last] == y->dims[last] && attr_ints(node, "step", &(int){0})[last] == 1;
}

/* The dimension in which a cache grows. */
static int growing_axis(const struct node *writer) {
    return (int)(writer->op->id == OP_Append ? attr_int(writer, "axis", 0) : attr_int(writer, "batch_dims", 0));
}

/* The cache of the scales of a cache of codes. */
static int add_scales(struct caches *caches, int state) {
    struct graph *graph = caches->builder.graph;
    const struct tensor codes = *tensor_of(caches, state);
    int64_t dims[RT_MAX_NDIM];
    memcpy(dims, codes.dims, sizeof dims);
    dims[codes.ndim - 1] = 1;
    return graph_add_tensor(graph, TENSOR_STATE, arena_printf(graph->arena, "%s.scale", codes.name), RT_F32, codes.ndim,
                            dims);
}

/* The states to which nodes add rows; returns how many there are, or -1. */
static int find_states(struct caches *caches) {
    const struct graph *graph = caches->builder.graph;
    int found = 0;
    VEC_EACH(&graph->updates, u, const struct update *update) {
        const struct node *writer = graph_producer(graph, update->value);
        const struct tensor *state = tensor_of(caches, update->weight);
        if (state->kind != TENSOR_STATE || !writer || rows_of(writer) < 0 || writer->inputs[0] != update->weight ||
            !rt_dtype_is_float(state->dtype))
            continue;
        found++;
        if (rt_dtype_bytes(state->dtype) <= rt_dtype_bytes(caches->dtype)) continue;
        if (has_codes(caches) && growing_axis(writer) == state->ndim - 1)
            return diag_error(
                caches->builder.diags, 205, EXIT_USAGE, "--cache-dtype",
                "int8 has a scale for each row of a cache, but %s grows in the dimension of a row's elements",
                diag_quote(caches->builder.diags, state->name));
        caches->computed = state->dtype;
        make_small(caches, update->weight);
        if (has_codes(caches)) caches->scales[update->weight] = add_scales(caches, update->weight);
    }
    return found;
}

static int widened(struct caches *caches, int tensor) {
    struct build *builder = &caches->builder;
    if (caches->wide[tensor] >= 0) return caches->wide[tensor];
    int wide = has_codes(caches) ? build_cast(builder, tensor, RT_F32) : tensor;
    if (wide >= 0 && has_codes(caches)) wide = build2(builder, OP_Mul, wide, caches->scales[tensor]);
    return caches->wide[tensor] = wide < 0 ? -1 : build_cast(builder, wide, caches->computed);
}

/* The scales of rows, which are above 0 so that rows of zeros have codes, and their codes in *codes. */
static int quantised(struct caches *caches, int rows, int *codes) {
    struct build *builder = &caches->builder;
    const int64_t last = tensor_of(caches, rows)->ndim - 1;
    const struct attr along[] = {attr_of_ints("axes", 1, &last), attr_of_int("keepdims", 1)};
    struct build_scope scope = {.dtype = RT_F32};
    if ((rows = build_cast(builder, rows, RT_F32)) < 0) return -1;
    const int magnitudes = build1(builder, OP_Abs, rows);
    const int most = magnitudes < 0 ? -1 : build(builder, OP_ReduceMax, 1, &magnitudes, 2, along);
    if (most < 0) return -1;
    build_scope_tensor(&scope, "most", most);
    build_scope_number(&scope, "least", 0x1p-100);
    build_scope_tensor(&scope, "x", rows);
    const int scales = build_expr(builder, &scope, "max(most, least) / 127");
    if (scales < 0) return -1;
    build_scope_tensor(&scope, "scale", scales);
    if ((*codes = build_expr(builder, &scope, "round(x / scale)")) < 0) return -1;
    return (*codes = build_cast(builder, *codes, caches->dtype)) < 0 ? -1 : scales;
}

/* The scales of the result of a node that moves codes. */
static int moved_scales(struct caches *caches, const struct node *node) {
    const int scales = caches->scales[node->inputs[0]], ndim = tensor_of(caches, scales)->ndim;
    int64_t start[RT_MAX_NDIM], size[RT_MAX_NDIM];
    if (node->op->id == OP_Transpose)
        return build_transpose(&caches->builder, scales, attr_ints(node, "perm", &(int){0}));
    memcpy(start, attr_ints(node, "start", &(int){0}), (size_t)ndim * sizeof *start);
    memcpy(size, attr_ints(node, "size", &(int){0}), (size_t)ndim * sizeof *size);
    start[ndim - 1] = 0, size[ndim - 1] = 1;
    return build_slice(&caches->builder, scales, start, attr_ints(node, "step", &(int){0}), size);
}

/* Adds the scales of the node's rows to those of its first operand, and returns the state's new value. */
static int added_scales(struct caches *caches, const struct node *node, int scales) {
    struct graph *graph = caches->builder.graph;
    int operands[3] = {caches->scales[node->inputs[0]], node->inputs[1], scales};
    operands[rows_of(node)] = scales;
    const int value = build(&caches->builder, node->op->id, node->ninputs, operands, node->nattrs, node->attrs);
    if (value >= 0 && tensor_of(caches, operands[0])->kind == TENSOR_STATE)
        VEC_PUSH(graph->arena, &graph->updates, ((struct update){operands[0], value}));
    return value;
}

/* Writes and moves of a small cache give a small one. */
static int carry(struct caches *caches, int id) {
    const struct node node = caches->builder.graph->nodes.at[id];
    const int rows = rows_of(&node), result = node.outputs[0];
    int rounded = -1, scales = -1;
    if (rows >= 0 && !has_codes(caches)) rounded = build_cast(&caches->builder, node.inputs[rows], caches->dtype);
    if (rows >= 0 && has_codes(caches)) scales = quantised(caches, node.inputs[rows], &rounded);
    if (rows >= 0 && rounded < 0) return -1;
    if (has_codes(caches)) {
        scales = rows >= 0 ? added_scales(caches, &node, scales) : moved_scales(caches, &node);
        if (scales < 0) return -1;
        caches->scales[result] = scales;
    }
    if (rows >= 0) caches->builder.graph->nodes.at[id].inputs[rows] = rounded;
    make_small(caches, result);
    return 0;
}

/* Gives the attention the scales of its keys and values. */
static void add_scale_operands(struct caches *caches, struct node *node) {
    int *inputs = ARENA_ARRAY(caches->builder.graph->arena, int, OPERANDS);
    for (int i = 0; i < OPERANDS; i++) inputs[i] = i < node->ninputs ? node->inputs[i] : -1;
    inputs[KEY_SCALES] = caches->scales[inputs[KEYS]];
    inputs[VALUE_SCALES] = caches->scales[inputs[VALUES]];
    node->inputs = inputs, node->ninputs = OPERANDS;
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
    struct node *node = &caches->builder.graph->nodes.at[id];
    const bool reads_first = node->ninputs > 0 && is_small(caches, node->inputs[0]);
    caches->builder.node = node->name;
    if (reads_first && (rows_of(node) >= 0 || moves(caches, node))) return carry(caches, id);
    if (!reads_small(caches, node)) return read_widened(caches, id);
    if (has_codes(caches)) add_scale_operands(caches, node);
    return 0;
}

int pass_small_caches(struct graph *graph, const struct pass_context *context) {
    struct caches caches = {.builder = {graph, context->diags, NULL}, .context = context, .tensors = graph->tensors.n};
    if (!context->cache_dtype) return 0;
    caches.dtype = strcmp(context->cache_dtype, "int8") == 0 ? RT_I8 : rt_dtype_by_name(context->cache_dtype);
    caches.computed = RT_F32;
    caches.small = ARENA_ARRAY(graph->arena, bool, caches.tensors + 1);
    caches.scales = ARENA_ARRAY(graph->arena, int, caches.tensors + 1);
    caches.wide = ARENA_ARRAY(graph->arena, int, caches.tensors + 1);
    for (int t = 0; t < caches.tensors; t++) caches.wide[t] = -1;
    const int found = find_states(&caches);
    if (found < 0) return -1;
    if (!found)
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
