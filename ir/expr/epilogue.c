#include "ir/expr/epilogue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/expr/expr.h"
#include "ir/op.h"

/* The expression of a node, and the subexpressions that the names of a pattern are bound to. */
struct reading {
    const struct graph *graph;
    const struct node *node;
    const struct expr_chain *chain;
    const struct expr *x, *dy, *v0; /* x and dy: NULL until bound; v0: the definition in the pattern */
};

/* Replaces a name v0, v1 .. by its definition. Skips calls that round to 16 bits in between: the library rounds once,
 * at the end. */
static const struct expr *resolved(const struct reading *r, const struct expr *e) {
    for (;;) {
        bool rounds = e->kind == EXPR_CALL && (strcmp(e->name, "bf16") == 0 || strcmp(e->name, "fp16") == 0);
        if (rounds)
            e = e->arg[0];
        else if (e->kind == EXPR_NAME && e->name[0] == 'v')
            e = r->chain->named[atoi(e->name + 1)];
        else
            return e;
    }
}

/* Numbers are equal up to rounding, since the graph's are rounded to its type. */
static bool same_leaf(const struct expr *a, const struct expr *b) {
    if (a->kind != b->kind || a->nargs != b->nargs) return false;
    if (a->kind == EXPR_NUMBER) return fabs(a->number - b->number) <= 1e-6 * fabs(b->number);
    return a->kind == EXPR_CHOICE || strcmp(a->name, b->name) == 0;
}

static bool same(const struct reading *r, const struct expr *a, const struct expr *b) {
    a = resolved(r, a), b = resolved(r, b);
    bool equal = same_leaf(a, b);
    for (int i = 0; equal && i < a->nargs; i++) equal = same(r, a->arg[i], b->arg[i]);
    return equal;
}

static bool bind(const struct reading *r, const struct expr **name, const struct expr *e) {
    if (!*name) *name = e;
    return same(r, *name, e);
}

/* True if the expression matches the pattern, in which x and dy match any expression, and v0 matches r->v0. */
static bool fits(struct reading *r, const struct expr *pattern, const struct expr *e) {
    if (pattern->kind == EXPR_NAME && strcmp(pattern->name, "x") == 0) return bind(r, &r->x, e);
    if (pattern->kind == EXPR_NAME && strcmp(pattern->name, "dy") == 0) return bind(r, &r->dy, e);
    if (pattern->kind == EXPR_NAME && strcmp(pattern->name, "v0") == 0) return fits(r, r->v0, e);
    e = resolved(r, e);
    bool equal = same_leaf(pattern, e);
    for (int i = 0; equal && i < pattern->nargs; i++) equal = fits(r, pattern->arg[i], e->arg[i]);
    return equal;
}

/* The same for the text of a pattern from ops.def: an expression, or "v0 = expression; expression". */
static bool fits_text(struct reading *r, struct arena *arena, const char *text, const struct expr *e) {
    const char *semicolon = strchr(text, ';');
    r->x = r->dy = r->v0 = NULL;
    if (semicolon) r->v0 = expr_parse(arena, arena_copy(arena, text + 5, (size_t)(semicolon - text - 5)));
    return fits(r, expr_parse(arena, semicolon ? semicolon + 1 : text), e);
}

/* The tensor of the node's input that a letter stands for; -1: the product itself; -2: not a letter. */
static int operand_by_letter(const struct reading *r, const struct expr *e) {
    e = resolved(r, e);
    if (e->kind != EXPR_NAME) return -2;
    int letter = e->name[0] - 'a', result = (int)attr_int(r->node, "result", 0);
    return letter == result ? -1 : r->node->inputs[2 + letter - (letter > result)];
}

static bool has_elements(const struct reading *r, int tensor, int64_t rows) {
    const struct tensor *t = &r->graph->tensors.at[tensor], *y = &r->graph->tensors.at[r->node->outputs[0]];
    int64_t columns = y->dims[y->ndim - 1];
    return t->ndim > 0 && t->dims[t->ndim - 1] == columns && tensor_elements(t) == rows * columns;
}

static int64_t rows_of(const struct reading *r) {
    const struct tensor *y = &r->graph->tensors.at[r->node->outputs[0]];
    int64_t rows = 1;
    for (int d = 0; d < y->ndim - 1; d++) rows *= y->dims[d];
    return rows;
}

/* Splits a sum into its terms: the product once, a bias and a residual at most once each. */
static bool read_sum(const struct reading *r, const struct expr *e, bool *product, struct epilogue *out) {
    e = resolved(r, e);
    if (e->kind == EXPR_BINARY && e->name[0] == '+')
        return read_sum(r, e->arg[0], product, out) && read_sum(r, e->arg[1], product, out);
    int operand = operand_by_letter(r, e), *place = NULL;
    if (operand == -1) return !*product && (*product = true);
    if (operand >= 0 && out->bias < 0 && has_elements(r, operand, 1)) place = &out->bias;
    if (operand >= 0 && !place && out->residual < 0 && has_elements(r, operand, rows_of(r))) place = &out->residual;
    if (place) *place = operand;
    return place != NULL;
}

static bool read_gradient(struct reading *r, struct arena *arena, struct epilogue *out) {
    const struct expr_chain *chain = r->chain;
    if (chain->nvalues != 1 || !fits_text(r, arena, ops[OP_GeluTanh].gradient, chain->value[0])) return false;
    out->activation = RT_GELU_GRAD;
    out->sum = operand_by_letter(r, r->x);
    return operand_by_letter(r, r->dy) == -1 && out->sum >= 0 && has_elements(r, out->sum, rows_of(r));
}

static bool read_value(struct reading *r, struct arena *arena, struct epilogue *out) {
    const struct expr_chain *chain = r->chain;
    const struct expr *sum = chain->value[0];
    bool product = false;
    if (fits_text(r, arena, ops[OP_GeluTanh].expr, sum)) {
        out->activation = RT_GELU;
        sum = r->x;
    }
    if (chain->nvalues == 2) out->sum = r->node->outputs[1];
    bool kept = chain->nvalues == 1 || (chain->nvalues == 2 && out->activation && same(r, chain->value[1], sum));
    return kept && read_sum(r, sum, &product, out) && product;
}

bool epilogue_read(struct arena *arena, const struct graph *graph, const struct node *node, struct epilogue *out) {
    const char *text = attr_text(node, "expr", NULL);
    struct reading r = {.graph = graph, .node = node};
    const struct epilogue none = {RT_NO_ACTIVATION, -1, -1, -1};
    r.chain = text ? expr_texts_chain(graph->texts, text, node->ninputs - 1, false) : NULL;
    if (!r.chain) return false;
    *out = none;
    if (read_gradient(&r, arena, out)) return true;
    *out = none;
    return read_value(&r, arena, out);
}
