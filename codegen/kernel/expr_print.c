#include "codegen/kernel/expr_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"

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

static void print(struct printer *printer, const struct expr *expr);

/* prefix(arguments) */
static void print_call(struct printer *printer, const char *function, const struct expr *expr) {
    strbuf_puts(printer->out, function);
    strbuf_putc(printer->out, '(');
    for (int i = 0; i < expr->nargs; i++) {
        strbuf_puts(printer->out, i ? ", " : "");
        print(printer, expr->arg[i]);
    }
    strbuf_putc(printer->out, ')');
}

/* Replaces % in a spelling such as "rt_max_%" by the name of the type. */
static const char *spelled(struct printer *printer, const char *spelling) {
    const char *hole = strchr(spelling, '%');
    if (!hole) return spelling;
    return arena_printf(printer->out->arena, "%.*s%s%s", (int)(hole - spelling), spelling,
                        rt_dtypes[printer->dtype].name, hole + 1);
}

static const char *function_name(struct printer *printer, const char *name) {
    const struct target_function *f = printer->target->functions;
    while (f->name && strcmp(f->name, name) != 0) f++;
    if (!f->name) BUG("target %s has no function '%s'", printer->target->name, name);
    return spelled(printer, printer->dtype == RT_F32 || !f->other ? f->f32 : f->other);
}

/* The function that computes an integer operation without undefined behaviour; NULL: the operator itself does. */
static const char *integer_function(struct printer *printer, const struct expr *expr) {
    static const struct {
        const char *op, *binary, *unary;
    } rows[] = {
        {"+", "rt_add_%", NULL}, {"-", "rt_sub_%", "rt_neg_%"}, {"*", "rt_mul_%", NULL}, {"/", "rt_div_%", NULL}};
    enum rt_kind kind = rt_dtypes[printer->dtype].kind;
    if (kind != RT_KIND_INT && kind != RT_KIND_UINT) return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].op, expr->name) == 0) {
            const char *spelling = expr->nargs == 2 ? rows[i].binary : rows[i].unary;
            return spelling ? spelled(printer, spelling) : NULL;
        }
    return NULL;
}

static void print_nested(struct printer *printer, const struct expr *expr, bool nested) {
    strbuf_puts(printer->out, nested ? "(" : "");
    print(printer, expr);
    strbuf_puts(printer->out, nested ? ")" : "");
}

static void print_operand(struct printer *printer, const struct expr *expr) {
    print_nested(printer, expr, expr->kind == EXPR_BINARY || expr->kind == EXPR_CHOICE);
}

/* Parenthesises an operand that begins with a sign, since "- -x" without space would be another operator. */
static void print_signed(struct printer *printer, const struct expr *expr) {
    const bool has_sign = expr->kind == EXPR_UNARY || (expr->kind == EXPR_NUMBER && signbit(expr->number));
    print_nested(printer, expr, has_sign || expr->kind == EXPR_BINARY || expr->kind == EXPR_CHOICE);
}

static void print_operator(struct printer *printer, const struct expr *expr) {
    const char *function = integer_function(printer, expr);
    if (function) return print_call(printer, function, expr);
    if (expr->kind == EXPR_UNARY) {
        strbuf_puts(printer->out, expr->name);
        return print_signed(printer, expr->arg[0]);
    }
    print_operand(printer, expr->arg[0]);
    strbuf_printf(printer->out, " %s ", expr->name);
    print_operand(printer, expr->arg[1]);
}

static void print_choice(struct printer *printer, const struct expr *expr) {
    print_operand(printer, expr->arg[0]);
    strbuf_puts(printer->out, " ? ");
    print_operand(printer, expr->arg[1]);
    strbuf_puts(printer->out, " : ");
    print_operand(printer, expr->arg[2]);
}

static void print(struct printer *printer, const struct expr *expr) {
    switch (expr->kind) {
    case EXPR_NUMBER:
        strbuf_puts(printer->out,
                    expr_literal(printer->out->arena, printer->dtype, expr->number, (int64_t)expr->number));
        break;
    case EXPR_NAME: strbuf_puts(printer->out, printer->spell(printer->env, expr->name)); break;
    case EXPR_CALL: print_call(printer, function_name(printer, expr->name), expr); break;
    case EXPR_CHOICE: print_choice(printer, expr); break;
    case EXPR_UNARY:
    case EXPR_BINARY: print_operator(printer, expr); break;
    }
}

void expr_print(struct strbuf *out, const struct target *target, const struct expr *expr, enum rt_dtype dtype,
                expr_spell spell, const void *env) {
    struct printer printer = {out, target, dtype, spell, env};
    print(&printer, expr);
}

enum { MOST_WORDS = 4 };

struct words {
    const char *word[MOST_WORDS + 1];
    int n; /* MOST_WORDS + 1: too many */
};

/* What an operator or function is called in a name. Others have their own name. */
static const struct {
    const char *operator, * word;
} spellings[] = {
    {"+", "add"},   {"-", "sub"},     {"*", "mul"},      {"/", "div"},    {"<", "less"},
    {"<=", "less"}, {">", "greater"}, {">=", "greater"}, {"==", "equal"}, {"!=", "differ"},
    {"&&", "and"},  {"||", "or"},     {"!", "not"},
};

static const char *word_of(const struct expr *expr) {
    if (expr->kind == EXPR_CHOICE) return "where";
    if (expr->kind == EXPR_UNARY && strcmp(expr->name, "-") == 0) return "neg";
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (strcmp(expr->name, spellings[i].operator) == 0) return spellings[i].word;
    return expr->name;
}

static void put_word(struct words *words, const char *word) {
    for (int i = 0; i < words->n; i++)
        if (strcmp(words->word[i], word) == 0) return;
    if (words->n <= MOST_WORDS) words->word[words->n++] = word;
}

static bool is_negative_number(const struct expr *expr) {
    return expr->kind == EXPR_UNARY && expr->arg[0]->kind == EXPR_NUMBER && strcmp(expr->name, "-") == 0;
}

/* Operands come before what is computed from them. An expression has at most EXPR_DEPTH levels. */
static void collect(struct words *words, const struct expr *expr) {
    if (expr->kind == EXPR_NUMBER || expr->kind == EXPR_NAME || is_negative_number(expr)) return;
    for (int i = 0; i < expr->nargs; i++) collect(words, expr->arg[i]);
    put_word(words, word_of(expr));
}

const char *expr_words(struct arena *arena, const struct expr_chain *chain) {
    struct words words = {0};
    for (int i = 0; i < chain->nnamed; i++) collect(&words, chain->named[i]);
    for (int i = 0; i < chain->nvalues; i++) collect(&words, chain->value[i]);
    if (words.n > MOST_WORDS) return NULL;
    if (words.n == 0) return "cast"; /* from one type to another is what is left */
    struct strbuf out = {.arena = arena};
    for (int i = 0; i < words.n; i++) strbuf_printf(&out, "%s%s", i ? "_" : "", words.word[i]);
    return strbuf_text(&out);
}
