/* The transpose of 16 vectors of 16 elements of 32 bits, in registers. */
#ifndef RT_KERNELS_C_TURN_H
#define RT_KERNELS_C_TURN_H

#ifdef __x86_64__
#include <immintrin.h>

/* a[i][c] = a[c][i]: pairs of elements, pairs of these, and then lanes of 4 are exchanged. */
__attribute__((target("avx512f"), always_inline)) static inline void rt_turn_16(__m512 a[16]) {
    __m512 b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += i % 4 ? 3 : 1) {
        const int h = i % 4, at = i - h;
        a[at + 2 * h] =
            _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(b[at + h]), _mm512_castps_pd(b[at + 2 + h])));
        a[at + 2 * h + 1] =
            _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(b[at + h]), _mm512_castps_pd(b[at + 2 + h])));
    }
#pragma GCC unroll 16
    for (int c = 0; c < 4; c++) {
        const __m512 even = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88),
                     odd = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd);
        const __m512 next_even = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
        const __m512 next_odd = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd);
        b[c] = _mm512_shuffle_f32x4(even, next_even, 0x88);
        b[4 + c] = _mm512_shuffle_f32x4(odd, next_odd, 0x88);
        b[8 + c] = _mm512_shuffle_f32x4(even, next_even, 0xdd);
        b[12 + c] = _mm512_shuffle_f32x4(odd, next_odd, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) a[i] = b[i];
}
#endif

#endif
