/* Counts of n-grams; the manual is kernels/c/kernels.h. A thread per row and n-gram. */
#ifndef RT_CUDA_NGRAMS_CUH
#define RT_CUDA_NGRAMS_CUH

#include "../kernels/c/ngrams.h"
#include "launch.cuh"

RT_ON_CALL int rt_count_ngrams(struct rt *rt, int64_t *y, const int64_t *x, const int64_t *grams, int64_t n, int64_t c,
                               int64_t g, int64_t l, int64_t distances) {
    return rt_points(rt, n * g, [=] __device__(int64_t i) {
        y[i] = rt_ngrams_in(x + i / g * c, grams + i % g * l, c, l, distances);
    });
}

#endif
