#include "kernels.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "../gemm.h"
#include "../gemm_grouped.h"
#include "../halves.h"
#include "dequantise.h"
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
    const int is_signed = rt_dtype_is_signed(w->codes);
    const uint8_t *from = w->w + first;
    bool arithmetic = w->codes == RT_I8 || w->codes == RT_U8;
    if (w->bits == 4 && rt_dtype_is_integer(w->codes)) {
        const int64_t odd = first % 2;
        (is_signed ? unpack_signed_nibbles : unpack_nibbles)(codes, w->w + first / 2, (n + odd + 1) / 2);
        from = codes + odd;
        arithmetic = true;
    } else if (w->bits < 8) {
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

/* The transpose of rows that are `row` apart, as a panel. */
static void turn_f32(float *to, const float *from, int64_t row, int64_t depth, int64_t width) {
    rt_gemm_turn(to, from, row, depth, width);
}

static void turn_f64(double *to, const double *from, int64_t row, int64_t depth, int64_t width) {
    for (int64_t c = 0; c < RT_PANEL; c++)
        for (int64_t q = 0; q < depth; q++) to[q * RT_PANEL + c] = c < width ? from[c * row + q] : 0;
}

#define T     TYPE(SUFFIX)
#define PART  "quantised.inc"
#define TYPES FLOATS
#include "each.inc"

struct weights rt_weights_of(struct weights given) {
    struct weights weights = given;
    if (!weights.groups) weights.groups = 1;
    weights.bits = given.type == given.codes ? 8 * (int)rt_dtype_bytes(given.type) : rt_dtype_bits(given.codes);
    for (int code = 0; code < 256 && rt_dtype_bits(given.codes) <= 8; code++) {
        const uint8_t byte = (uint8_t)code;
        rt_convert(&weights.value[code], RT_F32, &byte, given.codes, 1);
    }
    return weights;
}

struct weights rt_weights_at(const struct weights *first, int64_t i, int64_t scale_bytes) {
    struct weights at = *first;
    const int64_t scales = i * at.groups * (at.across ? at.k : at.n);
    at.w += i * at.k * at.n * at.bits / 8;
    if (at.scale) at.scale = (const char *)at.scale + scales * scale_bytes;
    if (at.zero) at.zero += scales;
    return at;
}

static void pack_dequantised(float *to, const void *source, int64_t p, int64_t depth, int64_t j, int64_t width) {
    rt_dequantise_f32(to, source, p, depth, j, width);
}

enum { COLUMNS_AT_ONCE = 2 * RT_PANEL }; /* of a thread's share, at least */

static void multiply_f32(struct rt *rt, float *y, const float *x, const struct weights *w, int64_t m) {
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(rt->reference_kernels);
    const int64_t k = w->k, n = w->n, parts = (n + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE;
    const int64_t threads = min_i64(omp_get_max_threads(), max_i64(parts, 1));
    if (!set->multiply_turned || k == 0) return dequant_matmul_f32(y, x, w, m);
#pragma omp parallel for num_threads(rt_pieces(threads)) if (threads > 1 && m * k * n >= PARALLEL_WORK)
    for (int64_t t = 0; t < threads; t++) {
        const int64_t first = parts * t / threads * COLUMNS_AT_ONCE;
        const int64_t width = min_i64(parts * (t + 1) / threads * COLUMNS_AT_ONCE, n) - first;
        struct weights part = *w;
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
}

static void multiply_f64(struct rt *rt, double *y, const double *x, const struct weights *w, int64_t m) {
    (void)rt;
    dequant_matmul_f64(y, x, w, m);
}

#define DEFINE_DEQUANT(T, s)                                                                                           \
    int rt_dequant_matmul_##s(struct rt *rt, T *y, const T *x, const void *w, const T *scale, const void *zero,        \
                              int64_t batch, int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype type,      \
                              enum rt_dtype codes, double offset, int turned, int across) {                            \
        const struct weights stack = rt_weights_of((struct weights){.w = w,                                            \
                                                                    .zero = zero,                                      \
                                                                    .scale = scale,                                    \
                                                                    .k = k,                                            \
                                                                    .n = n,                                            \
                                                                    .groups = groups,                                  \
                                                                    .offset = offset,                                  \
                                                                    .type = type,                                      \
                                                                    .codes = codes,                                    \
                                                                    .turned = turned,                                  \
                                                                    .across = across});                                \
        for (int64_t i = 0; i < batch && m && n; i++) {                                                                \
            const struct weights matrix = rt_weights_at(&stack, i, sizeof(T));                                         \
            multiply_##s(rt, y + i * m * n, x + i * m * k, &matrix, m);                                                \
        }                                                                                                              \
        return RT_OK;                                                                                                  \
    }
RT_FLOATS(DEFINE_DEQUANT)

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
