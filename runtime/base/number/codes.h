/* Conversion between f32 and types of at most 8 bits that are stored as codes: floats of 8, 6 and 4 bits, powers of
 * two, and integers of 4 and 2 bits. An element takes a byte, its code in the low bits; in the data of an ONNX model
 * elements of fewer than 8 bits are packed, the first in the lowest bits. Sources: "FP8 formats for deep learning"
 * (Micikevicius et al., 2022), the OCP microscaling formats, ONNX's tables of float types. Branch-free, so that loops
 * vectorise. */
#ifndef RT_BASE_CODES_H
#define RT_BASE_CODES_H

#include "half.h"

/* A float type: sign, exponent and mantissa. CODES(id, name, bits, mantissa bits, bias, greatest finite code, code of
 * an overflow, code of NaN, whether zero is unsigned). Rounds to nearest even. What rounds beyond the greatest number
 * becomes the code of an overflow: infinity, NaN, or in types without these the greatest number. */
#define RT_FLOAT_CODES(CODES)                                                                                          \
    CODES(E4M3FN, e4m3fn, 8, 3, 7, 0x7e, 0x7f, 0x7f, 0)                                                                \
    CODES(E4M3FNUZ, e4m3fnuz, 8, 3, 8, 0x7f, 0x80, 0x80, 1)                                                            \
    CODES(E5M2, e5m2, 8, 2, 15, 0x7b, 0x7c, 0x7e, 0)                                                                   \
    CODES(E5M2FNUZ, e5m2fnuz, 8, 2, 16, 0x7f, 0x80, 0x80, 1)                                                           \
    CODES(E3M2, e3m2, 6, 2, 3, 0x1f, 0x1f, 0x20, 0)                                                                    \
    CODES(E2M3, e2m3, 6, 3, 1, 0x1f, 0x1f, 0x20, 0)                                                                    \
    CODES(E2M1, e2m1, 4, 1, 1, 0x7, 0x7, 0x8, 0)

/* Subnormals: `least` is the type's least step. Codes from `infinity` on stand for infinity and NaN. */
RT_INLINE float rt_code_value(uint32_t code, int bits, int mantissa, int bias, uint32_t most, uint32_t over,
                              int zero_unsigned) {
    const uint32_t sign = code >> (bits - 1) & 1, magnitude = code & ((1u << (bits - 1)) - 1);
    const float least = rt_f32_of_bits((uint32_t)(128 - bias - mantissa) << 23);
    const uint32_t normal = (magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
    const uint32_t subnormal = rt_f32_bits((float)(int32_t)magnitude * least);
    const uint32_t finite = magnitude >> mantissa ? normal : subnormal;
    const uint32_t special = magnitude == over && over == 0x7c ? 0x7f800000 : 0x7fc00000;
    const int is_special = zero_unsigned ? code == 0x80 : magnitude > most;
    return rt_f32_of_bits((is_special ? special : finite) | sign << 31);
}

/* x / 2^(exponent - mantissa) is rounded by the addition of 2^23, whose last place is 1. */
RT_INLINE uint8_t rt_code_of(float value, int bits, int mantissa, int bias, uint32_t most, uint32_t over, uint32_t nan,
                             int zero_unsigned) {
    const uint32_t magnitude = rt_f32_bits(value) & 0x7fffffff, sign = rt_f32_bits(value) >> 31;
    const uint32_t least = (uint32_t)(128 - bias);
    const uint32_t exponent = magnitude >> 23 < least ? least : magnitude >> 23 > 253 ? 253 : magnitude >> 23;
    const float scaled = rt_f32_of_bits(magnitude) * rt_f32_of_bits((254u + (uint32_t)mantissa - exponent) << 23);
    const uint32_t steps = rt_f32_bits(scaled + 0x1p23f) - rt_f32_bits(0x1p23f);
    const uint32_t rounded = ((exponent - least) << mantissa) + steps;
    const uint32_t finite = rounded > most ? over : rounded;
    const uint32_t unsigned_code = magnitude > 0x7f800000 ? nan : magnitude == 0x7f800000 ? over : finite;
    const uint32_t is_negative = zero_unsigned ? sign && unsigned_code != 0 : sign;
    return (uint8_t)(unsigned_code | is_negative << (bits - 1));
}

#define RT_FLOAT_CODE(id, name, bits, mantissa, bias, most, over, nan, zero_unsigned)                                  \
    RT_INLINE float rt_code_##name##_to_f32(uint8_t code) {                                                            \
        return rt_code_value(code, bits, mantissa, bias, most, over, zero_unsigned);                                   \
    }                                                                                                                  \
    RT_INLINE uint8_t rt_f32_to_code_##name(float value) {                                                             \
        return rt_code_of(value, bits, mantissa, bias, most, over, nan, zero_unsigned);                                \
    }
RT_FLOAT_CODES(RT_FLOAT_CODE)
#undef RT_FLOAT_CODE

/* E8M0: 2^(code - 127), 0xff is NaN. The magnitude is rounded up; more than the greatest power becomes that. */
RT_INLINE float rt_code_e8m0_to_f32(uint8_t code) {
    return rt_f32_of_bits(code == 0xff ? 0x7fc00000 : code == 0 ? 0x00400000 : (uint32_t)code << 23);
}

RT_INLINE uint8_t rt_f32_to_code_e8m0(float value) {
    const uint32_t magnitude = rt_f32_bits(value) & 0x7fffffff;
    const uint32_t up = magnitude <= 0x00400000 ? 0 : (magnitude + 0x7fffff) >> 23;
    return (uint8_t)(magnitude >= 0x7f800000 ? 0xff : up > 0xfe ? 0xfe : up);
}

/* Integers keep their low bits; `sign` is the bit of the sign, 0: none. */
#define RT_INTEGER_CODE(name, c_type, mask, sign)                                                                      \
    RT_INLINE uint8_t rt_code_of_##name(uint64_t value) {                                                              \
        return (uint8_t)(value & mask);                                                                                \
    }                                                                                                                  \
    RT_INLINE c_type rt_code_##name(uint8_t code) {                                                                    \
        return (c_type)(((code & mask) ^ sign) - sign);                                                                \
    }
RT_INTEGER_CODE(i4, int8_t, 0xf, 8)
RT_INTEGER_CODE(u4, uint8_t, 0xf, 0)
RT_INTEGER_CODE(i2, int8_t, 0x3, 2)
RT_INTEGER_CODE(u2, uint8_t, 0x3, 0)
#undef RT_INTEGER_CODE

#endif
