/* Overflow-checked arithmetic on sizes. Every product or sum of counts that come from a file uses it. */
#ifndef RT_BASE_CHECKED_H
#define RT_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* *out = a * b (or a + b); false on overflow, *out is then unspecified. */
static inline bool rt_mul(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool rt_add(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* *out = product of `ndim` extents, 1 if ndim is 0; false if an extent is negative or on overflow. */
static inline bool rt_product(const int64_t *dims, int ndim, int64_t *out) {
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0) return false;
        if (dims[i] == 0) empty = true;
    }
    for (int i = 0; i < ndim && !empty; i++)
        if (!rt_mul(product, dims[i], &product)) return false;
    *out = empty ? 0 : product;
    return true;
}

static inline int64_t rt_align(int64_t bytes, int64_t to) {
    return (bytes + to - 1) / to * to;
}

#endif
