/* Quantised tensors; the manual is kernels/c/kernels.h. One thread per element of the result: weights are dequantised
 * where they are read. */
#ifndef RT_CUDA_QUANTISED_CUH
#define RT_CUDA_QUANTISED_CUH

#include "window.cuh"

/* Element `at` of codes of `bits` bits: of packed codes bits [at * bits, + bits). */
static inline __device__ uint8_t rt_packed_code(const uint8_t *x, int64_t at, int bits) {
    const int64_t first = at * bits;
    const int shift = (int)(first % 8);
    unsigned code = (unsigned)x[first / 8] >> shift;
    if (shift + bits > 8) code |= (unsigned)x[first / 8 + 1] << (8 - shift);
    return (uint8_t)(code & ((1u << bits) - 1));
}

/* The number that a code of that type stands for. */
static inline __device__ float rt_code_value_of(uint8_t code, enum rt_dtype dtype) {
    switch (dtype) {
    case RT_I8: return (float)(int8_t)code;
    case RT_I4: return (float)rt_code_i4(code);
    case RT_I2: return (float)rt_code_i2(code);
    case RT_E4M3FN: return rt_code_e4m3fn_to_f32(code);
    case RT_E4M3FNUZ: return rt_code_e4m3fnuz_to_f32(code);
    case RT_E5M2: return rt_code_e5m2_to_f32(code);
    case RT_E5M2FNUZ: return rt_code_e5m2fnuz_to_f32(code);
    case RT_E8M0: return rt_code_e8m0_to_f32(code);
    case RT_E3M2: return rt_code_e3m2_to_f32(code);
    case RT_E2M3: return rt_code_e2m3_to_f32(code);
    case RT_E2M1: return rt_code_e2m1_to_f32(code);
    default: return (float)code;
    }
}

/* Element `at` of stored weights: of 16-bit floats, or of codes, packed if they have fewer than 8 bits. */
static inline __device__ float rt_stored_weight(const uint8_t *x, int64_t at, int bits, enum rt_dtype codes) {
    if (codes == RT_BF16) return rt_bf16_to_f32(((const uint16_t *)x)[at]);
    if (codes == RT_F16) return rt_f16_to_f32(((const uint16_t *)x)[at]);
    return rt_code_value_of(rt_packed_code(x, at, bits), codes);
}

RT_ON_CALL int rt_unpack_codes(struct rt *rt, void *y, const uint8_t *x, enum rt_dtype dtype, int64_t count) {
    const int bits = rt_dtype_bits(dtype);
    uint8_t *codes = (uint8_t *)y;
    return rt_points(rt, count, [=] __device__(int64_t i) { codes[i] = rt_packed_code(x, i, bits); });
}

template <class T>
RT_FAMILY int rt_dequant_matmul(struct rt *rt, T *y, const T *x, const void *weights, const T *scale, const void *zeros,
                                int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype type,
                                enum rt_dtype codes, double offset, int turned, int across) {
    const uint8_t *w = (const uint8_t *)weights, *zero = (const uint8_t *)zeros;
    const int bits = type == codes ? 8 : rt_dtype_bits(codes);
    const int64_t all = groups ? groups : 1, block = (across ? n : k) / all;
    return rt_points(rt, m * n, [=] __device__(int64_t p) {
        const int64_t i = p / n, j = p % n;
        T sum = 0;
        for (int64_t q = 0; q < k; q++) {
            const int64_t group = (across ? j : q) / block, other = across ? q : j;
            const int64_t at = turned == across ? group * (across ? k : n) + other : other * all + group;
            const T shift = zero ? (T)rt_code_value_of(zero[at], codes) : (T)offset;
            const T weight = (T)rt_stored_weight(w, turned ? j * k + q : q * n + j, bits, codes);
            sum += x[i * k + q] * ((weight - shift) * scale[at]);
        }
        y[p] = sum;
    });
}

#define RT_CUDA_DEQUANT(T, s) RT_NAME(rt_dequant_matmul_##s, rt_dequant_matmul<T>)
RT_FLOATS(RT_CUDA_DEQUANT)

/* Integers of 8 bits. */
struct rt_bytes {
    const uint8_t *at;
    bool is_signed;
    __device__ int32_t operator[](int64_t i) const { return is_signed ? (int32_t)(int8_t)at[i] : (int32_t)at[i]; }
    __device__ int32_t or_zero(int64_t i) const { return at ? (*this)[i] : 0; }
};

RT_ON_CALL int rt_int_matmul(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero,
                             const void *w_zero, enum rt_dtype x_type, enum rt_dtype w_type, int per_column,
                             int64_t batch, int64_t m, int64_t k, int64_t n, int turned) {
    const rt_bytes a = {(const uint8_t *)x, x_type == RT_I8}, b = {(const uint8_t *)w, w_type == RT_I8};
    const rt_bytes a_zero = {(const uint8_t *)x_zero, a.is_signed}, b_zero = {(const uint8_t *)w_zero, b.is_signed};
    return rt_points(rt, batch * m * n, [=] __device__(int64_t p) {
        const int64_t j = p % n, row = p / n, matrix = row / m;
        const int32_t left = a_zero.or_zero(0), right = b_zero.or_zero(per_column ? j : 0);
        uint32_t sum = 0;
        for (int64_t q = 0; q < k; q++) {
            const int32_t code = b[matrix * k * n + (turned ? j * k + q : q * n + j)];
            sum += (uint32_t)((a[row * k + q] - left) * (code - right));
        }
        y[p] = (int32_t)sum;
    });
}

RT_ON_CALL int rt_int_conv(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero,
                           const void *w_zero, enum rt_dtype x_type, enum rt_dtype w_type, int per_channel, int ndim,
                           const rt_dims &x_dims, const rt_dims &w_dims, const rt_dims &y_dims, int64_t group,
                           const rt_dims &stride, const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims.at, w_dims.at + 2, y_dims.at, stride.at, dilation.at, begin.at);
    const rt_bytes a = {(const uint8_t *)x, x_type == RT_I8}, b = {(const uint8_t *)w, w_type == RT_I8};
    const rt_bytes a_zero = {(const uint8_t *)x_zero, a.is_signed}, b_zero = {(const uint8_t *)w_zero, b.is_signed};
    const int64_t c = w_dims[1], channels = x_dims[1], m = y_dims[1];
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
        int64_t sample = p;
        const rt_at3 o = rt_unravel3(rt_take(&sample, window.y_plane), window.y);
        const int64_t channel = rt_take(&sample, m), from = sample * channels + channel / (m / group) * c;
        const int32_t left = a_zero.or_zero(0), right = b_zero.or_zero(per_channel ? channel : 0);
        uint32_t sum = 0;
        for (int64_t i = 0; i < c; i++)
            for (int64_t tap = 0; tap < window.taps; tap++) {
                const int64_t place = rt_window_place(window, o, tap);
                if (place < 0) continue;
                const int32_t code = b[(channel * c + i) * window.taps + tap];
                sum += (uint32_t)((a[(from + i) * window.x_plane + place] - left) * (code - right));
            }
        y[p] = (int32_t)sum;
    });
}

#endif
