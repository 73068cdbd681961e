/* Expressions of elementwise operators: a small subset of C, parsed once, then evaluated for folding or printed for
 * a target. From one expression come the constant folder, the C kernel and the CUDA kernel.
 *
 *   x < 0 ? 0 : x        a * b        0.5 * x * (1 + erf(x * 0.70710678118654752))
 *
 * Operators: ?: || && == != < <= > >= + - * / unary - !, calls, numbers, names. A name is an input or an attribute.
 * Functions: abs acosh asinh atanh ceil cos erf exp floor fmod log max min mod pow round sigmoid sign sin sqrt tanh
 * isnan isinf ...
 */
#ifndef IR_EXPR_EXPR_H
#define IR_EXPR_EXPR_H

#include <stdbool.h>

#include "ir/base/arena.h"

enum expr_kind { EXPR_NUMBER, EXPR_NAME, EXPR_UNARY, EXPR_BINARY, EXPR_CHOICE, EXPR_CALL };

struct expr {
    enum expr_kind kind;
    double number;             /* NUMBER */
    const char *name;          /* NAME, CALL; the operator of UNARY and BINARY */
    int nargs;                 /* operands, or arguments */
    const struct expr *arg[3]; /* CHOICE: condition, then, else */
};

/* The parsed text; BUG at a syntax error, since expressions are in the source. */
const struct expr *expr_parse(struct arena *arena, const char *text);

/* Several expressions in one text, "v0 = a + b; v1 = exp(v0); v0 * v1, v0": those before the semicolons are named v0,
 * v1, ... in order, and may be read by later ones; then comes the value, or several. For texts that may be hostile:
 * NULL if anything is wrong, an unknown function or a name other than inputs a, b, .. (ninputs of them) and earlier v's
 * included. */
enum { EXPR_NAMED = 64, EXPR_VALUES = 6, EXPR_INPUTS = 20 };
struct expr_chain {
    int nnamed, nvalues;
    const struct expr *named[EXPR_NAMED], *value[EXPR_VALUES];
};
const struct expr_chain *expr_parse_chain(struct arena *arena, const char *text, int ninputs);
/* Likewise, with folds over rows (ir/expr/rows.h): what is named may be sum(x), max(x) or min(x) of one expression. */
const struct expr_chain *expr_parse_folds(struct arena *arena, const char *text, int ninputs);
bool expr_is_fold(const struct expr *expr);

/* Operators and calls around the innermost operand. Texts nested deeper than EXPR_DEPTH are refused. */
enum { EXPR_DEPTH = 64 };
int expr_height(const struct expr *expr);

/* What each of some names becomes. */
struct expr_renaming {
    const char *names[EXPR_INPUTS + EXPR_NAMED];
    const struct expr *by[EXPR_INPUTS + EXPR_NAMED];
    int n;
};
/* The expression with names replaced; what has none of them may be shared. */
const struct expr *expr_rename(struct arena *arena, const struct expr *expr, const struct expr_renaming *renaming);
/* A name as an expression. */
const struct expr *expr_name(struct arena *arena, const char *name);

/* The expression as text that parses back. */
const char *expr_format(struct arena *arena, const struct expr *expr);

/* A value of either kind of arithmetic: integers (also bool) stay exact. */
struct number {
    bool is_float;
    double f;
    int64_t i;
};

/* Value of a name; the environment's owner gives inputs and attributes. */
typedef struct number (*expr_lookup)(const void *env, const char *name);
struct number expr_eval(const struct expr *expr, expr_lookup lookup, const void *env);

#endif
