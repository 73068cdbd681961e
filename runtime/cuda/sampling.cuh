/* Sampling of images at points; the manual is kernels/c/sampling.h. A thread per element of the result. Of gradients of
 * images, a thread per plane, which adds the points in order: results do not depend on timing. */
#ifndef RT_CUDA_SAMPLING_CUH
#define RT_CUDA_SAMPLING_CUH

#include "../base/shape/sampling.h"
#include "../kernels/c/taps.h"
#include "index.cuh"

template <class T> struct rt_sampling;
#define RT_CUDA_SAMPLING(T, s)                                                                                         \
    template <> struct rt_sampling<T> {                                                                                \
        using taps = struct rt_taps_##s;                                                                               \
        static __device__ void find_taps(taps *found, const rt_image &image, int d, T x) {                             \
            rt_find_taps_##s(found, image.mode, image.padding, image.align, image.size[d], x);                         \
        }                                                                                                              \
        static __device__ T pool_bin(const T *plane, const rt_roi &roi, const T *corner, int64_t bin) {                \
            struct rt_samples_##s samples = rt_samples_of_##s(&roi, corner);                                           \
            return rt_pool_bin_##s(plane, &samples, bin);                                                              \
        }                                                                                                              \
        static __device__ void spread_bin(T *dx, const T *x, T gradient, const rt_roi &roi, const T *corner,           \
                                          int64_t bin) {                                                               \
            struct rt_samples_##s samples = rt_samples_of_##s(&roi, corner);                                           \
            rt_spread_bin_##s(dx, x, gradient, &samples, bin);                                                         \
        }                                                                                                              \
    };
RT_FLOATS(RT_CUDA_SAMPLING)

/* Calls body(offset, weight) for every element that the point is interpolated from; along: the dimension whose slopes
 * replace the weights, -1: none. */
template <class T, class F>
static __device__ inline void rt_each_tap(const rt_image &image, const T *point, int along, F body) {
    typename rt_sampling<T>::taps taps[RT_SAMPLE_DIMS];
    for (int d = 0; d < RT_SAMPLE_DIMS; d++) {
        const int of = RT_SAMPLE_DIMS - 1 - d;
        if (of < image.ndim)
            rt_sampling<T>::find_taps(&taps[d], image, d, point[of]);
        else
            taps[d] = {1, {0}, {1}, {0}};
    }
    for (int a = 0; a < taps[0].n; a++)
        for (int b = 0; b < taps[1].n; b++)
            for (int c = 0; c < taps[2].n; c++) {
                if (taps[0].index[a] < 0 || taps[1].index[b] < 0 || taps[2].index[c] < 0) continue;
                body((taps[0].index[a] * image.size[1] + taps[1].index[b]) * image.size[2] + taps[2].index[c],
                     (along == 0 ? taps[0].slope[a] : taps[0].weight[a]) *
                         (along == 1 ? taps[1].slope[b] : taps[1].weight[b]) *
                         (along == 2 ? taps[2].slope[c] : taps[2].weight[c]));
            }
}

template <class T>
RT_FAMILY int rt_sample(struct rt *rt, T *y, const T *x, const T *points, int64_t n, int64_t c, int64_t p, int ndim,
                        const rt_dims &shape, enum rt_sample_mode mode, enum rt_sample_padding padding, int align) {
    const rt_image image = rt_image_of(ndim, shape.at, mode, padding, align);
    return rt_points(rt, n * c * p, [=] __device__(int64_t i) {
        const T *plane = x + i / p * image.elements, *point = points + (i / p / c * p + i % p) * image.ndim;
        T sum = 0;
        rt_each_tap(image, point, -1, [&](int64_t offset, T weight) { sum += plane[offset] * weight; });
        y[i] = sum;
    });
}

/* One thread per plane: it adds the points in order. */
template <class T>
RT_FAMILY int rt_sample_grad(struct rt *rt, T *dx, const T *dy, const T *points, int64_t n, int64_t c, int64_t p,
                             int ndim, const rt_dims &shape, enum rt_sample_mode mode, enum rt_sample_padding padding,
                             int align) {
    const rt_image image = rt_image_of(ndim, shape.at, mode, padding, align);
    rt_points(rt, n * c * image.elements, [=] __device__(int64_t i) { dx[i] = 0; });
    return rt_points(rt, n * c, [=] __device__(int64_t i) {
        T *plane = dx + i * image.elements;
        for (int64_t q = 0; q < p; q++) {
            const T gradient = dy[i * p + q];
            rt_each_tap(image, points + (i / c * p + q) * image.ndim, -1,
                        [&](int64_t offset, T weight) { plane[offset] += gradient * weight; });
        }
    });
}

template <class T>
RT_FAMILY int rt_sample_points_grad(struct rt *rt, T *dpoints, const T *dy, const T *x, const T *points, int64_t n,
                                    int64_t c, int64_t p, int ndim, const rt_dims &shape, enum rt_sample_mode mode,
                                    enum rt_sample_padding padding, int align) {
    const rt_image image = rt_image_of(ndim, shape.at, mode, padding, align);
    return rt_points(rt, n * p * image.ndim, [=] __device__(int64_t i) {
        const int64_t point = i / image.ndim, sample = point / p;
        const int along = RT_SAMPLE_DIMS - 1 - (int)(i % image.ndim);
        T sum = 0;
        for (int64_t channel = 0; channel < c; channel++) {
            const T *plane = x + (sample * c + channel) * image.elements;
            T slope = 0;
            rt_each_tap(image, points + point * image.ndim, along,
                        [&](int64_t offset, T weight) { slope += plane[offset] * weight; });
            sum += slope * dy[(sample * c + channel) * p + point % p];
        }
        dpoints[i] = sum;
    });
}

/* A batch index as an index into the images; -1 after a fault. */
static __device__ inline int64_t rt_roi_image(const rt_index &index, int64_t r, int64_t n) {
    const int64_t value = rt_index_value(index, r);
    if (value >= 0 && value < n) return value;
    rt_note_fault(index.fault, RT_FAULT_INDEX, index.instruction, value, r, n);
    return -1;
}

template <class T>
RT_FAMILY int rt_roi_pool(struct rt *rt, T *y, const T *x, const T *rois, const int64_t *batch, const rt_roi &roi) {
    const rt_index index = rt_index_of(rt, batch, 1);
    const int64_t bins = roi.rows * roi.columns, plane = roi.h * roi.w;
    return rt_points(rt, roi.r * roi.c * bins, [=] __device__(int64_t i) {
        const int64_t item = i / bins, r = item / roi.c, image = rt_roi_image(index, r, roi.n);
        const T *from = x + (image * roi.c + item % roi.c) * plane;
        y[i] = image < 0 ? (T)0 : rt_sampling<T>::pool_bin(from, roi, rois + r * 4, i % bins);
    });
}

/* One thread per channel: it adds the regions in order. */
template <class T>
RT_FAMILY int rt_roi_pool_grad(struct rt *rt, T *dx, const T *dy, const T *rois, const int64_t *batch, const T *x,
                               const rt_roi &roi) {
    const rt_index index = rt_index_of(rt, batch, 1);
    const int64_t bins = roi.rows * roi.columns, plane = roi.h * roi.w;
    rt_points(rt, roi.n * roi.c * plane, [=] __device__(int64_t i) { dx[i] = 0; });
    return rt_points(rt, roi.c, [=] __device__(int64_t channel) {
        for (int64_t r = 0; r < roi.r; r++) {
            const int64_t image = rt_roi_image(index, r, roi.n), first = (image * roi.c + channel) * plane;
            for (int64_t bin = 0; bin < bins && image >= 0; bin++)
                rt_sampling<T>::spread_bin(dx + first, x + first, dy[(r * roi.c + channel) * bins + bin], roi,
                                           rois + r * 4, bin);
        }
    });
}

#define RT_CUDA_SAMPLE(T, s)                                                                                           \
    RT_NAME(rt_sample_##s, rt_sample<T>)                                                                               \
    RT_NAME(rt_sample_grad_##s, rt_sample_grad<T>)                                                                     \
    RT_NAME(rt_sample_points_grad_##s, rt_sample_points_grad<T>)                                                       \
    RT_NAME(rt_roi_pool_##s, rt_roi_pool<T>)                                                                           \
    RT_NAME(rt_roi_pool_grad_##s, rt_roi_pool_grad<T>)
RT_FLOATS(RT_CUDA_SAMPLE)

#endif
