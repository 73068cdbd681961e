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

/* Blocks of one size are summed apart, then in order: the result does not depend on how many threads share them. */
#define DEFINE_SUM_SQUARES(T, s)                                                                                   \
    static double square_block_##s(const T *x, int64_t n) {                                                        \
        double sum[8] = {0};                                                                                       \
        for (int64_t i = 0; i + 8 <= n; i += 8)                                                                    \
            for (int l = 0; l < 8; l++) sum[l] = fma((double)x[i + l], (double)x[i + l], sum[l]);                  \
        for (int64_t i = n - n % 8; i < n; i++) sum[i % 8] = fma((double)x[i], (double)x[i], sum[i % 8]);          \
        return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));                  \
    }                                                                                                              \
    void rt_sum_squares_##s(double *y, const T *x, int64_t n) {                                                    \
        double part[SQUARE_PARTS], total = 0;                                                                      \
        for (int64_t first = 0; first < n; first += SQUARE_PARTS * SQUARE_BLOCK) {                                 \
            const int64_t left = n - first,                                                                        \
                          blocks = min_i64(SQUARE_PARTS, (left + SQUARE_BLOCK - 1) / SQUARE_BLOCK);                \
            _Pragma("omp parallel for schedule(static) if (blocks > 1)") for (int64_t b = 0; b < blocks;           \
                                                                              b++) part[b] =                       \
                square_block_##s(x + first + b * SQUARE_BLOCK, min_i64(SQUARE_BLOCK, left - b * SQUARE_BLOCK));    \
            for (int64_t b = 0; b < blocks; b++) total += part[b];                                                 \
        }                                                                                                          \
        *y = total;                                                                                                \
    }

enum { SQUARE_BLOCK = 1 << 14, SQUARE_PARTS = 256 };

DEFINE_SUM_SQUARES(float, f32)
DEFINE_SUM_SQUARES(double, f64)
