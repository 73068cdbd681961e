/* Conversion between 16-bit floats and f32, rounding to nearest even; NaN stays NaN. Branch-free, so that loops around
 * these functions vectorise; GPUs have an instruction for each. */
#ifndef RT_BASE_HALF_H
#define RT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "../inline.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define RT_HALF_INSTRUCTIONS
#endif

RT_INLINE uint32_t rt_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

RT_INLINE float rt_f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

RT_INLINE float rt_bf16_to_f32(uint16_t half) {
    return rt_f32_of_bits((uint32_t)half << 16);
}

RT_INLINE uint16_t rt_f32_to_bf16(float value) {
#ifdef RT_HALF_INSTRUCTIONS
    uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    uint32_t bits = rt_f32_bits(value), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
#endif
}

RT_INLINE float rt_f16_to_f32(uint16_t half) {
#ifdef RT_HALF_INSTRUCTIONS
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    uint32_t normal = (magnitude << 13) + (112u << 23), special = 0x7f800000 | (magnitude & 0x3ff) << 13;
    uint32_t subnormal = rt_f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    return rt_f32_of_bits(sign | (magnitude >= 0x7c00 ? special : magnitude >= 0x400 ? normal : subnormal));
#endif
}

/* An addition rounds: the last place of the sum of a number of exponent e and 2^(e + 13) is 2^(e - 10), as that of the
 * half. What the number adds to the bits of 2^(e + 13) is the half's significand, whose leading bit counts as 1 in the
 * exponent. Subnormals have the last place of e = -14; numbers of 65520 and above become 2^16, whose bits are those of
 * infinity. */
RT_INLINE uint16_t rt_f32_to_f16(float value) {
#ifdef RT_HALF_INSTRUCTIONS
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    const int32_t magnitude = (int32_t)(rt_f32_bits(value) & 0x7fffffff);
    const int32_t clamped = magnitude < 0x47800000 ? magnitude : 0x47800000, power = clamped & 0x7f800000;
    const int32_t exponent = power > 0x38800000 ? power : 0x38800000, unit = exponent + (13 << 23);
    const float sum = rt_f32_of_bits((uint32_t)clamped) + rt_f32_of_bits((uint32_t)unit);
    const int32_t half = (int32_t)rt_f32_bits(sum) - unit + ((exponent - 0x38800000) >> 13);
    const int32_t nan = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : 0;
    return (uint16_t)((rt_f32_bits(value) >> 16 & 0x8000) | (uint32_t)(half | nan));
#endif
}

#endif
