/* The elements that a sample is interpolated from, for C and CUDA: ONNX GridSample-22, RoiAlign-22, MaxRoiPool-22. */
#ifndef RT_KERNELS_C_TAPS_H
#define RT_KERNELS_C_TAPS_H

#include "../../base/shape/sampling.h"
#include "math.h"

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
    RT_INLINE struct rt_taps_##s rt_taps_of_##s(enum rt_sample_mode mode, enum rt_sample_padding padding, int align,   \
                                                int64_t size, T x) {                                                   \
        struct rt_taps_##s taps = {1, {0}, {1}, {0}};                                                                  \
        T turn = 1;                                                                                                    \
        if (mode == RT_SAMPLE_CUBIC) {                                                                                 \
            const T first = floor_of(x) - 1;                                                                           \
            taps.n = 4;                                                                                                \
            for (int i = 0; i < 4; i++) {                                                                              \
                const T at = first + (T)i;                                                                             \
                taps.index[i] = rt_tap_at_##s(size, rt_inside_##s(padding, align, size, at, &turn));                   \
                taps.weight[i] = rt_keys_##s(x - at);                                                                  \
                taps.slope[i] = rt_keys_slope_##s(x - at);                                                             \
            }                                                                                                          \
            return taps;                                                                                               \
        }                                                                                                              \
        x = rt_inside_##s(padding, align, size, x, &turn);                                                             \
        if (mode == RT_SAMPLE_NEAREST) {                                                                               \
            taps.index[0] = rt_tap_at_##s(size, round_of(x));                                                          \
            return taps;                                                                                               \
        }                                                                                                              \
        const T first = floor_of(x);                                                                                   \
        taps.n = 2;                                                                                                    \
        for (int i = 0; i < 2; i++) {                                                                                  \
            taps.index[i] = rt_tap_at_##s(size, first + (T)i);                                                         \
            taps.weight[i] = i ? x - first : first + 1 - x;                                                            \
            taps.slope[i] = i ? turn : -turn;                                                                          \
        }                                                                                                              \
        return taps;                                                                                                   \
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
    }

RT_DEFINE_TAPS(float, f32, floorf, rt_round_f32)
RT_DEFINE_TAPS(double, f64, floor, rt_round_f64)

#endif
