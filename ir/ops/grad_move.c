/* Derivatives of operators that move elements: each element's gradient is moved back to its source. */
#include "ir/ops/grad.h"

GRAD(grad_none) {
    (void)gradient;
    return 0;
}

GRAD(grad_reshape) {
    const struct tensor *x = gradient_input(gradient, 0);
    return gradient->dx[0] = build_reshape(&gradient->builder, gradient->dy, x->ndim, x->dims);
}

GRAD(grad_transpose) {
    int n;
    const int64_t *perm = attr_ints(&gradient->node, "perm", &n);
    int64_t inverse[RT_MAX_NDIM];
    for (int d = 0; d < n; d++) inverse[perm[d]] = d;
    return gradient->dx[0] = build_transpose(&gradient->builder, gradient->dy, inverse);
}

GRAD(grad_expand) {
    return gradient->dx[0] = gradient_sum_to(gradient, gradient->dy, gradient_input(gradient, 0));
}

GRAD(grad_trilu) {
    return gradient->dx[0] = gradient_like(gradient, OP_Trilu, 1, &gradient->dy, NULL);
}

/* The gradient is masked as the forward result: by the same dropped elements. */
GRAD(grad_dropout) {
    const int *in = gradient->node.inputs;
    return gradient->dx[0] = gradient_like(gradient, OP_Dropout, 4, (int[]){gradient->dy, in[1], in[2], in[3]}, NULL);
}

GRAD(grad_cast) {
    const struct tensor *x = gradient_input(gradient, 0);
    if (!rt_dtype_is_float(x->dtype)) return 0;
    return gradient->dx[0] = build_cast(&gradient->builder, gradient->dy, x->dtype);
}

/* Pads the tensor with zeros. */
static int pad(struct gradient *gradient, int tensor, const int64_t *begin, const int64_t *end) {
    struct tensor t = gradient->builder.graph->tensors.at[tensor];
    int inputs[] = {tensor, build_scalar(&gradient->builder, t.dtype, 0)};
    struct attr attrs[] = {attr_of_ints("begin", t.ndim, begin), attr_of_ints("end", t.ndim, end)};
    return build(&gradient->builder, OP_Pad, 2, inputs, 2, attrs);
}

/* Inserts step - 1 zeros between neighbouring indices of dimension d. */
static int spread(struct gradient *gradient, int tensor, int d, int64_t step) {
    struct tensor t = gradient->builder.graph->tensors.at[tensor];
    int64_t dims[RT_MAX_NDIM + 1], zero[RT_MAX_NDIM + 1] = {0}, end[RT_MAX_NDIM + 1] = {0};
    if (step == 1 || t.dims[d] < 2) return tensor;
    if (t.ndim == RT_MAX_NDIM)
        return diag_error(gradient->builder.diags, 411, EXIT_UNSUPPORTED, gradient->place,
                          "a strided slice of %d dimension(s) has no gradient", t.ndim);
    for (int i = 0; i < t.ndim; i++) dims[i + (i > d)] = t.dims[i];
    dims[d + 1] = 1;
    end[d + 1] = step - 1;
    tensor = build_reshape(&gradient->builder, tensor, t.ndim + 1, dims);
    if (tensor >= 0) tensor = pad(gradient, tensor, zero, end);
    t.dims[d] *= step;
    if (tensor >= 0) tensor = build_reshape(&gradient->builder, tensor, t.ndim, t.dims);
    return tensor < 0 ? -1 : build_piece(&gradient->builder, tensor, d, 0, 1, t.dims[d] - (step - 1));
}

/* Reverses the order of indices in the dimensions with reversed[d]. */
static int reverse(struct gradient *gradient, int tensor, const bool *reversed) {
    struct tensor t = gradient->builder.graph->tensors.at[tensor];
    int64_t start[RT_MAX_NDIM], step[RT_MAX_NDIM];
    for (int d = 0; d < t.ndim; d++) {
        step[d] = reversed[d] ? -1 : 1;
        start[d] = reversed[d] ? t.dims[d] - 1 : 0;
    }
    return build_slice(&gradient->builder, tensor, start, step, t.dims);
}

GRAD(grad_slice) {
    struct tensor x = *gradient_input(gradient, 0), y = *gradient_output(gradient);
    int n, dx = gradient->dy;
    const int64_t *start = attr_ints(&gradient->node, "start", &n), *step = attr_ints(&gradient->node, "step", &n);
    int64_t begin[RT_MAX_NDIM], end[RT_MAX_NDIM];
    bool reversed[RT_MAX_NDIM];
    for (int d = 0; d < x.ndim; d++) {
        int64_t stride = step[d] < 0 ? -step[d] : step[d], covers = y.dims[d] ? (y.dims[d] - 1) * stride + 1 : 0;
        reversed[d] = step[d] < 0;
        begin[d] = reversed[d] ? start[d] - (covers - 1) : start[d];
        end[d] = x.dims[d] - begin[d] - covers;
    }
    dx = reverse(gradient, dx, reversed);
    for (int d = 0; d < x.ndim && dx >= 0; d++) dx = spread(gradient, dx, d, step[d] < 0 ? -step[d] : step[d]);
    return gradient->dx[0] = dx < 0 ? -1 : pad(gradient, dx, begin, end);
}

/* The gradient of the pad value: the sum of dy over the padding. `inner`: the part of dy that belongs to x. */
static int pad_value(struct gradient *gradient, int inner, const int64_t *begin, const int64_t *end) {
    int64_t before[RT_MAX_NDIM], behind[RT_MAX_NDIM];
    for (int d = 0; d < gradient_input(gradient, 0)->ndim; d++) {
        before[d] = begin[d] > 0 ? begin[d] : 0;
        behind[d] = end[d] > 0 ? end[d] : 0;
    }
    int own = pad(gradient, inner, before, behind),
        rest = own < 0 ? -1 : build2(&gradient->builder, OP_Sub, gradient->dy, own);
    return gradient->dx[1] = rest < 0 ? -1 : gradient_sum_to(gradient, rest, gradient_input(gradient, 1));
}

GRAD(grad_pad) {
    struct tensor x = *gradient_input(gradient, 0);
    int n;
    const int64_t *begin = attr_ints(&gradient->node, "begin", &n), *end = attr_ints(&gradient->node, "end", &n);
    int64_t start[RT_MAX_NDIM], size[RT_MAX_NDIM], before[RT_MAX_NDIM], behind[RT_MAX_NDIM];
    for (int d = 0; d < n; d++) { /* the gradient of elements that negative padding cuts off is zero */
        before[d] = begin[d] < 0 ? -begin[d] : 0;
        behind[d] = end[d] < 0 ? -end[d] : 0;
        start[d] = begin[d] > 0 ? begin[d] : 0;
        size[d] = x.dims[d] - before[d] - behind[d];
    }
    int inner = build_slice(&gradient->builder, gradient->dy, start, NULL, size);
    if (inner < 0 || (gradient->wanted[0] && (gradient->dx[0] = pad(gradient, inner, before, behind)) < 0)) return -1;
    return gradient->wanted[1] ? pad_value(gradient, inner, begin, end) : 0;
}

GRAD(grad_concat) {
    const int axis = (int)attr_int(&gradient->node, "axis", 0);
    int64_t start = 0;
    for (int k = 0; k < gradient->node.ninputs; k++) {
        const int64_t size = gradient_input(gradient, k)->dims[axis];
        if (gradient->wanted[k] &&
            (gradient->dx[k] = build_piece(&gradient->builder, gradient->dy, axis, start, 1, size)) < 0)
            return -1;
        start += size;
    }
    return 0;
}

/* A row that was gathered several times receives the sum of the gradients. */
GRAD(grad_gather) {
    const struct tensor *x = gradient_input(gradient, 0);
    int64_t axis = attr_int(&gradient->node, "axis", 0);
    struct attr attrs[] = {attr_of_int("axis", axis), attr_of_int("size", x->dims[axis])};
    return gradient->dx[0] =
               build(&gradient->builder, OP_GatherGrad, 2, (int[]){gradient->dy, gradient->node.inputs[1]}, 2, attrs);
}

/* An element that was gathered several times receives the sum of the gradients. */
GRAD(grad_gather_elements) {
    const int inputs[] = {gradient_zeros(gradient, 0), gradient->node.inputs[1], gradient->dy};
    return gradient->dx[0] = gradient_like(gradient, OP_ScatterElementsAdd, 3, inputs, NULL);
}

GRAD(grad_gather_nd) {
    const int inputs[] = {gradient_zeros(gradient, 0), gradient->node.inputs[1], gradient->dy};
    return gradient->dx[0] = gradient_like(gradient, OP_ScatterNDAdd, 3, inputs, NULL);
}
