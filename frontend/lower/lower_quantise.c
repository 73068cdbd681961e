/* Quantisation: QuantizeLinear, DequantizeLinear, products of integers, and the operators of ONNX Runtime on quantised
 * tensors. Most are compositions of elementwise operators around core operators on floats or integers. Source: the ONNX
 * operator schemas and ContribOperators.md of ONNX Runtime. */
#include "frontend/lower/lower_quantise.h"

#include <math.h>

#include "frontend/lower/lower_contrib.h"

int emit_scalar(struct lower *lower, int x) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    return tensor_elements(&tensor) == 1 ? emit_reshape(lower, x, 0, NULL) : x;
}

/* Repeats each index of dimension `axis` `block` times; the last block may be shorter. */
static int repeat_blocks(struct lower *lower, int x, int axis, int64_t block, int64_t extent) {
    struct tensor tensor = lower_tensor(lower, x);
    int64_t shape[RT_MAX_NDIM + 1];
    for (int d = 0; d <= tensor.ndim; d++) shape[d] = tensor.dims[d <= axis ? d : d - 1];
    shape[axis + 1] = block;
    x = emit_expand(lower, emit_unsqueeze(lower, x, axis + 1), tensor.ndim + 1, shape);
    tensor.dims[axis] *= block;
    return emit_piece(lower, emit_reshape(lower, x, tensor.ndim, tensor.dims), axis, 0, 1, extent);
}

/* A tensor of scales or zero points in a shape that broadcasts to x; of blocks of equal length, to x with dimension
 * `axis` divided into blocks (*blocks is their number then, else 0). */
static int arrange(struct lower *lower, int values, const struct tensor *x, const struct quantised *how,
                   int64_t *blocks) {
    struct tensor tensor = lower_tensor(lower, values);
    int64_t shape[RT_MAX_NDIM];
    int axis = 0;
    *blocks = 0;
    if (tensor_elements(&tensor) == 1 && !how->block) return emit_scalar(lower, values);
    if (lower_axis(lower, how->axis, x->ndim, &axis) < 0) return -1;
    if (!how->block) {
        if (tensor.ndim != 1 || tensor.dims[0] != x->dims[axis])
            return lower_error(lower, 378, "%s does not fit dimension %d of %s", lower_type(lower, &tensor), axis,
                               lower_type(lower, x));
        for (int d = 0; d < x->ndim; d++) shape[d] = d == axis ? x->dims[d] : 1;
        return emit_reshape(lower, values, x->ndim, shape);
    }
    bool fits = tensor.ndim == x->ndim && how->block > 0 && how->block <= INT32_MAX;
    for (int d = 0; fits && d < x->ndim; d++)
        fits = tensor.dims[d] == (d == axis ? (x->dims[d] + how->block - 1) / how->block : x->dims[d]);
    if (!fits)
        return lower_error(lower, 378, "%s does not fit blocks of %lld along dimension %d of %s",
                           lower_type(lower, &tensor), (long long)how->block, axis, lower_type(lower, x));
    if (x->dims[axis] % how->block || x->ndim == RT_MAX_NDIM)
        return repeat_blocks(lower, values, axis, how->block, x->dims[axis]);
    *blocks = tensor.dims[axis];
    return emit_unsqueeze(lower, values, axis + 1);
}

/* x with dimension `axis` divided into blocks; x itself if there are none. */
static int divide_blocks(struct lower *lower, int x, int64_t axis, int64_t blocks) {
    struct tensor tensor = lower_tensor(lower, x);
    int64_t shape[RT_MAX_NDIM + 1];
    if (!blocks) return x;
    if (axis < 0) axis += tensor.ndim;
    for (int d = 0; d <= tensor.ndim; d++) shape[d] = tensor.dims[d <= axis ? d : d - 1];
    shape[axis + 1] = shape[axis] / blocks;
    shape[axis] = blocks;
    return emit_reshape(lower, x, tensor.ndim + 1, shape);
}

static enum rt_dtype computed_in(const struct lower *lower, int scale) {
    return lower_dtype(lower, scale) == RT_F64 ? RT_F64 : RT_F32;
}

static bool is_code_float(const struct lower *lower, int x) {
    return rt_dtypes[lower_dtype(lower, x)].kind == RT_KIND_CODE_FLOAT;
}

/* True if the codes of a float type are known to be 0. */
static bool is_code_zero(const struct lower *lower, int zero) {
    const struct tensor tensor = lower_tensor(lower, zero);
    if (!tensor.data || (tensor.kind != TENSOR_CONST && tensor.kind != TENSOR_WEIGHT)) return false;
    for (int64_t i = 0; i < tensor_bytes(&tensor); i++)
        if (((const unsigned char *)tensor.data)[i]) return false;
    return true;
}

/* True if the zero point is absent or known to be 0. */
static bool is_zero(const struct lower *lower, int zero) {
    int n;
    if (zero < 0) return true;
    if (is_code_float(lower, zero)) return is_code_zero(lower, zero);
    const int64_t *known = build_known_ints(lower->builder.graph, zero, &n);
    for (int i = 0; known && i < n; i++)
        if (known[i]) return false;
    return known != NULL;
}

int emit_dequantised(struct lower *lower, int x, const struct quantised *how, enum rt_dtype dtype) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    const enum rt_dtype real = computed_in(lower, how->scale);
    int64_t blocks;
    int scale = arrange(lower, emit_cast(lower, how->scale, real), &tensor, how, &blocks);
    if (scale < 0) return -1;
    int y = emit_cast(lower, divide_blocks(lower, x, how->axis, blocks), real);
    if (!is_zero(lower, how->zero)) {
        int zero = arrange(lower, how->zero, &tensor, how, &blocks);
        y = emit2(lower, OP_Sub, y, emit_cast(lower, zero, real));
    }
    y = emit_reshape(lower, emit2(lower, OP_Mul, y, scale), tensor.ndim, tensor.dims);
    return dtype == RT_DTYPE_NONE ? y : emit_cast(lower, y, dtype);
}

/* x in the range of the type, rounded, as integer type `dtype`; x is of f32 or f64. */
static int emit_rounded(struct lower *lower, int x, int zero, enum rt_dtype dtype) {
    if (x < 0) return -1;
    const int bits = rt_dtype_bits(dtype), is_signed = rt_dtype_is_signed(dtype);
    const double most = ldexp(1, bits - is_signed) - 1, least = is_signed ? -most - 1 : 0;
    int y = emit1(lower, OP_Round, x);
    if (zero >= 0) y = emit2(lower, OP_Add, y, emit_cast(lower, zero, lower_dtype(lower, y)));
    return emit_cast(lower, emit_with(lower, OP_Min, emit_with(lower, OP_Max, y, least), most), dtype);
}

/* The greatest finite number of an 8-bit float type; 0: of another type. */
static double greatest(enum rt_dtype dtype) {
    switch (dtype) {
    case RT_E4M3FN: return 448;
    case RT_E4M3FNUZ: return 240;
    case RT_E5M2:
    case RT_E5M2FNUZ: return 57344;
    default: return 0;
    }
}

/* E8M0 of core operator Cast rounds up. Any power of two below x times 1/2 (1 + 2^-23) is rounded up to the greatest
 * that is at most x; from 3/2 on, 4/3 x reaches the next. */
static int to_power(struct lower *lower, int x, const char *round_mode) {
    if (strcmp(round_mode, "nearest") == 0) x = emit_with(lower, OP_Mul, x, 4.0 / 3);
    if (strcmp(round_mode, "up") != 0) x = emit_with(lower, OP_Mul, x, 0.5 * (1 + 0x1p-23));
    return emit_cast(lower, x, RT_E8M0);
}

int emit_converted(struct lower *lower, int x, enum rt_dtype dtype, bool saturate, const char *round_mode) {
    const double most = greatest(dtype);
    if (x < 0 || (most == 0 && dtype != RT_E8M0)) return emit_cast(lower, x, dtype);
    if (rt_dtype_is_code(lower_dtype(lower, x)) || !rt_dtype_is_float(lower_dtype(lower, x)) || dtype == RT_E8M0)
        x = emit_cast(lower, x, RT_F32);
    if (dtype == RT_E8M0) return to_power(lower, x, round_mode);
    if (saturate && lower_dtype(lower, x) == RT_F16 && most > 65504) saturate = false;
    if (saturate) x = emit_with(lower, OP_Min, emit_with(lower, OP_Max, x, -most), most);
    return emit_cast(lower, x, dtype);
}

/* x / scale rounded to nearest even, plus zero, clamped to the range of `dtype`. The quotient is computed in the type
 * of the scale. */
static int emit_quantised(struct lower *lower, int x, const struct quantised *how, enum rt_dtype dtype) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    enum rt_dtype real = lower_dtype(lower, how->scale);
    int64_t blocks;
    if (!rt_dtype_is_float(real)) real = RT_F32;
    int scale = arrange(lower, emit_cast(lower, how->scale, real), &tensor, how, &blocks);
    if (scale < 0) return -1;
    int y = emit_cast(lower, divide_blocks(lower, x, how->axis, blocks), real);
    y = emit2(lower, OP_Div, y, scale);
    if (real != RT_F64) y = emit_cast(lower, y, RT_F32);
    int zero = is_zero(lower, how->zero) ? -1 : arrange(lower, how->zero, &tensor, how, &blocks);
    if (rt_dtype_is_integer(dtype))
        return emit_reshape(lower, emit_rounded(lower, y, zero, dtype), tensor.ndim, tensor.dims);
    if (zero >= 0)
        y = emit2(lower, OP_Add, y, emit_cast(lower, zero, lower_dtype(lower, y)));
    else if (how->zero >= 0)
        y = emit_with(lower, OP_Add, y, 0); /* -0 becomes 0 */
    y = emit_converted(lower, y, dtype, true, "up");
    return emit_reshape(lower, y, tensor.ndim, tensor.dims);
}

/* QuantizeLinear, DequantizeLinear */

/* The type that attribute output_dtype names; `other` if it is not given or 0. */
static int output_type(struct lower *lower, const char *name, enum rt_dtype other, enum rt_dtype *dtype) {
    const int64_t number = lower->op->since >= 21 || *lower->op->domain ? lower_int(lower, name) : 0;
    *dtype = !number ? other : number == (int)number ? rt_dtype_by_onnx((int)number) : RT_DTYPE_NONE;
    if (*dtype != RT_DTYPE_NONE) return 0;
    return lower_error(lower, 407, "%s %lld is not supported", name, (long long)number);
}

static struct quantised read_quantised(const struct lower *lower) {
    struct quantised how = {lower->inputs[1], lower_id(lower, 2), 1, 0};
    if (*lower->op->domain || lower->op->since >= 13) how.axis = lower_int(lower, "axis");
    if (*lower->op->domain || lower->op->since >= 21) how.block = lower_int(lower, "block_size");
    return how;
}

int lower_refuse_rounding(struct lower *lower) {
    return lower->builder.graph->train ? lower_unsupported(lower, "training, for which rounding has no gradient") : 0;
}

int lower_quantize_linear(struct lower *lower) {
    struct quantised how = read_quantised(lower);
    if (lower_refuse_rounding(lower) < 0) return -1;
    enum rt_dtype dtype = how.zero < 0 ? RT_U8 : lower_dtype(lower, how.zero), precision;
    if (output_type(lower, "output_dtype", dtype, &dtype) < 0) return -1;
    int x = lower->inputs[0];
    if (lower->op->since >= 23 && lower_int(lower, "precision")) {
        if (output_type(lower, "precision", RT_F32, &precision) < 0) return -1;
        if (!rt_dtype_is_float(precision)) return lower_unsupported(lower, "precision of no float type");
        x = emit_cast(lower, x, lower_float_type(lower, precision));
        how.scale = emit_cast(lower, how.scale, lower_float_type(lower, precision));
        if (x < 0 || how.scale < 0) return -1;
    }
    if (rt_dtype_is_float(dtype) || dtype == RT_BOOL || rt_dtype_bytes(dtype) > 2)
        return lower_unsupported(lower, "quantisation to %s", rt_dtypes[dtype].name);
    if (!greatest(dtype) || lower->op->since < 19 || lower_int(lower, "saturate"))
        return lower_result(lower, emit_quantised(lower, x, &how, dtype));
    struct tensor tensor = lower_tensor(lower, x);
    int64_t blocks;
    int scale = arrange(lower, how.scale, &tensor, &how, &blocks);
    if (scale < 0) return -1;
    int quotient = emit2(lower, OP_Div, divide_blocks(lower, x, how.axis, blocks), scale);
    return lower_result(lower, emit_reshape(lower, emit_cast(lower, quotient, dtype), tensor.ndim, tensor.dims));
}

int lower_dequantize_linear(struct lower *lower) {
    struct quantised how = read_quantised(lower);
    enum rt_dtype dtype = lower_dtype(lower, how.scale);
    if (!rt_dtype_is_float(dtype)) dtype = lower_float_type(lower, RT_F32);
    if (lower->op->since >= 23 && output_type(lower, "output_dtype", dtype, &dtype) < 0) return -1;
    return lower_result(lower, emit_dequantised(lower, lower->inputs[0], &how, lower_float_type(lower, dtype)));
}

int emit_dynamically_quantised(struct lower *lower, int x, struct quantised *how) {
    bool all[RT_MAX_NDIM];
    for (int d = 0; d < RT_MAX_NDIM; d++) all[d] = true;
    if (x < 0) return -1;
    int most = emit_with(lower, OP_Max, emit_reduce(lower, OP_ReduceMax, x, all, false), 0);
    int least = emit_with(lower, OP_Min, emit_reduce(lower, OP_ReduceMin, x, all, false), 0);
    int scale = emit_with(lower, OP_Div, emit2(lower, OP_Sub, most, least), 255);
    scale = emit3(lower, OP_Where, emit_with(lower, OP_Equal, scale, 0), emit_like(lower, scale, 1), scale);
    if (scale < 0) return -1;
    int zero = emit2(lower, OP_Div, emit1(lower, OP_Neg, least), scale);
    *how = (struct quantised){scale, emit_rounded(lower, zero, -1, RT_U8), 0, 0};
    return how->zero < 0 ? -1 : emit_quantised(lower, x, how, RT_U8);
}

int lower_dynamic_quantize(struct lower *lower) {
    struct quantised how;
    int y = lower_refuse_rounding(lower) < 0 ? -1 : emit_dynamically_quantised(lower, lower->inputs[0], &how);
    if (y < 0) return -1;
    if (lower_wants(lower, 1)) lower->outputs[1] = how.scale;
    if (lower_wants(lower, 2)) lower->outputs[2] = how.zero;
    return lower_result(lower, y);
}

/* x - zero as i32; zero has one value, or one per row or column of the matrices. */
static int shifted(struct lower *lower, int x, int zero, bool rows) {
    x = emit_cast(lower, x, RT_I32);
    if (x < 0 || zero < 0) return x;
    if (rows && lower_ndim(lower, zero) == 1) zero = emit_unsqueeze(lower, zero, 1);
    return emit2(lower, OP_Sub, x, emit_cast(lower, zero, RT_I32));
}

static bool is_byte(const struct lower *lower, int x) {
    return lower_dtype(lower, x) == RT_I8 || lower_dtype(lower, x) == RT_U8;
}

/* The same of a matrix of 8-bit floats, as f32. */
static int shifted_floats(struct lower *lower, int x, int zero, bool rows) {
    x = emit_cast(lower, x, RT_F32);
    if (x < 0 || is_zero(lower, zero)) return x;
    zero = emit_scalar(lower, zero);
    if (rows && zero >= 0 && lower_ndim(lower, zero) == 1) zero = emit_unsqueeze(lower, zero, 1);
    return emit2(lower, OP_Sub, x, emit_cast(lower, zero, RT_F32));
}

int emit_int_matmul(struct lower *lower, int a, int a_zero, int b, int b_zero, bool trans_b) {
    if (a < 0 || b < 0) return -1;
    if (is_code_float(lower, a) || is_code_float(lower, b))
        return emit_matmul(lower, shifted_floats(lower, a, a_zero, true), shifted_floats(lower, b, b_zero, false),
                           false, trans_b);
    a_zero = is_zero(lower, a_zero) ? -1 : emit_scalar(lower, a_zero);
    b_zero = is_zero(lower, b_zero) ? -1 : emit_scalar(lower, b_zero);
    struct tensor ta = lower_tensor(lower, a), tb = lower_tensor(lower, b);
    bool fits = ta.ndim >= 2 && (tb.ndim == 2 || tb.ndim == ta.ndim) && is_byte(lower, a) && is_byte(lower, b);
    for (int d = 0; fits && tb.ndim > 2 && d < ta.ndim - 2; d++) fits = ta.dims[d] == tb.dims[d];
    fits = fits && (a_zero < 0 || lower_ndim(lower, a_zero) == 0) && (b_zero < 0 || lower_ndim(lower, b_zero) <= 1);
    if (!fits)
        return emit_matmul(lower, shifted(lower, a, a_zero, true), shifted(lower, b, b_zero, false), false, trans_b);
    if (ta.dims[ta.ndim - 1] != tb.dims[tb.ndim - (trans_b ? 1 : 2)]) return lower_misfit(lower, a, b);
    const struct attr turned = attr_of_int("trans_b", trans_b);
    return emit(lower, OP_IntMatMul, 4, (int[]){a, b, a_zero, b_zero}, trans_b, &turned);
}

/* As emit_int_matmul for operands of one dimension too, which MatMul allows. */
static int multiply(struct lower *lower, int a, int a_zero, int b, int b_zero) {
    const int na = lower_ndim(lower, a), nb = lower_ndim(lower, b);
    if (na == 0 || nb == 0) return lower_misfit(lower, a, b);
    int y = emit_int_matmul(lower, na == 1 ? emit_unsqueeze(lower, a, 0) : a, a_zero,
                            nb == 1 ? emit_unsqueeze(lower, b, 1) : b, b_zero, false);
    if (nb == 1 && y >= 0) y = emit_squeeze(lower, y, lower_ndim(lower, y) - 1);
    return na == 1 && y >= 0 ? emit_squeeze(lower, y, lower_ndim(lower, y) - (nb == 1 ? 1 : 2)) : y;
}

int lower_matmul_integer(struct lower *lower) {
    return lower_result(lower,
                        multiply(lower, lower->inputs[0], lower_id(lower, 2), lower->inputs[1], lower_id(lower, 3)));
}

/* The sums of products of two quantised operands, requantised: sums times a_scale b_scale / y_scale. b's scale may be
 * one per column, or per channel (emit_per_channel). */
static int requantised(struct lower *lower, int sums, int a_scale, int b_scale, int y_scale, int y_zero) {
    if (sums < 0 || y_zero < 0) return -1;
    int factor = emit2(lower, OP_Mul, emit_scalar(lower, a_scale), emit_scalar(lower, b_scale));
    factor = emit2(lower, OP_Div, factor, emit_scalar(lower, y_scale));
    if (factor < 0) return -1;
    const enum rt_dtype real = computed_in(lower, factor);
    int y = emit2(lower, OP_Mul, emit_cast(lower, sums, real), emit_cast(lower, factor, real));
    const enum rt_dtype dtype = lower_dtype(lower, y_zero);
    const int zero = is_zero(lower, y_zero) ? -1 : emit_scalar(lower, y_zero);
    if (rt_dtype_is_integer(dtype)) return emit_rounded(lower, y, zero, dtype);
    if (zero >= 0) y = emit2(lower, OP_Add, y, emit_cast(lower, zero, real));
    return emit_converted(lower, y, dtype, true, "up");
}

int lower_qlinear_matmul(struct lower *lower) {
    const int *in = lower->inputs;
    int sums = multiply(lower, in[0], in[2], in[3], in[5]);
    int row_scale = lower_ndim(lower, in[1]) == 1 ? emit_scalar(lower, in[1]) : in[1];
    if (row_scale >= 0 && lower_ndim(lower, row_scale) == 1) row_scale = emit_unsqueeze(lower, row_scale, 1);
    return lower_result(lower, row_scale < 0 ? -1 : requantised(lower, sums, row_scale, in[4], in[6], in[7]));
}

/* Sums of a convolution of integers, whose window lower_conv reads from the node. */
static int convolve(struct lower *lower, int x, int x_zero, int w, int w_zero) {
    if (!is_byte(lower, x) || !is_byte(lower, w)) return lower_unsupported(lower, "these types");
    x_zero = is_zero(lower, x_zero) ? -1 : emit_scalar(lower, x_zero);
    w_zero = is_zero(lower, w_zero) ? -1 : emit_scalar(lower, w_zero);
    return emit_int_conv(lower, x, w, x_zero, w_zero);
}

int lower_conv_integer(struct lower *lower) {
    return lower_result(lower,
                        convolve(lower, lower->inputs[0], lower_id(lower, 2), lower->inputs[1], lower_id(lower, 3)));
}

int lower_qlinear_conv(struct lower *lower) {
    const int in[9] = {lower->inputs[0], lower->inputs[1], lower->inputs[2], lower->inputs[3],  lower->inputs[4],
                       lower->inputs[5], lower->inputs[6], lower->inputs[7], lower_id(lower, 8)};
    const int ndim = lower_ndim(lower, in[0]);
    int sums = convolve(lower, in[0], in[2], in[3], in[5]);
    if (sums >= 0 && in[8] >= 0) sums = emit2(lower, OP_Add, sums, emit_per_channel(lower, in[8], ndim));
    int scale = emit_scalar(lower, in[4]);
    if (scale >= 0 && lower_ndim(lower, scale)) scale = emit_per_channel(lower, scale, ndim);
    return lower_result(lower, requantised(lower, sums, in[1], scale, in[6], in[7]));
}

/* Inputs `at`, `at` + 1, `at` + 2 of the node: a tensor, its scale and its zero point, dequantised. */
static int dequantised(struct lower *lower, int at) {
    const struct quantised how = {lower->inputs[at + 1], lower_id(lower, at + 2), 0, 0};
    return emit_dequantised(lower, lower->inputs[at], &how, RT_DTYPE_NONE);
}

/* y quantised by inputs `at` (scale) and `at` + 1 (zero point) to the type of that, by default that of input `like`. */
static int requantise(struct lower *lower, int y, int at, int like) {
    const struct quantised how = {lower->inputs[at], lower_id(lower, at + 1), 0, 0};
    return lower_result(lower, emit_quantised(lower, y, &how, lower_dtype(lower, how.zero < 0 ? like : how.zero)));
}

/* Number `at` of the node's inputs, a scale or zero point, as f32. */
static int number(struct lower *lower, int at) {
    return lower_has(lower, at) ? emit_cast(lower, emit_scalar(lower, lower->inputs[at]), RT_F32)
                                : build_scalar(&lower->builder, RT_F32, 0);
}

/* The value, which includes the zero point (inputs 6, 7: scale and zero point of the result), in the result's type. */
static int rounded_result(struct lower *lower, int y) {
    return lower_result(lower,
                        emit_rounded(lower, y, -1, lower_dtype(lower, lower->inputs[lower_has(lower, 7) ? 7 : 0])));
}

/* In the order of ONNX Runtime's operations, whose ties are others than those of the formula: a ra + (b rb + (c_zero -
 * (ra a_zero + rb b_zero))), fused, with ra = a_scale / c_scale and rb = b_scale / c_scale. */
int lower_qlinear_add(struct lower *lower) {
    int ra = emit2(lower, OP_Div, number(lower, 1), number(lower, 6));
    int rb = emit2(lower, OP_Div, number(lower, 4), number(lower, 6));
    int zeros =
        emit2(lower, OP_Add, emit2(lower, OP_Mul, ra, number(lower, 2)), emit2(lower, OP_Mul, rb, number(lower, 5)));
    int fixed = emit2(lower, OP_Sub, number(lower, 7), zeros);
    int b = emit3(lower, OP_Fma, emit_cast(lower, lower->inputs[3], RT_F32), rb, fixed);
    return rounded_result(lower, emit3(lower, OP_Fma, emit_cast(lower, lower->inputs[0], RT_F32), ra, b));
}

/* Likewise: (a - a_zero) (b - b_zero) r + c_zero with r = a_scale b_scale / c_scale. */
int lower_qlinear_mul(struct lower *lower) {
    int ratio = emit2(lower, OP_Div, emit2(lower, OP_Mul, number(lower, 1), number(lower, 4)), number(lower, 6));
    int a = emit2(lower, OP_Sub, emit_cast(lower, lower->inputs[0], RT_F32), number(lower, 2));
    int b = emit2(lower, OP_Sub, emit_cast(lower, lower->inputs[3], RT_F32), number(lower, 5));
    int product = emit2(lower, OP_Mul, emit2(lower, OP_Mul, a, b), ratio);
    return rounded_result(lower, emit2(lower, OP_Add, product, number(lower, 7)));
}

int lower_qlinear_sigmoid(struct lower *lower) {
    return requantise(lower, emit1(lower, OP_Sigmoid, dequantised(lower, 0)), 3, lower->inputs[0]);
}

int lower_qlinear_leaky_relu(struct lower *lower) {
    const struct attr alpha = attr_of_float("alpha", lower_float(lower, "alpha"));
    int x = dequantised(lower, 0);
    return x < 0 ? -1 : requantise(lower, emit(lower, OP_LeakyRelu, 1, &x, 1, &alpha), 3, lower->inputs[0]);
}

/* Up to opset 12 of ONNX, all dimensions from the axis on are normalised together. ONNX Runtime multiplies by a whole
 * number, floor(1 / scale), to quantise. */
int lower_qlinear_softmax(struct lower *lower) {
    int x = dequantised(lower, 0), axis;
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    if (lower_axis(lower, lower_int(lower, "axis"), tensor.ndim, &axis) < 0) return -1;
    if (lower_int(lower, "opset") < 13) {
        x = emit_reshape(lower, x, 2,
                         (int64_t[]){extent_between(&tensor, 0, axis), extent_between(&tensor, axis, tensor.ndim)});
        axis = 1;
    }
    int y = emit_reshape(lower, emit_softmax(lower, OP_Softmax, x, axis), tensor.ndim, tensor.dims);
    int steps = emit1(lower, OP_Floor, emit1(lower, OP_Reciprocal, number(lower, 3)));
    const int zero = lower_id(lower, 4);
    return lower_result(lower,
                        emit_rounded(lower, emit2(lower, OP_Mul, y, steps), zero < 0 ? -1 : emit_scalar(lower, zero),
                                     lower_dtype(lower, lower->inputs[0])));
}

/* Pools input 0 by `pool`, a lowering of a float operator with the node's attributes. */
static int pool_quantised(struct lower *lower, int (*pool)(struct lower *lower)) {
    const int original = lower->inputs[0];
    const bool last = lower_int(lower, "channels_last");
    int x = dequantised(lower, 0);
    lower->inputs[0] = last ? emit_channels_second(lower, x) : x;
    int status = lower->inputs[0] < 0 ? -1 : pool(lower);
    lower->inputs[0] = original;
    if (status < 0) return -1;
    return requantise(lower, last ? emit_channels_last(lower, lower->outputs[0]) : lower->outputs[0], 3, original);
}

int lower_qlinear_average_pool(struct lower *lower) {
    return pool_quantised(lower, lower_average_pool);
}
int lower_qlinear_global_average(struct lower *lower) {
    return pool_quantised(lower, lower_global_average);
}

/* Inputs: scale and zero point of the result, then three per tensor. */
int lower_qlinear_concat(struct lower *lower) {
    int n = (lower->ninputs - 2) / 3, axis;
    int *parts = ARENA_ARRAY(lower->arena, int, n + 1);
    if (lower->ninputs % 3 != 2 || n < 1)
        return lower_error(lower, 331, "needs a scale and a zero point for each tensor");
    for (int i = 0; i < n; i++)
        if ((parts[i] = dequantised(lower, 2 + 3 * i)) < 0) return -1;
    if (lower_axis(lower, lower_int(lower, "axis"), lower_ndim(lower, parts[0]), &axis) < 0) return -1;
    return requantise(lower, emit_concat(lower, axis, n, parts), 0, lower->inputs[2]);
}

int lower_qlinear_where(struct lower *lower) {
    int y = emit3(lower, OP_Where, lower->inputs[0], dequantised(lower, 1), dequantised(lower, 4));
    return requantise(lower, y, 7, lower->inputs[1]);
}

/* A scale per column as it is, a scalar as scalar: both broadcast to rows. */
static int scaled(struct lower *lower, int sums, int a_scale, int b_scale) {
    int factor = emit2(lower, OP_Mul, emit_scalar(lower, a_scale), emit_scalar(lower, b_scale));
    return factor < 0 ? -1 : emit2(lower, OP_Mul, emit_cast(lower, sums, lower_dtype(lower, factor)), factor);
}

/* alpha A B (A times their scales) + C, the bias in units of alpha a_scale b_scale; quantised if y's scale is given. */
int lower_qgemm(struct lower *lower) {
    const int *in = lower->inputs;
    int a = in[0], b = in[3];
    if (lower_ndim(lower, a) != 2 || lower_ndim(lower, b) != 2) return lower_misfit(lower, a, b);
    if (lower_int(lower, "transA")) a = emit_transpose(lower, a, (int64_t[]){1, 0});
    int sums = emit_int_matmul(lower, a, in[2], b, in[5], lower_int(lower, "transB") != 0);
    if (lower_has(lower, 6)) sums = emit2(lower, OP_Add, sums, in[6]);
    int y = scaled(lower, sums, in[1], in[4]);
    const double alpha = lower_float(lower, "alpha");
    if (alpha != 1) y = emit_with(lower, OP_Mul, y, alpha);
    return lower_has(lower, 7) ? requantise(lower, y, 7, lower->inputs[0]) : lower_result(lower, y);
}

static int plus_bias(struct lower *lower, int y, int input) {
    return lower_has(lower, input) ? emit2(lower, OP_Add, y, lower->inputs[input]) : y;
}

int lower_matmul_integer_to_float(struct lower *lower) {
    int sums = multiply(lower, lower->inputs[0], lower_id(lower, 4), lower->inputs[1], lower_id(lower, 5));
    return lower_result(lower, plus_bias(lower, scaled(lower, sums, lower->inputs[2], lower->inputs[3]), 6));
}

int lower_dynamic_quantize_matmul(struct lower *lower) {
    struct quantised how;
    int a = emit_dynamically_quantised(lower, lower->inputs[0], &how);
    int sums = a < 0 ? -1 : multiply(lower, a, how.zero, lower->inputs[1], lower_id(lower, 3));
    return lower_result(lower, sums < 0 ? -1 : plus_bias(lower, scaled(lower, sums, how.scale, lower->inputs[2]), 4));
}

/* Codes of `bits` bits that lie in bytes, as integers of type `dtype`. */
static int unpacked(struct lower *lower, int x, int64_t bits, enum rt_dtype dtype) {
    const struct attr to = attr_of_text("to", rt_dtypes[dtype].name);
    return x < 0 || bits == 8 ? x : emit(lower, OP_Unpack, 1, &x, 1, &to);
}

/* x in another shape. A stored weight stays one: it is read from the same place. */
static int stored_as(struct lower *lower, int x, int ndim, const int64_t *shape) {
    const struct tensor tensor = lower_tensor(lower, x);
    if (tensor.kind != TENSOR_WEIGHT) return emit_reshape(lower, x, ndim, shape);
    struct graph *graph = lower->builder.graph;
    int id = graph_add_tensor(graph, TENSOR_WEIGHT, tensor.name, tensor.dtype, ndim, shape);
    graph->tensors.at[id].data = tensor.data;
    graph->tensors.at[id].stored = tensor.stored;
    return id;
}

/* The zero points (n, blocks), which are bytes of packed rows or floats; -1: 2^(bits - 1) for all. */
static int zero_points(struct lower *lower, int zero, int64_t bits, enum rt_dtype dtype, int64_t n, int64_t blocks) {
    if (zero < 0) return build_scalar(&lower->builder, RT_F32, (double)(1 << (bits - 1)));
    if (lower_dtype(lower, zero) != RT_U8) return emit_reshape(lower, zero, 2, (int64_t[]){n, blocks});
    const int64_t bytes = (blocks * bits + 7) / 8;
    zero = unpacked(lower, emit_reshape(lower, zero, 2, (int64_t[]){n, bytes}), bits, dtype);
    return emit_piece(lower, zero, 1, 0, 1, blocks);
}

/* A scale or zero point of each block (n, blocks) as one of each index of k (n, k), by the indices' blocks. */
static int of_each(struct lower *lower, int values, int blocks_of_k) {
    return lower_ndim(lower, values) ? emit_gather(lower, values, blocks_of_k, 1) : values;
}

/* The weights of MatMulNBits as floats, (n, k); groups: the block of each index of k, by g_idx. -1: in order, and (n,
 * blocks * block), with what the last block has beyond k. */
static int weights_of_bits(struct lower *lower, int64_t k, int64_t n, int64_t bits, int64_t block, int groups) {
    const enum rt_dtype dtype = bits == 8 ? RT_U8 : bits == 4 ? RT_U4 : RT_U2;
    const int64_t blocks = (k + block - 1) / block;
    int w = stored_as(lower, lower->inputs[1], 2, (int64_t[]){n, blocks * block * bits / 8});
    w = emit_cast(lower, unpacked(lower, w, bits, dtype), RT_F32);
    int scale = emit_cast(lower, stored_as(lower, lower->inputs[2], 2, (int64_t[]){n, blocks}), RT_F32);
    int zero = emit_cast(lower, zero_points(lower, lower_id(lower, 3), bits, dtype, n, blocks), RT_F32);
    if (w < 0 || scale < 0 || zero < 0) return -1;
    if (groups >= 0)
        return emit2(lower, OP_Mul,
                     emit2(lower, OP_Sub, emit_piece(lower, w, 1, 0, 1, k), of_each(lower, zero, groups)),
                     of_each(lower, scale, groups));
    if (lower_ndim(lower, zero)) zero = emit_unsqueeze(lower, zero, 2);
    w = emit2(lower, OP_Sub, emit_reshape(lower, w, 3, (int64_t[]){n, blocks, block}), zero);
    return emit_reshape(lower, emit2(lower, OP_Mul, w, emit_unsqueeze(lower, scale, 2)), 2,
                        (int64_t[]){n, blocks * block});
}

/* g_idx: the block whose scale and zero point an index of k has. *groups becomes -1 if that is the order of blocks. */
static int read_groups(struct lower *lower, int64_t k, int64_t block, int *groups) {
    *groups = -1;
    if (!lower_has(lower, 4)) return 0;
    const struct tensor given = lower_input(lower, 4);
    int n;
    if (given.ndim != 1 || given.dims[0] < k) return lower_misfit(lower, lower->inputs[0], lower->inputs[4]);
    const int64_t *known = build_known_ints(lower->builder.graph, lower->inputs[4], &n);
    bool in_order = known != NULL;
    for (int64_t i = 0; i < k && in_order; i++) in_order = known[i] == i / block;
    if (in_order) return 0;
    return *groups = emit_piece(lower, lower->inputs[4], 0, 0, 1, k);
}

/* x times w, (n, k). At accuracy level 4 kernels may round x to 8 bits. */
static int times_weights(struct lower *lower, int x, int w) {
    const struct attr attrs[] = {attr_of_int("trans_b", 1), attr_of_int("rounded", 1)};
    if (lower_int(lower, "accuracy_level") != 4 || x < 0 || lower_ndim(lower, x) < 2)
        return emit_matmul(lower, x, w, false, true);
    return w < 0 ? -1 : emit(lower, OP_MatMul, 2, (int[]){x, w}, 2, attrs);
}

/* x times weights (n, k) of 2, 4 or 8 bits; each block of `block_size` indices of k has a scale and a zero point. */
int lower_matmul_nbits(struct lower *lower) {
    const int64_t k = lower_int(lower, "K"), n = lower_int(lower, "N"), bits = lower_int(lower, "bits"),
                  block = lower_int(lower, "block_size");
    if (bits != 2 && bits != 4 && bits != 8) return lower_unsupported(lower, "%lld bit(s)", (long long)bits);
    if (k < 1 || n < 1 || block < 8 || k > INT32_MAX || n > INT32_MAX || block > INT32_MAX)
        return lower_error(lower, 374, "K, N or block_size is out of range");
    struct tensor b = lower_input(lower, 1), scales = lower_input(lower, 2), zeros = {.dtype = RT_U8};
    const int64_t blocks = (k + block - 1) / block;
    if (lower_has(lower, 3)) zeros = lower_input(lower, 3);
    const int64_t zero_count = zeros.dtype == RT_U8 ? n * ((blocks * bits + 7) / 8) : n * blocks;
    if (b.dtype != RT_U8 || tensor_elements(&b) != n * blocks * (block * bits / 8) ||
        tensor_elements(&scales) != n * blocks || (lower_has(lower, 3) && tensor_elements(&zeros) != zero_count))
        return lower_error(lower, 378,
                           "the weights, scales or zero points do not have the size that "
                           "K, N, bits and block_size say");
    int groups = -1;
    if (read_groups(lower, k, block, &groups) < 0) return -1;
    int x = lower->inputs[0];
    int w = emit_cast(lower, weights_of_bits(lower, k, n, bits, block, groups), lower_dtype(lower, x));
    if (groups < 0 && k < blocks * block) x = emit_padded(lower, x, lower_ndim(lower, x) - 1, 0, blocks * block - k, 0);
    return lower_result(lower, plus_bias(lower, times_weights(lower, x, w), 5));
}
