/* Convolutions and pooling; part of the manual in kernels.h, whose rules hold here.
 *
 * A window slides over the 1 to 3 spatial dimensions behind batch and channels; ndim counts all dimensions, 3 to 5.
 * stride, dilation, begin, window have ndim - 2 numbers. Output index o reads input indices
 * o * stride + k * dilation - begin for every k of the window. Dimensions of x, w and y agree (the compiler inferred
 * them).
 *
 * Note [Order of convolutions]
 * An element of a convolution is a sum over (input channel of its group, window), in row-major order, as in Note
 * [Products and cuts] of gemm.h: the plain C kernels add rounded products one after the other, a library sums f32 in
 * blocks of its own. Which of these is taken depends on neither batch, output channels, groups nor threads, so that
 * cutting those changes no bit where products are invariant. A transposed convolution sums over the channels of each
 * (input position, window element) first, then over those, tiles of input positions one after the other. The gradient
 * of an element of the weights is a sum over (sample, output position); a library sums the positions of a sample in
 * blocks.
 */
#ifndef RT_KERNELS_C_CONV_H
#define RT_KERNELS_C_CONV_H

#include <stdint.h>

struct rt;

/* conv            ONNX Conv-11 without bias: x (batch, group c, ..), w (group m, c, window..), y (batch, group m, ..);
 * what
 *                 lies outside of x is 0.
 * conv_transpose  ONNX ConvTranspose-11 without bias: w (group c, m, window..); y is as large as y_dims says, and
 *                 elements that no window covers are 0.
 * conv_weight_grad  the gradient of conv's weights, or of conv_transpose's with its y as x and its gradient of x as dy:
 *                   dw as
 *                 w_dims says, dy as large as conv's y.
 * max_pool        ONNX MaxPool-12: a NaN in the window gives NaN (so does PyTorch); a window outside of x gives -inf.
 * max_pool_grad   its gradient: dy(o) is added to dx where max_pool found y(o), which is the first of equal elements
 *                 but the last NaN, as in PyTorch; nothing for a window outside of x.
 * average_pool    ONNX AveragePool-19: the sum divided by the number of elements inside of x or, with
 *                 count_include_pad, inside of x with begin and end elements around it. Windows are summed in row-major
 *                 order. */
#define RT_DECLARE_CONV(T, s)                                                                                          \
    int rt_conv_##s(struct rt *rt, T *y /* (y_dims) */, const T *x /* (x_dims) */, const T *w /* (w_dims) */,          \
                    int ndim, const int64_t *x_dims, const int64_t *w_dims, const int64_t *y_dims, int64_t group,      \
                    const int64_t *stride, const int64_t *dilation, const int64_t *begin);                             \
    int rt_conv_transpose_##s(struct rt *rt, T *y /* (y_dims) */, const T *x /* (x_dims) */,                           \
                              const T *w /* (w_dims) */, int ndim, const int64_t *x_dims, const int64_t *w_dims,       \
                              const int64_t *y_dims, int64_t group, const int64_t *stride, const int64_t *dilation,    \
                              const int64_t *begin);                                                                   \
    int rt_conv_weight_grad_##s(struct rt *rt, T *dw /* (w_dims) */, const T *x /* (x_dims) */,                        \
                                const T *dy /* (y_dims) */, int ndim, const int64_t *x_dims, const int64_t *w_dims,    \
                                const int64_t *y_dims, int64_t group, const int64_t *stride, const int64_t *dilation,  \
                                const int64_t *begin);                                                                 \
    void rt_max_pool_grad_##s(T *dx /* (x_dims) */, const T *x /* (x_dims) */, const T *dy /* (y_dims) */, int ndim,   \
                              const int64_t *x_dims, const int64_t *y_dims, const int64_t *window,                     \
                              const int64_t *stride, const int64_t *dilation, const int64_t *begin);                   \
    void rt_max_pool_##s(T *y /* (y_dims) */, const T *x /* (x_dims) */, int ndim, const int64_t *x_dims,              \
                         const int64_t *y_dims, const int64_t *window, const int64_t *stride, const int64_t *dilation, \
                         const int64_t *begin);                                                                        \
    void rt_average_pool_##s(T *y /* (y_dims) */, const T *x /* (x_dims) */, int ndim, const int64_t *x_dims,          \
                             const int64_t *y_dims, const int64_t *window, const int64_t *stride,                      \
                             const int64_t *dilation, const int64_t *begin, const int64_t *end,                        \
                             int count_include_pad);

RT_DECLARE_CONV(float, f32)
RT_DECLARE_CONV(double, f64)

#endif
