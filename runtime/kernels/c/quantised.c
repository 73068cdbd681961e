#include "kernels.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "../gemm.h"
#include "conv_shape.h"
#include "internal.h"
#include "types.h"

#include <stdbool.h>
#include <string.h>

/* Unpacking */

CLONES static void unpack_nibbles(uint8_t *y, const uint8_t *x, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++) {
        y[2 * i] = x[i] & 0xf;
        y[2 * i + 1] = x[i] >> 4;
    }
}

CLONES static void unpack_signed_nibbles(uint8_t *y, const uint8_t *x, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++) {
        y[2 * i] = (uint8_t)(((x[i] & 0xf) ^ 8) - 8);
        y[2 * i + 1] = (uint8_t)(((x[i] >> 4) ^ 8) - 8);
    }
}

void rt_unpack_codes(void *y, const uint8_t *x, enum rt_dtype dtype, int64_t count) {
    const int64_t piece = 1 << 14, pieces = (count + piece - 1) / piece, bits = rt_dtype_bits(dtype);
#pragma omp parallel for schedule(static) if (count >= PARALLEL_WORK)
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t n = min_i64(count - i * piece, piece);
        uint8_t *to = (uint8_t *)y + i * piece;
        const uint8_t *from = x + i * piece / 8 * bits;
        if (bits == 4 && n % 2 == 0)
            unpack_nibbles(to, from, n / 2);
        else
            rt_unpack(to, from, dtype, 0, (size_t)n);
    }
}

/* Products with quantised weights */

struct weights {
    const uint8_t *w, *zero;
    const void *scale;
    int64_t k, n, groups;
    int64_t first; /* column from which others are counted: those of a thread */
    double offset;
    enum rt_dtype codes;
    int is_packed, turned;
    float value[256]; /* of each code */
};

CLONES static void widen_signed(float *to, const int8_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i];
}

CLONES static void widen_unsigned(float *to, const uint8_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i];
}

/* Elements [first, first + n) of the stored weights as floats; n <= RT_GEMM_DEPTH. Integers of 8 bits and packed ones
 * of 4 need no table. */
static void load_codes(float *to, const struct weights *w, int64_t first, int64_t n) {
    uint8_t codes[RT_GEMM_DEPTH + 2];
    const int bits = w->is_packed ? rt_dtype_bits(w->codes) : 8, is_signed = rt_dtype_is_signed(w->codes);
    const uint8_t *from = w->w + first;
    bool arithmetic = w->codes == RT_I8 || w->codes == RT_U8;
    if (bits == 4 && rt_dtype_is_integer(w->codes)) {
        const int64_t odd = first % 2;
        (is_signed ? unpack_signed_nibbles : unpack_nibbles)(codes, w->w + first / 2, (n + odd + 1) / 2);
        from = codes + odd;
        arithmetic = true;
    } else if (bits < 8) {
        rt_unpack(codes, w->w, w->codes, (size_t)first, (size_t)n);
        from = codes;
    }
    if (arithmetic && is_signed)
        widen_signed(to, (const int8_t *)from, n);
    else if (arithmetic)
        widen_unsigned(to, from, n);
    else
        for (int64_t i = 0; i < n; i++) to[i] = w->value[from[i]];
}

static double zero_of(const struct weights *w, int64_t at) {
    return w->zero ? (double)w->value[w->zero[at]] : w->offset;
}

#define T     TYPE(SUFFIX)
#define PART  "quantised.inc"
#define TYPES FLOATS
#include "each.inc"

static void pack_dequantised(float *to, const void *source, int64_t p, int64_t depth, int64_t j, int64_t width) {
    const struct weights *w = source;
    if (!w->turned) return dequantise_rows_f32(to, RT_PANEL, w, p, depth, j, width);
    float rows[RT_PANEL * RT_GEMM_DEPTH];
    dequantise_columns_f32(rows, depth, w, p, depth, j, width);
    rt_gemm_turn(to, rows, depth, depth, width);
}

static struct weights weights_of(const void *w, const void *scale, const void *zero, int64_t k, int64_t n,
                                 int64_t groups, enum rt_dtype type, enum rt_dtype codes, double offset, int turned) {
    struct weights weights = {.w = w, .zero = zero, .scale = scale, .k = k, .n = n, .groups = groups ? groups : 1};
    weights.offset = offset;
    weights.codes = codes;
    weights.is_packed = type != codes;
    weights.turned = turned;
    for (int code = 0; code < 256; code++) {
        const uint8_t byte = (uint8_t)code;
        rt_convert(&weights.value[code], RT_F32, &byte, codes, 1);
    }
    return weights;
}

enum { COLUMNS_AT_ONCE = 2 * RT_PANEL }; /* of a thread's share, at least */

int rt_dequant_matmul_f32(struct rt *rt, float *y, const float *x, const void *w, const float *scale, const void *zero,
                          int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype type, enum rt_dtype codes,
                          double offset, int turned) {
    const struct weights weights = weights_of(w, scale, zero, k, n, groups, type, codes, offset, turned);
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(rt->reference_kernels);
    const int64_t parts = (n + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE;
    const int64_t threads = min_i64(omp_get_max_threads(), max_i64(parts, 1));
    if (m == 0 || n == 0) return RT_OK;
    if (!set->multiply_turned || k == 0) return dequant_matmul_f32(y, x, &weights, m);
#pragma omp parallel for schedule(static) if (threads > 1 && m * k * n >= PARALLEL_WORK)
    for (int64_t t = 0; t < threads; t++) {
        const int64_t first = parts * t / threads * COLUMNS_AT_ONCE;
        const int64_t width = min_i64(parts * (t + 1) / threads * COLUMNS_AT_ONCE, n) - first;
        struct weights part = weights;
        part.first = first;
        const struct rt_turned_product product = {.y = y + first,
                                                  .a = x,
                                                  .y_row = n,
                                                  .a_row = k,
                                                  .m = m,
                                                  .k = k,
                                                  .n = width,
                                                  .pack = pack_dequantised,
                                                  .source = &part};
        if (width > 0) set->multiply_turned(&product);
    }
    return RT_OK;
}

int rt_dequant_matmul_f64(struct rt *rt, double *y, const double *x, const void *w, const double *scale,
                          const void *zero, int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype type,
                          enum rt_dtype codes, double offset, int turned) {
    const struct weights weights = weights_of(w, scale, zero, k, n, groups, type, codes, offset, turned);
    (void)rt;
    return m == 0 || n == 0 ? RT_OK : dequant_matmul_f64(y, x, &weights, m);
}

/* Products of integers */

static int32_t scalar_zero(const void *zero, int is_signed) {
    if (!zero) return 0;
    return is_signed ? *(const int8_t *)zero : *(const uint8_t *)zero;
}

/* Zero points of columns: y(m,n) -= sum over k of (x - x_zero) times zero(n). */
static void subtract_zeros(const struct rt_int_product *t, const void *zero) {
    for (int64_t i = 0; i < t->m; i++) {
        int32_t *y = t->y + i * t->y_row;
        uint32_t sum = 0;
        const uint8_t *x = (const uint8_t *)t->x + i * t->x_row;
        for (int64_t p = 0; p < t->k; p++)
            sum += (uint32_t)((t->x_signed ? (int32_t)(int8_t)x[p] : (int32_t)x[p]) - t->x_zero);
        for (int64_t j = 0; j < t->n; j++) {
            const int32_t of_column = t->w_signed ? ((const int8_t *)zero)[j] : ((const uint8_t *)zero)[j];
            y[j] = (int32_t)((uint32_t)y[j] - sum * (uint32_t)of_column);
        }
    }
}

int rt_int_matmul(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                  enum rt_dtype x_type, enum rt_dtype w_type, int per_column, int64_t batch, int64_t m, int64_t k,
                  int64_t n, int turned) {
    const int x_signed = x_type == RT_I8, w_signed = w_type == RT_I8;
    const int64_t threads = (double)batch * (double)m * (double)k * (double)n >= 1 << 20 ? omp_get_max_threads() : 1;
    const int64_t ways = max_i64(min_i64(threads / max_i64(batch, 1), max_i64(m, n) / 16), 1);
#pragma omp parallel for schedule(static) if (batch * ways > 1)
    for (int64_t part = 0; part < batch * ways; part++) {
        const int64_t b = part / ways, side = m > n ? m : n, first = side * (part % ways) / ways,
                      length = side * (part % ways + 1) / ways - first;
        const int64_t row = m > n ? first : 0, column = m > n ? 0 : first;
        const struct rt_int_product product = {.y = y + (b * m + row) * n + column,
                                               .x = (const uint8_t *)x + (b * m + row) * k,
                                               .w = (const uint8_t *)w + b * k * n + (turned ? column * k : column),
                                               .y_row = n,
                                               .x_row = k,
                                               .w_row = turned ? k : n,
                                               .m = m > n ? length : m,
                                               .k = k,
                                               .n = m > n ? n : length,
                                               .x_signed = x_signed,
                                               .w_signed = w_signed,
                                               .turned = turned,
                                               .x_zero = scalar_zero(x_zero, x_signed),
                                               .w_zero = per_column ? 0 : scalar_zero(w_zero, w_signed)};
        if (product.m == 0 || product.n == 0) continue;
        rt_gemm_int(&product, !rt->reference_kernels);
        if (per_column) subtract_zeros(&product, (const uint8_t *)w_zero + column);
    }
    return RT_OK;
}

/* Pixels and output channels that are computed at a time, and the bytes of the windows of these pixels. */
enum { PIXELS = 64, CHANNELS = 256, WINDOWS = 1 << 17 };

struct int_conv {
    struct rt_window window;
    const uint8_t *x, *w, *w_zero;
    int32_t *y;
    int64_t channels, results, depth; /* input and output channels of a group; elements of a window of all channels */
    int32_t x_zero;
    int x_signed, w_signed, per_channel, library;
};

/* Copies row (k0, k1) of the window of output position o, from one channel. */
static uint8_t *copy_row(uint8_t *to, const struct int_conv *conv, const uint8_t *x, const int64_t o[3], int64_t k0,
                         int64_t k1) {
    const struct rt_window *window = &conv->window;
    const int64_t i = rt_window_at(window, 0, o[0], k0), j = rt_window_at(window, 1, o[1], k1),
                  first = rt_window_at(window, 2, o[2], 0), last = rt_window_at(window, 2, o[2], window->k[2] - 1);
    const uint8_t *row = x + (i * window->x[1] + j) * window->x[2];
    const int inside = rt_window_inside(window, 0, i) && rt_window_inside(window, 1, j),
              whole = inside && first >= 0 && last < window->x[2] && last - first == window->k[2] - 1;
    for (int64_t k = 0; k < window->k[2]; k++) {
        const int64_t l = rt_window_at(window, 2, o[2], k);
        to[k] = whole ? row[first + k] : inside && rt_window_inside(window, 2, l) ? row[l] : (uint8_t)conv->x_zero;
    }
    return to + window->k[2];
}

/* Copies the window of output position `at`; positions outside x have the zero point. */
static void copy_window(uint8_t *to, const struct int_conv *conv, const uint8_t *x, int64_t at) {
    const struct rt_window *window = &conv->window;
    const int64_t o[3] = {at / (window->y[1] * window->y[2]), at / window->y[2] % window->y[1], at % window->y[2]};
    for (int64_t c = 0; c < conv->channels; c++, x += window->x_plane)
        for (int64_t k0 = 0; k0 < window->k[0]; k0++)
            for (int64_t k1 = 0; k1 < window->k[1]; k1++) to = copy_row(to, conv, x, o, k0, k1);
}

/* Output positions [first, first + n) of one group of one sample: products of their windows and the weights. */
static void convolve(const struct int_conv *conv, int64_t group, const uint8_t *x, int32_t *y, int64_t first,
                     int64_t n) {
    uint8_t windows[WINDOWS];
    int32_t result[PIXELS * CHANNELS];
    for (int64_t i = 0; i < n; i++) copy_window(windows + i * conv->depth, conv, x, first + i);
    for (int64_t m = 0; m < conv->results; m += CHANNELS) {
        const int64_t channel = group * conv->results + m, width = min_i64(conv->results - m, CHANNELS);
        const struct rt_int_product product = {.y = result,
                                               .x = windows,
                                               .w = conv->w + channel * conv->depth,
                                               .y_row = width,
                                               .x_row = conv->depth,
                                               .w_row = conv->depth,
                                               .m = n,
                                               .k = conv->depth,
                                               .n = width,
                                               .x_signed = conv->x_signed,
                                               .w_signed = conv->w_signed,
                                               .turned = 1,
                                               .x_zero = conv->x_zero,
                                               .w_zero =
                                                   conv->per_channel ? 0 : scalar_zero(conv->w_zero, conv->w_signed)};
        rt_gemm_int(&product, conv->library);
        if (conv->per_channel) subtract_zeros(&product, conv->w_zero + channel);
        for (int64_t c = 0; c < width; c++)
            for (int64_t i = 0; i < n; i++) y[(m + c) * conv->window.y_plane + first + i] = result[i * width + c];
    }
}

int rt_int_conv(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                enum rt_dtype x_type, enum rt_dtype w_type, int per_channel, int ndim, const int64_t *x_dims,
                const int64_t *w_dims, const int64_t *y_dims, int64_t groups, const int64_t *stride,
                const int64_t *dilation, const int64_t *before) {
    struct int_conv conv = {.window = rt_window_of(ndim, x_dims, w_dims + 2, y_dims, stride, dilation, before),
                            .x = x,
                            .w = w,
                            .w_zero = w_zero,
                            .y = y,
                            .channels = groups ? x_dims[1] / groups : 0,
                            .results = groups ? y_dims[1] / groups : 0,
                            .x_zero = scalar_zero(x_zero, x_type == RT_I8),
                            .x_signed = x_type == RT_I8,
                            .w_signed = w_type == RT_I8,
                            .per_channel = per_channel,
                            .library = !rt->reference_kernels};
    conv.depth = conv.channels * conv.window.taps;
    if (conv.depth > WINDOWS)
        return rt_fail(rt, RT_ERROR_USAGE, "a convolution of integers over %lld elements per window is not supported",
                       (long long)conv.depth);
    const int64_t plane = conv.window.y_plane, most = conv.depth ? min_i64(WINDOWS / conv.depth, PIXELS) : PIXELS;
    const int64_t tiles = (plane + most - 1) / most, all = x_dims[0] * groups * tiles;
#pragma omp parallel for schedule(static) if (all > 1)
    for (int64_t t = 0; t < all; t++) {
        const int64_t image = t / tiles, group = image % groups, first = t % tiles * most;
        convolve(&conv, group, conv.x + image * conv.channels * conv.window.x_plane, y + image * conv.results * plane,
                 first, min_i64(plane - first, most));
    }
    return RT_OK;
}
