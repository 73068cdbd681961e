/* Normalisations: a core operator if they are over the last dimensions, otherwise compositions. */
#include "frontend/lower/onnx_lower.h"

int lower_epsilon(struct lower *lower) {
    double epsilon = lower_float(lower, "epsilon");
    return epsilon >= 0 ? 0 : lower_error(lower, 385, "epsilon is %g, but must be at least 0", epsilon);
}

/* (x - mean) / sqrt(variance + epsilon) over the flagged dimensions; *mean and *inverse may be NULL. */
static int standardise(struct lower *lower, int x, const bool *axes, double epsilon, int *mean, int *inverse) {
    int m = emit_mean(lower, x, axes, true), centred = emit2(lower, OP_Sub, x, m);
    int variance = emit_mean(lower, emit2(lower, OP_Mul, centred, centred), axes, true);
    int deviation = emit1(lower, OP_Sqrt, emit_with(lower, OP_Add, variance, epsilon));
    if (mean) *mean = m;
    if (inverse) *inverse = emit1(lower, OP_Reciprocal, deviation);
    return emit2(lower, OP_Div, centred, deviation);
}

/* E385 unless scale or bias of a normalisation from dimension `axis` on broadcasts to the shape of x (ONNX's
 * unidirectional broadcasting). */
static int check_parameter(struct lower *lower, int parameter, const struct tensor *x, int axis) {
    const struct tensor tensor = lower_tensor(lower, parameter);
    const int lead = x->ndim - tensor.ndim;
    bool fits = lead >= 0;
    for (int d = 0; fits && d < tensor.ndim; d++) fits = tensor.dims[d] == 1 || tensor.dims[d] == x->dims[lead + d];
    if (fits) return 0;
    return lower_error(lower, 385, "scale or bias %s does not fit %s from dimension %d on", lower_type(lower, &tensor),
                       lower_type(lower, x), axis);
}

/* True if the parameter differs along dimensions before `axis`, which the core operators do not support. */
static bool differs_before(struct lower *lower, int parameter, const struct tensor *x, int axis) {
    const struct tensor tensor = lower_tensor(lower, parameter);
    const int lead = x->ndim - tensor.ndim;
    for (int d = 0; lead + d < axis && d < tensor.ndim; d++)
        if (tensor.dims[d] != 1) return true;
    return false;
}

/* Reshapes the parameter to one dimension of `extent`, the product of those from `axis` on. */
static int flat_parameter(struct lower *lower, int parameter, const struct tensor *x, int axis, int64_t extent) {
    const struct tensor tensor = lower_tensor(lower, parameter);
    const int n = x->ndim - axis, dropped = tensor.ndim > n ? tensor.ndim - n : 0;
    if (dropped) parameter = emit_reshape(lower, parameter, n, tensor.dims + dropped);
    return emit_reshape(lower, emit_expand(lower, parameter, n, x->dims + axis), 1, &extent);
}

/* The core operator over dimensions from `axis` on; scale and bias are one dimension of `extent` (bias -1: none). */
static int emit_core(struct lower *lower, enum op_id op, int axis, int64_t extent, int scale, int bias) {
    struct tensor x = lower_input(lower, 0), flat = x;
    struct attr epsilon = attr_of_float("epsilon", lower_float(lower, "epsilon"));
    flat.dims[axis] = extent;
    int inputs[] = {emit_reshape(lower, lower->inputs[0], axis + 1, flat.dims), scale, bias};
    if (inputs[0] < 0 || scale < 0) return -1;
    int y = emit(lower, op, op == OP_LayerNorm ? 3 : 2, inputs, 1, &epsilon);
    return emit_reshape(lower, y, x.ndim, x.dims);
}

int emit_normalised(struct lower *lower, enum op_id op, int axis) {
    const int scale = lower->inputs[1], bias = lower_id(lower, 2);
    const enum rt_dtype dtype = lower_dtype(lower, scale); /* of the result */
    if (rt_dtype_bytes(dtype) > rt_dtype_bytes(lower_input(lower, 0).dtype))
        lower->inputs[0] = emit_cast(lower, lower->inputs[0], dtype);
    if (lower->inputs[0] < 0) return -1;
    const struct tensor x = lower_input(lower, 0);
    const int64_t extent = extent_between(&x, axis, x.ndim);
    if (check_parameter(lower, scale, &x, axis) < 0 || (bias >= 0 && check_parameter(lower, bias, &x, axis) < 0))
        return -1;
    if (dtype != x.dtype || differs_before(lower, scale, &x, axis) ||
        (bias >= 0 && differs_before(lower, bias, &x, axis))) {
        int ones = emit_expand(lower, emit_like(lower, lower->inputs[0], 1), 1, &extent);
        int y = emit2(lower, OP_Mul, emit_cast(lower, emit_core(lower, op, axis, extent, ones, -1), dtype), scale);
        return bias < 0 ? y : emit2(lower, OP_Add, y, bias);
    }
    const int flat_bias = bias < 0 ? -1 : flat_parameter(lower, bias, &x, axis, extent);
    if (bias >= 0 && flat_bias < 0) return -1;
    return emit_core(lower, op, axis, extent, flat_parameter(lower, scale, &x, axis, extent), flat_bias);
}

static void flag_from(bool *axes, int axis) {
    for (int d = 0; d < RT_MAX_NDIM; d++) axes[d] = d >= axis;
}

/* ONNX LayerNormalization-17; mean and inverse standard deviation only where they are read. */
int lower_layer_norm(struct lower *lower) {
    int axis;
    bool axes[RT_MAX_NDIM];
    if (lower_epsilon(lower) < 0 ||
        lower_axis(lower, lower_int(lower, "axis"), lower_ndim(lower, lower->inputs[0]), &axis) < 0)
        return -1;
    flag_from(axes, axis);
    int *mean = lower_wants(lower, 1) ? &lower->outputs[1] : NULL,
        *inverse = lower_wants(lower, 2) ? &lower->outputs[2] : NULL;
    if (mean || inverse) {
        const enum rt_dtype stash = rt_dtype_by_onnx((int)lower_int(lower, "stash_type"));
        if (stash == RT_DTYPE_NONE || !rt_dtype_is_float(stash)) return lower_unsupported(lower, "this stash_type");
        const int x = emit_cast(lower, lower->inputs[0], lower_float_type(lower, stash));
        if (x < 0 || standardise(lower, x, axes, lower_float(lower, "epsilon"), mean, inverse) < 0) return -1;
    }
    return lower_result(lower, emit_normalised(lower, OP_LayerNorm, axis));
}

int lower_rms_norm(struct lower *lower) {
    int axis;
    if (lower_epsilon(lower) < 0 ||
        lower_axis(lower, lower_int(lower, "axis"), lower_ndim(lower, lower->inputs[0]), &axis) < 0)
        return -1;
    return lower_result(lower, emit_normalised(lower, OP_RMSNorm, axis));
}

int emit_channels(struct lower *lower, int input, const struct tensor *like) {
    struct tensor tensor = lower_input(lower, input);
    if (tensor.ndim != 1 || like->ndim < 2 || tensor.dims[0] != like->dims[1])
        return lower_error(lower, 385, "input %d %s does not have one value per channel of %s", input,
                           lower_type(lower, &tensor), lower_type(lower, like));
    return emit_per_channel(lower, lower->inputs[input], like->ndim);
}

/* y x scale + bias, with one value of each per channel. */
static int scale_channels(struct lower *lower, int y, const struct tensor *x) {
    int scale = emit_channels(lower, 1, x), bias = scale < 0 ? -1 : emit_channels(lower, 2, x);
    return emit2(lower, OP_Add, emit2(lower, OP_Mul, y, scale), bias);
}

int lower_instance_norm(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    bool axes[RT_MAX_NDIM];
    if (lower_epsilon(lower) < 0) return -1;
    flag_from(axes, 2);
    int y = standardise(lower, lower->inputs[0], axes, lower_float(lower, "epsilon"), NULL, NULL);
    return lower_result(lower, scale_channels(lower, y, &x));
}

int emit_group_norm(struct lower *lower, int image, int64_t groups, bool per_channel) {
    if (image < 0 || lower_epsilon(lower) < 0) return -1;
    struct tensor x = lower_tensor(lower, image);
    bool axes[RT_MAX_NDIM];
    if (x.ndim < 2 || groups < 1 || x.dims[1] % groups)
        return lower_error(lower, 385, "%lld group(s) do not divide the channels of %s", (long long)groups,
                           lower_type(lower, &x));
    flag_from(axes, 2);
    struct tensor grouped = {.ndim = 3,
                             .dims = {x.dims[0], groups, x.dims[0] ? extent_between(&x, 1, x.ndim) / groups : 0}};
    int y = emit_reshape(lower, image, 3, grouped.dims);
    y = standardise(lower, y, axes, lower_float(lower, "epsilon"), NULL, NULL);
    if (!per_channel) y = scale_channels(lower, y, &grouped);
    y = emit_reshape(lower, y, x.ndim, x.dims);
    return per_channel ? scale_channels(lower, y, &x) : y;
}

/* Up to opset 20 scale and bias have one value per group. */
int lower_group_norm(struct lower *lower) {
    return lower_result(
        lower, emit_group_norm(lower, lower->inputs[0], lower_int(lower, "num_groups"), lower->op->since >= 21));
}

/* ONNX MeanVarianceNormalization-13: without scale, bias and, in effect, epsilon (its function body has 1e-9). */
int lower_mean_variance(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    static const int64_t usual[] = {0, 2, 3};
    bool axes[RT_MAX_NDIM];
    int n;
    const int64_t *list = lower_ints(lower, "axes", &n);
    if (lower_axes(lower, list ? list : usual, list ? n : 3, x.ndim, axes) < 0) return -1;
    int mean = emit_mean(lower, lower->inputs[0], axes, true), centred = emit2(lower, OP_Sub, lower->inputs[0], mean);
    int variance = emit_mean(lower, emit2(lower, OP_Mul, centred, centred), axes, true);
    return lower_result(lower,
                        emit2(lower, OP_Div, centred, emit_with(lower, OP_Add, emit1(lower, OP_Sqrt, variance), 1e-9)));
}

/* ONNX LpNormalization-22: results are 0 if all elements are. */
int lower_lp_norm(struct lower *lower) {
    int axis, x = lower->inputs[0];
    int64_t p = lower_int(lower, "p");
    if (lower_axis(lower, lower_int(lower, "axis"), lower_ndim(lower, x), &axis) < 0) return -1;
    if (p != 1 && p != 2) return lower_error(lower, 335, "p is %lld, not 1 or 2", (long long)p);
    int terms = p == 1 ? emit1(lower, OP_Abs, x) : emit2(lower, OP_Mul, x, x);
    int norm = emit_reduce_along(lower, OP_ReduceSum, terms, axis, true);
    if (p == 2) norm = emit_root(lower, norm);
    int none = emit2(lower, OP_Equal, norm, emit_like(lower, x, 0));
    return lower_result(lower, emit2(lower, OP_Div, x, emit3(lower, OP_Where, none, emit_like(lower, x, 1), norm)));
}

/* ONNX LRN-13: x / (bias + alpha / size x sum of squares over `size` adjacent channels) ^ beta. The sum is computed as
 * a sum of shifted slices of the padded squares. */
int lower_lrn(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int64_t size = lower_int(lower, "size");
    if (x.ndim < 2 || size < 1 || size > 1024)
        return lower_error(lower, 384, "invalid size %lld for %s", (long long)size, lower_type(lower, &x));
    int square = emit2(lower, OP_Mul, lower->inputs[0], lower->inputs[0]);
    int padded = emit_padded(lower, square, 1, (size - 1) / 2, size / 2, 0),
        sum = emit_piece(lower, padded, 1, 0, 1, x.dims[1]);
    for (int64_t i = 1; i < size; i++) sum = emit2(lower, OP_Add, sum, emit_piece(lower, padded, 1, i, 1, x.dims[1]));
    int base = emit_with(lower, OP_Mul, sum, lower_float(lower, "alpha") / (double)size);
    base = emit_with(lower, OP_Add, base, lower_float(lower, "bias"));
    return lower_result(
        lower, emit2(lower, OP_Div, lower->inputs[0], emit_with(lower, OP_Pow, base, lower_float(lower, "beta"))));
}
