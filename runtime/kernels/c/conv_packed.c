#include "conv.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "../gemm.h"
#include "conv_shape.h"
#include "internal.h"
#include "shares.h"
#include "types.h"

#include <string.h>

/* Note [Convolutions of channels last]
 * With channels as the last dimension a convolution is a product y(pixels, m) = windows(pixels, taps c) w(taps c, m)
 * whose right operand lies in panels and whose left operand is never stored: the product collects the windows of a few
 * pixels at a time (struct rt_packed_product). Neighbours in x are copied together, as a `run`: a line of the window,
 * or a single element of it if the window has gaps or does not read all channels. The windows of pixels that are
 * neighbours in a line are the same runs, a fixed distance apart: where they are inside of x they are read in place.
 *
 * Each group is a product of its own with a part of the columns. Those of a few pixels are computed for all groups
 * before the next pixels, as groups of few channels share the cache lines of x.
 *
 * If each channel has a window of its own (depthwise), vectors of channels are multiplied with vectors of weights, and
 * the sums of a few pixels stay in registers. They are added in the order of the window's elements, like all sums here,
 * so that neither kernel's bits depend on how pixels, samples, channels or groups are divided. */
struct runs {
    const struct rt_conv *conv;
    int64_t channels, first; /* of x; those of the group begin at `first` */
    int64_t taps, length;    /* of a run: window elements, and floats */
    int64_t inner_end;       /* pixels of a line before it do not read beyond x's last column */
    const int64_t *offset;   /* of each run, from the window's first element; NULL: they are too many */
};

#define LINE      64 /* bytes of a cache line */
#define BAND      56 /* pixels of which all groups are computed before the next, if groups share cache lines of x */
#define LONG_RUN  64 /* elements that a call of memcpy copies faster */
#define MOST_RUNS 64 /* of a window that is read in place */

/* memcpy, whose call costs more than copying a few elements. */
static inline void copy_few(float *to, const float *from, int64_t n) {
    if (n > LONG_RUN) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (; n >= 4; n -= 4, to += 4, from += 4) memcpy(to, from, 4 * sizeof *to);
    for (; n > 0; n--) *to++ = *from++;
}

/* Elements [from, end) of a run whose first window element reads column `at` of x. */
static inline void copy_run(float *to, const float *line, const struct runs *runs, int64_t at, int64_t from,
                            int64_t end) {
    const int64_t step = runs->taps > 1 ? runs->conv->c : runs->length, extent = runs->conv->window.x[2],
                  low = max_i64(from, min_i64(-at * step, end)),
                  high = max_i64(low, min_i64(end, (extent - at) * step));
    for (int64_t i = from; i < low; i++) to[i - from] = 0;
    if (high > low) copy_few(to + low - from, line + at * runs->channels + low, high - low);
    for (int64_t i = high; i < end; i++) to[i - from] = 0;
}

/* Columns [p, end) of the window at position o of the image x. */
static inline void copy_window(float *to, const float *x, const struct runs *runs, const int64_t *o, int64_t p,
                               int64_t end) {
    const struct rt_window *w = &runs->conv->window;
    int64_t run = p / runs->length, from = p - run * runs->length;
    for (int64_t n; p < end; p += n, to += n, run++, from = 0) {
        const int64_t tap = run * runs->taps, slab = tap / w->k[2] / w->k[1], line = tap / w->k[2] % w->k[1];
        const int64_t z = rt_window_at(w, 0, o[0], slab), row = rt_window_at(w, 1, o[1], line);
        n = min_i64(runs->length - from, end - p);
        if (rt_window_inside(w, 0, z) && rt_window_inside(w, 1, row))
            copy_run(to, x + (z * w->x[1] + row) * w->x[2] * runs->channels, runs,
                     rt_window_at(w, 2, o[2], tap % w->k[2]), from, from + n);
        else
            memset(to, 0, (size_t)n * sizeof *to);
    }
}

/* The offset in x of the window at position o, or -1 if it is not inside of x. */
static inline int64_t inside_at(const struct runs *runs, const int64_t *o) {
    const struct rt_window *w = &runs->conv->window;
    int64_t from[3];
    for (int d = 0; d < 3; d++) {
        from[d] = rt_window_at(w, d, o[d], 0);
        if (from[d] < 0 || rt_window_at(w, d, o[d], w->k[d] - 1) >= w->x[d]) return -1;
    }
    return ((from[0] * w->x[1] + from[1]) * w->x[2] + from[2]) * runs->channels;
}

/* Columns [p, end) of the window that begins at x and is inside of it. */
static inline void copy_inside(float *to, const float *x, const struct runs *runs, int64_t p, int64_t end) {
    int64_t run = p / runs->length, from = p - run * runs->length;
    for (int64_t n; p < end; p += n, to += n, run++, from = 0) {
        n = min_i64(runs->length - from, end - p);
        copy_few(to, x + runs->offset[run] + from, n);
    }
}

static void collect_windows(float *to, const struct rt_packed_product *product, int64_t row, int64_t rows, int64_t p,
                            int64_t depth) {
    const struct runs *runs = product->window;
    const struct rt_window *w = &runs->conv->window;
    int64_t o[3] = {row % w->y_plane / (w->y[1] * w->y[2]), row / w->y[2] % w->y[1], row % w->y[2]};
    const float *x = product->a + row / w->y_plane * w->x_plane * runs->channels + runs->first;
    for (int64_t i = 0; i < rows; i++, to += RT_GEMM_LEFT_ROW) {
        const int64_t inside = runs->offset ? inside_at(runs, o) : -1;
        if (inside >= 0)
            copy_inside(to, x + inside, runs, p, p + depth);
        else
            copy_window(to, x, runs, o, p, p + depth);
        if (++o[2] < w->y[2]) continue;
        o[2] = 0;
        if (++o[1] < w->y[1]) continue;
        o[1] = 0;
        if (++o[0] < w->y[0]) continue;
        o[0] = 0, x += w->x_plane * runs->channels;
    }
}

/* The number of pixels, from `row` to the end of its line, whose windows lie inside of x; 0 if the first window does
 * not. *at: the begin of the first window. */
static int64_t reach_windows(const float **at, const struct rt_packed_product *product, int64_t row) {
    const struct runs *runs = product->window;
    const struct rt_window *w = &runs->conv->window;
    const int64_t o[3] = {row % w->y_plane / (w->y[1] * w->y[2]), row / w->y[2] % w->y[1], row % w->y[2]},
                  inside = inside_at(runs, o);
    if (inside < 0) return 0;
    *at = product->a + runs->first + row / w->y_plane * w->x_plane * runs->channels + inside;
    return runs->inner_end - o[2];
}

/* Where the runs of a window lie in x. */
static void place_runs(int64_t *offset, const struct runs *runs) {
    const struct rt_window *w = &runs->conv->window;
    for (int64_t tap = 0; tap < w->taps; tap += runs->taps) {
        const int64_t slab = tap / w->k[2] / w->k[1], line = tap / w->k[2] % w->k[1], column = tap % w->k[2];
        *offset++ = ((slab * w->dilation[0] * w->x[1] + line * w->dilation[1]) * w->x[2] + column * w->dilation[2]) *
                    runs->channels;
    }
}

/* All groups of a band of pixels that reads each line of x once; then what follows the product. */
static void multiply_groups(const struct rt_conv *conv, const struct rt_packed_product *whole, struct rt_block pixels,
                            const struct rt_gemm_packed *set) {
    const struct rt_epilogue *epilogue = whole->epilogue;
    const int64_t most = conv->c * (int64_t)sizeof(float) < LINE ? BAND : 4 * BAND, end = pixels.row + pixels.rows;
    struct runs runs = *(const struct runs *)whole->window;
    struct rt_packed_product product = *whole;
    product.window = &runs, product.epilogue = NULL;
    for (int64_t row = pixels.row, rows; row < end; row += rows) {
        rows = min_i64(end - row, most);
        for (int64_t g = 0; g < conv->groups; g++) {
            runs.first = g * conv->c;
            set->multiply(&product, (struct rt_block){row, rows, g * conv->m, conv->m});
        }
        if (epilogue) epilogue->apply(whole->y, epilogue->x, (struct rt_block){row, rows, 0, whole->n});
    }
}

static void multiply(const struct rt_conv *conv, const struct rt_packed_product *product,
                     const struct rt_gemm_packed *set, int alone) {
    const int64_t threads = alone ? 1 : omp_get_max_threads();
    const struct rt_panel_shares shares =
        conv->groups == 1 ? rt_share_panels(product->m, product->k, product->n, threads)
                          : (struct rt_panel_shares){product->m, product->n, min_i64(threads, product->m), 1};
    const int64_t blocks = shares.rows * shares.columns;
#pragma omp parallel for num_threads(rt_pieces(blocks)) if (blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const struct rt_block at = rt_share_at(&shares, block);
        if (conv->groups > 1)
            multiply_groups(conv, product, at, set);
        else if (at.rows > 0 && at.columns > 0)
            set->multiply(product, at);
    }
}

static int pays(const struct rt_conv *conv) {
    const double results = (double)conv->batch * (double)conv->window.y_plane * (double)(conv->groups * conv->m);
    return results * (double)conv->depth >= PARALLEL_WORK;
}

static int reads_in_order(const struct rt_conv *conv) {
    const struct rt_window *w = &conv->window;
    int in_order = w->taps == 1 && conv->groups == 1;
    for (int d = 0; d < 3; d++) in_order = in_order && w->stride[d] == 1 && !w->begin[d] && w->x[d] == w->y[d];
    return in_order;
}

void rt_conv_panels(struct rt *rt, float *y, const float *x, const float *panels, const struct rt_conv *conv,
                    const struct rt_epilogue *epilogue) {
    const struct rt_window *window = &conv->window;
    const int64_t group = conv->groups;
    int64_t first, offset[MOST_RUNS];
    struct runs runs = {conv, group * conv->c, 0, window->dilation[2] == 1 && group == 1 ? window->k[2] : 1, 0, 0,
                        NULL};
    runs.length = runs.taps * conv->c;
    rt_window_reach(window, window->k[2] - 1, &first, &runs.inner_end);
    const struct rt_gemm_places places = {window->stride[2] * runs.channels, runs.length, offset, reach_windows};
    const int in_order = reads_in_order(conv), in_place = !in_order && window->taps / runs.taps <= MOST_RUNS;
    if (in_place) place_runs(offset, &runs), runs.offset = offset;
    const struct rt_packed_product product = {.y = y,
                                              .a = x,
                                              .b = panels,
                                              .m = conv->batch * window->y_plane,
                                              .k = conv->depth,
                                              .n = group * conv->m,
                                              .epilogue = epilogue,
                                              .collect = in_order ? NULL : collect_windows,
                                              .places = in_place ? &places : NULL,
                                              .window = &runs};
    if (product.m == 0 || product.n == 0) return;
    multiply(conv, &product, rt_gemm_packed_choose(rt->reference_kernels), !pays(conv));
}

/* A line of y: weights of neighbouring taps are w_tap elements apart; the windows of pixels [inner_first, inner_end)
 * are inside of x. */
struct line {
    const struct rt_window *window;
    int64_t channels, w_tap, inner_first, inner_end;
    struct rt_inside inside;
};

static void find_inner(struct line *line) {
    int64_t other;
    rt_window_reach(line->window, 0, &line->inner_first, &other);
    rt_window_reach(line->window, line->window->k[2] - 1, &other, &line->inner_end);
}

#define CHANNELS  256  /* whose weights stay in the cache while a line is computed */
#define MOST_TAPS 1024 /* of a window whose weights are copied for the last channels */
#define T         TYPE(SUFFIX)
#define PART      "conv_depthwise.inc"
#define TYPES     IN_f32
#include "sets.inc"
#undef T

typedef void line_fn(float *y, const float *x, const float *w, const struct rt_conv *conv, int64_t row);

/* The widest vectors that the channels fill at least once. */
static line_fn *line_of(int64_t channels) {
#ifdef __x86_64__
    if (channels >= 16 && rt_processor_has_avx512()) return convolve_line_f32_avx512;
    if (channels >= 8 && rt_processor_has_avx2()) return convolve_line_f32_avx2;
#endif
    return convolve_line_f32_plain;
}

static void convolve_each_channel(float *y, const float *x, const float *w, const struct rt_conv *conv,
                                  const struct rt_epilogue *epilogue, int parallel) {
    const struct rt_window *window = &conv->window;
    const int64_t lines = window->y[0] * window->y[1], all = conv->batch * lines, channels = conv->groups;
    line_fn *line = line_of(channels);
#pragma omp parallel for num_threads(rt_pieces(all)) if (parallel)
    for (int64_t i = 0; i < all; i++) {
        line(y + i * window->y[2] * channels, x + i / lines * window->x_plane * channels, w, conv, i % lines);
        if (epilogue) epilogue->apply(y, epilogue->x, (struct rt_block){i * window->y[2], window->y[2], 0, channels});
    }
}

int rt_conv_packed_f32(struct rt *rt, float *y, const float *x, const float *w, int ndim, const int64_t *x_dims,
                       const int64_t *w_dims, const int64_t *y_dims, int64_t group, const int64_t *stride,
                       const int64_t *dilation, const int64_t *begin, enum rt_conv_algorithm algorithm,
                       const struct rt_epilogue *epilogue) {
    struct rt_conv conv = {.window = rt_window_last(ndim, x_dims, w_dims + 2, y_dims, stride, dilation, begin),
                           .batch = x_dims[0],
                           .groups = group};
    conv.c = x_dims[ndim - 1] / group, conv.m = y_dims[ndim - 1] / group, conv.depth = conv.c * conv.window.taps;
    const int64_t pixels = conv.batch * conv.window.y_plane;
    if (pixels == 0 || y_dims[ndim - 1] == 0) return RT_OK;
    if (algorithm == RT_CONV_WINOGRAD && !rt->reference_kernels) { /* for which weights are not transformed */
        rt_conv_winograd(rt, y, x, w, &conv, epilogue);
        return RT_OK;
    }
    if (conv.c == 1 && conv.m == 1 && group > 1) {
        convolve_each_channel(y, x, w, &conv, epilogue, pays(&conv));
        return RT_OK;
    }
    rt_conv_panels(rt, y, x, w, &conv, epilogue);
    return RT_OK;
}
