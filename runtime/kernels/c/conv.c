#include "conv.h"

#include "../../generated.h"
#include "../gemm.h"
#include "conv_shape.h"
#include "internal.h"
#include "types.h"

#include <string.h>

/* Note [Convolution as product]
 * y(m, pixels) = w(m, depth) columns(depth, pixels) (im2col): row (c, k) of columns is what window element k reads of
 * channel c. The columns are never materialised: a thread collects a block of RT_GEMM_DEPTH rows by TILE pixels on its
 * stack and adds its product to y, one block of depth after the other. Nothing is allocated, and a sum has the same
 * order for every tile. A pointwise convolution reads x directly as columns.
 *
 * The gradient of the weights is the sum over samples of dy(m, pixels) columns(depth, pixels)': there a block is
 * RT_GEMM_DEPTH pixels by TILE rows of the columns, transposed. */
#define BLOCK_BYTES    (RT_GEMM_DEPTH * 128 * 4)
#define PIECE          32      /* output channels at least, where threads share them out */
#define VECTOR         16      /* columns between which tiles are cut */
#define LEAST_VECTORS  4       /* of a tile, where threads share them out */
#define PARALLEL_FLOPS 1048576 /* multiply-adds below which threads do not pay */
#define SCATTER_ROWS   64      /* of a transposed convolution's products at a time */
#define SCATTER_TILE   128     /* input positions at a time; part of the order of the sums */
#define NARROW_ROWS    256
#define TURNED         16 /* columns of a weight gradient's operand that are turned at a time: a cache line */

/* The least o in [0, most] with o * stride >= at. */
static int64_t first_at(int64_t at, int64_t stride, int64_t most) {
    if (at <= 0) return 0;
    return min_i64(stride == 1 ? at : (at + stride - 1) / stride, most); /* a division costs as much as a short line */
}

void rt_window_reach(const struct rt_window *window, int64_t k, int64_t *first, int64_t *end) {
    int64_t offset = window->begin[2] - k * window->dilation[2];
    *first = first_at(offset, window->stride[2], window->y[2]);
    *end = max_i64(*first, first_at(window->x[2] + offset, window->stride[2], window->y[2]));
}

static struct rt_conv shape_of(struct rt_window window, const int64_t *x_dims, const int64_t *y_dims, int64_t groups) {
    struct rt_conv conv = {.window = window, .batch = x_dims[0], .groups = groups};
    conv.c = x_dims[1] / groups;
    conv.m = y_dims[1] / groups;
    conv.depth = conv.c * window.taps;
    conv.pointwise = window.taps == 1;
    for (int d = 0; d < 3; d++)
        conv.pointwise = conv.pointwise && window.stride[d] == 1 && !window.begin[d] && window.x[d] == window.y[d];
    return conv;
}

/* Division of work among threads: tiles of columns, divided at multiples of VECTOR, by pieces of output channels. */
struct shares {
    int64_t columns, vectors, tiles, m, rows, pieces;
};

/* One share: of product number `product`, `width` columns from `column` on, `rows` output channels from `row` on. */
struct share {
    int64_t product, column, width, row, rows;
};

/* Divides `products` products, each of all output channels of a group by `columns`, a tile being `most` columns wide.
 * Columns are divided first: threads that divided the channels of a tile would each collect the same columns. */
static struct shares share_out(const struct rt_conv *conv, int64_t products, int64_t columns, int64_t most) {
    struct shares s = {.columns = columns, .m = conv->m, .rows = conv->m, .pieces = 1};
    int64_t threads = omp_get_max_threads(), even;
    s.vectors = (columns + VECTOR - 1) / VECTOR;
    s.tiles = even = (columns + most - 1) / most;
    while (products * even % threads) even++;
    if (even * LEAST_VECTORS <= s.vectors) s.tiles = even;
    int64_t items = products * s.tiles;
    if (items % threads == 0 || items >= 8 * threads || conv->m < 2 * PIECE) return s;
    s.rows = max_i64(((conv->m + threads - 1) / threads + PIECE - 1) / PIECE * PIECE, PIECE);
    s.pieces = (conv->m + s.rows - 1) / s.rows;
    return s;
}

static struct share share_of(const struct shares *s, int64_t item) {
    int64_t tile = item / s->pieces % s->tiles, row = item % s->pieces * s->rows;
    int64_t column = tile * s->vectors / s->tiles * VECTOR, end = (tile + 1) * s->vectors / s->tiles * VECTOR;
    return (struct share){item / (s->pieces * s->tiles), column, min_i64(end, s->columns) - column, row,
                          min_i64(s->rows, s->m - row)};
}

static int pays(const struct rt_conv *conv) {
    double sums = (double)conv->batch * (double)conv->groups * (double)conv->m * (double)conv->window.y_plane;
    return sums * (double)conv->depth >= PARALLEL_FLOPS;
}

static int refuse(struct rt *rt, const struct rt_conv *conv) {
    return rt_fail(rt, RT_ERROR_SYSTEM, "the matrix-product library rejected a convolution of %lld by %lld channels",
                   (long long)conv->c, (long long)conv->m);
}

/* rt_gemm_library_add_f32, also for one column, which is extended by a column of zeros. */
static int library_add_f32(float *y, int64_t y_row, const float *a, int64_t a_row, const float *b, int64_t b_row,
                           int64_t m, int64_t k, int64_t n, int first) {
    float right[RT_GEMM_DEPTH * 2] = {0}, result[NARROW_ROWS * 2] = {0};
    if (n > 1) return rt_gemm_library_add_f32(y, y_row, a, a_row, b, b_row, m, k, n, first);
    for (int64_t p = 0; p < k; p++) right[2 * p] = b[p * b_row];
    for (int64_t i0 = 0; i0 < m; i0 += NARROW_ROWS) {
        int64_t rows = min_i64(m - i0, NARROW_ROWS);
        for (int64_t i = 0; i < rows && !first; i++) result[2 * i] = y[(i0 + i) * y_row];
        if (rt_gemm_library_add_f32(result, 2, a + i0 * a_row, a_row, right, 2, rows, k, 2, first)) return -1;
        for (int64_t i = 0; i < rows; i++) y[(i0 + i) * y_row] = result[2 * i];
    }
    return 0;
}

/* Note [Phases of a transposed convolution]
 * Elements of a transposed convolution whose indices leave the same remainders by the strides are computed by the same
 * window elements, and so are a convolution without strides of x: the window is turned around, and has every element
 * whose distance is a multiple of the stride. With few input channels each phase is computed directly (Note [Direct
 * convolution]); a sum is over the input channels and these window elements from the last to the first. */
#define PHASE_CHANNELS 4 /* output channels at a time */
#define MOST_PHASES    16
#define PHASE_RESULTS  16384 /* elements of a phase that are collected on the stack */

int rt_conv_phase_along(struct rt_window *phase, struct rt_phase_taps *taps, const struct rt_window *w, int d,
                        int64_t at) {
    int64_t step = 1, first = 0, stride = w->stride[d], dilation = w->dilation[d];
    while (step * dilation % stride) step++;
    while (first < w->k[d] && (at + w->begin[d] - first * dilation) % stride) first++;
    if (first >= w->k[d] || at >= w->x[d]) return 0;
    phase->k[d] = (w->k[d] - first + step - 1) / step;
    *taps = (struct rt_phase_taps){first + (phase->k[d] - 1) * step, step};
    phase->x[d] = w->y[d];
    phase->y[d] = (w->x[d] - at + stride - 1) / stride;
    phase->stride[d] = 1;
    phase->dilation[d] = phase->k[d] > 1 ? step * dilation / stride : 1;
    phase->begin[d] = -((at + w->begin[d] - taps->last * dilation) / stride);
    return 1;
}

/* A phase: its elements of y begin at row at[0] and column at[1]. */
struct conv_phase {
    struct rt_conv conv;
    struct rt_direct direct;
    struct rt_phase_taps taps[2];
    int64_t at[2];
};

/* Lists the phases that have window elements. Returns a negative number if they cannot be computed directly. As with
 * rt_conv_direct_plan, this does not depend on the number of output channels or samples. */
static int find_phases(struct conv_phase phases[MOST_PHASES], const struct rt_conv *conv, size_t element) {
    const struct rt_window *w = &conv->window;
    int n = 0;
    if (conv->c < 1 || conv->c > RT_DIRECT_CHANNELS || w->y_plane == 0 || w->x[2] > PHASE_RESULTS / PHASE_CHANNELS)
        return -1;
    if (w->stride[1] > MOST_PHASES || w->stride[2] > MOST_PHASES || w->stride[1] * w->stride[2] > MOST_PHASES)
        return -1;
    for (int64_t p = 0; p < w->stride[1] * w->stride[2]; p++) {
        struct conv_phase *phase = &phases[n];
        struct rt_window *window = &phase->conv.window;
        *phase = (struct conv_phase){.conv = *conv, .at = {p / w->stride[2], p % w->stride[2]}};
        if (!rt_conv_phase_along(window, &phase->taps[0], w, 1, phase->at[0]) ||
            !rt_conv_phase_along(window, &phase->taps[1], w, 2, phase->at[1]))
            continue;
        window->x_plane = w->y_plane;
        window->y_plane = window->y[1] * window->y[2];
        window->taps = window->k[1] * window->k[2];
        phase->conv.depth = conv->c * window->taps;
        phase->conv.pointwise = 0;
        if (!rt_conv_direct_plan(&phase->direct, &phase->conv, element)) return -1;
        n++;
    }
    return n;
}

#define library_add_f64(...) (-1)

#define T     TYPE(SUFFIX)
#define PART  "conv.inc"
#define TYPES FLOATS
#include "each.inc"
