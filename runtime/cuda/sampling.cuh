/* Sampling of images at points; the manual is kernels/c/sampling.h. A thread per element of the result. Of gradients of
 * images, a thread per plane, which adds the points in order: results do not depend on timing. */
#ifndef RT_CUDA_SAMPLING_CUH
#define RT_CUDA_SAMPLING_CUH

#include "../base/shape/sampling.h"
#include "../kernels/c/taps.h"
#include "index.cuh"

/* The extents of three dimensions, the first 1 where there are fewer. */
struct rt_image {
    int64_t size[RT_SAMPLE_DIMS], elements;
    int ndim;
    enum rt_sample_mode mode;
    enum rt_sample_padding padding;
    int align;
};

static inline rt_image rt_image_of(int ndim, const rt_dims &shape, enum rt_sample_mode mode,
                                   enum rt_sample_padding padding, int align) {
    rt_image image = {{1, 1, 1}, 1, ndim, mode, padding, align};
    for (int d = 0; d < ndim; d++) {
        image.size[RT_SAMPLE_DIMS - ndim + d] = shape[2 + d];
        image.elements *= shape[2 + d];
    }
    return image;
}

template <class T> struct rt_sampling;
#define RT_CUDA_SAMPLING(T, s)                                                                                         \
    template <> struct rt_sampling<T> {                                                                                \
        using taps = struct rt_taps_##s;                                                                               \
        using bins = struct rt_bins_##s;                                                                               \
        static __device__ taps taps_of(const rt_image &image, int d, T x) {                                            \
            return rt_taps_of_##s(image.mode, image.padding, image.align, image.size[d], x);                           \
        }                                                                                                              \
        static __device__ taps roi_taps(int64_t size, T x) { return rt_roi_taps_##s(size, x); }                        \
        static __device__ bins bins_of(const rt_roi &roi, T from, T to, int64_t count) {                               \
            return rt_bins_of_##s(&roi, from, to, count);                                                              \
        }                                                                                                              \
    };
RT_CUDA_SAMPLING(float, f32)
RT_CUDA_SAMPLING(double, f64)

/* Calls body(offset, weight) for every element that the point is interpolated from; along: the dimension whose slopes
 * replace the weights, -1: none. */
template <class T, class F>
static __device__ inline void rt_each_tap(const rt_image &image, const T *point, int along, F body) {
    typename rt_sampling<T>::taps taps[RT_SAMPLE_DIMS];
    for (int d = 0; d < RT_SAMPLE_DIMS; d++) {
        const int of = RT_SAMPLE_DIMS - 1 - d;
        if (of < image.ndim)
            taps[d] = rt_sampling<T>::taps_of(image, d, point[of]);
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
static inline int rt_sample(struct rt *rt, T *y, const T *x, const T *points, int64_t n, int64_t c, int64_t p,
                            const rt_image &image) {
    return rt_points(rt, n * c * p, [=] __device__(int64_t i) {
        const T *plane = x + i / p * image.elements, *point = points + (i / p / c * p + i % p) * image.ndim;
        T sum = 0;
        rt_each_tap(image, point, -1, [&](int64_t offset, T weight) { sum += plane[offset] * weight; });
        y[i] = sum;
    });
}

/* One thread per plane: it adds the points in order. */
template <class T>
static inline int rt_sample_grad(struct rt *rt, T *dx, const T *dy, const T *points, int64_t n, int64_t c, int64_t p,
                                 const rt_image &image) {
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
static inline int rt_sample_points_grad(struct rt *rt, T *dpoints, const T *dy, const T *x, const T *points, int64_t n,
                                        int64_t c, int64_t p, const rt_image &image) {
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

/* --- Regions --- */

/* Calls body(offset, weight, outside) for the four elements of every sample of a bin. */
template <class T, class F>
static __device__ inline void rt_each_in_bin(const rt_roi &roi, const typename rt_sampling<T>::bins &down,
                                             const typename rt_sampling<T>::bins &across, int64_t row, int64_t column,
                                             F body) {
    for (int64_t i = 0; i < down.samples; i++) {
        const T y = down.start + ((T)row + ((T)i + (T)0.5) / (T)down.samples) * down.size;
        const auto v = rt_sampling<T>::roi_taps(roi.h, y);
        for (int64_t j = 0; j < across.samples; j++) {
            const T x = across.start + ((T)column + ((T)j + (T)0.5) / (T)across.samples) * across.size;
            const auto u = rt_sampling<T>::roi_taps(roi.w, x);
            const bool outside = v.n == 0 || u.n == 0;
            for (int k = 0; k < 4; k++)
                body(v.index[k / 2] * roi.w + u.index[k % 2], v.weight[k / 2] * u.weight[k % 2], outside);
        }
    }
}

struct rt_roi_bin {
    int64_t first, end;
};
static __device__ inline int64_t rt_roi_clipped(int64_t at, int64_t size) {
    return at < 0 ? 0 : at > size ? size : at;
}
static __device__ inline rt_roi_bin rt_roi_bin_of(double from, double to, double scale, int64_t bin, int64_t bins,
                                                  int64_t size) {
    const double most = 1e15;
    const double start = round(fmax(-most, fmin(most, from * scale))), end = round(fmax(-most, fmin(most, to * scale)));
    const double extent = fmax(end - start + 1, 1.0) / (double)bins;
    return {rt_roi_clipped((int64_t)(floor((double)bin * extent) + start), size),
            rt_roi_clipped((int64_t)(ceil((double)(bin + 1) * extent) + start), size)};
}

/* A batch index as an index into the images; -1 after a fault. */
static __device__ inline int64_t rt_roi_image(const rt_index &index, int64_t r, int64_t n) {
    const int64_t value = rt_index_value(index, r);
    if (value >= 0 && value < n) return value;
    rt_note_fault(index.fault, RT_FAULT_INDEX, index.instruction, value, r, n);
    return -1;
}

template <class T>
static inline int rt_roi_pool(struct rt *rt, T *y, const T *x, const T *rois, const int64_t *batch, const rt_roi &roi) {
    const rt_index index = rt_index_of(rt, batch, 1);
    const int64_t bins = roi.rows * roi.columns;
    return rt_points(rt, roi.r * roi.c * bins, [=] __device__(int64_t i) {
        const int64_t item = i / bins, r = item / roi.c, row = i % bins / roi.columns, column = i % roi.columns;
        const int64_t image = rt_roi_image(index, r, roi.n);
        const T *corner = rois + r * 4, *plane = x + ((image < 0 ? 0 : image) * roi.c + item % roi.c) * roi.h * roi.w;
        T sum = 0, most = -(T)INFINITY;
        int64_t count = 0;
        if (image < 0) {
            y[i] = 0;
            return;
        }
        if (roi.mode == RT_ROI_BINS) {
            const rt_roi_bin down =
                rt_roi_bin_of((double)corner[1], (double)corner[3], roi.scale, row, roi.rows, roi.h);
            const rt_roi_bin across =
                rt_roi_bin_of((double)corner[0], (double)corner[2], roi.scale, column, roi.columns, roi.w);
            for (int64_t a = down.first; a < down.end; a++)
                for (int64_t b = across.first; b < across.end; b++, count++) {
                    const T value = plane[a * roi.w + b];
                    most = value > most || value != value ? value : most;
                }
            y[i] = count ? most : (T)0;
            return;
        }
        const auto down = rt_sampling<T>::bins_of(roi, corner[1], corner[3], roi.rows);
        const auto across = rt_sampling<T>::bins_of(roi, corner[0], corner[2], roi.columns);
        count = down.samples > 0 && across.samples > 0 ? down.samples * across.samples : 0;
        rt_each_in_bin<T>(roi, down, across, row, column, [&](int64_t offset, T weight, bool outside) {
            const T value = outside ? (T)0 : plane[offset] * weight;
            sum += value;
            most = value > most || value != value ? value : most;
        });
        y[i] = roi.mode == RT_ROI_MAX ? (count ? most : (T)0) : sum / (T)(count ? count : 1);
    });
}

/* Adds the gradient of a bin to the element of x(h,w) that it takes. */
template <class T>
static __device__ inline void rt_spread_largest(T *dx, const T *x, T gradient, const T *corner, const rt_roi &roi,
                                                int64_t row, int64_t column) {
    T most = -(T)INFINITY, share = 1;
    int64_t place = -1;
    if (roi.mode == RT_ROI_BINS) {
        const rt_roi_bin down = rt_roi_bin_of((double)corner[1], (double)corner[3], roi.scale, row, roi.rows, roi.h);
        const rt_roi_bin across =
            rt_roi_bin_of((double)corner[0], (double)corner[2], roi.scale, column, roi.columns, roi.w);
        for (int64_t a = down.first; a < down.end; a++)
            for (int64_t b = across.first; b < across.end; b++) {
                const T value = x[a * roi.w + b];
                if (!(value > most || value != value)) continue;
                most = value;
                place = a * roi.w + b;
            }
    } else {
        const auto down = rt_sampling<T>::bins_of(roi, corner[1], corner[3], roi.rows);
        const auto across = rt_sampling<T>::bins_of(roi, corner[0], corner[2], roi.columns);
        rt_each_in_bin<T>(roi, down, across, row, column, [&](int64_t offset, T weight, bool outside) {
            const T value = outside ? (T)0 : x[offset] * weight;
            if (!(value > most || value != value)) return;
            most = value;
            place = outside ? -1 : offset;
            share = weight;
        });
    }
    if (place >= 0) dx[place] += gradient * share;
}

/* One thread per channel: it adds the regions in order. */
template <class T>
static inline int rt_roi_pool_grad(struct rt *rt, T *dx, const T *dy, const T *rois, const int64_t *batch, const T *x,
                                   const rt_roi &roi) {
    const rt_index index = rt_index_of(rt, batch, 1);
    const int64_t bins = roi.rows * roi.columns, plane = roi.h * roi.w;
    rt_points(rt, roi.n * roi.c * plane, [=] __device__(int64_t i) { dx[i] = 0; });
    return rt_points(rt, roi.c, [=] __device__(int64_t channel) {
        for (int64_t r = 0; r < roi.r; r++) {
            const T *corner = rois + r * 4;
            const int64_t image = rt_roi_image(index, r, roi.n);
            const auto down = rt_sampling<T>::bins_of(roi, corner[1], corner[3], roi.rows);
            const auto across = rt_sampling<T>::bins_of(roi, corner[0], corner[2], roi.columns);
            const int64_t count = down.samples > 0 && across.samples > 0 ? down.samples * across.samples : 0;
            const int64_t first = (image * roi.c + channel) * plane;
            for (int64_t bin = 0; bin < bins && image >= 0 && roi.mode != RT_ROI_AVG; bin++)
                rt_spread_largest(dx + first, x + first, dy[(r * roi.c + channel) * bins + bin], corner, roi,
                                  bin / roi.columns, bin % roi.columns);
            for (int64_t bin = 0; bin < bins && count > 0 && image >= 0 && roi.mode == RT_ROI_AVG; bin++) {
                const T gradient = dy[(r * roi.c + channel) * bins + bin] / (T)count;
                rt_each_in_bin<T>(roi, down, across, bin / roi.columns, bin % roi.columns,
                                  [&](int64_t offset, T weight, bool outside) {
                                      if (!outside) dx[first + offset] += gradient * weight;
                                  });
            }
        }
    });
}

#define RT_CUDA_SAMPLE(T, s)                                                                                           \
    RT_ON_CALL int rt_sample_##s(struct rt *rt, T *y, const T *x, const T *points, int64_t n, int64_t c, int64_t p,    \
                                 int ndim, const rt_dims &shape, enum rt_sample_mode mode,                             \
                                 enum rt_sample_padding padding, int align) {                                          \
        return rt_sample(rt, y, x, points, n, c, p, rt_image_of(ndim, shape, mode, padding, align));                   \
    }                                                                                                                  \
    RT_ON_CALL int rt_sample_grad_##s(struct rt *rt, T *dx, const T *dy, const T *points, int64_t n, int64_t c,        \
                                      int64_t p, int ndim, const rt_dims &shape, enum rt_sample_mode mode,             \
                                      enum rt_sample_padding padding, int align) {                                     \
        return rt_sample_grad(rt, dx, dy, points, n, c, p, rt_image_of(ndim, shape, mode, padding, align));            \
    }                                                                                                                  \
    RT_ON_CALL int rt_sample_points_grad_##s(struct rt *rt, T *dpoints, const T *dy, const T *x, const T *points,      \
                                             int64_t n, int64_t c, int64_t p, int ndim, const rt_dims &shape,          \
                                             enum rt_sample_mode mode, enum rt_sample_padding padding, int align) {    \
        return rt_sample_points_grad(rt, dpoints, dy, x, points, n, c, p,                                              \
                                     rt_image_of(ndim, shape, mode, padding, align));                                  \
    }                                                                                                                  \
    RT_ON_CALL int rt_roi_pool_##s(struct rt *rt, T *y, const T *x, const T *rois, const int64_t *batch,               \
                                   const rt_roi &roi) {                                                                \
        return rt_roi_pool(rt, y, x, rois, batch, roi);                                                                \
    }                                                                                                                  \
    RT_ON_CALL int rt_roi_pool_grad_##s(struct rt *rt, T *dx, const T *dy, const T *rois, const int64_t *batch,        \
                                        const T *x, const rt_roi &roi) {                                               \
        return rt_roi_pool_grad(rt, dx, dy, rois, batch, x, roi);                                                      \
    }

RT_CUDA_SAMPLE(float, f32)
RT_CUDA_SAMPLE(double, f64)

#endif
