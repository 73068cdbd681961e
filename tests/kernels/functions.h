/* The elementary functions of f32 (runtime/kernels/c/elementary.h) beside those of libm in f64, for tests. */
#ifndef TESTS_KERNELS_FUNCTIONS_H
#define TESTS_KERNELS_FUNCTIONS_H

#include <math.h>

#include "../../runtime/base/clones.h"
#include "../../runtime/kernels/c/math.h"

static inline double exact_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static inline double exact_softplus(double x) {
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

/* FUNCTION(name, exact, bound): the bound of the error in units in the last place of the exact result, to which
 * sweep_math.c holds each over all floats. */
#define FUNCTIONS(FUNCTION)                                                                                            \
    FUNCTION(exp, exp, 1.05)                                                                                           \
    FUNCTION(tanh, tanh, 1.85)                                                                                         \
    FUNCTION(sigmoid, exact_sigmoid, 2.35)                                                                             \
    FUNCTION(erf, erf, 1.35)                                                                                           \
    FUNCTION(sinh, sinh, 1.85)                                                                                         \
    FUNCTION(cosh, cosh, 1.65)                                                                                         \
    FUNCTION(log, log, 0.87)                                                                                           \
    FUNCTION(softplus, exact_softplus, 2.12)                                                                           \
    FUNCTION(asinh, asinh, 0.51)                                                                                       \
    FUNCTION(acosh, acosh, 0.51)                                                                                       \
    FUNCTION(atanh, atanh, 0.51)                                                                                       \
    FUNCTION(sin, sin, 1.6)                                                                                            \
    FUNCTION(cos, cos, 1.6)                                                                                            \
    FUNCTION(tan, tan, 0.51)                                                                                           \
    FUNCTION(asin, asin, 2.1)                                                                                          \
    FUNCTION(acos, acos, 1.15)                                                                                         \
    FUNCTION(atan, atan, 1.35)

/* Of each a loop, which is compiled as vectors with a tail for each instruction set. */
#define FUNCTION_LOOP(name, exact, bound)                                                                              \
    CLONES static void loop_##name(float *restrict y, const float *restrict x, int n) {                                \
        for (int i = 0; i < n; i++) y[i] = rt_##name##_f32(x[i]);                                                      \
    }
FUNCTIONS(FUNCTION_LOOP)

struct function {
    const char *name;
    float (*got)(float);
    void (*loop)(float *restrict, const float *restrict, int);
    double (*exact)(double);
    double bound;
};

#define FUNCTION_ROW(name, exact, bound) {#name, rt_##name##_f32, loop_##name, exact, bound},
static const struct function functions[] = {FUNCTIONS(FUNCTION_ROW)};
enum { NFUNCTIONS = sizeof functions / sizeof *functions };

/* Error of y in units in the last place of the exact result. */
static inline double ulps(float y, double exact) {
    if (isnan(exact)) return isnan(y) ? 0 : (double)INFINITY;
    if (isinf((float)exact) || isinf(y)) return (float)exact == y ? 0 : (double)INFINITY;
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)y - exact) / fmax(ldexp(1, exponent - 24), 0x1p-149);
}

#endif
