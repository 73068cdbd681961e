/* Derivatives of products, norms and reductions. */
#include "ir/ops/grad.h"

/* The gradient of a matrix product is a matrix product: which of dy, a and b are its operands, and which of these are
 * transposed. */
struct product {
    enum { DY, A, B } first, second;
    int trans_first, trans_second;
};

/* Copies the marks of the forward product (Note [Marks] in passes/train/fp8.c) to a product of its gradient,
 * each mark to the operand that it belongs to. Returns the number of attributes. */
static int pass_marks(const struct gradient *gradient, const struct product *p, struct attr *attrs) {
    static const char *const marks[] = {[DY] = "fp8_dy", [A] = "fp8_a", [B] = "fp8_b"};
    const char *layer = attr_text(&gradient->node, "fp8_layer", NULL);
    if (!layer) return 0;
    attrs[0] = attr_of_text("fp8_layer", layer);
    attrs[1] = attr_of_text("fp8_a", attr_text(&gradient->node, marks[p->first], NULL));
    attrs[2] = attr_of_text("fp8_b", attr_text(&gradient->node, marks[p->second], NULL));
    return 3;
}

static int make_product(struct gradient *gradient, const struct product *p, const int *operands) {
    struct attr attrs[5] = {attr_of_int("trans_a", p->trans_first), attr_of_int("trans_b", p->trans_second)};
    const int n = 2 + pass_marks(gradient, p, attrs + 2);
    return build(&gradient->builder, OP_MatMul, 2, (int[]){operands[p->first], operands[p->second]}, n, attrs);
}

/* Merges the leading dimensions into rows, so that the weight's gradient is one product over all rows. */
static int as_rows(struct gradient *gradient, int tensor) {
    struct tensor t = gradient->builder.graph->tensors.at[tensor];
    int64_t rows = 1;
    for (int d = 0; d < t.ndim - 1; d++) rows *= t.dims[d];
    return build_reshape(&gradient->builder, tensor, 2, (int64_t[]){rows, t.dims[t.ndim - 1]});
}

/* The products da and db, by trans_a and trans_b of the forward product y = op(a) op(b). */
GRAD(grad_matmul) {
    static const struct product rows[2][2][2] = {{{{DY, B, 0, 1}, {A, DY, 1, 0}}, {{DY, B, 0, 0}, {DY, A, 1, 0}}},
                                                 {{{B, DY, 0, 1}, {A, DY, 0, 0}}, {{B, DY, 1, 1}, {DY, A, 1, 1}}}};
    const struct product *row = rows[attr_int(&gradient->node, "trans_a", 0)][attr_int(&gradient->node, "trans_b", 0)];
    int operands[] = {gradient->dy, gradient->node.inputs[0], gradient->node.inputs[1]};
    if (gradient->wanted[0] && (gradient->dx[0] = make_product(gradient, &row[0], operands)) < 0) return -1;
    if (!gradient->wanted[1]) return 0;
    if (gradient_input(gradient, 0)->ndim > gradient_input(gradient, 1)->ndim) {
        operands[DY] = as_rows(gradient, operands[DY]);
        operands[A] = as_rows(gradient, operands[A]);
    }
    return operands[DY] < 0 || operands[A] < 0 ? -1 : (gradient->dx[1] = make_product(gradient, &row[1], operands));
}

/* dx = dy times the weights transposed: as they are stored, read the other way. They have no gradient themselves. */
GRAD(grad_dequant_matmul) {
    const struct node *node = &gradient->node;
    const struct attr attrs[] = {
        attr_of_text("codes", attr_text(node, "codes", "")), attr_of_float("offset", attr_float(node, "offset", 0)),
        attr_of_int("trans_b", !attr_int(node, "trans_b", 0)), attr_of_int("across", !attr_int(node, "across", 0))};
    int inputs[4] = {gradient->dy};
    for (int i = 1; i < node->ninputs; i++) {
        if (gradient->wanted[i])
            return diag_error(gradient->builder.diags, 411, EXIT_UNSUPPORTED, gradient->place,
                              "quantised weights and their scales cannot be trained");
        inputs[i] = node->inputs[i];
    }
    return gradient->dx[0] = build(&gradient->builder, node->op->id, node->ninputs, inputs, 4, attrs);
}

/* Sum over the last `n` dimensions from `axis` on, kept with extent 1. */
static int sum_along(struct gradient *gradient, int tensor, int64_t axis) {
    return gradient_sum(gradient, tensor, 1, &axis, true);
}

/* Adds the expression over dy, y and the tensor `sum`, named s. */
static int with_sum(struct gradient *gradient, const char *text, int sum) {
    static const char *const names[] = {"dy", "y", "s"};
    return sum < 0 ? -1
                   : gradient_expr(gradient, text, 3, names, (int[]){gradient->dy, gradient->node.outputs[0], sum});
}

GRAD(grad_softmax) {
    int weighted = build2(&gradient->builder, OP_Mul, gradient->dy, gradient->node.outputs[0]);
    int sum = weighted < 0 ? -1 : sum_along(gradient, weighted, attr_int(&gradient->node, "axis", -1));
    return gradient->dx[0] = with_sum(gradient, "(dy - s) * y", sum);
}

GRAD(grad_log_softmax) {
    return gradient->dx[0] = with_sum(gradient, "dy - exp(y) * s",
                                      sum_along(gradient, gradient->dy, attr_int(&gradient->node, "axis", -1)));
}

GRAD(grad_det) {
    return gradient->dx[0] =
               build(&gradient->builder, OP_DetGrad, 2, (int[]){gradient->dy, gradient->node.inputs[0]}, 0, NULL);
}

GRAD(grad_cumprod) {
    return gradient->dx[0] =
               gradient_like(gradient, OP_CumProdGrad, 2, (int[]){gradient->node.inputs[0], gradient->dy}, NULL);
}

GRAD(grad_cumsum) {
    struct attr attrs[] = {attr_of_int("axis", attr_int(&gradient->node, "axis", 0)),
                           attr_of_int("exclusive", attr_int(&gradient->node, "exclusive", 0)),
                           attr_of_int("reverse", !attr_int(&gradient->node, "reverse", 0))};
    return gradient->dx[0] = build(&gradient->builder, OP_CumSum, 1, &gradient->dy, 3, attrs);
}

/* Input 1 is subtracted from all scores of a sample: its gradient is the negative sum of theirs. */
GRAD(grad_class_terms) {
    const int *in = gradient->node.inputs;
    const int64_t axis = attr_int(&gradient->node, "axis", 0);
    gradient->dx[0] = gradient_like(gradient, OP_ClassTermsGrad, 4, (int[]){in[0], in[1], in[2], gradient->dy}, NULL);
    if (gradient->dx[0] < 0 || !gradient->wanted[1]) return gradient->dx[0];
    const int sum = sum_along(gradient, gradient->dx[0], axis);
    return gradient->dx[1] = sum < 0 ? -1 : build1(&gradient->builder, OP_Neg, sum);
}

/* Norms: y = z scale + bias with z = (x - mean) r, r = 1 / sqrt(variance + epsilon); RMSNorm has no mean. With u = dy
 * scale: dx = r (u - mean(u) - z mean(u z)), dscale = sum(dy z), dbias = sum(dy) (Ba et al. 2016). */

struct norm {
    int64_t axis;
    int count; /* a scalar: elements of a row */
    int r, z;
};

static int mean(struct gradient *gradient, const struct norm *n, int tensor) {
    int sum = tensor < 0 ? -1 : sum_along(gradient, tensor, n->axis);
    return gradient_of(gradient, "a / b", sum, n->count, n->count);
}

static int normalize(struct gradient *gradient, struct norm *n, bool centered) {
    struct tensor x = *gradient_input(gradient, 0);
    int centre = gradient->node.inputs[0];
    n->axis = x.ndim - 1;
    n->count = build_scalar(&gradient->builder, x.dtype, (double)x.dims[x.ndim - 1]);
    if (centered) centre = gradient_of(gradient, "a - b", centre, mean(gradient, n, centre), n->count);
    n->r = gradient_of(gradient, "1 / sqrt(a + epsilon)",
                       mean(gradient, n, gradient_of(gradient, "a * a", centre, centre, centre)), n->count, n->count);
    return n->z = gradient_of(gradient, "a * b", centre, n->r, n->r);
}

static int norm_input(struct gradient *gradient, const struct norm *n, bool centered) {
    int u = build2(&gradient->builder, OP_Mul, gradient->dy, gradient->node.inputs[1]),
        along = mean(gradient, n, gradient_of(gradient, "a * b", u, n->z, n->z));
    int inner = gradient_of(gradient, "a - b * c", u, n->z, along);
    if (centered) inner = gradient_of(gradient, "a - b", inner, mean(gradient, n, u), u);
    return gradient_of(gradient, "a * b", n->r, inner, inner);
}

GRAD(grad_norm) {
    const bool centered = gradient->node.op->id == OP_LayerNorm;
    struct norm norm;
    if (normalize(gradient, &norm, centered) < 0) return -1;
    if (gradient->wanted[0] && (gradient->dx[0] = norm_input(gradient, &norm, centered)) < 0) return -1;
    if (gradient->wanted[1]) {
        int full = build2(&gradient->builder, OP_Mul, gradient->dy, norm.z);
        if (full < 0 || (gradient->dx[1] = gradient_sum_to(gradient, full, gradient_input(gradient, 1))) < 0) return -1;
    }
    if (gradient->node.ninputs > 2 && gradient->wanted[2] &&
        (gradient->dx[2] = gradient_sum_to(gradient, gradient->dy, gradient_input(gradient, 2))) < 0)
        return -1;
    return 0;
}

/* The table with the two elements of every rotated pair exchanged. */
static int exchange_pairs(struct gradient *gradient, int table, bool interleaved) {
    const struct tensor t = gradient->builder.graph->tensors.at[table];
    int64_t dims[RT_MAX_NDIM + 1], start[RT_MAX_NDIM + 1] = {0}, step[RT_MAX_NDIM + 1];
    int pair = interleaved ? t.ndim : t.ndim - 1;
    if (t.ndim == RT_MAX_NDIM)
        return diag_error(gradient->builder.diags, 411, EXIT_UNSUPPORTED, gradient->place, "too many dimensions");
    for (int d = 0; d <= t.ndim; d++) dims[d] = d < t.ndim ? t.dims[d] : 0, step[d] = 1;
    dims[t.ndim - 1] = dims[t.ndim] = t.dims[t.ndim - 1] / 2;
    dims[pair] = 2;
    start[pair] = 1;
    step[pair] = -1;
    table = build_reshape(&gradient->builder, table, t.ndim + 1, dims);
    if (table >= 0) table = build_slice(&gradient->builder, table, start, step, dims);
    return table < 0 ? -1 : build_reshape(&gradient->builder, table, t.ndim, t.dims);
}

/* y0 = x0 cos0 - x1 sin0, y1 = x1 cos1 + x0 sin1: so dx0 = dy0 cos0 + dy1 sin1, dx1 = dy1 cos1 - dy0 sin0. */
static int unturned(struct gradient *gradient) {
    int back = exchange_pairs(gradient, gradient->node.inputs[2], attr_int(&gradient->node, "interleaved", 0));
    if (back >= 0) back = build1(&gradient->builder, OP_Neg, back);
    return gradient_like(gradient, OP_Rope, 3, (int[]){gradient->dy, gradient->node.inputs[1], back}, NULL);
}

/* The factor of sin in the result: x rotated by a right angle, (-x1, x0). */
static int right_angle(struct gradient *gradient) {
    const struct tensor x = *gradient_input(gradient, 0);
    int zeros = build_expand(&gradient->builder, build_scalar(&gradient->builder, x.dtype, 0), 1, &x.dims[x.ndim - 1]);
    int ones = build_expand(&gradient->builder, build_scalar(&gradient->builder, x.dtype, 1), 1, &x.dims[x.ndim - 1]);
    return gradient_like(gradient, OP_Rope, 3, (int[]){gradient->node.inputs[0], zeros, ones}, NULL);
}

static int sum_for(struct gradient *gradient, int input, int full) {
    return gradient->dx[input] = full < 0 ? -1 : gradient_sum_to(gradient, full, gradient_input(gradient, input));
}

GRAD(grad_rope) {
    if (gradient->wanted[0] && sum_for(gradient, 0, unturned(gradient)) < 0) return -1;
    if (gradient->wanted[1] &&
        sum_for(gradient, 1, build2(&gradient->builder, OP_Mul, gradient->dy, gradient->node.inputs[0])) < 0)
        return -1;
    if (!gradient->wanted[2]) return 0;
    int turned = right_angle(gradient);
    return turned < 0 ? -1 : sum_for(gradient, 2, build2(&gradient->builder, OP_Mul, gradient->dy, turned));
}

/* The gradients of q, k and v, from one node. A mask has no gradient. */
/* The state after the last step is taken not to reach the loss: nodes that read it are refused. */
GRAD(grad_linear_attention) {
    const struct node *node = &gradient->node;
    const struct graph *graph = gradient->builder.graph;
    int inputs[7] = {gradient->dy, -1, -1, -1, -1, -1, -1}, outputs[6], last = 6;
    for (int i = 0; i < graph->order.n && node->noutputs > 1; i++) {
        const struct node *reader = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < reader->ninputs; k++)
            if (reader->inputs[k] == node->outputs[1])
                return diag_error(gradient->builder.diags, 411, EXIT_UNSUPPORTED, gradient->place,
                                  "LinearAttention has no gradient of the state after the last step");
    }
    for (int k = 0; k < node->ninputs; k++) inputs[1 + k] = node->inputs[k];
    while (inputs[last] < 0) last--;
    if (build_many(&gradient->builder, OP_LinearAttentionGrad, last + 1, inputs, 6, outputs, node->nattrs,
                   node->attrs) < 0)
        return -1;
    for (int k = 0; k < node->ninputs; k++) gradient->dx[k] = outputs[k];
    return 0;
}

GRAD(grad_flash_attention) {
    const struct node *node = &gradient->node;
    const int *in = node->inputs;
    int keep = node->ninputs > 3 ? in[3] : -1, bias = node->ninputs > 4 ? in[4] : -1;
    int masks = node->ninputs < 5 ? node->ninputs - 3 : bias < 0 ? (keep >= 0) : 2;
    int inputs[] = {gradient->dy, in[0], in[1], in[2], node->outputs[0], node->outputs[1], keep, bias}, outputs[3];
    for (int i = 4; i < node->ninputs; i++)
        if (in[i] >= 0 && gradient->wanted[i])
            return diag_error(gradient->builder.diags, 411, EXIT_UNSUPPORTED, gradient->place,
                              "%s has no gradient of its %s", node->op->name, i == 4 ? "bias" : "sinks");
    if (build_many(&gradient->builder, OP_FlashAttentionGrad, 6 + masks, inputs, 3, outputs, node->nattrs,
                   node->attrs) < 0)
        return -1;
    for (int k = 0; k < 3; k++) gradient->dx[k] = outputs[k];
    return 0;
}

/* Reshapes a tensor of the result's shape: inserts the reduced dimensions, with extent 1. */
static int unreduced(struct gradient *gradient, int tensor) {
    struct tensor x = *gradient_input(gradient, 0);
    int n;
    const int64_t *axes = attr_ints(&gradient->node, "axes", &n);
    for (int i = 0; i < n; i++) x.dims[axes[i]] = 1;
    return build_reshape(&gradient->builder, tensor, x.ndim, x.dims);
}

GRAD(grad_reduce_sum) {
    struct tensor x = *gradient_input(gradient, 0);
    int dy = unreduced(gradient, gradient->dy);
    return gradient->dx[0] = dy < 0 ? -1 : build_expand(&gradient->builder, dy, x.ndim, x.dims);
}

/* Elements that are equal to the result share its gradient equally (PyTorch's amax and amin). */
GRAD(grad_reduce_extreme) {
    int n, x = gradient->node.inputs[0], y = unreduced(gradient, gradient->node.outputs[0]),
           dy = unreduced(gradient, gradient->dy);
    const int64_t *axes = attr_ints(&gradient->node, "axes", &n);
    int chosen = gradient_of(gradient, "a == b ? 1 : 0", x, y, y);
    int count = chosen < 0 ? -1 : gradient_sum(gradient, chosen, n, axes, true);
    return gradient->dx[0] = gradient_of(gradient, "a * (b / c)", chosen, dy, count);
}

/* The derivative by an element is the product of all others: without zeros, the result divided by the element; if one
 * element is zero, the product of the rest for that element and 0 for the others. */
GRAD(grad_reduce_prod) {
    static const char *const names[] = {"dy", "x", "zeros", "rest"};
    static const char text[] = "dy * (x == 0 ? (zeros == 1 ? rest : 0) : (zeros == 0 ? rest / x : 0))";
    int n, x = gradient->node.inputs[0], dy = unreduced(gradient, gradient->dy);
    const int64_t *axes = attr_ints(&gradient->node, "axes", &n);
    struct attr attrs[] = {attr_of_ints("axes", n, axes), attr_of_int("keepdims", 1)};
    int zero = gradient_of(gradient, "a == 0 ? 1 : 0", x, x, x),
        zeros = zero < 0 ? -1 : gradient_sum(gradient, zero, n, axes, true);
    int others = gradient_of(gradient, "a == 0 ? 1 : a", x, x, x),
        rest = others < 0 ? -1 : build(&gradient->builder, OP_ReduceProd, 1, &others, 2, attrs);
    if (dy < 0 || zeros < 0 || rest < 0) return -1;
    return gradient->dx[0] = gradient_expr(gradient, text, 4, names, (int[]){dy, x, zeros, rest});
}
