#include "gemm.h"

#include "../base/clones.h"
#include "../base/half.h"

#include <string.h>

/* Note [Products of halves]
 * Blocks of both operands are widened beside y and multiplied as f32, by the reference or by the library, and each sum is
 * rounded once. So the result is the f32 product of the widened operands, rounded, and m and n may be cut as there. The
 * library's own products of bf16 are no use before AVX512-BF16: they widen too, and are slower than its f32. */
#define ROWS    128
#define COLUMNS 128

struct blocks {
    float left[ROWS * RT_GEMM_DEPTH], right[RT_GEMM_DEPTH * COLUMNS], sum[ROWS * COLUMNS];
};

/* Of one type: to(rows,columns), rows to_row apart, from elements that are row_step and column_step apart; y from sums. */
struct half {
    void (*widen)(float *to, int64_t to_row, const uint16_t *from, int64_t row_step, int64_t column_step,
                  int64_t rows, int64_t columns);
    void (*round)(uint16_t *y, int64_t y_row, const float *sum, int64_t rows, int64_t columns);
};

/* Down the columns, 16 at a time, where those are what lies together. */
#define DEFINE_HALF(s, to_f32, of_f32)                                                                             \
    CLONES static void widen_##s(float *to, int64_t to_row, const uint16_t *from, int64_t row_step,                \
                                 int64_t column_step, int64_t rows, int64_t columns) {                             \
        if (column_step == 1) {                                                                                    \
            for (int64_t i = 0; i < rows; i++)                                                                     \
                for (int64_t j = 0; j < columns; j++) to[i * to_row + j] = to_f32(from[i * row_step + j]);         \
            return;                                                                                                \
        }                                                                                                          \
        for (int64_t i0 = 0; i0 < rows; i0 += 16) {                                                                \
            int64_t i1 = i0 + 16 < rows ? i0 + 16 : rows;                                                          \
            for (int64_t j = 0; j < columns; j++)                                                                  \
                for (int64_t i = i0; i < i1; i++)                                                                  \
                    to[i * to_row + j] = to_f32(from[i * row_step + j * column_step]);                             \
        }                                                                                                          \
    }                                                                                                              \
    CLONES static void round_##s(uint16_t *y, int64_t y_row, const float *sum, int64_t rows, int64_t columns) {    \
        for (int64_t i = 0; i < rows; i++)                                                                         \
            for (int64_t j = 0; j < columns; j++) y[i * y_row + j] = of_f32(sum[i * COLUMNS + j]);                 \
    }                                                                                                              \
    static const struct half s = {widen_##s, round_##s};

DEFINE_HALF(bf16, rt_bf16_to_f32, rt_f32_to_bf16)
DEFINE_HALF(fp16, rt_f16_to_f32, rt_f32_to_f16)

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* An operand: element (i, j) is at data[i * row + j * column]. */
struct operand {
    const uint16_t *data;
    int64_t row, column;
};

/* The library wants two columns. */
static int add_block(struct blocks *blocks, int64_t rows, int64_t depth, int64_t columns, int first, int library) {
    if (columns == 1)
        for (int64_t p = 0; p < depth; p++) blocks->right[p * COLUMNS + 1] = 0;
    columns = columns == 1 ? 2 : columns;
    if (library)
        return rt_gemm_library_add_f32(blocks->sum, COLUMNS, blocks->left, RT_GEMM_DEPTH, blocks->right, COLUMNS,
                                       rows, depth, columns, first);
    rt_gemm_reference_add_f32(blocks->sum, COLUMNS, blocks->left, RT_GEMM_DEPTH, blocks->right, COLUMNS, rows, depth,
                              columns, first);
    return 0;
}

/* blocks->sum = a(rows,k) b(k,columns) */
static int sum_block(const struct half *half, struct blocks *blocks, struct operand a, struct operand b, int64_t rows,
                     int64_t k, int64_t columns, int library) {
    if (k == 0) memset(blocks->sum, 0, sizeof blocks->sum);
    for (int64_t k0 = 0; k0 < k; k0 += RT_GEMM_DEPTH) {
        int64_t depth = smaller(k - k0, RT_GEMM_DEPTH);
        half->widen(blocks->left, RT_GEMM_DEPTH, a.data + k0 * a.column, a.row, a.column, rows, depth);
        half->widen(blocks->right, COLUMNS, b.data + k0 * b.row, b.row, b.column, depth, columns);
        if (add_block(blocks, rows, depth, columns, k0 == 0, library)) return -1;
    }
    return 0;
}

static int product(const struct half *half, uint16_t *y, int64_t y_row, struct operand a, struct operand b, int64_t m,
                   int64_t k, int64_t n, int library) {
    struct blocks blocks;
    for (int64_t j = 0; j < n; j += COLUMNS)
        for (int64_t i = 0; i < m; i += ROWS) {
            int64_t rows = smaller(m - i, ROWS), columns = smaller(n - j, COLUMNS);
            struct operand left = {a.data + i * a.row, a.row, a.column}, right = {b.data + j * b.column, b.row, b.column};
            if (sum_block(half, &blocks, left, right, rows, k, columns, library)) return -1;
            half->round(y + i * y_row + j, y_row, blocks.sum, rows, columns);
        }
    return 0;
}

static struct operand operand(const uint16_t *data, int64_t row, int trans) {
    return trans ? (struct operand){data, 1, row} : (struct operand){data, row, 1};
}

#define DEFINE_PRODUCTS(s)                                                                                         \
    void rt_gemm_reference_##s(uint16_t *y, int64_t y_row, const uint16_t *a, int64_t a_row, int trans_a,          \
                               const uint16_t *b, int64_t b_row, int trans_b, int64_t m, int64_t k, int64_t n) {   \
        product(&s, y, y_row, operand(a, a_row, trans_a), operand(b, b_row, trans_b), m, k, n, 0);                 \
    }                                                                                                              \
    int rt_gemm_library_##s(uint16_t *y, int64_t y_row, const uint16_t *a, int64_t a_row, int trans_a,             \
                            const uint16_t *b, int64_t b_row, int trans_b, int64_t m, int64_t k, int64_t n) {      \
        return product(&s, y, y_row, operand(a, a_row, trans_a), operand(b, b_row, trans_b), m, k, n, 1);          \
    }

DEFINE_PRODUCTS(bf16)
DEFINE_PRODUCTS(fp16)
