/* Sampling of images at points: part of kernels.h. */
#ifndef RT_KERNELS_C_SAMPLING_H
#define RT_KERNELS_C_SAMPLING_H

#include "../../base/shape/sampling.h"
#include "lists.h"

/* sample        ONNX GridSample-22 at points given in elements, the innermost dimension first: y(n,c,p) is x of that
 *               shape (n, c and ndim dimensions, at most RT_SAMPLE_DIMS) interpolated at points(n,p,ndim). `align` says
 *               where reflection turns: at the centres of the first and last element, else at their outer edges. Mode
 *               nearest rounds half to even; cubic has parameter -0.75.
 * sample_grad   gradient of x: zeros, then every dy is added to the elements that it was interpolated from, in order of
 *               the points.
 * sample_points_grad  gradient of the points, summed over the channels in order; 0 for mode nearest.
 *
 * roi_pool      ONNX RoiAlign-22 and MaxRoiPool-22: y(r,c,rows,columns) from x(n,c,h,w) in regions rois(r,4), corners
 *               x1 y1 x2 y2, of images batch(r). A batch index outside of [0, n) gives RT_ERROR_INPUT.
 * roi_pool_grad gradient of x(n,c,h,w). Modes max and bins need x: a bin's gradient goes to the element that it
 *               takes. */
#define RT_DECLARE_SAMPLE(T, s)                                                                                        \
    void rt_sample_##s(T *y /* (n,c,p) */, const T *x /* (n,c,size) */, const T *points /* (n,p,ndim) */, int64_t n,   \
                       int64_t c, int64_t p, int ndim, const int64_t *shape, enum rt_sample_mode mode,                 \
                       enum rt_sample_padding padding, int align);                                                     \
    void rt_sample_grad_##s(T *dx /* (n,c,size) */, const T *dy /* (n,c,p) */, const T *points /* (n,p,ndim) */,       \
                            int64_t n, int64_t c, int64_t p, int ndim, const int64_t *shape, enum rt_sample_mode mode, \
                            enum rt_sample_padding padding, int align);                                                \
    void rt_sample_points_grad_##s(T *dpoints /* (n,p,ndim) */, const T *dy /* (n,c,p) */,                             \
                                   const T *x /* (n,c,size) */, const T *points /* (n,p,ndim) */, int64_t n,           \
                                   int64_t c, int64_t p, int ndim, const int64_t *shape, enum rt_sample_mode mode,     \
                                   enum rt_sample_padding padding, int align);                                         \
    int rt_roi_pool_##s(struct rt *rt, T *y /* (r,c,rows,columns) */, const T *x /* (n,c,h,w) */,                      \
                        const T *rois /* (r,4) */, const int64_t *batch /* (r) */, const struct rt_roi *roi);          \
    int rt_roi_pool_grad_##s(struct rt *rt, T *dx /* (n,c,h,w) */, const T *dy /* (r,c,rows,columns) */,               \
                             const T *rois /* (r,4) */, const int64_t *batch /* (r) */, const T *x /* or NULL */,      \
                             const struct rt_roi *roi);

struct rt;

RT_FLOATS(RT_DECLARE_SAMPLE)

#endif
