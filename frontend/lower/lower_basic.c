/* Values, types, and compositions of elementwise operators. */
#include "frontend/lower/onnx_lower.h"
#include "frontend/read/onnx_data.h"

#include <math.h>

#include "ir/expr/eval.h"
#include "runtime/base/checked.h"

int lower_identity(struct lower *l) {
    return lower_result(l, l->inputs[0]);
}

/* Dropout ---------------------------------------------------------------------------------------------------------- */

static int dropped(struct lower *l, int x, double ratio, int64_t key) {
    struct graph *graph = l->b.graph;
    struct attr attrs[] = {attr_of_float("ratio", ratio), attr_of_int("key", key)};
    int inputs[] = {x, graph_control(graph, CONTROL_training), graph_control(graph, CONTROL_step),
                    graph_control(graph, CONTROL_micro)};
    return x < 0 ? -1 : emit(l, OP_Dropout, 4, inputs, 2, attrs);
}

/* The ratio, and whether the node drops elements. Before opset 12 a model does not say so: all do that are trained. */
static int read_dropout(struct lower *l, double *ratio, bool *drops) {
    double training = 0;
    *ratio = 0.5;
    if (l->op->since < 12) {
        *ratio = lower_float(l, "ratio");
        training = l->train && (l->op->since > 1 || !lower_int(l, "is_test"));
    }
    if (lower_has(l, 2) && lower_known_float(l, 2, "training_mode", &training) < 0) return -1;
    if (lower_has(l, 1) && lower_known_float(l, 1, "ratio", ratio) < 0) return -1;
    if (!(*ratio >= 0 && *ratio < 1)) return lower_error(l, 387, EXIT_MALFORMED, "ratio %g is not in [0, 1)", *ratio);
    *drops = training != 0 && *ratio != 0;
    if (!*drops || l->train) return 0;
    lower_unsupported(l, "training mode without --train");
    return diag_help(l->b.diags, "export the model for evaluation, or compile it with --train"), -1;
}

/* ONNX Dropout-13: the identity where it does not drop, and in evaluation. Mask: which elements were kept. */
int lower_dropout(struct lower *l) {
    struct tensor x = lower_input(l, 0);
    double ratio;
    bool drops = false;
    if (read_dropout(l, &ratio, &drops) < 0) return -1;
    if (!drops) {
        if (lower_wants(l, 1)) l->outputs[1] = emit_expand(l, build_scalar(&l->b, RT_BOOL, 1), x.ndim, x.dims);
        return lower_result(l, l->inputs[0]);
    }
    int64_t key = lower_random_key(l, l->op->since >= 12 ? lower_int(l, "seed") : 0);
    if (lower_wants(l, 1)) {
        int ones = emit_expand(l, emit_like(l, l->inputs[0], 1), x.ndim, x.dims);
        l->outputs[1] = emit_with(l, OP_Greater, dropped(l, ones, ratio, key), 0);
    }
    return lower_result(l, dropped(l, l->inputs[0], ratio, key));
}

/* Types ----------------------------------------------------------------------------------------------------------- */

int lower_cast(struct lower *l) {
    int64_t to = lower_int(l, "to");
    enum rt_dtype dtype = to == (int)to ? rt_dtype_by_onnx((int)to) : RT_DTYPE_NONE;
    bool exists = to == (int)to && onnx_type_name((int)to);
    if (!exists) return lower_error(l, 388, EXIT_MALFORMED, "no data type %lld to cast to", (long long)to);
    if (dtype == RT_DTYPE_NONE)
        return lower_error(l, 388, EXIT_UNSUPPORTED, "cast to data type %s: not supported", onnx_type_name((int)to));
    return lower_result(l, emit_cast(l, l->inputs[0], lower_float_type(l, dtype)));
}

int lower_cast_like(struct lower *l) {
    return lower_result(l, emit_cast(l, l->inputs[0], lower_dtype(l, l->inputs[1])));
}

/* Constants ------------------------------------------------------------------------------------------------------- */

static int constant(struct lower *l, enum rt_dtype dtype, int ndim, int64_t n, const void *values, enum rt_dtype from) {
    enum rt_dtype to = lower_float_type(l, dtype);
    void *bytes = arena_alloc(l->b.graph->arena, (size_t)n + 1, rt_dtype_bytes(to));
    if (n) rt_retype(bytes, to, values, from, (size_t)n);
    return graph_add_const(l->b.graph, l->b.node, to, ndim, &n, bytes);
}

int lower_constant(struct lower *l) {
    int n;
    l->dispute = DISPUTED_CONSTANT;
    if (l->node->n_attribute != 1) return lower_error(l, 336, EXIT_MALFORMED, "Constant needs one attribute");
    if (lower_given(l, "value")) return lower_result(l, lower_proto(l, lower_attribute(l, "value")->t));
    if (lower_given(l, "value_float")) {
        double value = lower_float(l, "value_float");
        return lower_result(l, constant(l, RT_F32, 0, 1, &value, RT_F64));
    }
    if (lower_given(l, "value_int")) {
        int64_t value = lower_int(l, "value_int");
        return lower_result(l, constant(l, RT_I64, 0, 1, &value, RT_I64));
    }
    const float *floats = lower_floats(l, "value_floats", &n);
    if (lower_given(l, "value_floats")) return lower_result(l, constant(l, RT_F32, 1, n, floats, RT_F32));
    const int64_t *ints = lower_ints(l, "value_ints", &n);
    if (ints) return lower_result(l, constant(l, RT_I64, 1, n, ints, RT_I64));
    return lower_error(l, 407, EXIT_UNSUPPORTED, "constants of strings and sparse tensors are not supported");
}

/* `value`, one element, repeated. */
static int fill(struct lower *l, int value, int n, const int64_t *shape) {
    int64_t elements;
    if (value < 0) return -1;
    if (n > MAX_NDIM) return lower_error(l, 506, EXIT_LIMIT, "a shape of %d dimensions: at most %d", n, MAX_NDIM);
    for (int d = 0; d < n; d++)
        if (shape[d] < 0) return lower_error(l, 377, EXIT_MALFORMED, "negative extent %lld", (long long)shape[d]);
    if (!rt_product(shape, n, &elements) || elements >> 43)
        return lower_error(l, 505, EXIT_LIMIT, "the result is too large");
    return emit_expand(l, emit_reshape(l, value, 0, NULL), n, shape);
}

int lower_constant_of_shape(struct lower *l) {
    int n;
    const int64_t *shape = lower_known(l, 0, "shape", &n);
    if (!shape) return -1;
    bool given = lower_given(l, "value");
    int value =
        given ? lower_proto(l, lower_attribute(l, "value")->t) : build_scalar(&l->b, lower_float_type(l, RT_F32), 0);
    if (value < 0) return -1;
    struct tensor one = lower_tensor(l, value);
    if (tensor_elements(&one) != 1) return lower_error(l, 384, EXIT_MALFORMED, "value must have one element");
    return lower_result(l, fill(l, value, n, shape));
}

int lower_shape(struct lower *l) {
    struct tensor x = lower_input(l, 0);
    int64_t start = lower_int(l, "start"), end = lower_given(l, "end") ? lower_int(l, "end") : x.ndim;
    if (start < 0) start += x.ndim;
    if (end < 0) end += x.ndim;
    start = start < 0 ? 0 : start > x.ndim ? x.ndim : start;
    end = end < start ? start : end > x.ndim ? x.ndim : end;
    int64_t n = end - start;
    return lower_result(l, emit_ints(l, (int)n, x.dims + start, 1, &n));
}

int lower_size(struct lower *l) {
    struct tensor x = lower_input(l, 0);
    int64_t elements = tensor_elements(&x);
    return lower_result(l, emit_ints(l, 1, &elements, 0, NULL));
}

/* Range over floats: the count is rounded up in double precision, as ONNX's reference does. */
static int range_of_floats(struct lower *l, enum rt_dtype dtype) {
    double bound[3];
    static const char *const what[] = {"start", "limit", "delta"};
    for (int i = 0; i < 3; i++)
        if (lower_known_float(l, i, what[i], &bound[i]) < 0) return -1;
    double count = ceil((bound[1] - bound[0]) / bound[2]);
    if (!(bound[2] != 0) || isnan(count))
        return lower_error(l, 383, EXIT_MALFORMED, "no range from %g to %g by %g", bound[0], bound[1], bound[2]);
    if (count > 1 << 28) return lower_error(l, 505, EXIT_LIMIT, "a range of %g elements", count);
    int64_t n = count < 0 ? 0 : (int64_t)count;
    double *values = ARENA_ARRAY(l->b.graph->arena, double, n + 1);
    for (int64_t i = 0; i < n; i++) values[i] = bound[0] + (double)i * bound[2];
    return constant(l, dtype, 1, n, values, RT_F64);
}

static int range_of_ints(struct lower *l, enum rt_dtype dtype) {
    int64_t start, limit, delta, span;
    if (lower_known_int(l, 0, "start", &start) < 0 || lower_known_int(l, 1, "limit", &limit) < 0 ||
        lower_known_int(l, 2, "delta", &delta) < 0)
        return -1;
    if (delta == 0) return lower_error(l, 383, EXIT_MALFORMED, "delta is 0");
    if (__builtin_sub_overflow(limit, start, &span)) return lower_error(l, 505, EXIT_LIMIT, "the range is too long");
    int64_t n = (span > 0) == (delta > 0) && span ? (span > 0 ? span - 1 : span + 1) / delta + 1 : 0;
    if (n > 1 << 28) return lower_error(l, 505, EXIT_LIMIT, "a range of %lld elements", (long long)n);
    int64_t *values = ARENA_ARRAY(l->b.graph->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) values[i] = start + i * delta;
    return constant(l, dtype, 1, n, values, RT_I64);
}

int lower_range(struct lower *l) {
    enum rt_dtype dtype = lower_dtype(l, l->inputs[0]);
    return lower_result(l, rt_dtype_is_float(dtype) ? range_of_floats(l, dtype) : range_of_ints(l, dtype));
}

/* ONNX EyeLike-9: ones at column == row + k. */
int lower_eye_like(struct lower *l) {
    struct tensor x = lower_input(l, 0);
    enum rt_dtype dtype = x.dtype;
    if (lower_given(l, "dtype")) dtype = lower_float_type(l, rt_dtype_by_onnx((int)lower_int(l, "dtype")));
    if (dtype == RT_DTYPE_NONE) return lower_error(l, 407, EXIT_UNSUPPORTED, "the result's type is not supported");
    if (x.ndim != 2) return lower_error(l, 378, EXIT_MALFORMED, "the input has %d dimensions, not 2", x.ndim);
    int ones = fill(l, build_scalar(&l->b, RT_I32, 1), 2, x.dims);
    if (ones < 0) return -1;
    struct attr attrs[] = {attr_of_int("upper", 1), attr_of_int("k", lower_int(l, "k"))};
    int upper = emit(l, OP_Trilu, 1, &ones, 2, attrs);
    if (upper < 0) return -1;
    attrs[0].value = 0;
    return lower_result(l, emit_cast(l, emit(l, OP_Trilu, 1, &upper, 2, attrs), dtype));
}

/* Elementwise ----------------------------------------------------------------------------------------------------- */

static int fold_inputs(struct lower *l, enum op_id op) {
    int x = l->inputs[0];
    for (int i = 1; i < l->ninputs; i++) x = emit2(l, op, x, l->inputs[i]);
    return x;
}

int lower_sum(struct lower *l) {
    return lower_result(l, fold_inputs(l, OP_Add));
}
int lower_max(struct lower *l) {
    return lower_result(l, fold_inputs(l, OP_Max));
}
int lower_min(struct lower *l) {
    return lower_result(l, fold_inputs(l, OP_Min));
}

int lower_mean(struct lower *l) {
    int sum = fold_inputs(l, OP_Add);
    return lower_result(l, l->ninputs == 1 ? sum : emit_with(l, OP_Mul, sum, 1.0 / l->ninputs));
}

int lower_clip(struct lower *l) {
    bool attributes = l->op->since < 11;
    int x = l->inputs[0];
    if (attributes && lower_given(l, "min")) x = emit_with(l, OP_Max, x, lower_float(l, "min"));
    if (attributes && lower_given(l, "max")) x = emit_with(l, OP_Min, x, lower_float(l, "max"));
    if (lower_has(l, 1)) x = emit2(l, OP_Max, x, l->inputs[1]);
    if (lower_has(l, 2)) x = emit2(l, OP_Min, x, l->inputs[2]);
    return lower_result(l, x);
}

/* ONNX Pow-15: the exponent may have another type; the result has the base's. An integer to a float is computed in the
 * exponent's type. */
int lower_pow(struct lower *l) {
    int base = l->inputs[0], exponent = l->inputs[1];
    enum rt_dtype result = lower_dtype(l, base), type = lower_dtype(l, exponent);
    if (!rt_dtype_is_float(result) && rt_dtype_is_float(type))
        base = emit_cast(l, base, type);
    else
        exponent = emit_cast(l, exponent, result);
    return lower_result(l, emit_cast(l, emit2(l, OP_Pow, base, exponent), result));
}

/* Elementwise up to opset 6: with broadcast, b's dimensions are a's from `axis` on, by default the last ones. */
int lower_aligned(struct lower *l) {
    struct tensor a = lower_input(l, 0), b = lower_input(l, 1);
    int64_t axis = lower_given(l, "axis") ? lower_int(l, "axis") : a.ndim - b.ndim, shape[MAX_NDIM];
    if (!lower_int(l, "broadcast")) axis = 0;
    if (axis < 0) axis += a.ndim;
    if (axis < 0 || axis > a.ndim - b.ndim) return lower_misfit(l, l->inputs[0], l->inputs[1]);
    for (int d = 0; d < a.ndim; d++) shape[d] = d < axis || d >= axis + b.ndim ? 1 : b.dims[d - axis];
    return lower_result(l, emit2(l, lower_namesake(l), l->inputs[0], emit_reshape(l, l->inputs[1], a.ndim, shape)));
}

/* PRelu up to opset 6: one slope, or one per channel. */
int lower_channel_slope(struct lower *l) {
    struct tensor x = lower_input(l, 0), slope = lower_input(l, 1);
    bool per_channel = slope.ndim == 1 && x.ndim > 2 && slope.dims[0] == x.dims[1];
    int aligned = per_channel ? emit_per_channel(l, l->inputs[1], x.ndim) : l->inputs[1];
    return lower_result(l, emit2(l, OP_PRelu, l->inputs[0], aligned));
}

int lower_mod(struct lower *l) {
    bool fmod = lower_int(l, "fmod");
    return lower_result(l, emit2(l, fmod ? OP_Fmod : OP_Mod, l->inputs[0], l->inputs[1]));
}

int lower_is_inf(struct lower *l) {
    struct attr attrs[] = {attr_of_int("positive", lower_int(l, "detect_positive")),
                           attr_of_int("negative", lower_int(l, "detect_negative"))};
    return lower_result(l, emit(l, OP_IsInf, 1, l->inputs, 2, attrs));
}

int lower_gelu(struct lower *l) {
    const char *approximate = lower_text(l, "approximate");
    bool tanh = strcmp(approximate, "tanh") == 0;
    if (!tanh && strcmp(approximate, "none") != 0)
        return lower_error(l, 335, EXIT_MALFORMED, "approximate is neither 'none' nor 'tanh'");
    return lower_result(l, emit1(l, tanh ? OP_GeluTanh : OP_Gelu, l->inputs[0]));
}

/* ONNX SwiGLU-28: swish(a) b. */
int lower_swiglu(struct lower *l) {
    struct attr alpha = attr_of_float("alpha", lower_float(l, "alpha"));
    return lower_result(l, emit2(l, OP_Mul, emit(l, OP_Swish, 1, l->inputs, 1, &alpha), l->inputs[1]));
}
