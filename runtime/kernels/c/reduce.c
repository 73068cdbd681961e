#include "kernels.h"

#include "internal.h"
#include "math.h"

#include <math.h>

/* SUM is the type of sums and products: f64 for floats, unsigned for integers, which wrap. */
#define T         float
#define SUFFIX    f32
#define SUM       double
#define LOWEST    (-INFINITY)
#define HIGHEST   INFINITY
#define IS_NAN(x) ((x) != (x))
#include "reduce.inc"

#define T         double
#define SUFFIX    f64
#define SUM       double
#define LOWEST    (-(double)INFINITY)
#define HIGHEST   (double)INFINITY
#define IS_NAN(x) ((x) != (x))
#include "reduce.inc"

#define T         int64_t
#define SUFFIX    i64
#define SUM       uint64_t
#define LOWEST    INT64_MIN
#define HIGHEST   INT64_MAX
#define IS_NAN(x) 0
#include "reduce.inc"

#define T         int32_t
#define SUFFIX    i32
#define SUM       uint32_t
#define LOWEST    INT32_MIN
#define HIGHEST   INT32_MAX
#define IS_NAN(x) 0
#include "reduce.inc"

#define DEFINE_RANGE(T, s, WIDE)                                                                                   \
    void rt_range_##s(T *y, int64_t count, T first, T delta, int64_t start) {                                      \
        _Pragma("omp parallel for schedule(static) if (count >= PARALLEL_WORK)") for (int64_t i = 0; i < count;    \
                                                                                      i++) y[i] =                  \
            (T)((WIDE)first + (WIDE)(start + i) * (WIDE)delta);                                                    \
    }

DEFINE_RANGE(float, f32, double)
DEFINE_RANGE(double, f64, double)
DEFINE_RANGE(int64_t, i64, uint64_t)
DEFINE_RANGE(int32_t, i32, uint32_t)
