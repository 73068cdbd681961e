/* Resize and Upsample: separable interpolation, one dimension after another. Along a dimension each result is a
 * weighted sum of a few elements. Their indices and weights are known at compile time, so it is a composition of
 * Gather, Mul and Add. */
#include "frontend/lower/lower_resize.h"

#include <math.h>

#include "ir/expr/eval.h"
#include "runtime/base/number/checked.h"

/* Of a finite double whose parts fit, as Note [Widths of coordinates] says. */
static struct fraction fraction_of(double x) {
    int exponent;
    __int128 num = (int64_t)ldexp(frexp(x, &exponent), 53);
    for (exponent -= 53; exponent < 0 && num % 2 == 0; exponent++) num /= 2;
    return exponent < 0 ? (struct fraction){num, (__int128)1 << -exponent}
                        : (struct fraction){num * ((__int128)1 << exponent), 1};
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

static const struct {
    const char *name;
    coordinate_fn *at;
} coordinates[] = {{"half_pixel", half_pixel},
                   {"pytorch_half_pixel", pytorch_half_pixel},
                   {"align_corners", align_corners},
                   {"asymmetric", asymmetric},
                   {"tf_half_pixel_for_nn", tf_half_pixel},
                   {"half_pixel_symmetric", half_pixel_symmetric},
                   {"tf_crop_and_resize", crop_and_resize}};

static int64_t prefer_floor(struct fraction x) {
    return ceil_of((struct fraction){2 * x.num - x.den, 2 * x.den});
}
static int64_t prefer_ceil(struct fraction x) {
    return floor_of((struct fraction){2 * x.num + x.den, 2 * x.den});
}

static const struct rounding roundings[] = {{"round_prefer_floor", prefer_floor, .halves = true, .up = true},
                                            {"round_prefer_ceil", prefer_ceil, .halves = true, .up = false},
                                            {"floor", floor_of, .halves = false, .up = false},
                                            {"ceil", ceil_of, .halves = false, .up = true}};

static const struct rounding *rounding_of(const char *name) {
    for (size_t i = 0; i < sizeof roundings / sizeof *roundings; i++)
        if (strcmp(roundings[i].name, name) == 0) return &roundings[i];
    return NULL;
}

enum { MAX_TAPS = 4 };

/* The filter taps of one result: `n` adjacent elements from `first` on, which may be outside of the input. */
struct taps {
    int n;
    int64_t first;
    double weight[MAX_TAPS];
};

static struct taps nearest_taps(const struct resize *resize, struct fraction x) {
    return (struct taps){1, resize->round->of(x), {1}};
}

static struct taps linear_taps(struct fraction x) {
    const double rest = rest_of(x);
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

static struct taps taps_of(const struct resize *resize, struct fraction x) {
    if (resize->mode == RESIZE_NEAREST) return nearest_taps(resize, x);
    return resize->mode == RESIZE_LINEAR ? linear_taps(x) : cubic_taps(resize, x);
}

/* exclude_outside: sets the weights of taps outside of the input to 0 and scales the others to a sum of 1. */
static void drop_outside(struct taps *taps, int64_t in) {
    double sum = 0;
    for (int t = 0; t < taps->n; t++) {
        if (taps->first + t < 0 || taps->first + t >= in) taps->weight[t] = 0;
        sum += taps->weight[t];
    }
    for (int t = 0; t < taps->n && sum != 0; t++) taps->weight[t] /= sum;
}

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
        struct taps taps = taps_of(resize, resize->at(axis, o));
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

/* Antialias: with `scale` < 1 the filter is 1 / scale as wide, so that every element has a part in some result. The
 * weights of element e at distance (e - x) scale are scaled to a sum of 1. */
static void fill_wide_row(const struct resize *resize, const struct axis *axis, int64_t o, double *row) {
    const struct fraction x = resize->at(axis, o);
    const double rest = rest_of(x), scale = (double)axis->scale.num / (double)axis->scale.den;
    const double reach = (resize->mode == RESIZE_CUBIC ? 2 : 1) / scale;
    double sum = 0;
    for (int64_t d = (int64_t)ceil(rest - reach); d <= (int64_t)floor(rest + reach); d++) {
        const double t = fabs(((double)d - rest) * scale);
        const double weight = resize->mode == RESIZE_CUBIC ? keys(resize->cubic, t) : fmax(0, 1 - t);
        const int64_t e = floor_of(x) + d;
        if (resize->exclude_outside && e != inside(axis, e)) continue;
        row[inside(axis, e)] += weight;
        sum += weight;
    }
    for (int64_t i = 0; i < axis->in && sum != 0; i++) row[i] /= sum;
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
    return resize_by_weights(lower, x, dim, weights);
}

/* tf_crop_and_resize: results of coordinates outside of the input get a given value. */
static int mask_outside(struct lower *lower, int y, int dim, const struct resize *resize, const struct axis *axis) {
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

static int resample(struct lower *lower, int x, int dim, const struct resize *resize, const struct axis *axis) {
    if (x < 0) return -1;
    /* Left out in `axes`, or as large as before: unlike the others, tf_half_pixel_for_nn would move the elements. */
    if (!resize->crops && axis->scale.num == axis->scale.den && axis->out == axis->in) return x;
    if (resize_is_open(lower, axis)) return resize_open(lower, x, dim, resize, axis);
    if (resize->antialias && axis->scale.num < axis->scale.den && resize->mode != RESIZE_NEAREST)
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
    if (n != count) return lower_error(lower, 372, "%d scale(s) or sizes are given for %d dimension(s)", count, n);
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
    if (resize->mode != RESIZE_NEAREST && !rt_dtype_is_float(x.dtype))
        return lower_unsupported(lower, "a mode other than nearest, for integers,");
    for (int grows = 0; grows < 2; grows++) /* those that shrink first: less work for the others */
        for (int i = 0; i < x.ndim; i++) {
            /* Nearest gives the same in any order, and single elements are dearer to gather than rows. */
            const int d = grows && resize->mode == RESIZE_NEAREST ? x.ndim - 1 - i : i;
            if ((open_typical(open, axis[d].out) >= open_typical(open, axis[d].in)) == grows)
                y = resample(lower, y, d, resize, &axis[d]);
        }
    for (int d = 0; d < x.ndim && y >= 0 && resize->crops; d++)
        y = (resize_is_open(lower, &axis[d]) ? resize_mask_open : mask_outside)(lower, y, d, resize, &axis[d]);
    return lower_result(lower, y);
}

static void begin_axes(const struct tensor *x, struct axis *axis) {
    for (int d = 0; d < x->ndim; d++) axis[d] = (struct axis){x->dims[d], x->dims[d], {1, 1}, {0, 1}, {1, 1}};
}

static int read_mode(struct lower *lower, struct resize *resize) {
    static const char *const modes[] = {
        [RESIZE_NEAREST] = "nearest", [RESIZE_LINEAR] = "linear", [RESIZE_CUBIC] = "cubic"};
    const char *text = lower_text(lower, "mode");
    for (int i = 0; i < 3; i++) {
        resize->mode = (enum resize_mode)i;
        if (strcmp(modes[i], text) == 0) return 0;
    }
    return lower_unknown(lower, "mode", text);
}

/* ONNX Upsample-9 and Resize-10: scales are an attribute or input 1; the coordinate is o / scale, nearest rounds
 * down. */
int lower_upsample(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    struct resize resize = {.coordinates = "asymmetric", .at = asymmetric, .round = rounding_of("floor")};
    struct axis axis[RT_MAX_NDIM];
    const double *scales;
    int n;
    if (read_mode(lower, &resize) < 0) return -1;
    if (resize.mode == RESIZE_CUBIC) return lower_unsupported(lower, "mode cubic");
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
                              .outside = lower_float(lower, "extrapolation_value"),
                              .coordinates = at,
                              .round = rounding_of(round)};
    if (read_mode(lower, resize) < 0) return -1;
    for (size_t i = 0; i < sizeof coordinates / sizeof *coordinates; i++)
        if (strcmp(coordinates[i].name, at) == 0) resize->at = coordinates[i].at;
    resize->crops = resize->at == crop_and_resize;
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
    if (n != x.ndim) return lower_error(lower, 384, "%d scale(s) for %d dimension(s)", n, x.ndim);
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
        if (resize_is_open(lower, &axis[axes[i]])) return resize_keep_open_ratio(lower, n, axes, smaller, axis);
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
    for (; bits > 0 && axis->start.num % 2 == 0 && axis->end.num % 2 == 0; bits--) {
        axis->start = (struct fraction){axis->start.num / 2, axis->start.den / 2};
        axis->end = (struct fraction){axis->end.num / 2, axis->end.den / 2};
    }
    return 0;
}

/* The part of the input that tf_crop_and_resize shows: starts, then ends, of the dimensions `axes`, or of all. */
static int read_roi(struct lower *lower, const struct resize *resize, const struct tensor *x, struct axis *axis) {
    int n, axes[RT_MAX_NDIM];
    if (!resize->crops) return 0;
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
