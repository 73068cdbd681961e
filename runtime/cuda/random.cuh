/* Random numbers as a function of an element's index: Note [Masks] in kernels/c/random.c. */
#ifndef RT_CUDA_RANDOM_CUH
#define RT_CUDA_RANDOM_CUH

#include "../base/number/philox.h"
#include "move.cuh"

/* The part of a tensor of extents `whole` that begins at `starts`. */
struct rt_region {
    int ndim;
    rt_dims dims, starts, whole;
};

/* The index in the complete tensor of the part's element p. */
static inline __device__ uint64_t rt_place_of(const rt_region &region, int64_t p) {
    uint64_t place = 0, stride = 1;
    for (int d = region.ndim - 1; d >= 0; d--) {
        place += (uint64_t)(rt_take(&p, region.dims[d]) + region.starts[d]) * stride;
        stride *= (uint64_t)region.whole[d];
    }
    return place;
}

template <class T>
RT_FAMILY int rt_uniform(struct rt *rt, T *y, const double *step, const double *micro, const rt_region &region,
                         int64_t key) {
    const int spare = sizeof(T) == sizeof(float) ? 9 : 0; /* bits of a word that are not used */
    const T part = (T)(1.0 / (double)(UINT64_C(1) << (32 - spare)));
    return rt_points(rt, rt_count(region.dims, 0, region.ndim), [=] __device__(int64_t p) {
        const uint64_t place = rt_place_of(region, p), stream = (uint64_t)*step << 32 | (uint32_t)*micro;
        const struct rt_philox block = rt_philox_at(place / 4, stream, (uint64_t)key);
        y[p] = ((T)(block.word[place % 4] >> spare) + (T)0.5) * part;
    });
}

template <class T>
RT_FAMILY int rt_dropout(struct rt *rt, T *y, const T *x, const double *training, const double *step,
                         const double *micro, const rt_region &region, double ratio, int64_t key) {
    const uint64_t least = (uint64_t)(ratio * 4294967296.0); /* a word below drops its element */
    const T scale = (T)(1 / (1 - ratio));
    return rt_points(rt, rt_count(region.dims, 0, region.ndim), [=] __device__(int64_t p) {
        if (*training == 0 || ratio == 0) {
            y[p] = x[p];
            return;
        }
        const uint64_t place = rt_place_of(region, p), stream = (uint64_t)*step << 32 | (uint32_t)*micro;
        const struct rt_philox block = rt_philox_at(place / 4, stream, (uint64_t)key);
        y[p] = x[p] * (block.word[place % 4] < least ? (T)0 : scale);
    });
}

#define RT_CUDA_RANDOM(T, s)                                                                                           \
    RT_NAME(rt_dropout_##s, rt_dropout<T>)                                                                             \
    RT_NAME(rt_uniform_##s, rt_uniform<T>)
RT_FLOATS(RT_CUDA_RANDOM)

#endif
