/* Non-maximum suppression; the manual is kernels/c/kernels.h. A block per class: its threads compare a candidate with
 * those that are kept. */
#ifndef RT_CUDA_SUPPRESS_CUH
#define RT_CUDA_SUPPRESS_CUH

#include "../kernels/c/overlap.h"
#include "launch.cuh"

static inline __device__ bool rt_overlap(const float *x, const float *y, int center, float most) {
    return rt_overlap_f32(x, y, center, most);
}
static inline __device__ bool rt_overlap(const double *x, const double *y, int center, double most) {
    return rt_overlap_f64(x, y, center, most);
}

template <class T>
RT_FAMILY int rt_suppress(struct rt *rt, uint8_t *y, const T *boxes, const int64_t *candidates, const T *most,
                          int64_t n, int64_t c, int64_t b, int64_t k, int center) {
    return rt_rows(rt, n * c, [=] __device__(int64_t row) {
        const int64_t *own = candidates + row * k;
        const T *box = boxes + row / c * b * 4;
        uint8_t *keep = y + row * k;
        for (int64_t i = 0; i < k; i++) {
            int drop = own[i] < 0 || own[i] >= b;
            if (!drop) {
                RT_EACH(j, i) drop |= keep[j] && rt_overlap(box + 4 * own[i], box + 4 * own[j], center, *most);
            }
            drop = __syncthreads_or(drop);
            if (threadIdx.x == 0) keep[i] = !drop;
            __syncthreads();
        }
    });
}

#define RT_CUDA_SUPPRESS(T, s) RT_NAME(rt_suppress_##s, rt_suppress<T>)
RT_FLOATS(RT_CUDA_SUPPRESS)

#endif
