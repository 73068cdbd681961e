/* Arrays that kernels compute on in another type than they are stored in: 16-bit floats, in f32. Kernels for all float
 * types are written once, for blocks of elements: those of f32 and f64 are worked on where they are, those of 16 bits
 * in a buffer of f32.
 *
 *   load_X(buffer, x, n)          x(n) in the computed type: x itself, or the buffer after widening
 *   load_rows_X(buffer, &x, first, rows, from, n, &step)
 *                                 elements [from, from + n) of rows [first, first + rows) of struct stored_rows; the
 *                                 result's rows are *step apart
 *   place_X(buffer, y)            where to compute what goes to y: y itself, or the buffer
 *   store_X(y, place, n)          rounds what was computed at `place` to y, unless it is there
 *   is_stored_X                   1 if arrays are of the computed type
 *
 * X is f32, f64, bf16 or fp16; of load_rows, i8 too: codes, of which each row has a scale. */
#ifndef RT_KERNELS_C_STORED_H
#define RT_KERNELS_C_STORED_H

#include <stdint.h>

#include "../halves.h"
#include "lists.h"

/* Rows `line` elements apart; of codes, `scale` has what those of a row are multiplied by, scale_line apart. */
struct stored_rows {
    const void *at;
    int64_t line;
    const float *scale;
    int64_t scale_line;
};

#define STORED_AS_COMPUTED(T, s)                                                                                       \
    enum { is_stored_##s = 1 };                                                                                        \
    static inline const T *load_##s(T *buffer, const T *x, int64_t n) {                                                \
        return (void)buffer, (void)n, x;                                                                               \
    }                                                                                                                  \
    static inline const T *load_rows_##s(T *buffer, const struct stored_rows *x, int64_t first, int64_t rows,          \
                                         int64_t from, int64_t n, int64_t *step) {                                     \
        return (void)buffer, (void)rows, (void)n, *step = x->line, (const T *)x->at + first * x->line + from;          \
    }                                                                                                                  \
    static inline T *place_##s(T *buffer, T *y) {                                                                      \
        return (void)buffer, y;                                                                                        \
    }                                                                                                                  \
    static inline void store_##s(T *y, const T *place, int64_t n) {                                                    \
        (void)y, (void)place, (void)n;                                                                                 \
    }

#define STORED_AS_HALF(s)                                                                                              \
    enum { is_stored_##s = 0 };                                                                                        \
    static inline const float *load_##s(float *buffer, const uint16_t *x, int64_t n) {                                 \
        return rt_widen_##s(buffer, x, n), buffer;                                                                     \
    }                                                                                                                  \
    static inline const float *load_rows_##s(float *buffer, const struct stored_rows *x, int64_t first, int64_t rows,  \
                                             int64_t from, int64_t n, int64_t *step) {                                 \
        const uint16_t *at = (const uint16_t *)x->at + first * x->line + from;                                         \
        *step = n;                                                                                                     \
        if (x->line == n) return load_##s(buffer, at, rows * n);                                                       \
        for (int64_t i = 0; i < rows; i++) rt_widen_##s(buffer + i * n, at + i * x->line, n);                          \
        return buffer;                                                                                                 \
    }                                                                                                                  \
    static inline float *place_##s(float *buffer, uint16_t *y) {                                                       \
        return (void)y, buffer;                                                                                        \
    }                                                                                                                  \
    static inline void store_##s(uint16_t *y, const float *place, int64_t n) {                                         \
        rt_narrow_##s(y, place, n);                                                                                    \
    }

RT_FLOATS(STORED_AS_COMPUTED)
STORED_AS_HALF(bf16)
STORED_AS_HALF(fp16)

__attribute__((always_inline)) static inline const float *load_rows_i8(float *buffer, const struct stored_rows *x,
                                                                       int64_t first, int64_t rows, int64_t from,
                                                                       int64_t n, int64_t *step) {
    const int8_t *at = (const int8_t *)x->at + first * x->line + from;
    *step = n;
    for (int64_t i = 0; i < rows; i++) {
        const float scale = x->scale[(first + i) * x->scale_line];
#pragma omp simd
        for (int64_t p = 0; p < n; p++) buffer[i * n + p] = (float)at[i * x->line + p] * scale;
    }
    return buffer;
}

#endif
