#include "kernels.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "../gemm.h"
#include "../gemm_grouped.h"
#include "../halves.h"
#include "int_product.h"
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
#pragma omp parallel for num_threads(rt_pieces(pieces)) if (count >= PARALLEL_WORK)
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
    int64_t first; /* first column of the thread's part */
    double offset;
    enum rt_dtype codes;
    int is_packed, turned, across;
    float value[256]; /* of each code of at most 8 bits */
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
    if (w->codes == RT_BF16) return rt_widen_bf16(to, (const uint16_t *)(const void *)w->w + first, n);
    if (w->codes == RT_F16) return rt_widen_fp16(to, (const uint16_t *)(const void *)w->w + first, n);
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
                                 int64_t groups, enum rt_dtype type, enum rt_dtype codes, double offset, int turned,
                                 int across) {
    struct weights weights = {.w = w, .zero = zero, .scale = scale, .k = k, .n = n, .groups = groups ? groups : 1};
    weights.offset = offset;
    weights.codes = codes;
    weights.is_packed = type != codes;
    weights.turned = turned;
    weights.across = across;
    for (int code = 0; code < 256 && rt_dtype_bits(codes) <= 8; code++) {
        const uint8_t byte = (uint8_t)code;
        rt_convert(&weights.value[code], RT_F32, &byte, codes, 1);
    }
    return weights;
}

enum { COLUMNS_AT_ONCE = 2 * RT_PANEL }; /* of a thread's share, at least */

int rt_dequant_matmul_f32(struct rt *rt, float *y, const float *x, const void *w, const float *scale, const void *zero,
                          int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype type, enum rt_dtype codes,
                          double offset, int turned, int across) {
    const struct weights weights = weights_of(w, scale, zero, k, n, groups, type, codes, offset, turned, across);
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(rt->reference_kernels);
    const int64_t parts = (n + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE;
    const int64_t threads = min_i64(omp_get_max_threads(), max_i64(parts, 1));
    if (m == 0 || n == 0) return RT_OK;
    if (!set->multiply_turned || k == 0) return dequant_matmul_f32(y, x, &weights, m);
#pragma omp parallel for num_threads(rt_pieces(threads)) if (threads > 1 && m * k * n >= PARALLEL_WORK)
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

int rt_dequant_matmul_packed(struct rt *rt, float *y, const float *x, const void *w, const float *scale,
                             const void *zero, int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype codes,
                             double offset, int rounded) {
    const struct rt_gemm_grouped *set = rt_gemm_grouped_choose(rt->reference_kernels);
    const struct rt_grouped_product product = {.y = y,
                                               .x = x,
                                               .w = w,
                                               .scale = scale,
                                               .zero = zero,
                                               .offset = (float)offset,
                                               .m = m,
                                               .k = k,
                                               .n = n,
                                               .groups = groups ? groups : 1,
                                               .codes = codes,
                                               .rounded = rounded};
    const struct rt_shares shares = rt_product_shares(m, k, n);
    if (k == 0) memset(y, 0, (size_t)(m * n) * sizeof *y);
    if (m == 0 || n == 0 || k == 0) return RT_OK;
#pragma omp parallel for schedule(static) if (shares.n > 1)
    for (int64_t i = 0; i < shares.n; i++) {
        const struct rt_block block = rt_product_share(&shares, i, m, 0, n);
        if (block.rows > 0 && block.columns > 0) set->multiply(&product, block);
    }
    return RT_OK;
}

int rt_dequant_matmul_f64(struct rt *rt, double *y, const double *x, const void *w, const double *scale,
                          const void *zero, int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype type,
                          enum rt_dtype codes, double offset, int turned, int across) {
    const struct weights weights = weights_of(w, scale, zero, k, n, groups, type, codes, offset, turned, across);
    (void)rt;
    return m == 0 || n == 0 ? RT_OK : dequant_matmul_f64(y, x, &weights, m);
}
