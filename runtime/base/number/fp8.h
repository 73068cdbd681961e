/* Conversion between 8-bit floats and f32 (Micikevicius et al., "FP8 formats for deep learning", 2022). E4M3 has no
 * infinities, maximum 448; E5M2 is the upper half of an fp16, maximum 57344. Rounds to nearest even. Finite values
 * saturate at the maximum; infinity stays infinity in E5M2 and becomes NaN in E4M3, so that overflow upstream is not
 * hidden. Branch-free, so that loops vectorise. */
#ifndef RT_BASE_FP8_H
#define RT_BASE_FP8_H

#include "half.h"

enum rt_fp8 { RT_FP8_E4M3, RT_FP8_E5M2 };

RT_INLINE float rt_e4m3_to_f32(uint8_t code) {
    uint32_t sign = (uint32_t)(code & 0x80) << 24, magnitude = code & 0x7f;
    uint32_t normal = (magnitude << 20) + (120u << 23), subnormal = rt_f32_bits((float)(int32_t)magnitude * 0x1p-9f);
    return rt_f32_of_bits(sign | (magnitude == 0x7f ? 0x7fc00000 : magnitude >= 8 ? normal : subnormal));
}

RT_INLINE float rt_e5m2_to_f32(uint8_t code) {
    return rt_f16_to_f32((uint16_t)(code << 8));
}

/* Subnormals: the last place of 0x1p14f is the format's least step, so the addition rounds. */
RT_INLINE uint8_t rt_f32_to_e4m3(float value) {
    uint32_t bits = rt_f32_bits(value), magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude + 0x7ffff + (magnitude >> 20 & 1) - (120u << 23)) >> 20;
    uint32_t subnormal = rt_f32_bits(rt_f32_of_bits(magnitude) + 0x1p14f) - rt_f32_bits(0x1p14f);
    uint32_t finite = magnitude < 0x3c800000 ? subnormal : normal > 0x7e ? 0x7e : normal;
    return (uint8_t)((bits >> 24 & 0x80) | (magnitude >= 0x7f800000 ? 0x7f : finite));
}

RT_INLINE uint8_t rt_f32_to_e5m2(float value) {
    uint32_t bits = rt_f32_bits(value), magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude + 0xfffff + (magnitude >> 21 & 1) - (112u << 23)) >> 21;
    uint32_t subnormal = rt_f32_bits(rt_f32_of_bits(magnitude) + 0x1p7f) - rt_f32_bits(0x1p7f);
    uint32_t finite = magnitude < 0x38800000 ? subnormal : normal > 0x7b ? 0x7b : normal;
    uint32_t special = magnitude > 0x7f800000 ? 0x7e : 0x7c;
    return (uint8_t)((bits >> 24 & 0x80) | (magnitude >= 0x7f800000 ? special : finite));
}

/* x * factor; a number stays a number. */
RT_INLINE float rt_fp8_scaled(float x, float factor) {
    const float scaled = x * factor, most = 3.402823466e38f;
    const uint32_t magnitude = rt_f32_bits(x) & 0x7fffffff;
    const float finite = scaled > most ? most : scaled < -most ? -most : scaled;
    return magnitude < 0x7f800000 ? finite : scaled;
}

#endif
