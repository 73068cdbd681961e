/* Convolutions and pooling; the manual is kernels/c/conv.h. A library computes convolutions if it is available
 * (convolve.cuh). The kernels here compute the others, and everything with --kernels reference: one thread per element
 * of the result, which sums its window in row-major order. */
#ifndef RT_CUDA_WINDOW_CUH
#define RT_CUDA_WINDOW_CUH

#include "../kernels/c/window.h"
#include "move.cuh"

/* The window of a convolution from its image to its result. */
static inline rt_window rt_window_of(const rt_convolution &c) {
    return rt_window_of(c.ndim, c.image.at, c.filter.at + 2, c.result.at, c.stride.at, c.dilation.at, c.begin.at);
}

/* Index `i` of a box of three extents. */
struct rt_at3 {
    int64_t at[3];
};
static inline __device__ rt_at3 rt_unravel3(int64_t i, const int64_t *extent) {
    rt_at3 index;
    for (int d = 2; d >= 0; d--) index.at[d] = rt_take(&i, extent[d]);
    return index;
}

/* Offset in a plane of x that window element `tap` reads for output o; -1: outside. */
static inline __device__ int64_t rt_window_place(const rt_window &w, const rt_at3 &o, int64_t tap) {
    const rt_at3 k = rt_unravel3(tap, w.k);
    int64_t place = 0;
    for (int d = 0; d < 3; d++) {
        const int64_t i = rt_window_at(&w, d, o.at[d], k.at[d]);
        if (i < 0 || i >= w.x[d]) return -1;
        place = place * w.x[d] + i;
    }
    return place;
}

/* Offset in a plane of y whose window element `tap` reads index `i` of x; -1: none. */
static inline __device__ int64_t rt_window_source(const rt_window &w, const rt_at3 &i, int64_t tap) {
    const rt_at3 k = rt_unravel3(tap, w.k);
    int64_t place = 0;
    for (int d = 0; d < 3; d++) {
        const int64_t reach = i.at[d] + w.begin[d] - k.at[d] * w.dilation[d], o = reach / w.stride[d];
        if (reach < 0 || reach % w.stride[d] || o >= w.y[d]) return -1;
        place = place * w.y[d] + o;
    }
    return place;
}

template <class T> static inline int rt_conv_forward(struct rt *rt, const rt_convolution &conv) {
    const rt_window window = rt_window_of(conv);
    const int64_t c = conv.filter[1], channels = conv.image[1], m = conv.result[1], group = conv.group;
    const T *x = (const T *)conv.a, *w = (const T *)conv.b;
    T *y = (T *)conv.y;
    return rt_points(rt, rt_count(conv.result, 0, conv.ndim), [=] __device__(int64_t p) {
        int64_t sample = p;
        const rt_at3 o = rt_unravel3(rt_take(&sample, window.y_plane), window.y);
        const int64_t channel = rt_take(&sample, m);
        const T *from = x + (sample * channels + channel / (m / group) * c) * window.x_plane;
        const T *by = w + channel * c * window.taps;
        T sum = 0;
        for (int64_t i = 0; i < c; i++)
            for (int64_t tap = 0; tap < window.taps; tap++) {
                const int64_t place = rt_window_place(window, o, tap);
                if (place >= 0) sum += by[i * window.taps + tap] * from[i * window.x_plane + place];
            }
        y[p] = sum;
    });
}

template <class T> static inline int rt_conv_back(struct rt *rt, const rt_convolution &conv) {
    const rt_window window = rt_window_of(conv);
    const int64_t m = conv.filter[1], channels = conv.image[1], group = conv.group, c = conv.result[1] / group;
    const T *x = (const T *)conv.a, *w = (const T *)conv.b;
    T *y = (T *)conv.y;
    return rt_points(rt, rt_count(conv.image, 0, conv.ndim), [=] __device__(int64_t p) {
        int64_t sample = p;
        const rt_at3 at = rt_unravel3(rt_take(&sample, window.x_plane), window.x);
        const int64_t channel = rt_take(&sample, channels), first = channel / m * c;
        T sum = 0;
        for (int64_t i = first; i < first + c; i++)
            for (int64_t tap = 0; tap < window.taps; tap++) {
                const int64_t place = rt_window_source(window, at, tap);
                if (place >= 0)
                    sum += x[(sample * group * c + i) * window.y_plane + place] *
                           w[(i * m + channel % m) * window.taps + tap];
            }
        y[p] = sum;
    });
}

/* One thread block per element: its threads divide the output positions of all samples. */
template <class T> static inline int rt_conv_weights(struct rt *rt, const rt_convolution &conv) {
    const rt_window window = rt_window_of(conv);
    const int64_t c = conv.filter[1], channels = conv.image[1], m = conv.result[1], batch = conv.image[0];
    const int64_t group = conv.group;
    const T *x = (const T *)conv.a, *dy = (const T *)conv.b;
    T *dw = (T *)conv.y;
    return rt_rows(rt, rt_count(conv.filter, 0, conv.ndim), [=] __device__(int64_t row) {
        int64_t channel = row;
        const int64_t tap = rt_take(&channel, window.taps), i = rt_take(&channel, c);
        const int64_t from = channel / (m / group) * c + i;
        T sum = 0;
        RT_EACH(p, batch * window.y_plane) {
            int64_t sample = p;
            const int64_t o = rt_take(&sample, window.y_plane);
            const int64_t place = rt_window_place(window, rt_unravel3(o, window.y), tap);
            if (place >= 0)
                sum += x[(sample * channels + from) * window.x_plane + place] *
                       dy[(sample * m + channel) * window.y_plane + o];
        }
        sum = rt_block_fold(sum, rt_sum_of());
        if (threadIdx.x == 0) dw[row] = sum;
    });
}

/* Computes the convolution with the library, else with the kernels here. */
template <class T> static inline int rt_convolve(struct rt *rt, rt_convolution conv) {
    int (*library)(struct rt *, const rt_convolution *) = rt_cuda_of(rt)->convolve;
    conv.dtype = rt_dtype_of<T>;
    conv.workspace = rt->arena[RT_SCRATCH];
    rt_take_note(rt, NULL, false, conv);
    const int status = library && !rt->reference_kernels ? library(rt, &conv) : -1;
    if (status >= 0) return status;
    return conv.kind == RT_CONVOLVE        ? rt_conv_forward<T>(rt, conv)
           : conv.kind == RT_CONVOLVE_BACK ? rt_conv_back<T>(rt, conv)
                                           : rt_conv_weights<T>(rt, conv);
}

template <class T>
RT_FAMILY int rt_conv(struct rt *rt, T *y, const T *x, const T *w, int ndim, const rt_dims &x_dims,
                      const rt_dims &w_dims, const rt_dims &y_dims, int64_t group, const rt_dims &stride,
                      const rt_dims &dilation, const rt_dims &begin) {
    return rt_convolve<T>(
        rt, {RT_CONVOLVE, {}, ndim, y, x, w, x_dims, w_dims, y_dims, group, stride, dilation, begin, NULL});
}

/* The image is y. */
template <class T>
RT_FAMILY int rt_conv_transpose(struct rt *rt, T *y, const T *x, const T *w, int ndim, const rt_dims &x_dims,
                                const rt_dims &w_dims, const rt_dims &y_dims, int64_t group, const rt_dims &stride,
                                const rt_dims &dilation, const rt_dims &begin) {
    return rt_convolve<T>(
        rt, {RT_CONVOLVE_BACK, {}, ndim, y, x, w, y_dims, w_dims, x_dims, group, stride, dilation, begin, NULL});
}

template <class T>
RT_FAMILY int rt_conv_weight_grad(struct rt *rt, T *dw, const T *x, const T *dy, int ndim, const rt_dims &x_dims,
                                  const rt_dims &w_dims, const rt_dims &y_dims, int64_t group, const rt_dims &stride,
                                  const rt_dims &dilation, const rt_dims &begin) {
    return rt_convolve<T>(
        rt, {RT_CONVOLVE_WEIGHTS, {}, ndim, dw, x, dy, x_dims, w_dims, y_dims, group, stride, dilation, begin, NULL});
}

/* Offset that max_pool selects for output o: the first of equal elements but the last NaN; -1: the window is outside
 * x. */
template <class T>
static __device__ inline int64_t rt_largest_place(const T *plane, const rt_window &window, const rt_at3 &o) {
    int64_t largest = -1;
    for (int64_t tap = 0; tap < window.taps; tap++) {
        const int64_t place = rt_window_place(window, o, tap);
        if (place < 0) continue;
        if (largest < 0 || plane[place] > plane[largest] || plane[place] != plane[place]) largest = place;
    }
    return largest;
}

template <class T>
RT_FAMILY int rt_max_pool(struct rt *rt, T *y, const T *x, int ndim, const rt_dims &x_dims, const rt_dims &y_dims,
                          const rt_dims &taps, const rt_dims &stride, const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims.at, taps.at, y_dims.at, stride.at, dilation.at, begin.at);
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
        int64_t plane = p;
        const rt_at3 o = rt_unravel3(rt_take(&plane, window.y_plane), window.y);
        T most = -(T)INFINITY;
        for (int64_t tap = 0; tap < window.taps; tap++) {
            const int64_t place = rt_window_place(window, o, tap);
            if (place < 0) continue;
            const T value = x[plane * window.x_plane + place];
            most = value > most || value != value ? value : most;
        }
        y[p] = most;
    });
}

template <class T>
RT_FAMILY int rt_max_pool_places(struct rt *rt, int64_t *y, const T *x, int ndim, const rt_dims &x_dims,
                                 const rt_dims &y_dims, const rt_dims &taps, const rt_dims &stride,
                                 const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims.at, taps.at, y_dims.at, stride.at, dilation.at, begin.at);
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
        int64_t plane = p;
        const rt_at3 o = rt_unravel3(rt_take(&plane, window.y_plane), window.y);
        y[p] = rt_largest_place(x + plane * window.x_plane, window, o);
    });
}

/* One thread per element of dx: checks for all windows that read the element whether they selected it. */
template <class T>
RT_FAMILY int rt_max_pool_grad(struct rt *rt, T *dx, const T *x, const T *dy, int ndim, const rt_dims &x_dims,
                               const rt_dims &y_dims, const rt_dims &taps, const rt_dims &stride,
                               const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims.at, taps.at, y_dims.at, stride.at, dilation.at, begin.at);
    return rt_points(rt, rt_count(x_dims, 0, ndim), [=] __device__(int64_t p) {
        int64_t plane = p;
        const int64_t mine = rt_take(&plane, window.x_plane);
        const rt_at3 at = rt_unravel3(mine, window.x);
        const T *from = x + plane * window.x_plane;
        T sum = 0;
        for (int64_t tap = window.taps - 1; tap >= 0; tap--) { /* in order of outputs */
            const int64_t place = rt_window_source(window, at, tap);
            if (place >= 0 && rt_largest_place(from, window, rt_unravel3(place, window.y)) == mine)
                sum += dy[plane * window.y_plane + place];
        }
        dx[p] = sum;
    });
}

/* Number of window elements of output o in [-before, extent + after) of a dimension. */
static inline __device__ int64_t rt_window_counted(const rt_window &w, int d, int64_t o, int64_t before,
                                                   int64_t after) {
    int64_t count = 0;
    for (int64_t k = 0; k < w.k[d]; k++) {
        const int64_t i = rt_window_at(&w, d, o, k);
        count += i >= -before && i < w.x[d] + after;
    }
    return count;
}

template <class T>
RT_FAMILY int rt_average_pool(struct rt *rt, T *y, const T *x, int ndim, const rt_dims &x_dims, const rt_dims &y_dims,
                              const rt_dims &taps, const rt_dims &stride, const rt_dims &dilation, const rt_dims &begin,
                              const rt_dims &end, int count_include_pad) {
    const rt_window window = rt_window_of(ndim, x_dims.at, taps.at, y_dims.at, stride.at, dilation.at, begin.at);
    rt_at3 before = {}, after = {};
    for (int i = 0; i < ndim - 2 && count_include_pad; i++) {
        before.at[5 - ndim + i] = begin[i];
        after.at[5 - ndim + i] = end[i];
    }
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
        int64_t plane = p, count = 1;
        const rt_at3 o = rt_unravel3(rt_take(&plane, window.y_plane), window.y);
        T sum = 0;
        for (int64_t tap = 0; tap < window.taps; tap++) {
            const int64_t place = rt_window_place(window, o, tap);
            if (place >= 0) sum += x[plane * window.x_plane + place];
        }
        for (int d = 0; d < 3; d++) count *= rt_window_counted(window, d, o.at[d], before.at[d], after.at[d]);
        y[p] = sum / (T)count;
    });
}

#define RT_CUDA_WINDOW(T, s)                                                                                           \
    RT_NAME(rt_conv_##s, rt_conv<T>)                                                                                   \
    RT_NAME(rt_conv_transpose_##s, rt_conv_transpose<T>)                                                               \
    RT_NAME(rt_conv_weight_grad_##s, rt_conv_weight_grad<T>)                                                           \
    RT_NAME(rt_max_pool_##s, rt_max_pool<T>)                                                                           \
    RT_NAME(rt_max_pool_places_##s, rt_max_pool_places<T>)                                                             \
    RT_NAME(rt_max_pool_grad_##s, rt_max_pool_grad<T>)                                                                 \
    RT_NAME(rt_average_pool_##s, rt_average_pool<T>)
RT_FLOATS(RT_CUDA_WINDOW)

#endif
