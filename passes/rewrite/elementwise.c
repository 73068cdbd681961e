#include "passes/rewrite/elementwise.h"

#include <string.h>

#include "ir/expr/eval.h"
#include "ir/op.h"

static enum rt_dtype type_of(const struct graph *graph, int tensor) {
    return graph->tensors.at[tensor].dtype;
}

static bool is_half(enum rt_dtype dtype) {
    return rt_dtypes[dtype].kind == RT_KIND_HALF;
}

/* Casts between f32 and integers that chains load or store. */
static bool casts_integers(const struct graph *graph, const struct node *node) {
    if (node->op->id != OP_Cast) return false;
    const enum rt_dtype from = type_of(graph, node->inputs[0]), to = type_of(graph, node->outputs[0]);
    if (from == RT_F32) return to == RT_I8 || to == RT_U8;
    return to == RT_F32 && expr_chain_loads(from);
}

enum rt_dtype elementwise_compute_type(const struct graph *graph, const struct node *node) {
    enum rt_dtype out = type_of(graph, node->outputs[0]);
    if (out == RT_BOOL) out = type_of(graph, node->inputs[0]);
    if (rt_dtype_bytes(out) == 1 && (node->op->id == OP_Fused || casts_integers(graph, node))) return RT_F32;
    return op_summed_in(out);
}

/* Casts between types that are computed in f32 join chains: they round, or do nothing. */
static bool is_other_cast(const struct graph *graph, const struct node *node) {
    if (node->op->id != OP_Cast) return false;
    const enum rt_dtype from = type_of(graph, node->inputs[0]), to = type_of(graph, node->outputs[0]);
    return (from != RT_F32 && !is_half(from)) || (to != RT_F32 && !is_half(to));
}

static bool is_fusible(const struct graph *graph, const struct node *node) {
    if (node->op->kind != OP_ELEMENTWISE || !node->op->expr) return false;
    for (int a = 0; a < RT_LAYOUT_AXES; a++)
        if (node->split[a].factor == SPLIT_PARTIAL) return false;
    enum rt_dtype dtype = elementwise_compute_type(graph, node);
    return dtype == RT_F32 || dtype == RT_F64 || dtype == RT_BOOL;
}

bool elementwise_is_fusible(const struct graph *graph, const struct node *node) {
    return !is_other_cast(graph, node) && is_fusible(graph, node);
}

bool elementwise_joins_chain(const struct graph *graph, const struct pass_context *context, const struct node *node) {
    const bool casts = !context->library_products && casts_integers(graph, node);
    return (casts || !is_other_cast(graph, node)) && is_fusible(graph, node);
}

bool elementwise_same_shard(const struct tensor *a, const struct tensor *b) {
    return tensor_same_shape(a, b) && layout_same_part(&a->layout, &b->layout);
}

const struct expr *elementwise_expression(const struct graph *graph, const struct node *node) {
    struct expr_renaming renaming = {.n = 0};
    for (int i = 0; i < node->nattrs && renaming.n < EXPR_INPUTS; i++) {
        if (node->attrs[i].kind != ATTR_INT && node->attrs[i].kind != ATTR_FLOAT) continue;
        expr_replace(&renaming, node->attrs[i].key, expr_number(graph->arena, attr_float(node, node->attrs[i].key, 0)));
    }
    return expr_rename(graph->arena, expr_parse(graph->arena, node->op->expr), &renaming);
}

const char *elementwise_input_name(const struct node *node, int k) {
    static const char *const letters[] = {"a", "b", "c"};
    return node->ninputs == 1 ? "x" : letters[k];
}

int elementwise_count_reads(const struct expr *expr, const char *name) {
    int count = expr->kind == EXPR_NAME && strcmp(expr->name, name) == 0;
    for (int i = 0; i < expr->nargs; i++) count += elementwise_count_reads(expr->arg[i], name);
    return count;
}

const struct expr *elementwise_number(const struct graph *graph, int tensor) {
    const struct tensor *t = &graph->tensors.at[tensor];
    if (t->kind != TENSOR_CONST || tensor_elements(t) != 1 || !rt_dtype_is_float(t->dtype)) return NULL;
    double value = eval_load(t->data, t->dtype, 0).f;
    return value - value == 0 ? expr_number(graph->arena, value) : NULL;
}

static bool is_rounded(enum rt_dtype dtype, const struct expr *value) {
    return value->kind == EXPR_CALL && strcmp(value->name, rt_dtypes[dtype].name) == 0;
}

const struct expr *elementwise_rounded(struct arena *arena, enum rt_dtype dtype, const struct expr *value) {
    if ((dtype == RT_I8 || dtype == RT_U8) && expr_is_code(value, dtype, "")) return expr_clamp(arena, value);
    if (!is_half(dtype) || is_rounded(dtype, value)) return value;
    return expr_call(arena, rt_dtypes[dtype].name, value);
}

const struct expr *elementwise_stored(enum rt_dtype dtype, const struct expr *value) {
    return is_rounded(dtype, value) ? value->arg[0] : value;
}
