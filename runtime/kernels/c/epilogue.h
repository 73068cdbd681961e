/* Epilogue of a matrix product: bias, activation or residual, applied while the result is in the cache. */
#ifndef RT_KERNELS_C_EPILOGUE_H
#define RT_KERNELS_C_EPILOGUE_H

#include <stdint.h>

/* Rows [row, row + rows) and columns [column, column + columns) of a matrix. */
struct rt_block {
    int64_t row, rows, column, columns;
};

/* `apply` replaces the elements of a block of y(m,n) by a function of them and of the operands x, which do not overlap
 * y. It is called once per finished block, from any thread. */
struct rt_epilogue {
    void (*apply)(float *y, const void *const *x, struct rt_block block);
    const void *const *x;
};

/* The same for a product of 16-bit floats: `apply` computes the elements of a block of y(m,n) from their sums, which
 * lie at sum[(row - at.row) * sum_row + column - at.column], and rounds each once. */
struct rt_epilogue_half {
    void (*apply)(uint16_t *y, const float *sum, int64_t sum_row, const void *const *x, struct rt_block at);
    const void *const *x;
};

/* The same for a product of integers: `apply` computes the elements of a block of y(m,n), of any type, from their
 * sums. */
struct rt_epilogue_int {
    void (*apply)(void *y, const int32_t *sum, int64_t sum_row, const void *const *x, struct rt_block at);
    const void *const *x;
};

#endif
