#include "halves.h"

#include "../base/clones.h"
#include "../base/number/half.h"
#include "../base/processor.h"
#include "../base/shape/panel.h"
#include "c/internal.h"
#include "c/kernels.h"

#include <string.h>

/* The conversions of base/number/half.h. */
#define DEFINE_PLAIN(s, to_f32, of_f32)                                                                                \
    CLONES static void widen_##s##_plain(float *to, const uint16_t *from, int64_t n) {                                 \
        for (int64_t i = 0; i < n; i++) to[i] = to_f32(from[i]);                                                       \
    }                                                                                                                  \
    CLONES static void narrow_##s##_plain(uint16_t *to, const float *from, int64_t n) {                                \
        for (int64_t i = 0; i < n; i++) to[i] = of_f32(from[i]);                                                       \
    }                                                                                                                  \
    CLONES static void widen_panel_##s##_plain(float *to, const uint16_t *from, int64_t depth) {                       \
        for (int64_t p = 0; p < depth; p++)                                                                            \
            for (int64_t j = 0; j < RT_PANEL; j++)                                                                     \
                to[p * RT_PANEL + j] = to_f32(from[p / 2 * 2 * RT_PANEL + 2 * j + p % 2]);                             \
    }

DEFINE_PLAIN(bf16, rt_bf16_to_f32, rt_f32_to_bf16)
DEFINE_PLAIN(fp16, rt_f16_to_f32, rt_f32_to_f16)

#ifdef __x86_64__
#include <immintrin.h>

/* The processor's conversions. bf16 has none before AVX-512 that are worth it: the plain loops are vectors, too. Every
 * processor with AVX2 has F16C, of which not every compiler can ask. */
#define AVX512    __attribute__((target("avx512f")))
#define F16C      __attribute__((target("avx2,f16c")))
#define IN_AVX512 AVX512 static inline __attribute__((always_inline))
#define IN_F16C   F16C static inline __attribute__((always_inline))

IN_AVX512 void widen_vector_bf16_avx512(float *to, const uint16_t *from) {
    const __m256i halves = _mm256_loadu_si256((const __m256i *)from);
    _mm512_storeu_ps(to, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16)));
}

IN_AVX512 void widen_vector_fp16_avx512(float *to, const uint16_t *from) {
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from)));
}

IN_F16C void widen_vector_fp16_f16c(float *to, const uint16_t *from) {
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)));
}

/* As rt_f32_to_bf16. */
IN_AVX512 void narrow_vector_bf16_avx512(uint16_t *to, const float *from) {
    const __m512 values = _mm512_loadu_ps(from);
    const __m512i bits = _mm512_castps_si512(values), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512i halves = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(halves));
}

IN_AVX512 void narrow_vector_fp16_avx512(uint16_t *to, const float *from) {
    const __m256i halves = _mm512_cvtps_ph(_mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)to, halves);
}

IN_F16C void narrow_vector_fp16_f16c(uint16_t *to, const float *from) {
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
}

/* The first and the second elements of a vector of pairs. */
IN_AVX512 void widen_pairs_bf16_avx512(float *first, float *second, const uint16_t *from) {
    const __m512i pairs = _mm512_loadu_si512(from);
    _mm512_storeu_ps(first, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
    _mm512_storeu_ps(second, _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000))));
}

IN_AVX512 void widen_pairs_fp16_avx512(float *first, float *second, const uint16_t *from) {
    const __m512i pairs = _mm512_loadu_si512(from);
    _mm512_storeu_ps(first, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)));
    _mm512_storeu_ps(second, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16))));
}

IN_F16C void widen_pairs_fp16_f16c(float *first, float *second, const uint16_t *from) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12,
                                           13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i apart = _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)from), order);
    const __m256i halves = _mm256_permute4x64_epi64(apart, 0xd8);
    _mm256_storeu_ps(first, _mm256_cvtph_ps(_mm256_castsi256_si128(halves)));
    _mm256_storeu_ps(second, _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
}

/* With vectors of `lanes` elements; those behind the last whole vector are a vector of their own. */
#define DEFINE_VECTORS(s, set, TARGET, lanes)                                                                          \
    TARGET static void widen_##s##_##set(float *to, const uint16_t *from, int64_t n) {                                 \
        const int64_t whole = n / lanes * lanes;                                                                       \
        for (int64_t i = 0; i < whole; i += lanes) widen_vector_##s##_##set(to + i, from + i);                         \
        if (whole == n) return;                                                                                        \
        uint16_t rest[lanes] = {0};                                                                                    \
        float wide[lanes];                                                                                             \
        memcpy(rest, from + whole, (size_t)(n - whole) * sizeof *rest);                                                \
        widen_vector_##s##_##set(wide, rest);                                                                          \
        memcpy(to + whole, wide, (size_t)(n - whole) * sizeof *wide);                                                  \
    }                                                                                                                  \
    TARGET static void narrow_##s##_##set(uint16_t *to, const float *from, int64_t n) {                                \
        const int64_t whole = n / lanes * lanes;                                                                       \
        for (int64_t i = 0; i < whole; i += lanes) narrow_vector_##s##_##set(to + i, from + i);                        \
        if (whole == n) return;                                                                                        \
        float rest[lanes] = {0};                                                                                       \
        uint16_t half[lanes];                                                                                          \
        memcpy(rest, from + whole, (size_t)(n - whole) * sizeof *rest);                                                \
        narrow_vector_##s##_##set(half, rest);                                                                         \
        memcpy(to + whole, half, (size_t)(n - whole) * sizeof *half);                                                  \
    }                                                                                                                  \
    TARGET static void widen_panel_##s##_##set(float *to, const uint16_t *from, int64_t depth) {                       \
        float beyond[RT_PANEL];                                                                                        \
        for (int64_t p = 0; p < depth; p += 2)                                                                         \
            for (int64_t j = 0; j < RT_PANEL; j += lanes)                                                              \
                widen_pairs_##s##_##set(to + p * RT_PANEL + j,                                                         \
                                        p + 1 < depth ? to + (p + 1) * RT_PANEL + j : beyond + j,                      \
                                        from + p * RT_PANEL + 2 * j);                                                  \
    }

DEFINE_VECTORS(bf16, avx512, AVX512, 16)
DEFINE_VECTORS(fp16, avx512, AVX512, 16)
DEFINE_VECTORS(fp16, f16c, F16C, 8)

#define BEST_bf16(stem) (rt_processor_has_avx512() ? stem##_avx512 : stem##_plain)
#define BEST_fp16(stem)                                                                                                \
    (rt_processor_has_avx512() ? stem##_avx512 : rt_processor_has_avx2() ? stem##_f16c : stem##_plain)

#else
#define BEST_bf16(stem) stem##_plain
#define BEST_fp16(stem) stem##_plain
#endif

enum { CAST_TOGETHER = 4096 };

#define DEFINE_HALVES(s)                                                                                               \
    void rt_widen_##s(float *to, const uint16_t *from, int64_t n) {                                                    \
        BEST_##s(widen_##s)(to, from, n);                                                                              \
    }                                                                                                                  \
    void rt_narrow_##s(uint16_t *to, const float *from, int64_t n) {                                                   \
        BEST_##s(narrow_##s)(to, from, n);                                                                             \
    }                                                                                                                  \
    void rt_widen_panel_##s(float *to, const uint16_t *from, int64_t depth) {                                          \
        BEST_##s(widen_panel_##s)(to, from, depth);                                                                    \
    }                                                                                                                  \
    void rt_cast_all_f32_##s(uint16_t *y, const float *x, int64_t n) {                                                 \
        _Pragma("omp parallel for num_threads(rt_pieces(parts_of(n, CAST_TOGETHER))) if (n >= PARALLEL_WORK)") for (   \
            int64_t i = 0; i < n; i += CAST_TOGETHER) rt_narrow_##s(y + i, x + i, min_i64(CAST_TOGETHER, n - i));      \
    }

DEFINE_HALVES(bf16)
DEFINE_HALVES(fp16)
