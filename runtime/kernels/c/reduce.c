#include "kernels.h"

#include "../halves.h"
#include "internal.h"
#include "math.h"
#include "types.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    LANES = RT_LANES,
    CHAINS = 8,        /* vectors, or rows, that are reduced at a time */
    BLOCK = 64,        /* rows that are read again for each lane; a multiple of LANES */
    TILE = 128,        /* neighbouring columns that are reduced together, where the reduced dimension is not the last */
    ROW_BLOCK = 512,   /* elements of a row of halves that are widened together */
    BAND = 64,         /* short rows that are reduced together, if the last dimension is reduced */
    FOLDS = 2,         /* reductions that read one tensor together */
    LONG = 2048,       /* elements of a row that is read in pieces, if there are fewer rows than CHAINS */
    PIECE = 4096,      /* elements of a row that a thread reads at a time; a multiple of LANES */
    PIECES = 128,      /* pieces of which partial results are kept */
    ABREAST_MOST = 512 /* columns of a scan at a time */
};

/* How many rows of r elements one call reduces. */
static inline int64_t rows_together(int64_t r) {
    return r < BAND / CHAINS ? BAND : CHAINS;
}

#define ARGBEST_ROWS (1 << 30) /* whose positions an INDEX of 32 bits holds */

/* The type of sums and products: f64 for floats, unsigned for integers, which wrap. INDEX is as wide as T. */
#define SUM       PASTE(SUM, SUFFIX)
#define SUM_f64   double
#define SUM_f32   double
#define SUM_i64   uint64_t
#define SUM_i32   uint32_t
#define INDEX     PASTE(INDEX, SUFFIX)
#define INDEX_f64 int64_t
#define INDEX_f32 int32_t
#define INDEX_i64 int64_t
#define INDEX_i32 int32_t

#define KEEP_BYTES 32
static const uint8_t keep_bytes[2 * KEEP_BYTES] = {[0 ... KEEP_BYTES - 1] = 0xff};

#if defined __clang__ || __GNUC__ >= 12
#define SHUFFLE(vector, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(vector, a, b, ...) __builtin_shuffle(a, b, (vector){__VA_ARGS__})
#endif

#define T     TYPE(SUFFIX)
#define PART  "larger.inc"
#define TYPES NUMBERS
#include "each.inc"

#define PART  "folds.inc"
#define TYPES NUMBERS
#include "sets.inc"

#define BEST_OF(stem) BEST_(NAME(stem))
#define BEST_(stem)   BEST(stem)

#define PART  "reduce.inc"
#define TYPES NUMBERS
#include "each.inc"

#define PART  "reduce_max.inc"
#define TYPES HALVES
#include "each.inc"
#undef T

/* dx first holds the exclusive products. The sums run against the direction of the scan. */
#define DEFINE_CUMPROD_GRAD(T, s)                                                                                      \
    void rt_cumprod_grad_##s(T *dx, const T *x, const T *dy, int64_t outer, int64_t c, int64_t inner, int exclusive,   \
                             int reverse) {                                                                            \
        rt_cumprod_##s(dx, x, outer, c, inner, 1, reverse);                                                            \
        _Pragma("omp parallel for collapse(2) schedule(static) if (outer * c * inner >= PARALLEL_WORK)") for (         \
            int64_t o = 0; o < outer; o++) for (int64_t j = 0; j < inner; j++) {                                       \
            double sum = 0, behind_x = 0, behind_dy = 0;                                                               \
            for (int64_t i = c - 1; i >= 0; i--) {                                                                     \
                const int64_t at = (o * c + (reverse ? c - 1 - i : i)) * inner + j;                                    \
                sum = (exclusive ? behind_dy : (double)dy[at]) + behind_x * sum;                                       \
                behind_x = (double)x[at];                                                                              \
                behind_dy = (double)dy[at];                                                                            \
                dx[at] = (T)((double)dx[at] * sum);                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }

RT_FLOATS(DEFINE_CUMPROD_GRAD)

#define DEFINE_RANGE(T, s, WIDE)                                                                                       \
    void rt_range_##s(T *y, int64_t count, T first, T delta, int64_t start) {                                          \
        _Pragma("omp parallel for schedule(static) if (count >= PARALLEL_WORK)") for (int64_t i = 0; i < count; i++)   \
            y[i] = (T)((WIDE)first + (WIDE)(start + i) * (WIDE)delta);                                                 \
    }

DEFINE_RANGE(float, f32, double)
DEFINE_RANGE(double, f64, double)
DEFINE_RANGE(int64_t, i64, uint64_t)
DEFINE_RANGE(int32_t, i32, uint32_t)

enum { SQUARE_BLOCK = 1 << 14, SQUARE_PARTS = 256, SQUARE_LANES = 32 };

/* Fixed-size blocks are summed separately, then added in order: the result does not depend on the number of threads. */
#define DEFINE_SUM_SQUARES(T, s)                                                                                       \
    static inline double square_##s(T x) {                                                                             \
        return (double)WIDEN_##s(x) * (double)WIDEN_##s(x);                                                            \
    }                                                                                                                  \
    CLONES static double square_block_##s(const T *x, int64_t n) {                                                     \
        double sum[SQUARE_LANES] = {0};                                                                                \
        for (int64_t i = 0; i + SQUARE_LANES <= n; i += SQUARE_LANES)                                                  \
            for (int l = 0; l < SQUARE_LANES; l++) sum[l] += square_##s(x[i + l]);                                     \
        for (int64_t i = n - n % SQUARE_LANES; i < n; i++) sum[i % SQUARE_LANES] += square_##s(x[i]);                  \
        for (int width = SQUARE_LANES / 2; width > 0; width /= 2)                                                      \
            for (int l = 0; l < width; l++) sum[l] += sum[l + width];                                                  \
        return sum[0];                                                                                                 \
    }                                                                                                                  \
    static double sum_squares_##s(const T *x, int64_t n) {                                                             \
        double part[SQUARE_PARTS], total = 0;                                                                          \
        for (int64_t first = 0; first < n; first += SQUARE_PARTS * SQUARE_BLOCK) {                                     \
            const int64_t left = n - first, blocks = min_i64(SQUARE_PARTS, (left + SQUARE_BLOCK - 1) / SQUARE_BLOCK);  \
            _Pragma("omp parallel for schedule(static) if (blocks > 1)") for (int64_t b = 0; b < blocks; b++)          \
                part[b] =                                                                                              \
                    square_block_##s(x + first + b * SQUARE_BLOCK, min_i64(SQUARE_BLOCK, left - b * SQUARE_BLOCK));    \
            for (int64_t b = 0; b < blocks; b++) total += part[b];                                                     \
        }                                                                                                              \
        return total;                                                                                                  \
    }                                                                                                                  \
    void rt_sum_squares_##s(double *y, const T *x, int64_t n) {                                                        \
        *y = sum_squares_##s(x, n);                                                                                    \
    }                                                                                                                  \
    void rt_add_squares_##s(double *y, const double *sum, const T *x, int64_t n) {                                     \
        *y = *sum + sum_squares_##s(x, n);                                                                             \
    }

RT_FLOATS(DEFINE_SUM_SQUARES)
RT_HALVES(DEFINE_SUM_SQUARES)
