#include "ir/build.h"

#include <string.h>

#include "ir/base/map.h"
#include "ir/expr/eval.h"
#include "ir/expr/expr.h"

static void add_name(struct build_scope *scope, const char *name, int tensor, double number) {
    if (scope->n == BUILD_NAMES) BUG("more than %d names in an expression", BUILD_NAMES);
    scope->names[scope->n].name = name;
    scope->names[scope->n].tensor = tensor;
    scope->names[scope->n++].number = number;
}

void build_scope_tensor(struct build_scope *scope, const char *name, int tensor) {
    add_name(scope, name, tensor, 0);
}

void build_scope_number(struct build_scope *scope, const char *name, double number) {
    add_name(scope, name, -1, number);
}

/* The operator whose expression is the root of `e` applied to its inputs, such as "a + b" or "exp(x)"; OP_NONE if there
 * is none. */
static enum op_id find_row(struct arena *arena, const struct expr *e) {
    static const char *const one[] = {"x"}, *const more[] = {"a", "b", "c"};
    struct expr leaf[3], shape = *e;
    for (int i = 0; i < e->nargs; i++) {
        leaf[i] = (struct expr){.kind = EXPR_NAME, .name = (e->nargs == 1 ? one : more)[i]};
        shape.arg[i] = &leaf[i];
    }
    const char *text = expr_format(arena, &shape);
    for (int i = 0; i < NOPS; i++) /* most rows are written as expr_format writes them */
        if (ops[i].expr && i != OP_Cast && strcmp(ops[i].expr, text) == 0) return (enum op_id)i;
    for (int i = 0; i < NOPS; i++)
        if (ops[i].expr && i != OP_Cast && strcmp(expr_format(arena, expr_parse(arena, ops[i].expr)), text) == 0)
            return (enum op_id)i;
    return OP_NONE;
}

static enum op_id row_of(struct arena *arena, const struct expr *e) {
    enum op_id row = find_row(arena, e);
    if (row == OP_NONE) BUG("build_expr: no operator computes '%s'", expr_format(arena, e));
    return row;
}

static int find_name(const struct build_scope *scope, const char *name) {
    for (int i = scope->n - 1; i >= 0; i--)
        if (strcmp(scope->names[i].name, name) == 0) return i;
    BUG("build_expr: the scope has no name '%s'", name);
}

/* True if the expression contains numbers and no tensors. */
static bool is_number(const struct build_scope *scope, const struct expr *e) {
    if (e->kind == EXPR_NAME) return scope->names[find_name(scope, e->name)].tensor < 0;
    bool numbers = true;
    for (int i = 0; i < e->nargs; i++) numbers = numbers && is_number(scope, e->arg[i]);
    return numbers;
}

static struct number look_up(const void *env, const char *name) {
    const struct build_scope *scope = env;
    return (struct number){true, scope->names[find_name(scope, name)].number, 0};
}

/* A parsed expression, and the operator that computes its root: found when it is needed, since that of numbers alone
 * need not have one. */
struct known_expr {
    const struct expr *e;
    bool found;
    enum op_id row;
    struct known_expr *arg[3];
};

/* A statement of a text; the last one of a text has no name. */
struct statement {
    const char *name;
    struct known_expr *value;
};

struct build_known {
    struct map texts; /* a text -> the number of its first statement */
    VEC(struct statement) all;
};

struct build_known *build_know(struct arena *arena) {
    struct build_known *known = ARENA_NEW(arena, struct build_known);
    map_init(&known->texts, arena);
    return known;
}

static enum op_id row_known(struct arena *arena, struct known_expr *known) {
    if (!known->found) known->row = row_of(arena, known->e), known->found = true;
    return known->row;
}

static int make(struct build *builder, const struct build_scope *scope, struct known_expr *known) {
    const struct expr *e = known->e;
    int args[3];
    if (is_number(scope, e)) {
        struct number value = expr_eval(e, look_up, scope);
        return build_scalar(builder, scope->dtype, value.is_float ? value.f : (double)value.i);
    }
    if (e->kind == EXPR_NAME) return scope->names[find_name(scope, e->name)].tensor;
    for (int i = 0; i < e->nargs; i++)
        if ((args[i] = make(builder, scope, known->arg[i])) < 0) return -1;
    return build(builder, row_known(builder->graph->arena, known), e->nargs, args, 0, NULL);
}

static const char *fault_of(struct arena *arena, const struct expr *e, int n, const char *const *names, bool rows) {
    for (int i = 0; e->kind == EXPR_NAME && i < n; i++)
        if (strcmp(names[i], e->name) == 0) return NULL;
    if (e->kind == EXPR_NAME) return arena_printf(arena, "the expression has an unknown name '%.32s'", e->name);
    if (rows && e->nargs && find_row(arena, e) == OP_NONE)
        return arena_printf(arena, "the expression uses '%s', which has no operator of its own",
                            e->name ? e->name : "?");
    const char *why = NULL;
    for (int i = 0; i < e->nargs && !why; i++) why = fault_of(arena, e->arg[i], n, names, rows);
    return why;
}

const char *build_expr_fault(struct arena *arena, const char *text, int n, const char *const *names, bool rows) {
    static const char syntax[] = "the expression has a syntax error or an unknown function";
    const char *scope[BUILD_NAMES], *why = NULL;
    for (int i = 0; i < n; i++) scope[i] = names[i];
    while (!why) {
        const char *end = rows ? strchr(text, ';') : NULL, *value = text;
        if (end && (n == BUILD_NAMES || !(value = strchr(text, '=')) || value > end)) return syntax;
        value += end != NULL;
        const struct expr *e =
            expr_parse_untrusted(arena, end ? arena_copy(arena, value, (size_t)(end - value)) : value);
        why = e ? fault_of(arena, e, n, scope, rows) : syntax;
        if (!end) break;
        text += strspn(text, " ");
        scope[n++] = arena_copy(arena, text, strcspn(text, " ="));
        text = end + 1;
    }
    return why;
}

static struct known_expr *know(struct arena *arena, const struct expr *e) {
    struct known_expr *known = ARENA_NEW(arena, struct known_expr);
    known->e = e;
    for (int i = 0; i < e->nargs; i++) known->arg[i] = know(arena, e->arg[i]);
    return known;
}

/* Parses the statements of the text; returns the number of the first one. */
static int parse_text(struct build_known *known, struct arena *arena, const char *text) {
    const int first = known->all.n;
    map_set(&known->texts, text, first);
    for (const char *end; (end = strchr(text, ';')); text = end + 1) {
        text += strspn(text, " ");
        const char *name = arena_copy(arena, text, strcspn(text, " =")), *value = strchr(text, '=') + 1;
        const struct expr *e = expr_parse(arena, arena_copy(arena, value, (size_t)(end - value)));
        VEC_PUSH(arena, &known->all, (struct statement){name, know(arena, e)});
    }
    VEC_PUSH(arena, &known->all, (struct statement){NULL, know(arena, expr_parse(arena, text))});
    return first;
}

int build_expr(struct build *builder, struct build_scope *scope, const char *text) {
    struct arena *arena = builder->graph->arena;
    struct build_known *known = scope->known ? scope->known : build_know(arena);
    int at = map_find(&known->texts, text);
    if (at < 0) at = parse_text(known, arena, text);
    for (; known->all.at[at].name; at++) {
        const int tensor = make(builder, scope, known->all.at[at].value);
        if (tensor < 0) return -1;
        build_scope_tensor(scope, known->all.at[at].name, tensor);
    }
    return make(builder, scope, known->all.at[at].value);
}
