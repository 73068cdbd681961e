#include "kernels.h"

#include "internal.h"
#include "math.h"
#include "stored.h"
#include "types.h"

#include <math.h>
#include <string.h>

#define SUMS  32    /* partial results (Note [Order of sums]): two vectors, since an addition has a long latency */
#define BLOCK 512   /* elements that are summed in their own type; a multiple of SUMS */
#define AHEAD 16384 /* bytes at most of a next row that is asked for early */

/* Note [Terms of softmax]
 * e^x for x <= 0, in units of 2^-64. In these units even the smallest relevant value, 2^-150, is a normal number, so a
 * single factor can apply the power of two. For x below -104 the result is that of -104: it changes no sum that is at
 * least 1, and is 0 after the division. */
#define UNIT_f32 0x1p-64
#define UNIT_f64 1.0

static inline float term_f32(float x) {
    const float bias = 127 + 64, bounded = x < -104.0f ? -104.0f : x, power = rt_exp_power_f32(bounded, bias);
    const float scale = rt_exp_scale_f32(rt_f32_bits(power));
    return fmaf(rt_exp_rest_f32(bounded, power - (RT_ROUNDER_F32 + bias)), scale, scale);
}

static inline double term_f64(double x) {
    return exp(x);
}

#define T     TYPE(WIDE)
#define E     TYPE(SUFFIX)
#define PART  "normalize.inc"
#define TYPES (FLOATS | HALVES)
#include "each.inc"

#define PART  "classes.inc"
#define TYPES (FLOATS | HALVES)
#include "each.inc"
