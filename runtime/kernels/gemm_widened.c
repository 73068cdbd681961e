#include "gemm.h"

#include "../base/clones.h"
#include "../base/number/fp8.h"
#include "c/internal.h"

#include <string.h>

/* Note [Products of small floats]
 * Products of 16-bit and 8-bit floats: blocks of both operands are converted to f32, multiplied as f32 by the reference
 * or the library, and each sum is rounded once. The result is the rounded f32 product of the converted operands, so m
 * and n may be cut as there. The library's own bf16 products are not used without AVX512-BF16: they convert too, and
 * are slower than its f32 products. */
#define ROWS   128
#define ACROSS 128

struct blocks {
    float left[ROWS * RT_GEMM_DEPTH], right[RT_GEMM_DEPTH * ACROSS], sum[ROWS * ACROSS];
};

/* to(rows,columns), rows to_row apart, from elements that are row_step and column_step apart. */
typedef void widen_fn(float *to, int64_t to_row, const void *elements, int64_t row_step, int64_t column_step,
                      int64_t rows, int64_t columns);
/* y from factor * sum. */
typedef void round_fn(void *elements, int64_t y_row, const float *sum, float factor, int64_t rows, int64_t columns);

/* Converts elements to f32. If the elements of a column are contiguous, it goes down the columns, 16 elements at a
 * time. */
#define DEFINE_WIDEN(s, T, to_f32)                                                                                     \
    CLONES static void widen_##s(float *to, int64_t to_row, const void *elements, int64_t row_step,                    \
                                 int64_t column_step, int64_t rows, int64_t columns) {                                 \
        const T *from = elements;                                                                                      \
        if (column_step == 1) {                                                                                        \
            for (int64_t i = 0; i < rows; i++)                                                                         \
                for (int64_t j = 0; j < columns; j++) to[i * to_row + j] = to_f32(from[i * row_step + j]);             \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i0 = 0; i0 < rows; i0 += 16) {                                                                    \
            int64_t i1 = i0 + 16 < rows ? i0 + 16 : rows;                                                              \
            for (int64_t j = 0; j < columns; j++)                                                                      \
                for (int64_t i = i0; i < i1; i++) to[i * to_row + j] = to_f32(from[i * row_step + j * column_step]);   \
        }                                                                                                              \
    }
#define DEFINE_ROUND(s, T, of_f32)                                                                                     \
    CLONES static void round_##s(void *elements, int64_t y_row, const float *sum, float factor, int64_t rows,          \
                                 int64_t columns) {                                                                    \
        T *y = elements;                                                                                               \
        for (int64_t i = 0; i < rows; i++)                                                                             \
            for (int64_t j = 0; j < columns; j++) y[i * y_row + j] = of_f32(sum[i * ACROSS + j] * factor);             \
    }

DEFINE_WIDEN(bf16, uint16_t, rt_bf16_to_f32)
DEFINE_WIDEN(fp16, uint16_t, rt_f16_to_f32)
DEFINE_WIDEN(e4m3, uint8_t, rt_e4m3_to_f32)
DEFINE_WIDEN(e5m2, uint8_t, rt_e5m2_to_f32)
DEFINE_ROUND(f32, float, (float))
DEFINE_ROUND(bf16, uint16_t, rt_f32_to_bf16)
DEFINE_ROUND(fp16, uint16_t, rt_f32_to_f16)

/* An operand; element (i, j) is at i * row + j * column. */
struct operand {
    const unsigned char *data;
    int64_t bytes; /* of an element */
    int64_t row, column;
    widen_fn *widen;
};

struct result {
    unsigned char *data;
    int64_t bytes, row;
    float factor;
    round_fn *round;
};

/* The operand from element (i, j) on. */
static struct operand from(struct operand operand, int64_t i, int64_t j) {
    operand.data += (i * operand.row + j * operand.column) * operand.bytes;
    return operand;
}

static void widen(const struct operand *operand, float *to, int64_t to_row, int64_t rows, int64_t columns) {
    operand->widen(to, to_row, operand->data, operand->row, operand->column, rows, columns);
}

/* The library needs at least two columns. */
static int add_block(struct blocks *blocks, int64_t rows, int64_t depth, int64_t columns, int first, int library) {
    if (columns == 1)
        for (int64_t p = 0; p < depth; p++) blocks->right[p * ACROSS + 1] = 0;
    columns = columns == 1 ? 2 : columns;
    if (library)
        return rt_gemm_library_add_f32(blocks->sum, ACROSS, blocks->left, RT_GEMM_DEPTH, blocks->right, ACROSS, rows,
                                       depth, columns, first);
    rt_gemm_reference_add_f32(blocks->sum, ACROSS, blocks->left, RT_GEMM_DEPTH, blocks->right, ACROSS, rows, depth,
                              columns, first);
    return 0;
}

/* blocks->sum = a(rows,k) b(k,columns) */
static int sum_block(struct blocks *blocks, struct operand a, struct operand b, int64_t rows, int64_t k,
                     int64_t columns, int library) {
    if (k == 0) memset(blocks->sum, 0, sizeof blocks->sum);
    for (int64_t k0 = 0; k0 < k; k0 += RT_GEMM_DEPTH) {
        int64_t depth = min_i64(k - k0, RT_GEMM_DEPTH);
        const struct operand left = from(a, 0, k0), right = from(b, k0, 0);
        widen(&left, blocks->left, RT_GEMM_DEPTH, rows, depth);
        widen(&right, blocks->right, ACROSS, depth, columns);
        if (add_block(blocks, rows, depth, columns, k0 == 0, library)) return -1;
    }
    return 0;
}

static int product(const struct result *y, struct operand a, struct operand b, int64_t m, int64_t k, int64_t n,
                   int library) {
    struct blocks blocks;
    for (int64_t j = 0; j < n; j += ACROSS)
        for (int64_t i = 0; i < m; i += ROWS) {
            int64_t rows = min_i64(m - i, ROWS), columns = min_i64(n - j, ACROSS);
            if (sum_block(&blocks, from(a, i, 0), from(b, 0, j), rows, k, columns, library)) return -1;
            y->round(y->data + (i * y->row + j) * y->bytes, y->row, blocks.sum, y->factor, rows, columns);
        }
    return 0;
}

static struct operand operand(const void *data, int64_t bytes, int64_t row, int trans, widen_fn *widen_it) {
    return (struct operand){data, bytes, trans ? 1 : row, trans ? row : 1, widen_it};
}

#define DEFINE_PRODUCTS(s)                                                                                             \
    static int product_##s(RT_GEMM_OPERANDS(uint16_t), int library) {                                                  \
        const struct result result = {(unsigned char *)y, sizeof *y, y_row, 1, round_##s};                             \
        return product(&result, operand(a, sizeof *a, a_row, trans_a, widen_##s),                                      \
                       operand(b, sizeof *b, b_row, trans_b, widen_##s), m, k, n, library);                            \
    }                                                                                                                  \
    void rt_gemm_reference_##s(RT_GEMM_OPERANDS(uint16_t)) {                                                           \
        product_##s(y, y_row, a, a_row, trans_a, b, b_row, trans_b, m, k, n, 0);                                       \
    }                                                                                                                  \
    int rt_gemm_library_##s(RT_GEMM_OPERANDS(uint16_t)) {                                                              \
        return product_##s(y, y_row, a, a_row, trans_a, b, b_row, trans_b, m, k, n, 1);                                \
    }

DEFINE_PRODUCTS(bf16)
DEFINE_PRODUCTS(fp16)

int rt_gemm_fp8(const struct rt_fp8_product *p, int64_t m, int64_t n, int library) {
    static widen_fn *const widens[] = {[RT_FP8_E4M3] = widen_e4m3, [RT_FP8_E5M2] = widen_e5m2};
    static round_fn *const rounds[RT_DTYPE_COUNT] = {
        [RT_F32] = round_f32, [RT_BF16] = round_bf16, [RT_F16] = round_fp16};
    const struct result result = {p->y, (int64_t)rt_dtype_bytes(p->dtype), p->y_row, p->factor, rounds[p->dtype]};
    if (!result.round) return -1;
    return product(&result, operand(p->a, 1, p->k, 0, widens[p->format_a]),
                   operand(p->b, 1, p->k, 1, widens[p->format_b]), m, p->k, n, library);
}
