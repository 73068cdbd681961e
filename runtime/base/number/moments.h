/* Moments of an optimizer in 8 bits: blocks of RT_MOMENT_BLOCK elements, each a code times the block's largest
 * magnitude (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022). The value of a code is a dynamic
 * tree number: a power of ten from 1e-6 to 1, times the middle of one of n equal parts of 0.1 .. 1, n being 2^i with a
 * sign and 2^(i+1) without, for the i-th power. 0 and 1 are further values. Codes are numbered in the order of their
 * values. */
#ifndef RT_BASE_MOMENTS_H
#define RT_BASE_MOMENTS_H

#include "half.h"

#define RT_MOMENT_BLOCK 256

/* `has_sign`: 1 or 0. */
RT_INLINE float rt_moment_value(int code, int has_sign) {
    const int place = has_sign ? code - 127 : code ? code + 1 : 0, magnitude = place < 0 ? -place : place;
    int parts = 1;
    double power = has_sign ? 1e6 : 1e7;
    if (code == 255 || !magnitude) return code == 255 ? 1.0f : 0.0f;
    for (; 2 * parts <= magnitude; power /= 10) parts *= 2;
    const float value = (float)((0.1 + 0.9 * (2 * (magnitude - parts) + 1) / (2 * parts)) / power);
    return place < 0 ? -value : value;
}

/* The code of the table's nearest value; of two that are equally near the larger one. */
#define RT_DEFINE_MOMENT_CODE(T, s)                                                                                    \
    RT_INLINE uint8_t rt_moment_code_##s(T x, const float *table) {                                                    \
        int code = 0;                                                                                                  \
        for (int step = 128; step; step /= 2) code += x >= (T)table[code + step] ? step : 0;                           \
        const int next = code < 255 ? code + 1 : 255;                                                                  \
        const T below = (T)table[code], half = ((T)table[next] - below) * (T)0.5;                                      \
        return (uint8_t)(x - below >= half ? next : code);                                                             \
    }
RT_DEFINE_MOMENT_CODE(float, f32)
RT_DEFINE_MOMENT_CODE(double, f64)
#undef RT_DEFINE_MOMENT_CODE

#endif
