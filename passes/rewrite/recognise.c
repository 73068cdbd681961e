/* Replaces decompositions that exporters write by one operator, which is faster, keeps no intermediate tensors, and has
 * its own rule of legal splits. The patterns are in recognise.def. */
#include "passes/rewrite/recognise.h"

#include <string.h>

#include "ir/expr/eval.h"
#include "ir/user.h"
#include "passes/rewrite/rewrite.h"
#include "ir/dims.h"

/* Subgraphs that become operators of the user, by property `pattern` of their declarations (ir/user.h). */

/* Attributes: numbers of the match, else the declaration's defaults. */
static void take_attributes(struct recognition *recognition, const struct user_op *user) {
    const struct match *match = recognition->match;
    struct attr given[MATCH_NAMES];
    struct node numbers = {.attrs = given};
    int n;
    for (int i = 0; i < match->nnames; i++)
        if (match->name[i].tensor < 0)
            given[numbers.nattrs++] = attr_of_float(match->name[i].name, match->name[i].number);
    const struct attr *attrs = user_attrs(user, &numbers, recognition->builder.graph->arena, &n);
    for (int i = 0; i < n; i++) recognition_attr(recognition, attrs[i]);
}

/* False if an input that is needed is not part of the alternative that matched. */
static bool take_inputs(struct recognition *recognition, const struct user_op *user) {
    const struct match *match = recognition->match;
    for (int i = 0; i < user_inputs(user); i++) recognition->inputs[i] = -1;
    for (int i = 0; i < match->nnames; i++) {
        const int input = user_pattern_input(user, match->name[i].name);
        if (input >= 0) recognition->inputs[input] = match->name[i].tensor;
    }
    recognition->ninputs = user_inputs(user);
    while (recognition->ninputs > 0 && recognition->inputs[recognition->ninputs - 1] < 0) recognition->ninputs--;
    for (int i = 0; i < user_required(user); i++)
        if (recognition->inputs[i] < 0) return false;
    return true;
}

/* The operator takes the types of the operands, and gives the type of the result. */
static bool fits_types(const struct recognition *recognition, const struct op *op) {
    const struct tensor *all = recognition->builder.graph->tensors.at;
    enum rt_dtype bound = RT_DTYPE_NONE;
    for (int i = 0; i < recognition->ninputs; i++)
        if (recognition->inputs[i] >= 0 &&
            !op_type_fits(*op_input_letter(op, i), all[recognition->inputs[i]].dtype, &bound))
            return false;
    if (!op_type_fits(strchr(op->types, '>')[1], recognition_result(recognition)->dtype, &bound)) return false;
    const enum rt_dtype typed = all[recognition->inputs[op_typed_input(op)]].dtype;
    return op_has_kernel(op, rt_dtypes[typed].kind == RT_KIND_HALF && !op->halves ? RT_F32 : typed);
}

/* The result has the shape of the root's. */
static bool fits_shape(const struct recognition *recognition, const struct op *op) {
    const struct graph *graph = recognition->builder.graph;
    struct node node = graph->nodes.at[recognition->root];
    struct dims dims;
    node.op = op;
    node.ninputs = recognition->ninputs;
    node.inputs = (int *)recognition->inputs;
    node.nattrs = recognition->nattrs;
    node.attrs = (struct attr *)recognition->attrs;
    return dims_bind(graph->arena, graph, &node, &dims, NULL) == 0 &&
           dims_fits(&dims, dims.ninputs, recognition_result(recognition));
}

/* Fit of a pattern that the user declares. */
static bool fit_user(struct recognition *recognition, const struct user_op *user) {
    if (!take_inputs(recognition, user)) return false;
    take_attributes(recognition, user);
    return fits_types(recognition, &user->op) && fits_shape(recognition, &user->op);
}

const struct tensor *recognition_result(const struct recognition *recognition) {
    const struct graph *graph = recognition->builder.graph;
    return &graph->tensors.at[graph->nodes.at[recognition->root].outputs[0]];
}

void recognition_attr(struct recognition *recognition, struct attr attr) {
    if (recognition->nattrs == sizeof recognition->attrs / sizeof *recognition->attrs) BUG("too many attributes");
    recognition->attrs[recognition->nattrs++] = attr;
}

void recognition_reshape(struct recognition *recognition, int tensor) {
    const struct tensor *y = recognition_result(recognition);
    const int64_t *shape = arena_copy(recognition->builder.graph->arena, y->dims, sizeof y->dims);
    recognition->inputs[0] = tensor;
    recognition->ninputs = 1, recognition->nattrs = 0;
    recognition_attr(recognition, attr_of_ints("shape", y->ndim, shape));
}

void recognition_replace(struct recognition *recognition, const struct op *op) {
    struct graph *graph = recognition->builder.graph;
    struct node *node = &graph->nodes.at[recognition->root];
    node->op = op;
    node->ninputs = recognition->ninputs;
    node->inputs =
        arena_copy(graph->arena, recognition->inputs, (size_t)recognition->ninputs * sizeof *recognition->inputs);
    node->nattrs = 0;
    for (int i = 0; i < recognition->nattrs; i++) attr_set(graph, node, recognition->attrs[i]);
}

void recognise_each(struct graph *graph, const struct pass_context *context,
                    bool (*find)(struct matcher *matcher, struct build *builder, int node, const void *env),
                    const void *env) {
    struct matcher matcher;
    struct rewrite rewrite;
    bool found = false;
    matcher_init(&matcher, graph);
    rewrite_begin(&rewrite, graph);
    for (int i = 0; i < rewrite.order_n; i++) {
        int id = rewrite_next(&rewrite, i);
        const struct node *node = &graph->nodes.at[id];
        struct build builder = {graph, context->diags, node->name};
        if (node->noutputs == 1 && find(&matcher, &builder, id, env)) found = true;
        rewrite_keep(&rewrite, id);
    }
    rewrite_end(&rewrite);
    if (found) pass_dce(graph, context);
}

/* The operators of recognise.def have kernels for these types, or compute 16-bit floats in f32. */
static bool has_kernels(const struct tensor *tensor) {
    return rt_dtype_is_float(tensor->dtype);
}

/* Makes "x" the first input; false if type or shape of the result differ from its own. */
static bool fit_x(struct recognition *recognition) {
    recognition->inputs[recognition->ninputs++] = match_tensor(recognition->match, "x");
    const struct tensor *x = &recognition->builder.graph->tensors.at[recognition->inputs[0]];
    return has_kernels(x) && tensor_same_type(x, recognition_result(recognition));
}

static bool fit_swish(struct recognition *recognition) {
    recognition_attr(recognition, attr_of_float("alpha", match_number(recognition->match, "alpha")));
    return fit_x(recognition);
}

static int make_ones(struct recognition *recognition, enum rt_dtype dtype, int64_t n) {
    struct graph *graph = recognition->builder.graph;
    size_t size = rt_dtype_bytes(dtype);
    unsigned char *ones = arena_alloc(graph->arena, (size_t)n, size);
    for (int64_t i = 0; i < n; i++) eval_store(ones, dtype, i, (struct number){true, 1, 0});
    return graph_add_const(graph, arena_printf(graph->arena, "%s.ones", recognition->builder.node), dtype, 1, &n, ones);
}

/* The tensor of that name as a vector of n elements, n being the extent of the last dimension of x. -1: the pattern has
 * no such name; -2: the tensor is no such vector. */
static int fit_vector(struct recognition *recognition, const char *name, int64_t n) {
    int id = match_tensor(recognition->match, name);
    if (id < 0) return -1;
    const struct tensor *tensor = &recognition->builder.graph->tensors.at[id];
    if (tensor->ndim < 1 || tensor_elements(tensor) != n || tensor->dims[tensor->ndim - 1] != n) return -2;
    return build_reshape(&recognition->builder, id, 1, &n);
}

static bool fit_norm(struct recognition *recognition) {
    if (!fit_x(recognition)) return false;
    struct tensor x = recognition->builder.graph->tensors.at[recognition->inputs[0]];
    int64_t n = x.dims[x.ndim - 1];
    int scale = fit_vector(recognition, "scale", n), bias = fit_vector(recognition, "bias", n);
    if (scale < -1 || bias < -1) return false;
    recognition->inputs[recognition->ninputs++] = scale < 0 ? make_ones(recognition, x.dtype, n) : scale;
    if (bias >= 0) recognition->inputs[recognition->ninputs++] = bias;
    const double epsilon = match_has(recognition->match, "epsilon") ? match_number(recognition->match, "epsilon") : 0;
    recognition_attr(recognition, attr_of_float("epsilon", epsilon));
    return true;
}

static bool fit_rope(struct recognition *recognition) {
    if (!fit_x(recognition)) return false;
    const struct tensor *all = recognition->builder.graph->tensors.at, *x = &all[recognition->inputs[0]];
    static const char *const names[] = {"cos", "sin"};
    for (int i = 0; i < 2; i++) {
        int id = recognition->inputs[recognition->ninputs++] = match_tensor(recognition->match, names[i]);
        if (all[id].ndim < 1 || all[id].dims[all[id].ndim - 1] != x->dims[x->ndim - 1]) return false;
    }
    return true;
}

static bool fit_rope_pairs(struct recognition *recognition) {
    recognition_attr(recognition, attr_of_int("interleaved", 1));
    return fit_rope(recognition);
}

/* a and b, one after the other in the last dimension. */
static int joined(struct recognition *recognition, int a, int b) {
    return build_concat(&recognition->builder, recognition->builder.graph->tensors.at[a].ndim - 1, 2, (int[]){a, b});
}

/* The halves a and b of x, or of each head, are turned by tables of half a head's size. */
static bool fit_rope_halves(struct recognition *recognition) {
    const struct match *match = recognition->match;
    const struct tensor half = recognition->builder.graph->tensors.at[match_tensor(match, "r")];
    const int a = match_tensor(match, "a"), b = match_tensor(match, "b"), x = match_tensor(match, "x");
    const int tables[] = {match_tensor(match, "cos"), match_tensor(match, "sin")};
    const struct tensor *all = recognition->builder.graph->tensors.at;
    if (!has_kernels(&half) || !tensor_same_type(&all[a], &half) || !tensor_same_type(&all[b], &half)) return false;
    for (int i = 0; i < 2; i++) {
        const struct tensor *table = &all[tables[i]];
        if (table->ndim < 1 || table->dims[table->ndim - 1] != half.dims[half.ndim - 1]) return false;
    }
    recognition->inputs[recognition->ninputs++] = x >= 0 ? x : joined(recognition, a, b);
    for (int i = 0; i < 2; i++) recognition->inputs[recognition->ninputs++] = joined(recognition, tables[i], tables[i]);
    return true;
}

/* Rotated elements behind others of the head. */
static bool fit_rope_behind(struct recognition *recognition) {
    if (!fit_rope_halves(recognition)) return false;
    const int rope = build(&recognition->builder, OP_Rope, 3, recognition->inputs, 0, NULL);
    recognition->inputs[0] = match_tensor(recognition->match, "rest");
    recognition->inputs[1] = rope;
    recognition->ninputs = 2;
    recognition_attr(recognition, attr_of_int("axis", recognition_result(recognition)->ndim - 1));
    return rope >= 0;
}

struct recogniser {
    const struct op *op;
    bool (*fit)(struct recognition *recognition); /* NULL: fit_user */
    const char *text;
    const struct pattern *pattern;
};

static const struct recogniser recognisers[] = {
#define RECOGNISE(op, fit, text) {&ops[OP_##op], fit, text, NULL},
#include "passes/rewrite/recognise.def"
#undef RECOGNISE
};

struct attempt {
    const struct recogniser *row;
    struct recognition *recognition;
};

/* Per node the row whose pattern it fits best without a match; for remarks. */
struct best {
    const struct recogniser *row;
    struct near_miss miss;
};

struct run {
    struct recogniser row;
    const struct recogniser *of_table;
    struct best *best; /* NULL: not wanted */
    int nodes;         /* there were when the pass began */
    int *found;        /* matches of the row */
};

/* How many nodes of a pattern must fit for a remark: of the table's, and of a user's. */
enum { NODES_OF_NEAR_MISS = 4, NODES_OF_USER = 2, REMARKS = 20 };

static bool accept(void *env, const struct match *match) {
    struct attempt *attempt = env;
    struct recognition *recognition = attempt->recognition;
    recognition->match = match;
    recognition->ninputs = recognition->nattrs = 0;
    const struct recogniser *row = attempt->row;
    if (!(row->fit ? row->fit(recognition) : fit_user(recognition, row->op->user))) return false;
    recognition_replace(recognition, attempt->row->op);
    return true;
}

static bool find(struct matcher *matcher, struct build *builder, int node, const void *env) {
    const struct run *run = env;
    struct recognition recognition = {.builder = *builder, .root = node};
    struct attempt attempt = {&run->row, &recognition};
    struct near_miss miss = {0};
    int result = matcher->graph->nodes.at[node].outputs[0];
    if (matcher_find(matcher, run->row.pattern, result, accept, &attempt, &miss)) return ++*run->found;
    if (run->best && node < run->nodes && miss.nodes > run->best[node].miss.nodes)
        run->best[node] = (struct best){run->of_table, miss};
    return false;
}

/* Remarks for nodes that are still there and fit most of a pattern. */
static void remark_near_misses(const struct graph *graph, const struct pass_context *context, const struct run *run) {
    int said = 0;
    for (int i = 0; i < graph->order.n && said < REMARKS; i++) {
        const int id = graph->order.at[i];
        const struct best *best = id < run->nodes ? &run->best[id] : NULL;
        if (!best || !best->row || best->miss.nodes < (best->row->fit ? NODES_OF_NEAR_MISS : NODES_OF_USER)) continue;
        diag_remark(context->diags, graph->nodes.at[id].name, "nearly %s: %s", best->row->op->name,
                    near_miss_text(graph, &best->miss));
        said++;
    }
}

static void try_row(struct graph *graph, const struct pass_context *context, struct run *run,
                    const struct recogniser *row) {
    *run->found = 0;
    run->of_table = row;
    run->row = *row;
    run->row.pattern = pattern_parse(graph->arena, row->text);
    recognise_each(graph, context, find, run);
}

/* An operator that the user declares. In training it must have a gradient. */
static void try_user(struct graph *graph, const struct pass_context *context, struct run *run,
                     const struct user_op *user) {
    struct recogniser row = {&user->op, NULL, user->pattern, NULL};
    if (!user->pattern) return;
    if (graph->train && !user->gradient) {
        diag_remark(context->diags, user->op.name, "the pattern is not used: training needs a gradient");
        return;
    }
    try_row(graph, context, run, arena_copy(graph->arena, &row, sizeof row));
    if (context->verbose) diag_remark(context->diags, user->op.name, "matches of the pattern: %d", *run->found);
}

int pass_recognise(struct graph *graph, const struct pass_context *context) {
    int found;
    struct run run = {.nodes = graph->nodes.n, .found = &found};
    if (context->verbose) run.best = ARENA_ARRAY(graph->arena, struct best, graph->nodes.n + 1);
    for (int i = 0; i < graph->operators.n; i++) try_user(graph, context, &run, graph->operators.at[i]);
    for (size_t i = 0; i < sizeof recognisers / sizeof *recognisers; i++)
        try_row(graph, context, &run, &recognisers[i]);
    if (context->verbose) remark_near_misses(graph, context, &run);
    recognise_dense_experts(graph, context);
    if (!graph->train || context->attention != ATTENTION_PRODUCTS) recognise_attention(graph, context);
    return pass_cse(graph, context); /* layers share what matches have added */
}
