/* Overlap of boxes, for C and CUDA: ONNX NonMaxSuppression-11. */
#ifndef RT_KERNELS_C_OVERLAP_H
#define RT_KERNELS_C_OVERLAP_H

#include "math.h"

/* Whether intersection / union of two boxes is larger than `most`: corners y1 x1 y2 x2 in any order or, with `center`,
 * x y width height. Boxes without area overlap with none. */
#define RT_DEFINE_OVERLAP(T, s)                                                                                        \
    struct rt_box_##s {                                                                                                \
        T low[2], high[2];                                                                                             \
    };                                                                                                                 \
    RT_INLINE struct rt_box_##s rt_box_of_##s(const T *x, int center) {                                                \
        struct rt_box_##s box;                                                                                         \
        for (int d = 0; d < 2; d++) {                                                                                  \
            const T half = x[2 + d] / 2;                                                                               \
            box.low[d] = center ? x[d] - half : rt_min_##s(x[d], x[2 + d]);                                            \
            box.high[d] = center ? x[d] + half : rt_max_##s(x[d], x[2 + d]);                                           \
        }                                                                                                              \
        return box;                                                                                                    \
    }                                                                                                                  \
    RT_INLINE T rt_area_##s(const struct rt_box_##s *box) {                                                            \
        const T a = box->high[0] - box->low[0], b = box->high[1] - box->low[1];                                        \
        return a > 0 && b > 0 ? a * b : 0;                                                                             \
    }                                                                                                                  \
    RT_INLINE int rt_overlap_##s(const T *x, const T *y, int center, T most) {                                         \
        const struct rt_box_##s a = rt_box_of_##s(x, center), b = rt_box_of_##s(y, center);                            \
        struct rt_box_##s both;                                                                                        \
        for (int d = 0; d < 2; d++) {                                                                                  \
            both.low[d] = rt_max_##s(a.low[d], b.low[d]);                                                              \
            both.high[d] = rt_min_##s(a.high[d], b.high[d]);                                                           \
        }                                                                                                              \
        const T common = rt_area_##s(&both), all = rt_area_##s(&a) + rt_area_##s(&b) - common;                         \
        return common > 0 && all > 0 && common / all > most;                                                           \
    }

RT_FLOATS(RT_DEFINE_OVERLAP)

#endif
