/* Derivatives of products, norms and reductions. */
#include "ir/ops/grad.h"

#include <string.h>

/* Products -------------------------------------------------------------------------------------------------------- */

/* A gradient as a product again: which of dy, a and b are its operands, and which of them it reads transposed. */
struct product {
    enum { DY, A, B } first, second;
    int trans_first, trans_second;
};

/* Copies the marks of the forward product (Note [Marks] in passes/train/fp8.c) to a product of its gradient, by the
 * operands of that. Returns the number of attributes. */
static int pass_marks(const struct gradient *g, const struct product *p, struct attr *attrs) {
    static const char *const marks[] = {[DY] = "fp8_dy", [A] = "fp8_a", [B] = "fp8_b"};
    const char *layer = attr_text(&g->node, "fp8_layer", NULL);
    if (!layer) return 0;
    attrs[0] = attr_of_text("fp8_layer", layer);
    attrs[1] = attr_of_text("fp8_a", attr_text(&g->node, marks[p->first], NULL));
    attrs[2] = attr_of_text("fp8_b", attr_text(&g->node, marks[p->second], NULL));
    return 3;
}

static int make_product(struct gradient *g, const struct product *p, const int *operands) {
    struct attr attrs[5] = {attr_of_int("trans_a", p->trans_first), attr_of_int("trans_b", p->trans_second)};
    const int n = 2 + pass_marks(g, p, attrs + 2);
    return build(&g->b, OP_MatMul, 2, (int[]){operands[p->first], operands[p->second]}, n, attrs);
}

/* Leading dimensions become rows: the weight of many rows is one product. */
static int as_rows(struct gradient *g, int tensor) {
    struct tensor t = g->b.graph->tensors.at[tensor];
    int64_t rows = 1;
    for (int d = 0; d < t.ndim - 1; d++) rows *= t.dims[d];
    return build_reshape(&g->b, tensor, 2, (int64_t[]){rows, t.dims[t.ndim - 1]});
}

/* By trans_a and trans_b of the forward product y = op(a) op(b): da and db. */
GRAD(grad_matmul) {
    static const struct product rows[2][2][2] = {{{{DY, B, 0, 1}, {A, DY, 1, 0}}, {{DY, B, 0, 0}, {DY, A, 1, 0}}},
                                                 {{{B, DY, 0, 1}, {A, DY, 0, 0}}, {{B, DY, 1, 1}, {DY, A, 1, 1}}}};
    const struct product *row = rows[attr_int(&g->node, "trans_a", 0)][attr_int(&g->node, "trans_b", 0)];
    int operands[] = {g->dy, g->node.inputs[0], g->node.inputs[1]};
    if (g->wanted[0] && (g->dx[0] = make_product(g, &row[0], operands)) < 0) return -1;
    if (!g->wanted[1]) return 0;
    if (gradient_input(g, 0)->ndim > gradient_input(g, 1)->ndim) {
        operands[DY] = as_rows(g, operands[DY]);
        operands[A] = as_rows(g, operands[A]);
    }
    return operands[DY] < 0 || operands[A] < 0 ? -1 : (g->dx[1] = make_product(g, &row[1], operands));
}

/* Along one dimension --------------------------------------------------------------------------------------------- */

/* Sum over the last `n` dimensions from `axis` on, kept with extent 1. */
static int sum_along(struct gradient *g, int tensor, int64_t axis) {
    return gradient_sum(g, tensor, 1, &axis, true);
}

/* The expression over dy, y and one more tensor named s. */
static int with_sum(struct gradient *g, const char *text, int sum) {
    static const char *const names[] = {"dy", "y", "s"};
    return sum < 0 ? -1 : gradient_expr(g, text, 3, names, (int[]){g->dy, g->node.outputs[0], sum});
}

GRAD(grad_softmax) {
    int weighted = build2(&g->b, OP_Mul, g->dy, g->node.outputs[0]);
    int sum = weighted < 0 ? -1 : sum_along(g, weighted, attr_int(&g->node, "axis", -1));
    return g->dx[0] = with_sum(g, "(dy - s) * y", sum);
}

GRAD(grad_log_softmax) {
    return g->dx[0] = with_sum(g, "dy - exp(y) * s", sum_along(g, g->dy, attr_int(&g->node, "axis", -1)));
}

GRAD(grad_cumsum) {
    struct attr attrs[] = {attr_of_int("axis", attr_int(&g->node, "axis", 0)),
                           attr_of_int("exclusive", attr_int(&g->node, "exclusive", 0)),
                           attr_of_int("reverse", !attr_int(&g->node, "reverse", 0))};
    return g->dx[0] = build(&g->b, OP_CumSum, 1, &g->dy, 3, attrs);
}

/* What is taken off all scores alike gets the sum of their gradients, turned. */
GRAD(grad_class_terms) {
    const int *in = g->node.inputs;
    const int64_t axis = attr_int(&g->node, "axis", 0);
    g->dx[0] = build(&g->b, OP_ClassTermsGrad, 4, (int[]){in[0], in[1], in[2], g->dy}, g->node.nattrs, g->node.attrs);
    if (g->dx[0] < 0 || !g->wanted[1]) return g->dx[0];
    const int sum = sum_along(g, g->dx[0], axis);
    return g->dx[1] = sum < 0 ? -1 : build1(&g->b, OP_Neg, sum);
}

/* Norms: y = z scale + bias with z = (x - mean) r, r = 1 / sqrt(variance + epsilon); RMSNorm has no mean. With u = dy
 * scale: dx = r (u - mean(u) - z mean(u z)), dscale = sum(dy z), dbias = sum(dy) (Ba et al. 2016). */

struct norm {
    int64_t axis;
    int count; /* a scalar: elements of a row */
    int r, z;
};

/* The expression of up to three tensors called a, b and c. */
static int of(struct gradient *g, const char *text, int a, int b, int c) {
    static const char *const names[] = {"a", "b", "c"};
    return a < 0 || b < 0 || c < 0 ? -1 : gradient_expr(g, text, 3, names, (int[]){a, b, c});
}

static int mean(struct gradient *g, const struct norm *n, int tensor) {
    int sum = tensor < 0 ? -1 : sum_along(g, tensor, n->axis);
    return of(g, "a / b", sum, n->count, n->count);
}

static int normalize(struct gradient *g, struct norm *n, bool centered) {
    struct tensor x = *gradient_input(g, 0);
    int centre = g->node.inputs[0];
    n->axis = x.ndim - 1;
    n->count = build_scalar(&g->b, x.dtype, (double)x.dims[x.ndim - 1]);
    if (centered) centre = of(g, "a - b", centre, mean(g, n, centre), n->count);
    n->r = of(g, "1 / sqrt(a + epsilon)", mean(g, n, of(g, "a * a", centre, centre, centre)), n->count, n->count);
    return n->z = of(g, "a * b", centre, n->r, n->r);
}

static int norm_input(struct gradient *g, const struct norm *n, bool centered) {
    int u = build2(&g->b, OP_Mul, g->dy, g->node.inputs[1]), along = mean(g, n, of(g, "a * b", u, n->z, n->z));
    int inner = of(g, "a - b * c", u, n->z, along);
    if (centered) inner = of(g, "a - b", inner, mean(g, n, u), u);
    return of(g, "a * b", n->r, inner, inner);
}

static int grad_norm(struct gradient *g, bool centered) {
    struct norm norm;
    if (normalize(g, &norm, centered) < 0) return -1;
    if (g->wanted[0] && (g->dx[0] = norm_input(g, &norm, centered)) < 0) return -1;
    if (g->wanted[1]) {
        int full = build2(&g->b, OP_Mul, g->dy, norm.z);
        if (full < 0 || (g->dx[1] = gradient_sum_to(g, full, gradient_input(g, 1))) < 0) return -1;
    }
    if (g->node.ninputs > 2 && g->wanted[2] && (g->dx[2] = gradient_sum_to(g, g->dy, gradient_input(g, 2))) < 0)
        return -1;
    return 0;
}

GRAD(grad_layernorm) {
    return grad_norm(g, true);
}

GRAD(grad_rmsnorm) {
    return grad_norm(g, false);
}

/* The table with the two elements of every rotated pair exchanged. */
static int exchange_pairs(struct gradient *g, int table, bool interleaved) {
    const struct tensor t = g->b.graph->tensors.at[table];
    int64_t dims[RT_MAX_NDIM + 1], start[RT_MAX_NDIM + 1] = {0}, step[RT_MAX_NDIM + 1];
    int pair = interleaved ? t.ndim : t.ndim - 1;
    if (t.ndim == RT_MAX_NDIM) return diag_error(g->b.diags, 411, EXIT_UNSUPPORTED, g->place, "too many dimensions");
    for (int d = 0; d <= t.ndim; d++) dims[d] = d < t.ndim ? t.dims[d] : 0, step[d] = 1;
    dims[t.ndim - 1] = dims[t.ndim] = t.dims[t.ndim - 1] / 2;
    dims[pair] = 2;
    start[pair] = 1;
    step[pair] = -1;
    table = build_reshape(&g->b, table, t.ndim + 1, dims);
    if (table >= 0) table = build_slice(&g->b, table, start, step, dims);
    return table < 0 ? -1 : build_reshape(&g->b, table, t.ndim, t.dims);
}

/* y0 = x0 cos0 - x1 sin0, y1 = x1 cos1 + x0 sin1: so dx0 = dy0 cos0 + dy1 sin1, dx1 = dy1 cos1 - dy0 sin0. */
static int unturned(struct gradient *g) {
    int back = exchange_pairs(g, g->node.inputs[2], attr_int(&g->node, "interleaved", 0));
    if (back >= 0) back = build1(&g->b, OP_Neg, back);
    if (back < 0) return -1;
    return build(&g->b, OP_Rope, 3, (int[]){g->dy, g->node.inputs[1], back}, g->node.nattrs, g->node.attrs);
}

/* What sin is multiplied with: x turned by a right angle, (-x1, x0). */
static int right_angle(struct gradient *g) {
    const struct tensor x = *gradient_input(g, 0);
    int zeros = build_expand(&g->b, build_scalar(&g->b, x.dtype, 0), 1, &x.dims[x.ndim - 1]);
    int ones = build_expand(&g->b, build_scalar(&g->b, x.dtype, 1), 1, &x.dims[x.ndim - 1]);
    if (zeros < 0 || ones < 0) return -1;
    return build(&g->b, OP_Rope, 3, (int[]){g->node.inputs[0], zeros, ones}, g->node.nattrs, g->node.attrs);
}

static int sum_for(struct gradient *g, int input, int full) {
    return g->dx[input] = full < 0 ? -1 : gradient_sum_to(g, full, gradient_input(g, input));
}

GRAD(grad_rope) {
    if (g->wanted[0] && sum_for(g, 0, unturned(g)) < 0) return -1;
    if (g->wanted[1] && sum_for(g, 1, build2(&g->b, OP_Mul, g->dy, g->node.inputs[0])) < 0) return -1;
    if (!g->wanted[2]) return 0;
    int turned = right_angle(g);
    return turned < 0 ? -1 : sum_for(g, 2, build2(&g->b, OP_Mul, g->dy, turned));
}

/* Attention ------------------------------------------------------------------------------------------------------- */

/* Of q, k and v at once. Where a mask is added nothing flows back. */
GRAD(grad_flash_attention) {
    const struct node *node = &g->node;
    const int *in = node->inputs;
    int keep = node->ninputs > 3 ? in[3] : -1, bias = node->ninputs > 4 ? in[4] : -1;
    int inputs[] = {g->dy, in[0], in[1], in[2], node->outputs[0], node->outputs[1], keep, bias}, outputs[3];
    if (bias >= 0 && g->wanted[4])
        return diag_error(g->b.diags, 411, EXIT_UNSUPPORTED, g->place, "%s has no gradient of its bias",
                          node->op->name);
    if (build_many(&g->b, OP_FlashAttentionGrad, 3 + node->ninputs, inputs, 3, outputs, node->nattrs, node->attrs) < 0)
        return -1;
    for (int k = 0; k < 3; k++) g->dx[k] = outputs[k];
    return 0;
}

/* Reductions ------------------------------------------------------------------------------------------------------ */

/* A tensor of the result's shape with the reduced dimensions put back, of extent 1. */
static int unreduced(struct gradient *g, int tensor) {
    struct tensor x = *gradient_input(g, 0);
    int n;
    const int64_t *axes = attr_ints(&g->node, "axes", &n);
    for (int i = 0; i < n; i++) x.dims[axes[i]] = 1;
    return build_reshape(&g->b, tensor, x.ndim, x.dims);
}

GRAD(grad_reduce_sum) {
    struct tensor x = *gradient_input(g, 0);
    int dy = unreduced(g, g->dy);
    return g->dx[0] = dy < 0 ? -1 : build_expand(&g->b, dy, x.ndim, x.dims);
}

/* Equal elements share (PyTorch's amax and amin). */
GRAD(grad_reduce_extreme) {
    int n, x = g->node.inputs[0], y = unreduced(g, g->node.outputs[0]), dy = unreduced(g, g->dy);
    const int64_t *axes = attr_ints(&g->node, "axes", &n);
    int chosen = of(g, "a == b ? 1 : 0", x, y, y);
    int count = chosen < 0 ? -1 : gradient_sum(g, chosen, n, axes, true);
    return g->dx[0] = of(g, "a * (b / c)", chosen, dy, count);
}

/* The product of the other elements: without zeros the whole by this one; the only zero has that of the rest. */
GRAD(grad_reduce_prod) {
    static const char *const names[] = {"dy", "x", "zeros", "rest"};
    static const char text[] = "dy * (x == 0 ? (zeros == 1 ? rest : 0) : (zeros == 0 ? rest / x : 0))";
    int n, x = g->node.inputs[0], dy = unreduced(g, g->dy);
    const int64_t *axes = attr_ints(&g->node, "axes", &n);
    struct attr attrs[] = {attr_of_ints("axes", n, axes), attr_of_int("keepdims", 1)};
    int zero = of(g, "a == 0 ? 1 : 0", x, x, x), zeros = zero < 0 ? -1 : gradient_sum(g, zero, n, axes, true);
    int others = of(g, "a == 0 ? 1 : a", x, x, x),
        rest = others < 0 ? -1 : build(&g->b, OP_ReduceProd, 1, &others, 2, attrs);
    if (dy < 0 || zeros < 0 || rest < 0) return -1;
    return g->dx[0] = gradient_expr(g, text, 4, names, (int[]){dy, x, zeros, rest});
}
