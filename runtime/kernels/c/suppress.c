#include "kernels.h"

#include "internal.h"
#include "overlap.h"

#define RT_DEFINE_SUPPRESS(T, s)                                                                                       \
    static int is_kept_##s(const uint8_t *y, const T *boxes, const int64_t *candidates, int64_t i, int64_t b, T most,  \
                           int center) {                                                                               \
        const int64_t own = candidates[i];                                                                             \
        if (own < 0 || own >= b) return 0;                                                                             \
        for (int64_t j = 0; j < i; j++)                                                                                \
            if (y[j] && rt_overlap_##s(boxes + 4 * own, boxes + 4 * candidates[j], center, most)) return 0;            \
        return 1;                                                                                                      \
    }                                                                                                                  \
    void rt_suppress_##s(uint8_t *y, const T *boxes, const int64_t *candidates, const T *most, int64_t n, int64_t c,   \
                         int64_t b, int64_t k, int center) {                                                           \
        _Pragma(                                                                                                       \
            "omp parallel for schedule(dynamic) if (n * c * k >= PARALLEL_WORK / 32)") for (int64_t row = 0;           \
                                                                                            row < n * c;               \
                                                                                            row++) for (int64_t i = 0; \
                                                                                                        i < k; i++)    \
            y[row * k + i] =                                                                                           \
                (uint8_t)is_kept_##s(y + row * k, boxes + row / c * b * 4, candidates + row * k, i, b, *most, center); \
    }

RT_FLOATS(RT_DEFINE_SUPPRESS)
