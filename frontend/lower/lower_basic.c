/* Operators that create values, conversions of type, and compositions of elementwise operators. */
#include "frontend/lower/lower_counted.h"
#include "frontend/lower/lower_quantise.h"
#include "frontend/lower/lowering_state.h"
#include "frontend/read/onnx_data.h"

#include <math.h>

#include "ir/expr/eval.h"

/* PyTorch's exporter with dynamo=True and optimize=False (seen with 2.15) writes detach() as an Identity, of which the
 * node's name alone tells. */
static bool was_detach(const struct lower *lower) {
    static const char name[] = "node_detach";
    return lower->builder.graph->train && !lower_is_sequence(lower->inputs[0]) && lower_made_by(lower, "pytorch") &&
           !strncmp(onnx_text(lower->node->name), name, sizeof name - 1);
}

int lower_identity(struct lower *lower) {
    return lower_result(lower, was_detach(lower) ? emit1(lower, OP_Detach, lower->inputs[0]) : lower->inputs[0]);
}

/* In a program for training, evaluation drops nothing; in one for inference, every step drops. */
static int dropped(struct lower *lower, int x, double ratio, int64_t key) {
    struct graph *graph = lower->builder.graph;
    struct attr attrs[] = {attr_of_float("ratio", ratio), attr_of_int("key", key)};
    int training =
        lower->builder.graph->train ? graph_control(graph, RT_TRAINING) : build_scalar(&lower->builder, RT_F64, 1);
    int inputs[] = {x, training, graph_control(graph, RT_STEP), graph_control(graph, RT_MICRO)};
    return emit(lower, OP_Dropout, 4, inputs, 2, attrs);
}

/* Reads the ratio and whether the node drops elements. Before opset 12 there is no training_mode: nodes drop when the
 * model is trained. */
static int read_dropout(struct lower *lower, double *ratio, bool *drops) {
    double training = 0;
    *ratio = 0.5;
    if (lower->op->since < 12) {
        *ratio = lower_float(lower, "ratio");
        training = lower->builder.graph->train && (lower->op->since > 6 || !lower_int(lower, "is_test"));
    }
    if (lower_has(lower, 2) && lower_known_float(lower, 2, "training_mode", &training) < 0) return -1;
    if (lower_has(lower, 1) && lower_known_float(lower, 1, "ratio", ratio) < 0) return -1;
    if (!(*ratio >= 0 && *ratio < 1)) return lower_error(lower, 387, "ratio %g is not in [0, 1)", *ratio);
    *drops = training != 0 && *ratio != 0;
    if (*drops && !lower->builder.graph->train)
        diag_remark(lower->builder.diags, lower_where(lower), "elements are dropped: training_mode is true");
    return 0;
}

/* ONNX Dropout-13: the identity in evaluation and for a ratio of 0. Output 1, the mask: which elements were kept. */
int lower_dropout(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    double ratio;
    bool drops = false;
    if (read_dropout(lower, &ratio, &drops) < 0) return -1;
    if (!drops) {
        if (lower_wants(lower, 1))
            lower->outputs[1] = emit_expand(lower, build_scalar(&lower->builder, RT_BOOL, 1), x.ndim, x.dims);
        return lower_result(lower, lower->inputs[0]);
    }
    int64_t key = lower_random_key(lower, lower->op->since >= 12 ? lower_int(lower, "seed") : 0);
    if (lower_wants(lower, 1)) {
        int ones = emit_expand(lower, emit_like(lower, lower->inputs[0], 1), x.ndim, x.dims);
        lower->outputs[1] = emit_with(lower, OP_Greater, dropped(lower, ones, ratio, key), 0);
    }
    return lower_result(lower, dropped(lower, lower->inputs[0], ratio, key));
}

/* Attribute `to`; RT_DTYPE_NONE after a diagnostic. */
static enum rt_dtype cast_type(struct lower *lower) {
    int64_t to = lower_int(lower, "to");
    enum rt_dtype dtype = to == (int)to ? rt_dtype_by_onnx((int)to) : RT_DTYPE_NONE;
    bool exists = to == (int)to && onnx_type_name((int)to);
    if (!exists)
        lower_error(lower, 388, "unknown data type %lld to cast to", (long long)to);
    else if (dtype == RT_DTYPE_NONE)
        diag_error(lower->builder.diags, 388, EXIT_UNSUPPORTED, lower_where(lower),
                   "cast to data type %s is not supported", onnx_type_name((int)to));
    return dtype;
}

static int cast_to(struct lower *lower, enum rt_dtype dtype) {
    const char *mode = lower_text(lower, "round_mode");
    if (strcmp(mode, "up") != 0 && strcmp(mode, "down") != 0 && strcmp(mode, "nearest") != 0)
        return lower_unknown(lower, "round_mode", mode);
    return lower_result(lower, emit_converted(lower, lower->inputs[0], dtype, lower_int(lower, "saturate") != 0, mode));
}

int lower_cast(struct lower *lower) {
    enum rt_dtype dtype = cast_type(lower);
    return dtype == RT_DTYPE_NONE ? -1 : cast_to(lower, lower_float_type(lower, dtype));
}

int lower_bit_cast(struct lower *lower) {
    enum rt_dtype dtype = cast_type(lower);
    return dtype == RT_DTYPE_NONE ? -1 : lower_result(lower, emit_bit_cast(lower, lower->inputs[0], dtype));
}

int lower_cast_like(struct lower *lower) {
    return cast_to(lower, lower_dtype(lower, lower->inputs[1]));
}

static int constant(struct lower *lower, enum rt_dtype dtype, int ndim, int64_t n, const void *values,
                    enum rt_dtype from) {
    return lowering_constant(lower->shared, lower->builder.node, dtype, ndim, &n, values, from);
}

int lower_constant(struct lower *lower) {
    int n;
    if (lower->node->n_attribute != 1) return lower_error(lower, 336, "Constant needs one attribute");
    if (lower_given(lower, "value")) return lower_result(lower, lower_proto(lower, lower_attribute(lower, "value")->t));
    if (lower_given(lower, "sparse_value"))
        return lower_result(lower, lower_sparse(lower, lower_attribute(lower, "sparse_value")->sparse_tensor));
    if (lower_given(lower, "value_float")) {
        double value = lower_float(lower, "value_float");
        return lower_result(lower, constant(lower, RT_F32, 0, 1, &value, RT_F64));
    }
    if (lower_given(lower, "value_int")) {
        int64_t value = lower_int(lower, "value_int");
        return lower_result(lower, constant(lower, RT_I64, 0, 1, &value, RT_I64));
    }
    const float *floats = lower_floats(lower, "value_floats", &n);
    if (lower_given(lower, "value_floats")) return lower_result(lower, constant(lower, RT_F32, 1, n, floats, RT_F32));
    const int64_t *ints = lower_ints(lower, "value_ints", &n);
    if (ints) return lower_result(lower, constant(lower, RT_I64, 1, n, ints, RT_I64));
    return lower_error(lower, 407, "constants of strings are not supported");
}

/* Broadcasts `value`, a tensor of one element. */
static int fill(struct lower *lower, int value, int n, const int64_t *shape) {
    if (value < 0) return -1;
    if (n > RT_MAX_NDIM)
        return lower_error(lower, 506, "a shape of %d dimension(s): at most %d are supported", n, RT_MAX_NDIM);
    for (int d = 0; d < n; d++)
        if (shape[d] < 0) return lower_error(lower, 377, "negative extent %lld", (long long)shape[d]);
    if (!graph_shape_fits(lower->builder.graph, n, shape)) return lower_too_large(lower);
    return emit_expand(lower, emit_reshape(lower, value, 0, NULL), n, shape);
}

int lower_constant_of_shape(struct lower *lower) {
    int n, open = -1;
    int64_t extents[RT_MAX_NDIM];
    const struct amount *shape = lower_amounts(lower, 0, "shape", &n);
    if (!shape) return -1;
    bool given = lower_given(lower, "value");
    int value = given ? lower_proto(lower, lower_attribute(lower, "value")->t)
                      : build_scalar(&lower->builder, lower_float_type(lower, RT_F32), 0);
    if (value < 0) return -1;
    struct tensor one = lower_tensor(lower, value);
    if (tensor_elements(&one) != 1) return lower_error(lower, 384, "value must have exactly one element");
    for (int d = 0; d < n && d < RT_MAX_NDIM; d++) {
        if (shape[d].n && open >= 0) return lower_too_open(lower);
        if (shape[d].n) open = d;
        extents[d] = shape[d].n ? (shape[d].most > 0 ? shape[d].most : 0) : shape[d].offset;
    }
    const int y = fill(lower, value, n, extents);
    return lower_result(lower, open < 0 ? y : lower_sized(lower, y, open, &shape[open]));
}

/* The extents of dimensions start to end - 1, of which one is a count. */
static int counted_shape(struct lower *lower, const struct counted *counted, const struct tensor *x, int start,
                         int end) {
    const int64_t before = counted->dim - start, behind = end - counted->dim - 1;
    int parts[3], n = 0;
    if (before) parts[n++] = emit_ints(lower, (int)before, x->dims + start, 1, &before);
    parts[n++] = emit_reshape(lower, counted->count, 1, (int64_t[]){1});
    if (behind) parts[n++] = emit_ints(lower, (int)behind, x->dims + counted->dim + 1, 1, &behind);
    return n == 1 ? parts[0] : emit_concat(lower, 0, n, parts);
}

int lower_shape(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int64_t start = lower_int(lower, "start"), end = lower_given(lower, "end") ? lower_int(lower, "end") : x.ndim;
    if (start < 0) start += x.ndim;
    if (end < 0) end += x.ndim;
    start = start < 0 ? 0 : start > x.ndim ? x.ndim : start;
    end = end < start ? start : end > x.ndim ? x.ndim : end;
    int64_t n = end - start;
    const struct counted *counted = lower_counted(lower, lower->inputs[0]);
    if (counted && counted->dim >= start && counted->dim < end)
        return lower_result(lower, counted_shape(lower, counted, &x, (int)start, (int)end));
    return lower_result(lower, emit_ints(lower, (int)n, x.dims + start, 1, &n));
}

int lower_size(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    const struct counted *counted = lower_counted(lower, lower->inputs[0]);
    if (counted) x.dims[counted->dim] = 1;
    int64_t elements = tensor_elements(&x);
    int size = emit_ints(lower, 1, &elements, 0, NULL);
    return lower_result(lower, counted ? emit2(lower, OP_Mul, counted->count, size) : size);
}

/* Integers to a limit, or from a start, that depends on open sizes. */
static int range_of_open(struct lower *lower, enum rt_dtype dtype, int64_t start, int64_t limit, int64_t delta) {
    struct open_sizes *open = lower->builder.graph->open;
    const int64_t by = delta == INT64_MIN ? INT64_MAX : delta < 0 ? -delta : delta;
    int64_t span = delta < 0 ? open_sum(open, start, -limit) : open_sum(open, limit, -start), n;
    if (by > 1) span = open_quotient(open, open_sum(open, span, by - 1), by);
    n = open_greater(open, span, 0);
    const int places = emit_places(lower, 0, n, 1, 0);
    const int steps = delta == 1 ? places : emit_with(lower, OP_Mul, places, (double)delta);
    const int y = start ? emit2(lower, OP_Add, steps, emit_ints(lower, 1, &start, 0, NULL)) : steps;
    return emit_cast(lower, y, dtype);
}

/* The integer that a float input is: a constant, or the cast of one that is known up to open sizes. */
static bool whole_number(struct lower *lower, int input, int64_t *value) {
    struct graph *graph = lower->builder.graph;
    const struct tensor tensor = lower_input(lower, input);
    const struct node *producer = tensor.producer < 0 ? NULL : &graph->nodes.at[tensor.producer];
    int n;
    const int64_t *ints =
        producer && producer->op->id == OP_Cast ? build_known_ints(graph, producer->inputs[0], &n) : NULL;
    if (ints && n == 1) {
        *value = ints[0];
        return true;
    }
    if (tensor.kind != TENSOR_CONST || tensor_elements(&tensor) != 1) return false;
    const double number = eval_load(tensor.data, tensor.dtype, 0).f;
    *value = fabs(number) < 1 << 28 ? (int64_t)number : 0;
    return (double)*value == number;
}

/* Range over floats: the count is rounded up in double precision, as ONNX's reference does. */
static int range_of_floats(struct lower *lower, enum rt_dtype dtype) {
    double bound[3];
    static const char *const what[] = {"start", "limit", "delta"};
    int64_t whole[3];
    struct open_sizes *open = lower->builder.graph->open;
    bool all = true;
    for (int i = 0; i < 3 && all; i++) all = whole_number(lower, i, &whole[i]);
    if (all && whole[2] && (open_is(open, whole[0]) || open_is(open, whole[1])) && !open_is(open, whole[2]))
        return range_of_open(lower, dtype, whole[0], whole[1], whole[2]);
    for (int i = 0; i < 3; i++)
        if (lower_known_float(lower, i, what[i], &bound[i]) < 0) return -1;
    double count = ceil((bound[1] - bound[0]) / bound[2]);
    if (!(bound[2] != 0) || isnan(count))
        return lower_error(lower, 383, "invalid range from %g to %g by step %g", bound[0], bound[1], bound[2]);
    if (count > 1 << 28) return lower_error(lower, 505, "a range of %g elements is too long", count);
    int64_t n = count < 0 ? 0 : (int64_t)count;
    double *values = ARENA_ARRAY(lower->arena, double, n + 1);
    for (int64_t i = 0; i < n; i++) values[i] = bound[0] + (double)i * bound[2];
    return constant(lower, dtype, 1, n, values, RT_F64);
}

/* A limit that depends on data, of which no bound is known, is most often the number of tokens that an expert gets. */
static int refuse_unbounded(struct lower *lower, int64_t n) {
    lower_error(lower, 505, "a range of up to %lld elements, whose limit depends on data, is too long", (long long)n);
    return lower_help_experts(lower);
}

/* Integers from a known start by a known step, up to a limit that may depend on data. */
static int range_of_ints(struct lower *lower, enum rt_dtype dtype) {
    int64_t start, delta, span;
    int one;
    if (lower_known_int(lower, 0, "start", &start) < 0 || lower_known_int(lower, 2, "delta", &delta) < 0) return -1;
    const struct amount *limit = lower_amounts(lower, 1, "limit", &one);
    if (!limit) return -1;
    if (one != 1) return lower_error(lower, 384, "limit must be one value, but %d are given", one);
    if (delta == 0) return lower_error(lower, 383, "delta is 0");
    const int64_t last = !limit->n ? limit->offset : delta > 0 ? limit->most : limit->least;
    if (__builtin_sub_overflow(last, start, &span)) return lower_error(lower, 505, "the range is too long");
    int64_t n = (span > 0) == (delta > 0) && span ? (span > 0 ? span - 1 : span + 1) / delta + 1 : 0;
    if (open_is(lower->builder.graph->open, last) || open_is(lower->builder.graph->open, start))
        return range_of_open(lower, dtype, start, last, delta);
    if (n > 1 << 28 && limit->n) return refuse_unbounded(lower, n);
    if (n > 1 << 28) return lower_error(lower, 505, "a range of %lld element(s) is too long", (long long)n);
    int64_t *values = ARENA_ARRAY(lower->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) values[i] = start + i * delta;
    const int y = constant(lower, dtype, 1, n, values, RT_I64);
    if (!limit->n) return y;
    const struct amount size = lower_steps(lower, limit, start, delta);
    return lower_sized(lower, y, 0, &size);
}

int lower_range(struct lower *lower) {
    enum rt_dtype dtype = lower_dtype(lower, lower->inputs[0]);
    return lower_result(lower, rt_dtype_is_float(dtype) ? range_of_floats(lower, dtype) : range_of_ints(lower, dtype));
}

/* ONNX EyeLike-9: ones at column == row + k. */
int lower_eye_like(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    enum rt_dtype dtype = x.dtype;
    if (lower_given(lower, "dtype")) dtype = lower_float_type(lower, rt_dtype_by_onnx((int)lower_int(lower, "dtype")));
    if (dtype == RT_DTYPE_NONE) return lower_error(lower, 407, "the result's type is not supported");
    if (x.ndim != 2) return lower_error(lower, 378, "the input has %d dimension(s), not 2", x.ndim);
    int ones = fill(lower, build_scalar(&lower->builder, RT_I32, 1), 2, x.dims);
    if (ones < 0) return -1;
    struct attr attrs[] = {attr_of_int("upper", 1), attr_of_int("k", lower_int(lower, "k"))};
    int upper = emit(lower, OP_Trilu, 1, &ones, 2, attrs);
    if (upper < 0) return -1;
    attrs[0].value = 0;
    return lower_result(lower, emit_cast(lower, emit(lower, OP_Trilu, 1, &upper, 2, attrs), dtype));
}

static int fold_inputs(struct lower *lower, enum op_id op) {
    int x = lower->inputs[0];
    for (int i = 1; i < lower->ninputs; i++) x = emit2(lower, op, x, lower->inputs[i]);
    return x;
}

int lower_sum(struct lower *lower) {
    return lower_result(lower, fold_inputs(lower, OP_Add));
}
int lower_max(struct lower *lower) {
    return lower_result(lower, fold_inputs(lower, OP_Max));
}
int lower_min(struct lower *lower) {
    return lower_result(lower, fold_inputs(lower, OP_Min));
}

int lower_mean(struct lower *lower) {
    int sum = fold_inputs(lower, OP_Add);
    return lower_result(lower, lower->ninputs == 1 ? sum : emit_with(lower, OP_Mul, sum, 1.0 / lower->ninputs));
}

int lower_clip(struct lower *lower) {
    bool attributes = lower->op->since < 11;
    int x = lower->inputs[0];
    if (attributes && lower_given(lower, "min")) x = emit_with(lower, OP_Max, x, lower_float(lower, "min"));
    if (attributes && lower_given(lower, "max")) x = emit_with(lower, OP_Min, x, lower_float(lower, "max"));
    if (lower_has(lower, 1)) x = emit2(lower, OP_Max, x, lower->inputs[1]);
    if (lower_has(lower, 2)) x = emit2(lower, OP_Min, x, lower->inputs[2]);
    return lower_result(lower, x);
}

/* ONNX Pow-15: the exponent may have another type; the result has the base's. An integer to a float is computed in the
 * exponent's type. */
int lower_pow(struct lower *lower) {
    int base = lower->inputs[0], exponent = lower->inputs[1];
    enum rt_dtype result = lower_dtype(lower, base), type = lower_dtype(lower, exponent);
    if (!rt_dtype_is_float(result) && rt_dtype_is_float(type))
        base = emit_cast(lower, base, type);
    else
        exponent = emit_cast(lower, exponent, result);
    return lower_result(lower, emit_cast(lower, emit2(lower, OP_Pow, base, exponent), result));
}

/* True for floats, and for integers that are known not to be 0. */
static bool divides(struct lower *lower, int x) {
    const struct tensor tensor = lower_tensor(lower, x);
    const char *bytes = tensor_is_stored(&tensor) ? eval_bytes(lower->builder.graph, &tensor) : NULL;
    if (rt_dtype_is_float(tensor.dtype) || rt_dtype_is_code(tensor.dtype)) return true;
    for (int64_t i = 0; bytes && i < tensor_elements(&tensor); i++)
        if (eval_load(bytes, tensor.dtype, i).i == 0) return false;
    return bytes != NULL;
}

/* Emits an integer divisor. Division by 0 is an error, but not for the invalid elements of a counted operand, and not
 * in a branch that is not taken. There the divisor becomes 1. */
static int emit_divisor(struct lower *lower, int dividend, int x) {
    const int one = emit_like(lower, x, 1);
    const struct counted *found = lower_counted(lower, x);
    if (found) {
        const struct counted counted = {found->dim, found->count, false};
        x = lower_masked(lower, x, one);
        lower_set_counted(lower, x, &counted);
    } else if ((found = lower_counted(lower, dividend))) {
        x = emit3(lower, OP_Where, emit_with(lower, OP_Greater, found->count, 0), x, one);
    }
    return emit1(lower, OP_Divisor, lower_if_taken(lower, x, one));
}

/* The result of an operator that may divide integers. Signed overflow, the least integer by -1, wraps around. */
static int emit_quotient(struct lower *lower, enum op_id op) {
    const int a = lower->inputs[0];
    const bool of_any = tensor_elements(&lower->builder.graph->tensors.at[a]) > 0;
    int b = lower->inputs[1];
    if (b >= 0 && of_any && (op == OP_Div || op == OP_Mod || op == OP_Fmod) && !divides(lower, b))
        b = emit_divisor(lower, a, b);
    return lower_result(lower, emit2(lower, op, a, b));
}

/* ONNX Div-14. */
int lower_div(struct lower *lower) {
    return emit_quotient(lower, OP_Div);
}

/* Elementwise operators up to opset 6: with attribute broadcast, the dimensions of b are those of a from `axis` on, by
 * default the last ones. */
int lower_aligned(struct lower *lower) {
    struct tensor a = lower_input(lower, 0), b = lower_input(lower, 1);
    int64_t axis = lower_given(lower, "axis") ? lower_int(lower, "axis") : a.ndim - b.ndim, shape[RT_MAX_NDIM];
    if (!lower_int(lower, "broadcast")) axis = 0;
    if (axis < 0) axis += a.ndim;
    if (axis < 0 || axis > a.ndim - b.ndim) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    for (int d = 0; d < a.ndim; d++) shape[d] = d < axis || d >= axis + b.ndim ? 1 : b.dims[d - axis];
    lower->inputs[1] = emit_reshape(lower, lower->inputs[1], a.ndim, shape);
    return emit_quotient(lower, lower_namesake(lower));
}

/* PRelu up to opset 6: one slope, or one per channel. */
int lower_channel_slope(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), slope = lower_input(lower, 1);
    bool per_channel = slope.ndim == 1 && x.ndim > 2 && slope.dims[0] == x.dims[1];
    int aligned = per_channel ? emit_per_channel(lower, lower->inputs[1], x.ndim) : lower->inputs[1];
    return lower_result(lower, emit2(lower, OP_PRelu, lower->inputs[0], aligned));
}

int lower_bit_shift(struct lower *lower) {
    const char *direction = lower_text(lower, "direction");
    bool left = strcmp(direction, "LEFT") == 0;
    if (!left && strcmp(direction, "RIGHT") != 0)
        return lower_error(lower, 335, "direction is neither 'LEFT' nor 'RIGHT'");
    return lower_result(lower, emit2(lower, left ? OP_ShiftLeft : OP_ShiftRight, lower->inputs[0], lower->inputs[1]));
}

int lower_mod(struct lower *lower) {
    bool fmod = lower_int(lower, "fmod");
    return emit_quotient(lower, fmod ? OP_Fmod : OP_Mod);
}

/* Core operators on floats take no floats of 8 bits. */
static int emit_float(struct lower *lower, int x) {
    return rt_dtype_is_code(lower_dtype(lower, x)) ? emit_cast(lower, x, RT_F32) : x;
}

int lower_is_nan(struct lower *lower) {
    return lower_result(lower, emit1(lower, OP_IsNaN, emit_float(lower, lower->inputs[0])));
}

int lower_is_inf(struct lower *lower) {
    const int x = emit_float(lower, lower->inputs[0]);
    struct attr attrs[] = {attr_of_int("positive", lower_int(lower, "detect_positive")),
                           attr_of_int("negative", lower_int(lower, "detect_negative"))};
    return lower_result(lower, emit(lower, OP_IsInf, 1, &x, 2, attrs));
}

/* ONNX Shrink-9. Integers are computed in f64 and truncated. */
int lower_shrink(struct lower *lower) {
    const enum rt_dtype dtype = lower_dtype(lower, lower->inputs[0]);
    struct attr attrs[] = {attr_of_float("bias", lower_float(lower, "bias")),
                           attr_of_float("lambd", lower_float(lower, "lambd"))};
    const int x = emit_cast(lower, lower->inputs[0], rt_dtype_is_float(dtype) ? dtype : RT_F64);
    return lower_result(lower, emit_cast(lower, emit(lower, OP_Shrink, 1, &x, 2, attrs), dtype));
}

int lower_gelu(struct lower *lower) {
    const char *approximate = lower_text(lower, "approximate");
    bool tanh = strcmp(approximate, "tanh") == 0;
    if (!tanh && strcmp(approximate, "none") != 0)
        return lower_error(lower, 335, "approximate is neither 'none' nor 'tanh'");
    return lower_result(lower, emit1(lower, tanh ? OP_GeluTanh : OP_Gelu, lower->inputs[0]));
}

/* ONNX SwiGLU-28: swish(a) b. */
int lower_swiglu(struct lower *lower) {
    struct attr alpha = attr_of_float("alpha", lower_float(lower, "alpha"));
    return lower_result(lower,
                        emit2(lower, OP_Mul, emit(lower, OP_Swish, 1, lower->inputs, 1, &alpha), lower->inputs[1]));
}
