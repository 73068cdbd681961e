/* Note [Few rows of halves]
 * Where a product of packed 16-bit floats has few rows, a block of weights serves too few multiplications to be worth
 * writing it to memory as f32: pairs are widened in registers. The sums are those of Note [Products of packed halves],
 * bit for bit: chains in order of k, of each block of k by itself, which are then added. A step of decoding takes the
 * time in which b is read, so what lies behind it in memory is prefetched throughout. */
#include "gemm.h"

#include "../base/shape/panel.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET  __attribute__((target("avx512f,avx512bw,fma")))
#define INLINED TARGET static inline __attribute__((always_inline))
#define ROWS    RT_GEMM_FEW_ROWS
#define AHEAD   64 /* prefetch distance, in pairs of rows */

/* The first and the second elements of pairs. */
INLINED void widen_bf16(__m512 *first, __m512 *second, __m512i pairs) {
    *first = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    *second = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

INLINED void widen_fp16(__m512 *first, __m512 *second, __m512i pairs) {
    const __m512i apart =
        _mm512_permutexvar_epi16(_mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26,
                                                  24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0),
                                 pairs);
    *first = _mm512_cvtph_ps(_mm512_castsi512_si256(apart));
    *second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(apart, 1));
}

/* sum(rows,2) += a(rows) (low, high) */
INLINED void add_row(__m512 sum[ROWS][2], const float *a, __m512 low, __m512 high, int rows) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const __m512 every = _mm512_set1_ps(a[i * RT_GEMM_LEFT_ROW]);
        sum[i][0] = _mm512_fmadd_ps(every, low, sum[i][0]);
        sum[i][1] = _mm512_fmadd_ps(every, high, sum[i][1]);
    }
}

/* One panel; rows is a constant after inlining. */
#define DEFINE_TILE(s)                                                                                                 \
    INLINED void tile_##s(float *to, int64_t to_row, const float *left, const uint16_t *b, int64_t depth, int first,   \
                          int rows) {                                                                                  \
        __m512 sum[ROWS][2];                                                                                           \
        for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();                                    \
        for (int64_t p = 0; p < depth; p += 2) {                                                                       \
            const uint16_t *from = b + p * RT_PANEL;                                                                   \
            __m512 low[2], high[2];                                                                                    \
            widen_##s(&low[0], &low[1], _mm512_loadu_si512(from));                                                     \
            widen_##s(&high[0], &high[1], _mm512_loadu_si512(from + RT_PANEL));                                        \
            const uintptr_t ahead = (uintptr_t)from + (size_t)(2 * AHEAD) * RT_PANEL * sizeof *b;                      \
            __builtin_prefetch((const void *)ahead, 0, 2);                                                             \
            __builtin_prefetch((const void *)(ahead + RT_PANEL * sizeof *b), 0, 2);                                    \
            add_row(sum, left + p, low[0], high[0], rows);                                                             \
            if (p + 1 < depth) add_row(sum, left + p + 1, low[1], high[1], rows);                                      \
        }                                                                                                              \
        for (int i = 0; i < rows; i++)                                                                                 \
            for (int v = 0; v < 2; v++) {                                                                              \
                float *at = to + i * to_row + v * 16;                                                                  \
                _mm512_storeu_ps(at, first ? sum[i][v] : _mm512_add_ps(_mm512_loadu_ps(at), sum[i][v]));               \
            }                                                                                                          \
    }                                                                                                                  \
    TARGET static void few_##s(float *to, int64_t to_row, const float *left, const uint16_t *b, int64_t depth,         \
                               int first, int64_t rows) {                                                              \
        switch (rows) { RT_CASES_12(CASE, s) }                                                                         \
    }
#define CASE(n, s)                                                                                                     \
    case n: tile_##s(to, to_row, left, b, depth, first, n); break;

DEFINE_TILE(bf16)
DEFINE_TILE(fp16)

void rt_gemm_few(float *to, int64_t to_row, const float *left, const uint16_t *b, int64_t depth, int first,
                 int64_t rows, enum rt_dtype dtype) {
    (dtype == RT_BF16 ? few_bf16 : few_fp16)(to, to_row, left, b, depth, first, rows);
}

#else

void rt_gemm_few(float *to, int64_t to_row, const float *left, const uint16_t *b, int64_t depth, int first,
                 int64_t rows, enum rt_dtype dtype) {
    (void)to, (void)to_row, (void)left, (void)b, (void)depth, (void)first, (void)rows, (void)dtype;
}

#endif
