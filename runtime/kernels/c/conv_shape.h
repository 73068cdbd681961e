/* Shared by convolution and pooling kernels: a window over three spatial dimensions. Not for programs. */
#ifndef RT_KERNELS_C_CONV_SHAPE_H
#define RT_KERNELS_C_CONV_SHAPE_H

#include <stddef.h>
#include <stdint.h>

/* With fewer than three spatial dimensions, the first have extent 1. */
struct rt_window {
    int64_t x[3], y[3], k[3], stride[3], dilation[3], begin[3];
    int64_t x_plane, y_plane, taps; /* elements per channel of x and of y, elements of the window */
};

struct rt_conv {
    struct rt_window window;
    int64_t batch, groups, c, m; /* c, m: channels per group */
    int64_t depth;               /* c * taps: terms per output element */
    int pointwise;               /* 1: the window is one element and reads every element of x, in order */
};

/* Makes the window from the spatial dimensions of x_dims and y_dims; k has spatial dimensions only. */
struct rt_window rt_window_of(int ndim, const int64_t *x_dims, const int64_t *k, const int64_t *y_dims,
                              const int64_t *stride, const int64_t *dilation, const int64_t *begin);

/* Input index of output index o and window element k in one dimension; it is outside x if < 0 or >= x[dim]. */
static inline int64_t rt_window_at(const struct rt_window *window, int dim, int64_t o, int64_t k) {
    return o * window->stride[dim] + k * window->dilation[dim] - window->begin[dim];
}

static inline int rt_window_inside(const struct rt_window *window, int dim, int64_t at) {
    return at >= 0 && at < window->x[dim];
}

/* Output indices [*first, *end) along the last dimension for which window element k is inside x. */
void rt_window_reach(const struct rt_window *window, int64_t k, int64_t *first, int64_t *end);

/* Direct convolution (conv_direct.c): layout of a band of x, for at most `most` rows of y; in elements. */
enum { RT_DIRECT_TAPS = 128, RT_DIRECT_CHANNELS = 8 /* input channels of a group, at most */ };
struct rt_direct {
    int64_t most;
    int64_t phases[2];              /* stride planes, by row and by column */
    int64_t below;                  /* rows of a plane beyond those of y */
    int64_t width;                  /* columns */
    int64_t plane, channel;         /* distance between planes, between channels */
    int64_t offset[RT_DIRECT_TAPS]; /* offset of each window element */
};

/* 0: rt_conv_direct does not apply. The answer does not depend on how the tensors are cut. */
int rt_conv_direct_plan(struct rt_direct *direct, const struct rt_conv *conv, size_t element);

/* The same for rt_conv_direct_weigh, the gradient of the weights: one input and one output channel in
 * each group. */
int rt_conv_direct_weighs(struct rt_direct *direct, const struct rt_conv *conv, size_t element);

/* Computes rows [first, first + rows) of all m output channels of one group; the weights' gradient of one
 * group, where samples are so many elements apart. */
#define RT_DECLARE_DIRECT(T, s)                                                                                        \
    void rt_conv_direct_##s(T *y, const T *x, const T *w, const struct rt_conv *conv, const struct rt_direct *direct,  \
                            int64_t first, int64_t rows);                                                              \
    void rt_conv_direct_weigh_##s(T *dw, const T *x, const T *dy, const struct rt_conv *conv,                          \
                                  const struct rt_direct *direct, int64_t x_sample, int64_t y_sample);

RT_DECLARE_DIRECT(float, f32)
RT_DECLARE_DIRECT(double, f64)

#endif
