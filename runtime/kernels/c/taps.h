/* The elements that a sample is interpolated from, for C and CUDA: ONNX GridSample-22, RoiAlign-22, MaxRoiPool-22. */
#ifndef RT_KERNELS_C_TAPS_H
#define RT_KERNELS_C_TAPS_H

#include "../../base/shape/sampling.h"
#include "math.h"

/* An image that is sampled: the extents of three dimensions, the first 1 where there are fewer. */
struct rt_image {
    int64_t size[RT_SAMPLE_DIMS], elements;
    int ndim;
    enum rt_sample_mode mode;
    enum rt_sample_padding padding;
    int align;
};

RT_INLINE struct rt_image rt_image_of(int ndim, const int64_t *shape, enum rt_sample_mode mode,
                                      enum rt_sample_padding padding, int align) {
    struct rt_image image = {{1, 1, 1}, 1, ndim, mode, padding, align};
    for (int d = 0; d < ndim; d++) {
        image.size[RT_SAMPLE_DIMS - ndim + d] = shape[2 + d];
        image.elements *= shape[2 + d];
    }
    return image;
}

/* The elements of a bin of MaxRoiPool along one dimension. */
struct rt_roi_bin {
    int64_t first, end;
};

RT_INLINE int64_t rt_roi_clipped(double at, int64_t size) {
    return at < 0 ? 0 : at > (double)size ? size : (int64_t)at;
}

RT_INLINE struct rt_roi_bin rt_roi_bin_of(double from, double to, double scale, int64_t bin, int64_t bins,
                                          int64_t size) {
    const double most = 1e15; /* any coordinate beyond is as far outside */
    const double start = round(fmax(-most, fmin(most, from * scale))), end = round(fmax(-most, fmin(most, to * scale)));
    const double extent = fmax(end - start + 1, 1.0) / (double)bins;
    struct rt_roi_bin of = {rt_roi_clipped(floor((double)bin * extent) + start, size),
                            rt_roi_clipped(ceil((double)(bin + 1) * extent) + start, size)};
    return of;
}

/* In one dimension: element index[i], or -1 for one that counts as 0, has weight[i]; slope[i] is the derivative of the
 * weight by the coordinate. */
#define RT_DEFINE_TAPS(T, s, floor_of, round_of)                                                                       \
    struct rt_taps_##s {                                                                                               \
        int n;                                                                                                         \
        int64_t index[4];                                                                                              \
        T weight[4], slope[4];                                                                                         \
    };                                                                                                                 \
    /* x reflected into [low, low + span]; *turn is -1 if it runs backward there. */                                   \
    RT_INLINE T rt_reflected_##s(T x, T low, T span, T *turn) {                                                        \
        const T from = rt_abs_##s(x - low), times = span > 0 ? floor_of(from / span) : 0;                              \
        const T rest = from - times * span, side = x < low ? -1 : 1;                                                   \
        const int odd = times - 2 * floor_of(times / 2) > 0;                                                           \
        *turn = odd ? -side : side;                                                                                    \
        return span > 0 ? (odd ? span - rest : rest) + low : 0;                                                        \
    }                                                                                                                  \
    /* A coordinate moved into the image as the padding says; *turn: the derivative of that. */                        \
    RT_INLINE T rt_inside_##s(enum rt_sample_padding padding, int align, int64_t size, T x, T *turn) {                 \
        const T last = (T)(size - 1);                                                                                  \
        *turn = 1;                                                                                                     \
        if (padding == RT_SAMPLE_ZEROS) return x;                                                                      \
        if (padding == RT_SAMPLE_REFLECTION)                                                                           \
            x = rt_reflected_##s(x, align ? 0 : (T)-0.5, align ? last : last + 1, turn);                               \
        if (!(x > 0)) *turn = 0;                                                                                       \
        if (!(x < last)) *turn = 0;                                                                                    \
        return !(x > 0) ? 0 : x < last ? x : last;                                                                     \
    }                                                                                                                  \
    RT_INLINE int64_t rt_tap_at_##s(int64_t size, T at) {                                                              \
        return at >= 0 && at <= (T)(size - 1) ? (int64_t)at : -1;                                                      \
    }                                                                                                                  \
    /* Keys' cubic convolution with parameter -0.75 at distance t, and its derivative. */                              \
    RT_INLINE T rt_keys_##s(T t) {                                                                                     \
        const T a = (T)-0.75, d = rt_abs_##s(t);                                                                       \
        return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0;           \
    }                                                                                                                  \
    RT_INLINE T rt_keys_slope_##s(T t) {                                                                               \
        const T a = (T)-0.75, d = rt_abs_##s(t);                                                                       \
        const T slope = d <= 1 ? (3 * (a + 2) * d - 2 * (a + 3)) * d : d < 2 ? ((3 * d - 10) * d + 8) * a : 0;         \
        return t < 0 ? -slope : slope;                                                                                 \
    }                                                                                                                  \
    /* In place: a copy would read at once what was written in parts. */                                               \
    RT_INLINE void rt_find_taps_##s(struct rt_taps_##s *taps, enum rt_sample_mode mode,                                \
                                    enum rt_sample_padding padding, int align, int64_t size, T x) {                    \
        taps->n = 1, taps->index[0] = 0, taps->weight[0] = 1, taps->slope[0] = 0;                                      \
        T turn = 1;                                                                                                    \
        if (mode == RT_SAMPLE_CUBIC) {                                                                                 \
            const T first = floor_of(x) - 1;                                                                           \
            taps->n = 4;                                                                                               \
            for (int i = 0; i < 4; i++) {                                                                              \
                const T at = first + (T)i;                                                                             \
                taps->index[i] = rt_tap_at_##s(size, rt_inside_##s(padding, align, size, at, &turn));                  \
                taps->weight[i] = rt_keys_##s(x - at);                                                                 \
                taps->slope[i] = rt_keys_slope_##s(x - at);                                                            \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        x = rt_inside_##s(padding, align, size, x, &turn);                                                             \
        if (mode == RT_SAMPLE_NEAREST) {                                                                               \
            taps->index[0] = rt_tap_at_##s(size, round_of(x));                                                         \
            return;                                                                                                    \
        }                                                                                                              \
        const T first = floor_of(x);                                                                                   \
        taps->n = 2;                                                                                                   \
        for (int i = 0; i < 2; i++) {                                                                                  \
            taps->index[i] = rt_tap_at_##s(size, first + (T)i);                                                        \
            taps->weight[i] = i ? x - first : first + 1 - x;                                                           \
            taps->slope[i] = i ? turn : -turn;                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    /* A coordinate of RoiAlign: outside of [-1, size] nothing is sampled (n = 0), else it is moved into the image. */ \
    RT_INLINE struct rt_taps_##s rt_roi_taps_##s(int64_t size, T x) {                                                  \
        struct rt_taps_##s taps = {0, {0}, {0}, {0}};                                                                  \
        if (!(x >= -1 && x <= (T)size)) return taps;                                                                   \
        T at = x > 0 ? x : 0, first = floor_of(at);                                                                    \
        if (first >= (T)(size - 1)) at = first = (T)(size - 1);                                                        \
        taps.n = 2;                                                                                                    \
        taps.index[0] = (int64_t)first;                                                                                \
        taps.index[1] = (int64_t)first + 1 < size ? (int64_t)first + 1 : (int64_t)first;                               \
        taps.weight[0] = 1 - (at - first);                                                                             \
        taps.weight[1] = at - first;                                                                                   \
        return taps;                                                                                                   \
    }                                                                                                                  \
    /* The bins of a region along one dimension; without shift it has an extent of at least 1. */                      \
    struct rt_bins_##s {                                                                                               \
        T start, size;                                                                                                 \
        int64_t samples;                                                                                               \
    };                                                                                                                 \
    RT_INLINE struct rt_bins_##s rt_bins_of_##s(const struct rt_roi *roi, T from, T to, int64_t bins) {                \
        const T start = from * (T)roi->scale - (T)roi->shift;                                                          \
        T extent = to * (T)roi->scale - (T)roi->shift - start;                                                         \
        if (roi->shift == 0) extent = extent > 1 ? extent : 1;                                                         \
        const T size = extent / (T)bins, most = -floor_of(-size);                                                      \
        const int64_t adaptive = most < 65536 ? (int64_t)most : 65536;                                                 \
        struct rt_bins_##s result = {start, size, roi->samples > 0 ? roi->samples : adaptive};                         \
        return result;                                                                                                 \
    }                                                                                                                  \
    /* The coordinate of sample `i` of a bin. */                                                                       \
    RT_INLINE T rt_sample_at_##s(const struct rt_bins_##s *bins, int64_t bin, int64_t i) {                             \
        return bins->start + ((T)bin + ((T)i + (T)0.5) / (T)bins->samples) * bins->size;                               \
    }

RT_DEFINE_TAPS(float, f32, floorf, rt_round_f32)
RT_DEFINE_TAPS(double, f64, floor, rt_round_f64)

/* The samples of a region's bins: of each, the places of its four elements in the plane, -1 outside, and weights. */
#define RT_DEFINE_SAMPLES(T, s)                                                                                        \
    struct rt_samples_##s {                                                                                            \
        const struct rt_roi *roi;                                                                                      \
        const T *corner;                                                                                               \
        struct rt_bins_##s down, across;                                                                               \
        int64_t row, column, i, j; /* of the bin, of the sample */                                                     \
        struct rt_taps_##s v;                                                                                          \
        int64_t place[4];                                                                                              \
        T weight[4];                                                                                                   \
    };                                                                                                                 \
    RT_INLINE struct rt_samples_##s rt_samples_of_##s(const struct rt_roi *roi, const T *corner) {                     \
        struct rt_samples_##s samples;                                                                                 \
        samples.roi = roi;                                                                                             \
        samples.corner = corner;                                                                                       \
        samples.down = rt_bins_of_##s(roi, corner[1], corner[3], roi->rows);                                           \
        samples.across = rt_bins_of_##s(roi, corner[0], corner[2], roi->columns);                                      \
        return samples;                                                                                                \
    }                                                                                                                  \
    RT_INLINE void rt_begin_bin_##s(struct rt_samples_##s *at, int64_t bin) {                                          \
        at->row = bin / at->roi->columns;                                                                              \
        at->column = bin % at->roi->columns;                                                                           \
        at->i = at->across.samples > 0 ? -1 : at->down.samples;                                                        \
        at->j = at->across.samples;                                                                                    \
    }                                                                                                                  \
    /* The next sample of the bin, row by row; 0: there is none. */                                                    \
    RT_INLINE int rt_next_sample_##s(struct rt_samples_##s *at) {                                                      \
        if (++at->j >= at->across.samples) {                                                                           \
            if (++at->i >= at->down.samples) return 0;                                                                 \
            at->j = 0;                                                                                                 \
            at->v = rt_roi_taps_##s(at->roi->h, rt_sample_at_##s(&at->down, at->row, at->i));                          \
        }                                                                                                              \
        const struct rt_taps_##s u = rt_roi_taps_##s(at->roi->w, rt_sample_at_##s(&at->across, at->column, at->j));    \
        for (int k = 0; k < 4; k++) {                                                                                  \
            at->place[k] = at->v.n && u.n ? at->v.index[k / 2] * at->roi->w + u.index[k % 2] : -1;                     \
            at->weight[k] = at->v.weight[k / 2] * u.weight[k % 2];                                                     \
        }                                                                                                              \
        return 1;                                                                                                      \
    }                                                                                                                  \
    /* The mean of a bin's samples. */                                                                                 \
    RT_INLINE T rt_mean_of_bin_##s(const T *plane, struct rt_samples_##s *at) {                                        \
        const int64_t count = at->down.samples * at->across.samples;                                                   \
        T sum = 0;                                                                                                     \
        while (rt_next_sample_##s(at))                                                                                 \
            for (int k = 0; k < 4; k++) sum += at->place[k] < 0 ? 0 : plane[at->place[k]] * at->weight[k];             \
        return sum / (T)(count > 0 ? count : 1);                                                                       \
    }                                                                                                                  \
    /* The largest weighted element of a bin's samples, its place in the plane and its weight; 0 if there are no \
     * samples. *place -1: outside, or there is none. */     \
    RT_INLINE T rt_largest_sample_##s(const T *plane, struct rt_samples_##s *at, int64_t *place, T *weight) {          \
        T most = -(T)INFINITY;                                                                                         \
        while (rt_next_sample_##s(at))                                                                                 \
            for (int k = 0; k < 4; k++) {                                                                              \
                const T value = at->place[k] < 0 ? 0 : plane[at->place[k]] * at->weight[k];                            \
                if (!(value > most || value != value)) continue;                                                       \
                most = value;                                                                                          \
                *place = at->place[k];                                                                                 \
                *weight = at->weight[k];                                                                               \
            }                                                                                                          \
        return at->down.samples * at->across.samples > 0 ? most : 0;                                                   \
    }                                                                                                                  \
    /* The same of the elements of a bin of MaxRoiPool. */                                                             \
    RT_INLINE T rt_largest_element_##s(const T *plane, const struct rt_samples_##s *at, int64_t *place) {              \
        const struct rt_roi *roi = at->roi;                                                                            \
        const struct rt_roi_bin down =                                                                                 \
            rt_roi_bin_of((double)at->corner[1], (double)at->corner[3], roi->scale, at->row, roi->rows, roi->h);       \
        const struct rt_roi_bin across =                                                                               \
            rt_roi_bin_of((double)at->corner[0], (double)at->corner[2], roi->scale, at->column, roi->columns, roi->w); \
        T most = -(T)INFINITY;                                                                                         \
        for (int64_t i = down.first; i < down.end; i++)                                                                \
            for (int64_t j = across.first; j < across.end; j++) {                                                      \
                const T value = plane[i * roi->w + j];                                                                 \
                const int takes = value > most || value != value;                                                      \
                most = takes ? value : most;                                                                           \
                *place = takes ? i * roi->w + j : *place;                                                              \
            }                                                                                                          \
        return down.first < down.end && across.first < across.end ? most : 0;                                          \
    }                                                                                                                  \
    RT_INLINE T rt_pool_bin_##s(const T *plane, struct rt_samples_##s *at, int64_t bin) {                              \
        int64_t place = -1;                                                                                            \
        T weight;                                                                                                      \
        rt_begin_bin_##s(at, bin);                                                                                     \
        if (at->roi->mode == RT_ROI_BINS) return rt_largest_element_##s(plane, at, &place);                            \
        return at->roi->mode == RT_ROI_MAX ? rt_largest_sample_##s(plane, at, &place, &weight)                         \
                                           : rt_mean_of_bin_##s(plane, at);                                            \
    }                                                                                                                  \
    /* Adds the gradient of a bin to those elements of x(h,w) that it is of. */                                        \
    RT_INLINE void rt_spread_bin_##s(T *dx, const T *x, T gradient, struct rt_samples_##s *at, int64_t bin) {          \
        const int64_t count = at->down.samples * at->across.samples;                                                   \
        const T mean = count > 0 ? gradient / (T)count : 0;                                                            \
        int64_t place = -1;                                                                                            \
        T weight = 1;                                                                                                  \
        rt_begin_bin_##s(at, bin);                                                                                     \
        if (at->roi->mode == RT_ROI_BINS) rt_largest_element_##s(x, at, &place);                                       \
        if (at->roi->mode == RT_ROI_MAX) rt_largest_sample_##s(x, at, &place, &weight);                                \
        if (place >= 0) dx[place] += gradient * weight;                                                                \
        while (at->roi->mode == RT_ROI_AVG && rt_next_sample_##s(at))                                                  \
            for (int k = 0; k < 4; k++)                                                                                \
                if (at->place[k] >= 0) dx[at->place[k]] += mean * at->weight[k];                                       \
    }

RT_FLOATS(RT_DEFINE_SAMPLES)

#endif
