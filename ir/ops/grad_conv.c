/* Derivatives of convolutions and pooling (Note [Windows] in conv.c). */
#include "ir/ops/grad.h"

#include <string.h>

enum { SPATIAL = 2 };

/* The window of the forward node, over n spatial dimensions. */
struct window {
    int n;
    const int64_t *stride, *dilation, *begin, *end, *extent;
};

/* `extent` is that of the weights, NULL where attribute window says it. */
static struct window window_of(const struct gradient *g, const int64_t *extent) {
    struct window w;
    w.extent = extent ? extent : attr_ints(&g->node, "window", &w.n);
    w.stride = attr_ints(&g->node, "stride", &w.n);
    w.dilation = attr_ints(&g->node, "dilation", &w.n);
    w.begin = attr_ints(&g->node, "begin", &w.n);
    w.end = attr_ints(&g->node, "end", &w.n);
    return w;
}

/* Convolves, or spreads, with `begin` before and what it takes behind for as many `positions` over `extent` elements:
 * less than nothing where the last elements are not reached. */
static int convolve(struct gradient *g, enum op_id op, const struct window *w, const int64_t *begin,
                    const int64_t *positions, const int64_t *extent, int64_t group, int x, int weights) {
    int64_t end[RT_MAX_NDIM];
    for (int d = 0; d < w->n; d++)
        end[d] = (positions[d] - 1) * w->stride[d] + (w->extent[d] - 1) * w->dilation[d] + 1 - begin[d] - extent[d];
    struct attr attrs[] = {attr_of_ints("stride", w->n, w->stride), attr_of_ints("dilation", w->n, w->dilation),
                           attr_of_ints("begin", w->n, begin), attr_of_ints("end", w->n, end),
                           attr_of_int("group", group)};
    return build(&g->b, op, 2, (int[]){x, weights}, 5, attrs);
}

/* A node with the attributes of the forward node and one more. */
static int build_like(struct gradient *g, enum op_id op, int a, int b, const struct attr *more) {
    int n = g->node.nattrs;
    struct attr *attrs = ARENA_ARRAY(g->b.graph->arena, struct attr, n + 1);
    memcpy(attrs, g->node.attrs, (size_t)n * sizeof *attrs);
    if (more) attrs[n++] = *more;
    return build(&g->b, op, 2, (int[]){a, b}, n, attrs);
}

/* Of the weights of a convolution from `x` to positions of which `dy` is the gradient. */
static int weights_gradient(struct gradient *g, int x, int dy) {
    const struct tensor w = *gradient_input(g, 1);
    struct attr window = attr_of_ints("window", w.ndim - SPATIAL, w.dims + SPATIAL);
    return build_like(g, OP_ConvWeightGrad, x, dy, &window);
}

GRAD(grad_conv) {
    struct tensor x = *gradient_input(g, 0), w = *gradient_input(g, 1), y = *gradient_output(g);
    struct window window = window_of(g, w.dims + SPATIAL);
    if (g->wanted[0] && tensor_elements(&x) &&
        (g->dx[0] = convolve(g, OP_ConvTranspose, &window, window.begin, y.dims + SPATIAL, x.dims + SPATIAL,
                             attr_int(&g->node, "group", 1), g->dy, g->node.inputs[1])) < 0)
        return -1;
    if (g->wanted[1] && (g->dx[1] = weights_gradient(g, g->node.inputs[0], g->dy)) < 0) return -1;
    return 0;
}

/* A transposed convolution is the gradient of one: with the same window, the one from its result to its input. */
GRAD(grad_conv_transpose) {
    if (g->wanted[0] && (g->dx[0] = build_like(g, OP_Conv, g->dy, g->node.inputs[1], NULL)) < 0) return -1;
    if (g->wanted[1] && (g->dx[1] = weights_gradient(g, g->dy, g->node.inputs[0])) < 0) return -1;
    return 0;
}

GRAD(grad_max_pool) {
    return g->dx[0] = build_like(g, OP_MaxPoolGrad, g->node.inputs[0], g->dy, NULL);
}

/* Means ------------------------------------------------------------------------------------------------------------ */

/* Ones (a, 1, spatial..) of x's type. */
static int ones(struct gradient *g, int64_t a, int n, const int64_t *spatial) {
    int64_t dims[RT_MAX_NDIM] = {a, 1}, count = a;
    for (int d = 0; d < n; d++) count *= dims[SPATIAL + d] = spatial[d];
    double *values = ARENA_ARRAY(g->b.graph->arena, double, count + 1);
    for (int64_t i = 0; i < count; i++) values[i] = 1;
    const char *name = arena_printf(g->b.graph->arena, "%s.ones", g->b.node);
    return build_cast(&g->b, graph_add_const(g->b.graph, name, RT_F64, SPATIAL + n, dims, values),
                      gradient_input(g, 0)->dtype);
}

/* How many elements each position's mean is of (1, 1, o..): as many ones as its window meets. */
static int count_elements(struct gradient *g, const struct window *w) {
    struct tensor x = *gradient_input(g, 0), y = *gradient_output(g);
    bool padded = attr_int(&g->node, "count_include_pad", 0) != 0;
    int64_t begin[RT_MAX_NDIM], extent[RT_MAX_NDIM];
    for (int d = 0; d < w->n; d++) {
        begin[d] = padded ? 0 : w->begin[d];
        extent[d] = x.dims[SPATIAL + d] + (padded ? w->begin[d] + w->end[d] : 0);
    }
    int met = ones(g, 1, w->n, extent), window = ones(g, 1, w->n, w->extent);
    return convolve(g, OP_Conv, w, begin, y.dims + SPATIAL, extent, 1, met, window);
}

/* A mean is a convolution of each channel with ones, divided by the number of elements. */
GRAD(grad_average_pool) {
    struct tensor x = *gradient_input(g, 0), y = *gradient_output(g);
    struct window w = window_of(g, NULL);
    if (!tensor_elements(&x)) return 0;
    int count = count_elements(g, &w), share = count < 0 ? -1 : build2(&g->b, OP_Div, g->dy, count);
    if (share < 0) return -1;
    return g->dx[0] = convolve(g, OP_ConvTranspose, &w, w.begin, y.dims + SPATIAL, x.dims + SPATIAL, x.dims[1], share,
                               ones(g, x.dims[1], w.n, w.extent));
}
