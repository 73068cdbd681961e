#include "ir/expr/eval.h"

#include <stdlib.h>
#include <string.h>

#include "ir/op.h"

bool eval_can(const struct op *op) {
    return op->kind == OP_ELEMENTWISE || op->eval;
}

struct number eval_load(const void *data, enum rt_dtype dtype, int64_t index) {
    struct number n = {0};
    const char *at = (const char *)data + index * (int64_t)rt_dtype_bytes(dtype);
    n.is_float = rt_dtype_is_float(dtype);
    if (n.is_float)
        rt_convert(&n.f, RT_F64, at, dtype, 1);
    else
        rt_convert(&n.i, RT_I64, at, dtype, 1);
    return n;
}

void eval_store(void *data, enum rt_dtype dtype, int64_t index, struct number value) {
    char *at = (char *)data + index * (int64_t)rt_dtype_bytes(dtype);
    if (value.is_float)
        rt_convert(at, dtype, &value.f, RT_F64, 1);
    else
        rt_convert(at, dtype, &value.i, RT_I64, 1);
}

bool eval_next(int64_t *at, const int64_t *dims, int ndim) {
    for (int d = ndim - 1; d >= 0; d--) {
        if (++at[d] < dims[d]) return true;
        at[d] = 0;
    }
    return false;
}

int64_t eval_offset(const int64_t *at, const int64_t *dims, int ndim) {
    int64_t offset = 0;
    for (int d = 0; d < ndim; d++) offset = offset * dims[d] + at[d];
    return offset;
}

const void *eval_bytes(struct graph *graph, const struct tensor *tensor) {
    if (tensor->kind == TENSOR_CONST) return tensor->data;
    if (tensor->kind != TENSOR_WEIGHT || !tensor->data) return NULL;
    void *bytes = arena_alloc(graph->arena, (size_t)tensor_bytes(tensor) + 1, 1);
    rt_convert(bytes, tensor->dtype, tensor->data, tensor->stored.dtype, (size_t)tensor_elements(tensor));
    return bytes;
}

/* The evaluation at one element: values of the inputs, and of the names that are assigned so far. */
struct point {
    const struct eval *eval;
    struct number value[EXPR_INPUTS], named[EXPR_NAMED];
};

static struct number look_up(const void *env, const char *name) {
    const struct point *point = env;
    if (strcmp(name, "x") == 0) return point->value[0];
    if (!name[1] && *name >= 'a' && *name < 'a' + point->eval->node->ninputs) return point->value[*name - 'a'];
    if (*name == 'v' && name[1] >= '0' && name[1] <= '9') return point->named[atoi(name + 1)];
    const struct attr *attr = attr_find(point->eval->node, name);
    if (!attr) BUG("expression of %s: no input or attribute '%s'", point->eval->node->op->name, name);
    if (attr->kind == ATTR_INT) return (struct number){false, 0, attr->value};
    return (struct number){true, attr->number, 0};
}

/* The expression of the operator's row in ops.def, or attribute expr of a Fused node. */
static const struct expr_chain *chain_of(const struct eval *eval) {
    struct arena *arena = eval->graph->arena;
    if (!eval->node->op->expr) return expr_parse_chain(arena, attr_text(eval->node, "expr", ""), eval->node->ninputs);
    struct expr_chain *chain = ARENA_NEW(arena, struct expr_chain);
    chain->value[chain->nvalues++] = expr_parse(arena, eval->node->op->expr);
    return chain;
}

/* Offset in a broadcast input of the element that output index `at` reads. */
static int64_t broadcast_offset(const struct tensor *in, const struct tensor *out, const int64_t *at) {
    int64_t offset = 0;
    for (int d = 0; d < in->ndim; d++) {
        int64_t index = in->dims[d] == 1 ? 0 : at[out->ndim - in->ndim + d];
        offset = offset * in->dims[d] + index;
    }
    return offset;
}

static void eval_elementwise(struct eval *eval) {
    const struct expr_chain *chain = chain_of(eval);
    struct point point = {.eval = eval};
    int64_t at[RT_MAX_NDIM] = {0}, i = 0;
    if (!tensor_elements(eval->out)) return;
    do {
        for (int k = 0; k < eval->node->ninputs; k++)
            point.value[k] = eval_load(eval->x[k], eval->in[k]->dtype, broadcast_offset(eval->in[k], eval->out, at));
        for (int v = 0; v < chain->nnamed; v++) point.named[v] = expr_eval(chain->named[v], look_up, &point);
        eval_store(eval->y, eval->out->dtype, i++, expr_eval(chain->value[0], look_up, &point));
    } while (eval_next(at, eval->out->dims, eval->out->ndim));
}

void *eval_node(struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    struct eval eval = {.graph = graph, .node = node, .out = &graph->tensors.at[node->outputs[0]]};
    if (!eval_can(node->op) || node->noutputs != 1) return NULL;
    eval.in = ARENA_ARRAY(graph->arena, const struct tensor *, node->ninputs);
    eval.x = ARENA_ARRAY(graph->arena, const void *, node->ninputs);
    for (int i = 0; i < node->ninputs; i++) {
        if (node->inputs[i] < 0) continue;
        eval.in[i] = &graph->tensors.at[node->inputs[i]];
        if (!(eval.x[i] = eval_bytes(graph, eval.in[i]))) return NULL;
    }
    eval.y = arena_alloc(graph->arena, (size_t)tensor_bytes(eval.out) + 1, 1);
    if (node->op->eval) return node->op->eval(&eval) < 0 ? NULL : eval.y;
    eval_elementwise(&eval);
    return eval.y;
}
