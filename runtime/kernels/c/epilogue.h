/* What is done with a product's result while it is in the cache: bias, activation, residual. */
#ifndef RT_KERNELS_C_EPILOGUE_H
#define RT_KERNELS_C_EPILOGUE_H

#include <stdint.h>

/* Rows [row, row + rows) and columns [column, column + columns) of a matrix. */
struct rt_block {
    int64_t row, rows, column, columns;
};

/* `apply` replaces each element of the block of y(m,n) by what the epilogue makes of it and of the operands at x, which
 * do not overlap y. It is called once for every block that is finished, by any thread. */
struct rt_epilogue {
    void (*apply)(float *y, const void *const *x, struct rt_block block);
    const void *const *x;
};

#endif
