/* Products of 8-bit integers, summed exactly in 32 bits (which wrap), on one thread.
 *
 * Note [Products of quads]
 * The processor's instructions multiply four unsigned elements by four signed ones and add all to a sum of 32 bits. So
 * rows of the left operand are made unsigned, and columns of the right one signed, by an offset of 128 which is part of
 * the zero points; then
 *
 *     sum of (x - x_zero) (w - w_zero) = sum of x w - x_zero sum of w - w_zero (sum of x - k x_zero)
 *
 * where the sums of w are those of the panels, and the last term is left out for weights without zero points.
 * Instructions that add pairs of products in 16 bits saturate and are not used. Sums of integers do not depend on the
 * order: all instruction sets give the same bits. */
#ifndef RT_KERNELS_GEMM_QUADS_H
#define RT_KERNELS_GEMM_QUADS_H

#include <stdint.h>
#include <string.h>

#include "../base/processor.h"
#include "c/epilogue.h"
#include "c/lists.h"

/* Copies elements [p, p + depth) of rows [row, row + rows) of the left operand to rows that are RT_QUAD_ROW apart;
 * depth <= RT_QUAD_DEPTH, and up to RT_QUAD_SPARE bytes beyond the depth may be written. */
enum { RT_QUAD_DEPTH = 1024, RT_QUAD_SPARE = 64, RT_QUAD_ROW = RT_QUAD_DEPTH + RT_QUAD_SPARE };
typedef void rt_quad_rows_of(uint8_t *to, const void *source, int64_t row, int64_t rows, int64_t p, int64_t depth);

/* Copies n bytes in blocks of 64, and a rest. */
static inline __attribute__((always_inline)) void rt_quad_copy(uint8_t *to, const uint8_t *from, int64_t n) {
    for (; n >= 64; n -= 64, to += 64, from += 64) memcpy(to, from, 64);
    if (n & 32) memcpy(to, from, 32), to += 32, from += 32;
    if (n & 16) memcpy(to, from, 16), to += 16, from += 16;
    if (n & 8) memcpy(to, from, 8), to += 8, from += 8;
    if (n & 4) memcpy(to, from, 4), to += 4, from += 4;
    if (n & 2) memcpy(to, from, 2), to += 2, from += 2;
    if (n & 1) *to = *from;
}

/* y(m,n) = (x(m,k) - x_zero) (w(k,n) - w_zero) + bias; the rows of x lie in memory, or are those that `rows` copies. */
struct rt_quad_product {
    void *y; /* (m,n) of i32, or what the epilogue makes of it */
    int64_t m, k, n;
    rt_quad_rows_of *rows; /* NULL: source is x, in rows that are x_row apart */
    const void *source;    /* of `rows` */
    int64_t x_row;
    int x_signed;
    int32_t x_zero;
    const void *w; /* panels of quads, or (k,n) in rows that are w_row apart, or (n,k) if turned */
    int packed, turned, w_signed;
    int64_t w_row;
    const void *w_zero; /* of w's type, one or, with per_column, n; NULL: 0 */
    int per_column;
    const int32_t *bias;                    /* (n), or NULL */
    int64_t first;                          /* number of y's first row, for the epilogue */
    const struct rt_epilogue_int *epilogue; /* NULL: none */
};

/* The kernels of an instruction set, one row each, the best first; is_present is NULL for the last, plain C. multiply
 * computes a block, which begins at a panel and is not empty; needs 600 KB of stack. */
struct rt_gemm_quads {
    const char *name;
    int (*is_present)(void);
    void (*multiply)(const struct rt_quad_product *product, struct rt_block block);
};
extern const struct rt_gemm_quads rt_gemm_quads[];

/* The best row that this processor supports, or plain C. */
const struct rt_gemm_quads *rt_gemm_quads_choose(int reference);

#endif
