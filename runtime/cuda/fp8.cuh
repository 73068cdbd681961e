/* 8-bit floats; the manual is kernels/c/kernels.h. Products are the library's (library.cuh); with --kernels reference,
 * a kernel with one thread per element. */
#ifndef RT_CUDA_FP8_CUH
#define RT_CUDA_FP8_CUH

#include "product.cuh"

/* The instruction rounds as fp8.h does, but makes infinity the largest number. */
static inline __device__ uint8_t rt_fp8_code(float value, enum rt_fp8 format) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if ((rt_f32_bits(value) & 0x7fffffff) < 0x7f800000) {
        uint16_t pair;
        if (format == RT_FP8_E4M3)
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
        else
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
        return (uint8_t)pair;
    }
#endif
    return format == RT_FP8_E4M3 ? rt_f32_to_e4m3(value) : rt_f32_to_e5m2(value);
}
static inline __device__ float rt_fp8_value(uint8_t code, enum rt_fp8 format) {
    return format == RT_FP8_E4M3 ? rt_e4m3_to_f32(code) : rt_e5m2_to_f32(code);
}

/* Maximum of magnitudes as bit patterns, whose order is the same; NaN is the largest. */
struct rt_largest_of {
    __host__ __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

/* A thread block processes RT_QUANTIZE_STRETCH elements, N at a time, and combines its largest magnitude with those of
 * other blocks atomically; the order does not matter for a maximum. */
static constexpr int64_t RT_QUANTIZE_STRETCH = 8192;

template <int N, class E>
static inline int rt_quantize_by(struct rt *rt, uint8_t *q, float *most, const typename E::type *x, const float *scale,
                                 int64_t count, enum rt_fp8 format) {
    rt_points(rt, 1, [=] __device__(int64_t) { *most = 0; });
    return rt_rows(rt, (count + RT_QUANTIZE_STRETCH - 1) / RT_QUANTIZE_STRETCH, [=] __device__(int64_t row) {
        const int64_t first = row * RT_QUANTIZE_STRETCH;
        const int64_t length = count - first < RT_QUANTIZE_STRETCH ? count - first : RT_QUANTIZE_STRETCH;
        const float factor = *scale;
        uint32_t largest = 0;
        RT_EACH_VECTOR(i, length, N) {
            const auto from = rt_get_vector<N>(x + first + i);
            rt_vector<uint8_t, N> to;
#pragma unroll
            for (int lane = 0; lane < N; lane++) {
                const float value = (float)E::load(from.at[lane]);
                const uint32_t magnitude = rt_f32_bits(value) & 0x7fffffff;
                largest = magnitude > largest ? magnitude : largest;
                to.at[lane] = rt_fp8_code(rt_fp8_scaled(value, factor), format);
            }
            rt_put_vector(q + first + i, to);
        }
        largest = rt_block_fold(largest, rt_largest_of());
        if (threadIdx.x == 0) atomicMax((unsigned *)most, largest);
    });
}

template <class E, class T = typename E::type>
RT_FAMILY int rt_quantize(struct rt *rt, uint8_t *q, float *most, const T *x, const float *scale, int64_t m, int64_t c,
                          enum rt_fp8 format) {
    const bool wide = rt_is_wide<T>(rt, m * c, {x, q});
    return (wide ? rt_quantize_by<RT_WIDTH(T), E> : rt_quantize_by<1, E>)(rt, q, most, x, scale, m * c, format);
}

#define RT_CUDA_QUANTIZE(T, s) RT_NAME(rt_quantize_##s, rt_quantize<rt_##s>)
RT_FLOATS(RT_CUDA_QUANTIZE)
RT_HALVES(RT_CUDA_QUANTIZE)

template <class E> static inline int rt_plain_scaled(struct rt *rt, const rt_scaled_product &p) {
    typename E::type *y = (typename E::type *)p.y;
    return rt_points(rt, p.m * p.n, [=] __device__(int64_t at) {
        const int64_t i = at / p.n, j = at % p.n;
        float sum = 0;
        for (int64_t q = 0; q < p.k; q++)
            sum += rt_fp8_value(p.a[i * p.k + q], p.format_a) * rt_fp8_value(p.b[j * p.k + q], p.format_b);
        y[at] = E::store(sum * (*p.unscale_a * *p.unscale_b));
    });
}

/* A product that the library does not support is an error: the plain kernel, which is for --kernels reference and
 * machines without the library, would be slower than the 16-bit product that 8-bit floats replace. */
RT_ON_CALL int rt_scaled_matmul(struct rt *rt, void *y, enum rt_dtype dtype, const uint8_t *a, const uint8_t *b,
                                const float *unscale_a, const float *unscale_b, int64_t m, int64_t k, int64_t n,
                                enum rt_fp8 format_a, enum rt_fp8 format_b, int fast) {
    const rt_scaled_product p = {
        dtype, y, a, b, unscale_a, unscale_b, m, k, n, format_a, format_b, fast, rt->arena[RT_SCRATCH]};
    const bool library = rt_cuda_of(rt)->scaled_product && !rt->reference_kernels;
    rt_take_note(rt, NULL, false, p);
    if (library && m * k * n > 0) return rt_cuda_of(rt)->scaled_product(rt, &p);
    return dtype == RT_F32    ? rt_plain_scaled<rt_f32>(rt, p)
           : dtype == RT_BF16 ? rt_plain_scaled<rt_bf16>(rt, p)
                              : rt_plain_scaled<rt_fp16>(rt, p);
}

#endif
