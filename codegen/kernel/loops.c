#include "codegen/kernel/loops.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernel/expr_print.h"
#include "codegen/text/extents.h"
#include "ir/expr/eval.h"
#include "ir/op.h"

enum {
    VECTOR_BYTES = 16,          /* of a memory access */
    MOST_WIDTH = 8,             /* largest number of elements in a vector */
    PARALLEL_ELEMENTS = 1 << 15 /* with fewer, starting threads costs more than they save */
};

void loops_strides(struct loops *loops, int k, int ndim) {
    const struct tensor *in = &loops->graph->tensors.at[loops->node->inputs[k]];
    const int64_t *dims = loops->class->dims[loops->node->inputs[k]];
    int64_t stride = 1;
    for (int d = in->ndim - 1; d >= 0; d--) {
        loops->stride[k][d + ndim - in->ndim] = dims[d] == 1 ? 0 : stride;
        stride *= dims[d];
    }
}

/* True if loops d and d+1 can be one: in every input the stride of loop d is extent times stride of loop d+1. */
static bool merges(const struct loops *loops, int d) {
    for (int k = 0; k < loops->node->ninputs; k++)
        if (loops->stride[k][d] != loops->stride[k][d + 1] * loops->extent[d + 1]) return false;
    return true;
}

static void remove_loop(struct loops *loops, int d) {
    for (int e = d; e + 1 < loops->n; e++) {
        loops->extent[e] = loops->extent[e + 1];
        for (int k = 0; k < MAX_OPERANDS; k++) loops->stride[k][e] = loops->stride[k][e + 1];
    }
    loops->n--;
}

void loops_merge(struct loops *loops, int count) {
    const int kept = loops->n - count;
    for (int d = count - 1; d >= 0; d--)
        if (loops->extent[d] == 1) remove_loop(loops, d);
    for (int d = loops->n - kept - 2; d >= 0; d--) {
        if (!merges(loops, d)) continue;
        loops->extent[d + 1] *= loops->extent[d];
        remove_loop(loops, d);
    }
}

const char *loops_index(const struct loops *loops, const int64_t *stride) {
    struct strbuf out = {.arena = loops->arena};
    for (int d = 0; d < loops->n; d++) {
        if (!stride[d]) continue;
        strbuf_printf(&out, out.length ? " + i%d" : "i%d", d);
        if (stride[d] != 1) strbuf_printf(&out, " * %lld", (long long)stride[d]);
    }
    return out.length ? strbuf_text(&out) : "0";
}

/* Note [Vectors]
 * On a target with vectors the innermost loop handles `width` elements at a time. The width is as many elements as fill
 * VECTOR_BYTES of the narrowest operand (one-byte types excepted), halved until it is valid: in every operand the
 * elements of a vector are adjacent, or one element is repeated, and every vector begins at a multiple of the width.
 * Since tensors are aligned to RT_ALIGNMENT, extents and strides decide this at compile time. */
static int narrowest_bytes(const struct loops *loops) {
    size_t bytes = rt_dtype_bytes(loops->graph->tensors.at[loops->node->outputs[0]].dtype);
    for (int k = 0; k < loops->node->ninputs; k++) {
        size_t own = rt_dtype_bytes(loops->graph->tensors.at[loops->node->inputs[k]].dtype);
        if (loops->stride[k][loops->n - 1] && own > 1 && own < bytes) bytes = own;
    }
    return (int)bytes;
}

static bool takes_vectors(const struct loops *loops, int width) {
    struct open_sizes *open = loops->graph->open;
    const int last = loops->n - 1;
    if (open_divisor(open, loops->extent[last]) % width) return false;
    for (int k = 0; k < loops->node->ninputs; k++) {
        if (loops->stride[k][last] > 1) return false;
        for (int d = 0; d < last && loops->stride[k][last]; d++)
            if (open_divisor(open, loops->stride[k][d]) % width) return false;
    }
    return true;
}

bool loops_are_open(const struct loops *loops) {
    struct open_sizes *open = loops->graph->open;
    bool found = false;
    for (int d = 0; d < loops->n && open && !loops->flat; d++) {
        found = found || open_is(open, loops->extent[d]);
        for (int k = 0; k < loops->node->ninputs; k++) found = found || open_is(open, loops->stride[k][d]);
    }
    return found;
}

bool loops_are_narrow(const struct loops *loops, int64_t elements) {
    const int64_t most = open_most(loops->graph->open, elements);
    return most > 0 && most < INT64_C(1) << 31; /* with 0 elements a comparison of unsigned with 0 would warn */
}

void loops_bind_open(const struct loops *loops, struct tmpl_env *env, bool narrow) {
    tmpl_set(env, "extents_here", loops->open ? extents_mark(loops->arena, "rt->extents") : "");
    tmpl_set(env, "extents_parameters",
             loops->open ? extents_parameters(loops->arena, narrow ? "int" : "int64_t") : "");
    tmpl_set(env, "extents_arguments", loops->open ? extents_arguments(loops->arena) : "");
}

const char *loops_pragma(const struct loops *loops, int64_t elements, const char *count, const char *threads,
                         const char *alone) {
    struct open_sizes *open = loops->graph->open;
    if (open_most(open, elements) < PARALLEL_ELEMENTS) return alone;
    threads = arena_printf(loops->arena, "%s num_threads(rt_pieces(%s))", threads, count);
    if (open_least(open, elements) >= PARALLEL_ELEMENTS) return threads;
    /* without the name, `if` would be that of simd, too: few elements would be computed one by one */
    return arena_printf(loops->arena, "%s if (parallel : %lld >= %s)", threads, (long long)elements,
                        extents_fixed(loops->graph, PARALLEL_ELEMENTS));
}

int loops_width(const struct loops *loops) {
    if (!loops->target->vector_template || !loops->n || !loops->extent[loops->n - 1]) return 1;
    int width = VECTOR_BYTES / narrowest_bytes(loops);
    if (width > MOST_WIDTH) width = MOST_WIDTH;
    while (width > 1 && !takes_vectors(loops, width)) width /= 2;
    return width;
}

const char *loops_literal(const struct loops *loops, int tensor) {
    const struct tensor *t = &loops->graph->tensors.at[tensor];
    struct number value = eval_load(t->data, t->dtype, 0);
    return expr_literal(loops->arena, t->dtype, value.f, value.i);
}

const struct expr_chain *loops_chain(const struct loops *loops) {
    if (!loops->node->op->expr)
        return expr_parse_chain(loops->arena, attr_text(loops->node, "expr", ""), loops->node->ninputs);
    struct expr_chain *chain = ARENA_NEW(loops->arena, struct expr_chain);
    chain->value[chain->nvalues++] = expr_parse(loops->arena, loops->node->op->expr);
    return chain;
}

/* The number of the input with that name: x, or of several inputs a, b, c ..; -1: none. */
static int input_of(const struct loops *loops, const char *name) {
    const int k = strcmp(name, "x") == 0 ? 0 : *name - 'a';
    return !name[1] && k >= 0 && k < loops->node->ninputs ? k : -1;
}

/* How an expression reads the input: a bit set. */
enum { READS_ALWAYS = 1, READS_IN_BRANCH = 2 };

static unsigned reads_of(const struct loops *loops, const struct expr *expr, int k) {
    if (expr->kind == EXPR_NAME) return input_of(loops, expr->name) == k ? READS_ALWAYS : 0;
    const bool branches = expr->kind == EXPR_CHOICE || (expr->kind == EXPR_BINARY && strchr("&|", *expr->name));
    unsigned reads = 0;
    for (int i = 0; i < expr->nargs; i++) {
        const unsigned of = reads_of(loops, expr->arg[i], k);
        reads |= of && branches && i ? READS_IN_BRANCH : of;
    }
    return reads;
}

bool loops_branch_to(const struct loops *loops, int k) {
    const struct expr_chain *chain = loops_chain(loops);
    unsigned reads = 0;
    for (int i = 0; i < chain->nnamed; i++) reads |= reads_of(loops, chain->named[i], k);
    for (int i = 0; i < chain->nvalues; i++) reads |= reads_of(loops, chain->value[i], k);
    return reads == READS_IN_BRANCH;
}

const char *loops_local(const struct loops *loops, int i) {
    return loops->local[i] ? loops->local[i] : arena_printf(loops->arena, "v%d", i);
}

/* expr_spell: v0, v1 .. are named values; names that are no input's are attributes. */
static const char *spell(const void *env, const char *name) {
    const struct loops *loops = env;
    const int k = input_of(loops, name);
    if (k >= 0) return loops->operand[k];
    if (name[0] == 'v' && isdigit((unsigned char)name[1])) return loops_local(loops, atoi(name + 1));
    const struct attr *attr = attr_find(loops->node, name);
    if (!attr) BUG("%s has no input or attribute '%s'", loops->node->op->name, name);
    enum rt_dtype dtype = loops->graph->tensors.at[loops->node->inputs[0]].dtype;
    return expr_literal(loops->arena, dtype, attr->kind == ATTR_INT ? (double)attr->value : attr->number, attr->value);
}

/* True for types that an expression in f32 converts as it loads and stores elements: 16-bit floats, and in chains,
 * which have no integer arithmetic, integers. */
static bool is_widened(const struct loops *loops, enum rt_dtype dtype) {
    return rt_dtypes[dtype].kind == RT_KIND_HALF || (!loops->node->op->expr && expr_chain_loads(dtype));
}

static bool is_converted(const struct loops *loops, int tensor) {
    return !loops_are_cast(loops) && loops_type(loops) == RT_F32 &&
           is_widened(loops, loops->graph->tensors.at[tensor].dtype);
}

enum rt_dtype loops_type(const struct loops *loops) {
    enum rt_dtype dtype = loops->graph->tensors.at[loops->node->outputs[0]].dtype;
    for (int k = 0; k < loops->node->ninputs && dtype == RT_BOOL; k++)
        dtype = loops->graph->tensors.at[loops->node->inputs[k]].dtype;
    return is_widened(loops, dtype) ? RT_F32 : dtype;
}

const char *loops_cast(const struct loops *loops, enum rt_dtype from, enum rt_dtype to, const char *value) {
    if (rt_dtype_is_code(from) && rt_dtype_is_code(to))
        return loops_cast(loops, RT_F32, to, loops_cast(loops, from, RT_F32, value));
    return arena_printf(loops->arena, "%scast_%s_%s(%s)", loops->target->call_prefix, rt_dtypes[from].name,
                        rt_dtypes[to].name, value);
}

bool loops_are_cast(const struct loops *loops) {
    return loops->node->op->id == OP_Cast;
}

const char *loops_loaded(const struct loops *loops, int tensor, const char *element) {
    if (!is_converted(loops, tensor)) return element;
    return loops_cast(loops, loops->graph->tensors.at[tensor].dtype, RT_F32, element);
}

const char *loops_stored(const struct loops *loops, int result, const char *value) {
    int y = loops->node->outputs[result];
    return is_converted(loops, y) ? loops_cast(loops, RT_F32, loops->graph->tensors.at[y].dtype, value) : value;
}

void loops_name_value(const struct loops *loops, struct tmpl_env *env, const char *name, const char *value) {
    struct tmpl_env *named = tmpl_entry(env, "named");
    tmpl_setf(named, "v", "const %s %s", rt_dtypes[loops_type(loops)].c_type, name);
    tmpl_set(named, "value", value);
}

const char *loops_text(const struct loops *loops, const struct expr *expr) {
    struct strbuf out = {.arena = loops->arena};
    expr_print(&out, loops->target, expr, loops_type(loops), spell, loops);
    return strbuf_text(&out);
}

const char *loops_type_name(const struct loops *loops, int tensor) {
    return rt_dtypes[loops->graph->tensors.at[tensor].dtype].c_type;
}
