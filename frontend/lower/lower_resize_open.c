/* Resize of open extents: indices and weights are computed at run time, as lower_resize.c computes those of fixed
 * extents. */
#include <string.h>

#include "frontend/lower/lower_resize.h"
#include "runtime/base/number/checked.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one table have the parameters of all */

enum { MAX_TAPS = 4, LINE_BITS = 59 };

/* Where result o lies in the input: times (step o + first) / by, of numbers that may depend on sizes. A
 * product of all of them may be too large in a specimen. With `several` it is 0 if there is one result. */
struct line {
    int64_t step, first, by, times;
    bool several;
};

static bool fits(__int128 number) {
    return number >> LINE_BITS == 0 || number >> LINE_BITS == -1;
}

/* The product a b. If it is too large, the specimen is marked as spoiled: the product may fit in another one. */
static int64_t product(struct open_sizes *open, int64_t a, int64_t b) {
    int64_t product;
    if (rt_mul(a, b, &product) && fits(product)) return product;
    open->spoiled = true;
    return 0;
}

typedef struct line line_fn(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den);

static struct line half_pixel_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    return (struct line){2 * den, open_sum(open, den, -num), 2 * num, 1, false};
}
static struct line pytorch_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    struct line line = half_pixel_line(open, axis, num, den);
    line.several = true;
    return line;
}
static struct line corners_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    return (struct line){open_sum(open, axis->in, -1), 0, open_greater(open, open_sum(open, axis->out, -1), 1), 1,
                         false};
}
static struct line asymmetric_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    return (struct line){den, 0, num, 1, false};
}
/* Elements do not move if the scale is 1. */
static struct line tf_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    const int64_t apart = open_sum(open, num, -den);
    const int64_t moves = open_lesser(open, open_greater(open, apart, -apart), 1);
    return (struct line){2 * den, product(open, den, moves), 2 * num, 1, false};
}
static struct line symmetric_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    struct line line = half_pixel_line(open, axis, num, den);
    line.first =
        open_sum(open, line.first, open_sum(open, product(open, axis->in, num), -product(open, axis->out, den)));
    return line;
}

/* Of several results the coordinates go from `start` to `end`, of one it is the middle. */
static struct line crop_line(struct open_sizes *open, const struct axis *axis, int64_t num, int64_t den) {
    const int64_t start = (int64_t)axis->start.num, end = (int64_t)axis->end.num, parts = (int64_t)axis->start.den;
    const int64_t last = open_sum(open, axis->in, -1), steps = open_sum(open, axis->out, -1);
    const int64_t by = open_greater(open, steps, 1);
    const int64_t first = open_sum(open, product(open, start + end, by), product(open, start - end, steps));
    return (struct line){2 * (end - start), first, product(open, 2 * parts, by), last, false};
}

static const struct {
    const char *name;
    line_fn *of;
} lines[] = {{"half_pixel", half_pixel_line},   {"pytorch_half_pixel", pytorch_line},
             {"align_corners", corners_line},   {"asymmetric", asymmetric_line},
             {"tf_half_pixel_for_nn", tf_line}, {"half_pixel_symmetric", symmetric_line},
             {"tf_crop_and_resize", crop_line}};

static int number(struct lower *lower, int64_t value) {
    return emit_number(lower, RT_I64, value);
}

/* times (step o + first) of each result o. It is not folded: of a fixed number of results each would be a number of its
 * own that follows from the sizes. */
static int emit_line(struct lower *lower, int64_t out, const struct line *line) {
    const int operands[] = {emit_places(lower, 0, out, 1, 0), number(lower, line->step)};
    int at;
    if (operands[0] < 0 || operands[1] < 0) return -1;
    if (build_many(&lower->builder, OP_Mul, 2, operands, 1, &at, 0, NULL) < 0) return -1;
    at = emit2(lower, OP_Add, at, number(lower, line->first));
    if (line->times != 1) at = emit2(lower, OP_Mul, at, number(lower, line->times));
    if (!line->several) return at;
    const int several = emit2(lower, OP_Greater, number(lower, out), number(lower, 1));
    return emit2(lower, OP_Mul, at, emit_cast(lower, several, RT_I64));
}

/* floor(at / by), and what is left of it as a part of `by`, an f64. */
struct places {
    int floor, rest;
};

static struct places emit_floors(struct lower *lower, int at, int by) {
    const int left = emit2(lower, OP_Mod, at, by), below = emit2(lower, OP_Sub, at, left);
    return (struct places){emit2(lower, OP_Div, below, by),
                           emit2(lower, OP_Div, emit_cast(lower, left, RT_F64), emit_cast(lower, by, RT_F64))};
}

/* Emits a line's value rounded as `resize` says, by means of floor(). Rounding up is -floor(-x). Rounding to the
 * nearest integer is the floor of the number plus one half. */
static int emit_rounded(struct lower *lower, const struct resize *resize, int64_t out, const struct line *line) {
    const bool halves = resize->round->halves, up = resize->round->up;
    const int by = number(lower, line->by);
    int at = emit_line(lower, out, line);
    if (up) at = emit1(lower, OP_Neg, at);
    if (halves) at = emit2(lower, OP_Add, emit_with(lower, OP_Mul, at, 2), by);
    const int floor = emit_floors(lower, at, halves ? number(lower, 2 * line->by) : by).floor;
    return up ? emit1(lower, OP_Neg, floor) : floor;
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
    if (resize->mode == RESIZE_NEAREST) {
        *first = emit_rounded(lower, resize, out, line);
        weights[0] = emit_expand(lower, build_scalar(&lower->builder, RT_F64, 1), 1, &out);
        return 1;
    }
    const struct places places = emit_floors(lower, emit_line(lower, out, line), number(lower, line->by));
    *first = places.floor;
    if (resize->mode == RESIZE_LINEAR) {
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

static struct line line_of(const struct lower *lower, const struct resize *resize, const struct axis *axis) {
    size_t i = 0;
    while (strcmp(lines[i].name, resize->coordinates) != 0) i++;
    return lines[i].of(lower_open(lower), axis, (int64_t)axis->scale.num, (int64_t)axis->scale.den);
}

/* What the number is at most, negative or not. */
static __int128 magnitude(struct open_sizes *open, int64_t number) {
    const __int128 least = -(__int128)open_least(open, number), most = open_most(open, number);
    return least > most ? least : most;
}

/* Whether the numbers of an open dimension fit for all sizes, also four times as large as when halves are rounded, or
 * what is wrong is said. */
static int check_open(struct lower *lower, const struct resize *resize, const struct axis *axis) {
    struct open_sizes *open = lower_open(lower);
    if (lower_at_least(lower, axis->in, 1, "the input of a Resize", "1 or more") < 0) return -1;
    const struct fraction all[] = {axis->scale, axis->start, axis->end};
    for (int i = 0; i < 3; i++)
        if (!fits(all[i].num) || !fits(all[i].den)) return lower_unsupported(lower, "so fine a scale");
    const struct line line = line_of(lower, resize, axis);
    const __int128 most = magnitude(open, axis->out) * magnitude(open, line.step) + magnitude(open, line.first);
    if (!fits(most) || !fits(most * magnitude(open, line.times)) || !fits(magnitude(open, line.by)))
        return lower_unsupported(lower, "so fine a scale");
    return 0;
}

static int resample_open(struct lower *lower, int x, int dim, const struct resize *resize, const struct axis *axis) {
    struct open_sizes *open = lower_open(lower);
    int index[MAX_TAPS], kept[MAX_TAPS], weights[MAX_TAPS], first, sum = -1;
    const struct line line = line_of(lower, resize, axis);
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

static bool has_open_scale(struct open_sizes *open, const struct axis *axis) {
    return open_is(open, (int64_t)axis->scale.num) || open_is(open, (int64_t)axis->scale.den);
}

/* How many elements outside of the input a filter may reach: a scale is at least 1 / in, or half of it where the
 * result's extent is rounded. */
static int64_t reach_of(struct open_sizes *open, const struct resize *resize, const struct axis *axis) {
    const int64_t taps = resize->mode == RESIZE_CUBIC ? 2 : 1;
    if (resize->exclude_outside) return 0;
    if (has_open_scale(open, axis)) return taps * axis->in * (axis->scale.den == axis->in ? 1 : 2);
    return axis->scale.num < axis->scale.den ? ceil_of((struct fraction){taps * axis->scale.den, axis->scale.num})
                                             : taps;
}

/* As fill_wide_row() of every result, for the given elements, of type i64: (results, elements) in type `dtype`. */
static int emit_wide_rows(struct lower *lower, enum rt_dtype dtype, const struct resize *resize,
                          const struct axis *axis, int elements) {
    const int64_t num = (int64_t)axis->scale.num, den = (int64_t)axis->scale.den;
    const struct line line = line_of(lower, resize, axis);
    const struct places at = emit_floors(lower, emit_line(lower, axis->out, &line), number(lower, line.by));
    const int apart = emit2(lower, OP_Sub, emit_unsqueeze(lower, elements, 0), emit_unsqueeze(lower, at.floor, 1));
    const int exact = emit2(lower, OP_Sub, emit_cast(lower, apart, RT_F64), emit_unsqueeze(lower, at.rest, 1));
    const int scale = emit2(lower, OP_Div, emit_number(lower, RT_F64, num), emit_number(lower, RT_F64, den));
    const int narrow = emit2(lower, OP_Min, scale, emit_like(lower, scale, 1));
    const int t = emit2(lower, OP_Mul, emit1(lower, OP_Abs, exact), narrow), zero = emit_like(lower, t, 0);
    int weights, sum;
    if (resize->mode == RESIZE_CUBIC)
        weights = emit3(lower, OP_Where, emit_with(lower, OP_Less, t, 2), emit_keys(lower, resize->cubic, t), zero);
    else
        weights = emit2(lower, OP_Max, emit2(lower, OP_Sub, emit_like(lower, t, 1), t), zero);
    sum = emit_reduce_along(lower, OP_ReduceSum, weights, 1, true);
    sum = emit3(lower, OP_Where, emit_with(lower, OP_Equal, sum, 0), emit_like(lower, sum, 1), sum);
    return emit_cast(lower, emit2(lower, OP_Div, weights, sum), dtype);
}

int resize_by_weights(struct lower *lower, int x, int dim, int weights) {
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
    return resize_by_weights(lower, x, dim, emit_wide_rows(lower, lower_dtype(lower, x), resize, axis, elements));
}

/* As mask_outside(). */
int resize_mask_open(struct lower *lower, int y, int dim, const struct resize *resize, const struct axis *axis) {
    struct line line = line_of(lower, resize, axis);
    int64_t dims[RT_MAX_NDIM];
    if (axis->start.num >= 0 && axis->start.num <= axis->start.den && axis->end.num >= 0 &&
        axis->end.num <= axis->end.den)
        return y;
    line.times = open_lesser(lower_open(lower), line.times, 1); /* a single element is always inside */
    const int at = emit_line(lower, axis->out, &line), by = number(lower, line.by);
    int shown = emit2(lower, OP_GreaterOrEqual, at, number(lower, 0));
    shown = emit2(lower, OP_And, shown, emit2(lower, OP_LessOrEqual, at, by));
    for (int d = dim; d < lower_ndim(lower, y); d++) dims[d - dim] = d == dim ? axis->out : 1;
    shown = emit_reshape(lower, shown, lower_ndim(lower, y) - dim, dims);
    return emit3(lower, OP_Where, shown, y, emit_like(lower, y, resize->outside));
}

bool resize_is_open(const struct lower *lower, const struct axis *axis) {
    struct open_sizes *open = lower_open(lower);
    return open_is(open, axis->in) || open_is(open, axis->out) || has_open_scale(open, axis);
}

/* True if tf_crop_and_resize shows the dimension as it is. */
static bool shows_all(const struct axis *axis) {
    return axis->in == axis->out && !axis->start.num && axis->end.num == axis->end.den;
}

int resize_open(struct lower *lower, int x, int dim, const struct resize *resize, const struct axis *axis) {
    struct open_sizes *open = lower_open(lower);
    if (resize->crops && shows_all(axis)) return x;
    if (check_open(lower, resize, axis) < 0) return -1;
    const bool grows = open_least(open, axis->out) >= open_most(open, axis->in);
    if (resize->antialias && resize->mode != RESIZE_NEAREST && !grows && axis->scale.num != axis->scale.den)
        return resample_wide_open(lower, x, dim, resize, axis);
    return resample_open(lower, x, dim, resize, axis);
}

/* The lesser or greater of all results, each rounded, and of all scales, by what all extents
 * divide. */
int resize_keep_open_ratio(struct lower *lower, int n, const int *axes, bool smaller, struct axis *axis) {
    struct open_sizes *open = lower_open(lower);
    int64_t (*const chosen)(struct open_sizes * open, int64_t a, int64_t b) = smaller ? open_lesser : open_greater;
    int64_t num = axis[axes[0]].out, den = axis[axes[0]].in, out[RT_MAX_NDIM];
    for (int i = 0; i < n; i++)
        if (lower_at_least(lower, axis[axes[i]].in, 1, "the input of a Resize", "1 or more") < 0 ||
            lower_at_least(lower, axis[axes[i]].out, 1, "a size of a Resize", "1 or more") < 0)
            return -1;
    for (int i = 1; i < n; i++) {
        const struct axis *a = &axis[axes[i]];
        if (a->in == den) {
            num = chosen(open, num, a->out);
        } else {
            num = chosen(open, product(open, num, a->in), product(open, a->out, den));
            den = product(open, den, a->in);
        }
    }
    for (int i = 0; i < n; i++) {
        const int64_t in = axis[axes[i]].in;
        out[i] = axis[axes[i]].out;
        for (int k = 0; k < n; k++) {
            const struct axis *a = &axis[axes[k]];
            const int64_t twice = open_sum(open, product(open, 2 * in, a->out), a->in);
            if (k != i) out[i] = chosen(open, out[i], open_quotient(open, twice, 2 * a->in));
        }
        if (open_most(open, out[i]) > RESULT_LIMIT) return lower_too_large(lower);
    }
    for (int i = 0; i < n; i++) axis[axes[i]].out = out[i], axis[axes[i]].scale = (struct fraction){num, den};
    return 0;
}
