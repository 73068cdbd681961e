/* Resize and Upsample: separable interpolation, one dimension after another. Along a dimension each result is a
 * weighted sum of a few elements. Their indices and weights are known at compile time, so it is a composition of
 * Gather, Mul and Add. */
#include "frontend/lower/onnx_lower.h"

#include <math.h>

#include "ir/expr/eval.h"
#include "runtime/base/number/checked.h"

enum { MAX_TAPS = 4 };

/* An exact number num / den, den > 0: coordinates are compared and rounded without error. */
struct fraction {
    __int128 num, den;
};

/* Note [Widths of coordinates]: an extent has at most EXTENT_BITS bits, a result's 24, and a scale, a double of at
 * least 1 / extent, 53 behind at most EXTENT_BITS zeros. The ends of what tf_crop_and_resize shows are taken with as
 * many bits as leave room for both extents. No coordinate then needs more than 125 bits. */
enum { EXTENT_BITS = 43, RESULT_LIMIT = 1 << 24, CROP_BITS = 100 };

/* One dimension. */
struct axis {
    int64_t in, out;
    struct fraction scale;      /* of results per element: out / in if sizes are given */
    struct fraction start, end; /* tf_crop_and_resize: the part of the input, in units of its extent; den is equal */
};

/* Of a finite double whose parts fit, as Note [Widths of coordinates] says. */
static struct fraction fraction_of(double x) {
    int exponent;
    __int128 num = (int64_t)ldexp(frexp(x, &exponent), 53);
    for (exponent -= 53; exponent < 0 && num % 2 == 0; exponent++) num /= 2;
    return exponent < 0 ? (struct fraction){num, (__int128)1 << -exponent}
                        : (struct fraction){num * ((__int128)1 << exponent), 1};
}

static int64_t floor_of(struct fraction x) {
    return (int64_t)(x.num / x.den - (x.num % x.den < 0));
}
static int64_t ceil_of(struct fraction x) {
    return -floor_of((struct fraction){-x.num, x.den});
}
/* x - floor(x). */
static double rest_of(struct fraction x) {
    return (double)(x.num - floor_of(x) * x.den) / (double)x.den;
}

/* Where result `o` lies in the input. */
typedef struct fraction coordinate_fn(const struct axis *axis, int64_t o);

static struct fraction half_pixel(const struct axis *axis, int64_t o) {
    return (struct fraction){(2 * o + 1) * axis->scale.den - axis->scale.num, 2 * axis->scale.num};
}
static struct fraction pytorch_half_pixel(const struct axis *axis, int64_t o) {
    return axis->out > 1 ? half_pixel(axis, o) : (struct fraction){0, 1};
}
/* Uses the result's extent, like PyTorch and ONNX Runtime. The reference implementation of ONNX uses in x scale, not
 * rounded. */
static struct fraction align_corners(const struct axis *axis, int64_t o) {
    return axis->out > 1 ? (struct fraction){(__int128)o * (axis->in - 1), axis->out - 1} : (struct fraction){0, 1};
}
static struct fraction asymmetric(const struct axis *axis, int64_t o) {
    return (struct fraction){o * axis->scale.den, axis->scale.num};
}
static struct fraction tf_half_pixel(const struct axis *axis, int64_t o) {
    return (struct fraction){(2 * o + 1) * axis->scale.den, 2 * axis->scale.num};
}
/* As half_pixel, shifted by (in - out / scale) / 2, so that the part lost by rounding the size is lost equally at both
 * ends. */
static struct fraction half_pixel_symmetric(const struct axis *axis, int64_t o) {
    const struct fraction x = half_pixel(axis, o);
    return (struct fraction){x.num + axis->in * axis->scale.num - axis->out * axis->scale.den, x.den};
}

/* The result shows the part of the input from start to end. */
static struct fraction crop_and_resize(const struct axis *axis, int64_t o) {
    const __int128 last = axis->in - 1, start = axis->start.num * last, end = axis->end.num * last;
    if (axis->out <= 1) return (struct fraction){start + end, 2 * axis->start.den};
    return (struct fraction){start * (axis->out - 1) + o * (end - start), axis->start.den * (axis->out - 1)};
}

/* The same where an extent is open: coordinate (step o + first) / by, of numbers that may depend on sizes. With
 * `several` it is 0 if there is one result. */
struct line {
    int64_t step, first, by;
    bool several;
};

typedef struct line line_fn(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den);

static struct line half_pixel_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    (void)axis;
    return (struct line){2 * den, open_sum(open, den, -num), 2 * num, false};
}
static struct line pytorch_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    struct line line = half_pixel_line(open, axis, num, den);
    line.several = true;
    return line;
}
static struct line corners_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    (void)num, (void)den;
    return (struct line){open_sum(open, axis->in, -1), 0, open_greater(open, open_sum(open, axis->out, -1), 1), false};
}
static struct line asymmetric_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    (void)open, (void)axis;
    return (struct line){den, 0, num, false};
}
static struct line tf_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    (void)open, (void)axis;
    return (struct line){2 * den, den, 2 * num, false};
}
static struct line symmetric_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    struct line line = half_pixel_line(open, axis, num, den);
    line.first = open_sum(open, line.first, open_sum(open, axis->in * num, -axis->out * den));
    return line;
}

static const struct {
    const char *name;
    coordinate_fn *at;
    line_fn *line; /* NULL: extents must be fixed */
} coordinates[] = {
    {"half_pixel", half_pixel, half_pixel_line},      {"pytorch_half_pixel", pytorch_half_pixel, pytorch_line},
    {"align_corners", align_corners, corners_line},   {"asymmetric", asymmetric, asymmetric_line},
    {"tf_half_pixel_for_nn", tf_half_pixel, tf_line}, {"half_pixel_symmetric", half_pixel_symmetric, symmetric_line},
    {"tf_crop_and_resize", crop_and_resize, NULL}};

static int64_t prefer_floor(struct fraction x) {
    return ceil_of((struct fraction){2 * x.num - x.den, 2 * x.den});
}
static int64_t prefer_ceil(struct fraction x) {
    return floor_of((struct fraction){2 * x.num + x.den, 2 * x.den});
}

static const struct {
    const char *name;
    int64_t (*round)(struct fraction x);
} roundings[] = {
    {"round_prefer_floor", prefer_floor}, {"round_prefer_ceil", prefer_ceil}, {"floor", floor_of}, {"ceil", ceil_of}};

/* The filter taps of one result: `n` adjacent elements from `first` on, which may be outside of the input. */
struct taps {
    int n;
    int64_t first;
    double weight[MAX_TAPS];
};

struct resize {
    coordinate_fn *at;
    int64_t (*round)(struct fraction x);
    struct taps (*taps)(const struct resize *resize, struct fraction x);
    double cubic;
    bool exclude_outside, antialias;
    double outside; /* tf_crop_and_resize: the value of results outside of the input */
};

static struct taps nearest_taps(const struct resize *resize, struct fraction x) {
    return (struct taps){1, resize->round(x), {1}};
}

static struct taps linear_taps(const struct resize *resize, struct fraction x) {
    const double rest = rest_of(x);
    (void)resize;
    return (struct taps){2, floor_of(x), {1 - rest, rest}};
}

/* The cubic convolution kernel of Keys (1981) with parameter a, at distance t >= 0. */
static double keys(double a, double t) {
    if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

static struct taps cubic_taps(const struct resize *resize, struct fraction x) {
    struct taps taps = {4, floor_of(x) - 1, {0}};
    for (int t = 0; t < 4; t++) taps.weight[t] = keys(resize->cubic, fabs(rest_of(x) - (t - 1)));
    return taps;
}

static const struct {
    const char *name;
    struct taps (*taps)(const struct resize *resize, struct fraction x);
} modes[] = {{"nearest", nearest_taps}, {"linear", linear_taps}, {"cubic", cubic_taps}};

/* exclude_outside: sets the weights of taps outside of the input to 0 and scales the others to a sum of 1. */
static void drop_outside(struct taps *taps, int64_t in) {
    double sum = 0;
    for (int t = 0; t < taps->n; t++) {
        if (taps->first + t < 0 || taps->first + t >= in) taps->weight[t] = 0;
        sum += taps->weight[t];
    }
    for (int t = 0; t < taps->n && sum != 0; t++) taps->weight[t] /= sum;
}

/* One dimension --------------------------------------------------------------------------------------------------- */

/* By tap: index and weight of the element for each result along a dimension. */
struct picks {
    int n;
    int64_t *index[MAX_TAPS];
    double *weight[MAX_TAPS];
};

/* The index of an element, or of the nearest one. */
static int64_t inside(const struct axis *axis, int64_t index) {
    return index < 0 ? 0 : index < axis->in ? index : axis->in - 1;
}

static struct picks make_picks(struct lower *lower, const struct resize *resize, const struct axis *axis) {
    struct picks picks = {0};
    for (int t = 0; t < MAX_TAPS; t++) {
        picks.index[t] = ARENA_ARRAY(lower->arena, int64_t, axis->out + 1);
        picks.weight[t] = ARENA_ARRAY(lower->arena, double, axis->out + 1);
    }
    for (int64_t o = 0; o < axis->out; o++) {
        struct taps taps = resize->taps(resize, resize->at(axis, o));
        if (resize->exclude_outside) drop_outside(&taps, axis->in);
        picks.n = taps.n;
        for (int t = 0; t < taps.n; t++) {
            picks.index[t][o] = inside(axis, taps.first + t);
            picks.weight[t][o] = taps.weight[t];
        }
    }
    return picks;
}

static bool all_are(const double *weights, int64_t n, double value) {
    for (int64_t i = 0; i < n; i++)
        if (weights[i] != value) return false;
    return true;
}

static bool is_identity(const struct picks *picks, const struct axis *axis) {
    for (int64_t o = 0; o < axis->out; o++)
        if (picks->index[0][o] != o) return false;
    return axis->in == axis->out && all_are(picks->weight[0], axis->out, 1);
}

/* A constant of one weight per result along dimension `dim`, in the type of x. */
static int emit_weights(struct lower *lower, const struct tensor *x, int dim, int64_t n, const double *weights) {
    int64_t dims[RT_MAX_NDIM];
    for (int d = dim; d < x->ndim; d++) dims[d - dim] = d == dim ? n : 1;
    return emit_floats(lower, x->dtype, x->ndim - dim, dims, weights);
}

static bool shrinks(const struct axis *axis) {
    return axis->scale.num < axis->scale.den;
}

/* Antialias: with `scale` < 1 the filter is 1 / scale as wide, so that every element has a part in some result. The
 * weights of element e at distance (e - x) scale are scaled to a sum of 1. */
static void fill_wide_row(const struct resize *resize, const struct axis *axis, int64_t o, double *row) {
    const struct fraction x = resize->at(axis, o);
    const double rest = rest_of(x), scale = (double)axis->scale.num / (double)axis->scale.den;
    const double reach = (resize->taps == cubic_taps ? 2 : 1) / scale;
    double sum = 0;
    for (int64_t d = (int64_t)ceil(rest - reach); d <= (int64_t)floor(rest + reach); d++) {
        const double t = fabs(((double)d - rest) * scale);
        const double weight = resize->taps == cubic_taps ? keys(resize->cubic, t) : fmax(0, 1 - t);
        const int64_t e = floor_of(x) + d;
        if (resize->exclude_outside && e != inside(axis, e)) continue;
        row[inside(axis, e)] += weight;
        sum += weight;
    }
    for (int64_t i = 0; i < axis->in && sum != 0; i++) row[i] /= sum;
}

/* The product along dimension `dim` with a matrix of weights (out, in). */
static int emit_weighted(struct lower *lower, int x, int dim, int weights) {
    const int ndim = lower_ndim(lower, x);
    int64_t perm[RT_MAX_NDIM];
    for (int d = 0; d < ndim; d++) perm[d] = d;
    perm[dim] = ndim - 1;
    perm[ndim - 1] = dim;
    if (ndim == 1) { /* a product needs two dimensions */
        const int row = emit_matmul(lower, emit_unsqueeze(lower, x, 0), weights, false, true);
        return emit_squeeze(lower, row, 0);
    }
    return emit_transpose(lower, emit_matmul(lower, emit_transpose(lower, x, perm), weights, false, true), perm);
}

/* Resamples by a product with a matrix of weights. */
static int resample_wide(struct lower *lower, int x, int dim, const struct resize *resize, const struct axis *axis) {
    int64_t elements;
    if (!rt_mul(axis->in, axis->out, &elements) || elements > 1 << 26)
        return lower_unsupported(lower, "antialias from %lld to %lld elements", (long long)axis->in,
                                 (long long)axis->out);
    double *rows = ARENA_ARRAY(lower->arena, double, elements + 1);
    for (int64_t o = 0; o < axis->out; o++) fill_wide_row(resize, axis, o, rows + o * axis->in);
    const int weights = emit_floats(lower, lower_dtype(lower, x), 2, (int64_t[]){axis->out, axis->in}, rows);
    return emit_weighted(lower, x, dim, weights);
}

/* tf_crop_and_resize: results of coordinates outside of the input get a given value. */
static int mask_outside(struct lower *lower, int y, int dim, const struct resize *resize, const struct axis *axis) {
    if (y < 0 || resize->at != crop_and_resize) return y;
    const int ndim = lower_ndim(lower, y);
    int64_t dims[RT_MAX_NDIM], *shown = ARENA_ARRAY(lower->arena, int64_t, axis->out + 1), count = 0;
    for (int d = dim; d < ndim; d++) dims[d - dim] = d == dim ? axis->out : 1;
    for (int64_t o = 0; o < axis->out; o++) {
        const struct fraction x = resize->at(axis, o);
        count += shown[o] = x.num >= 0 && x.num <= (axis->in - 1) * x.den;
    }
    if (count == axis->out) return y;
    const int mask = emit_cast(lower, emit_ints(lower, (int)axis->out, shown, ndim - dim, dims), RT_BOOL);
    return emit3(lower, OP_Where, mask, y, emit_like(lower, y, resize->outside));
}

/* Open extents: indices and weights are computed at run time, as those of fixed extents are here ------------------- */

/* floor((step o + first) / by) for each place o, and what is left of it as a part of `by`, an f64. */
struct places {
    int floor, rest;
};

static int number(struct lower *lower, int64_t value) {
    return emit_number(lower, RT_I64, value);
}

static struct places emit_floors(struct lower *lower, int64_t out, const struct line *line) {
    int at = emit2(lower, OP_Mul, emit_places(lower, 0, out, 1, 0), number(lower, line->step));
    at = emit2(lower, OP_Add, at, number(lower, line->first));
    if (line->several) {
        const int several = emit2(lower, OP_Greater, number(lower, out), number(lower, 1));
        at = emit2(lower, OP_Mul, at, emit_cast(lower, several, RT_I64));
    }
    const int by = number(lower, line->by), left = emit2(lower, OP_Mod, at, by);
    const int below = emit2(lower, OP_Sub, at, left);
    return (struct places){emit2(lower, OP_Div, below, by),
                           emit2(lower, OP_Div, emit_cast(lower, left, RT_F64), emit_cast(lower, by, RT_F64))};
}

/* Rounded: the floor of a line with other numbers, or for those that round up, its negative. */
static int emit_rounded(struct lower *lower, const struct resize *resize, int64_t out, struct line line) {
    struct open_sizes *open = lower_open(lower);
    const bool halves = resize->round == prefer_floor || resize->round == prefer_ceil;
    const bool negative = resize->round == prefer_floor || resize->round == ceil_of;
    if (halves) line.step *= 2, line.first *= 2;
    if (negative) line.step = -line.step, line.first = -line.first;
    if (halves) line.first = open_sum(open, line.first, line.by), line.by *= 2;
    const int floor = emit_floors(lower, out, &line).floor;
    return negative ? emit1(lower, OP_Neg, floor) : floor;
}

/* As keys(), at distances t of at most 2. */
static int emit_keys(struct lower *lower, double a, int t) {
    int near = emit_with(lower, OP_Sub, emit_with(lower, OP_Mul, t, a + 2), a + 3);
    near = emit_with(lower, OP_Add, emit2(lower, OP_Mul, emit2(lower, OP_Mul, near, t), t), 1);
    int far = emit_with(lower, OP_Add, emit2(lower, OP_Mul, emit_with(lower, OP_Sub, t, 5), t), 8);
    far = emit_with(lower, OP_Mul, emit_with(lower, OP_Sub, emit2(lower, OP_Mul, far, t), 4), a);
    return emit3(lower, OP_Where, emit_with(lower, OP_Less, t, 1), near, far);
}

/* The taps of every result: adjacent elements from `first` on, and their weights. */
static int emit_taps(struct lower *lower, const struct resize *resize, int64_t out, const struct line *line, int *first,
                     int *weights) {
    if (resize->taps == nearest_taps) {
        *first = emit_rounded(lower, resize, out, *line);
        weights[0] = emit_expand(lower, build_scalar(&lower->builder, RT_F64, 1), 1, &out);
        return 1;
    }
    const struct places places = emit_floors(lower, out, line);
    *first = places.floor;
    if (resize->taps == linear_taps) {
        weights[0] = emit2(lower, OP_Sub, build_scalar(&lower->builder, RT_F64, 1), places.rest);
        weights[1] = places.rest;
        return 2;
    }
    *first = emit_with(lower, OP_Sub, places.floor, 1);
    for (int t = 0; t < 4; t++)
        weights[t] =
            emit_keys(lower, resize->cubic, emit1(lower, OP_Abs, emit_with(lower, OP_Sub, places.rest, t - 1)));
    return 4;
}

/* As drop_outside(). */
static void emit_dropped(struct lower *lower, int n, const int *index, const int *kept, int *weights) {
    int sum = -1;
    for (int t = 0; t < n; t++) {
        const int inside = emit2(lower, OP_Equal, index[t], kept[t]);
        weights[t] = emit3(lower, OP_Where, inside, weights[t], emit_like(lower, weights[t], 0));
        sum = sum < 0 ? weights[t] : emit2(lower, OP_Add, sum, weights[t]);
    }
    const int none = emit_with(lower, OP_Equal, sum, 0);
    sum = emit3(lower, OP_Where, none, emit_like(lower, sum, 1), sum);
    for (int t = 0; t < n; t++) weights[t] = emit2(lower, OP_Div, weights[t], sum);
}

static line_fn *line_of(const struct resize *resize) {
    for (size_t i = 0; i < sizeof coordinates / sizeof *coordinates; i++)
        if (coordinates[i].at == resize->at) return coordinates[i].line;
    return NULL;
}

/* Whether the numbers of an open dimension fit, or what is wrong is said. */
static int check_open(struct lower *lower, const struct resize *resize, const struct axis *axis) {
    if (!line_of(resize)) return lower_error(lower, 439, "tf_crop_and_resize of an open dimension");
    if (axis->scale.num >> 46 || axis->scale.den >> 46) return lower_unsupported(lower, "so fine a scale");
    return lower_at_least(lower, axis->in, 1, "the input of a Resize", "1 or more");
}

static int resample_open(struct lower *lower, int x, int dim, const struct resize *resize, const struct axis *axis) {
    struct open_sizes *open = lower_open(lower);
    int index[MAX_TAPS], kept[MAX_TAPS], weights[MAX_TAPS], first, sum = -1;
    const struct line line = line_of(resize)(open, axis, (int64_t)axis->scale.num, (int64_t)axis->scale.den);
    const int n = emit_taps(lower, resize, axis->out, &line, &first, weights);
    const int last = number(lower, open_sum(open, axis->in, -1)), zero = number(lower, 0);
    for (int t = 0; t < n; t++) {
        index[t] = t ? emit_with(lower, OP_Add, first, t) : first;
        kept[t] = emit2(lower, OP_Min, emit2(lower, OP_Max, index[t], zero), last);
    }
    if (resize->exclude_outside) emit_dropped(lower, n, index, kept, weights);
    const struct tensor tensor = lower_tensor(lower, x);
    int64_t dims[RT_MAX_NDIM];
    for (int d = dim; d < tensor.ndim; d++) dims[d - dim] = d == dim ? axis->out : 1;
    for (int t = 0; t < n; t++) {
        int picked = emit_gather(lower, x, kept[t], dim);
        const int weight = emit_reshape(lower, emit_cast(lower, weights[t], tensor.dtype), tensor.ndim - dim, dims);
        if (n > 1 || resize->exclude_outside) picked = emit2(lower, OP_Mul, picked, weight);
        sum = sum < 0 ? picked : emit2(lower, OP_Add, sum, picked);
        if (sum < 0) return -1;
    }
    return sum;
}

/* How many elements outside of the input a filter may reach. */
static int64_t reach_of(struct open_sizes *open, const struct resize *resize, const struct axis *axis) {
    const int64_t taps = resize->taps == cubic_taps ? 2 : 1;
    if (resize->exclude_outside) return 0;
    if (open_is(open, (int64_t)axis->scale.num) || open_is(open, (int64_t)axis->scale.den)) return taps * axis->in;
    return shrinks(axis) ? ceil_of((struct fraction){taps * axis->scale.den, axis->scale.num}) : taps;
}

/* As fill_wide_row() of every result, for the given elements, of type i64: (results, elements) in type `dtype`. */
static int emit_wide_rows(struct lower *lower, enum rt_dtype dtype, const struct resize *resize,
                          const struct axis *axis, int elements) {
    const int64_t num = (int64_t)axis->scale.num, den = (int64_t)axis->scale.den;
    const struct line line = line_of(resize)(lower_open(lower), axis, num, den);
    const struct places at = emit_floors(lower, axis->out, &line);
    const int apart = emit2(lower, OP_Sub, emit_unsqueeze(lower, elements, 0), emit_unsqueeze(lower, at.floor, 1));
    const int exact = emit2(lower, OP_Sub, emit_cast(lower, apart, RT_F64), emit_unsqueeze(lower, at.rest, 1));
    const int scale = emit2(lower, OP_Div, emit_number(lower, RT_F64, num), emit_number(lower, RT_F64, den));
    const int narrow = emit2(lower, OP_Min, scale, emit_like(lower, scale, 1));
    const int t = emit2(lower, OP_Mul, emit1(lower, OP_Abs, exact), narrow), zero = emit_like(lower, t, 0);
    int weights, sum;
    if (resize->taps == cubic_taps)
        weights = emit3(lower, OP_Where, emit_with(lower, OP_Less, t, 2), emit_keys(lower, resize->cubic, t), zero);
    else
        weights = emit2(lower, OP_Max, emit2(lower, OP_Sub, emit_like(lower, t, 1), t), zero);
    sum = emit_reduce_along(lower, OP_ReduceSum, weights, 1, true);
    sum = emit3(lower, OP_Where, emit_with(lower, OP_Equal, sum, 0), emit_like(lower, sum, 1), sum);
    return emit_cast(lower, emit2(lower, OP_Div, weights, sum), dtype);
}

/* As resample_wide(). Elements outside of the input are those at its ends. */
static int resample_wide_open(struct lower *lower, int x, int dim, const struct resize *resize,
                              const struct axis *axis) {
    struct open_sizes *open = lower_open(lower);
    const int64_t beyond = reach_of(open, resize, axis);
    int elements = emit_places(lower, 0, open_sum(open, axis->in, 2 * beyond), 1, 0);
    if (beyond) {
        const int last = number(lower, open_sum(open, axis->in, -1));
        elements = emit2(lower, OP_Sub, elements, number(lower, beyond));
        x = emit_gather(lower, x, emit2(lower, OP_Min, emit2(lower, OP_Max, elements, number(lower, 0)), last), dim);
    }
    if (x < 0) return -1;
    return emit_weighted(lower, x, dim, emit_wide_rows(lower, lower_dtype(lower, x), resize, axis, elements));
}

static bool is_open(const struct lower *lower, const struct axis *axis) {
    return open_is(lower_open(lower), axis->in) || open_is(lower_open(lower), axis->out);
}

static int resample(struct lower *lower, int x, int dim, const struct resize *resize, const struct axis *axis) {
    if (x < 0) return -1;
    /* Left out in `axes`, or as large as before: unlike the others, tf_half_pixel_for_nn would move the elements. */
    if (resize->at != crop_and_resize && axis->scale.num == axis->scale.den && axis->out == axis->in) return x;
    if (is_open(lower, axis)) {
        if (check_open(lower, resize, axis) < 0) return -1;
        const bool grows = open_least(lower_open(lower), axis->out) >= open_most(lower_open(lower), axis->in);
        if (resize->antialias && resize->taps != nearest_taps && !grows && axis->scale.num != axis->scale.den)
            return resample_wide_open(lower, x, dim, resize, axis);
        return resample_open(lower, x, dim, resize, axis);
    }
    if (resize->antialias && shrinks(axis) && resize->taps != nearest_taps)
        return resample_wide(lower, x, dim, resize, axis);
    struct tensor tensor = lower_tensor(lower, x);
    struct picks picks = make_picks(lower, resize, axis);
    int sum = -1;
    if (is_identity(&picks, axis)) return x;
    for (int t = 0; t < picks.n; t++) {
        if (picks.n > 1 && all_are(picks.weight[t], axis->out, 0)) continue;
        int picked = emit_gather(lower, x, emit_ints(lower, (int)axis->out, picks.index[t], 1, &axis->out), dim);
        if (!all_are(picks.weight[t], axis->out, 1))
            picked = emit2(lower, OP_Mul, picked, emit_weights(lower, &tensor, dim, axis->out, picks.weight[t]));
        sum = sum < 0 ? picked : emit2(lower, OP_Add, sum, picked);
        if (sum < 0) return -1;
    }
    return sum;
}

/* The operators --------------------------------------------------------------------------------------------------- */

/* The values of a float input that must be known at compile time; NULL after E409. */
static const double *known_floats(struct lower *lower, int input, const char *what, int *n) {
    struct tensor tensor = lower_input(lower, input);
    const void *bytes = tensor_is_stored(&tensor) ? eval_bytes(lower->builder.graph, &tensor) : NULL;
    if (!bytes || tensor_elements(&tensor) > 2 * RT_MAX_NDIM) {
        lower_error(lower, 409, "%s are not known at compile time (%s)", what, lower_quote(lower, tensor.name));
        return NULL;
    }
    *n = (int)tensor_elements(&tensor);
    double *values = ARENA_ARRAY(lower->arena, double, *n + 1);
    rt_convert(values, RT_F64, bytes, tensor.dtype, (size_t)*n);
    return values;
}

static bool is_empty(const struct lower *lower, int input) {
    if (!lower_has(lower, input)) return true;
    struct tensor tensor = lower_input(lower, input);
    return tensor_elements(&tensor) == 0;
}

/* The dimensions that the `count` scales or sizes belong to. */
static int read_axes(struct lower *lower, int ndim, int count, int *axes) {
    int n = ndim;
    const int64_t *list = lower_given(lower, "axes") ? lower_ints(lower, "axes", &n) : NULL;
    bool seen[RT_MAX_NDIM];
    if (n != count) return lower_error(lower, 372, "%d scales or sizes are given for %d dimensions", count, n);
    if (list && lower_axes(lower, list, n, ndim, seen) < 0) return -1;
    for (int i = 0; i < n; i++) axes[i] = list ? (int)(list[i] < 0 ? list[i] + ndim : list[i]) : i;
    return 0;
}

static int set_scales(struct lower *lower, const struct tensor *x, int n, const double *scales, struct axis *axis) {
    int axes[RT_MAX_NDIM];
    if (read_axes(lower, x->ndim, n, axes) < 0) return -1;
    for (int i = 0; i < n; i++) {
        struct axis *a = &axis[axes[i]];
        if (!(scales[i] > 0))
            return lower_error(lower, 384, "scale %g in dimension %d is not greater than 0", scales[i], axes[i]);
        const int64_t most = open_most(lower_open(lower), a->in);
        if ((double)most * scales[i] > RESULT_LIMIT || most >> EXTENT_BITS) return lower_too_large(lower);
        if (!((double)most * scales[i] >= 1)) { /* no results, whose coordinates need no scale */
            a->out = 0;
            continue;
        }
        a->scale = fraction_of(scales[i]);
        a->out = floor_of((struct fraction){a->in * a->scale.num, a->scale.den});
        if (open_is(lower_open(lower), a->in)) {
            if (a->scale.num >> 40 || a->scale.den >> 40) return lower_unsupported(lower, "so fine a scale");
            a->out = open_quotient(lower_open(lower), a->in * (int64_t)a->scale.num, (int64_t)a->scale.den);
        }
    }
    return 0;
}

static int set_sizes(struct lower *lower, const struct tensor *x, int n, const int64_t *sizes, struct axis *axis) {
    int axes[RT_MAX_NDIM];
    if (read_axes(lower, x->ndim, n, axes) < 0) return -1;
    for (int i = 0; i < n; i++) {
        struct axis *a = &axis[axes[i]];
        if (open_least(lower_open(lower), sizes[i]) < 0)
            return lower_error(lower, 384, "size %lld in dimension %d is negative", (long long)sizes[i], axes[i]);
        if (open_most(lower_open(lower), sizes[i]) > RESULT_LIMIT || open_most(lower_open(lower), a->in) >> EXTENT_BITS)
            return lower_too_large(lower);
        a->out = sizes[i];
        a->scale = (struct fraction){sizes[i], a->in};
    }
    return 0;
}

static int run(struct lower *lower, const struct resize *resize, const struct axis *axis) {
    struct tensor x = lower_input(lower, 0);
    struct open_sizes *open = lower_open(lower);
    int64_t out[RT_MAX_NDIM], elements;
    int y = lower->inputs[0];
    for (int d = 0; d < x.ndim; d++) {
        out[d] = open_most(open, axis[d].out);
        if (x.dims[d] == 0 && axis[d].out) return lower_error(lower, 384, "dimension %d has no elements to pick", d);
    }
    if (!rt_product(out, x.ndim, &elements) || elements >> 43) return lower_too_large(lower);
    if (resize->taps != nearest_taps && !rt_dtype_is_float(x.dtype))
        return lower_unsupported(lower, "a mode other than nearest, for integers,");
    for (int grows = 0; grows < 2; grows++) /* those that shrink first: less work for the others */
        for (int i = 0; i < x.ndim; i++) {
            /* Nearest gives the same in any order, and single elements are dearer to gather than rows. */
            const int d = grows && resize->taps == nearest_taps ? x.ndim - 1 - i : i;
            if ((open_typical(open, axis[d].out) >= open_typical(open, axis[d].in)) == grows)
                y = resample(lower, y, d, resize, &axis[d]);
        }
    for (int d = 0; d < x.ndim; d++) y = mask_outside(lower, y, d, resize, &axis[d]);
    return lower_result(lower, y);
}

static void begin_axes(const struct tensor *x, struct axis *axis) {
    for (int d = 0; d < x->ndim; d++) axis[d] = (struct axis){x->dims[d], x->dims[d], {1, 1}, {0, 1}, {1, 1}};
}

static int read_mode(struct lower *lower, struct resize *resize) {
    const char *text = lower_text(lower, "mode");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, text) == 0) resize->taps = modes[i].taps;
    return resize->taps ? 0 : lower_unknown(lower, "mode", text);
}

/* ONNX Upsample-9 and Resize-10: scales are an attribute or input 1; the coordinate is o / scale, nearest rounds
 * down. */
int lower_upsample(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    struct resize resize = {.at = asymmetric, .round = floor_of};
    struct axis axis[RT_MAX_NDIM];
    const double *scales;
    int n;
    if (read_mode(lower, &resize) < 0) return -1;
    if (resize.taps == cubic_taps) return lower_unsupported(lower, "mode cubic");
    if (lower_given(lower, "scales")) {
        const float *list = lower_floats(lower, "scales", &n);
        double *values = ARENA_ARRAY(lower->arena, double, n + 1);
        for (int i = 0; i < n; i++) values[i] = (double)list[i];
        scales = values;
    } else if (!lower_has(lower, 1)) {
        return lower_error(lower, 384, "scales are missing");
    } else if (!(scales = known_floats(lower, 1, "scales", &n))) {
        return -1;
    }
    begin_axes(&x, axis);
    return set_scales(lower, &x, n, scales, axis) < 0 ? -1 : run(lower, &resize, axis);
}

static int read_manner(struct lower *lower, struct resize *resize) {
    const char *at = lower_text(lower, "coordinate_transformation_mode"), *round = lower_text(lower, "nearest_mode");
    *resize = (struct resize){.cubic = lower_float(lower, "cubic_coeff_a"),
                              .exclude_outside = lower_int(lower, "exclude_outside") != 0,
                              .antialias = lower->op->since >= 18 && lower_int(lower, "antialias") != 0,
                              .outside = lower_float(lower, "extrapolation_value")};
    if (read_mode(lower, resize) < 0) return -1;
    for (size_t i = 0; i < sizeof coordinates / sizeof *coordinates; i++)
        if (strcmp(coordinates[i].name, at) == 0) resize->at = coordinates[i].at;
    for (size_t i = 0; i < sizeof roundings / sizeof *roundings; i++)
        if (strcmp(roundings[i].name, round) == 0) resize->round = roundings[i].round;
    if (!resize->at) return lower_unknown(lower, "coordinate_transformation_mode", at);
    if (!resize->round) return lower_unknown(lower, "nearest_mode", round);
    return 0;
}

/* Whole scales, an attribute; the other attributes are those of Resize. */
int lower_nchwc_upsample(struct lower *lower) {
    const struct tensor x = lower_input(lower, 0);
    struct resize resize;
    struct axis axis[RT_MAX_NDIM];
    double scales[RT_MAX_NDIM];
    int n;
    const int64_t *given = lower_ints(lower, "scales", &n);
    if (read_manner(lower, &resize) < 0) return -1;
    if (n != x.ndim) return lower_error(lower, 384, "%d scales for %d dimensions", n, x.ndim);
    for (int d = 0; d < n; d++) scales[d] = (double)given[d];
    begin_axes(&x, axis);
    return set_scales(lower, &x, n, scales, axis) < 0 ? -1 : run(lower, &resize, axis);
}

/* keep_aspect_ratio_policy: all dimensions get the smallest or the largest of the scales that the sizes give. */
static int keep_ratio(struct lower *lower, const struct tensor *x, int n, struct axis *axis) {
    const char *policy = lower->op->since >= 18 ? lower_text(lower, "keep_aspect_ratio_policy") : "stretch";
    const bool smaller = strcmp(policy, "not_larger") == 0;
    int axes[RT_MAX_NDIM];
    struct fraction scale = {0, 1};
    if (strcmp(policy, "stretch") == 0) return 0;
    if (!smaller && strcmp(policy, "not_smaller") != 0) return lower_unknown(lower, "keep_aspect_ratio_policy", policy);
    if (read_axes(lower, x->ndim, n, axes) < 0) return -1;
    for (int i = 0; i < n; i++)
        if (is_open(lower, &axis[axes[i]])) return lower_error(lower, 439, "keep_aspect_ratio_policy of open extents");
    for (int i = 0; i < n; i++) {
        const struct fraction own = axis[axes[i]].in ? axis[axes[i]].scale : (struct fraction){0, 1};
        const __int128 larger = own.num * scale.den - scale.num * own.den;
        if (i == 0 || (smaller ? larger < 0 : larger > 0)) scale = own;
    }
    if (!scale.num) return lower_error(lower, 384, "a size or an extent is 0");
    for (int i = 0; i < n; i++) { /* halves are rounded up */
        struct axis *a = &axis[axes[i]];
        const __int128 out = (2 * a->in * scale.num + scale.den) / (2 * scale.den);
        if (out > RESULT_LIMIT) return lower_too_large(lower);
        a->out = (int64_t)out;
        a->scale = scale;
    }
    return 0;
}

/* The part from `start` to `end` of a dimension, both with as many bits as Note [Widths of coordinates] leaves. */
static int set_part(struct lower *lower, double start, double end, struct axis *axis) {
    int bits = CROP_BITS, exponent;
    frexp((double)axis->in * fmax(1, fmax(fabs(start), fabs(end))), &exponent);
    if (!isfinite(start) || !isfinite(end) || exponent > 62)
        return lower_unsupported(lower, "roi from %g to %g", start, end);
    bits -= exponent;
    axis->start = (struct fraction){(__int128)floor(ldexp(start, bits)), (__int128)1 << bits};
    axis->end = (struct fraction){(__int128)floor(ldexp(end, bits)), (__int128)1 << bits};
    return 0;
}

/* The part of the input that tf_crop_and_resize shows: starts, then ends, of the dimensions `axes`, or of all. */
static int read_roi(struct lower *lower, const struct resize *resize, const struct tensor *x, struct axis *axis) {
    int n, axes[RT_MAX_NDIM];
    if (resize->at != crop_and_resize) return 0;
    if (is_empty(lower, 1)) return lower_error(lower, 384, "tf_crop_and_resize needs roi");
    const double *roi = known_floats(lower, 1, "roi", &n);
    if (!roi || read_axes(lower, x->ndim, n / 2, axes) < 0) return -1;
    for (int i = 0; i < n / 2; i++)
        if (set_part(lower, roi[i], roi[n / 2 + i], &axis[axes[i]]) < 0) return -1;
    return 0;
}

/* ONNX Resize-19; input 1, roi, is for tf_crop_and_resize only. */
int lower_resize(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    struct resize resize;
    struct axis axis[RT_MAX_NDIM];
    int n;
    if (read_manner(lower, &resize) < 0) return -1;
    if (is_empty(lower, 2) == is_empty(lower, 3))
        return lower_error(lower, 384, "exactly one of scales and sizes must be given");
    begin_axes(&x, axis);
    if (read_roi(lower, &resize, &x, axis) < 0) return -1;
    if (!is_empty(lower, 3)) {
        const int64_t *sizes = lower_known(lower, 3, "sizes", &n);
        if (!sizes || set_sizes(lower, &x, n, sizes, axis) < 0 || keep_ratio(lower, &x, n, axis) < 0) return -1;
    } else {
        const double *scales = known_floats(lower, 2, "scales", &n);
        if (!scales || set_scales(lower, &x, n, scales, axis) < 0) return -1;
    }
    return run(lower, &resize, axis);
}
