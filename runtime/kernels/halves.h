/* Rows of 16-bit floats as f32 and back, many elements at a time, with the processor's conversions where it has them.
 * The bits are those of base/number/half.h, except that a signalling NaN of fp16 becomes a quiet one. */
#ifndef RT_KERNELS_HALVES_H
#define RT_KERNELS_HALVES_H

#include <stdint.h>

/* to(n) = from(n); the arrays do not overlap. */
void rt_widen_bf16(float *to, const uint16_t *from, int64_t n);
void rt_widen_fp16(float *to, const uint16_t *from, int64_t n);

/* The reverse, rounding to nearest even. */
void rt_narrow_bf16(uint16_t *to, const float *from, int64_t n);
void rt_narrow_fp16(uint16_t *to, const float *from, int64_t n);

/* `depth` rows of a panel of pairs (Note [Panels] in base/shape/panel.h) as a panel of f32. If depth is odd, the last
 * pair's second row is not written. */
void rt_widen_panel_bf16(float *to, const uint16_t *from, int64_t depth);
void rt_widen_panel_fp16(float *to, const uint16_t *from, int64_t depth);

#endif
