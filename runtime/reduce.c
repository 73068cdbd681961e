#include "reduce.h"

#include "base/half.h"

#include <string.h>

/* Elements reduced at a time: the accumulator stays in the first-level cache while the sources stream by. */
#define CHUNK 1024

union accumulator {
    unsigned char bytes[CHUNK * 8];
    float f32[CHUNK];
    uint64_t align;
};

/* acc[i] = acc[i] op src[i]. The accumulator of a half is f32, of any other type the type itself. */
typedef void fold_fn(void *acc, const void *src, size_t count);

#define FOLD(name, acc_type, src_type, expression)                                                                 \
    static void name(void *acc_bytes, const void *src_bytes, size_t count) {                                       \
        acc_type *restrict acc = acc_bytes;                                                                        \
        const src_type *restrict src = src_bytes;                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                       \
            const acc_type a = acc[i];                                                                             \
            const src_type b = src[i];                                                                             \
            acc[i] = expression;                                                                                   \
        }                                                                                                          \
    }

/* One macro per kind of dtype.h. b != b is true for a NaN; an a that is NaN stays, since it compares false. */
#define FOLD_FLOAT(id, c_type)                                                                                     \
    FOLD(sum_##id, c_type, c_type, a + b)                                                                          \
    FOLD(max_##id, c_type, c_type, b > a || b != b ? b : a)                                                        \
    FOLD(min_##id, c_type, c_type, b < a || b != b ? b : a)
#define FOLD_INT(id, c_type)                                                                                       \
    FOLD(sum_##id, c_type, c_type, (c_type)((uint64_t)a + (uint64_t)b))                                            \
    FOLD(max_##id, c_type, c_type, b > a ? b : a)                                                                  \
    FOLD(min_##id, c_type, c_type, b < a ? b : a)
#define FOLD_UINT(id, c_type) FOLD_INT(id, c_type)
#define FOLD_BOOL(id, c_type)                                                                                      \
    FOLD(sum_##id, c_type, c_type, (c_type)(a || b))                                                               \
    FOLD(max_##id, c_type, c_type, (c_type)(a || b))                                                               \
    FOLD(min_##id, c_type, c_type, (c_type)(a && b))
#define WIDE(id, b) WIDE_##id(b)
#define WIDE_F16    rt_f16_to_f32
#define WIDE_BF16   rt_bf16_to_f32
#define FOLD_HALF(id, c_type)                                                                                      \
    FOLD(sum_##id, float, c_type, a + WIDE(id, b))                                                                 \
    FOLD(max_##id, float, c_type, WIDE(id, b) > a || WIDE(id, b) != WIDE(id, b) ? WIDE(id, b) : a)                 \
    FOLD(min_##id, float, c_type, WIDE(id, b) < a || WIDE(id, b) != WIDE(id, b) ? WIDE(id, b) : a)

#define DTYPE(id, name, onnx, bytes, kind, c_type, npy) FOLD_##kind(id, c_type)
RT_DTYPES(DTYPE)
#undef DTYPE

static fold_fn *const folds[RT_DTYPE_COUNT][3] = {
#define DTYPE(id, name, onnx, bytes, kind, c_type, npy) {sum_##id, max_##id, min_##id},
    RT_DTYPES(DTYPE)
#undef DTYPE
};

/* Halves are widened into the accumulator and rounded once on the way out. */
static void load_first(union accumulator *acc, const void *src, size_t count, enum rt_dtype dtype) {
    if (rt_dtypes[dtype].kind == RT_KIND_HALF)
        rt_convert(acc, RT_F32, src, dtype, count);
    else
        memcpy(acc, src, count * rt_dtype_bytes(dtype));
}

static void round_halves(union accumulator *acc, size_t count, enum rt_dtype dtype) {
    for (size_t i = 0; i < count; i++) { /* element i is read before byte 2i is overwritten */
        float wide;
        memcpy(&wide, acc->bytes + i * sizeof wide, sizeof wide);
        uint16_t half = dtype == RT_F16 ? rt_f32_to_f16(wide) : rt_f32_to_bf16(wide);
        memcpy(acc->bytes + i * sizeof half, &half, sizeof half);
    }
}

void rt_reduce_ordered(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count,
                       enum rt_dtype dtype, enum rt_reduce reduce) {
    union accumulator acc;
    const size_t element = rt_dtype_bytes(dtype);
    for (size_t done = 0; done < count; done += CHUNK) {
        const size_t piece = count - done < CHUNK ? count - done : CHUNK, offset = done * element;
        load_first(&acc, (const unsigned char *)src[0] + offset, piece, dtype);
        for (int r = 1; r < nsrc; r++) folds[dtype][reduce](&acc, (const unsigned char *)src[r] + offset, piece);
        if (rt_dtypes[dtype].kind == RT_KIND_HALF) round_halves(&acc, piece, dtype);
        for (int r = 0; r < ndst; r++) memcpy((unsigned char *)dst[r] + offset, &acc, piece * element);
    }
}
