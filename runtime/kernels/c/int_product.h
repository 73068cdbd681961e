/* Shared by the products of 8-bit integers. Not for programs. */
#ifndef RT_KERNELS_C_INT_PRODUCT_H
#define RT_KERNELS_C_INT_PRODUCT_H

#include <string.h>

#include "../gemm_quads.h"
#include "kernels.h"

/* A scalar zero point of type `type`; NULL: 0. */
static inline int32_t rt_int_zero(const void *zero, enum rt_dtype type) {
    if (!zero) return 0;
    return type == RT_I8 ? *(const int8_t *)zero : *(const uint8_t *)zero;
}

/* How a product (m,k) (k,columns) is divided among threads: by rows or at panels. n: number of shares. */
struct rt_shares {
    int64_t n;
    int by_rows;
};
struct rt_shares rt_product_shares(int64_t m, int64_t k, int64_t columns);

/* Share i of rows [0, m) and columns [column, column + columns); it may be empty. */
struct rt_block rt_product_share(const struct rt_shares *shares, int64_t i, int64_t m, int64_t column, int64_t columns);

/* Divides columns [column, column + columns) of the product among threads, by rows or at panels. */
void rt_int_multiply(struct rt *rt, const struct rt_quad_product *product, int64_t column, int64_t columns);

#endif
