#include "halves.h"

#include "../base/clones.h"
#include "../base/number/half.h"
#include "../base/shape/panel.h"

/* The conversions of base/number/half.h: elements from `first` on. */
#define DEFINE_PLAIN(s, to_f32, of_f32)                                                                                \
    CLONES static void widen_plain_##s(float *to, const uint16_t *from, int64_t first, int64_t n) {                    \
        for (int64_t i = first; i < n; i++) to[i] = to_f32(from[i]);                                                   \
    }                                                                                                                  \
    CLONES static void narrow_plain_##s(uint16_t *to, const float *from, int64_t first, int64_t n) {                   \
        for (int64_t i = first; i < n; i++) to[i] = of_f32(from[i]);                                                   \
    }                                                                                                                  \
    CLONES static void widen_panel_plain_##s(float *to, const uint16_t *from, int64_t first, int64_t depth) {          \
        for (int64_t p = first; p < depth; p++)                                                                        \
            for (int64_t j = 0; j < RT_PANEL; j++)                                                                     \
                to[p * RT_PANEL + j] = to_f32(from[p / 2 * 2 * RT_PANEL + 2 * j + p % 2]);                             \
    }

DEFINE_PLAIN(bf16, rt_bf16_to_f32, rt_f32_to_bf16)
DEFINE_PLAIN(fp16, rt_f16_to_f32, rt_f32_to_f16)

#ifdef __x86_64__
#include <immintrin.h>

/* 16 elements at a time; each function returns how many elements, or rows, it has done. */
#define TARGET    __attribute__((target("avx512f")))
#define IN_TARGET TARGET static inline __attribute__((always_inline))

static inline int is_wide(void) {
    return __builtin_cpu_supports("avx512f");
}

IN_TARGET __m512 widened_bf16(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

IN_TARGET __m512 widened_fp16(__m256i halves) {
    return _mm512_cvtph_ps(halves);
}

/* As rt_f32_to_bf16. */
IN_TARGET __m256i narrowed_bf16(__m512 values) {
    const __m512i bits = _mm512_castps_si512(values), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
}

IN_TARGET __m256i narrowed_fp16(__m512 values) {
    return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* The first and the second elements of 16 pairs. */
IN_TARGET void widen_pairs_bf16(float *first, float *second, __m512i pairs) {
    _mm512_storeu_ps(first, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
    _mm512_storeu_ps(second, _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000))));
}

IN_TARGET void widen_pairs_fp16(float *first, float *second, __m512i pairs) {
    _mm512_storeu_ps(first, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)));
    _mm512_storeu_ps(second, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16))));
}

#define DEFINE_WIDE(s)                                                                                                 \
    TARGET static int64_t widen_wide_##s(float *to, const uint16_t *from, int64_t n) {                                 \
        int64_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16)                                                                                   \
            _mm512_storeu_ps(to + i, widened_##s(_mm256_loadu_si256((const __m256i *)(from + i))));                    \
        return i;                                                                                                      \
    }                                                                                                                  \
    TARGET static int64_t narrow_wide_##s(uint16_t *to, const float *from, int64_t n) {                                \
        int64_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16)                                                                                   \
            _mm256_storeu_si256((__m256i *)(to + i), narrowed_##s(_mm512_loadu_ps(from + i)));                         \
        return i;                                                                                                      \
    }                                                                                                                  \
    TARGET static int64_t widen_panel_wide_##s(float *to, const uint16_t *from, int64_t depth) {                       \
        int64_t p = 0;                                                                                                 \
        for (; p + 2 <= depth; p += 2)                                                                                 \
            for (int j = 0; j < RT_PANEL; j += 16)                                                                     \
                widen_pairs_##s(to + p * RT_PANEL + j, to + (p + 1) * RT_PANEL + j,                                    \
                                _mm512_loadu_si512(from + p * RT_PANEL + 2 * j));                                      \
        return p;                                                                                                      \
    }

#else

static inline int is_wide(void) {
    return 0;
}

#define DEFINE_WIDE(s)                                                                                                 \
    static int64_t widen_wide_##s(float *to, const uint16_t *from, int64_t n) {                                        \
        return (void)to, (void)from, (void)n, 0;                                                                       \
    }                                                                                                                  \
    static int64_t narrow_wide_##s(uint16_t *to, const float *from, int64_t n) {                                       \
        return (void)to, (void)from, (void)n, 0;                                                                       \
    }                                                                                                                  \
    static int64_t widen_panel_wide_##s(float *to, const uint16_t *from, int64_t depth) {                              \
        return (void)to, (void)from, (void)depth, 0;                                                                   \
    }

#endif

#define DEFINE_HALVES(s)                                                                                               \
    DEFINE_WIDE(s)                                                                                                     \
    void rt_widen_##s(float *to, const uint16_t *from, int64_t n) {                                                    \
        widen_plain_##s(to, from, is_wide() ? widen_wide_##s(to, from, n) : 0, n);                                     \
    }                                                                                                                  \
    void rt_narrow_##s(uint16_t *to, const float *from, int64_t n) {                                                   \
        narrow_plain_##s(to, from, is_wide() ? narrow_wide_##s(to, from, n) : 0, n);                                   \
    }                                                                                                                  \
    void rt_widen_panel_##s(float *to, const uint16_t *from, int64_t depth) {                                          \
        widen_panel_plain_##s(to, from, is_wide() ? widen_panel_wide_##s(to, from, depth) : 0, depth);                 \
    }

DEFINE_HALVES(bf16)
DEFINE_HALVES(fp16)
