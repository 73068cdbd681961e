/* Arrays that kernels compute on in another type than they are stored in: 16-bit floats, in f32. Kernels for all float
 * types are written once, for blocks of elements: those of f32 and f64 are worked on where they are, those of 16 bits
 * in a buffer of f32.
 *
 *   load_X(buffer, x, n)          x(n) in the computed type: x itself, or the buffer after widening
 *   load_rows_X(buffer, x, row, rows, n, &step)
 *                                 x(rows,n), rows `row` apart; the result's are *step apart
 *   place_X(buffer, y)            where to compute what goes to y: y itself, or the buffer
 *   store_X(y, place, n)          rounds what was computed at `place` to y, unless it is there
 *   is_stored_X                   1 if arrays are of the computed type
 *
 * X is f32, f64, bf16 or fp16. */
#ifndef RT_KERNELS_C_STORED_H
#define RT_KERNELS_C_STORED_H

#include <stdint.h>

#include "../halves.h"
#include "lists.h"

#define STORED_AS_COMPUTED(T, s)                                                                                       \
    enum { is_stored_##s = 1 };                                                                                        \
    static inline const T *load_##s(T *buffer, const T *x, int64_t n) {                                                \
        return (void)buffer, (void)n, x;                                                                               \
    }                                                                                                                  \
    static inline const T *load_rows_##s(T *buffer, const T *x, int64_t row, int64_t rows, int64_t n, int64_t *step) { \
        return (void)buffer, (void)rows, (void)n, *step = row, x;                                                      \
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
    static inline const float *load_rows_##s(float *buffer, const uint16_t *x, int64_t row, int64_t rows, int64_t n,   \
                                             int64_t *step) {                                                          \
        *step = n;                                                                                                     \
        if (row == n) return load_##s(buffer, x, rows * n);                                                            \
        for (int64_t i = 0; i < rows; i++) rt_widen_##s(buffer + i * n, x + i * row, n);                               \
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

#endif
