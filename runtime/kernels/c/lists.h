/* Lists of types that kernels are declared, or defined, for. */
#ifndef RT_KERNELS_C_LISTS_H
#define RT_KERNELS_C_LISTS_H

/* X(C type, suffix of names) */
#define RT_FLOATS(X)  X(float, f32) X(double, f64)
#define RT_HALVES(X)  X(uint16_t, bf16) X(uint16_t, fp16)
#define RT_NUMBERS(X) RT_FLOATS(X) X(int64_t, i64) X(int32_t, i32)
/* X(C type, bytes): of kernels that only move elements. */
#define RT_SIZES(X) X(uint8_t, 1) X(uint16_t, 2) X(uint32_t, 4) X(uint64_t, 8)

/* CASE(1, ..) to CASE(6, ..), 12 or 14: of a number of rows that is a constant after inlining. */
#define RT_CASES_6(CASE, ...)                                                                                          \
    CASE(1, ##__VA_ARGS__)                                                                                             \
    CASE(2, ##__VA_ARGS__)                                                                                             \
    CASE(3, ##__VA_ARGS__) CASE(4, ##__VA_ARGS__) CASE(5, ##__VA_ARGS__) CASE(6, ##__VA_ARGS__)
#define RT_CASES_12(CASE, ...)                                                                                         \
    RT_CASES_6(CASE, ##__VA_ARGS__)                                                                                    \
    CASE(7, ##__VA_ARGS__)                                                                                             \
    CASE(8, ##__VA_ARGS__)                                                                                             \
    CASE(9, ##__VA_ARGS__) CASE(10, ##__VA_ARGS__) CASE(11, ##__VA_ARGS__) CASE(12, ##__VA_ARGS__)
#define RT_CASES_14(CASE, ...) RT_CASES_12(CASE, ##__VA_ARGS__) CASE(13, ##__VA_ARGS__) CASE(14, ##__VA_ARGS__)

#endif
