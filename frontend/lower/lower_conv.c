/* Convolutions and pooling: windows over the dimensions behind batch and channels. */
#include "frontend/lower/onnx_lower.h"

#include "runtime/base/checked.h"

enum { SPATIAL = 2, MAX_SPATIAL = 3, MOST = 1 << 30 };

/* What slides over the spatial dimensions, `n` of them. */
struct window {
    int n;
    int64_t extent[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], begin[MAX_SPATIAL], end[MAX_SPATIAL];
    bool ceil;
};

/* `count` numbers of a list attribute, or `fallback` for all if it is not given. */
static int read_list(struct lower *l, const char *name, int count, int64_t fallback, int64_t *values) {
    int n;
    const int64_t *list = lower_ints(l, name, &n);
    if (list && n != count)
        return lower_error(l, 372, EXIT_MALFORMED, "%s has %d values, %d spatial dimensions need %d", name, n,
                           lower_ndim(l, l->inputs[0]) - SPATIAL, count);
    for (int i = 0; i < count; i++) values[i] = list ? list[i] : fallback;
    return 0;
}

static int check_range(struct lower *l, const char *name, int code, int64_t value, int64_t least) {
    if (value >= least && value <= MOST) return 0;
    return lower_error(l, code, EXIT_MALFORMED, "%s %lld: must be %lld or more, and at most %d", name, (long long)value,
                       (long long)least, MOST);
}

/* Spatial dimensions of the input: 1 to 3. */
static int check_input(struct lower *l, struct window *w) {
    struct tensor x = lower_input(l, 0);
    w->n = x.ndim - SPATIAL;
    if (w->n < 1) return lower_error(l, 372, EXIT_MALFORMED, "the input has %d dimensions, needs 3 or more", x.ndim);
    if (w->n > MAX_SPATIAL) return lower_unsupported(l, "an input of %d spatial dimensions", w->n);
    return 0;
}

/* All but the window's extents and padding. */
static int read_steps(struct lower *l, struct window *w) {
    if (read_list(l, "strides", w->n, 1, w->stride) < 0) return -1;
    if (read_list(l, "dilations", w->n, 1, w->dilation) < 0) return -1;
    for (int d = 0; d < w->n; d++) {
        if (check_range(l, "stride", 371, w->stride[d], 1) < 0) return -1;
        if (check_range(l, "window extent", 371, w->extent[d], 1) < 0) return -1;
        if (check_range(l, "dilation", 374, w->dilation[d], 1) < 0) return -1;
    }
    return 0;
}

static int64_t span(const struct window *w, int d) {
    return (w->extent[d] - 1) * w->dilation[d] + 1;
}

enum auto_pad { NOTSET, VALID, SAME_UPPER, SAME_LOWER, AUTO_PADS };

static int read_auto_pad(struct lower *l, enum auto_pad *how) {
    static const char *const names[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    const char *text = lower_text(l, "auto_pad");
    for (*how = 0; *how < AUTO_PADS && strcmp(text, names[*how]) != 0;) ++*how;
    if (*how == AUTO_PADS) return lower_error(l, 335, EXIT_MALFORMED, "no auto_pad %s", diag_quote(l->b.diags, text));
    return 0;
}

/* Divides padding so that an odd element comes at the end, or at the beginning for SAME_LOWER. */
static void share_padding(struct window *w, int d, int64_t total, enum auto_pad how) {
    if (total < 0) total = 0;
    w->begin[d] = how == SAME_LOWER ? total - total / 2 : total / 2;
    w->end[d] = total - w->begin[d];
}

static int read_pads(struct lower *l, struct window *w) {
    int64_t pads[2 * MAX_SPATIAL];
    if (read_list(l, "pads", 2 * w->n, 0, pads) < 0) return -1;
    for (int d = 0; d < w->n; d++) {
        if (check_range(l, "padding", 374, pads[d], 0) < 0 || check_range(l, "padding", 374, pads[w->n + d], 0) < 0)
            return -1;
        w->begin[d] = pads[d];
        w->end[d] = pads[w->n + d];
    }
    return 0;
}

/* Padding as given or, for SAME, so that there are ceil(extent / stride) positions; then each dimension must have
 * one. */
static int read_padding(struct lower *l, struct window *w) {
    struct tensor x = lower_input(l, 0);
    enum auto_pad how;
    if (read_auto_pad(l, &how) < 0 || (how == NOTSET && read_pads(l, w) < 0)) return -1;
    for (int d = 0; d < w->n; d++) {
        int64_t in = x.dims[SPATIAL + d];
        if (how >= SAME_UPPER)
            share_padding(w, d, ((in + w->stride[d] - 1) / w->stride[d] - 1) * w->stride[d] + span(w, d) - in, how);
        if (in + w->begin[d] + w->end[d] < span(w, d))
            return lower_error(
                l, 374, EXIT_MALFORMED,
                "nothing is left of dimension %d: extent %lld, padding %lld and %lld, a window over %lld", SPATIAL + d,
                (long long)in, (long long)w->begin[d], (long long)w->end[d], (long long)span(w, d));
    }
    return 0;
}

static int window_attrs(const struct window *w, struct attr *attrs) {
    attrs[0] = attr_of_ints("stride", w->n, w->stride);
    attrs[1] = attr_of_ints("dilation", w->n, w->dilation);
    attrs[2] = attr_of_ints("begin", w->n, w->begin);
    attrs[3] = attr_of_ints("end", w->n, w->end);
    return 4;
}

/* Convolutions ---------------------------------------------------------------------------------------------------- */

/* Groups and shape of the weights: (m, c / groups, ..), or (c, m / groups, ..) if transposed. The window is theirs. */
static int check_weights(struct lower *l, struct window *w, bool transposed, int64_t *groups) {
    struct tensor x = lower_input(l, 0), weights = lower_input(l, 1);
    int64_t given[MAX_SPATIAL];
    if (check_input(l, w) < 0) return -1;
    if (weights.ndim != x.ndim)
        return lower_error(l, 372, EXIT_MALFORMED, "the input has %d dimensions, the weights %d", x.ndim, weights.ndim);
    *groups = lower_int(l, "group");
    if (*groups < 1 || x.dims[1] % *groups || weights.dims[0] % *groups)
        return lower_error(l, 373, EXIT_MALFORMED, "%lld groups of %lld channels and weights %s", (long long)*groups,
                           (long long)x.dims[1], tensor_type(l->b.graph->arena, &weights));
    if (transposed ? weights.dims[0] != x.dims[1] : weights.dims[1] != x.dims[1] / *groups)
        return lower_misfit(l, l->inputs[0], l->inputs[1]);
    if (read_list(l, "kernel_shape", w->n, 0, given) < 0) return -1;
    for (int d = 0; d < w->n; d++) {
        w->extent[d] = weights.dims[SPATIAL + d];
        if (lower_given(l, "kernel_shape") && given[d] != w->extent[d])
            return lower_error(l, 372, EXIT_MALFORMED, "kernel_shape says %lld in dimension %d, the weights are %s",
                               (long long)given[d], SPATIAL + d, tensor_type(l->b.graph->arena, &weights));
    }
    return 0;
}

/* The bias is a sum of its own: partial results of ranks that share the input channels are added up before it. */
static int convolve(struct lower *l, enum op_id op, const struct window *w, int64_t groups) {
    struct attr attrs[5];
    int n = window_attrs(w, attrs);
    attrs[n++] = attr_of_int("group", groups);
    int y = emit(l, op, 2, l->inputs, n, attrs);
    if (y < 0 || !lower_has(l, 2)) return lower_result(l, y);
    struct tensor bias = lower_input(l, 2), result = lower_tensor(l, y);
    if (bias.ndim != 1 || bias.dims[0] != result.dims[1]) return lower_misfit(l, y, l->inputs[2]);
    return lower_result(l, emit2(l, OP_Add, y, emit_per_channel(l, l->inputs[2], result.ndim)));
}

/* ONNX Conv-11. */
int lower_conv(struct lower *l) {
    struct window w = {0};
    int64_t groups;
    if (check_weights(l, &w, false, &groups) < 0 || read_steps(l, &w) < 0 || read_padding(l, &w) < 0) return -1;
    return convolve(l, OP_Conv, &w, groups);
}

/* Where the result's extents are given, or to be stride times the input's, padding is what makes them so. */
static int fit_result(struct lower *l, struct window *w, const int64_t *more, enum auto_pad how) {
    struct tensor x = lower_input(l, 0);
    int n;
    const int64_t *shape = lower_ints(l, "output_shape", &n);
    if (shape && n != w->n && n != x.ndim) return lower_error(l, 372, EXIT_MALFORMED, "output_shape has %d values", n);
    if (shape && n == x.ndim) shape += SPATIAL;
    for (int d = 0; d < w->n; d++) {
        int64_t in = x.dims[SPATIAL + d], want = shape ? shape[d] : in * w->stride[d];
        if (shape && check_range(l, "output_shape", 374, want, 1) < 0) return -1;
        int64_t total = (in - 1) * w->stride[d] + span(w, d) + more[d] - want;
        share_padding(w, d, total, how == SAME_UPPER ? SAME_UPPER : SAME_LOWER);
        if (total < 0) w->end[d] = total; /* more than the windows cover: zeros behind */
    }
    return 0;
}

/* ONNX ConvTranspose-11. output_padding adds results at the end: less is cut off there. */
int lower_conv_transpose(struct lower *l) {
    struct window w = {0};
    int64_t groups, more[MAX_SPATIAL];
    enum auto_pad how;
    if (check_weights(l, &w, true, &groups) < 0 || read_steps(l, &w) < 0 || read_auto_pad(l, &how) < 0) return -1;
    if (read_list(l, "output_padding", w.n, 0, more) < 0) return -1;
    for (int d = 0; d < w.n; d++)
        if (check_range(l, "output_padding", 374, more[d], 0) < 0) return -1;
    for (int d = 0; d < w.n; d++) {
        int64_t covers;
        if (!rt_mul(lower_input(l, 0).dims[SPATIAL + d], w.stride[d], &covers) || covers >> 43)
            return lower_error(l, 505, EXIT_LIMIT, "the result is too large");
    }
    bool fit = how >= SAME_UPPER || lower_given(l, "output_shape");
    if (fit ? fit_result(l, &w, more, how) < 0 : how == NOTSET && read_pads(l, &w) < 0) return -1;
    for (int d = 0; d < w.n; d++) {
        int64_t in = lower_input(l, 0).dims[SPATIAL + d];
        w.end[d] -= more[d];
        if (in < 1 || (in - 1) * w.stride[d] + span(&w, d) - w.begin[d] - w.end[d] < 1)
            return lower_error(l, 374, EXIT_MALFORMED, "nothing is left of dimension %d", SPATIAL + d);
    }
    return convolve(l, OP_ConvTranspose, &w, groups);
}

/* Pooling --------------------------------------------------------------------------------------------------------- */

static bool flag(const struct lower *l, const char *name) {
    return lower_given(l, name) && lower_int(l, name) != 0;
}

static int read_pooling(struct lower *l, struct window *w) {
    if (check_input(l, w) < 0 || read_list(l, "kernel_shape", w->n, 1, w->extent) < 0) return -1;
    w->ceil = flag(l, "ceil_mode");
    if (w->ceil) l->dispute = DISPUTED_CEIL;
    return read_steps(l, w) < 0 || read_padding(l, w) < 0 ? -1 : 0;
}

static int pool(struct lower *l, enum op_id op, int x, const struct window *w, bool count_include_pad) {
    struct attr attrs[7];
    int n = window_attrs(w, attrs);
    attrs[n++] = attr_of_ints("window", w->n, w->extent);
    attrs[n++] = attr_of_int("ceil", w->ceil);
    if (count_include_pad) attrs[n++] = attr_of_int("count_include_pad", 1);
    return x < 0 ? -1 : emit(l, op, 1, &x, n, attrs);
}

/* A window that reads nothing but padding has no mean and no largest element. */
static int check_reach(struct lower *l, const struct window *w) {
    for (int d = 0; d < w->n; d++)
        if (w->begin[d] >= span(w, d) || w->end[d] >= span(w, d))
            return lower_error(l, 374, EXIT_MALFORMED,
                               "padding %lld and %lld of dimension %d: a window over %lld must reach the input",
                               (long long)w->begin[d], (long long)w->end[d], SPATIAL + d, (long long)span(w, d));
    return 0;
}

/* ONNX MaxPool-12. Integers of 8 bits are exact in a float. */
int lower_max_pool(struct lower *l) {
    struct window w = {0};
    enum rt_dtype dtype = lower_dtype(l, l->inputs[0]);
    if (lower_wants(l, 1)) return lower_unsupported(l, "output Indices");
    if (read_pooling(l, &w) < 0 || check_reach(l, &w) < 0) return -1;
    int x = rt_dtype_is_float(dtype) ? l->inputs[0] : emit_cast(l, l->inputs[0], RT_F32);
    return lower_result(l, emit_cast(l, pool(l, OP_MaxPool, x, &w, false), dtype));
}

/* ONNX AveragePool-19. */
int lower_average_pool(struct lower *l) {
    struct window w = {0};
    bool padded = flag(l, "count_include_pad");
    if (read_pooling(l, &w) < 0 || (!padded && check_reach(l, &w) < 0)) return -1;
    return lower_result(l, pool(l, OP_AveragePool, l->inputs[0], &w, padded));
}

/* The p-th root of a sum of p-th powers. */
static int power(struct lower *l, int x, double p) {
    return p == 1 ? x : p == 2 ? emit2(l, OP_Mul, x, x) : emit_with(l, OP_Pow, x, p);
}
static int root(struct lower *l, int x, double p) {
    return p == 1 ? x : p == 2 ? emit1(l, OP_Sqrt, x) : emit_with(l, OP_Pow, x, 1 / p);
}

static int read_p(struct lower *l, double *p) {
    *p = (double)lower_int(l, "p");
    return *p > 0 ? 0 : lower_error(l, 335, EXIT_MALFORMED, "p is %g", *p);
}

/* ONNX LpPool-18: a mean over the padded window, times its elements, is the sum. */
int lower_lp_pool(struct lower *l) {
    struct window w = {0};
    double p, elements = 1;
    if (read_pooling(l, &w) < 0 || read_p(l, &p) < 0) return -1;
    if (w.ceil) return lower_unsupported(l, "ceil_mode");
    for (int d = 0; d < w.n; d++) elements *= (double)w.extent[d];
    int mean = pool(l, OP_AveragePool, power(l, emit1(l, OP_Abs, l->inputs[0]), p), &w, true);
    return lower_result(l, root(l, emit_with(l, OP_Mul, mean, elements), p));
}

int lower_global_lp_pool(struct lower *l) {
    bool axes[MAX_NDIM];
    double p;
    if (read_p(l, &p) < 0) return -1;
    if (lower_ndim(l, l->inputs[0]) < SPATIAL)
        return lower_error(l, 372, EXIT_MALFORMED, "the input has fewer than 2 dimensions");
    for (int d = 0; d < MAX_NDIM; d++) axes[d] = d >= SPATIAL;
    int sum = emit_reduce(l, OP_ReduceSum, power(l, emit1(l, OP_Abs, l->inputs[0]), p), axes, true);
    return lower_result(l, root(l, sum, p));
}
