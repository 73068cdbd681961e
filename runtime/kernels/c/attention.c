#include "kernels.h"

#include "../../generated.h"
#include "math.h"
#include "stored.h"
#include "types.h"

#include <float.h>
#include <math.h>
#include <omp.h>
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
    SPAN = 256,  /* keys whose gradients are summed at a time */
    PARALLEL_PRODUCTS = 1 << 18
};
#define LOWEST (-(double)FLT_MAX)

/* Arguments of a call, with derived extents. */
struct call {
    const struct rt_attention *shape;
    int64_t batch, kv, t, s, d, e;
    int64_t rows; /* of q for each head of k: group x t */
    /* between neighbours of each dimension (b.., heads, lines, elements), in elements */
    int64_t q_step[RT_MAX_NDIM], k_step[RT_MAX_NDIM], v_step[RT_MAX_NDIM], y_step[RT_MAX_NDIM];
    const uint8_t *keep;
    /* per dimension of q but the last; 0: repeated */
    int64_t keep_stride[RT_MAX_NDIM], bias_stride[RT_MAX_NDIM], sink_stride[RT_MAX_NDIM];
    int64_t keep_key, bias_key; /* between keys */
    int causal, drop, bias_first, clamp, nan_to_zero;
    int64_t window; /* keys that a causal row sees; without a window more than there are */
    double scale, fill, cap;
};

/* Where the rows of a block lie in q and y, find their masks and sinks, and the last key that a causal row sees; where
 * their head of k and of v begins. */
struct places {
    int64_t q[ROWS], y[ROWS], keep[ROWS], bias[ROWS], sink[ROWS], limit[ROWS];
    int64_t k, v;
};

/* Offset of sample `sample` of a tensor with these steps. */
static int64_t sample_at(const struct call *call, int64_t sample, const int64_t *step) {
    int64_t at = 0;
    for (int d = call->shape->ndim - 4; d >= 0; d--) {
        at += sample % call->shape->q[d] * step[d];
        sample /= call->shape->q[d];
    }
    return at;
}

/* Offset of a head of k or v, counted over all samples. */
static int64_t head_at(const struct call *call, int64_t head, const int64_t *step) {
    return sample_at(call, head / call->kv, step) + head % call->kv * step[call->shape->ndim - 3];
}

/* Unused lanes repeat the last row. */
static void place_rows(const struct call *call, int64_t head, int64_t first, int count, struct places *at) {
    const struct rt_attention *shape = call->shape;
    const int heads = shape->ndim - 3; /* the dimension of q that counts heads */
    const int64_t sample = head / call->kv, group = call->rows / call->t;
    const struct {
        int64_t *at;
        const int64_t *step;
        int64_t begin;
    } of[] = {{at->q, call->q_step, sample_at(call, sample, call->q_step)},
              {at->y, call->y_step, sample_at(call, sample, call->y_step)},
              {at->keep, call->keep_stride, sample_at(call, sample, call->keep_stride)},
              {at->bias, call->bias_stride, sample_at(call, sample, call->bias_stride)},
              {at->sink, call->sink_stride, sample_at(call, sample, call->sink_stride)}};
    at->k = head_at(call, head, call->k_step);
    at->v = head_at(call, head, call->v_step);
    for (int r = 0; r < ROWS; r++) {
        int64_t row = first + (r < count ? r : count - 1), h = head % call->kv * group + row / call->t;
        int64_t t = row % call->t;
        for (int i = 0; i < 5; i++) of[i].at[r] = of[i].begin + h * of[i].step[heads] + t * of[i].step[heads + 1];
        at->limit[r] = shape->start + t + (t >= call->t / 2 ? shape->jump : 0) + shape->offset;
    }
}

/* True for a row whose weights are 0, not quotients by the sum of its terms. */
static inline int has_no_weights(const struct call *call, double sum) {
    return call->nan_to_zero == RT_HIDDEN_ROWS_TO_ZERO ? sum == 0 : call->nan_to_zero && !(sum > 0);
}

/* Operands and results of the gradient. Steps of dy are y_step of `of`. */
struct grad_call {
    struct call of;
    struct rt_strided dq, dk, dv, dy, y;
    const float *q, *k, *v, *bias, *stats;
};

/* What a call of the gradient's kernel computes: of one head of k, spans [span, behind_span) of keys and blocks
 * [block, behind_block) of rows; dq of the rows, and dk and dv of the keys. */
struct grad_part {
    int64_t head, span, behind_span, block, behind_block;
    int rows, keys;
};

/* T: the computed type; E: that of arrays; VECTOR: of elements T. STEP: keys, or columns of v, summed at once. */
#define T       TYPE(WIDE)
#define E       TYPE(SUFFIX)
#define VECTOR  OWN(vector)
#define WIDTH   (BYTES / (int)sizeof(T))
#define VECTORS 2
#define STEP    (BYTES == 64 ? 8 : 4)
#define BLOCK   OWN(block)
#define INLINE  static inline __attribute__((always_inline))
#define EXP     PASTE(rt_exp, WIDE)
#define TANH    PASTE(rt_tanh, WIDE)
#define LOAD    NAME(load)
#define ROWS_OF NAME(load_rows)
#define EACH(r) for (int r = 0; r < ROWS; r++)

/* e^x is 0 for x <= -CUTOFF. */
#define CUTOFF     PASTE(CUTOFF, WIDE)
#define CUTOFF_f32 120.0
#define CUTOFF_f64 800.0

/* sum + a x, of a number and two vectors. */
#define MADD(a, x, sum)            PASTE(PASTE(MADD, WIDE), SET)(a, x, sum)
#define MADD_f32_plain(a, x, sum)  ((sum) + (a) * (x))
#define MADD_f64_plain(a, x, sum)  ((sum) + (a) * (x))
#define MADD_f32_avx2(a, x, sum)   _mm256_fmadd_ps(_mm256_set1_ps(a), x, sum)
#define MADD_f64_avx2(a, x, sum)   _mm256_fmadd_pd(_mm256_set1_pd(a), x, sum)
#define MADD_f32_avx512(a, x, sum) _mm512_fmadd_ps(_mm512_set1_ps(a), x, sum)
#define MADD_f64_avx512(a, x, sum) _mm512_fmadd_pd(_mm512_set1_pd(a), x, sum)

#define PART  "attention.inc"
#define TYPES (FLOATS | HALVES)
#include "sets.inc"

#define PART  "attention_grad.inc"
#define TYPES IN_f32
#include "sets.inc"
#undef T

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

static void copy_steps(const struct rt_attention *shape, int64_t *step, const struct rt_strided *from) {
    memcpy(step, from->step, (size_t)shape->ndim * sizeof *step);
}

/* y: the result, or what has its strides. */
static struct call call_of(const struct rt_attention *shape, const struct rt_strided *y, const struct rt_strided *q,
                           const struct rt_strided *k, const struct rt_strided *v, const uint8_t *keep) {
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
    copy_steps(shape, call.y_step, y);
    copy_steps(shape, call.q_step, q);
    copy_steps(shape, call.k_step, k);
    copy_steps(shape, call.v_step, v);
    return call;
}

/* y, and stats unless it is NULL. */
#define DEFINE_ATTENTION(T, suffix)                                                                                    \
    static int attend_##suffix(struct rt *rt, const struct call *call, T *y, float *stats, const T *q, const T *k,     \
                               const T *v, const T *bias, const T *sink) {                                             \
        const int64_t blocks = (call->rows + ROWS - 1) / ROWS, heads = call->batch * call->kv;                         \
        const int parallel =                                                                                           \
            (double)heads * (double)call->rows * (double)call->s * (double)(call->d + call->e) >= PARALLEL_PRODUCTS;   \
        void (*run)(const struct call *, T *, float *, const T *, const T *, const T *, const T *, const T *, int64_t, \
                    int64_t, int) = rt->reference_kernels ? attention_##suffix##_plain : BEST(attention_##suffix);     \
        if (heads == 0 || call->rows == 0 || call->e == 0) return RT_OK;                                               \
        _Pragma("omp parallel for schedule(dynamic) if (parallel)") for (int64_t i = 0; i < heads * blocks; i++) {     \
            int64_t first = (blocks - 1 - i % blocks) * ROWS; /* causal: long rows first */                            \
            run(call, y, stats, q, k, v, bias, sink, i / blocks, first, (int)min_i64(ROWS, call->rows - first));       \
        }                                                                                                              \
        return RT_OK;                                                                                                  \
    }                                                                                                                  \
    int rt_attention_##suffix(struct rt *rt, const struct rt_strided *y, const struct rt_strided *q,                   \
                              const struct rt_strided *k, const struct rt_strided *v, const uint8_t *keep,             \
                              const T *bias, const T *sink, const struct rt_attention *shape) {                        \
        const struct call call = call_of(shape, y, q, k, v, keep);                                                     \
        return attend_##suffix(rt, &call, y->at, NULL, q->at, k->at, v->at, bias, sink);                               \
    }

RT_FLOATS(DEFINE_ATTENTION)
RT_HALVES(DEFINE_ATTENTION)

#define DEFINE_FLASH(T, suffix)                                                                                        \
    int rt_flash_attention_##suffix(struct rt *rt, const struct rt_strided *y, float *stats,                           \
                                    const struct rt_strided *q, const struct rt_strided *k,                            \
                                    const struct rt_strided *v, const uint8_t *keep, const T *bias, const T *sink,     \
                                    const struct rt_attention *shape) {                                                \
        const struct call call = call_of(shape, y, q, k, v, keep);                                                     \
        return attend_##suffix(rt, &call, y->at, stats, q->at, k->at, v->at, bias, sink);                              \
    }

DEFINE_FLASH(float, f32)
RT_HALVES(DEFINE_FLASH)

/* Gradient -------------------------------------------------------------------------------------------------------- */

/* dq, dk, dv. One thread has all keys of a head, so that no sum depends on threads; where there are fewer heads than
 * threads, dk and dv are summed by spans of keys, and dq by blocks of rows, each with scores of its own, in the same
 * order. */
int rt_flash_attention_grad_f32(struct rt *rt, const struct rt_strided *dq, const struct rt_strided *dk,
                                const struct rt_strided *dv, const struct rt_strided *dy, const struct rt_strided *q,
                                const struct rt_strided *k, const struct rt_strided *v, const struct rt_strided *y,
                                const float *stats, const uint8_t *keep, const float *bias,
                                const struct rt_attention *shape) {
    struct grad_call call = {.of = call_of(shape, dy, q, k, v, keep),
                             .dq = *dq,
                             .dk = *dk,
                             .dv = *dv,
                             .dy = *dy,
                             .y = *y,
                             .q = q->at,
                             .k = k->at,
                             .v = v->at,
                             .bias = bias,
                             .stats = stats};
    const int64_t heads = call.of.batch * call.of.kv, spans = max_i64(1, (call.of.s + SPAN - 1) / SPAN);
    const int64_t blocks = (call.of.rows + ROWS - 1) / ROWS;
    const double products = (double)heads * (double)call.of.rows * (double)call.of.s * (double)(call.of.d + call.of.e);
    const int threads = products >= PARALLEL_PRODUCTS ? omp_get_max_threads() : 1;
    void (*run)(const struct grad_call *, const struct grad_part *) =
        rt->reference_kernels ? attention_grad_f32_plain : BEST(attention_grad_f32);
    if (heads >= threads || threads == 1) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
        for (int64_t head = 0; head < heads; head++) run(&call, &(struct grad_part){head, 0, spans, 0, blocks, 1, 1});
        return RT_OK;
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < heads * spans; i++)
        run(&call, &(struct grad_part){i / spans, i % spans, i % spans + 1, 0, blocks, 0, 1});
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < heads * blocks; i++) {
        const int64_t block = blocks - 1 - i % blocks;
        run(&call, &(struct grad_part){i / blocks, 0, spans, block, block + 1, 1, 0});
    }
    return RT_OK;
}
