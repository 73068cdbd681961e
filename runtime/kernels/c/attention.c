#include "kernels.h"

#include "../../generated.h"
#include "internal.h"
#include "math.h"
#include "stored.h"

#include <float.h>
#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Note [Attention]
 * Keys are processed in tiles of KEYS, with a running maximum and sum of the softmax (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022): scores stay on the stack. Each vector
 * lane holds one row of q, ROWS rows at a time, so each row's sums are sequential: over the head size for a score, over
 * keys in order for the result. A row's result does not depend on other rows, on where its block begins, or on threads.
 * k and v are read without a copy; those of 16-bit floats are widened tile by tile. Wider vectors give the same bits;
 * instruction sets with fused multiply-add round differently from the reference, which does not use it.
 *
 * Note [Keys that weigh nothing]
 * A tile whose scores are so far below each row's maximum that e^x is 0 (x <= -CUTOFF) would add zeros and is skipped:
 * the upper triangle of a causal mask, or padding. The scores are known if all of them are masked, and bounded by d
 * max|q| max|k| if a bias is added. A tile with an infinity or NaN in v is computed, so skipping changes no bit, except
 * that -0 may become 0 if all results so far were -0. */
enum {
    ROWS = 32,
    KEYS = 64,
    DEPTH = 256, /* most of a head's size at a time */
    PARALLEL_PRODUCTS = 1 << 18
};
#undef NAME
#define LOWEST     (-(double)FLT_MAX)
#define ATT_(a, b) a##_##b
#define ATT(a, b)  ATT_(a, b)

/* Arguments of a call, with derived extents. */
struct call {
    const struct rt_attention *shape;
    int64_t batch, kv, t, s, d, e;
    int64_t rows; /* of q for each head of k: group x t */
    const uint8_t *keep;
    /* per dimension of q but the last; 0: repeated */
    int64_t keep_stride[RT_MAX_NDIM], bias_stride[RT_MAX_NDIM], sink_stride[RT_MAX_NDIM];
    int64_t keep_key, bias_key; /* between keys */
    int causal, drop, bias_first, clamp, nan_to_zero;
    int64_t window; /* keys that a causal row sees; without a window more than there are */
    double scale, fill, cap;
};

/* Where the rows of a block find their masks and sinks, and the last key that a causal row sees. */
struct places {
    int64_t keep[ROWS], bias[ROWS], sink[ROWS], limit[ROWS];
};

/* Unused lanes repeat the last row. */
static void place_rows(const struct call *call, int64_t head, int64_t first, int count, struct places *at) {
    const struct rt_attention *shape = call->shape;
    int heads = shape->ndim - 3; /* the dimension of q that counts heads */
    int64_t keep = 0, bias = 0, sink = 0, rest = head / call->kv, group = call->rows / call->t;
    for (int d = heads - 1; d >= 0; d--) {
        keep += rest % shape->q[d] * call->keep_stride[d];
        bias += rest % shape->q[d] * call->bias_stride[d];
        sink += rest % shape->q[d] * call->sink_stride[d];
        rest /= shape->q[d];
    }
    for (int r = 0; r < ROWS; r++) {
        int64_t row = first + (r < count ? r : count - 1), h = head % call->kv * group + row / call->t;
        int64_t t = row % call->t;
        at->keep[r] = keep + h * call->keep_stride[heads] + t * call->keep_stride[heads + 1];
        at->bias[r] = bias + h * call->bias_stride[heads] + t * call->bias_stride[heads + 1];
        at->sink[r] = sink + h * call->sink_stride[heads];
        at->limit[r] = shape->start + t + shape->offset;
    }
}

#define SCALAR_MADD(a, x, sum) ((sum) + (a) * (x))

#define SET(stem) stem
#define TARGET
#define BYTES    16
#define STEP     4
#define MADD_F32 SCALAR_MADD
#define MADD_F64 SCALAR_MADD
#include "attention_types.inc"

#ifdef __x86_64__

#define SET(stem)           stem##_avx2
#define TARGET              __attribute__((target("avx2,fma")))
#define BYTES               32
#define STEP                4
#define MADD_F32(a, x, sum) _mm256_fmadd_ps(_mm256_set1_ps(a), x, sum)
#define MADD_F64(a, x, sum) _mm256_fmadd_pd(_mm256_set1_pd(a), x, sum)
#include "attention_types.inc"

#define SET(stem)           stem##_avx512
#define TARGET              __attribute__((target("avx512f,fma")))
#define BYTES               64
#define STEP                8
#define MADD_F32(a, x, sum) _mm512_fmadd_ps(_mm512_set1_ps(a), x, sum)
#define MADD_F64(a, x, sum) _mm512_fmadd_pd(_mm512_set1_pd(a), x, sum)
#include "attention_types.inc"

#define BEST(s, reference)                                                                                             \
    ((reference)                                                       ? attention_##s                                 \
     : __builtin_cpu_supports("avx512f")                               ? attention_##s##_avx512                        \
     : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? attention_##s##_avx2                          \
                                                                       : attention_##s)
#else
#define BEST(s, reference) attention_##s
#endif

/* Distances in elements between neighbours of a mask's dimensions, 0 where it is repeated. */
static int64_t mask_strides(const int64_t *mask, int ndim, int64_t *stride) {
    int64_t step = 1, key = 0;
    for (int d = ndim - 1; d >= 0; d--) {
        int64_t own = !mask || mask[d] == 1 ? 0 : step;
        if (d == ndim - 1) key = own;
        stride[d] = own;
        if (mask) step *= mask[d];
    }
    return key;
}

static struct call call_of(const struct rt_attention *shape, const uint8_t *keep) {
    int ndim = shape->ndim;
    struct call call = {.shape = shape,
                        .batch = 1,
                        .kv = shape->kv,
                        .t = shape->q[ndim - 2],
                        .s = shape->s,
                        .d = shape->q[ndim - 1],
                        .e = shape->e,
                        .keep = keep,
                        .causal = shape->causal,
                        .drop = shape->drop,
                        .bias_first = shape->bias_first,
                        .clamp = shape->clamp,
                        .nan_to_zero = shape->nan_to_zero,
                        .window = shape->window ? shape->window : INT64_MAX / 2,
                        .scale = shape->scale,
                        .fill = shape->fill,
                        .cap = shape->cap};
    for (int d = 0; d < ndim - 3; d++) call.batch *= shape->q[d];
    call.rows = call.kv ? shape->q[ndim - 3] / call.kv * call.t : 0;
    call.keep_key = mask_strides(shape->keep, ndim, call.keep_stride);
    call.bias_key = mask_strides(shape->bias, ndim, call.bias_stride);
    mask_strides(shape->sink, ndim, call.sink_stride);
    return call;
}

#define DEFINE_ATTENTION(T, suffix)                                                                                    \
    int rt_attention_##suffix(struct rt *rt, T *y, const T *q, const T *k, const T *v, const uint8_t *keep,            \
                              const T *bias, const T *sink, const struct rt_attention *shape) {                        \
        struct call call = call_of(shape, keep);                                                                       \
        int64_t blocks = (call.rows + ROWS - 1) / ROWS, heads = call.batch * call.kv;                                  \
        int parallel =                                                                                                 \
            (double)heads * (double)call.rows * (double)call.s * (double)(call.d + call.e) >= PARALLEL_PRODUCTS;       \
        void (*run)(const struct call *, T *, const T *, const T *, const T *, const T *, const T *, int64_t, int64_t, \
                    int) = BEST(suffix, rt->reference_kernels);                                                        \
        if (heads == 0 || call.rows == 0 || call.e == 0) return RT_OK;                                                 \
        if (call.s == 0) return memset(y, 0, (size_t)(heads * call.rows * call.e) * sizeof *y), RT_OK;                 \
        _Pragma("omp parallel for schedule(dynamic) if (parallel)") for (int64_t i = 0; i < heads * blocks; i++) {     \
            int64_t first = (blocks - 1 - i % blocks) * ROWS; /* causal: long rows first */                            \
            run(&call, y, q, k, v, bias, sink, i / blocks, first, (int)min_i64(ROWS, call.rows - first));              \
        }                                                                                                              \
        return RT_OK;                                                                                                  \
    }

DEFINE_ATTENTION(float, f32)
DEFINE_ATTENTION(double, f64)
DEFINE_ATTENTION(uint16_t, bf16)
DEFINE_ATTENTION(uint16_t, fp16)
