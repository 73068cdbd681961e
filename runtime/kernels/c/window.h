/* A window over three spatial dimensions of convolutions and pooling, for C and CUDA. */
#ifndef RT_KERNELS_C_WINDOW_H
#define RT_KERNELS_C_WINDOW_H

#include <stdint.h>

#include "../../base/inline.h"

/* With fewer than three spatial dimensions, the first have extent 1. */
struct rt_window {
    int64_t x[3], y[3], k[3], stride[3], dilation[3], begin[3];
    int64_t x_plane, y_plane, taps; /* elements per channel of x and of y, elements of the window */
};

/* Makes the window from the spatial dimensions of x_dims and y_dims; k has spatial dimensions only. */
RT_INLINE struct rt_window rt_window_of(int ndim, const int64_t *x_dims, const int64_t *k, const int64_t *y_dims,
                                        const int64_t *stride, const int64_t *dilation, const int64_t *begin) {
    struct rt_window w = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 1, 1, 1};
    for (int i = 0, spatial = ndim - 2; i < spatial; i++) {
        int d = 3 - spatial + i;
        w.x[d] = x_dims[2 + i];
        w.y[d] = y_dims[2 + i];
        w.k[d] = k[i];
        w.stride[d] = stride[i];
        w.dilation[d] = dilation[i];
        w.begin[d] = begin[i];
        w.x_plane *= w.x[d];
        w.y_plane *= w.y[d];
        w.taps *= w.k[d];
    }
    return w;
}

/* The same of tensors with channels last: (n, i.., c). */
RT_INLINE struct rt_window rt_window_last(int ndim, const int64_t *x_dims, const int64_t *k, const int64_t *y_dims,
                                          const int64_t *stride, const int64_t *dilation, const int64_t *begin) {
    int64_t x[5] = {0}, y[5] = {0};
    for (int d = 2; d < ndim; d++) x[d] = x_dims[d - 1], y[d] = y_dims[d - 1];
    return rt_window_of(ndim, x, k, y, stride, dilation, begin);
}

/* Input index of output index o and window element k in one dimension; it is outside x if < 0 or >= x[dim]. */
RT_INLINE int64_t rt_window_at(const struct rt_window *window, int dim, int64_t o, int64_t k) {
    return o * window->stride[dim] + k * window->dilation[dim] - window->begin[dim];
}

RT_INLINE int rt_window_inside(const struct rt_window *window, int dim, int64_t at) {
    return at >= 0 && at < window->x[dim];
}

#endif
