/* Convolution and pooling: windows over the spatial dimensions, which follow batch and channels. */
#include "frontend/lower/onnx_lower.h"

#include "runtime/base/number/checked.h"

enum { SPATIAL = 2, MAX_SPATIAL = 3, MOST = 1 << 30 };

/* The window that slides over the `n` spatial dimensions. */
struct window {
    int n;
    int64_t extent[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], begin[MAX_SPATIAL], end[MAX_SPATIAL];
    bool ceil;
};

/* `count` numbers of a list attribute, or `fallback` for all if it is not given. */
static int read_list(struct lower *lower, const char *name, int count, int64_t fallback, int64_t *values) {
    int n;
    const int64_t *list = lower_ints(lower, name, &n);
    if (list && n != count)
        return lower_error(lower, 372, "%s has %d value(s), but %d spatial dimension(s) need %d", name, n,
                           lower_ndim(lower, lower->inputs[0]) - SPATIAL, count);
    for (int i = 0; i < count; i++) values[i] = list ? list[i] : fallback;
    return 0;
}

static int check_range(struct lower *lower, const char *name, int code, int64_t value, int64_t least) {
    if (value >= least && value <= MOST) return 0;
    return lower_error(lower, code, "%s %lld: must be %lld or more, and at most %d", name, (long long)value,
                       (long long)least, MOST);
}

/* Spatial dimensions of the input: 1 to 3. */
static int check_input(struct lower *lower, struct window *window) {
    struct tensor x = lower_input(lower, 0);
    window->n = x.ndim - SPATIAL;
    if (window->n < 1)
        return lower_error(lower, 372, "the input has %d dimension(s), but at least 3 are needed", x.ndim);
    if (window->n > MAX_SPATIAL) return lower_unsupported(lower, "an input of %d spatial dimension(s)", window->n);
    return 0;
}

/* Reads strides and dilations, and checks them and the window's extents. */
static int read_steps(struct lower *lower, struct window *window) {
    if (read_list(lower, "strides", window->n, 1, window->stride) < 0) return -1;
    if (read_list(lower, "dilations", window->n, 1, window->dilation) < 0) return -1;
    for (int d = 0; d < window->n; d++) {
        if (check_range(lower, "stride", 371, window->stride[d], 1) < 0) return -1;
        if (check_range(lower, "window extent", 371, window->extent[d], 1) < 0) return -1;
        if (check_range(lower, "dilation", 374, window->dilation[d], 1) < 0) return -1;
    }
    return 0;
}

static int64_t span(const struct window *window, int d) {
    return (window->extent[d] - 1) * window->dilation[d] + 1;
}

enum auto_pad { NOTSET, VALID, SAME_UPPER, SAME_LOWER, AUTO_PADS };

static int read_auto_pad(struct lower *lower, enum auto_pad *how) {
    static const char *const names[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    const char *text = lower_text(lower, "auto_pad");
    for (*how = 0; *how < AUTO_PADS && strcmp(text, names[*how]) != 0;) ++*how;
    if (*how == AUTO_PADS) return lower_unknown(lower, "auto_pad", text);
    return 0;
}

/* Divides padding between both ends; an odd element goes to the end, with SAME_LOWER to the beginning. */
static void share_padding(struct lower *lower, struct window *window, int d, int64_t total, enum auto_pad how) {
    struct open_sizes *open = lower_open(lower);
    total = open_greater(open, total, 0);
    const int64_t half = open_quotient(open, total, 2), other = open_sum(open, total, -half);
    window->begin[d] = how == SAME_LOWER ? other : half;
    window->end[d] = how == SAME_LOWER ? half : other;
}

/* The padding with which there are ceil(extent / stride) positions. */
static int64_t same_padding(struct lower *lower, const struct window *window, int d, int64_t in) {
    struct open_sizes *open = lower_open(lower);
    const int64_t stride = window->stride[d];
    const int64_t beyond = open_sum(open, stride - 1, -open_rest(open, open_sum(open, in, stride - 1), stride));
    return open_sum(open, beyond, span(window, d) - stride);
}

static int read_pads(struct lower *lower, struct window *window) {
    int64_t pads[2 * MAX_SPATIAL];
    if (read_list(lower, "pads", 2 * window->n, 0, pads) < 0) return -1;
    for (int d = 0; d < window->n; d++) {
        if (check_range(lower, "padding", 374, pads[d], 0) < 0 ||
            check_range(lower, "padding", 374, pads[window->n + d], 0) < 0)
            return -1;
        window->begin[d] = pads[d];
        window->end[d] = pads[window->n + d];
    }
    return 0;
}

/* Sets the padding: as given, or for SAME_* such that there are ceil(extent / stride) positions. Refuses a window
 * without any position. */
static int read_padding(struct lower *lower, struct window *window) {
    struct tensor x = lower_input(lower, 0);
    struct open_sizes *open = lower_open(lower);
    enum auto_pad how;
    if (read_auto_pad(lower, &how) < 0 || (how == NOTSET && read_pads(lower, window) < 0)) return -1;
    for (int d = 0; d < window->n; d++) {
        int64_t in = x.dims[SPATIAL + d];
        if (how >= SAME_UPPER) share_padding(lower, window, d, same_padding(lower, window, d, in), how);
        const int64_t beyond = window->ceil ? window->stride[d] - 1 : 0; /* what the last window may extend by */
        const int64_t padding = open_sum(open, window->begin[d], window->end[d]);
        const int64_t room = open_sum(open, in, open_sum(open, padding, beyond - span(window, d)));
        if (open_is(open, room) &&
            lower_at_least(lower, room, 0, "the input and its padding", "as large as a window") < 0)
            return -1;
        if (!open_is(open, room) && room < 0)
            return lower_error(lower, 374,
                               "dimension %d of the result is empty: extent %lld, padding %lld and %lld, window %lld",
                               SPATIAL + d, (long long)in, (long long)window->begin[d], (long long)window->end[d],
                               (long long)span(window, d));
    }
    return 0;
}

static int window_attrs(const struct window *window, struct attr *attrs) {
    attrs[0] = attr_of_ints("stride", window->n, window->stride);
    attrs[1] = attr_of_ints("dilation", window->n, window->dilation);
    attrs[2] = attr_of_ints("begin", window->n, window->begin);
    attrs[3] = attr_of_ints("end", window->n, window->end);
    return 4;
}

/* Checks groups and the shape of the weights, (m, c / groups, ..) or transposed (c, m / groups, ..); sets the window's
 * extents from it. */
static int check_weights(struct lower *lower, struct window *window, bool transposed, int64_t *groups) {
    struct tensor x = lower_input(lower, 0), weights = lower_input(lower, 1);
    int64_t given[MAX_SPATIAL];
    if (check_input(lower, window) < 0) return -1;
    if (weights.ndim != x.ndim)
        return lower_error(lower, 372, "the input has %d dimension(s), but the weights have %d", x.ndim, weights.ndim);
    *groups = lower_int(lower, "group");
    if (*groups < 1 || x.dims[1] % *groups || weights.dims[0] % *groups)
        return lower_error(lower, 373, "%lld group(s) do not fit %lld channel(s) and weights %s", (long long)*groups,
                           (long long)x.dims[1], lower_type(lower, &weights));
    if (transposed ? weights.dims[0] != x.dims[1] : weights.dims[1] != x.dims[1] / *groups)
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (read_list(lower, "kernel_shape", window->n, 0, given) < 0) return -1;
    for (int d = 0; d < window->n; d++) {
        window->extent[d] = weights.dims[SPATIAL + d];
        if (lower_given(lower, "kernel_shape") && given[d] != window->extent[d])
            return lower_error(lower, 372, "kernel_shape is %lld in dimension %d, but the weights are %s",
                               (long long)given[d], SPATIAL + d, lower_type(lower, &weights));
    }
    return 0;
}

/* The bias is a separate Add: if ranks split the input channels, their partial results are summed before it is
 * added. */
static int convolve(struct lower *lower, enum op_id op, const struct window *window, int64_t groups) {
    struct attr attrs[5];
    int n = window_attrs(window, attrs);
    attrs[n++] = attr_of_int("group", groups);
    int y = emit(lower, op, 2, lower->inputs, n, attrs);
    if (y < 0 || !lower_has(lower, 2)) return lower_result(lower, y);
    struct tensor bias = lower_input(lower, 2), result = lower_tensor(lower, y);
    if (bias.ndim != 1 || bias.dims[0] != result.dims[1]) return lower_misfit(lower, y, lower->inputs[2]);
    return lower_result(lower, emit2(lower, OP_Add, y, emit_per_channel(lower, lower->inputs[2], result.ndim)));
}

/* ONNX Conv-11. */
int lower_conv(struct lower *lower) {
    struct window window = {0};
    int64_t groups;
    if (check_weights(lower, &window, false, &groups) < 0 || read_steps(lower, &window) < 0 ||
        read_padding(lower, &window) < 0)
        return -1;
    return convolve(lower, OP_Conv, &window, groups);
}

int emit_int_conv(struct lower *lower, int x, int w, int x_zero, int w_zero) {
    struct window window = {0};
    struct attr attrs[5];
    int64_t groups;
    lower->inputs[0] = x;
    lower->inputs[1] = w;
    if (check_weights(lower, &window, false, &groups) < 0 || read_steps(lower, &window) < 0 ||
        read_padding(lower, &window) < 0)
        return -1;
    int n = window_attrs(&window, attrs);
    attrs[n++] = attr_of_int("group", groups);
    return emit(lower, OP_IntConv, 4, (int[]){x, w, x_zero, w_zero}, n, attrs);
}

/* If output_shape is given, or for SAME_* the result's extents are stride times the input's, the padding is derived
 * from them. */
static int fit_result(struct lower *lower, struct window *window, const int64_t *more, enum auto_pad how) {
    struct tensor x = lower_input(lower, 0);
    struct open_sizes *open = lower_open(lower);
    int n;
    const int64_t *shape = lower_ints(lower, "output_shape", &n);
    if (shape && n != window->n && n != x.ndim)
        return lower_error(lower, 372, "output_shape has %d value(s), not one per spatial dimension", n);
    if (shape && n == x.ndim) shape += SPATIAL;
    for (int d = 0; d < window->n; d++) {
        int64_t in = x.dims[SPATIAL + d], want = shape ? shape[d] : in * window->stride[d];
        if (shape && check_range(lower, "output_shape", 374, want, 1) < 0) return -1;
        const int64_t whole = open_sum(open, in * window->stride[d], span(window, d) + more[d] - window->stride[d]);
        const int64_t total = open_sum(open, whole, -want);
        if (shape && open_is(open, total) &&
            lower_at_least(lower, total, 0, "what the windows cover", "output_shape") < 0)
            return -1;
        share_padding(lower, window, d, total, how == SAME_UPPER ? SAME_UPPER : SAME_LOWER);
        if (open_most(open, total) < 0) window->end[d] = total; /* larger than the windows cover: zeros at the end */
    }
    return 0;
}

/* ONNX ConvTranspose-11. output_padding enlarges the result at the end, which reduces the padding there. */
int lower_conv_transpose(struct lower *lower) {
    struct open_sizes *open = lower_open(lower);
    struct window window = {0};
    int64_t groups, more[MAX_SPATIAL];
    enum auto_pad how;
    if (check_weights(lower, &window, true, &groups) < 0 || read_steps(lower, &window) < 0 ||
        read_auto_pad(lower, &how) < 0)
        return -1;
    if (read_list(lower, "output_padding", window.n, 0, more) < 0) return -1;
    for (int d = 0; d < window.n; d++)
        if (check_range(lower, "output_padding", 374, more[d], 0) < 0) return -1;
    for (int d = 0; d < window.n; d++) {
        int64_t covers;
        if (!rt_mul(lower_input(lower, 0).dims[SPATIAL + d], window.stride[d], &covers) || covers >> 43)
            return lower_too_large(lower);
    }
    bool fit = how >= SAME_UPPER || lower_given(lower, "output_shape");
    if (fit ? fit_result(lower, &window, more, how) < 0 : how == NOTSET && read_pads(lower, &window) < 0) return -1;
    for (int d = 0; d < window.n; d++) {
        const int64_t in = lower_input(lower, 0).dims[SPATIAL + d];
        window.end[d] = open_sum(open, window.end[d], -more[d]);
        const int64_t padding = open_sum(open, window.begin[d], window.end[d]);
        const int64_t rest = open_sum(open, span(&window, d) - window.stride[d], -padding);
        const int64_t out = open_sum(open, in * window.stride[d], rest);
        if (open_is(open, out) && lower_at_least(lower, out, 1, "the result", "larger than its padding") < 0) return -1;
        if (open_least(open, in) < 1 || open_least(open, out) < 1)
            return lower_error(lower, 374, "dimension %d of the result is empty", SPATIAL + d);
    }
    return convolve(lower, OP_ConvTranspose, &window, groups);
}

static bool flag(const struct lower *lower, const char *name) {
    return lower_given(lower, name) && lower_int(lower, name) != 0;
}

static int read_pooling(struct lower *lower, struct window *window) {
    if (check_input(lower, window) < 0 || read_list(lower, "kernel_shape", window->n, 1, window->extent) < 0) return -1;
    window->ceil = flag(lower, "ceil_mode");
    return read_steps(lower, window) < 0 || read_padding(lower, window) < 0 ? -1 : 0;
}

static int pool(struct lower *lower, enum op_id op, int x, const struct window *window, bool count_include_pad) {
    struct attr attrs[7];
    int n = window_attrs(window, attrs);
    attrs[n++] = attr_of_ints("window", window->n, window->extent);
    attrs[n++] = attr_of_int("ceil", window->ceil);
    if (count_include_pad) attrs[n++] = attr_of_int("count_include_pad", 1);
    return emit(lower, op, 1, &x, n, attrs);
}

/* Refuses windows that contain only padding: they have neither a mean nor a largest element. */
static int check_reach(struct lower *lower, const struct window *window) {
    for (int d = 0; d < window->n; d++)
        if (open_most(lower_open(lower), window->begin[d]) >= span(window, d) ||
            open_most(lower_open(lower), window->end[d]) >= span(window, d))
            return lower_error(
                lower, 374, "padding %lld and %lld of dimension %d: every window of %lld must overlap the input",
                (long long)window->begin[d], (long long)window->end[d], SPATIAL + d, (long long)span(window, d));
    return 0;
}

/* Places in a plane, counted with the first dimension fastest instead of the last. */
static int columns_first(struct lower *lower, int places, const struct tensor *x) {
    int64_t step = 1;
    int rest = places, sum = -1;
    for (int d = SPATIAL; d < x->ndim; d++) step *= x->dims[d];
    for (int d = x->ndim - 1; d >= SPATIAL; d--) {
        const int64_t extent = x->dims[d];
        const int index = emit_with(lower, OP_Mod, rest, (double)extent);
        rest = emit_with(lower, OP_Div, rest, (double)extent);
        step /= extent ? extent : 1;
        const int moved = emit_with(lower, OP_Mul, index, (double)step);
        sum = sum < 0 ? moved : emit2(lower, OP_Add, sum, moved);
        if (sum < 0) return -1;
    }
    return sum;
}

/* Output Indices of MaxPool: places in the whole input. */
static int emit_indices(struct lower *lower, int x, const struct window *window) {
    const struct tensor t = lower_tensor(lower, x);
    int64_t dims[RT_MAX_NDIM], planes = t.dims[0] * t.dims[1], elements = extent_between(&t, SPATIAL, t.ndim);
    for (int d = 0; d < t.ndim; d++) dims[d] = d < SPATIAL ? t.dims[d] : 1;
    int places = pool(lower, OP_MaxPoolPlaces, x, window, false);
    if (places >= 0 && lower_given(lower, "storage_order") && lower_int(lower, "storage_order"))
        places = columns_first(lower, places, &t);
    if (open_is(lower_open(lower), planes) || open_is(lower_open(lower), elements)) {
        const int plane = emit_reshape(lower, emit_places(lower, 0, planes, 1, 0), t.ndim, dims);
        return emit2(lower, OP_Add, places, emit2(lower, OP_Mul, plane, emit_number(lower, RT_I64, elements)));
    }
    int64_t *first = ARENA_ARRAY(lower->arena, int64_t, planes + 1);
    for (int64_t plane = 0; plane < planes; plane++) first[plane] = plane * elements;
    return emit2(lower, OP_Add, places, emit_ints(lower, (int)planes, first, t.ndim, dims));
}

/* ONNX MaxPool-12. Integers of 8 bits are exact in a float. */
int lower_max_pool(struct lower *lower) {
    struct window window = {0};
    enum rt_dtype dtype = lower_dtype(lower, lower->inputs[0]);
    if (read_pooling(lower, &window) < 0 || check_reach(lower, &window) < 0) return -1;
    int x = rt_dtype_is_float(dtype) ? lower->inputs[0] : emit_cast(lower, lower->inputs[0], RT_F32);
    if (lower_wants(lower, 1) && (lower->outputs[1] = emit_indices(lower, x, &window)) < 0) return -1;
    return lower_result(lower, emit_cast(lower, pool(lower, OP_MaxPool, x, &window, false), dtype));
}

/* Zeros of x's type, one dimension of n elements. */
static int emit_zeros(struct lower *lower, int x, int64_t n) {
    return emit_expand(lower, emit_like(lower, x, 0), 1, &n);
}

/* ONNX MaxUnpool-22: elements go to their indices in the input of the pooling; an output_shape may be larger than
 * that. */
int lower_max_unpool(struct lower *lower) {
    struct window window = {0};
    struct tensor x = lower_input(lower, 0), indices = lower_input(lower, 1), whole = x;
    int64_t n = tensor_elements(&x);
    if (check_input(lower, &window) < 0 || read_list(lower, "kernel_shape", window.n, 1, window.extent) < 0 ||
        read_steps(lower, &window) < 0 || read_pads(lower, &window) < 0)
        return -1;
    if (tensor_elements(&indices) != n) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    for (int d = 0; d < window.n; d++) {
        whole.dims[SPATIAL + d] =
            (x.dims[SPATIAL + d] - 1) * window.stride[d] + window.extent[d] - window.begin[d] - window.end[d];
        if (whole.dims[SPATIAL + d] < 1 || whole.dims[SPATIAL + d] > MOST)
            return lower_error(lower, 374, "dimension %d of the result is empty", SPATIAL + d);
    }
    if (!graph_shape_fits(lower->builder.graph, x.ndim, whole.dims)) return lower_too_large(lower);
    const int operands[] = {emit_zeros(lower, lower->inputs[0], tensor_elements(&whole)),
                            emit_reshape(lower, lower->inputs[1], 1, &n), emit_reshape(lower, lower->inputs[0], 1, &n)};
    int y = emit_reshape(lower, emit_along(lower, OP_ScatterElements, 3, operands, 0), x.ndim, whole.dims);
    if (y < 0 || !lower_has(lower, 2)) return lower_result(lower, y);
    int count;
    const int64_t *shape = lower_known(lower, 2, "output_shape", &count);
    int64_t begin[RT_MAX_NDIM] = {0}, end[RT_MAX_NDIM] = {0};
    if (!shape) return -1;
    for (int d = 0; d < x.ndim && count == x.ndim; d++) end[d] = shape[d] - whole.dims[d];
    for (int d = 0; d < x.ndim; d++)
        if (count != x.ndim || end[d] < 0 || end[d] > MOST)
            return lower_error(lower, 378, "output_shape does not hold the result");
    struct attr pad[] = {attr_of_ints("begin", x.ndim, begin), attr_of_ints("end", x.ndim, end)};
    return lower_result(lower, emit(lower, OP_Pad, 2, (int[]){y, emit_like(lower, y, 0)}, 2, pad));
}

/* Weights (channels k, 1, window..) that put element i of each k to place i of the window. */
static int emit_unfolding(struct lower *lower, const struct window *window, int64_t channels, int64_t k,
                          enum rt_dtype dtype) {
    int64_t dims[RT_MAX_NDIM] = {channels * k, 1};
    double *values = ARENA_ARRAY(lower->arena, double, channels *k *k + 1);
    for (int64_t i = 0; i < channels * k; i++) values[i * k + i % k] = 1;
    for (int d = 0; d < window->n; d++) dims[SPATIAL + d] = window->extent[d];
    return emit_floats(lower, dtype, SPATIAL + window->n, dims, values);
}

/* The columns of Col2Im: `k` elements of each block, in dimension 1. */
struct columns {
    const struct window *window;
    const int64_t *shape;
    int64_t channels, k;
};

/* A transposed convolution of each channel, which adds every column to its place. x is of a float type. */
static int emit_folded(struct lower *lower, const struct columns *columns, int x) {
    struct attr attrs[5];
    int count = window_attrs(columns->window, attrs);
    if (x < 0) return -1;
    attrs[count++] = attr_of_int("group", columns->channels);
    const int operands[] = {
        emit_reshape(lower, x, SPATIAL + columns->window->n, columns->shape),
        emit_unfolding(lower, columns->window, columns->channels, columns->k, lower_dtype(lower, x))};
    if (operands[0] < 0 || operands[1] < 0) return -1;
    return emit(lower, OP_ConvTranspose, 2, operands, count, attrs);
}

/* f64 holds sums of 32-bit integers exactly; 64-bit integers are added in two halves. */
static int emit_folded_ints(struct lower *lower, const struct columns *columns, int x) {
    const enum rt_dtype dtype = lower_dtype(lower, x);
    if (dtype == RT_BOOL) return emit_cast(lower, emit_folded(lower, columns, emit_cast(lower, x, RT_F64)), dtype);
    if (rt_dtype_bytes(dtype) < 8) {
        const int y = emit_folded(lower, columns, emit_cast(lower, x, RT_F64));
        return emit_cast(lower, emit_cast(lower, y, RT_I64), dtype);
    }
    const double half = 4294967296.0;
    const int bits = emit_wrapping(lower, x), low = emit_with(lower, OP_BitwiseAnd, bits, half - 1);
    const int high = emit_with(lower, OP_Div, emit2(lower, OP_Sub, bits, low), half);
    const int lows = emit_cast(lower, emit_folded(lower, columns, emit_cast(lower, low, RT_F64)), RT_I64);
    const int highs = emit_cast(lower, emit_folded(lower, columns, emit_cast(lower, high, RT_F64)), RT_I64);
    return emit_narrowed(lower, emit2(lower, OP_Add, emit_with(lower, OP_Mul, highs, half), lows), dtype);
}

/* ONNX Col2Im-18 */
int lower_col2im(struct lower *lower) {
    struct window window = {0};
    struct tensor x = lower_input(lower, 0);
    int n, nblock;
    const int64_t *image = lower_known(lower, 1, "image_shape", &n);
    const int64_t *block = image ? lower_known(lower, 2, "block_shape", &nblock) : NULL;
    int64_t shape[RT_MAX_NDIM] = {x.dims[0]}, k = 1, blocks = 1;
    if (!block) return -1;
    if (n > MAX_SPATIAL) return lower_unsupported(lower, "an image of %d dimension(s)", n);
    if (n < 1 || n != nblock || x.ndim != 3)
        return lower_error(lower, 378, "image_shape and block_shape do not fit each other or %s",
                           lower_type(lower, &x));
    window.n = n;
    for (int d = 0; d < n; d++) window.extent[d] = block[d];
    if (read_steps(lower, &window) < 0 || read_pads(lower, &window) < 0) return -1;
    for (int d = 0; d < n; d++) {
        const int64_t room = image[d] + window.begin[d] + window.end[d] - span(&window, d);
        if (image[d] < 1 || image[d] > MOST || room < 0 || !rt_mul(k, block[d], &k))
            return lower_error(lower, 374, "a block of %lld does not fit an image of %lld", (long long)block[d],
                               (long long)image[d]);
        shape[SPATIAL + d] = room / window.stride[d] + 1;
        window.end[d] = (shape[SPATIAL + d] - 1) * window.stride[d] + span(&window, d) - window.begin[d] - image[d];
        if (!rt_mul(blocks, shape[SPATIAL + d], &blocks)) return -1;
    }
    if (k > 1 << 12 || x.dims[1] % k || x.dims[2] != blocks)
        return lower_error(lower, 378, "%s does not have %lld blocks of %lld element(s)", lower_type(lower, &x),
                           (long long)blocks, (long long)k);
    shape[1] = x.dims[1];
    const struct columns columns = {&window, shape, x.dims[1] / k, k};
    return lower_result(lower, rt_dtype_is_float(x.dtype) ? emit_folded(lower, &columns, lower->inputs[0])
                                                          : emit_folded_ints(lower, &columns, lower->inputs[0]));
}

/* ONNX AveragePool-19. */
int lower_average_pool(struct lower *lower) {
    struct window window = {0};
    bool padded = flag(lower, "count_include_pad");
    if (read_pooling(lower, &window) < 0 || (!padded && check_reach(lower, &window) < 0)) return -1;
    return lower_result(lower, pool(lower, OP_AveragePool, lower->inputs[0], &window, padded));
}

/* The p-th root of a sum of p-th powers. */
static int power(struct lower *lower, int x, double p) {
    return p == 1 ? x : p == 2 ? emit2(lower, OP_Mul, x, x) : emit_with(lower, OP_Pow, x, p);
}
static int root(struct lower *lower, int x, double p) {
    return p == 1 ? x : p == 2 ? emit1(lower, OP_Sqrt, x) : emit_with(lower, OP_Pow, x, 1 / p);
}

static int read_p(struct lower *lower, double *p) {
    *p = (double)lower_int(lower, "p");
    return *p > 0 ? 0 : lower_error(lower, 335, "p is %g", *p);
}

/* With ceil_mode: padding at the end so that the last window lies inside of it. It adds zeros to the sum. */
static void pad_last_window(struct lower *lower, struct window *window, const struct tensor *x) {
    struct open_sizes *open = lower_open(lower);
    for (int d = 0; d < window->n && window->ceil; d++) {
        const int64_t in = open_sum(open, x->dims[SPATIAL + d], window->begin[d]), stride = window->stride[d];
        const int64_t room = open_sum(open, in, open_sum(open, window->end[d], stride - 1 - span(window, d)));
        const int64_t last =
            open_lesser(open, open_quotient(open, room, stride), open_quotient(open, open_sum(open, in, -1), stride)) *
            stride;
        const int64_t more = open_sum(open, open_sum(open, last, span(window, d)), -in);
        window->end[d] = open_greater(open, window->end[d], more);
    }
    window->ceil = false;
}

/* ONNX LpPool-18. The sum of powers is the mean over the padded window times the window's number of elements. */
int lower_lp_pool(struct lower *lower) {
    struct window window = {0};
    double p, elements = 1;
    const struct tensor x = lower_input(lower, 0);
    if (read_pooling(lower, &window) < 0 || read_p(lower, &p) < 0) return -1;
    pad_last_window(lower, &window, &x);
    for (int d = 0; d < window.n; d++) elements *= (double)window.extent[d];
    int mean = pool(lower, OP_AveragePool, power(lower, emit1(lower, OP_Abs, lower->inputs[0]), p), &window, true);
    return lower_result(lower, root(lower, emit_with(lower, OP_Mul, mean, elements), p));
}

int lower_global_lp_pool(struct lower *lower) {
    bool axes[RT_MAX_NDIM];
    double p;
    if (read_p(lower, &p) < 0) return -1;
    if (lower_ndim(lower, lower->inputs[0]) < SPATIAL)
        return lower_error(lower, 372, "the input has fewer than 2 dimensions");
    for (int d = 0; d < RT_MAX_NDIM; d++) axes[d] = d >= SPATIAL;
    int sum = emit_reduce(lower, OP_ReduceSum, power(lower, emit1(lower, OP_Abs, lower->inputs[0]), p), axes, true);
    return lower_result(lower, root(lower, sum, p));
}
