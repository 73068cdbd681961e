/* Expressions of elementwise operators, in a small subset of C. An expression is parsed once; constant folding
 * evaluates it, and the C and CUDA kernels are printed from it.
 *
 *   x < 0 ? 0 : x        a * b        0.5 * x * (1 + erf(x * 0.70710678118654752))
 *
 * Operators: ?: || && == != < <= > >= + - * / unary - !, calls, numbers, names. A name is an input or an attribute.
 * Functions: abs acosh asinh atanh ceil clamp cos erf exp floor fma fmod log max min mod pow round sigmoid sign sin
 * sqrt tanh isnan isinf ...; of integers bit_and bit_or bit_xor shift_left shift_right. Constants are evaluated in
 * f64. */
#ifndef IR_EXPR_EXPR_H
#define IR_EXPR_EXPR_H

#include <stdbool.h>

#include "ir/base/arena.h"
#include "runtime/base/dtype.h"

enum expr_kind { EXPR_NUMBER, EXPR_NAME, EXPR_UNARY, EXPR_BINARY, EXPR_CHOICE, EXPR_CALL };

struct expr {
    enum expr_kind kind;
    double number;             /* NUMBER */
    const char *name;          /* NAME, CALL; the operator of UNARY and BINARY */
    int nargs;                 /* of the operator or call */
    const struct expr *arg[3]; /* CHOICE: condition, then, else */
};

/* Parses an expression of rankc's own source: a syntax error is a BUG. */
const struct expr *expr_parse(struct arena *arena, const char *text);

/* Parses an untrusted text; NULL at a syntax error, an unknown function or a number that is not finite. Names are not
 * checked. */
const struct expr *expr_parse_untrusted(struct arena *arena, const char *text);

/* Several expressions in one text: "v0 = a + b; v1 = exp(v0); v0 * v1, v0". The assignments must define v0, v1, ... in
 * this order, and later expressions may use them; the last statement is the list of results. The text may be hostile:
 * NULL at any error, such as an unknown function, or a name that is neither an input (a, b, .., `ninputs` of them) nor
 * an earlier v. EXPR_NAMED, EXPR_VALUES and EXPR_INPUTS limit the assignments, results and inputs. */
enum { EXPR_NAMED = 64, EXPR_VALUES = 6, EXPR_INPUTS = 20 };
struct expr_chain {
    int nnamed, nvalues;
    const struct expr *named[EXPR_NAMED], *value[EXPR_VALUES];
};
const struct expr_chain *expr_parse_chain(struct arena *arena, const char *text, int ninputs);
/* The same for row programs (ir/expr/row_program.h): an assignment may also be sum(x), max(x) or min(x), a reduction
 * over the row. */
const struct expr_chain *expr_parse_folds(struct arena *arena, const char *text, int ninputs);
bool expr_is_fold(const struct expr *expr);

/* Texts that were parsed before, for a graph: the nodes of its layers have the same ones, and each is looked at in many
 * passes. */
struct expr_texts *expr_texts_new(struct arena *arena);
/* What expr_parse_folds, if `folds`, or else expr_parse_chain returns for the text. */
const struct expr_chain *expr_texts_chain(struct expr_texts *texts, const char *text, int ninputs, bool folds);

/* The depth of nested operators and calls. Texts with more than EXPR_DEPTH are rejected. */
enum { EXPR_DEPTH = 64 };
int expr_height(const struct expr *expr);

/* A substitution: names[i] is replaced by the expression by[i]. */
struct expr_renaming {
    const char *names[EXPR_INPUTS + EXPR_NAMED];
    const struct expr *by[EXPR_INPUTS + EXPR_NAMED];
    int n;
};
/* The expression after the substitution. Subexpressions without a replaced name may be shared with the original. */
const struct expr *expr_rename(struct arena *arena, const struct expr *expr, const struct expr_renaming *renaming);
/* Adds a name and what replaces it. */
void expr_replace(struct expr_renaming *renaming, const char *name, const struct expr *by);
/* The expression that is this name, this number, or the call of a function of one argument. */
const struct expr *expr_name(struct arena *arena, const char *name);
const struct expr *expr_number(struct arena *arena, double number);
const struct expr *expr_call(struct arena *arena, const char *function, const struct expr *of);
/* "clamp(x, least, most)" for an expression that expr_is_code accepts, min(max(x, least), most): the same but of NaN,
 * which becomes 0, as it is stored. */
const struct expr *expr_clamp(struct arena *arena, const struct expr *code);
/* The names of a chain: v<i>, and the letter of input i. */
const struct expr *expr_variable(struct arena *arena, int i);
const struct expr *expr_letter(struct arena *arena, int i);

/* Adds the named values of a chain to another, which has room for them, after the substitution. The substitution then
 * replaces their names by the new ones. */
void expr_chain_append(struct arena *arena, struct expr_chain *to, const struct expr_chain *from,
                       struct expr_renaming *renaming);
/* The chain as text: "v0 = a + b; v0 * v0, v0". */
const char *expr_chain_format(struct arena *arena, const struct expr_chain *chain);

/* True for the integers that a chain in f32 converts where it loads them, and, of 8 bits, where it stores them. */
bool expr_chain_loads(enum rt_dtype dtype);
/* True if every value of the expression that is no NaN is an integer in the range of the type, of 8 bits: round(..),
 * with an integer added, between two numbers, of which 0 is between. `letters`: the inputs that are known to be
 * integers. */
bool expr_is_code(const struct expr *expr, enum rt_dtype dtype, const char *letters);

/* The expression as text; parsing it gives the same expression. */
const char *expr_format(struct arena *arena, const struct expr *expr);

/* A value in floating-point or integer arithmetic; integers and bool are exact. */
struct number {
    bool is_float;
    double f;
    int64_t i;
};

/* Evaluates the expression. lookup(env, name) gives the value of a name: an input or an attribute. */
typedef struct number (*expr_lookup)(const void *env, const char *name);
struct number expr_eval(const struct expr *expr, expr_lookup lookup, const void *env);

#endif
