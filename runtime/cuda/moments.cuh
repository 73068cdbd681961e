/* Moments of an optimizer in 8 bits; the manual is kernels/c/kernels.h. */
#ifndef RT_CUDA_MOMENTS_CUH
#define RT_CUDA_MOMENTS_CUH

#include "../base/number/moments.h"
#include "launch.cuh"

template <class T>
static inline int rt_dequantize_to(struct rt *rt, T *y, const uint8_t *codes, const float *scales, int64_t count,
                                   int has_sign) {
    return rt_points(rt, count, [=] __device__(int64_t i) {
        y[i] = (T)rt_moment_value(codes[i], has_sign) * (T)scales[i / RT_MOMENT_BLOCK];
    });
}

RT_ON_CALL int rt_dequantize_blocks(struct rt *rt, void *y, const uint8_t *codes, const float *scales,
                                    enum rt_dtype dtype, int64_t count, int has_sign) {
    return dtype == RT_F64 ? rt_dequantize_to(rt, (double *)y, codes, scales, count, has_sign)
                           : rt_dequantize_to(rt, (float *)y, codes, scales, count, has_sign);
}

static inline __device__ uint8_t rt_moment_code_of(float x, const float *table) {
    return rt_moment_code_f32(x, table);
}
static inline __device__ uint8_t rt_moment_code_of(double x, const float *table) {
    return rt_moment_code_f64(x, table);
}

/* NaN is the largest. */
struct rt_magnitude_of {
    template <class T> __host__ __device__ T operator()(T a, T b) const { return b > a || b != b ? b : a; }
};

/* A thread block for each block of elements; its threads compute the table together. */
template <class T>
static inline int rt_quantize_from(struct rt *rt, uint8_t *codes, float *scales, const uint8_t *old_codes,
                                   const float *old_scales, const T *x, const uint8_t *keep, int64_t count,
                                   int has_sign) {
    return rt_rows(rt, count / RT_MOMENT_BLOCK, [=] __device__(int64_t block) {
        __shared__ float table[256];
        const int64_t first = block * RT_MOMENT_BLOCK;
        const bool keeps = !keep || *keep;
        T most = (T)1e-12;
        RT_EACH(i, 256) table[i] = rt_moment_value((int)i, has_sign);
        RT_EACH(i, RT_MOMENT_BLOCK) {
            const T value = x[first + i];
            most = rt_magnitude_of()(most, value < 0 ? -value : value);
        }
        most = rt_block_fold(most, rt_magnitude_of());
        RT_EACH(i, RT_MOMENT_BLOCK)
        codes[first + i] = keeps ? rt_moment_code_of(x[first + i] / most, table) : old_codes[first + i];
        if (threadIdx.x == 0) scales[block] = keeps ? (float)most : old_scales[block];
    });
}

RT_ON_CALL int rt_quantize_blocks(struct rt *rt, uint8_t *codes, float *scales, const uint8_t *old_codes,
                                  const float *old_scales, const void *x, enum rt_dtype dtype, const uint8_t *keep,
                                  int64_t count, int has_sign) {
    return dtype == RT_F64
               ? rt_quantize_from(rt, codes, scales, old_codes, old_scales, (const double *)x, keep, count, has_sign)
               : rt_quantize_from(rt, codes, scales, old_codes, old_scales, (const float *)x, keep, count, has_sign);
}

#endif
