/* A convolution or pool whose result record_conv.py recorded from PyTorch (recorded_conv.h, which includes no types). */
#ifndef TESTS_KERNELS_RECORDED_CASE_H
#define TESTS_KERNELS_RECORDED_CASE_H

#include "kernel_test.h"

enum recorded_kind {
    RECORDED_CONV,
    RECORDED_TRANSPOSE,
    RECORDED_WEIGHTS,
    RECORDED_MAX,
    RECORDED_MAX_GRAD,
    RECORDED_AVERAGE
};

struct recorded {
    enum recorded_kind kind;
    int ndim;
    /* dimensions of x, w and y, channels before positions; the rest as the kernels take it */
    int64_t x[5], w[5], y[5], group, stride[3], dilation[3], begin[3], end[3];
    int count_include_pad;
    const double *expected;
};

/* The shapes of the second operand, and of what is computed: a gradient is given, or is the result. */
static inline const int64_t *operand_dims(const struct recorded *r) {
    return r->kind == RECORDED_WEIGHTS || r->kind == RECORDED_MAX_GRAD ? r->y : r->w;
}

static inline const int64_t *result_dims(const struct recorded *r) {
    return r->kind == RECORDED_WEIGHTS ? r->w : r->kind == RECORDED_MAX_GRAD ? r->x : r->y;
}

/* Dimensions with channels last. */
static inline void last_dims(int64_t *to, const int64_t *dims, int ndim) {
    to[0] = dims[0], to[ndim - 1] = dims[1];
    for (int d = 2; d < ndim; d++) to[d - 1] = dims[d];
}

static inline int64_t below(int64_t n) {
    return (int64_t)test_random((uint64_t)n);
}

#endif
