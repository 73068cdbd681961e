/* Element types of tensors: one row each, shared by the compiler, the runtime and generated programs.
 *
 * Row: DTYPE(id, name, onnx, bytes, kind, c_type, npy)
 *   id      suffix of the enumerator RT_<id>
 *   name    spelling in options, IR text, JSON and kernel names
 *   onnx    TensorProto.DataType number
 *   bytes   size of an element
 *   kind    RT_KIND_*: how arithmetic treats it
 *   c_type  type of an element in C
 *   npy     type string of the .npy format, little endian (bf16 has none of its own: "|V2")
 *   eps     of floats: from 1 to the next number
 */
#ifndef RT_BASE_DTYPE_H
#define RT_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RT_DTYPES(DTYPE)                                                                                               \
    DTYPE(F32, "f32", 1, 4, FLOAT, float, "<f4", 0x1p-23)                                                              \
    DTYPE(F64, "f64", 11, 8, FLOAT, double, "<f8", 0x1p-52)                                                            \
    DTYPE(F16, "fp16", 10, 2, HALF, uint16_t, "<f2", 0x1p-10)                                                          \
    DTYPE(BF16, "bf16", 16, 2, HALF, uint16_t, "|V2", 0x1p-7)                                                          \
    DTYPE(I64, "i64", 7, 8, INT, int64_t, "<i8", 0)                                                                    \
    DTYPE(I32, "i32", 6, 4, INT, int32_t, "<i4", 0)                                                                    \
    DTYPE(I16, "i16", 5, 2, INT, int16_t, "<i2", 0)                                                                    \
    DTYPE(I8, "i8", 3, 1, INT, int8_t, "|i1", 0)                                                                       \
    DTYPE(U64, "u64", 13, 8, UINT, uint64_t, "<u8", 0)                                                                 \
    DTYPE(U32, "u32", 12, 4, UINT, uint32_t, "<u4", 0)                                                                 \
    DTYPE(U16, "u16", 4, 2, UINT, uint16_t, "<u2", 0)                                                                  \
    DTYPE(U8, "u8", 2, 1, UINT, uint8_t, "|u1", 0)                                                                     \
    DTYPE(BOOL, "bool", 9, 1, BOOL, uint8_t, "|b1", 0)

enum rt_dtype {
#define DTYPE(id, name, onnx, bytes, kind, c_type, npy, eps) RT_##id,
    RT_DTYPES(DTYPE)
#undef DTYPE
        RT_DTYPE_COUNT,
    RT_DTYPE_NONE = RT_DTYPE_COUNT /* unknown or unsupported type */
};

/* HALF: 16-bit floats, stored as uint16_t bit patterns, computed in f32. BOOL: bytes 0 and 1. */
enum rt_kind { RT_KIND_FLOAT, RT_KIND_HALF, RT_KIND_INT, RT_KIND_UINT, RT_KIND_BOOL };

struct rt_dtype_info {
    const char *name, *c_type, *npy;
    int onnx;
    size_t bytes;
    enum rt_kind kind;
    double epsilon;
};

#ifdef __cplusplus
extern "C" {
#endif

extern const struct rt_dtype_info rt_dtypes[RT_DTYPE_COUNT];

static inline size_t rt_dtype_bytes(enum rt_dtype t) {
    return rt_dtypes[t].bytes;
}
static inline bool rt_dtype_is_float(enum rt_dtype t) {
    return rt_dtypes[t].kind <= RT_KIND_HALF;
}

/* The type with that name, ONNX number or .npy type string, else RT_DTYPE_NONE. */
enum rt_dtype rt_dtype_by_name(const char *name);
enum rt_dtype rt_dtype_by_onnx(int number);
enum rt_dtype rt_dtype_by_npy(const char *descr);

/* Converts `count` elements with C semantics: float to integer truncates (NaN gives 0, values out of range the nearest
 * bound), conversion to bool is "not zero", rounding to 16 bits is to nearest even. dst and src may be unaligned and do
 * not overlap. */
void rt_convert(void *dst, enum rt_dtype to, const void *src, enum rt_dtype from, size_t count);

/* rt_convert for constants and weights of a model that is compiled for another float type: finite values are clamped to
 * the largest finite value of `to`. An attention mask often is the least f32 times 0 or 1; as an infinity, times 0, it
 * would become NaN. */
void rt_retype(void *dst, enum rt_dtype to, const void *src, enum rt_dtype from, size_t count);

#ifdef __cplusplus
}
#endif

#endif
