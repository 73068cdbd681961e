/* Convolutions and pooling; the manual is kernels/c/conv.h. A library computes convolutions if it is available
 * (convolve.cuh). The kernels here compute the others, and everything with --kernels reference: one thread per element
 * of the result, which sums its window in row-major order. */
#ifndef RT_CUDA_WINDOW_CUH
#define RT_CUDA_WINDOW_CUH

#include "move.cuh"

/* A window over three spatial dimensions; with fewer, the first have extent 1. */
struct rt_window {
    int64_t x[3], y[3], k[3], stride[3], dilation[3], begin[3];
    int64_t x_plane, y_plane, taps;
};

/* Makes the window from the spatial dimensions of x_dims and y_dims; those of `window` begin at entry `at`. */
static inline rt_window rt_window_of(int ndim, const rt_dims &x_dims, const rt_dims &window, int at,
                                     const rt_dims &y_dims, const rt_dims &stride, const rt_dims &dilation,
                                     const rt_dims &begin) {
    rt_window w = {};
    w.x_plane = w.y_plane = w.taps = 1;
    for (int d = 0; d < 3; d++) {
        const int i = d - (5 - ndim);
        w.x[d] = i < 0 ? 1 : x_dims[i + 2];
        w.y[d] = i < 0 ? 1 : y_dims[i + 2];
        w.k[d] = i < 0 ? 1 : window[i + at];
        w.stride[d] = i < 0 ? 1 : stride[i];
        w.dilation[d] = i < 0 ? 1 : dilation[i];
        w.begin[d] = i < 0 ? 0 : begin[i];
        w.x_plane *= w.x[d];
        w.y_plane *= w.y[d];
        w.taps *= w.k[d];
    }
    return w;
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
        const int64_t i = o.at[d] * w.stride[d] + k.at[d] * w.dilation[d] - w.begin[d];
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

template <class T>
static inline int rt_conv(struct rt *rt, T *y, const T *x, const T *w, int ndim, const rt_dims &x_dims,
                          const rt_dims &w_dims, const rt_dims &y_dims, int64_t group, const rt_dims &stride,
                          const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims, w_dims, 2, y_dims, stride, dilation, begin);
    const int64_t c = w_dims[1], channels = x_dims[1], m = y_dims[1];
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
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

/* The window is that of the convolution from y to x. */
template <class T>
static inline int rt_conv_transpose(struct rt *rt, T *y, const T *x, const T *w, int ndim, const rt_dims &x_dims,
                                    const rt_dims &w_dims, const rt_dims &y_dims, int64_t group, const rt_dims &stride,
                                    const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, y_dims, w_dims, 2, x_dims, stride, dilation, begin);
    const int64_t m = w_dims[1], channels = y_dims[1], c = x_dims[1] / group;
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
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
template <class T>
static inline int rt_conv_weight_grad(struct rt *rt, T *dw, const T *x, const T *dy, int ndim, const rt_dims &x_dims,
                                      const rt_dims &w_dims, const rt_dims &y_dims, int64_t group,
                                      const rt_dims &stride, const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims, w_dims, 2, y_dims, stride, dilation, begin);
    const int64_t c = w_dims[1], channels = x_dims[1], m = y_dims[1], batch = x_dims[0];
    return rt_rows(rt, rt_count(w_dims, 0, ndim), [=] __device__(int64_t row) {
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
static inline int rt_max_pool(struct rt *rt, T *y, const T *x, int ndim, const rt_dims &x_dims, const rt_dims &y_dims,
                              const rt_dims &taps, const rt_dims &stride, const rt_dims &dilation,
                              const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims, taps, 0, y_dims, stride, dilation, begin);
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
static inline int rt_max_pool_places(struct rt *rt, int64_t *y, const T *x, int ndim, const rt_dims &x_dims,
                                     const rt_dims &y_dims, const rt_dims &taps, const rt_dims &stride,
                                     const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims, taps, 0, y_dims, stride, dilation, begin);
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
        int64_t plane = p;
        const rt_at3 o = rt_unravel3(rt_take(&plane, window.y_plane), window.y);
        y[p] = rt_largest_place(x + plane * window.x_plane, window, o);
    });
}

/* One thread per element of dx: checks for all windows that read the element whether they selected it. */
template <class T>
static inline int rt_max_pool_grad(struct rt *rt, T *dx, const T *x, const T *dy, int ndim, const rt_dims &x_dims,
                                   const rt_dims &y_dims, const rt_dims &taps, const rt_dims &stride,
                                   const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims, taps, 0, y_dims, stride, dilation, begin);
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
        const int64_t i = o * w.stride[d] + k * w.dilation[d] - w.begin[d];
        count += i >= -before && i < w.x[d] + after;
    }
    return count;
}

template <class T>
static inline int rt_average_pool(struct rt *rt, T *y, const T *x, int ndim, const rt_dims &x_dims,
                                  const rt_dims &y_dims, const rt_dims &taps, const rt_dims &stride,
                                  const rt_dims &dilation, const rt_dims &begin, const rt_dims &end,
                                  int count_include_pad) {
    const rt_window window = rt_window_of(ndim, x_dims, taps, 0, y_dims, stride, dilation, begin);
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

/* Computes the convolution with the library, else with `own`. */
template <class F> static inline int rt_convolve(struct rt *rt, const rt_convolution &convolution, F own) {
    int (*library)(struct rt *, const rt_convolution *) = rt_cuda_of(rt)->convolve;
    const int status = library && !rt->reference_kernels ? library(rt, &convolution) : -1;
    return status < 0 ? own() : status;
}

#define RT_CUDA_WINDOW(T, s, id)                                                                                       \
    RT_ON_CALL int rt_conv_##s(struct rt *rt, T *y, const T *x, const T *w, int ndim, const rt_dims &x_dims,           \
                               const rt_dims &w_dims, const rt_dims &y_dims, int64_t group, const rt_dims &stride,     \
                               const rt_dims &dilation, const rt_dims &begin) {                                        \
        return rt_convolve(                                                                                            \
            rt,                                                                                                        \
            {RT_CONVOLVE, id, ndim, y, x, w, x_dims, w_dims, y_dims, group, stride, dilation, begin,                   \
             rt->arena[RT_SCRATCH]},                                                                                   \
            [&] { return rt_conv(rt, y, x, w, ndim, x_dims, w_dims, y_dims, group, stride, dilation, begin); });       \
    }                                                                                                                  \
    RT_ON_CALL int rt_conv_transpose_##s(struct rt *rt, T *y, const T *x, const T *w, int ndim, const rt_dims &x_dims, \
                                         const rt_dims &w_dims, const rt_dims &y_dims, int64_t group,                  \
                                         const rt_dims &stride, const rt_dims &dilation, const rt_dims &begin) {       \
        return rt_convolve(rt,                                                                                         \
                           {RT_CONVOLVE_BACK, id, ndim, y, x, w, y_dims, w_dims, x_dims, group, stride, dilation,      \
                            begin, rt->arena[RT_SCRATCH]},                                                             \
                           [&] {                                                                                       \
                               return rt_conv_transpose(rt, y, x, w, ndim, x_dims, w_dims, y_dims, group, stride,      \
                                                        dilation, begin);                                              \
                           });                                                                                         \
    }                                                                                                                  \
    RT_ON_CALL int rt_conv_weight_grad_##s(                                                                            \
        struct rt *rt, T *dw, const T *x, const T *dy, int ndim, const rt_dims &x_dims, const rt_dims &w_dims,         \
        const rt_dims &y_dims, int64_t group, const rt_dims &stride, const rt_dims &dilation, const rt_dims &begin) {  \
        return rt_convolve(rt,                                                                                         \
                           {RT_CONVOLVE_WEIGHTS, id, ndim, dw, x, dy, x_dims, w_dims, y_dims, group, stride, dilation, \
                            begin, rt->arena[RT_SCRATCH]},                                                             \
                           [&] {                                                                                       \
                               return rt_conv_weight_grad(rt, dw, x, dy, ndim, x_dims, w_dims, y_dims, group, stride,  \
                                                          dilation, begin);                                            \
                           });                                                                                         \
    }                                                                                                                  \
    RT_ON_CALL int rt_max_pool_##s(struct rt *rt, T *y, const T *x, int ndim, const rt_dims &x_dims,                   \
                                   const rt_dims &y_dims, const rt_dims &window, const rt_dims &stride,                \
                                   const rt_dims &dilation, const rt_dims &begin) {                                    \
        return rt_max_pool(rt, y, x, ndim, x_dims, y_dims, window, stride, dilation, begin);                           \
    }                                                                                                                  \
    RT_ON_CALL int rt_max_pool_places_##s(struct rt *rt, int64_t *y, const T *x, int ndim, const rt_dims &x_dims,      \
                                          const rt_dims &y_dims, const rt_dims &window, const rt_dims &stride,         \
                                          const rt_dims &dilation, const rt_dims &begin) {                             \
        return rt_max_pool_places(rt, y, x, ndim, x_dims, y_dims, window, stride, dilation, begin);                    \
    }                                                                                                                  \
    RT_ON_CALL int rt_max_pool_grad_##s(struct rt *rt, T *dx, const T *x, const T *dy, int ndim,                       \
                                        const rt_dims &x_dims, const rt_dims &y_dims, const rt_dims &window,           \
                                        const rt_dims &stride, const rt_dims &dilation, const rt_dims &begin) {        \
        return rt_max_pool_grad(rt, dx, x, dy, ndim, x_dims, y_dims, window, stride, dilation, begin);                 \
    }                                                                                                                  \
    RT_ON_CALL int rt_average_pool_##s(struct rt *rt, T *y, const T *x, int ndim, const rt_dims &x_dims,               \
                                       const rt_dims &y_dims, const rt_dims &window, const rt_dims &stride,            \
                                       const rt_dims &dilation, const rt_dims &begin, const rt_dims &end,              \
                                       int count_include_pad) {                                                        \
        return rt_average_pool(rt, y, x, ndim, x_dims, y_dims, window, stride, dilation, begin, end,                   \
                               count_include_pad);                                                                     \
    }

RT_CUDA_WINDOW(float, f32, RT_F32)
RT_CUDA_WINDOW(double, f64, RT_F64)

#endif
