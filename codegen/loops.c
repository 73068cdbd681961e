#include "codegen/loops.h"

#include <ctype.h>
#include <string.h>

#include "codegen/expr_print.h"
#include "ir/expr/eval.h"
#include "ir/op.h"

enum {
    VECTOR_BYTES = 16, /* of an access */
    MOST_WIDTH = 8     /* elements at a time */
};

/* Strides of an input in the output's loops; 0 where it is repeated. */
void loops_strides(struct loops *l, int k, int ndim) {
    const struct tensor *in = &l->graph->tensors.at[l->node->inputs[k]];
    const int64_t *dims = l->class->dims[l->node->inputs[k]];
    int64_t stride = 1;
    for (int d = in->ndim - 1; d >= 0; d--) {
        l->stride[k][d + ndim - in->ndim] = dims[d] == 1 ? 0 : stride;
        stride *= dims[d];
    }
}

/* Loop d+1 continues loop d in all inputs, so both are one. */
static bool merges(const struct loops *l, int d) {
    for (int k = 0; k < l->node->ninputs; k++)
        if (l->stride[k][d] != l->stride[k][d + 1] * l->extent[d + 1]) return false;
    return true;
}

static void remove_loop(struct loops *l, int d) {
    for (int e = d; e + 1 < l->n; e++) {
        l->extent[e] = l->extent[e + 1];
        for (int k = 0; k < MAX_OPERANDS; k++) l->stride[k][e] = l->stride[k][e + 1];
    }
    l->n--;
}

void loops_merge(struct loops *l, int loops) {
    const int kept = l->n - loops;
    for (int d = loops - 1; d >= 0; d--)
        if (l->extent[d] == 1) remove_loop(l, d);
    for (int d = l->n - kept - 2; d >= 0; d--) {
        if (!merges(l, d)) continue;
        l->extent[d + 1] *= l->extent[d];
        remove_loop(l, d);
    }
}

const char *loops_index(const struct loops *l, const int64_t *stride) {
    struct strbuf out;
    strbuf_init(&out, l->arena);
    for (int d = 0; d < l->n; d++) {
        if (!stride[d]) continue;
        strbuf_printf(&out, out.length ? " + i%d" : "i%d", d);
        if (stride[d] != 1) strbuf_printf(&out, " * %lld", (long long)stride[d]);
    }
    return out.length ? strbuf_text(&out) : "0";
}

/* Note [Vectors]
 * A target with vectors takes the elements of the innermost loop several at a time: as many as make 16 bytes of the
 * narrowest operand, bytes apart, or half of that and so on, where every operand has them beside each other, or one for
 * all, and where they begin at multiples of their number. Tensors lie at multiples of PLAN_ALIGNMENT: extents and
 * strides decide, here. */
static int narrowest_bytes(const struct loops *l) {
    size_t bytes = rt_dtype_bytes(l->graph->tensors.at[l->node->outputs[0]].dtype);
    for (int k = 0; k < l->node->ninputs; k++) {
        size_t own = rt_dtype_bytes(l->graph->tensors.at[l->node->inputs[k]].dtype);
        if (l->stride[k][l->n - 1] && own > 1 && own < bytes) bytes = own;
    }
    return (int)bytes;
}

static bool takes_vectors(const struct loops *l, int width) {
    const int last = l->n - 1;
    if (l->extent[last] % width) return false;
    for (int k = 0; k < l->node->ninputs; k++) {
        if (l->stride[k][last] > 1) return false;
        for (int d = 0; d < last && l->stride[k][last]; d++)
            if (l->stride[k][d] % width) return false;
    }
    return true;
}

int loops_width(const struct loops *l) {
    if (!l->target->vector_template || !l->n || !l->extent[l->n - 1]) return 1;
    int width = VECTOR_BYTES / narrowest_bytes(l);
    if (width > MOST_WIDTH) width = MOST_WIDTH;
    while (width > 1 && !takes_vectors(l, width)) width /= 2;
    return width;
}

const char *loops_literal(const struct loops *l, int tensor) {
    const struct tensor *t = &l->graph->tensors.at[tensor];
    struct number value = eval_load(t->data, t->dtype, 0);
    return expr_literal(l->arena, t->dtype, value.f, value.i);
}

/* Inputs are x, or a b c ..; v0, v1 .. are names of the expression; the rest are attributes. */
static const char *spell(const void *env, const char *name) {
    const struct loops *l = env;
    int k = strcmp(name, "x") == 0 ? 0 : *name - 'a';
    if (!name[1] && k >= 0 && k < l->node->ninputs) return l->operand[k];
    if (name[0] == 'v' && isdigit((unsigned char)name[1])) return name;
    const struct attr *attr = attr_find(l->node, name);
    if (!attr) BUG("%s has no input or attribute '%s'", l->node->op->name, name);
    enum rt_dtype dtype = l->graph->tensors.at[l->node->inputs[0]].dtype;
    return expr_literal(l->arena, dtype, attr->kind == ATTR_INT ? (double)attr->value : attr->number, attr->value);
}

static bool is_half(const struct loops *l, int tensor) {
    return rt_dtypes[l->graph->tensors.at[tensor].dtype].kind == RT_KIND_HALF;
}

/* The type the expression is computed in: the result's, or that of the operands of a comparison; f32 for halves. */
enum rt_dtype loops_type(const struct loops *l) {
    enum rt_dtype dtype = l->graph->tensors.at[l->node->outputs[0]].dtype;
    for (int k = 0; k < l->node->ninputs && dtype == RT_BOOL; k++)
        dtype = l->graph->tensors.at[l->node->inputs[k]].dtype;
    return rt_dtypes[dtype].kind == RT_KIND_HALF ? RT_F32 : dtype;
}

const char *loops_cast(const struct loops *l, enum rt_dtype from, enum rt_dtype to, const char *value) {
    return arena_printf(l->arena, "%scast_%s_%s(%s)", l->target->call_prefix, rt_dtypes[from].name, rt_dtypes[to].name,
                        value);
}

bool loops_are_cast(const struct loops *l) {
    return l->node->op->id == OP_Cast;
}

/* An element as an operand of the expression; a Cast itself takes it as it is stored. */
const char *loops_loaded(const struct loops *l, int tensor, const char *element) {
    if (!is_half(l, tensor) || loops_are_cast(l)) return element;
    return loops_cast(l, l->graph->tensors.at[tensor].dtype, RT_F32, element);
}

/* The value of the expression as an element of that result. */
const char *loops_stored(const struct loops *l, int result, const char *value) {
    int y = l->node->outputs[result];
    return is_half(l, y) ? loops_cast(l, RT_F32, l->graph->tensors.at[y].dtype, value) : value;
}

void loops_name_value(const struct loops *l, struct tmpl_env *env, const char *name, const char *value) {
    struct tmpl_env *named = tmpl_entry(env, "named");
    tmpl_setf(named, "v", "const %s %s", rt_dtypes[loops_type(l)].c_type, name);
    tmpl_set(named, "value", value);
}

const char *loops_text(const struct loops *l, const struct expr *e) {
    struct strbuf out;
    strbuf_init(&out, l->arena);
    expr_print(&out, l->target, e, loops_type(l), spell, l);
    return strbuf_text(&out);
}

const char *loops_type_name(const struct loops *l, int tensor) {
    return rt_dtypes[l->graph->tensors.at[tensor].dtype].c_type;
}
