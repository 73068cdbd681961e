#include "int_product.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "internal.h"
#include "window.h"

/* Rows of im2col: the windows of output positions, one after the other; positions outside x have the zero point. */
struct windows {
    struct rt_window window;
    const uint8_t *x;
    const uint8_t *end; /* of x */
    int64_t channels;   /* of a group */
    int64_t pixel;      /* elements from one position of x to the next, where channels are last */
    uint8_t zero;
};

static struct windows windows_of(struct rt_window window, const void *x, int64_t channels, int64_t pixel,
                                 const void *x_zero) {
    return (struct windows){
        .window = window, .x = x, .channels = channels, .pixel = pixel, .zero = x_zero ? *(const uint8_t *)x_zero : 0};
}

IN_CLONE void find_output(int64_t o[3], const struct rt_window *window, int64_t at) {
    o[0] = at / (window->y[1] * window->y[2]);
    o[1] = at / window->y[2] % window->y[1];
    o[2] = at % window->y[2];
}

/* Channels last: elements of a window are those of its positions in order */

/* How many window elements from (k0,k1,k2) on lie beside each other in x: their distance is that of positions, and no
 * channel of another group is between. */
IN_CLONE int64_t run_of(const struct windows *w, const int64_t at[3], int64_t k2) {
    const struct rt_window *window = &w->window;
    if (!rt_window_inside(window, 0, at[0]) || !rt_window_inside(window, 1, at[1]) ||
        !rt_window_inside(window, 2, at[2]))
        return 0;
    if (w->pixel != w->channels || window->dilation[2] != 1) return 1;
    return min_i64(window->k[2] - k2, window->x[2] - at[2]);
}

/* Copies n elements of x; where x has more behind them, in whole blocks, the last of which ends in what is written
 * next, or in spare room. */
IN_CLONE void copy_run(uint8_t *to, const struct windows *w, const uint8_t *from, int64_t n) {
    if (from + n + RT_QUAD_SPARE > w->end) return rt_quad_copy(to, from, n);
    for (int64_t i = 0; i < n; i += RT_QUAD_SPARE) memcpy(to + i, from + i, RT_QUAD_SPARE);
}

/* Part [p, p + depth) of the window of output position o of an image. */
IN_CLONE void copy_window(uint8_t *to, const struct windows *w, const uint8_t *x, const int64_t o[3],
                          const int64_t first[3], int64_t offset, int64_t depth) {
    const struct rt_window *window = &w->window;
    int64_t k[3] = {first[0], first[1], first[2]};
    while (depth > 0) {
        const int64_t at[3] = {rt_window_at(window, 0, o[0], k[0]), rt_window_at(window, 1, o[1], k[1]),
                               rt_window_at(window, 2, o[2], k[2])};
        const int64_t run = run_of(w, at, k[2]), n = min_i64((run ? run : 1) * w->channels - offset, depth);
        if (run)
            copy_run(to, w, x + ((at[0] * window->x[1] + at[1]) * window->x[2] + at[2]) * w->pixel + offset, n);
        else
            memset(to, w->zero, (size_t)n);
        k[2] += run ? run : 1;
        if (k[2] == window->k[2]) k[2] = 0, k[1]++;
        if (k[1] == window->k[1]) k[1] = 0, k[0]++;
        offset = 0;
        to += n;
        depth -= n;
    }
}

CLONES static void copy_last(uint8_t *to, const void *source, int64_t row, int64_t rows, int64_t p, int64_t depth) {
    const struct windows *w = source;
    const struct rt_window *window = &w->window;
    const int64_t tap = p / w->channels, image = window->x_plane * w->pixel;
    const int64_t first[3] = {tap / window->k[2] / window->k[1], tap / window->k[2] % window->k[1], tap % window->k[2]};
    const uint8_t *x = w->x + row / window->y_plane * image;
    int64_t o[3];
    find_output(o, window, row % window->y_plane);
    for (int64_t i = 0; i < rows; i++, o[2]++) {
        if (o[2] == window->y[2]) o[2] = 0, o[1]++;
        if (o[1] == window->y[1]) o[1] = 0, o[0]++;
        if (o[0] == window->y[0]) o[0] = 0, x += image;
        copy_window(to + i * RT_QUAD_ROW, w, x, o, first, p % w->channels, depth);
    }
}

/* True if each window is one position of x, in the same order. */
static int is_pointwise(const struct rt_window *window) {
    int same = window->taps == 1;
    for (int d = 0; d < 3; d++)
        same = same && window->stride[d] == 1 && !window->begin[d] && window->x[d] == window->y[d];
    return same;
}

int rt_int_conv_packed(struct rt *rt, void *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                       const int32_t *bias, enum rt_dtype x_type, enum rt_dtype w_type, int per_channel, int ndim,
                       const int64_t *x_dims, const int64_t *w_dims, const int64_t *y_dims, int64_t groups,
                       const int64_t *stride, const int64_t *dilation, const int64_t *before,
                       const struct rt_epilogue_int *epilogue) {
    const struct rt_window window = rt_window_last(ndim, x_dims, w_dims + 2, y_dims, stride, dilation, before);
    const int64_t channels = x_dims[ndim - 1], results = y_dims[ndim - 1], m = y_dims[0] * window.y_plane;
    const int pointwise = is_pointwise(&window);
    if (m == 0 || results == 0) return RT_OK;
    /* A group that begins within a panel overwrites results of the group before, which therefore is computed later. */
    for (int64_t g = groups - 1; g >= 0; g--) {
        const int64_t end = (g + 1) * (results / groups), first = g * (results / groups) / RT_PANEL * RT_PANEL;
        struct windows windows =
            windows_of(window, (const uint8_t *)x + g * channels / groups, channels / groups, channels, x_zero);
        windows.end = (const uint8_t *)x + x_dims[0] * window.x_plane * channels;
        const struct rt_quad_product product = {.y = y,
                                                .m = m,
                                                .k = channels / groups * window.taps,
                                                .n = results,
                                                .rows = pointwise ? NULL : copy_last,
                                                .source = pointwise ? (const void *)windows.x : &windows,
                                                .x_row = channels,
                                                .x_signed = x_type == RT_I8,
                                                .x_zero = rt_int_zero(x_zero, x_type),
                                                .w = w,
                                                .packed = 1,
                                                .w_signed = w_type == RT_I8,
                                                .w_zero = w_zero,
                                                .per_column = per_channel,
                                                .bias = bias,
                                                .epilogue = epilogue};
        rt_int_multiply(rt, &product, first, end - first);
    }
    return RT_OK;
}

/* The greatest of x and y, for signed elements with the highest bit inverted. */
CLONES static void greatest(uint8_t *y, const uint8_t *x, int64_t n, int is_signed) {
    const uint8_t sign = is_signed ? 0x80 : 0;
    for (int64_t i = 0; i < n; i++) y[i] = (uint8_t)(x[i] ^ sign) > (uint8_t)(y[i] ^ sign) ? x[i] : y[i];
}

enum { ROW_ROOM = 4096 }; /* elements of a row whose greatest are found at a time */

/* n results of a row of an image of one channel: in each column of x the greatest of the window's rows,
 * then the greatest of columns, of which there are at most ROW_ROOM. o: the first result. */
CLONES static void pool_columns(uint8_t *to, const uint8_t *x, int is_signed, const struct rt_window *window,
                                const int64_t o[3], int64_t n) {
    const uint8_t sign = is_signed ? 0x80 : 0;
    const int64_t column = rt_window_at(window, 2, o[2], 0);
    const int64_t from = max_i64(column, 0), end = rt_window_at(window, 2, o[2] + n - 1, window->k[2] - 1) + 1;
    const int64_t inside = min_i64(end, window->x[2]) - from;
    uint8_t most[ROW_ROOM];
    memset(most, sign, (size_t)(end - column));
    for (int64_t k = 0; k < window->k[0] * window->k[1]; k++) {
        const int64_t i = rt_window_at(window, 0, o[0], k / window->k[1]),
                      j = rt_window_at(window, 1, o[1], k % window->k[1]);
        if (rt_window_inside(window, 0, i) && rt_window_inside(window, 1, j) && inside > 0)
            greatest(most + from - column, x + (i * window->x[1] + j) * window->x[2] + from, inside, is_signed);
    }
    for (int64_t c = 0; c < n; c++) {
        uint8_t best = 0;
        for (int64_t k = 0; k < window->k[2]; k++) {
            const uint8_t one = most[c * window->stride[2] + k * window->dilation[2]] ^ sign;
            best = one > best ? one : best;
        }
        to[c] = best ^ sign;
    }
}

/* Images of one channel. False: their windows are too wide. */
static int pool_rows(uint8_t *y, const uint8_t *x, int is_signed, const struct rt_window *window, int64_t images) {
    const int64_t rows = window->y[0] * window->y[1], width = window->y[2];
    const int64_t reach = (window->k[2] - 1) * window->dilation[2] + 1;
    if (reach > ROW_ROOM) return 0;
    const int64_t most = (ROW_ROOM - reach) / window->stride[2] + 1;
#pragma omp parallel for num_threads(rt_pieces(images *rows)) if (images * rows * width * window->taps >= PARALLEL_WORK)
    for (int64_t row = 0; row < images * rows; row++) {
        int64_t o[3] = {row % rows / window->y[1], row % window->y[1], 0};
        const uint8_t *image = x + row / rows * window->x_plane;
        for (; o[2] < width; o[2] += most)
            pool_columns(y + row * width + o[2], image, is_signed, window, o, min_i64(width - o[2], most));
    }
    return 1;
}

/* Images of (i.., channels). */
static void pool_images(uint8_t *y, const uint8_t *x, int is_signed, const struct rt_window *window, int64_t images,
                        int64_t channels) {
    const int64_t m = images * window->y_plane;
#pragma omp parallel for num_threads(rt_pieces(m)) if (m * channels * window->taps >= PARALLEL_WORK)
    for (int64_t row = 0; row < m; row++) {
        uint8_t *to = y + row * channels;
        const uint8_t *image = x + row / window->y_plane * window->x_plane * channels;
        int64_t o[3];
        find_output(o, window, row % window->y_plane);
        memset(to, is_signed ? 0x80 : 0, (size_t)channels);
        for (int64_t tap = 0; tap < window->taps; tap++) {
            const int64_t i = rt_window_at(window, 0, o[0], tap / window->k[2] / window->k[1]),
                          j = rt_window_at(window, 1, o[1], tap / window->k[2] % window->k[1]),
                          l = rt_window_at(window, 2, o[2], tap % window->k[2]);
            if (rt_window_inside(window, 0, i) && rt_window_inside(window, 1, j) && rt_window_inside(window, 2, l))
                greatest(to, image + ((i * window->x[1] + j) * window->x[2] + l) * channels, channels, is_signed);
        }
    }
}

/* With channels first, each is an image of one channel. */
void rt_int_max_pool(void *y, const void *x, enum rt_dtype dtype, int last, int ndim, const int64_t *x_dims,
                     const int64_t *y_dims, const int64_t *extents, const int64_t *stride, const int64_t *dilation,
                     const int64_t *before) {
    const struct rt_window window = last ? rt_window_last(ndim, x_dims, extents, y_dims, stride, dilation, before)
                                         : rt_window_of(ndim, x_dims, extents, y_dims, stride, dilation, before);
    if (!last && pool_rows(y, x, dtype == RT_I8, &window, x_dims[0] * x_dims[1])) return;
    pool_images(y, x, dtype == RT_I8, &window, last ? x_dims[0] : x_dims[0] * x_dims[1], last ? x_dims[ndim - 1] : 1);
}

/* Channels first: a window has the elements of each channel in turn */

/* Output positions whose results are computed at a time and then transposed. */
enum { PIXELS = 112, CHANNELS = 256 };

static void copy_first(uint8_t *to, const void *source, int64_t row, int64_t rows, int64_t p, int64_t depth) {
    const struct windows *w = source;
    const struct rt_window *window = &w->window;
    for (int64_t i = 0; i < rows; i++) {
        int64_t o[3];
        find_output(o, window, row + i);
        for (int64_t e = 0; e < depth; e++) {
            const int64_t tap = (p + e) % window->taps, channel = (p + e) / window->taps;
            const int64_t at[3] = {rt_window_at(window, 0, o[0], tap / window->k[2] / window->k[1]),
                                   rt_window_at(window, 1, o[1], tap / window->k[2] % window->k[1]),
                                   rt_window_at(window, 2, o[2], tap % window->k[2])};
            const int64_t from = channel * window->x_plane + (at[0] * window->x[1] + at[1]) * window->x[2] + at[2];
            to[i * RT_QUAD_ROW + e] = run_of(w, at, 0) ? w->x[from] : w->zero;
        }
    }
}

/* Output positions [first, first + n) of one group of one sample. */
static void convolve(const struct rt_gemm_quads *set, struct rt_quad_product product, int32_t *y, int64_t plane,
                     int64_t first, int64_t n) {
    int32_t sums[PIXELS * CHANNELS];
    const int64_t results = product.n;
    for (int64_t m = 0; m < results; m += CHANNELS) {
        const int64_t width = min_i64(results - m, CHANNELS);
        struct rt_quad_product part = product;
        part.y = sums - first * width;
        part.n = width;
        part.w = (const uint8_t *)product.w + m * product.k;
        if (product.per_column) part.w_zero = (const uint8_t *)product.w_zero + m;
        set->multiply(&part, (struct rt_block){first, n, 0, width});
        for (int64_t c = 0; c < width; c++)
            for (int64_t i = 0; i < n; i++) y[(m + c) * plane + first + i] = sums[i * width + c];
    }
}

int rt_int_conv(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                enum rt_dtype x_type, enum rt_dtype w_type, int per_channel, int ndim, const int64_t *x_dims,
                const int64_t *w_dims, const int64_t *y_dims, int64_t groups, const int64_t *stride,
                const int64_t *dilation, const int64_t *before) {
    const struct rt_gemm_quads *set = rt_gemm_quads_choose(rt->reference_kernels);
    const struct rt_window window = rt_window_of(ndim, x_dims, w_dims + 2, y_dims, stride, dilation, before);
    const int64_t channels = groups ? x_dims[1] / groups : 0, results = groups ? y_dims[1] / groups : 0,
                  depth = channels * window.taps, plane = window.y_plane;
    const int64_t tiles = (plane + PIXELS - 1) / PIXELS, all = x_dims[0] * groups * tiles;
#pragma omp parallel for num_threads(rt_pieces(all)) if (all > 1)
    for (int64_t t = 0; t < all; t++) {
        const int64_t image = t / tiles, group = image % groups, first = t % tiles * PIXELS;
        const struct windows windows =
            windows_of(window, (const uint8_t *)x + image * channels * window.x_plane, channels, 0, x_zero);
        const struct rt_quad_product product = {
            .m = plane,
            .k = depth,
            .n = results,
            .rows = copy_first,
            .source = &windows,
            .x_signed = x_type == RT_I8,
            .x_zero = rt_int_zero(x_zero, x_type),
            .w = (const uint8_t *)w + group * results * depth,
            .turned = 1,
            .w_signed = w_type == RT_I8,
            .w_row = depth,
            .w_zero = w_zero && per_channel ? (const uint8_t *)w_zero + group * results : w_zero,
            .per_column = per_channel};
        convolve(set, product, y + image * results * plane, plane, first, min_i64(plane - first, PIXELS));
    }
    return RT_OK;
}
