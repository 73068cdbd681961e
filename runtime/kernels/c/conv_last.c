#include "conv.h"

#include "../../base/shape/conv_room.h"
#include "../../generated.h"
#include "../gemm.h"
#include "conv_shape.h"
#include "internal.h"
#include "types.h"

#include <string.h>

/* Note [Convolutions of channels last in training]
 * The weights change in every step, so they are packed in it: a small part of the time if a step has pixels enough.
 *
 * The gradient of x is a convolution of dy with the weights turned around, whose panels have columns (c) and rows
 * (taps, m). With strides it is one such convolution per phase (Note [Phases of a transposed convolution] in conv.c),
 * whose results are then spread.
 *
 * The gradient of the weights is a product dy(m, pixels) windows(pixels, taps c). dy is turned first; panels of the
 * windows are collected as the product needs them. A sum is over the pixels in blocks of RT_CONV_PIXELS, in order;
 * threads divide columns or rows of the result, so that its bits do not depend on their number. */
_Static_assert((int)RT_CONV_PIXELS == (int)RT_GEMM_DEPTH && (int)RT_CONV_ROW == (int)RT_GEMM_LEFT_ROW,
               "rows of dy lie as products read them");

enum { TURNED = 16 };

static struct rt_conv shape_of(int ndim, const int64_t *x_dims, const int64_t *w_window, const int64_t *y_dims,
                               const int64_t *stride, const int64_t *dilation, const int64_t *begin) {
    struct rt_conv conv = {.window = rt_window_last(ndim, x_dims, w_window, y_dims, stride, dilation, begin),
                           .batch = x_dims[0],
                           .groups = 1,
                           .c = x_dims[ndim - 1],
                           .m = y_dims[ndim - 1]};
    conv.depth = conv.c * conv.window.taps;
    return conv;
}

static int pays(const struct rt_conv *conv) {
    const double pixels = (double)conv->batch * (double)conv->window.y_plane;
    return pixels * (double)conv->m * (double)conv->depth >= PARALLEL_WORK;
}

/* A panel of output channels [first, first + n): rows (taps, c). */
static void pack_outputs(float *panel, const float *w, const struct rt_conv *conv, int64_t first, int64_t n) {
    const int64_t taps = conv->window.taps, c = conv->c;
    if (taps == 1) {
        rt_gemm_turn(panel, w + first * c, c, c, n);
        return;
    }
    for (int64_t i = 0; i < c; i += TURNED) {
        const int64_t end = min_i64(i + TURNED, c);
        for (int64_t o = 0; o < RT_PANEL; o++)
            for (int64_t at = i; at < end; at++)
                for (int64_t tap = 0; tap < taps; tap++)
                    panel[(tap * c + at) * RT_PANEL + o] = o < n ? w[((first + o) * c + at) * taps + tap] : 0;
    }
}

/* A panel of input channels [first, first + n), for the window elements `tap` (ntaps) of output channels [from, end):
 * rows (ntaps, m). */
static void pack_inputs(float *panel, const float *w, const struct rt_conv *conv, const int64_t *tap, int64_t ntaps,
                        int64_t first, int64_t n, int64_t from, int64_t end) {
    const int64_t taps = conv->window.taps;
    for (int64_t o = from; o < end; o++)
        for (int64_t t = 0; t < ntaps; t++) {
            const float *row = w + (o * conv->c + first) * taps + tap[t];
            float *to = panel + (t * conv->m + o) * RT_PANEL;
            for (int64_t i = 0; i < n; i++) to[i] = row[i * taps];
            for (int64_t i = n; i < RT_PANEL; i++) to[i] = 0;
        }
}

int rt_conv_last_f32(struct rt *rt, float *y, const float *x, const float *w, void *room, int ndim,
                     const int64_t *x_dims, const int64_t *w_dims, const int64_t *y_dims, const int64_t *stride,
                     const int64_t *dilation, const int64_t *begin) {
    const struct rt_conv shape = shape_of(ndim, x_dims, w_dims + 2, y_dims, stride, dilation, begin), *conv = &shape;
    float *panels = room;
#pragma omp parallel for schedule(static) if (pays(conv))
    for (int64_t j = 0; j < conv->m; j += RT_PANEL)
        pack_outputs(panels + j * conv->depth, w, conv, j, min_i64(conv->m - j, RT_PANEL));
    rt_conv_panels(rt, y, x, panels, conv, NULL);
    return RT_OK;
}

/* The window elements of a phase in the order of its convolution; their number. */
static int64_t list_taps(int64_t *list, const struct rt_window *phase, const struct rt_phase_taps taps[3],
                         const struct rt_window *w) {
    int64_t n = 0;
    for (int64_t i = 0; i < phase->k[0]; i++)
        for (int64_t j = 0; j < phase->k[1]; j++)
            for (int64_t k = 0; k < phase->k[2]; k++)
                list[n++] = ((taps[0].last - i * taps[0].step) * w->k[1] + taps[1].last - j * taps[1].step) * w->k[2] +
                            taps[2].last - k * taps[2].step;
    return n;
}

/* Pixels of a phase to those of dx that are `stride` apart, from `at` on. */
static void spread(float *dx, const float *results, const struct rt_conv *conv, const struct rt_window *phase,
                   const int64_t at[3]) {
    const struct rt_window *w = &conv->window;
    const int64_t lines = conv->batch * phase->y[0] * phase->y[1], c = conv->c;
#pragma omp parallel for schedule(static) if (pays(conv))
    for (int64_t line = 0; line < lines; line++) {
        const int64_t sample = line / (phase->y[0] * phase->y[1]), o0 = line / phase->y[1] % phase->y[0],
                      o1 = line % phase->y[1];
        const int64_t row = (sample * w->x[0] + at[0] + o0 * w->stride[0]) * w->x[1] + at[1] + o1 * w->stride[1];
        for (int64_t o2 = 0; o2 < phase->y[2]; o2++)
            memcpy(dx + (row * w->x[2] + at[2] + o2 * w->stride[2]) * c, results + (line * phase->y[2] + o2) * c,
                   (size_t)c * sizeof *dx);
    }
}

/* One phase: pixels of dx from `at` on. */
static void transpose_phase(struct rt *rt, float *dx, const float *dy, const float *w, float *room,
                            const struct rt_conv *conv, const int64_t at[3]) {
    const struct rt_window *window = &conv->window;
    struct rt_conv phase = {.batch = conv->batch, .groups = 1, .c = conv->m, .m = conv->c};
    struct rt_phase_taps taps[3];
    int64_t list[RT_CONV_MOST_TAPS];
    for (int d = 0; d < 3; d++)
        if (!rt_conv_phase_along(&phase.window, &taps[d], window, d, at[d])) return;
    const int64_t ntaps = list_taps(list, &phase.window, taps, window), *y = phase.window.y;
    phase.window.taps = ntaps, phase.window.x_plane = window->y_plane, phase.window.y_plane = y[0] * y[1] * y[2];
    phase.depth = ntaps * conv->m;
    const int64_t pieces = (conv->m + RT_PANEL - 1) / RT_PANEL;
#pragma omp parallel for collapse(2) schedule(static) if (pays(conv))
    for (int64_t j = 0; j < conv->c; j += RT_PANEL)
        for (int64_t piece = 0; piece < pieces; piece++)
            pack_inputs(room + j * phase.depth, w, conv, list, ntaps, j, min_i64(conv->c - j, RT_PANEL),
                        piece * RT_PANEL, min_i64((piece + 1) * RT_PANEL, conv->m));
    const int whole = phase.window.y_plane == window->x_plane;
    float *results = whole ? dx : room + rt_conv_transpose_room(window->taps, conv->c, conv->m, 0);
    rt_conv_panels(rt, results, dy, room, &phase, NULL);
    if (!whole) spread(dx, results, conv, &phase.window, at);
}

int rt_conv_transpose_last_f32(struct rt *rt, float *y, const float *x, const float *w, void *room, int ndim,
                               const int64_t *x_dims, const int64_t *w_dims, const int64_t *y_dims,
                               const int64_t *stride, const int64_t *dilation, const int64_t *begin) {
    const struct rt_conv conv = shape_of(ndim, y_dims, w_dims + 2, x_dims, stride, dilation, begin);
    const struct rt_window *window = &conv.window;
    const int64_t *s = window->stride;
    if (s[0] * s[1] * s[2] > 1) /* what no window covers */
        memset(y, 0, (size_t)(conv.batch * window->x_plane * conv.c) * sizeof *y);
    for (int64_t p = 0; p < s[0] * s[1] * s[2]; p++) {
        const int64_t at[3] = {p / (s[1] * s[2]), p / s[2] % s[1], p % s[2]};
        transpose_phase(rt, y, x, w, room, &conv, at);
    }
    return RT_OK;
}

/* What window element k reads, `n` channels from x on, for pixels [p, p + depth), RT_PANEL apart. */
static void collect_tap(float *to, const float *x, const struct rt_conv *conv, const int64_t k[3], int64_t p,
                        int64_t depth, int64_t n) {
    const struct rt_window *w = &conv->window;
    const int64_t c = conv->c;
    int64_t o[3] = {p % w->y_plane / (w->y[1] * w->y[2]), p / w->y[2] % w->y[1], p % w->y[2]};
    x += p / w->y_plane * w->x_plane * c;
    for (int64_t run; depth > 0; depth -= run) {
        const int64_t z = rt_window_at(w, 0, o[0], k[0]), row = rt_window_at(w, 1, o[1], k[1]);
        const int inside = rt_window_inside(w, 0, z) && rt_window_inside(w, 1, row);
        const float *line = x + (z * w->x[1] + row) * w->x[2] * c;
        run = min_i64(depth, w->y[2] - o[2]);
        for (int64_t i = 0; i < run; i++, to += RT_PANEL) {
            const int64_t column = rt_window_at(w, 2, o[2] + i, k[2]);
            if (!inside || !rt_window_inside(w, 2, column))
                memset(to, 0, (size_t)n * sizeof *to);
            else if (n == RT_PANEL)
                memcpy(to, line + column * c, RT_PANEL * sizeof *to);
            else
                memcpy(to, line + column * c, (size_t)n * sizeof *to);
        }
        o[2] = 0;
        if (++o[1] < w->y[1]) continue;
        o[1] = 0;
        if (++o[0] < w->y[0]) continue;
        o[0] = 0, x += w->x_plane * c;
    }
}

struct windows {
    const struct rt_conv *conv;
    const float *x;
    int64_t first; /* pixel, and column */
    int64_t column;
};

/* Rows [p, p + depth), columns [j, j + width) of the windows as a panel (struct rt_turned_product). */
static void collect_panel(float *to, const void *source, int64_t p, int64_t depth, int64_t j, int64_t width) {
    const struct windows *windows = source;
    const struct rt_conv *conv = windows->conv;
    const int64_t *k = conv->window.k, begin = windows->column + j, end = begin + width;
    if (width < RT_PANEL) memset(to, 0, (size_t)(depth * RT_PANEL) * sizeof *to);
    for (int64_t at = begin, n; at < end; at += n) {
        const int64_t tap = at / conv->c, channel = at % conv->c;
        n = min_i64(conv->c - channel, end - at);
        collect_tap(to + at - begin, windows->x + channel, conv,
                    (const int64_t[]){tap / (k[1] * k[2]), tap / k[2] % k[1], tap % k[2]}, windows->first + p, depth,
                    n);
    }
}

/* A block of the gradient, in the order (m, taps c). turned: dy in blocks of RT_CONV_PIXELS pixels, a row per
 * channel. */
static void weigh_block(float *dw, const float *turned, const float *x, const struct rt_conv *conv,
                        struct rt_block block, const struct rt_gemm_packed *set) {
    const int64_t pixels = conv->batch * conv->window.y_plane;
    float *y = dw + block.row * conv->depth + block.column;
    for (int64_t p = 0; p < pixels; p += RT_CONV_PIXELS) {
        const struct windows windows = {conv, x, p, block.column};
        const int64_t depth = min_i64(pixels - p, RT_CONV_PIXELS);
        const struct rt_turned_product product = {.y = y,
                                                  .a =
                                                      turned + (p / RT_CONV_PIXELS * conv->m + block.row) * RT_CONV_ROW,
                                                  .y_row = conv->depth,
                                                  .a_row = RT_CONV_ROW,
                                                  .m = block.rows,
                                                  .k = depth,
                                                  .n = block.columns,
                                                  .onto = p > 0,
                                                  .pack = collect_panel,
                                                  .source = &windows};
        if (set->multiply_turned) {
            set->multiply_turned(&product);
            continue;
        }
        _Alignas(64) float panel[RT_CONV_PIXELS * RT_PANEL];
        for (int64_t j = 0; j < block.columns; j += RT_PANEL) {
            const int64_t width = min_i64(block.columns - j, RT_PANEL);
            collect_panel(panel, &windows, 0, depth, j, width);
            rt_gemm_reference_add_f32(y + j, conv->depth, product.a, RT_CONV_ROW, panel, RT_PANEL, block.rows, depth,
                                      width, p == 0);
        }
    }
}

int rt_conv_weight_grad_last_f32(struct rt *rt, float *dw, const float *x, const float *dy, void *room, int ndim,
                                 const int64_t *x_dims, const int64_t *w_dims, const int64_t *y_dims,
                                 const int64_t *stride, const int64_t *dilation, const int64_t *begin) {
    const struct rt_conv shape = shape_of(ndim, x_dims, w_dims + 2, y_dims, stride, dilation, begin), *conv = &shape;
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(rt->reference_kernels);
    const int64_t pixels = conv->batch * conv->window.y_plane, taps = conv->window.taps, c = conv->c, m = conv->m,
                  threads = pays(conv) ? omp_get_max_threads() : 1, panels = rt_panels(conv->depth);
    const int64_t columns = min_i64(threads, panels), rows = min_i64(max_i64(threads / columns, 1), m);
    float *turned = room, *sums = taps == 1 ? dw : turned + rt_conv_weight_grad_room(pixels, m, 0);
#pragma omp parallel for schedule(static) if (threads > 1)
    for (int64_t p = 0; p < pixels; p += RT_CONV_PIXELS)
        rt_gemm_turn_left(turned + p / RT_CONV_PIXELS * m * RT_CONV_ROW, dy + p * m, m, m,
                          min_i64(pixels - p, RT_CONV_PIXELS));
    if (pixels == 0) memset(sums, 0, (size_t)(m * conv->depth) * sizeof *sums);
#pragma omp parallel for schedule(static) if (rows * columns > 1)
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t row = m * (i / columns) / rows, column = panels * (i % columns) / columns * RT_PANEL,
                      end = min_i64(panels * (i % columns + 1) / columns * RT_PANEL, conv->depth);
        const struct rt_block block = {row, m * (i / columns + 1) / rows - row, column, end - column};
        if (block.rows > 0 && block.columns > 0) weigh_block(sums, turned, x, conv, block, set);
    }
    if (taps == 1) return RT_OK;
#pragma omp parallel for schedule(static) if (threads > 1)
    for (int64_t o = 0; o < m; o++)
        for (int64_t i = 0; i < c; i++)
            for (int64_t tap = 0; tap < taps; tap++) dw[(o * c + i) * taps + tap] = sums[(o * taps + tap) * c + i];
    return RT_OK;
}
