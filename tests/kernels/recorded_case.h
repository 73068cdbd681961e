/* A convolution or pool whose result record_conv.py recorded from PyTorch (recorded_conv.h, which includes no types). */
#ifndef TESTS_KERNELS_RECORDED_CASE_H
#define TESTS_KERNELS_RECORDED_CASE_H

#include <stdint.h>

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

#endif
