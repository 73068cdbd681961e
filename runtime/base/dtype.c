#include "dtype.h"

#include "number/codes.h"
#include "number/half.h"

#include <float.h>
#include <math.h>
#include <string.h>

const struct rt_dtype_info rt_dtypes[RT_DTYPE_COUNT] = {
#define DTYPE(id, name, onnx, bytes, kind, c_type, npy, eps) {name, #c_type, npy, onnx, bytes, RT_KIND_##kind, eps},
    RT_DTYPES(DTYPE)
#undef DTYPE
};

int rt_dtype_bits(enum rt_dtype t) {
    static const unsigned char fewer[RT_DTYPE_COUNT] = {
        [RT_E3M2] = 6, [RT_E2M3] = 6, [RT_E2M1] = 4, [RT_I4] = 4, [RT_U4] = 4, [RT_I2] = 2, [RT_U2] = 2};
    return fewer[t] ? fewer[t] : (int)rt_dtypes[t].bytes * 8;
}

void rt_unpack(void *dst, const void *packed, enum rt_dtype dtype, size_t first, size_t count) {
    const size_t bits = (size_t)rt_dtype_bits(dtype);
    const unsigned char *in = packed;
    unsigned char *out = dst;
    for (size_t i = 0; i < count; i++) {
        const size_t at = (first + i) * bits, shift = at % 8;
        unsigned code = (unsigned)in[at / 8] >> shift;
        if (shift + bits > 8) code |= (unsigned)in[at / 8 + 1] << (8 - shift);
        out[i] = (unsigned char)(code & ((1u << bits) - 1));
    }
}

enum rt_dtype rt_dtype_by_name(const char *name) {
    for (int t = 0; t < RT_DTYPE_COUNT; t++)
        if (strcmp(rt_dtypes[t].name, name) == 0) return (enum rt_dtype)t;
    return RT_DTYPE_NONE;
}

enum rt_dtype rt_dtype_by_onnx(int number) {
    for (int t = 0; t < RT_DTYPE_COUNT; t++)
        if (rt_dtypes[t].onnx == number) return (enum rt_dtype)t;
    return RT_DTYPE_NONE;
}

enum rt_dtype rt_dtype_by_npy(const char *descr) {
    for (int t = 0; t < RT_DTYPE_COUNT; t++)
        if (strcmp(rt_dtypes[t].npy, descr) == 0) return (enum rt_dtype)t;
    bool bytes = strcmp(descr, "<V1") == 0 || strcmp(descr, "<f1") == 0; /* as package ml_dtypes writes them */
    return bytes ? RT_BYTES : RT_DTYPE_NONE;
}

/* Note [Wide values]
 * Direct conversions between 25 types would be 625 functions. Instead, values are widened to double, int64_t or
 * uint64_t, each of which represents its source types exactly, and narrowed from there: 25 loaders and 3 x 25 storers.
 * Narrowing rounds once: double to a float of 16 bits or fewer goes through an f32 rounded to odd, which preserves on
 * which side of a tie the value lies. */
enum wide { WIDE_REAL, WIDE_SIGNED, WIDE_UNSIGNED };

#define PIECE 512

union piece {
    double real[PIECE];
    int64_t integer[PIECE];
    uint64_t natural[PIECE];
};

static float odd_of_real(double value) {
    float rounded = (float)value;
    if ((double)rounded == value || isnan(value)) return rounded;
    uint32_t bits = rt_f32_bits(rounded);
    if (bits & 1) return rounded;
    return rt_f32_of_bits(fabs((double)rounded) < fabs(value) ? bits + 1 : bits - 1);
}

/* Integers beyond 2^53 lose bits in a double. The lost bits are or-ed into the last one kept (sticky bit), so that
 * later rounding sees them. */
static double sticky_of_natural(uint64_t value) {
    if (value >> 53) value = (value & ~(uint64_t)0x1fff) | (value & 0x1fff ? 0x1000 : 0);
    return (double)value;
}

static double sticky_of_integer(int64_t value) {
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    double sticky = sticky_of_natural(magnitude);
    return value < 0 ? -sticky : sticky;
}

static int64_t integer_of_real(double value, int64_t low, int64_t high) {
    if (isnan(value)) return 0;
    if (value <= (double)low) return low;
    if (value >= (double)high) return high; /* (double)INT64_MAX is 2^63, beyond the range */
    return (int64_t)value;
}

static uint64_t natural_of_real(double value, uint64_t high) {
    if (isnan(value) || value <= 0) return 0;
    if (value >= (double)high) return high;
    return (uint64_t)value;
}

/* What an f32, or of types of integers the low bits, become in types that C does not have. */
#define NARROW_F16      rt_f32_to_f16
#define NARROW_BF16     rt_f32_to_bf16
#define NARROW_E4M3FN   rt_f32_to_code_e4m3fn
#define NARROW_E4M3FNUZ rt_f32_to_code_e4m3fnuz
#define NARROW_E5M2     rt_f32_to_code_e5m2
#define NARROW_E5M2FNUZ rt_f32_to_code_e5m2fnuz
#define NARROW_E8M0     rt_f32_to_code_e8m0
#define NARROW_E3M2     rt_f32_to_code_e3m2
#define NARROW_E2M3     rt_f32_to_code_e2m3
#define NARROW_E2M1     rt_f32_to_code_e2m1
#define NARROW_I4       rt_code_of_i4
#define NARROW_U4       rt_code_of_u4
#define NARROW_I2       rt_code_of_i2
#define NARROW_U2       rt_code_of_u2

/* Narrowing of a real number x, and of a whole one, to the types of each kind. */
#define REAL_FLOAT(id, c_type, x)             (c_type)(x)
#define REAL_HALF(id, c_type, x)              NARROW_##id(odd_of_real(x))
#define REAL_INT(id, c_type, x)               (c_type) integer_of_real(x, LEAST(c_type), -(LEAST(c_type) + 1))
#define REAL_UINT(id, c_type, x)              (c_type) natural_of_real(x, UINT64_MAX >> (64 - 8 * sizeof(c_type)))
#define REAL_BOOL(id, c_type, x)              (c_type)((x) != 0)
#define REAL_CODE_FLOAT                       REAL_HALF
#define REAL_CODE_INT(id, c_type, x)          NARROW_##id((uint64_t)integer_of_real(x, INT64_MIN, INT64_MAX))
#define REAL_CODE_UINT                        REAL_CODE_INT
#define WHOLE_FLOAT(id, c_type, x, sticky)    (c_type)(x)
#define WHOLE_HALF(id, c_type, x, sticky)     NARROW_##id(odd_of_real(sticky(x)))
#define WHOLE_INT(id, c_type, x, sticky)      (c_type)(x)
#define WHOLE_UINT(id, c_type, x, sticky)     (c_type)(x)
#define WHOLE_BOOL(id, c_type, x, sticky)     (c_type)((x) != 0)
#define WHOLE_CODE_FLOAT                      WHOLE_HALF
#define WHOLE_CODE_INT(id, c_type, x, sticky) NARROW_##id((uint64_t)(x))
#define WHOLE_CODE_UINT                       WHOLE_CODE_INT
#define LEAST(c_type)                         (-(int64_t)(UINT64_MAX >> (65 - 8 * sizeof(c_type))) - 1)

#define STORE(id, c_type, value)                                                                                       \
    case RT_##id:                                                                                                      \
        for (size_t i = 0; i < count; i++) {                                                                           \
            c_type element = value;                                                                                    \
            memcpy(to + i * sizeof element, &element, sizeof element);                                                 \
        }                                                                                                              \
        break;

static void store_real(unsigned char *to, enum rt_dtype dtype, const double *from, size_t count) {
    switch (dtype) {
#define DTYPE(id, name, onnx, bytes, kind, c_type, npy, eps) STORE(id, c_type, REAL_##kind(id, c_type, from[i]))
        RT_DTYPES(DTYPE)
#undef DTYPE
    case RT_DTYPE_NONE: break;
    }
}

static void store_integer(unsigned char *to, enum rt_dtype dtype, const int64_t *from, size_t count) {
    switch (dtype) {
#define DTYPE(id, name, onnx, bytes, kind, c_type, npy, eps)                                                           \
    STORE(id, c_type, WHOLE_##kind(id, c_type, from[i], sticky_of_integer))
        RT_DTYPES(DTYPE)
#undef DTYPE
    case RT_DTYPE_NONE: break;
    }
}

static void store_natural(unsigned char *to, enum rt_dtype dtype, const uint64_t *from, size_t count) {
    switch (dtype) {
#define DTYPE(id, name, onnx, bytes, kind, c_type, npy, eps)                                                           \
    STORE(id, c_type, WHOLE_##kind(id, c_type, from[i], sticky_of_natural))
        RT_DTYPES(DTYPE)
#undef DTYPE
    case RT_DTYPE_NONE: break;
    }
}

#define LOAD(id, c_type, wide, value)                                                                                  \
    case RT_##id:                                                                                                      \
        for (size_t i = 0; i < count; i++) {                                                                           \
            c_type x;                                                                                                  \
            memcpy(&x, from + i * sizeof x, sizeof x);                                                                 \
            to->wide[i] = value;                                                                                       \
        }                                                                                                              \
        break;

/* Widens by kind: floats and halves to `real`, signed integers to `integer`, the rest to `natural`. */
static void load(union piece *to, const unsigned char *from, enum rt_dtype dtype, size_t count) {
    switch (dtype) {
        LOAD(F32, float, real, (double)x)
        LOAD(F64, double, real, x)
        LOAD(F16, uint16_t, real, (double)rt_f16_to_f32(x))
        LOAD(BF16, uint16_t, real, (double)rt_bf16_to_f32(x))
        LOAD(I64, int64_t, integer, x)
        LOAD(I32, int32_t, integer, x)
        LOAD(I16, int16_t, integer, x)
        LOAD(I8, int8_t, integer, x)
        LOAD(U64, uint64_t, natural, x)
        LOAD(U32, uint32_t, natural, x)
        LOAD(U16, uint16_t, natural, x)
        LOAD(U8, uint8_t, natural, x)
        LOAD(BOOL, uint8_t, natural, x != 0)
        LOAD(E4M3FN, uint8_t, real, (double)rt_code_e4m3fn_to_f32(x))
        LOAD(E4M3FNUZ, uint8_t, real, (double)rt_code_e4m3fnuz_to_f32(x))
        LOAD(E5M2, uint8_t, real, (double)rt_code_e5m2_to_f32(x))
        LOAD(E5M2FNUZ, uint8_t, real, (double)rt_code_e5m2fnuz_to_f32(x))
        LOAD(E8M0, uint8_t, real, (double)rt_code_e8m0_to_f32(x))
        LOAD(E3M2, uint8_t, real, (double)rt_code_e3m2_to_f32(x))
        LOAD(E2M3, uint8_t, real, (double)rt_code_e2m3_to_f32(x))
        LOAD(E2M1, uint8_t, real, (double)rt_code_e2m1_to_f32(x))
        LOAD(I4, uint8_t, integer, rt_code_i4(x))
        LOAD(U4, uint8_t, natural, rt_code_u4(x))
        LOAD(I2, uint8_t, integer, rt_code_i2(x))
        LOAD(U2, uint8_t, natural, rt_code_u2(x))
    case RT_DTYPE_NONE: break;
    }
}

static enum wide wide_of(enum rt_dtype dtype) {
    switch (rt_dtypes[dtype].kind) {
    case RT_KIND_FLOAT:
    case RT_KIND_HALF:
    case RT_KIND_CODE_FLOAT: return WIDE_REAL;
    case RT_KIND_INT:
    case RT_KIND_CODE_INT: return WIDE_SIGNED;
    case RT_KIND_UINT:
    case RT_KIND_CODE_UINT:
    case RT_KIND_BOOL: break;
    }
    return WIDE_UNSIGNED;
}

/* The largest finite value of float types that are narrower than others. */
static double most_of(enum rt_dtype dtype) {
    static const double most[RT_DTYPE_COUNT] = {[RT_F32] = FLT_MAX, [RT_F16] = 65504, [RT_BF16] = 0x1.FEp127};
    return most[dtype] > 0 ? most[dtype] : DBL_MAX;
}

static void keep_finite(double *values, double most, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]) && fabs(values[i]) > most) values[i] = copysign(most, values[i]);
}

/* Converts; finite values are clamped to magnitude `most`. */
static void convert_piece(unsigned char *dst, enum rt_dtype to, const unsigned char *src, enum rt_dtype from,
                          size_t count, double most) {
    union piece piece;
    load(&piece, src, from, count);
    switch (wide_of(from)) {
    case WIDE_REAL:
        if (most < DBL_MAX) keep_finite(piece.real, most, count);
        store_real(dst, to, piece.real, count);
        break;
    case WIDE_SIGNED: store_integer(dst, to, piece.integer, count); break;
    case WIDE_UNSIGNED: store_natural(dst, to, piece.natural, count); break;
    }
}

static void convert(void *dst, enum rt_dtype to, const void *src, enum rt_dtype from, size_t count, double most) {
    if (count == 0) return;
    if (to == from) {
        memcpy(dst, src, count * rt_dtype_bytes(to));
        return;
    }
    unsigned char *out = dst;
    const unsigned char *in = src;
    for (size_t done = 0; done < count; done += PIECE) {
        size_t piece = count - done < PIECE ? count - done : PIECE;
        convert_piece(out + done * rt_dtype_bytes(to), to, in + done * rt_dtype_bytes(from), from, piece, most);
    }
}

void rt_convert(void *dst, enum rt_dtype to, const void *src, enum rt_dtype from, size_t count) {
    convert(dst, to, src, from, count, DBL_MAX);
}

void rt_retype(void *dst, enum rt_dtype to, const void *src, enum rt_dtype from, size_t count) {
    convert(dst, to, src, from, count, most_of(to));
}
