/* Elementary functions of f32 for elementwise loops: rt_<name>_f32. math.h includes it.
 *
 * Each takes every float; NaN gives NaN, and infinities, zeros and their signs are those of C's Annex F. Errors are at
 * most 2.35 units in the last place, of most functions less than 2; tests/kernels/functions.h has the bound of each,
 * and tests/kernels/sweep_math.c tries all floats. A function is straight arithmetic, see Note [Scalar and vector] in
 * math.h.
 *
 * Note [Polynomials]
 * Coefficients are minimax fits of this project (tests/kernels/fit_math.py prints them), evaluated by Horner's
 * rule with fused multiply-adds, which are written: the compiler makes none (and calls libm's where the processor has
 * none).
 *
 * Note [Adding a large number]
 * The last places of x + 1.5 * 2^23 are the integer nearest to x, of either sign, and taking the 1.5 * 2^23 away again
 * leaves that integer as a float; in f64 the number is 1.5 * 2^52. An integer that is added to that number as well is
 * added to the last places alone: so an exponent gets its bias, and 23 or 52 places to the left it is a power of 2.
 *
 * Note [Wide arithmetic]
 * Where f32 would need two numbers for each value, a function computes in f64: a vector of f32 is two of f64. */
#ifndef RT_KERNELS_C_ELEMENTARY_H
#define RT_KERNELS_C_ELEMENTARY_H

#include <math.h>
#include <stdint.h>

#include "../../base/number/half.h"

/* RT_POLYNOMIAL_N(fma, x, coefficients): a polynomial of x with N coefficients, that of the highest power first. */
#define RT_POLYNOMIAL_3(fma, x, a, b, c)   fma(fma(a, x, b), x, c)
#define RT_POLYNOMIAL_4(fma, x, a, b, ...) RT_POLYNOMIAL_3(fma, x, fma(a, x, b), __VA_ARGS__)
#define RT_POLYNOMIAL_5(fma, x, a, b, ...) RT_POLYNOMIAL_4(fma, x, fma(a, x, b), __VA_ARGS__)
#define RT_POLYNOMIAL_6(fma, x, a, b, ...) RT_POLYNOMIAL_5(fma, x, fma(a, x, b), __VA_ARGS__)
#define RT_POLYNOMIAL_7(fma, x, a, b, ...) RT_POLYNOMIAL_6(fma, x, fma(a, x, b), __VA_ARGS__)
#define RT_POLYNOMIAL_8(fma, x, a, b, ...) RT_POLYNOMIAL_7(fma, x, fma(a, x, b), __VA_ARGS__)
#define RT_POLYNOMIAL_9(fma, x, a, b, ...) RT_POLYNOMIAL_8(fma, x, fma(a, x, b), __VA_ARGS__)

#define RT_ROUNDER_F32 0x1.8p23f
#define RT_ROUNDER_F64 0x1.8p52

RT_INLINE uint64_t rt_f64_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

RT_INLINE double rt_f64_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The sign of `of` times that of x, and the magnitude of x. */
RT_INLINE float rt_times_sign_f32(float x, uint32_t of) {
    return rt_f32_of_bits(rt_f32_bits(x) ^ (of & 0x80000000u));
}

/* Exponentials */

/* x / ln(2), rounded to an integer n, as RT_ROUNDER_F32 + bias + n: n + bias are the last places of its bits (Note
 * [Adding a large number]). */
RT_INLINE float rt_exp_power_f32(float x, float bias) {
    return fmaf(x, 1.44269504f, RT_ROUNDER_F32 + bias);
}

/* 2^(n + bias - 127) of the bits of rt_exp_power_f32, for 0 < n + bias < 256. */
RT_INLINE float rt_exp_scale_f32(uint32_t bits) {
    return rt_f32_of_bits(bits << 23);
}

/* e^r - 1 for |r| <= ln(2) / 2. */
RT_INLINE float rt_expm1_near_f32(float r) {
    float p = RT_POLYNOMIAL_5(fmaf, r, 0.0013814559f, 0.0083687357f, 0.04166839f, 0.1666652f, 0.49999994f);
    return fmaf(p, r * r, r);
}

/* The same of r = x - n ln(2) for a whole n; ln(2) is two numbers of which the first times n is exact. Then e^x = 2^n
 * (e^r - 1) + 2^n, one fused operation. */
RT_INLINE float rt_exp_rest_f32(float x, float n) {
    return rt_expm1_near_f32(fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x)));
}

/* 2^n is two factors, so that results below 2^-126 are rounded once and those beyond the largest float are inf. n is
 * bounded as an integer, which is one instruction for either side and leaves NaN in r. Below -104, where the result is
 * 0, r is beyond the polynomial's range. A GPU has its own, of 2 units in the last place and half as many
 * instructions. */
RT_INLINE float rt_exp_f32(float x) {
#ifdef __CUDA_ARCH__
    return expf(x);
#else
    const float bias = 2 * 127;
    const int32_t least = (int32_t)rt_f32_bits(RT_ROUNDER_F32 + bias - 151), most = least + 151 + 129;
    int32_t rounded = (int32_t)rt_f32_bits(rt_exp_power_f32(x, bias)), low = rounded > least ? rounded : least;
    uint32_t power = (uint32_t)(low < most ? low : most), half = power >> 1 << 23;
    float rest = rt_exp_rest_f32(x, rt_f32_of_bits(power) - (RT_ROUNDER_F32 + bias));
    float scale = rt_f32_of_bits(half), value = fmaf(rest, scale, scale) * rt_f32_of_bits((power << 23) - half);
    return x < -104.0f ? 0.0f : value;
#endif
}

/* ONNX Tanh-13: of h = (e^2|x| - 1) / 2, h / (h + 1), which is 1 from 9.02 on; of a small h, h - h h / (h + 1), where
 * what rounding the sum loses counts less. n is at most 26, bounded as an integer (see rt_exp_f32), and the larger it
 * is, the less an error of h counts: one number is enough for ln(2). */
RT_INLINE float rt_tanh_f32(float x) {
    const float bias = 126;
    const int32_t most = (int32_t)rt_f32_bits(RT_ROUNDER_F32 + bias + 26);
    float magnitude = fabsf(x), twice = magnitude + magnitude;
    int32_t rounded = (int32_t)rt_f32_bits(rt_exp_power_f32(twice, bias));
    uint32_t power = (uint32_t)(rounded < most ? rounded : most);
    float n = rt_f32_of_bits(power) - (RT_ROUNDER_F32 + bias);
    float rest = rt_expm1_near_f32(fmaf(n, -0.6931472f, twice));
    float scale = rt_exp_scale_f32(power), h = fmaf(rest, scale, scale - 0.5f), far = h / (h + 1.0f);
    float value = h < 0.5f ? fmaf(-h, far, h) : far;
    return copysignf(magnitude > 9.02f ? 1.0f : value, x);
}

/* ONNX Sigmoid-13: of e = e^-|x|, which does not overflow, e / (1 + e) or 1 / (1 + e). All in units of 2^-64, since e
 * may be less than the least normal number, and times 1.75, since a sum just below 2 is rounded by half as much as one
 * just above 1. On a GPU overflow is harmless, and its own division, of 2 units in the last place, has no branch. */
RT_INLINE float rt_sigmoid_f32(float x) {
#ifdef __CUDA_ARCH__
    return __fdividef(1.0f, 1.0f + rt_exp_f32(-x));
#else
    const float bias = 127 + 64, one = 0x1.cp64f;
    float magnitude = fabsf(x), bounded = magnitude > 104.0f ? -104.0f : -magnitude;
    float power = rt_exp_power_f32(bounded, bias), scale = rt_f32_of_bits((rt_f32_bits(power) << 23) + 0x600000);
    float e = fmaf(rt_exp_rest_f32(bounded, power - (RT_ROUNDER_F32 + bias)), scale, scale);
    return (x < 0 ? e : one) / (one + e);
#endif
}

/* ONNX Erf-13: x + x P(x^2) near 0, else 1 - e^-(|x| + |x| Q(|x|)), which is 1 from 4 on. That power of e is at most
 * 0.2, so it may be less exact: r needs one number for ln(2) and the polynomial one coefficient less. */
RT_INLINE float rt_erf_f32(float x) {
    float magnitude = fabsf(x), square = x * x;
    float p =
        RT_POLYNOMIAL_6(fmaf, square, -0.0005953739f, 0.00498594f, -0.02676172f, 0.11281683f, -0.3761248f, 0.12837915f);
    float near = fmaf(x, p, x);
    float t = magnitude > 4.0f ? 4.0f : magnitude;
    float q =
        RT_POLYNOMIAL_6(fmaf, t, -0.00021398593f, 0.003214963f, -0.022889987f, 0.10526188f, 0.6357183f, 0.12851436f);
    float exponent = fmaf(t, q, t), power = rt_exp_power_f32(-exponent, 127);
    float r = fmaf(power - (RT_ROUNDER_F32 + 127), -0.6931472f, -exponent);
    float e = RT_POLYNOMIAL_4(fmaf, r, 0.0083125088f, 0.041890274f, 0.16667115f, 0.49999231f);
    e = fmaf(e, r * r, r);
    float scale = rt_exp_scale_f32(rt_f32_bits(power));
    float far = fmaf(-e, scale, 1.0f - scale);
    return copysignf(magnitude < 0.92f ? near : far, x);
}

/* A quarter of e^x - 1 for 0 <= x < 90. */
RT_INLINE float rt_expm1_quarter_f32(float x) {
    float power = rt_exp_power_f32(x, 125), scale = rt_exp_scale_f32(rt_f32_bits(power));
    return fmaf(rt_exp_rest_f32(x, power - (RT_ROUNDER_F32 + 125)), scale, scale - 0.25f);
}

/* ONNX Sinh-9: with e = e^|x| - 1, (e + e / (e + 1)) / 2, or of a small x, whose quotient is about e, e - e (e / (2 e +
 * 2)). A quarter of e does not overflow where the result does not, but loses places of the least numbers. ONNX Cosh-9:
 * (e^|x| + e^-|x|) / 2. */
RT_INLINE float rt_sinh_f32(float x) {
#ifdef __CUDA_ARCH__
    return sinhf(x);
#else
    float magnitude = fabsf(x), e = rt_expm1_quarter_f32(magnitude > 89.5f ? 89.5f : magnitude);
    float quotient = e / (e + e + 0.5f), near = 4.0f * fmaf(-e, quotient, e), far = e + e + quotient;
    float value = magnitude < 1.0f ? near : far;
    return copysignf(magnitude < 0x1p-12f ? magnitude : value, x);
#endif
}

RT_INLINE float rt_cosh_f32(float x) {
#ifdef __CUDA_ARCH__
    return coshf(x);
#else
    float magnitude = fabsf(x), e = rt_expm1_quarter_f32(magnitude > 89.5f ? 89.5f : magnitude) + 0.25f;
    return 2.0f * (e + 0.0625f / e);
#endif
}

/* Logarithms */

/* log(x 2^more) of a normal x > 0: of x = m 2^e with m = 1 + f in [sqrt(1/2), sqrt(2)), e ln(2) + log(1 + f). */
RT_INLINE float rt_log_normal_f32(float x, float more) {
    uint32_t bits = rt_f32_bits(x) - 0x3f3504f3u;
    float e = (float)((int32_t)bits >> 23) + more;
    float f = rt_f32_of_bits((bits & 0x7fffff) + 0x3f3504f3u) - 1.0f;
    float p = RT_POLYNOMIAL_8(fmaf, f, -0.0763443f, 0.1276155f, -0.13160194f, 0.14201762f, -0.16623357f, 0.20001227f,
                              -0.25000823f, 0.3333333f);
    float square = f * f, tail = fmaf(p * f, square, e * -2.12194440e-4f);
    return fmaf(e, 0.693359375f, f + fmaf(-0.5f, square, tail));
}

RT_INLINE float rt_log_f32(float x) {
    int subnormal = x < 0x1p-126f;
    float value = rt_log_normal_f32(subnormal ? x * 0x1p25f : x, subnormal ? -25.0f : 0.0f);
    float positive = x < (float)INFINITY ? value : x;
    float known = x == 0 ? (float)-INFINITY : positive;
    return x < 0 ? (float)NAN : known;
}

/* log(1 + e) for 0 <= e <= 1: the logarithm of the rounded sum, plus what rounding the sum lost. */
RT_INLINE float rt_log1p_unit_f32(float e) {
    float sum = 1.0f + e;
    return rt_log_normal_f32(sum, 0.0f) + (e - (sum - 1.0f)) / sum;
}

/* ONNX Softplus-1: log(1 + e^x) = max(x, 0) + log(1 + e^-|x|). */
RT_INLINE float rt_softplus_f32(float x) {
    return (x < 0 ? 0.0f : x) + rt_log1p_unit_f32(rt_exp_f32(-fabsf(x)));
}

/* log(x) of a normal x > 0, with a relative error of 2^-44 (Note [Wide arithmetic]): as rt_log_f32, with log(1 + f) =
 * 2 s + s^3 P(s^2), s = f / (2 + f). That of inf is one of a finite number. */
RT_INLINE double rt_log_wide(double x) {
    const uint64_t one = rt_f64_bits(1.0), root = rt_f64_bits(0x1.6a09e667f3bcdp-1);
    uint64_t exponent = (rt_f64_bits(x) + (one - root)) >> 52; /* e + 1023 */
    double f = rt_f64_of_bits(rt_f64_bits(x) + one - (exponent << 52)) - 1.0;
    double e = rt_f64_of_bits(exponent | rt_f64_bits(0x1p52)) - (0x1p52 + 1023);
    double s = f / (f + 2.0), square = s * s;
    double p = RT_POLYNOMIAL_5(fma, square, 0.19583614256124282, 0.22176227072311441, 0.28572108214505298,
                               0.39999995630969537, 0.66666666675773811);
    return fma(e, 0x1.62e42fefa39efp-1, fma(s * square, p, s + s));
}

/* ONNX Asinh-9, Acosh-9 and Atanh-9 by their logarithms; near 0, where these lose the small number beside 1, by the
 * first two terms of their series. */
RT_INLINE float rt_asinh_f32(float x) {
#ifdef __CUDA_ARCH__
    return asinhf(x);
#else
    double size = fabs((double)x), far = rt_log_wide(size + sqrt(fma(size, size, 1.0)));
    double near = fma(size * size, size * (-1.0 / 6), size);
    double value = size < 0x1p-11 ? near : far;
    return copysignf((float)(size < (double)INFINITY ? value : size), x);
#endif
}

RT_INLINE float rt_acosh_f32(float x) {
#ifdef __CUDA_ARCH__
    return acoshf(x);
#else
    double wide = (double)x;
    double value = rt_log_wide(wide + sqrt(fma(wide, wide, -1.0)));
    double known = wide < (double)INFINITY ? value : wide;
    return (float)(wide >= 1.0 ? known : (double)NAN);
#endif
}

RT_INLINE float rt_atanh_f32(float x) {
#ifdef __CUDA_ARCH__
    return atanhf(x);
#else
    double size = fabs((double)x), far = 0.5 * rt_log_wide((1.0 + size) / (1.0 - size));
    double near = fma(size * size, size * (1.0 / 3), size);
    double value = size < 0x1p-11 ? near : far;
    double known = size == 1.0 ? (double)INFINITY : value;
    return copysignf((float)(size <= 1.0 ? known : (double)NAN), x);
#endif
}

/* ONNX Pow-15 of two f32, the values of C's pow: 2^t with t = b log2|a|, whose sign is a's if b is odd. */
RT_INLINE float rt_pow_f32(float a, float b) {
#ifdef __CUDA_ARCH__
    return powf(a, b);
#else
    double size = fabs((double)a), log2 = rt_log_wide(size) * 0x1.71547652b82fep+0;
    log2 = size < (double)INFINITY ? log2 : size;
    log2 = size == 0 ? -(double)INFINITY : log2;
    double t = (double)b * log2, low = t < -200.0 ? -200.0 : t, bounded = low > 200.0 ? 200.0 : low;
    double power = bounded + (RT_ROUNDER_F64 + 1023), r = bounded - (power - (RT_ROUNDER_F64 + 1023));
    r *= 0x1.62e42fefa39efp-1;
    double p = RT_POLYNOMIAL_7(fma, r, 2.4708217521962703e-05, 0.00019908988347641567, 0.0013889197587155927,
                               0.0083332817328431071, 0.041666664400077463, 0.16666666784699941, 0.50000000004280531);
    double scale = rt_f64_of_bits(rt_f64_bits(power) << 52);
    float magnitude = (float)fma(fma(p, r * r, r), scale, scale);
    magnitude = fabsf(a) == 1.0f || b == 0 ? 1.0f : magnitude;
    float half = 0.5f * b;
    int whole = rintf(b) == b, odd = whole & (rintf(half) != half);
    float value = rt_times_sign_f32(magnitude, odd ? rt_f32_bits(a) : 0);
    return (a < 0) & (a > (float)-INFINITY) & !whole ? (float)NAN : value;
#endif
}

/* Angles */

/* |x| = (4 k + quadrant) pi/2 + r with an integer k and |r| <= pi/4: r. Multiplies by 2/pi in two numbers; of the
 * larger x, which are multiples of 2^27, 2^53 or 2^79, by those places of 2/pi whose products are not multiples of 4.
 * The product's last place may be 1/4, so what is left of it is rounded once more. That of inf is NaN. */
RT_INLINE double rt_angle_f32(float x, uint32_t *quadrant) {
    const double size = fabs((double)x);
    double first = 0x1.d5f47d4d37703p-78, second = 0x1.b6295993c4390p-132;
    first = size < 0x1p102 ? 0x1.529fc2757d1f5p-52 : first;
    second = size < 0x1p102 ? 0x1.a6ee06db14acdp-107 : second;
    first = size < 0x1p76 ? 0x1.b9391054a7f0ap-26 : first;
    second = size < 0x1p76 ? -0x1.505c1596447e5p-81 : second;
    first = size < 0x1p50 ? 0x1.45f306dc9c883p-1 : first;
    second = size < 0x1p50 ? -0x1.6b01ec5417056p-55 : second;
    double product = size * first, whole = product + RT_ROUNDER_F64;
    double left = fma(size, second, fma(size, first, -product)) + (product - (whole - RT_ROUNDER_F64));
    double more = left + RT_ROUNDER_F64;
    *quadrant = (uint32_t)rt_f64_bits(whole) + (uint32_t)rt_f64_bits(more);
    return (left - (more - RT_ROUNDER_F64)) * 0x1.921fb54442d18p+0;
}

/* The sine of the angle r + quadrant pi/2. */
RT_INLINE float rt_sine_of_f32(float r, uint32_t quadrant) {
    float square = r * r;
    float s = RT_POLYNOMIAL_3(fmaf, square, -0.00019515204f, 0.0083321602f, -0.16666655f);
    float c = RT_POLYNOMIAL_4(fmaf, square, 2.4433066e-5f, -0.0013887316f, 0.041666646f, -0.5f);
    float value = quadrant & 1 ? fmaf(c, square, 1.0f) : fmaf(s, r * square, r);
    return rt_times_sign_f32(value, quadrant << 30);
}

/* ONNX Sin-7, Cos-7, Tan-7. */
RT_INLINE float rt_sin_f32(float x) {
#ifdef __CUDA_ARCH__
    return sinf(x);
#else
    uint32_t quadrant;
    float r = (float)rt_angle_f32(x, &quadrant);
    return rt_times_sign_f32(rt_sine_of_f32(r, quadrant), rt_f32_bits(x));
#endif
}

RT_INLINE float rt_cos_f32(float x) {
#ifdef __CUDA_ARCH__
    return cosf(x);
#else
    uint32_t quadrant;
    float r = (float)rt_angle_f32(x, &quadrant);
    return rt_sine_of_f32(r, quadrant + 1);
#endif
}

RT_INLINE float rt_tan_f32(float x) {
#ifdef __CUDA_ARCH__
    return tanf(x);
#else
    uint32_t quadrant;
    double r = rt_angle_f32(x, &quadrant), square = r * r;
    double s = RT_POLYNOMIAL_4(fma, square, 2.7181124940774994e-06, -0.00019839311314656096, 0.008333329301883307,
                               -0.16666666640771488);
    s = fma(s, r * square, r);
    double c = RT_POLYNOMIAL_6(fma, square, -2.7205667000370498e-07, 2.479945909434505e-05, -0.0013888883496028835,
                               0.04166666661944405, -0.5, 1.0);
    double value = quadrant & 1 ? -c / s : s / c;
    return rt_times_sign_f32((float)value, rt_f32_bits(x));
#endif
}

/* pi / 2 is the sum of these. */
#define RT_RIGHT_ANGLE      1.5707964f
#define RT_RIGHT_ANGLE_REST -4.371139e-8f

/* ONNX Atan-7: t + t^3 P(t^2) of t = |x|, and beyond 1 pi/2 less that of t = 1 / |x|. */
RT_INLINE float rt_atan_f32(float x) {
#ifdef __CUDA_ARCH__
    return atanf(x);
#else
    float magnitude = fabsf(x), t = magnitude > 1.0f ? 1.0f / magnitude : magnitude, square = t * t;
    float p = RT_POLYNOMIAL_9(fmaf, square, -0.0017936065f, 0.010914538f, -0.031177719f, 0.057957466f, -0.084034429f,
                              0.10952183f, -0.14264241f, 0.19998548f, -0.33333299f);
    float near = fmaf(p, t * square, t);
    return copysignf(magnitude > 1.0f ? RT_RIGHT_ANGLE - (near - RT_RIGHT_ANGLE_REST) : near, x);
#endif
}

/* The arcsine of |x| <= 1/2, or half the arccosine of a larger |x|, as s + *rest with s = |x| or sqrt((1 - |x|) / 2):
 * s + s^3 P(s^2). */
RT_INLINE float rt_arc_f32(float magnitude, float *rest) {
    float square = magnitude > 0.5f ? fmaf(-0.5f, magnitude, 0.5f) : magnitude * magnitude;
    float s = magnitude > 0.5f ? sqrtf(square) : magnitude;
    float p = RT_POLYNOMIAL_5(fmaf, square, 0.042166296f, 0.024179521f, 0.045470375f, 0.074952977f, 0.16666752f);
    *rest = p * (s * square);
    return s;
}

/* ONNX Asin-7, Acos-7. */
RT_INLINE float rt_asin_f32(float x) {
#ifdef __CUDA_ARCH__
    return asinf(x);
#else
    float magnitude = fabsf(x), rest, s = rt_arc_f32(magnitude, &rest);
    float far = (RT_RIGHT_ANGLE - 2.0f * s) - (2.0f * rest - RT_RIGHT_ANGLE_REST);
    return copysignf(magnitude > 0.5f ? far : s + rest, x);
#endif
}

RT_INLINE float rt_acos_f32(float x) {
#ifdef __CUDA_ARCH__
    return acosf(x);
#else
    float magnitude = fabsf(x), rest, s = rt_arc_f32(magnitude, &rest), arc = s + rest;
    float far = x > 0 ? 2.0f * arc : 2.0f * RT_RIGHT_ANGLE - (2.0f * arc - 2.0f * RT_RIGHT_ANGLE_REST);
    return magnitude > 0.5f ? far : RT_RIGHT_ANGLE - (copysignf(arc, x) - RT_RIGHT_ANGLE_REST);
#endif
}

#endif
