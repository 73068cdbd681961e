#include "gemm.h"

#include "c/types.h"

#include <string.h>

/* Every element of y is ((0 + a b) + a b) + ... in order of k, each product rounded; the blocking below only decides
 * when a partial sum is stored in y. Wider vectors therefore give the same bits, and the widest that the processor has
 * are used. A block of b is copied to the stack in the order in which tiles read it, padded with zeros, so that there
 * are no scalar loops for remainders. */
#define GEMM_K 256
#define GEMM_M 256

/* The type of an element's arithmetic: unsigned for integers, which wrap. */
#define A     PASTE(A, SUFFIX)
#define A_f64 double
#define A_f32 float
#define A_i64 uint64_t
#define A_i32 uint32_t

/* Of y, ROWS x (VECTORS x BYTES) are held in registers. */
#define ROWS     PASTE(ROWS, SUFFIX)
#define ROWS_f64 (BYTES == 64 ? 8 : 4)
#define ROWS_f32 (BYTES == 64 ? 8 : 4)
#define ROWS_i64 2
#define ROWS_i32 4
#define VECTORS  2

#define T     TYPE(SUFFIX)
#define PART  "../gemm_reference.inc"
#define TYPES FLOATS
#include "c/sets.inc"

#define SET plain
#define TARGET
#define BYTES 16
#define PART  "../gemm_reference.inc"
#define TYPES (IN_i64 | IN_i32)
#include "c/each.inc"
#undef T

#define DEFINE_GEMM(T, s, IMPLEMENTATION)                                                                              \
    void rt_gemm_reference_##s(RT_GEMM_OPERANDS(T)) {                                                                  \
        if (k == 0)                                                                                                    \
            for (int64_t i = 0; i < m; i++) memset(y + i * y_row, 0, (size_t)n * sizeof *y);                           \
        else                                                                                                           \
            (IMPLEMENTATION)(y, y_row, a, trans_a ? 1 : a_row, trans_a ? a_row : 1, b, trans_b ? 1 : b_row,            \
                             trans_b ? b_row : 1, m, k, n, 1);                                                         \
    }

DEFINE_GEMM(float, f32, BEST(gemm_f32))
DEFINE_GEMM(double, f64, BEST(gemm_f64))
DEFINE_GEMM(int64_t, i64, gemm_i64_plain)
DEFINE_GEMM(int32_t, i32, gemm_i32_plain)

#define DEFINE_GEMM_ADD(T, s, IMPLEMENTATION)                                                                          \
    void rt_gemm_reference_add_##s(T *y, int64_t y_row, const T *a, int64_t a_row, const T *b, int64_t b_row,          \
                                   int64_t m, int64_t k, int64_t n, int first) {                                       \
        (IMPLEMENTATION)(y, y_row, a, a_row, 1, b, b_row, 1, m, k, n, first);                                          \
    }

DEFINE_GEMM_ADD(float, f32, BEST(gemm_f32))
DEFINE_GEMM_ADD(double, f64, BEST(gemm_f64))
