/* Element types of tensors: one row each, shared by the compiler, the runtime and generated programs.
 *
 * Row: DTYPE(id, name, onnx, bytes, kind, c_type, npy)
 *   id      suffix of the enumerator RT_<id>
 *   name    spelling in options, IR text, JSON and kernel names
 *   onnx    TensorProto.DataType number
 *   bytes   size of an element in memory
 *   kind    RT_KIND_*: how arithmetic treats it
 *   c_type  type of an element in C
 *   npy     type string of the .npy format, little endian. Types that numpy lacks are bytes: "|V2", "|V1"
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
    DTYPE(BOOL, "bool", 9, 1, BOOL, uint8_t, "|b1", 0)                                                                 \
    DTYPE(E4M3FN, "e4m3fn", 17, 1, CODE_FLOAT, uint8_t, "|V1", 0)                                                      \
    DTYPE(E4M3FNUZ, "e4m3fnuz", 18, 1, CODE_FLOAT, uint8_t, "|V1", 0)                                                  \
    DTYPE(E5M2, "e5m2", 19, 1, CODE_FLOAT, uint8_t, "|V1", 0)                                                          \
    DTYPE(E5M2FNUZ, "e5m2fnuz", 20, 1, CODE_FLOAT, uint8_t, "|V1", 0)                                                  \
    DTYPE(E8M0, "e8m0", 24, 1, CODE_FLOAT, uint8_t, "|V1", 0)                                                          \
    DTYPE(E3M2, "e3m2", 28, 1, CODE_FLOAT, uint8_t, "|V1", 0)                                                          \
    DTYPE(E2M3, "e2m3", 27, 1, CODE_FLOAT, uint8_t, "|V1", 0)                                                          \
    DTYPE(E2M1, "e2m1", 23, 1, CODE_FLOAT, uint8_t, "|V1", 0)                                                          \
    DTYPE(I4, "i4", 22, 1, CODE_INT, uint8_t, "|V1", 0)                                                                \
    DTYPE(U4, "u4", 21, 1, CODE_UINT, uint8_t, "|V1", 0)                                                               \
    DTYPE(I2, "i2", 26, 1, CODE_INT, uint8_t, "|V1", 0)                                                                \
    DTYPE(U2, "u2", 25, 1, CODE_UINT, uint8_t, "|V1", 0)

enum rt_dtype {
#define DTYPE(id, name, onnx, bytes, kind, c_type, npy, eps) RT_##id,
    RT_DTYPES(DTYPE)
#undef DTYPE
        RT_DTYPE_COUNT,
    RT_DTYPE_NONE = RT_DTYPE_COUNT, /* unknown or unsupported type */
    /* What a .npy file is read as if its elements are of one byte and of no type of numpy: they are codes of the type
     * that the model wants. */
    RT_BYTES = RT_E4M3FN
};

/* HALF: 16-bit floats, stored as uint16_t bit patterns, computed in f32. BOOL: bytes 0 and 1. CODE: types of quantised
 * tensors (base/number/codes.h), stored a byte each; there is no arithmetic on them, they are converted and moved. */
enum rt_kind {
    RT_KIND_FLOAT,
    RT_KIND_HALF,
    RT_KIND_INT,
    RT_KIND_UINT,
    RT_KIND_BOOL,
    RT_KIND_CODE_FLOAT,
    RT_KIND_CODE_INT,
    RT_KIND_CODE_UINT
};

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
static inline bool rt_dtype_is_code(enum rt_dtype t) {
    return rt_dtypes[t].kind >= RT_KIND_CODE_FLOAT;
}
static inline bool rt_dtype_is_signed(enum rt_dtype t) {
    return rt_dtypes[t].kind == RT_KIND_INT || rt_dtypes[t].kind == RT_KIND_CODE_INT;
}
/* Integers, those of fewer than 8 bits included; not bool. */
static inline bool rt_dtype_is_integer(enum rt_dtype t) {
    return rt_dtype_is_signed(t) || rt_dtypes[t].kind == RT_KIND_UINT || rt_dtypes[t].kind == RT_KIND_CODE_UINT;
}

/* Bits of an element in the data of an ONNX model, where elements of fewer than 8 bits are packed. */
int rt_dtype_bits(enum rt_dtype t);

/* Unpacks `count` elements of a type of fewer than 8 bits to one per byte, beginning at element `first` of `packed`. */
void rt_unpack(void *dst, const void *packed, enum rt_dtype dtype, size_t first, size_t count);

/* The type with that name, ONNX number or .npy type string, else RT_DTYPE_NONE. */
enum rt_dtype rt_dtype_by_name(const char *name);
enum rt_dtype rt_dtype_by_onnx(int number);
enum rt_dtype rt_dtype_by_npy(const char *descr);

/* Converts `count` elements with C semantics: float to integer truncates (NaN gives 0, values out of range the nearest
 * bound), integers keep their low bits, conversion to bool is "not zero", rounding to fewer bits is to nearest even.
 * dst and src may be unaligned and do not overlap. */
void rt_convert(void *dst, enum rt_dtype to, const void *src, enum rt_dtype from, size_t count);

/* rt_convert for constants and weights of a model that is compiled for another float type: finite values are clamped to
 * the largest finite value of `to`. An attention mask often is the least f32 times 0 or 1; as an infinity, times 0, it
 * would become NaN. */
void rt_retype(void *dst, enum rt_dtype to, const void *src, enum rt_dtype from, size_t count);

#ifdef __cplusplus
}
#endif

#endif
