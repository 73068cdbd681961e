#include "ir/expr/expr.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/diag.h"
#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/base/vec.h"
#include "runtime/base/dtype.h"

struct parser {
    struct arena *arena;
    const char *at;
    int depth;
    bool failed; /* after a syntax error; the result is well formed and must not be used */
};

/* Binary operators by precedence, lowest first; an operator stands before its prefixes ("<=" before "<"). */
static const char *const operators[][5] = {{"||"},     {"&&"},    {"==", "!="}, {"<=", ">=", "<", ">"},
                                           {"+", "-"}, {"*", "/"}};
enum { LEVELS_OF_OPERATORS = sizeof operators / sizeof *operators };

static const struct expr *parse_choice(struct parser *p);
static const struct expr *parse_primary(struct parser *p);

static bool take(struct parser *p, const char *token) {
    while (*p->at == ' ') p->at++;
    size_t length = strlen(token);
    if (strncmp(p->at, token, length) != 0) return false;
    p->at += length;
    return true;
}

static void expect(struct parser *p, const char *token) {
    if (!take(p, token)) p->failed = true;
}

static struct expr *make(struct parser *p, enum expr_kind kind, const char *name, const struct expr *a,
                         const struct expr *b, const struct expr *c) {
    struct expr *e = ARENA_NEW(p->arena, struct expr);
    *e = (struct expr){.kind = kind, .name = name, .nargs = !!a + !!b + !!c, .arg = {a, b, c}};
    return e;
}

static const struct expr *parse_name(struct parser *p) {
    size_t length = 0;
    while (isalnum((unsigned char)p->at[length]) || p->at[length] == '_') length++;
    if (!length) {
        p->failed = true;
        return make(p, EXPR_NUMBER, NULL, NULL, NULL, NULL);
    }
    const char *name = arena_copy(p->arena, p->at, length);
    p->at += length;
    if (!take(p, "(")) return make(p, EXPR_NAME, name, NULL, NULL, NULL);
    struct expr *call = make(p, EXPR_CALL, name, NULL, NULL, NULL);
    do {
        if (call->nargs == 3)
            p->failed = true;
        else
            call->arg[call->nargs++] = parse_choice(p);
    } while (!p->failed && take(p, ","));
    expect(p, ")");
    return call;
}

static const struct expr *parse_operand(struct parser *p) {
    if (take(p, "-")) return make(p, EXPR_UNARY, "-", parse_primary(p), NULL, NULL);
    if (take(p, "!")) return make(p, EXPR_UNARY, "!", parse_primary(p), NULL, NULL);
    if (take(p, "(")) {
        const struct expr *inner = parse_choice(p);
        expect(p, ")");
        return inner;
    }
    if (!isdigit((unsigned char)*p->at)) return parse_name(p);
    char *end;
    struct expr *number = make(p, EXPR_NUMBER, NULL, NULL, NULL, NULL);
    number->number = strtod(p->at, &end);
    p->at = end;
    return number;
}

/* The depth of nesting is bounded, since texts may be hostile. */
static const struct expr *parse_primary(struct parser *p) {
    if (++p->depth > EXPR_DEPTH) p->failed = true;
    const struct expr *e = p->failed ? make(p, EXPR_NUMBER, NULL, NULL, NULL, NULL) : parse_operand(p);
    p->depth--;
    return e;
}

static const char *take_operator(struct parser *p, int level) {
    for (int i = 0; i < 5 && operators[level][i]; i++)
        if (take(p, operators[level][i])) return operators[level][i];
    return NULL;
}

static const struct expr *parse_binary(struct parser *p, int level) {
    if (level == LEVELS_OF_OPERATORS) return parse_primary(p);
    const struct expr *left = parse_binary(p, level + 1);
    for (const char *op; !p->failed && (op = take_operator(p, level));)
        left = make(p, EXPR_BINARY, op, left, parse_binary(p, level + 1), NULL);
    return left;
}

static const struct expr *parse_choice(struct parser *p) {
    const struct expr *condition = parse_binary(p, 0);
    if (!take(p, "?")) return condition;
    const struct expr *then = parse_choice(p);
    expect(p, ":");
    return make(p, EXPR_CHOICE, NULL, condition, then, parse_choice(p));
}

const struct expr *expr_parse(struct arena *arena, const char *text) {
    struct parser p = {.arena = arena, .at = text};
    const struct expr *e = parse_choice(&p);
    while (*p.at == ' ') p.at++;
    if (p.failed || *p.at) BUG("expression '%s': syntax error at '%s'", text, p.at);
    return e;
}

/* Printing: compound operands are printed in parentheses. */
static void format_expr(struct strbuf *out, const struct expr *e, bool nested) {
    bool wrap =
        nested && (e->kind == EXPR_BINARY || e->kind == EXPR_CHOICE || (e->kind == EXPR_NUMBER && e->number < 0));
    strbuf_puts(out, wrap ? "(" : "");
    if (e->kind == EXPR_NUMBER) strbuf_printf(out, "%.17g", e->number);
    if (e->kind == EXPR_NAME || e->kind == EXPR_CALL || e->kind == EXPR_UNARY) strbuf_puts(out, e->name);
    strbuf_puts(out, e->kind == EXPR_CALL ? "(" : "");
    for (int i = 0; i < e->nargs; i++) {
        if (i && e->kind == EXPR_BINARY) strbuf_printf(out, " %s ", e->name);
        if (i && e->kind == EXPR_CHOICE) strbuf_puts(out, i == 1 ? " ? " : " : ");
        if (i && e->kind == EXPR_CALL) strbuf_puts(out, ", ");
        format_expr(out, e->arg[i], e->kind != EXPR_CALL);
    }
    strbuf_puts(out, e->kind == EXPR_CALL ? ")" : "");
    strbuf_puts(out, wrap ? ")" : "");
}

const char *expr_format(struct arena *arena, const struct expr *expr) {
    struct strbuf out = {.arena = arena};
    format_expr(&out, expr, false);
    return strbuf_text(&out);
}

static struct number of_float(double f) {
    return (struct number){true, f, 0};
}
static struct number of_int(int64_t i) {
    return (struct number){false, 0, i};
}
static double as_float(struct number n) {
    return n.is_float ? n.f : (double)n.i;
}
static bool is_true(struct number n) {
    return n.is_float ? n.f != 0 : n.i != 0;
}

static int64_t mod_int(int64_t a, int64_t b) { /* the result has the sign of b, as ONNX Mod */
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r && (r < 0) != (b < 0) ? r + b : r;
}

static double mod_float(double a, double b) {
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t pow_int(int64_t a, int64_t b) {
    uint64_t power = 1, factor = (uint64_t)a;
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (; b; b >>= 1, factor *= factor)
        if (b & 1) power *= factor;
    return (int64_t)power;
}

static double clamped(double a, double least, double most) {
    return a < least ? least : a > most ? most : a;
}

static double through(double a, enum rt_dtype dtype) {
    uint16_t half;
    rt_convert(&half, dtype, &a, RT_F64, 1);
    rt_convert(&a, RT_F64, &half, dtype, 1);
    return a;
}

#define OF_INTS(id, integers)                                                                                          \
    static int64_t id##_of_ints(int64_t a, int64_t b) {                                                                \
        (void)a, (void)b;                                                                                              \
        return integers;                                                                                               \
    }
#define OF_FLOATS(id, floats)                                                                                          \
    static double id##_of_floats(double a, double b, double c) {                                                       \
        (void)a, (void)b, (void)c;                                                                                     \
        return floats;                                                                                                 \
    }
#define BINARY(name, id, floats, integers)      OF_FLOATS(id, floats) OF_INTS(id, integers)
#define UNARY(name, id, floats)                 OF_FLOATS(id, floats)
#define UNARY_EXACT(name, id, floats, integers) OF_FLOATS(id, floats) OF_INTS(id, integers)
#define TERNARY(name, id, floats)               OF_FLOATS(id, floats)
#include "ir/expr/functions.def"

static const struct function {
    const char *name;
    int nargs;
    double (*of_floats)(double a, double b, double c); /* arguments that it does not have are 0 */
    int64_t (*of_ints)(int64_t a, int64_t b);          /* NULL: integers are converted to floats */
} functions[] = {
#define BINARY(name, id, floats, integers)      {name, 2, id##_of_floats, id##_of_ints},
#define UNARY(name, id, floats)                 {name, 1, id##_of_floats, NULL},
#define UNARY_EXACT(name, id, floats, integers) {name, 1, id##_of_floats, id##_of_ints},
#define TERNARY(name, id, floats)               {name, 3, id##_of_floats, NULL},
#include "ir/expr/functions.def"
};

static const struct function *find_function(const char *name, int nargs) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].nargs == nargs && strcmp(functions[i].name, name) == 0) return &functions[i];
    return NULL;
}

static struct number apply(const char *name, int nargs, struct number a, struct number b, struct number c) {
    const struct function *function = find_function(name, nargs);
    if (!function) BUG("expression: no function '%s' of %d arguments", name, nargs);
    if (a.is_float || b.is_float || !function->of_ints)
        return of_float(function->of_floats(as_float(a), as_float(b), as_float(c)));
    return of_int(function->of_ints(a.i, b.i));
}

static struct number compare(const char *op, struct number a, struct number b) {
    bool f = a.is_float || b.is_float;
    bool less = f ? as_float(a) < as_float(b) : a.i < b.i;
    bool more = f ? as_float(a) > as_float(b) : a.i > b.i;
    bool same = f ? as_float(a) == as_float(b) : a.i == b.i;
    if (op[0] == '<') return of_int(less || (op[1] && same));
    if (op[0] == '>') return of_int(more || (op[1] && same));
    return of_int(op[0] == '=' ? same : !same);
}

static struct number apply_binary(const char *name, struct number a, struct number b) {
    return strchr("<>=!", name[0]) ? compare(name, a, b) : apply(name, 2, a, b, of_int(0));
}

static struct number apply_unary(const char *name, struct number a) {
    if (name[0] == '!') return of_int(!is_true(a));
    if (strcmp(name, "isnan") == 0) return of_int(a.is_float && isnan(a.f));
    if (strcmp(name, "isinf") == 0) return of_int(a.is_float && isinf(a.f));
    return apply(name, 1, a, of_int(0), of_int(0));
}

static struct number eval_number(double number) {
    return number == floor(number) && fabs(number) < 9e15 ? of_int((int64_t)number) : of_float(number);
}

struct number expr_eval(const struct expr *e, expr_lookup lookup, const void *env) {
    if (e->kind == EXPR_NUMBER) return eval_number(e->number);
    if (e->kind == EXPR_NAME) return lookup(env, e->name);
    struct number a = expr_eval(e->arg[0], lookup, env);
    if (e->kind == EXPR_CHOICE) return expr_eval(e->arg[is_true(a) ? 1 : 2], lookup, env);
    if (e->nargs == 1) return apply_unary(e->name, a);
    if (strcmp(e->name, "&&") == 0) return is_true(a) ? of_int(is_true(expr_eval(e->arg[1], lookup, env))) : of_int(0);
    if (strcmp(e->name, "||") == 0) return is_true(a) ? of_int(1) : of_int(is_true(expr_eval(e->arg[1], lookup, env)));
    const struct number b = expr_eval(e->arg[1], lookup, env);
    return e->nargs == 2 ? apply_binary(e->name, a, b) : apply(e->name, 3, a, b, expr_eval(e->arg[2], lookup, env));
}

static bool known_function(const struct expr *e) {
    if (e->nargs == 1 && (strcmp(e->name, "isnan") == 0 || strcmp(e->name, "isinf") == 0)) return true;
    return find_function(e->name, e->nargs) != NULL;
}

static bool is_known(const struct expr *e) {
    if ((e->kind == EXPR_CALL && !known_function(e)) || (e->kind == EXPR_NUMBER && !isfinite(e->number))) return false;
    for (int i = 0; i < e->nargs; i++)
        if (!is_known(e->arg[i])) return false;
    return true;
}

const struct expr *expr_parse_untrusted(struct arena *arena, const char *text) {
    struct parser p = {.arena = arena, .at = text};
    const struct expr *e = parse_choice(&p);
    while (*p.at == ' ') p.at++;
    return p.failed || *p.at || expr_height(e) > EXPR_DEPTH || !is_known(e) ? NULL : e;
}

static bool known_name(const char *name, int ninputs, int nnamed) {
    if (name[0] >= 'a' && name[0] < 'a' + ninputs && !name[1]) return true;
    if (name[0] != 'v' || !isdigit((unsigned char)name[1]) || strlen(name) > 3) return false;
    return atoi(name + 1) < nnamed;
}

bool expr_is_fold(const struct expr *e) {
    return e->kind == EXPR_CALL && e->nargs == 1 &&
           (strcmp(e->name, "sum") == 0 || strcmp(e->name, "max") == 0 || strcmp(e->name, "min") == 0);
}

static bool is_valid(const struct expr *e, int ninputs, int nnamed) {
    if (e->kind == EXPR_NAME) return known_name(e->name, ninputs, nnamed);
    if (e->kind == EXPR_CALL && !known_function(e)) return false;
    for (int i = 0; i < e->nargs; i++)
        if (!is_valid(e->arg[i], ninputs, nnamed)) return false;
    return true;
}

/* Takes "v<n> =", where n is the number of names before it. */
static bool take_name(struct parser *p, int n) {
    char name[16];
    snprintf(name, sizeof name, "v%d", n);
    const char *start = p->at;
    if (take(p, name) && take(p, "=") && *p->at != '=') return true;
    p->at = start;
    return false;
}

static const struct expr_chain *parse_chain(struct arena *arena, const char *text, int ninputs, bool folds) {
    struct parser p = {.arena = arena, .at = text};
    struct expr_chain *chain = ARENA_NEW(arena, struct expr_chain);
    for (bool more = true; more && !p.failed;) {
        bool named = !chain->nvalues && chain->nnamed < EXPR_NAMED && take_name(&p, chain->nnamed);
        const struct expr *e = parse_choice(&p);
        const struct expr *own = named && folds && expr_is_fold(e) ? e->arg[0] : e;
        if (p.failed || chain->nvalues == EXPR_VALUES || !is_valid(own, ninputs, chain->nnamed)) return NULL;
        if (named)
            chain->named[chain->nnamed++] = e;
        else
            chain->value[chain->nvalues++] = e;
        if (named) expect(&p, ";");
        more = named || take(&p, ",");
    }
    while (*p.at == ' ') p.at++;
    return p.failed || *p.at ? NULL : chain;
}

const struct expr_chain *expr_parse_chain(struct arena *arena, const char *text, int ninputs) {
    return parse_chain(arena, text, ninputs, false);
}

const struct expr_chain *expr_parse_folds(struct arena *arena, const char *text, int ninputs) {
    return parse_chain(arena, text, ninputs, true);
}

struct parsed {
    int ninputs;
    bool folds;
    const struct expr_chain *chain;
    int other; /* the number of the same text, parsed before for another case; -1: none */
};

struct expr_texts {
    struct arena *arena;
    struct map numbers; /* a text -> the number of its latest case */
    VEC(struct parsed) all;
};

struct expr_texts *expr_texts_new(struct arena *arena) {
    struct expr_texts *texts = ARENA_NEW(arena, struct expr_texts);
    texts->arena = arena;
    map_init(&texts->numbers, arena);
    return texts;
}

const struct expr_chain *expr_texts_chain(struct expr_texts *texts, const char *text, int ninputs, bool folds) {
    const size_t length = strlen(text);
    const int latest = map_get(&texts->numbers, text, length);
    for (int i = latest; i >= 0; i = texts->all.at[i].other)
        if (texts->all.at[i].ninputs == ninputs && texts->all.at[i].folds == folds) return texts->all.at[i].chain;
    const struct expr_chain *chain = parse_chain(texts->arena, text, ninputs, folds);
    map_put(&texts->numbers, text, length, texts->all.n);
    VEC_PUSH(texts->arena, &texts->all, (struct parsed){ninputs, folds, chain, latest});
    return chain;
}

static const struct expr *new_expr(struct arena *arena, struct expr expr) {
    return arena_copy(arena, &expr, sizeof expr);
}

const struct expr *expr_name(struct arena *arena, const char *name) {
    return new_expr(arena, (struct expr){.kind = EXPR_NAME, .name = name});
}

const struct expr *expr_number(struct arena *arena, double number) {
    return new_expr(arena, (struct expr){.kind = EXPR_NUMBER, .number = number});
}

const struct expr *expr_call(struct arena *arena, const char *function, const struct expr *of) {
    return new_expr(arena, (struct expr){.kind = EXPR_CALL, .name = function, .nargs = 1, .arg = {of}});
}

const struct expr *expr_clamp(struct arena *arena, const struct expr *code) {
    const struct expr *raised = code->arg[0];
    struct expr *call = ARENA_NEW(arena, struct expr);
    *call = (struct expr){
        .kind = EXPR_CALL, .name = "clamp", .nargs = 3, .arg = {raised->arg[0], raised->arg[1], code->arg[1]}};
    return call;
}

const struct expr *expr_variable(struct arena *arena, int i) {
    return expr_name(arena, arena_printf(arena, "v%d", i));
}

const struct expr *expr_letter(struct arena *arena, int i) {
    return expr_name(arena, arena_printf(arena, "%c", 'a' + i));
}

void expr_replace(struct expr_renaming *renaming, const char *name, const struct expr *by) {
    renaming->names[renaming->n] = name;
    renaming->by[renaming->n++] = by;
}

void expr_chain_append(struct arena *arena, struct expr_chain *to, const struct expr_chain *from,
                       struct expr_renaming *renaming) {
    for (int i = 0; i < from->nnamed; i++) {
        to->named[to->nnamed] = expr_rename(arena, from->named[i], renaming);
        expr_replace(renaming, expr_variable(arena, i)->name, expr_variable(arena, to->nnamed++));
    }
}

const char *expr_chain_format(struct arena *arena, const struct expr_chain *chain) {
    struct strbuf text = {.arena = arena};
    for (int i = 0; i < chain->nnamed; i++) strbuf_printf(&text, "v%d = %s; ", i, expr_format(arena, chain->named[i]));
    for (int i = 0; i < chain->nvalues; i++)
        strbuf_printf(&text, "%s%s", i ? ", " : "", expr_format(arena, chain->value[i]));
    return strbuf_text(&text);
}

const struct expr *expr_rename(struct arena *arena, const struct expr *e, const struct expr_renaming *r) {
    if (e->kind == EXPR_NAME) {
        for (int i = 0; i < r->n; i++)
            if (strcmp(r->names[i], e->name) == 0) return r->by[i];
        return e;
    }
    struct expr *copy = ARENA_NEW(arena, struct expr);
    *copy = *e;
    for (int i = 0; i < e->nargs; i++) copy->arg[i] = expr_rename(arena, e->arg[i], r);
    return copy;
}

int expr_height(const struct expr *expr) {
    int highest = 0;
    for (int i = 0; i < expr->nargs; i++) {
        int height = 1 + expr_height(expr->arg[i]);
        if (height > highest) highest = height;
    }
    return highest;
}

bool expr_chain_loads(enum rt_dtype dtype) {
    return dtype == RT_I8 || dtype == RT_U8 || dtype == RT_I32;
}

static bool is_integer(const struct expr *expr) {
    return expr->kind == EXPR_NUMBER && expr->number == floor(expr->number);
}

/* Letters: the inputs that are integers. */
static bool is_rounded(const struct expr *expr, const char *letters) {
    if (expr->kind == EXPR_CALL && strcmp(expr->name, "round") == 0) return true;
    if (expr->kind != EXPR_BINARY || strcmp(expr->name, "+") != 0 || !is_rounded(expr->arg[0], letters)) return false;
    const struct expr *added = expr->arg[1];
    return is_integer(added) || (added->kind == EXPR_NAME && !added->name[1] && strchr(letters, *added->name));
}

static bool is_bound(const struct expr *expr, const char *function, double least, double most) {
    return expr->kind == EXPR_CALL && strcmp(expr->name, function) == 0 && is_integer(expr->arg[1]) &&
           expr->arg[1]->number >= least && expr->arg[1]->number <= most;
}

bool expr_is_code(const struct expr *expr, enum rt_dtype dtype, const char *letters) {
    const double least = dtype == RT_I8 ? INT8_MIN : 0, most = dtype == RT_I8 ? INT8_MAX : UINT8_MAX;
    return is_bound(expr, "min", 0, most) && is_bound(expr->arg[0], "max", least, 0) &&
           is_rounded(expr->arg[0]->arg[0], letters);
}
