/* Random numbers: functions of core operator Uniform, which draws by counters. The key has the bits of
 * attribute seed and the number of the operator among those that draw: two starts of a program draw the same numbers,
 * two of its steps do not. */
#include "frontend/lower/onnx_lower.h"

static const double pi = 3.14159265358979323846;

/* Uniform random numbers in (0, 1) of the shape and type of `like`, which is f32 or f64. */
static int emit_uniform(struct lower *lower, int like) {
    struct graph *graph = lower->builder.graph;
    const double seed = lower_given(lower, "seed") ? lower_float(lower, "seed") : 0;
    uint32_t bits;
    const float narrow = (float)seed;
    memcpy(&bits, &narrow, sizeof bits);
    struct attr key = attr_of_int("key", lower_random_key(lower, (int64_t)bits));
    int inputs[] = {like, graph_control(graph, RT_STEP), graph_control(graph, RT_MICRO)};
    return emit(lower, OP_Uniform, 3, inputs, 1, &key);
}

/* The type that attribute dtype names, else `otherwise`; RT_DTYPE_NONE after a diagnostic. */
static enum rt_dtype drawn_type(struct lower *lower, enum rt_dtype otherwise) {
    if (!lower_given(lower, "dtype") && otherwise != RT_DTYPE_NONE) return otherwise;
    const int64_t number = lower_int(lower, "dtype");
    const enum rt_dtype dtype = number == (int)number ? rt_dtype_by_onnx((int)number) : RT_DTYPE_NONE;
    if (dtype == RT_DTYPE_NONE) lower_error(lower, 407, "the result's type is not supported");
    return dtype == RT_DTYPE_NONE ? dtype : lower_float_type(lower, dtype);
}

/* 16-bit numbers are drawn in f32 and rounded. */
static enum rt_dtype work_type(enum rt_dtype dtype) {
    return dtype == RT_F64 ? RT_F64 : RT_F32;
}

static int emit_zeros(struct lower *lower, enum rt_dtype dtype, int ndim, const int64_t *dims) {
    return emit_expand(lower, build_scalar(&lower->builder, dtype, 0), ndim, dims);
}

/* sqrt(-2 log(u)) cos(2 pi v) of uniform u and v is normal (Box and Muller, 1958). */
static int emit_normal(struct lower *lower, int like) {
    int u = emit_uniform(lower, like), v = emit_uniform(lower, like);
    int radius = emit1(lower, OP_Sqrt, emit_with(lower, OP_Mul, emit1(lower, OP_Log, u), -2));
    return emit2(lower, OP_Mul, radius, emit1(lower, OP_Cos, emit_with(lower, OP_Mul, v, 2 * pi)));
}

/* scale * numbers + offset, in the result's type. */
static int emit_scaled(struct lower *lower, int numbers, double scale, double offset, enum rt_dtype dtype) {
    int y = emit_with(lower, OP_Add, emit_with(lower, OP_Mul, numbers, scale), offset);
    return emit_cast(lower, y, dtype);
}

static int lower_drawn(struct lower *lower, enum rt_dtype dtype, int ndim, const int64_t *dims) {
    if (dtype == RT_DTYPE_NONE) return -1;
    if (!rt_dtype_is_float(dtype)) return lower_error(lower, 379, "random numbers of type %s", rt_dtypes[dtype].name);
    int zeros = emit_zeros(lower, work_type(dtype), ndim, dims);
    if (strncmp(lower->op->name, "RandomNormal", 12) == 0)
        return lower_result(lower, emit_scaled(lower, emit_normal(lower, zeros), lower_float(lower, "scale"),
                                               lower_float(lower, "mean"), dtype));
    const double low = lower_float(lower, "low"), high = lower_float(lower, "high");
    return lower_result(lower, emit_scaled(lower, emit_uniform(lower, zeros), high - low, low, dtype));
}

/* ONNX RandomUniform-22, RandomNormal-22. */
int lower_random(struct lower *lower) {
    int n;
    const int64_t *shape = lower_ints(lower, "shape", &n);
    if (n > RT_MAX_NDIM) return lower_error(lower, 506, "more than %d dimensions", RT_MAX_NDIM);
    for (int d = 0; d < n; d++)
        if (shape[d] < 0) return lower_error(lower, 377, "negative extent %lld", (long long)shape[d]);
    return lower_drawn(lower, drawn_type(lower, RT_DTYPE_NONE), n, shape);
}

/* ONNX RandomUniformLike-22, RandomNormalLike-22. */
int lower_random_like(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    return lower_drawn(lower, drawn_type(lower, x.dtype), x.ndim, x.dims);
}

/* ONNX Bernoulli-22: 1 with the probability that the input gives, else 0. */
int lower_bernoulli(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    const enum rt_dtype dtype = drawn_type(lower, x.dtype), work = work_type(x.dtype);
    if (dtype == RT_DTYPE_NONE) return -1;
    int p = emit_cast(lower, lower->inputs[0], work);
    return lower_result(lower, emit_cast(lower, emit2(lower, OP_Less, emit_uniform(lower, p), p), dtype));
}

/* ONNX Multinomial-22: classes drawn by the logarithms (p.., class) of their probabilities up to a factor. A uniform
 * number times the sum of all probabilities is looked for in their cumulative sums. */
int lower_multinomial(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    const enum rt_dtype dtype = drawn_type(lower, RT_DTYPE_NONE), work = work_type(x.dtype);
    const int64_t draws = lower_int(lower, "sample_size");
    if (dtype == RT_DTYPE_NONE) return -1;
    if (x.ndim != 2 || draws < 0 || x.dims[1] < 1)
        return lower_error(lower, 378, "the input is not (batch, classes), or sample_size is negative");
    const int64_t rows = x.dims[0], classes = x.dims[1];
    int p = emit_softmax(lower, OP_Softmax, emit_cast(lower, lower->inputs[0], work), 1);
    int sums = emit_cumulated(lower, OP_CumSum, p, 1, false, false);
    int all = emit_piece(lower, sums, 1, classes - 1, 1, 1);
    int uniform = emit_uniform(lower, emit_zeros(lower, work, 2, (int64_t[]){rows, draws}));
    int drawn = emit2(lower, OP_Mul, uniform, all);
    int passed = emit2(lower, OP_LessOrEqual, emit_reshape(lower, sums, 3, (int64_t[]){rows, 1, classes}),
                       emit_reshape(lower, drawn, 3, (int64_t[]){rows, draws, 1}));
    int index = emit_reduce_along(lower, OP_ReduceSum, emit_cast(lower, passed, RT_I64), 2, false);
    return lower_result(lower, emit_cast(lower, emit_with(lower, OP_Min, index, (double)(classes - 1)), dtype));
}
