/* The derivative of recurrent layers: backward through time. RecurrenceGrad gives the gradients of the sums x and of
 * the initial states; those of the weights are products of the former with the states. */
#include <string.h>

#include "ir/ops/grad.h"

enum { X, WEIGHTS, INITIAL, VECTOR, LENGTHS, SCALE };

static int slice(struct gradient *gradient, int x, int dim, int64_t start, int64_t size) {
    return build_piece(&gradient->builder, x, dim, start, 1, size);
}

/* State number `state` before every step, (t, b, h): the initial one and the results but for the last step's. */
static int states_before(struct gradient *gradient, int64_t state) {
    const struct tensor y = *gradient_output(gradient);
    const bool reverse = attr_int(&gradient->node, "reverse", 0);
    const int64_t t = y.dims[1], shape[] = {t - 1, y.dims[2], y.dims[3]};
    const int initial = slice(gradient, gradient->node.inputs[INITIAL], 0, state, 1);
    if (t == 1 || initial < 0) return initial;
    int all = slice(gradient, gradient->node.outputs[0], 0, state, 1);
    int others = all < 0 ? -1 : slice(gradient, all, 1, reverse, t - 1);
    others = others < 0 ? -1 : build_reshape(&gradient->builder, others, 3, shape);
    return build_concat(&gradient->builder, 0, 2, reverse ? (int[]){others, initial} : (int[]){initial, others});
}

/* Sums of products over all steps and sequences: (m) of `left` (t, b, m) and (n) of `right` (t, b, n) to (m, n). */
static int product(struct gradient *gradient, int left, int right) {
    int rows[2] = {left, right};
    for (int i = 0; i < 2; i++) {
        if (rows[i] < 0) return -1;
        const struct tensor t = gradient->builder.graph->tensors.at[rows[i]];
        const int64_t shape[] = {t.dims[0] * t.dims[1], t.dims[2]};
        rows[i] = build_reshape(&gradient->builder, rows[i], 2, shape);
        if (rows[i] < 0) return -1;
    }
    struct attr trans = attr_of_int("trans_a", 1);
    return build(&gradient->builder, OP_MatMul, 2, rows, 1, &trans);
}

/* The gradient of the recurrent weights. In a GRU, the candidate's weights have operands of their own. With
 * reset_after, `mixed` is the gradient of their product; without it, `mixed` is their right operand. */
static int weights_gradient(struct gradient *gradient, int dx, int mixed) {
    const int before = states_before(gradient, 0);
    const int64_t h = gradient_output(gradient)->dims[3];
    if (mixed < 0) return product(gradient, dx, before);
    const bool after = attr_int(&gradient->node, "reset_after", 0);
    const int gates = slice(gradient, dx, 2, 0, 2 * h), candidate = slice(gradient, dx, 2, 2 * h, h);
    const int parts[] = {product(gradient, gates, before),
                         after ? product(gradient, mixed, before) : product(gradient, candidate, mixed)};
    return build_concat(&gradient->builder, 0, 2, parts);
}

/* Peepholes i, o, f: sums of their gates' gradients times the cell state, that of o after the step. */
static int peephole_gradient(struct gradient *gradient, int dx) {
    static const int64_t over[] = {0, 1};
    const struct tensor y = *gradient_output(gradient);
    const int64_t h = y.dims[3], shape[] = {y.dims[1], y.dims[2], h};
    const int before = states_before(gradient, 1);
    int after = slice(gradient, gradient->node.outputs[0], 0, 1, 1), parts[3];
    after = after < 0 ? -1 : build_reshape(&gradient->builder, after, 3, shape);
    for (int i = 0; i < 3; i++) {
        const int gate = slice(gradient, dx, 2, i * h, h), cell = i == 1 ? after : before;
        if (gate < 0 || cell < 0) return -1;
        const int each = build2(&gradient->builder, OP_Mul, gate, cell);
        parts[i] = each < 0 ? -1 : gradient_sum(gradient, each, 2, over, false);
    }
    return build_concat(&gradient->builder, 0, 3, parts);
}

static int vector_gradient(struct gradient *gradient, int dx, int mixed) {
    static const int64_t over[] = {0, 1};
    return mixed < 0 ? peephole_gradient(gradient, dx) : gradient_sum(gradient, mixed, 2, over, false);
}

GRAD(grad_recurrence) {
    const struct node *node = &gradient->node;
    int inputs[7] = {gradient->dy, node->outputs[0]}, results[3] = {-1, -1, -1};
    if (node->ninputs > SCALE)
        return diag_error(gradient->builder.diags, 411, EXIT_UNSUPPORTED, gradient->place,
                          "a quantised recurrence has no gradient");
    for (int i = 0; i < node->ninputs; i++) inputs[2 + i] = node->inputs[i];
    const bool gru = strcmp(attr_text(node, "cell", ""), "gru") == 0;
    if (build_many(&gradient->builder, OP_RecurrenceGrad, 2 + node->ninputs, inputs, gru ? 3 : 2, results, node->nattrs,
                   node->attrs) < 0)
        return -1;
    gradient->dx[X] = results[0];
    gradient->dx[INITIAL] = results[1];
    if (gradient->wanted[WEIGHTS] && (gradient->dx[WEIGHTS] = weights_gradient(gradient, results[0], results[2])) < 0)
        return -1;
    if (node->ninputs > VECTOR && gradient->wanted[VECTOR] &&
        (gradient->dx[VECTOR] = vector_gradient(gradient, results[0], results[2])) < 0)
        return -1;
    return 0;
}
