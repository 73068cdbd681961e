/* Sampling of images at computed points: grids, regions, deformable convolution. */
#include "frontend/lower/lower_counted.h"

#include <string.h>

#include "runtime/base/number/checked.h"
#include "runtime/base/shape/sampling.h"

enum { SPATIAL = 2, MOST = 1 << 24 };

/* Points in units of elements from points in [-1, 1] (.., ndim), which are the edges of the image of x or, with
 * align_corners, the centres of its first and last elements. The innermost dimension is the first coordinate. */
static int emit_unnormalised(struct lower *lower, int grid, const struct tensor *x, bool align) {
    const int n = x->ndim - SPATIAL;
    const int64_t dims[] = {n};
    int64_t size[RT_SAMPLE_DIMS];
    for (int d = 0; d < n; d++) size[d] = open_sum(lower_open(lower), x->dims[x->ndim - 1 - d], align ? -1 : 0);
    int shifted = emit_with(lower, OP_Add, grid, 1);
    const int sizes =
        emit_cast(lower, emit_cast(lower, emit_ints(lower, n, size, 1, dims), RT_F64), lower_dtype(lower, grid));
    shifted = emit2(lower, OP_Mul, shifted, sizes);
    return emit_with(lower, OP_Mul, align ? shifted : emit_with(lower, OP_Sub, shifted, 1), 0.5);
}

/* The sample modes that opset 16 calls bilinear and bicubic. */
static const char *mode_of(const char *text) {
    static const char *const names[][2] = {
        {"bilinear", "linear"}, {"linear", "linear"}, {"nearest", "nearest"}, {"bicubic", "cubic"}, {"cubic", "cubic"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], text) == 0) return names[i][1];
    return NULL;
}

/* ONNX GridSample-22. Integers are interpolated as f32 and truncated. */
int lower_grid_sample(struct lower *lower) {
    const struct tensor x = lower_input(lower, 0), grid = lower_input(lower, 1);
    const bool align = lower_int(lower, "align_corners") != 0, cast = !rt_dtype_is_float(x.dtype);
    const char *mode = mode_of(lower_text(lower, "mode")), *padding = lower_text(lower, "padding_mode");
    const int n = x.ndim - SPATIAL;
    if (!mode ||
        (strcmp(padding, "zeros") != 0 && strcmp(padding, "border") != 0 && strcmp(padding, "reflection") != 0))
        return lower_error(lower, 335, "unknown mode %s or padding_mode %s",
                           lower_quote(lower, lower_text(lower, "mode")), lower_quote(lower, padding));
    if (n < 1 || grid.ndim != x.ndim || !lower_meet(lower, grid.dims[0], x.dims[0]) || grid.dims[grid.ndim - 1] != n)
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (n > RT_SAMPLE_DIMS) return lower_unsupported(lower, "an input of %d spatial dimension(s)", n);
    for (int d = SPATIAL; d < x.ndim; d++)
        if (x.dims[d] < 1) return lower_error(lower, 384, "dimension %d has no elements", d);
    const enum rt_dtype dtype = cast ? RT_F32 : x.dtype;
    const bool widens = rt_dtype_bytes(dtype) > rt_dtype_bytes(grid.dtype);
    const int given = widens ? emit_cast(lower, lower->inputs[1], dtype) : lower->inputs[1];
    int points = given < 0 ? -1 : emit_cast(lower, emit_unnormalised(lower, given, &x, align), dtype);
    struct attr attrs[] = {attr_of_text("mode", mode), attr_of_text("padding", padding), attr_of_int("align", align)};
    const int image = emit_cast(lower, lower->inputs[0], dtype);
    const int y = emit(lower, OP_Sample, 2, (int[]){image, points}, 3, attrs);
    return lower_result(lower, emit_cast(lower, y, x.dtype));
}

/* Coordinate d of the places of a grid whose shape is `shape` and ends with 1, as f64: -1 and 1 are the first point and
 * the last, or else the borders of what these stand for. */
static int emit_coordinate(struct lower *lower, int ndim, const int64_t *shape, int d, bool align) {
    struct open_sizes *open = lower_open(lower);
    const int at = emit_cast(lower, emit_places(lower, 0, shape[d], ndim, d), RT_F64);
    const int twice = emit_with(lower, OP_Mul, at, 2);
    const int64_t parts = align ? open_greater(open, open_sum(open, shape[d], -1), 1) : shape[d];
    const int part =
        emit2(lower, OP_Div, align ? twice : emit_with(lower, OP_Add, twice, 1), emit_number(lower, RT_F64, parts));
    const int single = emit2(lower, OP_Greater, emit_number(lower, RT_I64, 2), emit_number(lower, RT_I64, shape[d]));
    int from = emit_like(lower, part, -1);
    if (align) from = emit3(lower, OP_Where, single, emit_like(lower, part, 0), from);
    return emit_expand(lower, emit2(lower, OP_Add, part, from), ndim, shape);
}

/* The places of an open grid, with a 1 behind each: (1, points, n + 1). */
static int emit_grid(struct lower *lower, enum rt_dtype dtype, int n, const int64_t *size, bool align) {
    int64_t shape[RT_MAX_NDIM], points = 1;
    int parts[RT_SAMPLE_DIMS + 1];
    for (int d = 0; d < n; d++) shape[d] = size[d], points *= size[d];
    shape[n] = 1;
    for (int d = 0; d < n; d++) parts[d] = emit_coordinate(lower, n + 1, shape, n - 1 - d, align);
    parts[n] = emit_expand(lower, build_scalar(&lower->builder, RT_F64, 1), n + 1, shape);
    const int64_t rows[] = {1, points, n + 1};
    return emit_reshape(lower, emit_cast(lower, emit_concat(lower, n, n + 1, parts), dtype), 3, rows);
}

/* The same of fixed extents, as a constant. */
static int grid_of(struct lower *lower, enum rt_dtype dtype, int n, const int64_t *size, bool align) {
    int64_t points = 1, place[RT_SAMPLE_DIMS] = {0};
    for (int d = 0; d < n; d++) points *= size[d];
    double *base = ARENA_ARRAY(lower->arena, double, points *(n + 1));
    for (int64_t p = 0; p < points; p++) {
        for (int d = 0; d < n; d++) { /* the innermost dimension first */
            const double extent = (double)size[n - 1 - d], at = (double)place[n - 1 - d];
            base[p * (n + 1) + d] = align ? (extent > 1 ? 2 * at / (extent - 1) - 1 : 0) : (2 * at + 1) / extent - 1;
        }
        base[p * (n + 1) + n] = 1;
        for (int d = n - 1; d >= 0 && ++place[d] == size[d]; d--) place[d] = 0;
    }
    const int64_t rows[] = {1, points, n + 1};
    return emit_floats(lower, dtype, 3, rows, base);
}

/* ONNX AffineGrid-20: the product of the places of the grid's points, with a 1 behind each, and theta. */
int lower_affine_grid(struct lower *lower) {
    const struct tensor theta = lower_input(lower, 0);
    const bool align = lower_int(lower, "align_corners") != 0;
    int count, n = theta.ndim == 3 ? (int)theta.dims[1] : 0;
    const int64_t *size = lower_known(lower, 1, "size", &count);
    int64_t most = 1, shape[RT_MAX_NDIM];
    bool is_open = false;
    if (!size) return -1;
    if (count != n + SPATIAL || n < 2 || n > 3 || theta.dims[2] != n + 1)
        return lower_error(lower, 378, "size does not fit theta %s", lower_type(lower, &theta));
    if (!open_meet(lower_open(lower), size[0], theta.dims[0]))
        return lower_error(lower, 378, "size does not fit theta %s", lower_type(lower, &theta));
    for (int d = 0; d < n; d++) {
        const int64_t extent = size[SPATIAL + d];
        if (open_least(lower_open(lower), extent) < 1 || !rt_mul(most, open_most(lower_open(lower), extent), &most) ||
            most > MOST)
            return lower_error(lower, 505, "a grid without points, or with more than %d", MOST);
        is_open = is_open || open_is(lower_open(lower), extent);
        shape[1 + d] = extent;
    }
    shape[0] = theta.dims[0];
    shape[n + 1] = n;
    const int base = (is_open ? emit_grid : grid_of)(lower, theta.dtype, n, size + SPATIAL, align);
    const int grid = emit_matmul(lower, base, lower->inputs[0], false, true);
    return lower_result(lower, emit_reshape(lower, grid, n + 2, shape));
}

static int emit_regions(struct lower *lower, int rois, int batch, const char *mode, int64_t rows, int64_t columns,
                        int64_t samples, double shift) {
    const struct tensor x = lower_input(lower, 0);
    if (x.ndim != 4) return lower_error(lower, 372, "the input has %d dimension(s), not 4", x.ndim);
    if (rows < 1 || columns < 1 || rows > MOST || columns > MOST || samples < 0 || samples > MOST || x.dims[2] < 1 ||
        x.dims[3] < 1)
        return lower_error(lower, 374, "an image or a region without elements");
    struct attr attrs[] = {attr_of_text("mode", mode),
                           attr_of_int("rows", rows),
                           attr_of_int("columns", columns),
                           attr_of_int("samples", samples),
                           attr_of_float("scale", lower_float(lower, "spatial_scale")),
                           attr_of_float("shift", shift)};
    return emit(lower, OP_RoiPool, 3, (int[]){lower->inputs[0], rois, batch}, 6, attrs);
}

/* ONNX RoiAlign-22; up to opset 15 without a shift of half an element. */
int lower_roi_align(struct lower *lower) {
    const char *mode = lower_text(lower, "mode"), *coordinates = "output_half_pixel";
    if (lower->op->since >= 16) coordinates = lower_text(lower, "coordinate_transformation_mode");
    const bool half = strcmp(coordinates, "half_pixel") == 0;
    if ((strcmp(mode, "avg") != 0 && strcmp(mode, "max") != 0) ||
        (!half && strcmp(coordinates, "output_half_pixel") != 0))
        return lower_error(lower, 335, "unknown mode %s or coordinate_transformation_mode %s", lower_quote(lower, mode),
                           lower_quote(lower, coordinates));
    if (lower_fit_along(lower, 2, lower->inputs + 1, (int[]){0, 0}) < 0) return -1;
    const int images = lower_masked_index(lower, lower->inputs[2]);
    return lower_result(lower, emit_regions(lower, lower->inputs[1], emit_cast(lower, images, RT_I64), mode,
                                            lower_int(lower, "output_height"), lower_int(lower, "output_width"),
                                            lower_int(lower, "sampling_ratio"), half ? 0.5 : 0));
}

/* ONNX MaxRoiPool-22: the first of a region's five numbers is its image. */
int lower_max_roi_pool(struct lower *lower) {
    const struct tensor rois = lower_input(lower, 1);
    int n;
    const int64_t *shape = lower_ints(lower, "pooled_shape", &n);
    if (n != 2 || rois.ndim != 2 || rois.dims[1] != 5)
        return lower_error(lower, 378, "regions have 5 numbers, and pooled_shape 2");
    const int batch = emit_squeeze(lower, emit_piece(lower, lower->inputs[1], 1, 0, 1, 1), 1);
    return lower_result(lower, emit_regions(lower, emit_piece(lower, lower->inputs[1], 1, 1, 1, 4),
                                            emit_cast(lower, batch, RT_I64), "bins", shape[0], shape[1], 0, 0));
}

struct deform {
    int64_t n, c, h, w, m, group, offset_group, kh, kw, oh, ow;
    int64_t stride[2], dilation[2], pads[4];
};

static int read_pair(struct lower *lower, const char *name, int count, int64_t fallback, int64_t *values) {
    int n;
    const int64_t *list = lower_ints(lower, name, &n);
    if (list && n != count) return lower_error(lower, 372, "%s has %d value(s), not %d", name, n, count);
    for (int i = 0; i < count; i++) {
        values[i] = list ? list[i] : fallback;
        if (values[i] < fallback || values[i] > MOST)
            return lower_error(lower, 374, "%s %lld is out of range", name, (long long)values[i]);
    }
    return 0;
}

static int read_deform(struct lower *lower, struct deform *d) {
    const struct tensor x = lower_input(lower, 0), w = lower_input(lower, 1), offset = lower_input(lower, 2);
    if (x.ndim != 4 || w.ndim != 4 || offset.ndim != 4) {
        if (x.ndim >= 3 && w.ndim == x.ndim) return lower_unsupported(lower, "an input of %d dimension(s)", x.ndim);
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    }
    *d = (struct deform){x.dims[0],
                         x.dims[1],
                         x.dims[2],
                         x.dims[3],
                         w.dims[0],
                         lower_int(lower, "group"),
                         lower_int(lower, "offset_group"),
                         w.dims[2],
                         w.dims[3],
                         offset.dims[2],
                         offset.dims[3]};
    if (read_pair(lower, "strides", 2, 1, d->stride) < 0 || read_pair(lower, "dilations", 2, 1, d->dilation) < 0 ||
        read_pair(lower, "pads", 4, 0, d->pads) < 0)
        return -1;
    const bool groups = d->group > 0 && d->offset_group > 0 && d->c % d->group == 0 && d->m % d->group == 0 &&
                        d->c % d->offset_group == 0;
    if (!groups || w.dims[1] != d->c / d->group || offset.dims[0] != d->n ||
        offset.dims[1] != d->offset_group * d->kh * d->kw * 2)
        return lower_error(lower, 373, "weights or offsets do not fit the groups and the input %s",
                           lower_type(lower, &x));
    return 0;
}

/* emit_taps() where an extent of the result is open: where its windows begin, and where the elements of one are. */
static int emit_open_taps(struct lower *lower, const struct deform *d) {
    const int64_t k = d->kh * d->kw, dims[] = {k, 1, 1, 2}, begins[] = {1, d->oh, d->ow, 1};
    double *taps = ARENA_ARRAY(lower->arena, double, k * 2 + 1);
    int begin[2];
    for (int64_t tap = 0; tap < k; tap++) {
        taps[2 * tap] = (double)(tap % d->kw * d->dilation[1] - d->pads[1]);
        taps[2 * tap + 1] = (double)(tap / d->kw * d->dilation[0] - d->pads[0]);
    }
    for (int i = 0; i < 2; i++) { /* columns, then rows */
        const int places = emit_places(lower, 0, i ? d->oh : d->ow, 4, 2 - i);
        begin[i] = emit_expand(lower, emit_with(lower, OP_Mul, places, (double)d->stride[1 - i]), 4, begins);
    }
    const enum rt_dtype dtype = lower_dtype(lower, lower->inputs[0]);
    const int windows = emit_cast(lower, emit_concat(lower, 3, 2, begin), dtype);
    return emit2(lower, OP_Add, windows, emit_floats(lower, dtype, 4, dims, taps));
}

/* Where the window's elements lie without offsets: (kh kw, oh, ow, 2), the column first. */
static int emit_taps(struct lower *lower, const struct deform *d) {
    if (open_is(lower_open(lower), d->oh) || open_is(lower_open(lower), d->ow)) return emit_open_taps(lower, d);
    const int64_t k = d->kh * d->kw, dims[] = {k, d->oh, d->ow, 2};
    double *places = ARENA_ARRAY(lower->arena, double, k * d->oh * d->ow * 2 + 1), *at = places;
    for (int64_t tap = 0; tap < k; tap++)
        for (int64_t i = 0; i < d->oh; i++)
            for (int64_t j = 0; j < d->ow; j++) {
                *at++ = (double)(j * d->stride[1] - d->pads[1] + tap % d->kw * d->dilation[1]);
                *at++ = (double)(i * d->stride[0] - d->pads[0] + tap / d->kw * d->dilation[0]);
            }
    return emit_floats(lower, lower_dtype(lower, lower->inputs[0]), 4, dims, places);
}

/* The points of all windows, (n offset_group, kh kw, oh, ow, 2). Offsets are rows, then columns. */
static int emit_deformed(struct lower *lower, const struct deform *d) {
    static const int64_t last[] = {0, 1, 3, 4, 2};
    const int64_t k = d->kh * d->kw, split[] = {d->n * d->offset_group, k, 2, d->oh, d->ow};
    const int moved = emit_transpose(lower, emit_reshape(lower, lower->inputs[2], 5, split), last);
    const int turned = moved < 0 ? -1 : emit_piece(lower, moved, 4, 1, -1, 2);
    return emit2(lower, OP_Add, turned, emit_taps(lower, d));
}

/* ONNX DeformConv-22: the elements that each window reads are sampled, weighted by the mask, and multiplied with the
 * weights by a convolution of windows of 1. */
int lower_deform_conv(struct lower *lower) {
    struct deform d;
    if (read_deform(lower, &d) < 0) return -1;
    const int64_t k = d.kh * d.kw, images = d.n * d.offset_group, channels = d.c / d.offset_group;
    const int64_t split[] = {images, channels, d.h, d.w}, masked[] = {images, 1, k, d.oh, d.ow};
    const int64_t columns[] = {d.n, d.c * k, d.oh, d.ow}, weights[] = {d.m, d.c / d.group * k, 1, 1};
    struct attr attrs[] = {attr_of_text("mode", "linear"), attr_of_text("padding", "zeros"), attr_of_int("align", 1)};
    const int image = emit_reshape(lower, lower->inputs[0], 4, split), points = emit_deformed(lower, &d);
    int sampled = emit(lower, OP_Sample, 2, (int[]){image, points}, 3, attrs);
    if (lower_has(lower, 4)) sampled = emit2(lower, OP_Mul, sampled, emit_reshape(lower, lower->inputs[4], 5, masked));
    sampled = emit_reshape(lower, sampled, 4, columns);
    const int y = emit_conv(lower, sampled, emit_reshape(lower, lower->inputs[1], 4, weights), d.group);
    if (y < 0 || !lower_has(lower, 3)) return lower_result(lower, y);
    return lower_result(lower, emit2(lower, OP_Add, y, emit_per_channel(lower, lower->inputs[3], 4)));
}
