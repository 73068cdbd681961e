/* Derivatives of convolutions and pooling (Note [Windows] in conv.c). */
#include "ir/ops/grad.h"

enum { SPATIAL = 2 };

/* The window of the forward node, over n spatial dimensions. */
struct window {
    int n;
    const int64_t *stride, *dilation, *begin, *end, *extent;
};

/* `extent`: spatial extents of the weights; NULL: attribute window has them. */
static struct window window_of(const struct gradient *gradient, const int64_t *extent) {
    struct window w;
    w.extent = extent ? extent : attr_ints(&gradient->node, "window", &w.n);
    w.stride = attr_ints(&gradient->node, "stride", &w.n);
    w.dilation = attr_ints(&gradient->node, "dilation", &w.n);
    w.begin = attr_ints(&gradient->node, "begin", &w.n);
    w.end = attr_ints(&gradient->node, "end", &w.n);
    return w;
}

/* Adds a convolution, or a transposed one, of `positions` over `extent` elements. The padding in front is `begin`; that
 * at the end follows from the positions, and is negative if the last elements are not read. */
static int convolve(struct gradient *gradient, enum op_id op, const struct window *w, const int64_t *begin,
                    const int64_t *positions, const int64_t *extent, int64_t group, int x, int weights) {
    int64_t end[RT_MAX_NDIM];
    for (int d = 0; d < w->n; d++)
        end[d] = (positions[d] - 1) * w->stride[d] + (w->extent[d] - 1) * w->dilation[d] + 1 - begin[d] - extent[d];
    struct attr attrs[] = {attr_of_ints("stride", w->n, w->stride), attr_of_ints("dilation", w->n, w->dilation),
                           attr_of_ints("begin", w->n, begin), attr_of_ints("end", w->n, end),
                           attr_of_int("group", group)};
    return build(&gradient->builder, op, 2, (int[]){x, weights}, 5, attrs);
}

/* The gradient of a convolution's weights from its input `x` and the gradient `dy` of its result. */
static int weights_gradient(struct gradient *gradient, int x, int dy) {
    const struct tensor w = *gradient_input(gradient, 1);
    struct attr window = attr_of_ints("window", w.ndim - SPATIAL, w.dims + SPATIAL);
    return gradient_like(gradient, OP_ConvWeightGrad, 2, (int[]){x, dy}, &window);
}

GRAD(grad_conv) {
    struct tensor x = *gradient_input(gradient, 0), w = *gradient_input(gradient, 1), y = *gradient_output(gradient);
    struct window window = window_of(gradient, w.dims + SPATIAL);
    if (gradient->wanted[0] && tensor_elements(&x) &&
        (gradient->dx[0] =
             convolve(gradient, OP_ConvTranspose, &window, window.begin, y.dims + SPATIAL, x.dims + SPATIAL,
                      attr_int(&gradient->node, "group", 1), gradient->dy, gradient->node.inputs[1])) < 0)
        return -1;
    if (gradient->wanted[1] &&
        (gradient->dx[1] = weights_gradient(gradient, gradient->node.inputs[0], gradient->dy)) < 0)
        return -1;
    return 0;
}

/* A transposed convolution is the gradient of a convolution. Its own gradient is therefore that convolution, with the
 * same window, from its result to its input. */
GRAD(grad_conv_transpose) {
    if (gradient->wanted[0] && (gradient->dx[0] = gradient_like(
                                    gradient, OP_Conv, 2, (int[]){gradient->dy, gradient->node.inputs[1]}, NULL)) < 0)
        return -1;
    if (gradient->wanted[1] &&
        (gradient->dx[1] = weights_gradient(gradient, gradient->dy, gradient->node.inputs[0])) < 0)
        return -1;
    return 0;
}

GRAD(grad_max_pool) {
    return gradient->dx[0] =
               gradient_like(gradient, OP_MaxPoolGrad, 2, (int[]){gradient->node.inputs[0], gradient->dy}, NULL);
}

/* A constant of ones of shape (a, 1, spatial..) and of x's type. */
static int ones(struct gradient *gradient, int64_t a, int n, const int64_t *spatial) {
    int64_t dims[RT_MAX_NDIM] = {a, 1}, count = a;
    for (int d = 0; d < n; d++) count *= dims[SPATIAL + d] = spatial[d];
    double *values = ARENA_ARRAY(gradient->builder.graph->arena, double, count + 1);
    for (int64_t i = 0; i < count; i++) values[i] = 1;
    const char *name = arena_printf(gradient->builder.graph->arena, "%s.ones", gradient->builder.node);
    return build_cast(&gradient->builder,
                      graph_add_const(gradient->builder.graph, name, RT_F64, SPATIAL + n, dims, values),
                      gradient_input(gradient, 0)->dtype);
}

/* The number of elements in each position's mean, shape (1, 1, o..): a convolution of ones with a window of ones. */
static int count_elements(struct gradient *gradient, const struct window *w) {
    struct tensor x = *gradient_input(gradient, 0), y = *gradient_output(gradient);
    bool padded = attr_int(&gradient->node, "count_include_pad", 0) != 0;
    int64_t begin[RT_MAX_NDIM], extent[RT_MAX_NDIM];
    for (int d = 0; d < w->n; d++) {
        begin[d] = padded ? 0 : w->begin[d];
        extent[d] = x.dims[SPATIAL + d] + (padded ? w->begin[d] + w->end[d] : 0);
    }
    int met = ones(gradient, 1, w->n, extent), window = ones(gradient, 1, w->n, w->extent);
    return convolve(gradient, OP_Conv, w, begin, y.dims + SPATIAL, extent, 1, met, window);
}

/* The mean is a convolution of each channel with ones, divided by the number of elements; this is its gradient. */
GRAD(grad_average_pool) {
    struct tensor x = *gradient_input(gradient, 0), y = *gradient_output(gradient);
    struct window w = window_of(gradient, NULL);
    if (!tensor_elements(&x)) return 0;
    int count = count_elements(gradient, &w),
        share = count < 0 ? -1 : build2(&gradient->builder, OP_Div, gradient->dy, count);
    if (share < 0) return -1;
    return gradient->dx[0] = convolve(gradient, OP_ConvTranspose, &w, w.begin, y.dims + SPATIAL, x.dims + SPATIAL,
                                      x.dims[1], share, ones(gradient, x.dims[1], w.n, w.extent));
}
