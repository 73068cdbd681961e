#include "kernels.h"

#include "../../generated.h"
#include "math.h"
#include "stored.h"
#include "turn.h"
#include "types.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stddef.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Note [Attention]
 * Keys are processed in tiles of KEYS, with a running maximum and sum of the softmax (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022): scores stay on the stack. The rows of
 * all heads of q that share a head of k and v are computed together, up to ROWS at a time. For scores each vector lane
 * holds a key, so a tile of k is transposed first, once for all rows; for results a lane holds an element of v. A
 * vector of either serves up to GROUP rows while it is in a register. One row, as of a step of decoding, so takes about
 * the time in which k and v are read. They are read where they are; 16-bit floats and codes are widened tile by tile.
 *
 * Note [Order of attention's sums]
 * The order of a row's sums follows from d and s alone:
 *   a score      one chain over d
 *   a piece      PIECE keys: of the terms e^(score - largest so far) FOLD partial sums, of keys that are FOLD apart,
 *                then halves of them onto halves; of the values one chain over the keys
 *   a row        its pieces, in order, each summed by itself and then brought to the larger maximum
 * So a row's result does not depend on other rows, on where its block begins, or on threads, which share heads, blocks
 * of rows and, where these are few, pieces. Wider vectors give the same bits; instruction sets with fused multiply-add
 * round differently from the reference, which does not use it.
 *
 * Note [Hidden keys]
 * Keys that a causal row does not see, after it or before its window, are not read: blocks of rows leave out tiles, and
 * groups of rows parts of tiles, and the other scores of such keys become -inf. That is what the definition says if e^x
 * is 0 (x <= -CUTOFF) for what `fill` is less than the row's largest score, which is known at the end. If it is not, as
 * of a row that sees no key, the row is computed again with all keys.
 *
 * Note [Keys that weigh nothing]
 * A tile whose other scores are so far below each row's maximum that e^x is 0 would add zeros and is skipped: padding.
 * The scores are known if all of them are masked, and bounded by d max|q| max|k| if a bias is added. A tile with an
 * infinity or NaN in v is computed, so skipping changes no bit, except that -0 may become 0 if all results so far were
 * -0. */
enum {
    ROWS = 128,
    GROUP = 8,
    KEYS = 64,
    PIECE = 512,
    FOLD = 16,
    DEPTH = 256,    /* most of a head's size at a time */
    WAVE = 64,      /* pieces that threads sum before their sums are added */
    AHEAD = 32,     /* keys that are prefetched before they are read */
    GRAD_ROWS = 64, /* rows of the gradient at a time */
    SPAN = 256,     /* keys whose gradients are summed at a time */
    PARALLEL_PRODUCTS = 1 << 18
};
#define LOWEST (-(double)FLT_MAX)

/* n elements in whole vectors of any instruction set. */
#define PADDED(n) (((n) + FOLD - 1) / FOLD * FOLD)

/* Keys or values as they are stored, and of codes the scales of their rows; steps as of struct call. */
struct kept {
    const void *at;
    const float *scale; /* NULL: of no codes */
    int64_t step[RT_MAX_NDIM], scale_step[RT_MAX_NDIM];
};

/* Arguments of a call, with derived extents. */
struct call {
    const struct rt_attention *shape;
    int64_t batch, kv, t, s, d, e;
    int64_t rows; /* of q for each head of k: group x t */
    void *y;
    float *stats; /* (b..,heads,t,2), or NULL */
    const void *q, *bias, *sink;
    struct kept k, v;
    const uint8_t *keep;
    /* between neighbours of each dimension (b.., heads, lines, elements), in elements */
    int64_t q_step[RT_MAX_NDIM], y_step[RT_MAX_NDIM];
    /* per dimension of q but the last; 0: repeated */
    int64_t keep_stride[RT_MAX_NDIM], bias_stride[RT_MAX_NDIM], sink_stride[RT_MAX_NDIM];
    int64_t keep_key, bias_key; /* between keys */
    int causal, drop, bias_first, clamp, nan_to_zero;
    int64_t window; /* keys that a causal row sees; without a window more than there are */
    double scale, fill, cap;
};

/* Rows [first, first + count) of those that share a head of k and v, counted over all samples. */
struct rows {
    int64_t head, first;
    int count;
};

/* Where the rows of a block lie in q and y, find their masks and sinks, and the last key that a causal row sees. */
struct places {
    int64_t q[ROWS], y[ROWS], keep[ROWS], bias[ROWS], sink[ROWS], limit[ROWS];
};

/* Sums of some rows over some keys: of each row, the largest score, the sum of e^(score - largest), and that of the
 * values times these; the largest score that a key has that was left out (Note [Hidden keys]). */
#define DEFINE_SUMS(T, suffix)                                                                                         \
    struct sums_##suffix {                                                                                             \
        double left_out;                                                                                               \
        T high[ROWS];                                                                                                  \
        double sum[ROWS];                                                                                              \
        T part[ROWS][FOLD];                                                                                            \
        _Alignas(64) T out[ROWS * DEPTH];                                                                              \
    };                                                                                                                 \
    struct sums_of_few_##suffix {                                                                                      \
        double left_out, sum[GROUP];                                                                                   \
        T high[GROUP];                                                                                                 \
        _Alignas(64) T out[GROUP * DEPTH];                                                                             \
    };
RT_FLOATS(DEFINE_SUMS)

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

static void place_rows(const struct call *call, const struct rows *rows, struct places *at) {
    const struct rt_attention *shape = call->shape;
    const int heads = shape->ndim - 3; /* the dimension of q that counts heads */
    const int64_t head = rows->head, sample = head / call->kv, group = call->rows / call->t;
    const struct {
        int64_t *at;
        const int64_t *step;
        int64_t begin;
    } of[] = {{at->q, call->q_step, sample_at(call, sample, call->q_step)},
              {at->y, call->y_step, sample_at(call, sample, call->y_step)},
              {at->keep, call->keep_stride, sample_at(call, sample, call->keep_stride)},
              {at->bias, call->bias_stride, sample_at(call, sample, call->bias_stride)},
              {at->sink, call->sink_stride, sample_at(call, sample, call->sink_stride)}};
    for (int r = 0; r < rows->count; r++) {
        const int64_t row = rows->first + r, h = head % call->kv * group + row / call->t, t = row % call->t;
        for (int i = 0; i < 5; i++) of[i].at[r] = of[i].begin + h * of[i].step[heads] + t * of[i].step[heads + 1];
        at->limit[r] = shape->start + t + (t >= call->t / 2 ? shape->jump : 0) + shape->offset;
    }
}

/* True for a row whose weights are 0, not quotients by the sum of its terms. */
static inline int has_no_weights(const struct call *call, double sum) {
    return call->nan_to_zero == RT_HIDDEN_ROWS_TO_ZERO ? sum == 0 : call->nan_to_zero && !(sum > 0);
}

/* True if `fill` is so large that hidden keys have weights in most rows: then nothing is left out. */
static inline int fills_all(const struct call *call) {
    return call->causal && !(call->fill <= -1e4);
}

/* Operands and results of the gradient. Steps of dy are y_step of `of`. */
struct grad_call {
    struct call of;
    struct rt_strided dq, dk, dv, dy, y;
    const float *stats;
};

/* What a call of the gradient's kernel computes: of one head of k, spans [span, behind_span) of keys and blocks
 * [block, behind_block) of rows; dq of the rows, and dk and dv of the keys. */
struct grad_part {
    int64_t head, span, behind_span, block, behind_block;
    int rows, keys;
};

/* e^x for x <= 0: below -87 it is less than the least normal number, and 0 here, so a power of two is one factor. */
static inline float term_f32(float x) {
    const float bias = 127, least = -87, bounded = x < least ? least : x, power = rt_exp_power_f32(bounded, bias);
    const float scale = rt_exp_scale_f32(rt_f32_bits(power));
    const float value = fmaf(rt_exp_rest_f32(bounded, power - (RT_ROUNDER_F32 + bias)), scale, scale);
    return x < least ? 0 : value;
}

static inline double term_f64(double x) {
    return exp(x);
}

/* to(d,KEYS) = from(n,d) transposed, whose lines are `line` apart; 0 for keys behind n, up to whole vectors. */
#define DEFINE_EXCHANGE(T, suffix)                                                                                     \
    static void exchange_##suffix(T *to, const T *from, int64_t line, int64_t n, int64_t d) {                          \
        for (int64_t j = 0; j < PADDED(n); j++)                                                                        \
            for (int64_t p = 0; p < d; p++) to[p * KEYS + j] = j < n ? from[j * line + p] : 0;                         \
    }
DEFINE_EXCHANGE(float, f32_plain)
DEFINE_EXCHANGE(double, f64_plain)
#ifdef __x86_64__
#define exchange_f64_avx2   exchange_f64_plain
#define exchange_f64_avx512 exchange_f64_plain

/* Blocks of 16 by 16, or 8 by 8, whose pairs of elements, pairs of these, and then lanes of 4 are exchanged. */
__attribute__((target("avx512f"))) static void exchange_f32_avx512(float *to, const float *from, int64_t line,
                                                                   int64_t n, int64_t d) {
    for (int64_t j = 0; j < n; j += 16)
        for (int64_t p = 0; p < d; p += 16) {
            const __mmask16 mask = (__mmask16)(0xffff >> max_i64(16 - (d - p), 0));
            __m512 a[16];
            for (int i = 0; i < 16; i++) __builtin_prefetch(from + (j + AHEAD + i) * line + p, 0, 2);
            for (int i = 0; i < 16; i++)
                a[i] = j + i < n ? _mm512_maskz_loadu_ps(mask, from + (j + i) * line + p) : _mm512_setzero_ps();
            rt_turn_16(a);
            for (int i = 0; i < 16 && p + i < d; i++) _mm512_storeu_ps(to + (p + i) * KEYS + j, a[i]);
        }
}

__attribute__((target("avx2"))) static void exchange_f32_avx2(float *to, const float *from, int64_t line, int64_t n,
                                                              int64_t d) {
    const int64_t whole = d / 8 * 8;
    for (int64_t j = 0; j < PADDED(n); j += 8)
        for (int64_t p = 0; p < whole; p += 8) {
            __m256 a[8], b[8];
            for (int i = 0; i < 8 && p % 16 == 0; i++) __builtin_prefetch(from + (j + AHEAD + i) * line + p, 0, 2);
            for (int i = 0; i < 8; i++)
                a[i] = j + i < n ? _mm256_loadu_ps(from + (j + i) * line + p) : _mm256_setzero_ps();
            for (int i = 0; i < 8; i += 2) {
                b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
                b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
            }
            for (int i = 0; i < 8; i += i % 4 ? 3 : 1) {
                const int h = i % 4, at = i - h;
                a[at + 2 * h] =
                    _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(b[at + h]), _mm256_castps_pd(b[at + 2 + h])));
                a[at + 2 * h + 1] =
                    _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(b[at + h]), _mm256_castps_pd(b[at + 2 + h])));
            }
            for (int c = 0; c < 4; c++) {
                _mm256_storeu_ps(to + (p + c) * KEYS + j, _mm256_permute2f128_ps(a[c], a[4 + c], 0x20));
                _mm256_storeu_ps(to + (p + 4 + c) * KEYS + j, _mm256_permute2f128_ps(a[c], a[4 + c], 0x31));
            }
        }
    exchange_f32_plain(to + whole * KEYS, from + whole, line, n, d - whole);
}
#endif

/* T: the computed type; E: that of arrays, and KEPT_E that of keys and values; VECTOR: of elements T. STEP: lines of
 * sums that are computed at once, and VECTORS: vectors of a line. */
#define T           TYPE(WIDE)
#define E           TYPE(STORED)
#define KEPT_E      TYPE(KEPT)
#define VECTOR      OWN(vector)
#define WIDTH       (BYTES / (int)sizeof(T))
#define VECTORS     4
#define STEP        (BYTES == 64 ? 8 : 4)
#define BLOCK       OWN(block)
#define SUMS_OF_FEW PASTE(sums_of_few, WIDE)
#define SUMS        PASTE(sums, WIDE)
#define INLINE      static inline __attribute__((always_inline))
#define EXP         PASTE(term, WIDE)
#define TANH        PASTE(rt_tanh, WIDE)
#define LOAD        PASTE(load, STORED)
#define ROWS_OF     PASTE(load_rows, KEPT)
#define EXCHANGE    PASTE(PASTE(exchange, WIDE), SET)

/* Suffixes of the types that arrays, and keys and values, are stored in. */
#define STORED             PASTE(STORED, SUFFIX)
#define STORED_f64         f64
#define STORED_f32         f32
#define STORED_bf16        bf16
#define STORED_fp16        fp16
#define STORED_f32_by_bf16 f32
#define STORED_f32_by_fp16 f32
#define STORED_f32_by_i8   f32
#define KEPT               PASTE(KEPT, SUFFIX)
#define KEPT_f64           f64
#define KEPT_f32           f32
#define KEPT_bf16          bf16
#define KEPT_fp16          fp16
#define KEPT_f32_by_bf16   bf16
#define KEPT_f32_by_fp16   fp16
#define KEPT_f32_by_i8     i8

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
#define TYPES (FLOATS | HALVES | IN_f32_by_bf16 | IN_f32_by_fp16 | IN_f32_by_i8)
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
                           const struct rt_strided *k, const struct rt_strided *v, const uint8_t *keep,
                           const void *bias, const void *sink) {
    int ndim = shape->ndim;
    struct call call = {.shape = shape,
                        .batch = 1,
                        .kv = shape->kv,
                        .t = shape->q[ndim - 2],
                        .s = shape->s,
                        .d = shape->q[ndim - 1],
                        .e = shape->e,
                        .y = y->at,
                        .q = q->at,
                        .k.at = k->at,
                        .v.at = v->at,
                        .keep = keep,
                        .bias = bias,
                        .sink = sink,
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
    copy_steps(shape, call.k.step, k);
    copy_steps(shape, call.v.step, v);
    return call;
}

/* How threads share a call: blocks of `rows` rows of each head, and with `cut` the pieces of their keys. */
struct share {
    int64_t heads, rows, blocks, pieces;
    int threads, cut;
};

static struct share share_of(const struct call *call) {
    struct share share = {.heads = call->batch * call->kv, .rows = ROWS, .pieces = (call->s + PIECE - 1) / PIECE};
    const double products =
        (double)share.heads * (double)max_i64(call->rows, GROUP) * (double)call->s * (double)(call->d + call->e);
    share.threads = products >= PARALLEL_PRODUCTS ? omp_get_max_threads() : 1;
    while (share.rows > GROUP && share.heads * ((call->rows + share.rows - 1) / share.rows) < 4 * share.threads)
        share.rows /= 2;
    share.blocks = (call->rows + share.rows - 1) / share.rows;
    share.cut =
        share.threads > 1 && share.pieces > 1 && share.heads * share.blocks < 2 * share.threads && call->e <= DEPTH;
    return share;
}

/* Block i of all heads' blocks; the last of a head, whose rows see the most keys, are first. */
static struct rows block_of(const struct call *call, const struct share *share, int64_t i) {
    const int64_t first = (share->blocks - 1 - i % share->blocks) * share->rows;
    return (struct rows){i / share->blocks, first, (int)min_i64(share->rows, call->rows - first)};
}

typedef void attend_fn(const struct call *call, const struct rows *rows);

static void share_rows(const struct call *call, const struct share *share, attend_fn *attend) {
#pragma omp parallel for schedule(dynamic) num_threads(share->threads)
    for (int64_t i = 0; i < share->heads * share->blocks; i++) {
        const struct rows rows = block_of(call, share, i);
        attend(call, &rows);
    }
}

/* Pieces are summed by all threads, up to WAVE at a time, and their sums added in order. */
#define DEFINE_SHARE_PIECES(T, suffix)                                                                                 \
    typedef void add_piece_fn_##suffix(const struct call *, const struct rows *, int64_t piece,                        \
                                       struct sums_of_few_##suffix *);                                                 \
    typedef void join_fn_##suffix(const struct call *, const struct rows *, int64_t piece, struct sums_##suffix *,     \
                                  const struct sums_of_few_##suffix *);                                                \
    static void share_pieces_##suffix(const struct call *call, const struct share *share, add_piece_fn_##suffix *add,  \
                                      join_fn_##suffix *join) {                                                        \
        const int64_t pieces = share->pieces, all = share->heads * share->blocks * pieces;                             \
        struct sums_##suffix sums;                                                                                     \
        struct sums_of_few_##suffix few[WAVE];                                                                         \
        for (int64_t from = 0; from < all; from += WAVE) {                                                             \
            const int64_t behind = min_i64(all, from + WAVE);                                                          \
            _Pragma("omp parallel for schedule(dynamic) num_threads(share->threads)") for (int64_t i = from;           \
                                                                                           i < behind; i++) {          \
                const struct rows rows = block_of(call, share, i / pieces);                                            \
                add(call, &rows, i % pieces, &few[i - from]);                                                          \
            }                                                                                                          \
            for (int64_t i = from; i < behind; i++) {                                                                  \
                const struct rows rows = block_of(call, share, i / pieces);                                            \
                join(call, &rows, i % pieces, &sums, &few[i - from]);                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }
RT_FLOATS(DEFINE_SHARE_PIECES)

/* With the functions for `wide`, the type that is computed in. */
#define DEFINE_ATTEND(suffix, wide)                                                                                    \
    static int attend_##suffix(struct rt *rt, const struct call *call) {                                               \
        const struct share share = share_of(call);                                                                     \
        const int plain = rt->reference_kernels;                                                                       \
        if (share.heads == 0 || call->rows == 0 || call->e == 0) return RT_OK;                                         \
        if (share.cut)                                                                                                 \
            share_pieces_##wide(call, &share,                                                                          \
                                plain ? attention_piece_##suffix##_plain : BEST(attention_piece_##suffix),             \
                                plain ? attention_join_##suffix##_plain : BEST(attention_join_##suffix));              \
        else                                                                                                           \
            share_rows(call, &share, plain ? attention_##suffix##_plain : BEST(attention_##suffix));                   \
        return RT_OK;                                                                                                  \
    }
DEFINE_ATTEND(f32, f32)
DEFINE_ATTEND(f64, f64)
DEFINE_ATTEND(bf16, f32)
DEFINE_ATTEND(fp16, f32)
DEFINE_ATTEND(f32_by_bf16, f32)
DEFINE_ATTEND(f32_by_fp16, f32)
DEFINE_ATTEND(f32_by_i8, f32)

#define DEFINE_ATTENTION(T, suffix)                                                                                    \
    int rt_attention_##suffix(struct rt *rt, const struct rt_strided *y, const struct rt_strided *q,                   \
                              const struct rt_strided *k, const struct rt_strided *v, const uint8_t *keep,             \
                              const T *bias, const T *sink, const struct rt_attention *shape) {                        \
        const struct call call = call_of(shape, y, q, k, v, keep, bias, sink);                                         \
        return attend_##suffix(rt, &call);                                                                             \
    }

RT_FLOATS(DEFINE_ATTENTION)
RT_HALVES(DEFINE_ATTENTION)
DEFINE_ATTENTION(float, f32_by_bf16)
DEFINE_ATTENTION(float, f32_by_fp16)

int rt_attention_f32_by_i8(struct rt *rt, const struct rt_strided *y, const struct rt_strided *q,
                           const struct rt_strided *k, const struct rt_strided *v, const struct rt_strided *k_scale,
                           const struct rt_strided *v_scale, const uint8_t *keep, const float *bias, const float *sink,
                           const struct rt_attention *shape) {
    struct call call = call_of(shape, y, q, k, v, keep, bias, sink);
    call.k.scale = k_scale->at;
    call.v.scale = v_scale->at;
    copy_steps(shape, call.k.scale_step, k_scale);
    copy_steps(shape, call.v.scale_step, v_scale);
    return attend_f32_by_i8(rt, &call);
}

#define DEFINE_FLASH(T, suffix)                                                                                        \
    int rt_flash_attention_##suffix(struct rt *rt, const struct rt_strided *y, float *stats,                           \
                                    const struct rt_strided *q, const struct rt_strided *k,                            \
                                    const struct rt_strided *v, const uint8_t *keep, const T *bias, const T *sink,     \
                                    const struct rt_attention *shape) {                                                \
        struct call call = call_of(shape, y, q, k, v, keep, bias, sink);                                               \
        call.stats = stats;                                                                                            \
        return attend_##suffix(rt, &call);                                                                             \
    }

DEFINE_FLASH(float, f32)
RT_HALVES(DEFINE_FLASH)

/* dq, dk, dv. One thread has all keys of a head, so that no sum depends on threads; where there are fewer heads than
 * threads, dk and dv are summed by spans of keys, and dq by blocks of rows, each with scores of its own, in the same
 * order. */
int rt_flash_attention_grad_f32(struct rt *rt, const struct rt_strided *dq, const struct rt_strided *dk,
                                const struct rt_strided *dv, const struct rt_strided *dy, const struct rt_strided *q,
                                const struct rt_strided *k, const struct rt_strided *v, const struct rt_strided *y,
                                const float *stats, const uint8_t *keep, const float *bias,
                                const struct rt_attention *shape) {
    const struct grad_call call = {.of = call_of(shape, dy, q, k, v, keep, bias, NULL),
                                   .dq = *dq,
                                   .dk = *dk,
                                   .dv = *dv,
                                   .dy = *dy,
                                   .y = *y,
                                   .stats = stats};
    const int64_t heads = call.of.batch * call.of.kv, spans = max_i64(1, (call.of.s + SPAN - 1) / SPAN);
    const int64_t blocks = (call.of.rows + GRAD_ROWS - 1) / GRAD_ROWS;
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
