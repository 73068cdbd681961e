/* Lists of types that kernels are declared, or defined, for. */
#ifndef RT_KERNELS_C_LISTS_H
#define RT_KERNELS_C_LISTS_H

/* X(C type, suffix of names) */
#define RT_FLOATS(X)  X(float, f32) X(double, f64)
#define RT_HALVES(X)  X(uint16_t, bf16) X(uint16_t, fp16)
#define RT_NUMBERS(X) RT_FLOATS(X) X(int64_t, i64) X(int32_t, i32)
/* X(C type, bytes): of kernels that only move elements. */
#define RT_SIZES(X) X(uint8_t, 1) X(uint16_t, 2) X(uint32_t, 4) X(uint64_t, 8)

#endif
