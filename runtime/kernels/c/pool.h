/* Shared by the pooling kernels of both layouts. Not for programs. */
#ifndef RT_KERNELS_C_POOL_H
#define RT_KERNELS_C_POOL_H

#include "conv_shape.h"
#include "internal.h"

/* Padding that counts as elements of a mean, which is the sum times 1 / count. */
struct rt_pool_padding {
    int64_t before[3], after[3];
};

/* begin and end are the padding of ndim - 2 spatial dimensions. */
static inline struct rt_pool_padding rt_pool_padding_of(int ndim, const int64_t *begin, const int64_t *end) {
    struct rt_pool_padding padding = {{0}, {0}};
    for (int i = 0; i < ndim - 2; i++) {
        padding.before[5 - ndim + i] = begin[i];
        padding.after[5 - ndim + i] = end[i];
    }
    return padding;
}

/* Elements that the window at o counts in dimension d: inside of x or of the padding that counts. */
static inline int64_t rt_pool_counted(const struct rt_window *w, const struct rt_pool_padding *padding, int d,
                                      int64_t o) {
    const int64_t at = rt_window_at(w, d, o, 0), least = -padding->before[d], end = w->x[d] + padding->after[d];
    int64_t count = 0;
    if (at >= least && at + (w->k[d] - 1) * w->dilation[d] < end) return w->k[d];
    for (int64_t k = 0; k < w->k[d]; k++) count += at + k * w->dilation[d] >= least && at + k * w->dilation[d] < end;
    return count;
}

#endif
