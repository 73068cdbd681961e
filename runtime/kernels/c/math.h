/* Scalar functions that the generated elementwise loops call, one per dtype: rt_<name>_<dtype>. Halves are loaded,
 * computed in f32 and stored (the casts at the end).
 *
 * Note [Scalar and vector]
 * The f32 functions are plain arithmetic without branches, tables or calls, so that a compiler can vectorise a loop
 * around them; compiled without contraction (-ffp-contract=off) an element has the same bits in a vector, in a tail
 * and alone. That is what makes a cut elementwise operator bit-equal to the whole. The f64 functions are libm's:
 * the reference asks for accuracy, not speed. Errors stated are against the exact result, found by trying all
 * floats.
 *
 * Integer arithmetic never traps: quotients by 0 are 0, overflow wraps.
 *
 * Include it by its path: this directory must not be on a search path, or <math.h> would be this file.
 */
#ifndef RT_KERNELS_C_MATH_H
#define RT_KERNELS_C_MATH_H

#include <math.h>
#include <stdint.h>

#include "../../base/number/codes.h"
#include "../../base/dtype.h"
#include "../../base/number/half.h"
#include "lists.h"

/* A function of one number, x, or of two, a and b. */
#define RT_MATH_OF(R, name, T, value)                                                                                  \
    RT_INLINE R name(T x) {                                                                                            \
        return value;                                                                                                  \
    }
#define RT_MATH_OF_TWO(T, name, value)                                                                                 \
    RT_INLINE T name(T a, T b) {                                                                                       \
        return value;                                                                                                  \
    }

/* --- Of any number type --- */

/* max, min: ONNX Max-13, Min-13; a NaN on either side is the result (written such that gcc vectorises one of the
 * other). div: ONNX Div-14, integers truncate. fmod, mod: ONNX Mod-13 with fmod = 1 (sign of the dividend) and fmod = 0
 * (sign of the divisor). sign: ONNX Sign-13, -1 0 1, NaN for NaN. pow: ONNX Pow-15 with both sides of one dtype; for
 * integers 0 to a negative power is 0. shift_left, shift_right: ONNX BitShift-28; by a negative number or by all bits
 * and more the result is that of shifting all bits out, 0, or -1 if a negative number is shifted right. */
#define RT_MATH_FLOAT(T, s, SUFFIX)                                                                                    \
    RT_MATH_OF_TWO(T, rt_max_##s, (!(a <= b) & (b == b)) ? a : b)                                                      \
    RT_MATH_OF_TWO(T, rt_min_##s, (!(a >= b) & (b == b)) ? a : b)                                                      \
    RT_MATH_OF_TWO(T, rt_div_##s, a / b)                                                                               \
    RT_MATH_OF(T, rt_abs_##s, T, fabs##SUFFIX(x))                                                                      \
    RT_MATH_OF(T, rt_neg_##s, T, -x)                                                                                   \
    RT_MATH_OF(T, rt_sign_##s, T, x > 0 ? (T)1 : x < 0 ? (T)-1 : x == 0 ? (T)0 : x)                                    \
    RT_MATH_OF_TWO(T, rt_pow_##s, pow##SUFFIX(a, b))                                                                   \
    RT_MATH_OF_TWO(T, rt_fmod_##s, fmod##SUFFIX(a, b))                                                                 \
    RT_INLINE T rt_mod_##s(T a, T b) {                                                                                 \
        T rest = fmod##SUFFIX(a, b);                                                                                   \
        if (rest == 0) return copysign##SUFFIX(rest, b);                                                               \
        return (rest < 0) != (b < 0) ? rest + b : rest;                                                                \
    }

RT_MATH_FLOAT(float, f32, f)
RT_MATH_FLOAT(double, f64, )

/* U is wide enough that its arithmetic never happens in a signed type. */
#define RT_MATH_WHOLE(T, s, U)                                                                                         \
    RT_MATH_OF_TWO(T, rt_max_##s, a > b ? a : b)                                                                       \
    RT_MATH_OF_TWO(T, rt_min_##s, a < b ? a : b)                                                                       \
    RT_MATH_OF_TWO(T, rt_add_##s, (T)((U)a + (U)b))                                                                    \
    RT_MATH_OF_TWO(T, rt_sub_##s, (T)((U)a - (U)b))                                                                    \
    RT_MATH_OF_TWO(T, rt_mul_##s, (T)((U)a * (U)b))                                                                    \
    RT_MATH_OF(T, rt_neg_##s, T, (T)(0 - (U)x))                                                                        \
    RT_MATH_OF_TWO(T, rt_bit_and_##s, (T)(a & b))                                                                      \
    RT_MATH_OF_TWO(T, rt_bit_or_##s, (T)(a | b))                                                                       \
    RT_MATH_OF_TWO(T, rt_bit_xor_##s, (T)(a ^ b))                                                                      \
    RT_MATH_OF_TWO(T, rt_shift_left_##s, (uint64_t)b < 8 * sizeof(T) ? (T)((U)a << b) : (T)0)                          \
    RT_INLINE T rt_pow_##s(T base, T exponent) {                                                                       \
        if (exponent < 1) {                                                                                            \
            if (exponent == 0 || base == 1) return 1;                                                                  \
            return (T)(base + 1) == 0 ? (T)(exponent % 2 == 0 ? 1 : base) : (T)0;                                      \
        }                                                                                                              \
        U result = 1, square = (U)base;                                                                                \
        for (; exponent > 0; exponent /= 2, square *= square)                                                          \
            if (exponent % 2 != 0) result *= square;                                                                   \
        return (T)result;                                                                                              \
    }

#define RT_MATH_SIGNED(T, s, U)                                                                                        \
    RT_MATH_WHOLE(T, s, U)                                                                                             \
    RT_MATH_OF_TWO(T, rt_div_##s, b == 0 ? (T)0 : b == -1 ? rt_neg_##s(a) : (T)(a / b))                                \
    RT_MATH_OF_TWO(T, rt_fmod_##s, b == 0 || b == -1 ? (T)0 : (T)(a % b))                                              \
    RT_INLINE T rt_mod_##s(T a, T b) {                                                                                 \
        T rest = rt_fmod_##s(a, b);                                                                                    \
        return rest != 0 && (rest < 0) != (b < 0) ? (T)(rest + b) : rest;                                              \
    }                                                                                                                  \
    RT_MATH_OF(T, rt_abs_##s, T, x < 0 ? rt_neg_##s(x) : x)                                                            \
    RT_MATH_OF_TWO(T, rt_shift_right_##s, (uint64_t)b < 8 * sizeof(T) ? (T)(a >> b) : (T)(a < 0 ? -1 : 0))             \
    RT_MATH_OF(T, rt_sign_##s, T, (T)((x > 0) - (x < 0)))

#define RT_MATH_UNSIGNED(T, s, U)                                                                                      \
    RT_MATH_WHOLE(T, s, U)                                                                                             \
    RT_MATH_OF_TWO(T, rt_div_##s, b == 0 ? (T)0 : (T)(a / b))                                                          \
    RT_MATH_OF_TWO(T, rt_fmod_##s, b == 0 ? (T)0 : (T)(a % b))                                                         \
    RT_MATH_OF_TWO(T, rt_mod_##s, rt_fmod_##s(a, b))                                                                   \
    RT_MATH_OF(T, rt_abs_##s, T, x)                                                                                    \
    RT_MATH_OF_TWO(T, rt_shift_right_##s, (uint64_t)b < 8 * sizeof(T) ? (T)(a >> b) : (T)0)                            \
    RT_MATH_OF(T, rt_sign_##s, T, x != 0)

RT_MATH_SIGNED(int64_t, i64, uint64_t)
RT_MATH_SIGNED(int32_t, i32, uint32_t)
RT_MATH_SIGNED(int16_t, i16, uint32_t)
RT_MATH_SIGNED(int8_t, i8, uint32_t)
RT_MATH_UNSIGNED(uint64_t, u64, uint64_t)
RT_MATH_UNSIGNED(uint32_t, u32, uint32_t)
RT_MATH_UNSIGNED(uint16_t, u16, uint32_t)
RT_MATH_UNSIGNED(uint8_t, u8, uint32_t)

/* --- Rounding --- */

/* ONNX Round-11: to the nearest integer, halfway to the even one; keeps -0. Adding and taking away the number whose
 * last place is 1 rounds, wherever the magnitude is below it. */
RT_INLINE float rt_round_f32(float x) {
    float magnitude = fabsf(x), rounded = (magnitude + 0x1p23f) - 0x1p23f;
    return magnitude < 0x1p23f ? copysignf(rounded, x) : x;
}

RT_INLINE double rt_round_f64(double x) {
    double magnitude = fabs(x), rounded = (magnitude + 0x1p52) - 0x1p52;
    return magnitude < 0x1p52 ? copysign(rounded, x) : x;
}

/* --- Transcendental --- */

/* Note [Polynomials]
 * Coefficients are minimax fits of this project (tests/kernels/fit_math.py prints them), evaluated by Horner's
 * rule with fused multiply-adds, which are written: the compiler makes none (and calls libm's where the processor has
 * none). */

/* e^x = 2^n e^r with |r| <= ln(2) / 2, for finite |x| < 2^20: e^r, and in `shifted` n + 0x1.8p23, so that n stands in
 * the last places of its bits. */
RT_INLINE float rt_exp_reduced_f32(float x, float *shifted) {
    *shifted = fmaf(x, 1.44269504f, 0x1.8p23f);
    float n = *shifted - 0x1.8p23f;
    float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float p = 0.0013814431f;
    p = fmaf(p, r, 0.0083683967f);
    p = fmaf(p, r, 0.041668396f);
    p = fmaf(p, r, 0.1666652f);
    p = fmaf(p, r, 0.49999994f);
    return fmaf(p, r * r, r) + 1.0f;
}

/* n is applied in two factors, so that results below 2^-126 are rounded once and those beyond the largest float are
 * inf. A GPU has its own, of 2 units in the last place and half as many instructions. */
RT_INLINE float rt_exp_f32(float x) {
#ifdef __CUDA_ARCH__
    return expf(x);
#else
    float magnitude = fabsf(x), shifted;
    float value = rt_exp_reduced_f32(copysignf(magnitude > 104.0f ? 104.0f : magnitude, x), &shifted);
    uint32_t exponent = rt_f32_bits(shifted) - 0x4b400000u; /* of a NaN anything: the product is a NaN */
    uint32_t half = (uint32_t)((int32_t)exponent >> 1);
    return value * rt_f32_of_bits((half + 127) << 23) * rt_f32_of_bits((exponent - half + 127) << 23);
#endif
}

/* log(m 2^e) = e ln(2) + log(1 + f) with m = 1 + f in [sqrt(1/2), sqrt(2)). */
RT_INLINE float rt_log_f32(float x) {
    int subnormal = x < 0x1p-126f;
    float normal = subnormal ? x * 0x1p25f : x;
    uint32_t bits = rt_f32_bits(normal) - 0x3f3504f3u;
    float e = (float)((int32_t)bits >> 23) - (subnormal ? 25.0f : 0.0f);
    float f = rt_f32_of_bits((bits & 0x7fffff) + 0x3f3504f3u) - 1.0f;
    float p = -0.0763443f;
    p = fmaf(p, f, 0.1276155f);
    p = fmaf(p, f, -0.13160194f);
    p = fmaf(p, f, 0.14201762f);
    p = fmaf(p, f, -0.16623357f);
    p = fmaf(p, f, 0.20001227f);
    p = fmaf(p, f, -0.25000823f);
    p = fmaf(p, f, 0.3333333f);
    float square = f * f, tail = fmaf(p * f, square, e * -2.12194440e-4f);
    float value = fmaf(e, 0.693359375f, f + fmaf(-0.5f, square, tail));
    float positive = x < (float)INFINITY ? value : x;
    float known = x == 0 ? (float)-INFINITY : positive;
    return x < 0 ? (float)NAN : known;
}

/* log(1 + e) for 0 <= e <= 1: the logarithm of the rounded sum, plus what rounding the sum lost. */
RT_INLINE float rt_log1p_unit_f32(float e) {
    float sum = 1.0f + e;
    return rt_log_f32(sum) + (e - (sum - 1.0f)) / sum;
}

/* ONNX Tanh-13: x + x^3 P(x^2) near 0, else 1 - 2 / (e^2|x| + 1). */
RT_INLINE float rt_tanh_f32(float x) {
    float square = x * x, p = -0.005704522f;
    p = fmaf(p, square, 0.020638688f);
    p = fmaf(p, square, -0.053739596f);
    p = fmaf(p, square, 0.13331442f);
    p = fmaf(p, square, -0.3333328f);
    float near = fmaf(x, square * p, x);
    float far = 1.0f - 2.0f / (rt_exp_f32(2.0f * fabsf(x)) + 1.0f);
    return copysignf(fabsf(x) < 0.625f ? near : far, x);
}

/* ONNX Erf-13: x + x P(x^2) near 0, else 1 - e^-(|x| + |x| Q(|x|)), which is 1 from 4 on. */
RT_INLINE float rt_erf_f32(float x) {
    float magnitude = fabsf(x), square = x * x, p = -0.0005953739f;
    p = fmaf(p, square, 0.00498594f);
    p = fmaf(p, square, -0.02676172f);
    p = fmaf(p, square, 0.11281683f);
    p = fmaf(p, square, -0.3761248f);
    p = fmaf(p, square, 0.12837915f);
    float near = fmaf(x, p, x);
    float t = magnitude > 4.0f ? 4.0f : magnitude, q = -0.00021398593f;
    q = fmaf(q, t, 0.003214963f);
    q = fmaf(q, t, -0.022889987f);
    q = fmaf(q, t, 0.10526188f);
    q = fmaf(q, t, 0.6357183f);
    q = fmaf(q, t, 0.12851436f);
    float far = 1.0f - rt_exp_f32(-fmaf(t, q, t));
    return copysignf(magnitude < 0.92f ? near : far, x);
}

/* ONNX Sigmoid-13: of -|x|, so that nothing overflows. On a GPU overflow is harmless, and its own division, of 2 units
 * in the last place, has no branch. */
RT_INLINE float rt_sigmoid_f32(float x) {
#ifdef __CUDA_ARCH__
    return __fdividef(1.0f, 1.0f + rt_exp_f32(-x));
#else
    float e = rt_exp_f32(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
#endif
}

/* ONNX Softplus-1: log(1 + e^x) = max(x, 0) + log(1 + e^-|x|). */
RT_MATH_OF(float, rt_softplus_f32, float, rt_max_f32(x, 0.0f) + rt_log1p_unit_f32(rt_exp_f32(-fabsf(x))))

RT_MATH_OF(double, rt_exp_f64, double, exp(x))
RT_MATH_OF(double, rt_log_f64, double, log(x))
RT_MATH_OF(double, rt_tanh_f64, double, tanh(x))
RT_MATH_OF(double, rt_erf_f64, double, erf(x))
RT_INLINE double rt_sigmoid_f64(double x) {
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}
RT_MATH_OF(double, rt_softplus_f64, double, rt_max_f64(x, 0.0) + log1p(exp(-fabs(x))))

/* --- Casts --- */

/* ONNX Cast-13: rt_cast_<from>_<to>(x) for every two types of base/dtype.h of which at least one is none of
 * base/number/codes.h, as rt_convert does it: floats to integers truncate, out of range gives the nearest bound and NaN
 * 0; integers keep their low bits; to bool is "not zero"; a result is rounded once, to nearest even. Halves are their
 * bits in a uint16_t. */
RT_MATH_OF(float, rt_cast_f32_f32, float, x)
RT_MATH_OF(double, rt_cast_f32_f64, float, (double)x)
RT_MATH_OF(float, rt_cast_f64_f32, double, (float)x)
RT_MATH_OF(double, rt_cast_f64_f64, double, x)
RT_MATH_OF(uint8_t, rt_cast_f32_bool, float, x != 0)
RT_MATH_OF(uint8_t, rt_cast_f64_bool, double, x != 0)
RT_MATH_OF(uint8_t, rt_cast_bool_bool, uint8_t, x != 0)
RT_MATH_OF(float, rt_cast_bool_f32, uint8_t, (float)(x != 0))
RT_MATH_OF(double, rt_cast_bool_f64, uint8_t, (double)(x != 0))

RT_MATH_OF(float, rt_cast_fp16_f32, uint16_t, rt_f16_to_f32(x))
RT_MATH_OF(float, rt_cast_bf16_f32, uint16_t, rt_bf16_to_f32(x))
RT_MATH_OF(double, rt_cast_fp16_f64, uint16_t, (double)rt_f16_to_f32(x))
RT_MATH_OF(double, rt_cast_bf16_f64, uint16_t, (double)rt_bf16_to_f32(x))
RT_MATH_OF(uint8_t, rt_cast_fp16_bool, uint16_t, rt_f16_to_f32(x) != 0)
RT_MATH_OF(uint8_t, rt_cast_bf16_bool, uint16_t, rt_bf16_to_f32(x) != 0)
RT_MATH_OF(uint16_t, rt_cast_f32_fp16, float, rt_f32_to_f16(x))
RT_MATH_OF(uint16_t, rt_cast_f32_bf16, float, rt_f32_to_bf16(x))
/* To the nearest half, as an f32. */
RT_MATH_OF(float, rt_round_fp16, float, rt_f16_to_f32(rt_f32_to_f16(x)))
RT_MATH_OF(float, rt_round_bf16, float, rt_bf16_to_f32(rt_f32_to_bf16(x)))
RT_MATH_OF(uint16_t, rt_cast_fp16_fp16, uint16_t, x)
RT_MATH_OF(uint16_t, rt_cast_bf16_bf16, uint16_t, x)
RT_MATH_OF(uint16_t, rt_cast_fp16_bf16, uint16_t, rt_f32_to_bf16(rt_f16_to_f32(x)))
RT_MATH_OF(uint16_t, rt_cast_bf16_fp16, uint16_t, rt_f32_to_f16(rt_bf16_to_f32(x)))

/* (F)HIGH may round up to one more than the type holds; the comparison then still sends everything beyond to HIGH.
 */
#define RT_CAST_FLOAT_WHOLE(F, f, T, t, LOW, HIGH)                                                                     \
    RT_MATH_OF(T, rt_cast_##f##_##t, F, x != x ? (T)0 : x <= (F)LOW ? (T)LOW : x >= (F)HIGH ? (T)HIGH : (T)x)

#define RT_CAST_WHOLE(T, t, LOW, HIGH)                                                                                 \
    RT_CAST_FLOAT_WHOLE(float, f32, T, t, LOW, HIGH)                                                                   \
    RT_CAST_FLOAT_WHOLE(double, f64, T, t, LOW, HIGH)                                                                  \
    RT_MATH_OF(T, rt_cast_fp16_##t, uint16_t, rt_cast_f32_##t(rt_f16_to_f32(x)))                                       \
    RT_MATH_OF(T, rt_cast_bf16_##t, uint16_t, rt_cast_f32_##t(rt_bf16_to_f32(x)))                                      \
    RT_MATH_OF(T, rt_cast_bool_##t, uint8_t, (T)(x != 0))                                                              \
    RT_MATH_OF(uint8_t, rt_cast_##t##_bool, T, x != 0)                                                                 \
    RT_MATH_OF(float, rt_cast_##t##_f32, T, (float)x)                                                                  \
    RT_MATH_OF(double, rt_cast_##t##_f64, T, (double)x)                                                                \
    RT_MATH_OF(int64_t, rt_cast_##t##_i64, T, (int64_t)x)                                                              \
    RT_MATH_OF(int32_t, rt_cast_##t##_i32, T, (int32_t)x)                                                              \
    RT_MATH_OF(int16_t, rt_cast_##t##_i16, T, (int16_t)x)                                                              \
    RT_MATH_OF(int8_t, rt_cast_##t##_i8, T, (int8_t)x)                                                                 \
    RT_MATH_OF(uint64_t, rt_cast_##t##_u64, T, (uint64_t)x)                                                            \
    RT_MATH_OF(uint32_t, rt_cast_##t##_u32, T, (uint32_t)x)                                                            \
    RT_MATH_OF(uint16_t, rt_cast_##t##_u16, T, (uint16_t)x)                                                            \
    RT_MATH_OF(uint8_t, rt_cast_##t##_u8, T, (uint8_t)x)

RT_CAST_WHOLE(int64_t, i64, INT64_MIN, INT64_MAX)
RT_CAST_WHOLE(int32_t, i32, INT32_MIN, INT32_MAX)
RT_CAST_WHOLE(int16_t, i16, INT16_MIN, INT16_MAX)
RT_CAST_WHOLE(int8_t, i8, INT8_MIN, INT8_MAX)
RT_CAST_WHOLE(uint64_t, u64, 0, UINT64_MAX)
RT_CAST_WHOLE(uint32_t, u32, 0, UINT32_MAX)
RT_CAST_WHOLE(uint16_t, u16, 0, UINT16_MAX)
RT_CAST_WHOLE(uint8_t, u8, 0, UINT8_MAX)

/* Types that f32 holds exactly become halves through it. */
#define RT_CAST_NARROW_HALF(T, t)                                                                                      \
    RT_MATH_OF(uint16_t, rt_cast_##t##_fp16, T, rt_f32_to_f16(rt_cast_##t##_f32(x)))                                   \
    RT_MATH_OF(uint16_t, rt_cast_##t##_bf16, T, rt_f32_to_bf16(rt_cast_##t##_f32(x)))

RT_CAST_NARROW_HALF(int16_t, i16)
RT_CAST_NARROW_HALF(int8_t, i8)
RT_CAST_NARROW_HALF(uint16_t, u16)
RT_CAST_NARROW_HALF(uint8_t, u8)
RT_CAST_NARROW_HALF(uint8_t, bool)

/* The others go by way of an f32 that is rounded to odd: to the neighbour whose last bit is 1, unless it is exact. That
 * keeps what decides how a half is rounded (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded
 * sums"). */
RT_INLINE float rt_odd_f32(double x) {
    const float near = (float)x;
    const uint32_t bits = rt_f32_bits(near);
    if ((double)near == x || x != x) return near;
    return rt_f32_of_bits((bits - (fabs((double)near) > fabs(x))) | 1);
}

/* Integers become doubles of at most 53 bits in the same way. */
RT_MATH_OF(double, rt_odd_u64, uint64_t, x >> 53 ? (double)((x >> 11 | ((x & 0x7ff) != 0)) << 11) : (double)x)
RT_MATH_OF(double, rt_odd_i64, int64_t, x < 0 ? -rt_odd_u64(0 - (uint64_t)x) : rt_odd_u64((uint64_t)x))

#define RT_CAST_WIDE_HALF(T, t, WIDE)                                                                                  \
    RT_MATH_OF(uint16_t, rt_cast_##t##_fp16, T, rt_f32_to_f16(rt_odd_f32(WIDE(x))))                                    \
    RT_MATH_OF(uint16_t, rt_cast_##t##_bf16, T, rt_f32_to_bf16(rt_odd_f32(WIDE(x))))

RT_CAST_WIDE_HALF(double, f64, (double))
RT_CAST_WIDE_HALF(int64_t, i64, rt_odd_i64)
RT_CAST_WIDE_HALF(int32_t, i32, (double))
RT_CAST_WIDE_HALF(uint64_t, u64, rt_odd_u64)
RT_CAST_WIDE_HALF(uint32_t, u32, (double))

/* The types of base/number/codes.h, from and to all others (bool, a macro of C, is spelled out); one code becomes
 * another by way of f32, which holds all of them. CAST(type, name, a conversion to f32 after which one rounding is
 * left, code) */
#define RT_CAST_TYPES(CAST, code)                                                                                      \
    CAST(float, f32, (float), code)                                                                                    \
    CAST(double, f64, rt_odd_f32, code)                                                                                \
    CAST(uint16_t, fp16, rt_f16_to_f32, code)                                                                          \
    CAST(uint16_t, bf16, rt_bf16_to_f32, code)                                                                         \
    CAST(int64_t, i64, rt_odd_f32_i64, code)                                                                           \
    CAST(int32_t, i32, rt_odd_f32, code)                                                                               \
    CAST(int16_t, i16, (float), code)                                                                                  \
    CAST(int8_t, i8, (float), code)                                                                                    \
    CAST(uint64_t, u64, rt_odd_f32_u64, code)                                                                          \
    CAST(uint32_t, u32, rt_odd_f32, code)                                                                              \
    CAST(uint16_t, u16, (float), code)                                                                                 \
    CAST(uint8_t, u8, (float), code)

RT_MATH_OF(float, rt_odd_f32_i64, int64_t, rt_odd_f32(rt_odd_i64(x)))
RT_MATH_OF(float, rt_odd_f32_u64, uint64_t, rt_odd_f32(rt_odd_u64(x)))

#define RT_CAST_FLOAT_CODE(T, t, TO_F32, code)                                                                         \
    RT_MATH_OF(uint8_t, rt_cast_##t##_##code, T, rt_f32_to_code_##code(TO_F32(x)))                                     \
    RT_MATH_OF(T, rt_cast_##code##_##t, uint8_t, rt_cast_f32_##t(rt_code_##code##_to_f32(x)))
#define RT_CAST_FLOAT_CODES(code)                                                                                      \
    RT_CAST_TYPES(RT_CAST_FLOAT_CODE, code)                                                                            \
    RT_MATH_OF(uint8_t, rt_cast_bool_##code, uint8_t, rt_f32_to_code_##code((float)(x != 0)))                          \
    RT_MATH_OF(uint8_t, rt_cast_##code##_bool, uint8_t, rt_code_##code##_to_f32(x) != 0)
RT_CAST_FLOAT_CODES(e4m3fn)
RT_CAST_FLOAT_CODES(e4m3fnuz)
RT_CAST_FLOAT_CODES(e5m2)
RT_CAST_FLOAT_CODES(e5m2fnuz)
RT_CAST_FLOAT_CODES(e8m0)
RT_CAST_FLOAT_CODES(e3m2)
RT_CAST_FLOAT_CODES(e2m3)
RT_CAST_FLOAT_CODES(e2m1)

#define RT_CAST_WHOLE_CODE(T, t, wide, code)                                                                           \
    RT_MATH_OF(uint8_t, rt_cast_##t##_##code, T, rt_code_of_##code((uint64_t)rt_cast_##t##_i64(x)))                    \
    RT_MATH_OF(T, rt_cast_##code##_##t, uint8_t, rt_cast_##wide##_##t(rt_code_##code(x)))
#define RT_CAST_SIGNED_CODE(T, t, TO_F32, code)   RT_CAST_WHOLE_CODE(T, t, i8, code)
#define RT_CAST_UNSIGNED_CODE(T, t, TO_F32, code) RT_CAST_WHOLE_CODE(T, t, u8, code)
#define RT_CAST_WHOLE_CODES(CAST, code)                                                                                \
    RT_CAST_TYPES(CAST, code)                                                                                          \
    RT_MATH_OF(uint8_t, rt_cast_bool_##code, uint8_t, rt_code_of_##code(x != 0))                                       \
    RT_MATH_OF(uint8_t, rt_cast_##code##_bool, uint8_t, rt_code_##code(x) != 0)
RT_CAST_WHOLE_CODES(RT_CAST_SIGNED_CODE, i4)
RT_CAST_WHOLE_CODES(RT_CAST_UNSIGNED_CODE, u4)
RT_CAST_WHOLE_CODES(RT_CAST_SIGNED_CODE, i2)
RT_CAST_WHOLE_CODES(RT_CAST_UNSIGNED_CODE, u2)

#endif
