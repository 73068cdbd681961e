#include "codegen/expr_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct printer {
    struct strbuf *out;
    const struct target *target;
    enum rt_dtype dtype;
    expr_spell spell;
    const void *env;
};

const char *expr_literal(struct arena *arena, enum rt_dtype dtype, double number, int64_t integer) {
    if (!rt_dtype_is_float(dtype)) {
        if (integer == INT64_MIN) return "INT64_MIN";
        bool wide = integer > INT32_MAX || integer < INT32_MIN;
        return arena_printf(arena, wide ? "INT64_C(%lld)" : "%lld", (long long)integer);
    }
    bool narrow = dtype != RT_F64;
    if (isnan(number)) return narrow ? "(float)NAN" : "(double)NAN";
    if (isinf(number)) return number > 0 ? "INFINITY" : "-INFINITY";
    char text[40];
    for (int digits = narrow ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (narrow ? strtof(text, NULL) == (float)number : strtod(text, NULL) == number) break;
    }
    const char *point = strpbrk(text, ".e") ? "" : ".0";
    return arena_printf(arena, "%s%s%s", text, point, narrow ? "f" : "");
}

static void print(struct printer *p, const struct expr *e);

/* prefix(arguments) */
static void print_call(struct printer *p, const char *function, const struct expr *e) {
    strbuf_puts(p->out, function);
    strbuf_putc(p->out, '(');
    for (int i = 0; i < e->nargs; i++) {
        strbuf_puts(p->out, i ? ", " : "");
        print(p, e->arg[i]);
    }
    strbuf_putc(p->out, ')');
}

/* "rt_max_%" with the type's name for %. */
static const char *spelled(struct printer *p, const char *spelling) {
    const char *hole = strchr(spelling, '%');
    if (!hole) return spelling;
    return arena_printf(p->out->arena, "%.*s%s%s", (int)(hole - spelling), spelling, rt_dtypes[p->dtype].name,
                        hole + 1);
}

static const char *function_name(struct printer *p, const char *name) {
    const struct target_function *f = p->target->functions;
    while (f->name && strcmp(f->name, name) != 0) f++;
    if (!f->name) BUG("target %s has no function '%s'", p->target->name, name);
    return spelled(p, p->dtype == RT_F32 || !f->other ? f->f32 : f->other);
}

/* Integer arithmetic by function; NULL: the operator as it is. */
static const char *integer_function(struct printer *p, const struct expr *e) {
    static const struct {
        const char *op, *binary, *unary;
    } rows[] = {
        {"+", "rt_add_%", NULL}, {"-", "rt_sub_%", "rt_neg_%"}, {"*", "rt_mul_%", NULL}, {"/", "rt_div_%", NULL}};
    enum rt_kind kind = rt_dtypes[p->dtype].kind;
    if (kind != RT_KIND_INT && kind != RT_KIND_UINT) return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].op, e->name) == 0) {
            const char *spelling = e->nargs == 2 ? rows[i].binary : rows[i].unary;
            return spelling ? spelled(p, spelling) : NULL;
        }
    return NULL;
}

static void print_nested(struct printer *p, const struct expr *e, bool nested) {
    strbuf_puts(p->out, nested ? "(" : "");
    print(p, e);
    strbuf_puts(p->out, nested ? ")" : "");
}

static void print_operand(struct printer *p, const struct expr *e) {
    print_nested(p, e, e->kind == EXPR_BINARY || e->kind == EXPR_CHOICE);
}

/* Two signs side by side would be another operator. */
static void print_signed(struct printer *p, const struct expr *e) {
    const bool has_sign = e->kind == EXPR_UNARY || (e->kind == EXPR_NUMBER && signbit(e->number));
    print_nested(p, e, has_sign || e->kind == EXPR_BINARY || e->kind == EXPR_CHOICE);
}

static void print_operator(struct printer *p, const struct expr *e) {
    const char *function = integer_function(p, e);
    if (function) return print_call(p, function, e);
    if (e->kind == EXPR_UNARY) {
        strbuf_puts(p->out, e->name);
        return print_signed(p, e->arg[0]);
    }
    print_operand(p, e->arg[0]);
    strbuf_printf(p->out, " %s ", e->name);
    print_operand(p, e->arg[1]);
}

static void print_choice(struct printer *p, const struct expr *e) {
    print_operand(p, e->arg[0]);
    strbuf_puts(p->out, " ? ");
    print_operand(p, e->arg[1]);
    strbuf_puts(p->out, " : ");
    print_operand(p, e->arg[2]);
}

static void print(struct printer *p, const struct expr *e) {
    switch (e->kind) {
    case EXPR_NUMBER: strbuf_puts(p->out, expr_literal(p->out->arena, p->dtype, e->number, (int64_t)e->number)); break;
    case EXPR_NAME: strbuf_puts(p->out, p->spell(p->env, e->name)); break;
    case EXPR_CALL: print_call(p, function_name(p, e->name), e); break;
    case EXPR_CHOICE: print_choice(p, e); break;
    case EXPR_UNARY:
    case EXPR_BINARY: print_operator(p, e); break;
    }
}

void expr_print(struct strbuf *out, const struct target *target, const struct expr *expr, enum rt_dtype dtype,
                expr_spell spell, const void *env) {
    struct printer printer = {out, target, dtype, spell, env};
    print(&printer, expr);
}
