#include "gemm.h"

#include <string.h>

/* Every element of y is ((0 + a b) + a b) + ... in order of k, each product rounded; the blocking below only decides
 * when a partial sum is stored in y. Wider vectors therefore give the same bits, and the widest that the processor has
 * are used. A block of b is copied to the stack in the order in which tiles read it, padded with zeros, so that there
 * are no scalar loops for remainders. */
#define GEMM_K       256
#define GEMM_M       256
#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)

#define T    float
#define A    float
#define NAME gemm_f32
#define TARGET
#define BYTES   16
#define ROWS    4
#define VECTORS 2
#include "gemm_reference.inc"

#define T    double
#define A    double
#define NAME gemm_f64
#define TARGET
#define BYTES   16
#define ROWS    4
#define VECTORS 2
#include "gemm_reference.inc"

#define T    int64_t
#define A    uint64_t
#define NAME gemm_i64
#define TARGET
#define BYTES   16
#define ROWS    2
#define VECTORS 2
#include "gemm_reference.inc"

#define T    int32_t
#define A    uint32_t
#define NAME gemm_i32
#define TARGET
#define BYTES   16
#define ROWS    4
#define VECTORS 2
#include "gemm_reference.inc"

#ifdef __x86_64__

#define T       float
#define A       float
#define NAME    gemm_f32_avx2
#define TARGET  __attribute__((target("avx2")))
#define BYTES   32
#define ROWS    4
#define VECTORS 2
#include "gemm_reference.inc"

#define T       double
#define A       double
#define NAME    gemm_f64_avx2
#define TARGET  __attribute__((target("avx2")))
#define BYTES   32
#define ROWS    4
#define VECTORS 2
#include "gemm_reference.inc"

#define T       float
#define A       float
#define NAME    gemm_f32_avx512
#define TARGET  __attribute__((target("avx512f")))
#define BYTES   64
#define ROWS    8
#define VECTORS 2
#include "gemm_reference.inc"

#define T       double
#define A       double
#define NAME    gemm_f64_avx512
#define TARGET  __attribute__((target("avx512f")))
#define BYTES   64
#define ROWS    8
#define VECTORS 2
#include "gemm_reference.inc"

#define WIDEST(s)                                                                                                      \
    (__builtin_cpu_supports("avx512f") ? gemm_##s##_avx512                                                             \
     : __builtin_cpu_supports("avx2")  ? gemm_##s##_avx2                                                               \
                                       : gemm_##s)
#else
#define WIDEST(s) gemm_##s
#endif

#define DEFINE_GEMM(T, s, IMPLEMENTATION)                                                                              \
    void rt_gemm_reference_##s(T *y, int64_t y_row, const T *a, int64_t a_row, int trans_a, const T *b, int64_t b_row, \
                               int trans_b, int64_t m, int64_t k, int64_t n) {                                         \
        if (k == 0)                                                                                                    \
            for (int64_t i = 0; i < m; i++) memset(y + i * y_row, 0, (size_t)n * sizeof *y);                           \
        else                                                                                                           \
            (IMPLEMENTATION)(y, y_row, a, trans_a ? 1 : a_row, trans_a ? a_row : 1, b, trans_b ? 1 : b_row,            \
                             trans_b ? b_row : 1, m, k, n, 1);                                                         \
    }

DEFINE_GEMM(float, f32, WIDEST(f32))
DEFINE_GEMM(double, f64, WIDEST(f64))
DEFINE_GEMM(int64_t, i64, gemm_i64)
DEFINE_GEMM(int32_t, i32, gemm_i32)

#define DEFINE_GEMM_ADD(T, s, IMPLEMENTATION)                                                                          \
    void rt_gemm_reference_add_##s(T *y, int64_t y_row, const T *a, int64_t a_row, const T *b, int64_t b_row,          \
                                   int64_t m, int64_t k, int64_t n, int first) {                                       \
        (IMPLEMENTATION)(y, y_row, a, a_row, 1, b, b_row, 1, m, k, n, first);                                          \
    }

DEFINE_GEMM_ADD(float, f32, WIDEST(f32))
DEFINE_GEMM_ADD(double, f64, WIDEST(f64))
