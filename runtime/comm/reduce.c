#include "comm/reduce.h"

#include "base/clones.h"
#include "base/number/half.h"

#include <stdbool.h>
#include <string.h>

/* Elements reduced at a time: the accumulator stays in the L1 cache while the sources stream through. */
#define CHUNK 1024

union accumulator {
    unsigned char bytes[CHUNK * 8];
    float f32[CHUNK];
    uint64_t align;
};

/* out[i] = left[i] op right[i]; out may be left or right. For 16-bit floats left and out are f32, otherwise the type
 * itself. */
typedef void fold_fn(void *out, const void *left, const void *right, size_t count);

#define FOLD(name, acc_type, src_type, expression)                                                                     \
    CLONES static void name(void *out_bytes, const void *left_bytes, const void *right_bytes, size_t count) {          \
        acc_type *out = out_bytes;                                                                                     \
        const acc_type *left = left_bytes;                                                                             \
        const src_type *right = right_bytes;                                                                           \
        _Pragma("GCC ivdep") for (size_t i = 0; i < count; i++) {                                                      \
            const acc_type a = left[i];                                                                                \
            const src_type b = right[i];                                                                               \
            out[i] = expression;                                                                                       \
        }                                                                                                              \
    }

/* One macro per kind of dtype.h. b != b is true if b is NaN; if a is NaN, all comparisons are false and a is kept. */
#define FOLD_FLOAT(id, c_type)                                                                                         \
    FOLD(sum_##id, c_type, c_type, a + b)                                                                              \
    FOLD(max_##id, c_type, c_type, b > a || b != b ? b : a)                                                            \
    FOLD(min_##id, c_type, c_type, b < a || b != b ? b : a)
#define FOLD_INT(id, c_type)                                                                                           \
    FOLD(sum_##id, c_type, c_type, (c_type)((uint64_t)a + (uint64_t)b))                                                \
    FOLD(max_##id, c_type, c_type, b > a ? b : a)                                                                      \
    FOLD(min_##id, c_type, c_type, b < a ? b : a)
#define FOLD_UINT(id, c_type) FOLD_INT(id, c_type)
#define FOLD_BOOL(id, c_type)                                                                                          \
    FOLD(sum_##id, c_type, c_type, (c_type)(a || b))                                                                   \
    FOLD(max_##id, c_type, c_type, (c_type)(a || b))                                                                   \
    FOLD(min_##id, c_type, c_type, (c_type)(a && b))
#define FOLD_CODE_FLOAT(id, c_type) FOLD_INT(id, c_type) /* never called: there is no arithmetic on codes */
#define FOLD_CODE_INT(id, c_type)   FOLD_INT(id, c_type)
#define FOLD_CODE_UINT(id, c_type)  FOLD_INT(id, c_type)
#define WIDE(id, b)                 WIDE_##id(b)
#define WIDE_F16                    rt_f16_to_f32
#define WIDE_BF16                   rt_bf16_to_f32
#define FOLD_HALF(id, c_type)                                                                                          \
    FOLD(sum_##id, float, c_type, a + WIDE(id, b))                                                                     \
    FOLD(max_##id, float, c_type, WIDE(id, b) > a || WIDE(id, b) != WIDE(id, b) ? WIDE(id, b) : a)                     \
    FOLD(min_##id, float, c_type, WIDE(id, b) < a || WIDE(id, b) != WIDE(id, b) ? WIDE(id, b) : a)

#define DTYPE(id, name, onnx, bytes, kind, c_type, npy, eps) FOLD_##kind(id, c_type)
RT_DTYPES(DTYPE)
#undef DTYPE

static fold_fn *const folds[RT_DTYPE_COUNT][3] = {
#define DTYPE(id, name, onnx, bytes, kind, c_type, npy, eps) {sum_##id, max_##id, min_##id},
    RT_DTYPES(DTYPE)
#undef DTYPE
};

static void round_halves(void *dst, const float *acc, size_t count, enum rt_dtype dtype) {
    uint16_t *half = dst;
    for (size_t i = 0; i < count; i++) half[i] = dtype == RT_F16 ? rt_f32_to_f16(acc[i]) : rt_f32_to_bf16(acc[i]);
}

/* Reduces at most CHUNK elements at `offset` bytes of all sources into dst. Only the last step writes dst, because it
 * may be a source. 16-bit floats are accumulated in f32 and rounded once at the end. */
static void reduce_chunk(void *dst, const void *const *src, int nsrc, size_t offset, size_t count, enum rt_dtype dtype,
                         fold_fn *fold) {
    union accumulator acc;
    const bool half = rt_dtypes[dtype].kind == RT_KIND_HALF;
    const void *left = (const unsigned char *)src[0] + offset;
    if (half) {
        rt_convert(&acc, RT_F32, left, dtype, count);
        left = &acc;
    }
    for (int r = 1; r < nsrc; r++) {
        void *out = r == nsrc - 1 && !half ? dst : &acc;
        fold(out, left, (const unsigned char *)src[r] + offset, count);
        left = out;
    }
    if (half)
        round_halves(dst, acc.f32, count, dtype);
    else if (left != dst)
        memcpy(dst, left, count * rt_dtype_bytes(dtype));
}

void rt_reduce_ordered(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, enum rt_dtype dtype,
                       enum rt_reduce reduce) {
    const size_t element = rt_dtype_bytes(dtype);
    for (size_t done = 0; done < count; done += CHUNK) {
        const size_t piece = count - done < CHUNK ? count - done : CHUNK, offset = done * element;
        void *first = (unsigned char *)dst[0] + offset;
        reduce_chunk(first, src, nsrc, offset, piece, dtype, folds[dtype][reduce]);
        for (int r = 1; r < ndst; r++) memcpy((unsigned char *)dst[r] + offset, first, piece * element);
    }
}
