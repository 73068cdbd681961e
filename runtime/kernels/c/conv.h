/* Convolutions and pooling; part of the manual in kernels.h, whose rules apply.
 *
 * A window slides over the 1 to 3 spatial dimensions behind batch and channels; ndim counts all dimensions, 3 to 5.
 * stride, dilation, begin, window have ndim - 2 entries. Output index o reads input indices o * stride + k * dilation -
 * begin for every k of the window. The compiler guarantees that the dimensions of x, w and y agree.
 *
 * Note [Order of convolutions]
 * An element of a convolution is a sum over (input channel of its group, window), in row-major order. As in Note
 * [Products and cuts] of gemm.h, the plain C kernels add rounded products sequentially, a library sums f32 in blocks of
 * its own. Which of them is used does not depend on batch, output channels, groups or threads, so cutting these changes
 * no bit where products are invariant. A transposed convolution sums over the channels for each (input position, window
 * element) first, then over those pairs, in sequential tiles of input positions; with few input channels in each group
 * as Note [Phases of a transposed convolution] in conv.c says. The gradient of a weight element is a sum over (sample,
 * output position); a library sums the positions of a sample in blocks, and with one input and one output channel in
 * each group they are summed in lanes (Note [Direct convolution] in conv_direct.c). */
#ifndef RT_KERNELS_C_CONV_H
#define RT_KERNELS_C_CONV_H

#include <stdint.h>

#include "../../base/contract.h"
#include "epilogue.h"
#include "lists.h"

struct rt;

/* conv              ONNX Conv-11 without bias, zero padding: x (batch, group c, ..), w (group m, c, window..),
 *                   y (batch, group m, ..).
 * conv_transpose    ONNX ConvTranspose-11 without bias: w (group c, m, window..); y has shape y_dims; elements that no
 *                   window covers are 0.
 * conv_weight_grad  gradient of conv's weights, dw of shape w_dims, dy of the shape of conv's y. For conv_transpose:
 *                   pass its dy as x and its x as dy.
 * conv_packed       the same of channels last, x (batch, .., group c) and y (batch, .., group m), with weights packed
 *                   as RT_PACK_WINDOWS or, for RT_CONV_WINOGRAD, RT_PACK_WINOGRAD (windows of 3 x 3 without
 *                   strides, dilation and groups); y = epilogue(convolution), NULL: none. w_dims as of conv's w. f32.
 * conv_last, conv_transpose_last, conv_weight_grad_last
 *                   the first three of channels last, without groups, with weights as above; room: scratch memory
 *                   (base/shape/conv_room.h); windows of at most RT_CONV_MOST_TAPS elements. f32.
 * max_pool          ONNX MaxPool-12: a NaN in the window gives NaN (as in PyTorch); a window outside x gives -inf.
 * max_pool_places   where in its plane max_pool found y(o): at the first of equal elements, or the last NaN; -1: the
 *                   window is outside x.
 * max_pool_grad     gradient of max_pool: dy(o) is added to dx where max_pool found y(o): at the first of equal
 *                   elements but the last NaN, as in PyTorch; nowhere for a window outside x.
 * average_pool      ONNX AveragePool-19: the sum times 1 / the number of elements inside x or, with
 *                   count_include_pad, inside x padded by begin and end. Windows are summed in row-major order.
 * *_pool_last, *_pool_grad_last
 *                   the same of channels last, (batch, .., c): the same bits. */
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
    void rt_max_pool_places_##s(int64_t *y /* (y_dims) */, const T *x /* (x_dims) */, int ndim, const int64_t *x_dims, \
                                const int64_t *y_dims, const int64_t *window, const int64_t *stride,                   \
                                const int64_t *dilation, const int64_t *begin);                                        \
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

RT_FLOATS(RT_DECLARE_CONV)

#define RT_DECLARE_POOL_LAST(T, s)                                                                                     \
    void rt_max_pool_last_##s(T *y /* (y_dims) */, const T *x /* (x_dims) */, int ndim, const int64_t *x_dims,         \
                              const int64_t *y_dims, const int64_t *window, const int64_t *stride,                     \
                              const int64_t *dilation, const int64_t *begin);                                          \
    void rt_max_pool_grad_last_##s(T *dx /* (x_dims) */, const T *x /* (x_dims) */, const T *dy /* (y_dims) */,        \
                                   int ndim, const int64_t *x_dims, const int64_t *y_dims, const int64_t *window,      \
                                   const int64_t *stride, const int64_t *dilation, const int64_t *begin);              \
    void rt_average_pool_last_##s(T *y /* (y_dims) */, const T *x /* (x_dims) */, int ndim, const int64_t *x_dims,     \
                                  const int64_t *y_dims, const int64_t *window, const int64_t *stride,                 \
                                  const int64_t *dilation, const int64_t *begin, const int64_t *end,                   \
                                  int count_include_pad);

RT_FLOATS(RT_DECLARE_POOL_LAST)

int rt_conv_packed_f32(struct rt *rt, float *y /* (y_dims) */, const float *x /* (x_dims) */, const float *w, int ndim,
                       const int64_t *x_dims, const int64_t *w_dims, const int64_t *y_dims, int64_t group,
                       const int64_t *stride, const int64_t *dilation, const int64_t *begin,
                       enum rt_conv_algorithm algorithm, const struct rt_epilogue *epilogue);

int rt_conv_last_f32(struct rt *rt, float *y /* (y_dims) */, const float *x /* (x_dims) */,
                     const float *w /* (w_dims) */, void *room, int ndim, const int64_t *x_dims, const int64_t *w_dims,
                     const int64_t *y_dims, const int64_t *stride, const int64_t *dilation, const int64_t *begin);
int rt_conv_transpose_last_f32(struct rt *rt, float *y /* (y_dims) */, const float *x /* (x_dims) */,
                               const float *w /* (w_dims) */, void *room, int ndim, const int64_t *x_dims,
                               const int64_t *w_dims, const int64_t *y_dims, const int64_t *stride,
                               const int64_t *dilation, const int64_t *begin);
int rt_conv_weight_grad_last_f32(struct rt *rt, float *dw /* (w_dims) */, const float *x /* (x_dims) */,
                                 const float *dy /* (y_dims) */, void *room, int ndim, const int64_t *x_dims,
                                 const int64_t *w_dims, const int64_t *y_dims, const int64_t *stride,
                                 const int64_t *dilation, const int64_t *begin);

#endif
