/* Dimension annotations of recurrent layers (runtime/base/shape/recurrence.h). Sequences may be divided among ranks;
 * steps depend on each other, and all hidden units on all. */
#include "runtime/base/shape/recurrence.h"

#include <string.h>

#include "ir/ops/ops.h"

static const struct {
    const char *name;
    int64_t gates, states;
} cells[] = {
#define CELL(id, name, gates, states) {name, gates, states},
    RT_CELLS(CELL)
#undef CELL
};

static const char *const gates[] = {
#define GATE(id, name, ...) name,
    RT_GATES(GATE)
#undef GATE
};

/* The operands of the forward operator, by number, and what its gradient has in addition (-1: not this operator). */
struct places {
    int x, weights, initial, vector, lengths, scale, dy, y;
};

static bool is_gate(const struct node *node, const char *key) {
    const char *name = attr_text(node, key, "none");
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++)
        if (strcmp(gates[i], name) == 0) return true;
    return false;
}

/* The row of `cells` that attribute cell names; -1 with the reason if the attributes are invalid. */
static int cell_of(struct dims *dims, const struct node *node, const char **why) {
    const char *name = attr_text(node, "cell", "");
    int cell = 0, n = sizeof cells / sizeof *cells;
    while (cell < n && strcmp(cells[cell].name, name) != 0) cell++;
    if (cell == n) return refuse(dims, why, "attribute 'cell' is none of lstm, gru and rnn");
    if (!is_gate(node, "gate") || !is_gate(node, "candidate") || !is_gate(node, "output"))
        return refuse(dims, why, "an activation function is unknown");
    return cell;
}

/* Binds an operand to n factors; false if its shape differs from theirs. */
static bool bind(struct dims *dims, const struct graph *graph, const struct node *node, int operand, int n,
                 const int *factors) {
    const struct tensor *tensor = input(graph, node, operand);
    bool fits = operand >= node->ninputs || (tensor && tensor->ndim == n);
    dims->operand[operand].ndim = n;
    for (int d = 0; d < n; d++) {
        dims_set(&dims->operand[operand], d, factors[d]);
        if (tensor && fits) fits = open_meet(graph->open, tensor->dims[d], dims->factor[factors[d]].extent);
    }
    return fits;
}

/* The factors of a recurrent layer, by their letters in the operands' shapes. */
struct factors {
    int t, b, h, g, s, p; /* g: the hidden units of all gates; p: elements of the vector, -1: there is none */
};

static int bind_factors(struct dims *dims, const struct graph *graph, const struct node *node, const struct places *at,
                        struct factors *f, const char **why) {
    const struct tensor *x = input(graph, node, at->x), *weights = input(graph, node, at->weights);
    const struct tensor *vector = input(graph, node, at->vector);
    const int cell = cell_of(dims, node, why);
    if (cell < 0) return -1;
    if (!x || !weights || x->ndim != 3 || weights->ndim != 2)
        return refuse(dims, why, "needs inputs of 3 dimensions and weights of 2");
    if (input(graph, node, at->scale) && cells[cell].states != 2) return refuse(dims, why, "scales are an LSTM's");
    const int64_t h = weights->dims[1];
    if (x->dims[2] != cells[cell].gates * h)
        return refuse(dims, why, "%s has %lld sum(s) per step, but %lld gate(s) of %lld unit(s)", cells[cell].name,
                      (long long)x->dims[2], (long long)cells[cell].gates, (long long)h);
    f->t = dims_factor(dims, "t", -1, x->dims[0], FACTOR_WHOLE);
    f->b = dims_factor(dims, "b", -1, x->dims[1], input(graph, node, at->scale) ? FACTOR_WHOLE : FACTOR_PASS);
    f->h = dims_factor(dims, "h", -1, h, FACTOR_WHOLE);
    f->g = dims_factor(dims, "g", -1, x->dims[2], FACTOR_WHOLE);
    f->s = dims_factor(dims, "s", -1, cells[cell].states, FACTOR_WHOLE);
    f->p = vector ? dims_factor(dims, "p", -1, cells[cell].gates == 4 ? 3 * h : h, FACTOR_WHOLE) : -1;
    dims->points = (double)x->dims[0] * (double)x->dims[1] * (double)x->dims[2] * (double)h;
    return 0;
}

static int bind_operands(struct dims *dims, const struct graph *graph, const struct node *node, const struct places *at,
                         const struct factors *f, const char **why) {
    bool fit = bind(dims, graph, node, at->x, 3, (int[]){f->t, f->b, f->g});
    fit = bind(dims, graph, node, at->weights, 2, (int[]){f->g, f->h}) && fit;
    fit = bind(dims, graph, node, at->initial, 3, (int[]){f->s, f->b, f->h}) && fit;
    if (f->p >= 0) fit = bind(dims, graph, node, at->vector, 1, &f->p) && fit;
    if (input(graph, node, at->lengths)) fit = bind(dims, graph, node, at->lengths, 1, &f->b) && fit;
    if (input(graph, node, at->scale)) fit = bind(dims, graph, node, at->scale, 1, &f->g) && fit;
    for (int i = 0; i < 2; i++) {
        const int states = i ? at->y : at->dy;
        if (states >= 0) fit = bind(dims, graph, node, states, 4, (int[]){f->s, f->t, f->b, f->h}) && fit;
    }
    return fit ? 0 : refuse(dims, why, "the operands' shapes do not fit each other");
}

DIMS_FN(dims_recurrence) {
    static const struct places at = {0, 1, 2, 3, 4, 5, -1, -1};
    struct factors f;
    if (bind_factors(dims, graph, node, &at, &f, why) < 0) return -1;
    bind(dims, graph, node, node->ninputs, 4, (int[]){f.s, f.t, f.b, f.h});
    return bind_operands(dims, graph, node, &at, &f, why);
}

/* dy, y, and the operands of Recurrence -> gradients of x and of initial, and for a GRU (t, b, h). */
DIMS_FN(dims_recurrence_grad) {
    static const struct places at = {2, 3, 4, 5, 6, -1, 0, 1};
    struct factors f;
    if (bind_factors(dims, graph, node, &at, &f, why) < 0) return -1;
    bind(dims, graph, node, node->ninputs, 3, (int[]){f.t, f.b, f.g});
    if (node->noutputs > 1) bind(dims, graph, node, node->ninputs + 1, 3, (int[]){f.s, f.b, f.h});
    if (node->noutputs > 2) bind(dims, graph, node, node->ninputs + 2, 3, (int[]){f.t, f.b, f.h});
    return bind_operands(dims, graph, node, &at, &f, why);
}
