/* Scalar functions that the generated elementwise loops call, one per dtype: rt_<name>_<dtype>. Halves are loaded,
 * computed in f32 and stored (the casts at the end).
 *
 * Note [Scalar and vector]
 * The f32 functions are plain arithmetic without branches, tables or calls, so that a compiler can vectorise a loop
 * around them; compiled without contraction (-ffp-contract=off) an element has the same bits in a vector, in a tail
 * and alone. That is what makes a cut elementwise operator bit-equal to the whole. The f64 functions are libm's:
 * the reference asks for accuracy, not speed.
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
#include "elementary.h"
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

/* Of any number type */

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

/* Rounding */

/* ONNX Round-11: to the nearest integer, halfway to the even one; keeps -0. */
RT_MATH_OF(float, rt_round_f32, float, rintf(x))
RT_MATH_OF(double, rt_round_f64, double, rint(x))

/* Elementary functions of f64 */

RT_MATH_OF_TWO(double, rt_pow_f64, pow(a, b))
RT_MATH_OF(double, rt_exp_f64, double, exp(x))
RT_MATH_OF(double, rt_log_f64, double, log(x))
RT_MATH_OF(double, rt_tanh_f64, double, tanh(x))
RT_MATH_OF(double, rt_erf_f64, double, erf(x))
RT_INLINE double rt_sigmoid_f64(double x) {
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}
RT_MATH_OF(double, rt_softplus_f64, double, rt_max_f64(x, 0.0) + log1p(exp(-fabs(x))))

/* Casts */

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

/* The same for types that both floats hold: without a branch around the conversion, so that compilers vectorise it. */
#define RT_CAST_FLOAT_NARROW(F, f, T, t, LOW, HIGH)                                                                    \
    RT_INLINE T rt_cast_##f##_##t(F x) {                                                                               \
        F inside = x == x ? x : 0;                                                                                     \
        inside = inside > (F)LOW ? inside : (F)LOW;                                                                    \
        inside = inside < (F)HIGH ? inside : (F)HIGH;                                                                  \
        return (T)(int32_t)inside;                                                                                     \
    }

#define RT_CAST_WHOLE(T, t, LOW, HIGH, OF_FLOAT)                                                                       \
    OF_FLOAT(float, f32, T, t, LOW, HIGH)                                                                              \
    OF_FLOAT(double, f64, T, t, LOW, HIGH)                                                                             \
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

RT_CAST_WHOLE(int64_t, i64, INT64_MIN, INT64_MAX, RT_CAST_FLOAT_WHOLE)
RT_CAST_WHOLE(int32_t, i32, INT32_MIN, INT32_MAX, RT_CAST_FLOAT_WHOLE)
RT_CAST_WHOLE(int16_t, i16, INT16_MIN, INT16_MAX, RT_CAST_FLOAT_NARROW)
RT_CAST_WHOLE(int8_t, i8, INT8_MIN, INT8_MAX, RT_CAST_FLOAT_NARROW)
RT_CAST_WHOLE(uint64_t, u64, 0, UINT64_MAX, RT_CAST_FLOAT_WHOLE)
RT_CAST_WHOLE(uint32_t, u32, 0, UINT32_MAX, RT_CAST_FLOAT_WHOLE)
RT_CAST_WHOLE(uint16_t, u16, 0, UINT16_MAX, RT_CAST_FLOAT_NARROW)
RT_CAST_WHOLE(uint8_t, u8, 0, UINT8_MAX, RT_CAST_FLOAT_NARROW)

/* An integer x between two integers of 8 bits; NaN counts as 0. */
RT_INLINE double rt_clamp_f64(double x, double least, double most) {
    return x != x ? 0 : x < least ? least : x > most ? most : x;
}

/* The same, less `least`. Numbers from 0 on are ordered as their bits are, of which compilers vectorise the lesser and
 * the greater; of floats with a NaN among them they do not. */
RT_INLINE float rt_above_f32(float x, float least, float most) {
    const int32_t end = (int32_t)rt_f32_bits(most - least);
    int32_t bits = (int32_t)(x == x ? rt_f32_bits(x - least) : rt_f32_bits(0 - least));
    bits = bits > 0 ? bits : 0;
    return rt_f32_of_bits((uint32_t)(bits < end ? bits : end));
}

RT_INLINE float rt_clamp_f32(float x, float least, float most) {
    return least == 0 ? rt_above_f32(x, least, most) : rt_above_f32(x, least, most) + least;
}

/* Quantised values: the same as an integer. */
#define RT_CODE(T, t)                                                                                                  \
    RT_INLINE T rt_code_##t(float x, float least, float most) {                                                        \
        return (T)((int32_t)rt_above_f32(x, least, most) + (int32_t)least);                                            \
    }

RT_CODE(int8_t, i8)
RT_CODE(uint8_t, u8)

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
