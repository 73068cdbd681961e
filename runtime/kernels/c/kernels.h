/* The kernels that generated C programs call, in plain C: this header is their manual.
 *
 * Every tensor is dense and row-major; extents are int64_t, in elements, and may be 0: the output is then empty, or
 * filled with the identity of the reduction. Comments behind pointers give shapes. Tensors do not overlap, except that
 * y may be x where the description says "in place". No kernel allocates memory or keeps state between calls.
 *
 * Name suffixes: _f32 _f64 _i64 _i32 are dtypes; _b1 _b2 _b4 _b8 are element sizes in bytes, for kernels that only move
 * data (any dtype of that size; the pointers are void). Elementwise operators are not here: the compiler generates
 * their loops from expressions, with the scalar functions of math.h.
 *
 * Kernels whose first parameter is `struct rt *` can fail: they return RT_OK or the status of rt_fail().
 *
 * Note [Threads]
 * A kernel uses at most as many threads (team.h) as rt_kernels_threads() set for the calling thread. Threads divide
 * outputs and never the terms of a sum: results do not depend on the number of threads.
 *
 * Note [Order of sums]
 * A reduction over r elements keeps 8 partial results: number l combines elements l, l + 8, l + 16, ... in this order,
 * starting from the identity; the result is ((0+4)+(2+6))+((1+5)+(3+7)). f32 is summed in f64 and rounded once.
 * Normalisations are limited by memory bandwidth and must not be limited by f64 arithmetic: they sum blocks of 512
 * elements in the element type with 32 partial results, combined in the same way (l and l + 16, then l and l + 8, and
 * so on), and add the blocks in f64, in order; squares are in f64 throughout. The order is the same for every (outer,
 * inner), instruction set and number of threads, so cutting a dimension that is not reduced changes no bit. Integers
 * wrap.
 *
 * Floats follow IEEE 754: NaN and infinities propagate. Which NaN's payload results from two NaNs is unspecified. */
#ifndef RT_KERNELS_C_KERNELS_H
#define RT_KERNELS_C_KERNELS_H

#include <stdint.h>

#include "../../base/contract.h"
#include "../../base/dtype.h"
#include "../../base/number/fp8.h"
#include "epilogue.h"
#include "lists.h"
#include "team.h"

struct rt;

/* Settings */

/* Selects the matrix product kernels of a rank: "reference" is plain C; "auto" or NULL uses a library if the runtime
 * was built with one. Returns 0, or -1 for another name. Called by rt_open. */
int rt_kernels_select(struct rt *rt, const char *name);

/* 1 if each element of the rank's f32 products has the same bits for every cut of m and n: always so for the reference;
 * a library is probed, which takes about a millisecond. Note [Products and cuts] in gemm.h. */
int rt_kernels_invariant(const struct rt *rt);

/* Sets the number of threads of kernels called from this thread and returns the previous number, which the end of a
 * step restores. */
int rt_kernels_threads(int threads);

/* Products */

/* ONNX MatMul-13, Gemm-13 without its bias: y(m,n) = a(m,k) b(k,n); trans_a: a is stored as (k,m); trans_b: b is stored
 * as (n,k). k = 0 gives zeros. bmm computes `batch` such products of contiguous tensors. The reference sums over k in
 * increasing order and rounds each product before adding it (no fma), for any m and n. The order of a library (f32
 * only) differs: see gemm.h. */
#define RT_DECLARE_PRODUCT(T, s)                                                                                       \
    int rt_matmul_##s(struct rt *rt, T *y /* (m,n) */, const T *a /* (m,k) */, const T *b /* (k,n) */, int64_t m,      \
                      int64_t k, int64_t n, int trans_a, int trans_b);                                                 \
    int rt_bmm_##s(struct rt *rt, T *y /* (batch,m,n) */, const T *a /* (batch,m,k) */, const T *b /* (batch,k,n) */,  \
                   int64_t batch, int64_t m, int64_t k, int64_t n, int trans_a, int trans_b);

RT_NUMBERS(RT_DECLARE_PRODUCT)
RT_HALVES(RT_DECLARE_PRODUCT) /* summed in f32, as rt_matmul_f32 does it, and rounded once */

/* matmul with a packed b (Note [Panels] in base/shape/panel.h). The reference gives the same bits as that of
 * rt_matmul_f32; otherwise fused multiply-adds in order of k, without a library, so cutting m and n changes no bit.
 * Allocates nothing. The epilogue is applied to each block of y once; NULL: none. */
int rt_matmul_packed_f32(struct rt *rt, float *y /* (m,n) */, const float *a /* (m,k) */,
                         const float *b /* panels of (k,n) */, int64_t m, int64_t k, int64_t n,
                         const struct rt_epilogue *epilogue);

/* The same for 16-bit floats, with b in panels of pairs: summed in f32 and rounded once, after the epilogue. bf16 is
 * multiplied in pairs where the processor does so faster, otherwise as the f32 product of the widened operands. Cutting
 * m and n changes no bit. */
#define RT_DECLARE_PACKED_HALF(T, s)                                                                                   \
    int rt_matmul_packed_##s(struct rt *rt, uint16_t *y /* (m,n) */, const uint16_t *a /* (m,k) */,                    \
                             const uint16_t *b /* panels of (k,n) */, int64_t m, int64_t k, int64_t n,                 \
                             const struct rt_epilogue_half *epilogue);

RT_HALVES(RT_DECLARE_PACKED_HALF)

/* The same of f32 and weights of 16 bits: the f32 product of the widened weights, summed in blocks of RT_GEMM_DEPTH
 * indices of k. */
#define RT_DECLARE_PACKED_BY_HALF(T, s)                                                                                \
    int rt_matmul_packed_f32_by_##s(struct rt *rt, float *y /* (m,n) */, const float *a /* (m,k) */,                   \
                                    const uint16_t *b /* panels of (k,n) */, int64_t m, int64_t k, int64_t n,          \
                                    const struct rt_epilogue *epilogue);

RT_HALVES(RT_DECLARE_PACKED_BY_HALF)

/* The same, but a may be rounded to bf16, where the processor multiplies pairs of bf16 faster. */
int rt_matmul_packed_f32_as_bf16(struct rt *rt, float *y /* (m,n) */, const float *a /* (m,k) */,
                                 const uint16_t *b /* panels of (k,n) */, int64_t m, int64_t k, int64_t n,
                                 const struct rt_epilogue *epilogue);

/* y(n) = x(n) in 16 bits, to nearest even: rt_cast_f32_<half> of math.h by the processor's instructions. */
#define RT_DECLARE_CAST(T, s) void rt_cast_all_f32_##s(T *y, const float *x, int64_t n);

RT_HALVES(RT_DECLARE_CAST)

/* 8-bit floats */

/* q = fp8(x * *scale), as base/number/fp8.h converts; *most = the largest |x|, NaN if x has a NaN. */
#define RT_DECLARE_QUANTIZE(T, s)                                                                                      \
    void rt_quantize_##s(uint8_t *q /* (m,c) */, float *most /* () */, const T *x /* (m,c) */,                         \
                         const float *scale /* () */, int64_t m, int64_t c, enum rt_fp8 format);

RT_FLOATS(RT_DECLARE_QUANTIZE)
RT_HALVES(RT_DECLARE_QUANTIZE)

/* Blocks of an optimizer's moments (base/number/moments.h), `count` elements of f32 or f64. quantize: with *keep 0 the
 * old codes and scales are the result; they may be in place. keep NULL: 1. */
void rt_dequantize_blocks(void *y /* (count) */, const uint8_t *codes, const float *scales, enum rt_dtype dtype,
                          int64_t count, int has_sign);
void rt_quantize_blocks(uint8_t *codes /* (count) */, float *scales /* (count / 256) */, const uint8_t *old_codes,
                        const float *old_scales, const void *x /* (count) */, enum rt_dtype dtype, const uint8_t *keep,
                        int64_t count, int has_sign);

/* y(m,n) = *unscale_a * *unscale_b * a(m,k) b(k,n) for 8-bit floats, b stored as (n,k): summed in f32 like
 * rt_matmul_bf16 and rounded once to f32, bf16 or fp16. `fast` affects GPUs only. */
int rt_scaled_matmul(struct rt *rt, void *y /* (m,n) */, enum rt_dtype dtype, const uint8_t *a /* (m,k) */,
                     const uint8_t *b /* (n,k) */, const float *unscale_a, const float *unscale_b, int64_t m, int64_t k,
                     int64_t n, enum rt_fp8 format_a, enum rt_fp8 format_b, int fast);

/* Quantised tensors */

/* Elements of a type of fewer than 8 bits, one per byte, from packed ones. */
void rt_unpack_codes(void *y /* (count) */, const uint8_t *x, enum rt_dtype dtype, int64_t count);

/* y = x(batch,m,k) (w(batch,k,n) - zero(batch,groups,n)) scale(batch,groups,n): weights of type `codes`, packed unless
 * `type` is the same. groups 0 stands for 1, zero NULL for `offset`, scale NULL, with no zero, for ones. With `turned`
 * they are stored as (n,k) and (n,groups); with `across` scales and zeros are (k,groups), turned (groups,k). `type` may
 * be a 16-bit float. Each element of y is summed in order of k. */
#define RT_DECLARE_DEQUANT(T, s)                                                                                       \
    int rt_dequant_matmul_##s(struct rt *rt, T *y, const T *x, const void *w, const T *scale, const void *zero,        \
                              int64_t batch, int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype type,      \
                              enum rt_dtype codes, double offset, int turned, int across);

RT_FLOATS(RT_DECLARE_DEQUANT)

/* The same of f32 with weights of i4, u4, i8 or u8, stored as (n,k) and packed in panels of bytes (Note [Panels] in
 * base/shape/panel.h), as the scales are; zero is (n,groups). k / groups is a multiple of 32 bits of codes, unless
 * there is one group. With `rounded`, of groups of at most 256, x is rounded to 8 bits per group. The sums are those of
 * Note [Products in groups] in gemm_grouped.h. */
int rt_dequant_matmul_packed(struct rt *rt, float *y, const float *x, const void *w, const float *scale,
                             const void *zero, int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype codes,
                             double offset, int rounded);

/* y(batch,m,n) = (x(batch,m,k) - x_zero) (w(batch,k,n) - w_zero), exact in 32 bits; w as (batch,n,k) with `turned`. x
 * and w are of i8 or u8. A zero point is NULL for 0, or of its operand's type; with per_column, w_zero has n
 * elements. */
int rt_int_matmul(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                  enum rt_dtype x_type, enum rt_dtype w_type, int per_column, int64_t batch, int64_t m, int64_t k,
                  int64_t n, int turned);

/* The same with w in panels if `packed` (Note [Panels] in base/shape/panel.h), and y, of any type, as the epilogue
 * makes it from the sums plus the bias (n), which may be NULL; epilogue NULL: these are the result. */
int rt_int_matmul_finished(struct rt *rt, void *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                           const int32_t *bias, enum rt_dtype x_type, enum rt_dtype w_type, int per_column,
                           int64_t batch, int64_t m, int64_t k, int64_t n, int turned, int packed,
                           const struct rt_epilogue_int *epilogue);

/* The same for ONNX ConvInteger-10: windows as in rt_conv_f32; per_channel: a zero point per output channel. */
int rt_int_conv(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                enum rt_dtype x_type, enum rt_dtype w_type, int per_channel, int ndim, const int64_t *x_dims,
                const int64_t *w_dims, const int64_t *y_dims, int64_t groups, const int64_t *stride,
                const int64_t *dilation, const int64_t *before);

/* The same of x (n,i..,c) to y (n,o..,m), finished as above, with w in panels of its windows (RT_PACK_WINDOWS). */
int rt_int_conv_packed(struct rt *rt, void *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                       const int32_t *bias, enum rt_dtype x_type, enum rt_dtype w_type, int per_channel, int ndim,
                       const int64_t *x_dims, const int64_t *w_dims, const int64_t *y_dims, int64_t groups,
                       const int64_t *stride, const int64_t *dilation, const int64_t *before,
                       const struct rt_epilogue_int *epilogue);

/* ONNX MaxPool-12 of i8 or u8, with channels last if `last`; a window outside of x gives the least number. */
void rt_int_max_pool(void *y, const void *x, enum rt_dtype dtype, int last, int ndim, const int64_t *x_dims,
                     const int64_t *y_dims, const int64_t *extents, const int64_t *stride, const int64_t *dilation,
                     const int64_t *before);

/* Normalisation */

/* ONNX Softmax-13, LogSoftmax-13 over the middle dimension: e / sum(e) with e = exp(x - max(x)), and its logarithm
 * x - max(x) - log(sum(e)). Rows of only -inf, or with a NaN or +inf, give NaN (so does PyTorch). In place.
 *
 * ONNX LayerNormalization-17, first output: (x - mean) / sqrt(variance + epsilon) * scale + bias, mean and variance
 * (of the population) over c in two passes, statistics and quotient in f64. bias may be NULL. In place.
 *
 * ONNX RMSNormalization-23: x / sqrt(mean(x x) + epsilon) * scale. In place. */
#define RT_DECLARE_NORMALIZE(T, s)                                                                                     \
    void rt_softmax_##s(T *y /* (outer,c,inner) */, const T *x /* (outer,c,inner) */, int64_t outer, int64_t c,        \
                        int64_t inner);                                                                                \
    void rt_log_softmax_##s(T *y /* (outer,c,inner) */, const T *x /* (outer,c,inner) */, int64_t outer, int64_t c,    \
                            int64_t inner);                                                                            \
    void rt_layernorm_##s(T *y /* (outer,c) */, const T *x /* (outer,c) */, const T *scale /* (c) */,                  \
                          const T *bias /* (c) */, int64_t outer, int64_t c, double epsilon);                          \
    void rt_rmsnorm_##s(T *y /* (outer,c) */, const T *x /* (outer,c) */, const T *scale /* (c) */, int64_t outer,     \
                        int64_t c, double epsilon);

RT_FLOATS(RT_DECLARE_NORMALIZE)
RT_HALVES(RT_DECLARE_NORMALIZE) /* computed in f32, as of f32 operands, and rounded once */

/* Cross entropy */

/* Parts of a cross entropy whose classes may be cut. x: scores of classes [start, start + c); most: about the largest
 * score of all classes; index: the class of each element (int64_t, or int32_t if index_is_64 is 0).
 *   class_terms       y[0] = sum over classes of e^(x - most), y[1] = x - most of the element's class, 0 if not in
 *                     this part, y[2] = sum over classes of x - most; in f32 for 16-bit scores. The complete result is
 *                     the sum over all parts. A row with a NaN or an infinite largest score has NaN in y[0].
 *   class_terms_grad  dx = e^(x - most) dy[0] + dy[2], plus dy[1] at the element's class. In place of x. */
#define RT_DECLARE_CLASSES(T, E, s)                                                                                    \
    void rt_class_terms_##s(T *y /* (3,outer,inner) */, const E *x /* (outer,c,inner) */,                              \
                            const E *most /* (outer,inner) */, const void *index /* (outer,inner) */, int index_is_64, \
                            int64_t outer, int64_t c, int64_t inner, int64_t start);                                   \
    void rt_class_terms_grad_##s(E *dx /* (outer,c,inner) */, const E *x /* (outer,c,inner) */,                        \
                                 const E *most /* (outer,inner) */, const void *index /* (outer,inner) */,             \
                                 int index_is_64, const T *dy /* (3,outer,inner) */, int64_t outer, int64_t c,         \
                                 int64_t inner, int64_t start);

RT_DECLARE_CLASSES(float, float, f32)
RT_DECLARE_CLASSES(double, double, f64)
RT_DECLARE_CLASSES(float, uint16_t, bf16)
RT_DECLARE_CLASSES(float, uint16_t, fp16)

/* Attention */

/* softmax(scores) v with scores = scale q k^T, modified in this order:
 *   cap, if not 0          scores become cap tanh(score / cap)
 *   bias, if bias_first    is added
 *   keep, causal           masked scores become `fill`. Scores with keep = 0 are masked (keep != 0 if `drop`); if
 *                          causal, so are keys beyond start + t + offset (+ jump in the second half of t), and with a
 *                          window all but the last `window` of the keys up to there
 *   bias, else             is added
 *   clamp                  scores below the lowest finite f32 become that value
 * sink: one more score of each row, for a key whose value is 0.
 * Each head of k and v serves q's heads / kv consecutive heads (grouped-query attention). As in softmax, a row of equal
 * scores has equal weights and a row of -inf gives NaN, unless nan_to_zero says otherwise. The order of a row's sums
 * follows from d and s alone, so cutting any other dimension changes no bit (Note [Order of attention's sums] in
 * attention.c). Keys that a causal row does not see are not read unless they have a weight (Note [Hidden keys]). */
struct rt_attention {
    int ndim;
    const int64_t *q;           /* extents (b.., heads, t, d) */
    const int64_t *keep, *bias; /* extents of the masks (b.., heads, t, s), 1: broadcast; NULL: no mask */
    const int64_t *sink;        /* extents of the sinks (b.., heads, 1, 1), 1: broadcast; NULL: none */
    int64_t kv, s, e;           /* heads of k and v, keys, size of a head of v */
    int64_t start;              /* offset of this part in dimension t; of its second half `jump` more */
    int64_t jump;
    int causal;
    int64_t offset, window;
    int drop, bias_first, clamp;
    int nan_to_zero; /* enum rt_nan_to_zero */
    int library;     /* enum rt_library; none is used on CPUs */
    double scale, fill, cap;
    /* Of flash attention in several calls, each with some of the keys: calls with others come before this one, behind
     * it. The gradient adds to dq what calls before it left there; dk and dv are those of its own keys. */
    int more_before, more_behind;
    float *sums; /* (b..,heads,t,e): of values times e^(score - largest), between calls */
};

/* A tensor whose neighbours in each dimension are `step` elements apart; 1 in the last. */
struct rt_strided {
    void *at;
    const int64_t *step; /* (ndim) */
};

#define RT_DECLARE_ATTENTION(T, s)                                                                                     \
    int rt_attention_##s(struct rt *rt, const struct rt_strided *y /* (b..,heads,t,e) */,                              \
                         const struct rt_strided *q /* (b..,heads,t,d) */,                                             \
                         const struct rt_strided *k /* (b..,kv,s,d) */, const struct rt_strided *v /* (b..,kv,s,e) */, \
                         const uint8_t *keep, const T *bias, const T *sink, const struct rt_attention *shape);

RT_FLOATS(RT_DECLARE_ATTENTION)
RT_HALVES(RT_DECLARE_ATTENTION)          /* computed in f32, as of f32 operands, and rounded once */
RT_DECLARE_ATTENTION(float, f32_by_bf16) /* k and v of 16 bits: as of the widened ones */
RT_DECLARE_ATTENTION(float, f32_by_fp16)

/* Of k and v of codes, as of these times the scales of their rows: k_scale, v_scale (b..,kv,s,1). */
int rt_attention_f32_by_i8(struct rt *rt, const struct rt_strided *y, const struct rt_strided *q,
                           const struct rt_strided *k, const struct rt_strided *v, const struct rt_strided *k_scale,
                           const struct rt_strided *v_scale, const uint8_t *keep, const float *bias, const float *sink,
                           const struct rt_attention *shape);

/* Attention that keeps of each row what its gradient needs: stats, the largest score and the sum of e^(score -
 * largest), the sink's included. The gradient computes the weights from them again (Dao, "FlashAttention-2", 2023).
 * Heads have at most RT_FLASH_HEAD elements. Masks and sinks get no gradient. dk and dv are sums over rows in order:
 * partial sums where dimension t is cut. Cutting b or kv changes no bit, and neither do threads. */
#define RT_DECLARE_FLASH(T, s)                                                                                         \
    int rt_flash_attention_##s(struct rt *rt, const struct rt_strided *y, float *stats /* (b..,heads,t,2) */,          \
                               const struct rt_strided *q, const struct rt_strided *k, const struct rt_strided *v,     \
                               const uint8_t *keep, const T *bias, const T *sink, const struct rt_attention *shape);

RT_DECLARE_FLASH(float, f32)
RT_HALVES(RT_DECLARE_FLASH) /* computed in f32, as of f32 operands, and rounded once */

int rt_flash_attention_grad_f32(struct rt *rt, const struct rt_strided *dq, const struct rt_strided *dk,
                                const struct rt_strided *dv, const struct rt_strided *dy, const struct rt_strided *q,
                                const struct rt_strided *k, const struct rt_strided *v, const struct rt_strided *y,
                                const float *stats, const uint8_t *keep, const float *bias,
                                const struct rt_attention *shape);

/* The same where keys and values are cut along a mesh axis (struct rt_ring in generated.h; passes/place/ring.c): k and
 * v have the rank's own keys, in a cut (blocks, grain) of shape->s keys along `axis`, and masks all keys. dk and dv are
 * complete. Scratch: rt_ring_part_bytes, then sums (b..,heads,t,e) in f32; of the gradient, twice that part. */
#define RT_DECLARE_RING(T, s)                                                                                          \
    int rt_ring_attention_##s(struct rt *rt, int axis, int64_t blocks, int64_t grain, const struct rt_strided *y,      \
                              float *stats, const struct rt_strided *q, const struct rt_strided *k,                    \
                              const struct rt_strided *v, const uint8_t *keep, const T *bias, const T *sink,           \
                              const struct rt_attention *shape);

RT_DECLARE_RING(float, f32)
RT_HALVES(RT_DECLARE_RING)

int rt_ring_attention_grad_f32(struct rt *rt, int axis, int64_t blocks, int64_t grain, const struct rt_strided *dq,
                               const struct rt_strided *dk, const struct rt_strided *dv, const struct rt_strided *dy,
                               const struct rt_strided *q, const struct rt_strided *k, const struct rt_strided *v,
                               const struct rt_strided *y, const float *stats, const uint8_t *keep, const float *bias,
                               const struct rt_attention *shape);

/* Rotary position embedding over the last dimension c, which is even (Su et al., "RoFormer", 2021): y = x cos +
 * rotated(x) sin, where rotated(x) is (-x[c/2..], x[..c/2]), or with `interleaved` (-x[1], x[0], -x[3], x[2], ..). The
 * extents of x, cos and sin are as many as y's; 1: broadcast, except for the last dimension. x itself has the last
 * x_ndim of these dimensions. Not in place. A 16-bit x is computed in f32, as of f32 operands, and rounded once; cos
 * and sin may then be f32. */
#define RT_DECLARE_ROPE(x_type, table_type, T)                                                                         \
    void rt_rope_##x_type##_by_##table_type(const struct rt_strided *y /* (y_dims) */, const struct rt_strided *x,     \
                                            const T *cos, const T *sin, int ndim, const int64_t *y_dims, int x_ndim,   \
                                            const int64_t *x_dims, const int64_t *cos_dims, const int64_t *sin_dims,   \
                                            int interleaved);

RT_DECLARE_ROPE(f32, f32, float)
RT_DECLARE_ROPE(f64, f64, double)
RT_DECLARE_ROPE(bf16, bf16, uint16_t)
RT_DECLARE_ROPE(fp16, fp16, uint16_t)
RT_DECLARE_ROPE(bf16, f32, float)
RT_DECLARE_ROPE(fp16, f32, float)

/* Reductions */

/* ONNX ReduceSum-13, ReduceMax-20, ReduceMin-20, ReduceProd-18 over the middle dimension. r = 0 gives 0, the lowest
 * value (-inf), the highest (+inf), 1. A NaN makes max and min NaN. Order: Note [Order of sums].
 *
 * ONNX ArgMax-13, ArgMin-13: the position of the largest (smallest) element along r; of equal elements the first, or
 * the last if select_last. NaN counts as both largest and smallest (as in PyTorch). r = 0 gives 0.
 *
 * ONNX CumSum-14: cumulative sums over the middle dimension, sequential, f32 in f64; exclusive: without element i;
 * reverse: from the end. In place.
 *
 * ONNX CumProd-26: the same with products. cumprod_grad: the gradient of x from x and dy. With P the exclusive product
 * of the elements before i, dx[i] = P[i] S[i], where S[i] = dy[i] + x[i+1] S[i+1]; with `exclusive` S[i] = dy[i+1] +
 * x[i+1] S[i+1]. There is no division, so zeros need no care. */

/* The reductions of rows, one after the other, by the calling thread alone. */
#define RT_DECLARE_REDUCE_ROWS(T, s)                                                                                   \
    void rt_rows_sum_##s(T *y /* (rows) */, const T *x /* (rows,r) */, int64_t rows, int64_t r);                       \
    void rt_rows_prod_##s(T *y /* (rows) */, const T *x /* (rows,r) */, int64_t rows, int64_t r);                      \
    void rt_rows_max_##s(T *y /* (rows) */, const T *x /* (rows,r) */, int64_t rows, int64_t r);                       \
    void rt_rows_min_##s(T *y /* (rows) */, const T *x /* (rows,r) */, int64_t rows, int64_t r);

RT_NUMBERS(RT_DECLARE_REDUCE_ROWS)

#define RT_DECLARE_HALF_ROWS(T, s) void rt_rows_max_##s(T *y /* (rows) */, const T *x, int64_t rows, int64_t r);

RT_HALVES(RT_DECLARE_HALF_ROWS)

/* Sums of up to RT_COLUMNS neighbouring columns in the order of rt_reduce_sum: row p is added to part[p % RT_LANES]. */
enum { RT_LANES = 8, RT_COLUMNS = 64 };
struct rt_column_sums {
    double part[RT_LANES][RT_COLUMNS];
};

static inline double rt_column_sum(const struct rt_column_sums *s, int64_t j) {
    return ((s->part[0][j] + s->part[4][j]) + (s->part[2][j] + s->part[6][j])) +
           ((s->part[1][j] + s->part[5][j]) + (s->part[3][j] + s->part[7][j]));
}

/* Sum of the squares of all n elements in f64: blocks of 2^14 elements in the order above, then the blocks in order.
 * add_squares: the same, added to `sum`; in place too. */
#define RT_DECLARE_SQUARES(T, s)                                                                                       \
    void rt_sum_squares_##s(double *y, const T *x, int64_t n);                                                         \
    void rt_add_squares_##s(double *y, const double *sum, const T *x, int64_t n);
RT_FLOATS(RT_DECLARE_SQUARES)
RT_HALVES(RT_DECLARE_SQUARES)

#define RT_DECLARE_REDUCE(T, s)                                                                                        \
    void rt_reduce_sum_##s(T *y /* (outer,inner) */, const T *x /* (outer,r,inner) */, int64_t outer, int64_t r,       \
                           int64_t inner);                                                                             \
    void rt_reduce_max_##s(T *y /* (outer,inner) */, const T *x /* (outer,r,inner) */, int64_t outer, int64_t r,       \
                           int64_t inner);                                                                             \
    void rt_reduce_min_##s(T *y /* (outer,inner) */, const T *x /* (outer,r,inner) */, int64_t outer, int64_t r,       \
                           int64_t inner);                                                                             \
    void rt_reduce_prod_##s(T *y /* (outer,inner) */, const T *x /* (outer,r,inner) */, int64_t outer, int64_t r,      \
                            int64_t inner);                                                                            \
    void rt_argmax_##s(int64_t *y /* (outer,inner) */, const T *x /* (outer,r,inner) */, int64_t outer, int64_t r,     \
                       int64_t inner, int select_last);                                                                \
    void rt_argmin_##s(int64_t *y /* (outer,inner) */, const T *x /* (outer,r,inner) */, int64_t outer, int64_t r,     \
                       int64_t inner, int select_last);                                                                \
    void rt_cumsum_##s(T *y /* (outer,c,inner) */, const T *x /* (outer,c,inner) */, int64_t outer, int64_t c,         \
                       int64_t inner, int exclusive, int reverse);                                                     \
    void rt_cumprod_##s(T *y /* (outer,c,inner) */, const T *x /* (outer,c,inner) */, int64_t outer, int64_t c,        \
                        int64_t inner, int exclusive, int reverse);

RT_NUMBERS(RT_DECLARE_REDUCE)

/* Two of these reductions, which read x once. */
#define RT_DECLARE_REDUCE_PAIR(T, s)                                                                                   \
    void rt_reduce_pair_##s(T *y /* (outer,inner) */, T *y1 /* (outer,inner) */, const T *x /* (outer,r,inner) */,     \
                            int64_t outer, int64_t r, int64_t inner, enum rt_reduce first, enum rt_reduce second);

RT_NUMBERS(RT_DECLARE_REDUCE_PAIR)

#define RT_DECLARE_CUMPROD_GRAD(T, s)                                                                                  \
    void rt_cumprod_grad_##s(T *dx /* (outer,c,inner) */, const T *x /* (outer,c,inner) */,                            \
                             const T *dy /* (outer,c,inner) */, int64_t outer, int64_t c, int64_t inner,               \
                             int exclusive, int reverse);

RT_FLOATS(RT_DECLARE_CUMPROD_GRAD)

#define RT_DECLARE_REDUCE_HALF(T, s)                                                                                   \
    void rt_reduce_max_##s(uint16_t *y /* (outer,inner) */, const uint16_t *x /* (outer,r,inner) */, int64_t outer,    \
                           int64_t r, int64_t inner);

RT_HALVES(RT_DECLARE_REDUCE_HALF)

/* The positions of the k largest (else smallest) elements along the middle dimension, in this order; of equal elements
 * the first comes first, and NaN is larger than every number (as in NumPy). k <= c. */
#define RT_DECLARE_TOPK(T, s)                                                                                          \
    void rt_topk_##s(int64_t *y /* (outer,k,inner) */, const T *x /* (outer,c,inner) */, int64_t outer, int64_t c,     \
                     int64_t inner, int64_t k, int largest);

RT_NUMBERS(RT_DECLARE_TOPK)

/* Which candidates of ONNX NonMaxSuppression-11 are kept: those that do not overlap one kept before them by more than
 * most[0], the ratio of intersection to union. Boxes are corners y1 x1 y2 x2 or, with `center`, x y width height; an
 * index outside of [0, b) is no candidate. */
#define RT_DECLARE_SUPPRESS(T, s)                                                                                      \
    void rt_suppress_##s(uint8_t *y /* (n,c,k) */, const T *boxes /* (n,b,4) */,                                       \
                         const int64_t *candidates /* (n,c,k) */, const T *most, int64_t n, int64_t c, int64_t b,      \
                         int64_t k, int center);

RT_FLOATS(RT_DECLARE_SUPPRESS)

/* ONNX TfIdfVectorizer-9: how often each of the n-grams, grams(g,l), is in each row of x(n,c), with its elements 1, 2
 * .. `distances` apart. N-grams of one element are counted once. */
void rt_count_ngrams(int64_t *y /* (n,g) */, const int64_t *x, const int64_t *grams, int64_t n, int64_t c, int64_t g,
                     int64_t l, int64_t distances);

/* y[i] = values[i]. */
void rt_sizes_b8(void *y /* (n) */, int64_t n, const int64_t *values /* (n) */);

/* Elements [start, start + count) of ONNX Range-11: y[i] = first + (start + i) * delta; floats computed in f64 and
 * rounded once. */
#define RT_DECLARE_RANGE(T, s) void rt_range_##s(T *y /* (count) */, int64_t count, T first, T delta, int64_t start);

RT_NUMBERS(RT_DECLARE_RANGE)

/* Movement */

/* Dimension arrays have `ndim` entries, ndim <= RT_MAX_NDIM of rt.h; ndim = 0 is a scalar.
 *
 * transpose   ONNX Transpose-13: dimension d of y is dimension perm[d] of x.
 * slice       ONNX Slice-13: y[i] = x[start + i * step] in every dimension; step may be negative, start counts from
 *             the front, and every picked element lies inside x.
 * expand      ONNX Expand-13: x_dims is aligned to y's ndim, with 1 where x is repeated.
 * tile        ONNX Tile-13: y[i] = x[i mod x_dims] in every dimension.
 * pad         ONNX Pad-18, mode constant: y[i] = x[i - begin] where that is inside x, else *value. begin may be
 *             negative (that crops), and so may be the padding at the end, which y_dims implies.
 * concat      ONNX Concat-13: y(outer, sum of extents) from `count` inputs x[j](outer, extents[j]); an extent is
 *             elements per outer: the middle extent times inner.
 * trilu       ONNX Trilu-14: keeps column >= row + k (upper) or column <= row + k, zeros elsewhere. Element (0,0)
 * of x is (row_start, column_start) of the matrix that k is about, and the second half of the rows is
 *             row_jump further. In place.
 * append      y = x, then rows(rows_dims) in place of what lies from index `at` of dimension `axis` on. In place. */
#define RT_DECLARE_MOVE(T, N)                                                                                          \
    void rt_transpose_b##N(void *y /* (x_dims[perm[0]], ...) */, const void *x /* (x_dims) */, int ndim,               \
                           const int64_t *x_dims, const int *perm);                                                    \
    void rt_slice_b##N(void *y /* (y_dims) */, const void *x /* (x_dims) */, int ndim, const int64_t *x_dims,          \
                       const int64_t *start, const int64_t *step, const int64_t *y_dims);                              \
    void rt_expand_b##N(void *y /* (y_dims) */, const void *x /* (x_dims) */, int ndim, const int64_t *x_dims,         \
                        const int64_t *y_dims);                                                                        \
    void rt_tile_b##N(void *y /* (y_dims) */, const void *x /* (x_dims) */, int ndim, const int64_t *x_dims,           \
                      const int64_t *y_dims);                                                                          \
    void rt_pad_b##N(void *y /* (y_dims) */, const void *x /* (x_dims) */, int ndim, const int64_t *x_dims,            \
                     const int64_t *begin, const int64_t *y_dims, const void *value /* () */);                         \
    void rt_concat_b##N(void *y /* (outer,sum) */, int count, const void *const *x /* count of (outer,extent) */,      \
                        int64_t outer, const int64_t *extents /* (count) */);                                          \
    void rt_trilu_b##N(void *y /* (outer,rows,columns) */, const void *x /* (outer,rows,columns) */, int64_t outer,    \
                       int64_t rows, int64_t columns, int64_t k, int upper, int64_t row_start, int64_t row_jump,       \
                       int64_t column_start);                                                                          \
    void rt_append_b##N(void *y /* (dims) */, const void *x /* (dims) */, const struct rt_strided *rows, int ndim,     \
                        const int64_t *rows_dims, const int64_t *dims, int axis, int64_t at);

RT_SIZES(RT_DECLARE_MOVE)

/* Indexing */

/* Indices are int64_t, or int32_t if index_is_64 is 0; a negative index counts from the end. An index out of range
 * gives RT_ERROR_INPUT before anything is written.
 *
 * gather           ONNX Gather-13: y(outer,count,inner) = x(outer,extent,inner) at `count` indices of the middle
 *                  dimension. x is the part [start, start + extent) of a dimension of `total` elements: a valid index
 *                  outside this part gives zeros, so the complete result is the sum over all parts.
 * gather_elements  ONNX GatherElements-13: y[i] = x[i, with i[axis] replaced by index[i]].
 * gather_nd        ONNX GatherND-13, batch_dims batch: y(batch,count,inner); each row of index(batch,count,depth) picks
 *                  from x(batch, dims[0], .., dims[depth-1], inner).
 * scatter_elements ONNX ScatterElements-18, reduction none: y = x, then y[i, with i[axis] replaced by index[i]] =
 *                  updates[i] in row-major order of i: of equal indices the last one wins. In place.
 * scatter_nd       ONNX ScatterND-18, reduction none, in batches: y = x, then updates(batch,count,inner) row j replaces
 *                  the block of y(batch, dims.., inner) that row j of index(batch,count,depth) names, in order of j: of
 *                  equal indices the last one wins. In place. */
#define RT_DECLARE_INDEX(T, N)                                                                                         \
    int rt_gather_b##N(struct rt *rt, void *y /* (outer,count,inner) */, const void *x /* (outer,extent,inner) */,     \
                       const void *index /* (count) */, int index_is_64, int64_t outer, int64_t extent, int64_t inner, \
                       int64_t count, int64_t start, int64_t total);                                                   \
    int rt_gather_elements_b##N(struct rt *rt, void *y /* (index_dims) */, const void *x /* (x_dims) */,               \
                                const void *index /* (index_dims) */, int index_is_64, int ndim,                       \
                                const int64_t *x_dims, const int64_t *index_dims, int axis);                           \
    int rt_gather_nd_b##N(struct rt *rt, void *y /* (batch,count,inner) */, const void *x /* (batch,dims,inner) */,    \
                          const int64_t *index /* (batch,count,depth) */, int64_t batch, int64_t count, int depth,     \
                          const int64_t *dims /* (depth) */, int64_t inner);                                           \
    int rt_scatter_elements_b##N(struct rt *rt, void *y /* (x_dims) */, const void *x /* (x_dims) */,                  \
                                 const void *index /* (index_dims) */, int index_is_64,                                \
                                 const void *updates /* (index_dims) */, int ndim, const int64_t *x_dims,              \
                                 const int64_t *index_dims, int axis);                                                 \
    int rt_scatter_nd_b##N(struct rt *rt, void *y /* (batch,dims,inner) */, const void *x /* (batch,dims,inner) */,    \
                           const int64_t *index /* (batch,count,depth) */,                                             \
                           const void *updates /* (batch,count,inner) */, int64_t batch, int64_t count, int depth,     \
                           const int64_t *dims /* (depth) */, int64_t inner);

RT_SIZES(RT_DECLARE_INDEX)

/* y = x, class numbers as int64_t, of shape dims. A class outside [0, classes), other than `ignored` if `ignores`,
 * gives RT_ERROR_INPUT; the message has its index in the complete tensor, in which this part begins at `starts`. */
int rt_class_index(struct rt *rt, int64_t *y /* (dims) */, const void *x /* (dims) */, int x_is_64, int ndim,
                   const int64_t *dims, const int64_t *starts, int64_t classes, int ignores, int64_t ignored);

/* y = x, integers of N bytes to divide by; a 0 gives RT_ERROR_INPUT with its index as above. In place. */
#define RT_DECLARE_DIVISOR(T, N)                                                                                       \
    int rt_divisor_b##N(struct rt *rt, void *y /* (dims) */, const void *x /* (dims) */, int ndim,                     \
                        const int64_t *dims, const int64_t *starts);

RT_SIZES(RT_DECLARE_DIVISOR)

/* gather_grad       gradient of gather with respect to x: y(outer,extent,inner) = 0, then y at index[i] of the middle
 *                   dimension += dy(outer,i,inner), in order of i. y is the part [start, start + extent) of a dimension
 *                   of `total` elements; indices outside it are skipped.
 * scatter_*_add, _mul, _max, _min   scatter_elements and scatter_nd with that reduction, in the same order. In
 *                   place. */
#define RT_DECLARE_INDEX_ADD(T, s)                                                                                     \
    int rt_gather_grad_##s(struct rt *rt, T *y /* (outer,extent,inner) */, const T *dy /* (outer,count,inner) */,      \
                           const void *index /* (count) */, int index_is_64, int64_t outer, int64_t extent,            \
                           int64_t inner, int64_t count, int64_t start, int64_t total);

RT_FLOATS(RT_DECLARE_INDEX_ADD)

#define RT_DECLARE_SCATTER_FOLD(T, s, fold)                                                                            \
    int rt_scatter_elements_##fold##_##s(struct rt *rt, T *y /* (x_dims) */, const T *x /* (x_dims) */,                \
                                         const void *index /* (index_dims) */, int index_is_64,                        \
                                         const T *updates /* (index_dims) */, int ndim, const int64_t *x_dims,         \
                                         const int64_t *index_dims, int axis);                                         \
    int rt_scatter_nd_##fold##_##s(struct rt *rt, T *y /* (batch,dims,inner) */, const T *x /* (batch,dims,inner) */,  \
                                   const int64_t *index /* (batch,count,depth) */,                                     \
                                   const T *updates /* (batch,count,inner) */, int64_t batch, int64_t count,           \
                                   int depth, const int64_t *dims /* (depth) */, int64_t inner);
#define RT_DECLARE_SCATTER_FOLDS(T, s)                                                                                 \
    RT_DECLARE_SCATTER_FOLD(T, s, add)                                                                                 \
    RT_DECLARE_SCATTER_FOLD(T, s, mul)                                                                                 \
    RT_DECLARE_SCATTER_FOLD(T, s, max)                                                                                 \
    RT_DECLARE_SCATTER_FOLD(T, s, min)

RT_NUMBERS(RT_DECLARE_SCATTER_FOLDS)

/* gather of whole rows of a matrix (extent,inner) of type `dtype` whose transpose is packed in panels (Note [Panels] in
 * base/shape/panel.h), because a product uses it too (tied embeddings). */
#define RT_DECLARE_GATHER_PACKED(s)                                                                                    \
    int rt_gather_packed_##s(struct rt *rt, void *y /* (count,inner) */, const void *x /* panels of (inner,extent) */, \
                             const void *index /* (count) */, enum rt_dtype dtype, int index_is_64, int64_t extent,    \
                             int64_t inner, int64_t count, int64_t start, int64_t total);

RT_DECLARE_GATHER_PACKED(b4)
RT_DECLARE_GATHER_PACKED(b2)
RT_DECLARE_GATHER_PACKED(b1)

/* Mixture of experts */

/* Row i of `count` belongs to the expert index[i] of `total`. w, and the gradient, are those of the experts
 * [start, start + experts). An index out of range gives RT_ERROR_INPUT before anything is written.
 *
 * expert_matmul       y(i,n) = x(i,k) times the weights (k,n) of the row's expert; zeros for an expert outside the
 *                     part. trans_b: the weights are stored as (n,k).
 * expert_weight_grad  y(expert,k,n) = the sum of x(i,k) dy(i,n) over the rows of the expert, in their order.
 *
 * Bits of a row of y do not depend on the other rows, nor on how n is cut. 16-bit floats are summed in f32 and rounded
 * once. Need 500 KB of stack. */
#define RT_DECLARE_EXPERT(T, s)                                                                                        \
    int rt_expert_matmul_##s(struct rt *rt, T *y /* (count,n) */, const T *x /* (count,k) */,                          \
                             const T *w /* (experts,k,n) */, const void *index /* (count) */, int index_is_64,         \
                             int64_t count, int64_t experts, int64_t k, int64_t n, int trans_b, int64_t start,         \
                             int64_t total);                                                                           \
    int rt_expert_weight_grad_##s(struct rt *rt, T *y /* (experts,k,n) */, const T *x /* (count,k) */,                 \
                                  const T *dy /* (count,n) */, const void *index /* (count) */, int index_is_64,       \
                                  int64_t count, int64_t experts, int64_t k, int64_t n, int64_t start, int64_t total);

RT_FLOATS(RT_DECLARE_EXPERT)
RT_HALVES(RT_DECLARE_EXPERT)

/* expert_matmul with weights as those of a batch of rt_dequant_matmul, without zeros: the same bits as with the
 * dequantised ones. */
#define RT_DECLARE_DEQUANT_EXPERT(T, s)                                                                                \
    int rt_dequant_expert_matmul_##s(struct rt *rt, T *y, const T *x, const void *w, const T *scale,                   \
                                     const void *index, int index_is_64, int64_t count, int64_t experts, int64_t k,    \
                                     int64_t n, int64_t groups, enum rt_dtype type, enum rt_dtype codes,               \
                                     double offset, int turned, int across, int64_t start, int64_t total);
RT_FLOATS(RT_DECLARE_DEQUANT_EXPERT)

/* Buffers of experts. Each of `groups` groups has `rows` rows, `rows` / `tokens` for each of its tokens; row i of a
 * group belongs to the expert index(group,i) of `total`. The first `capacity` rows of an expert in a group, in order,
 * have places in its buffer; further ones have none. The rank has the buffers of the experts [start, start + experts),
 * at most 4,096 of at most 64 rows for each token; errors as above.
 *
 * expert_dispatch  copies x, the tokens, to the places of their rows; zeros at unused places.
 * expert_combine   y(group,token) = the sum of x at the places of the token's rows, in their order. 16-bit floats are
 *                  summed in f32 and rounded once. */
#define RT_DECLARE_EXPERT_BUFFERS(T, s)                                                                                \
    int rt_expert_dispatch_##s(struct rt *rt, T *y /* (experts,groups,capacity,h) */,                                  \
                               const T *x /* (groups,tokens,h) */, const void *index /* (groups,rows) */,              \
                               int index_is_64, int64_t groups, int64_t rows, int64_t tokens, int64_t h,               \
                               int64_t capacity, int64_t experts, int64_t start, int64_t total);                       \
    int rt_expert_combine_##s(struct rt *rt, T *y /* (groups,tokens,h) */,                                             \
                              const T *x /* (experts,groups,capacity,h) */, const void *index /* (groups,rows) */,     \
                              int index_is_64, int64_t groups, int64_t rows, int64_t tokens, int64_t h,                \
                              int64_t capacity, int64_t experts, int64_t start, int64_t total);

RT_FLOATS(RT_DECLARE_EXPERT_BUFFERS)
RT_HALVES(RT_DECLARE_EXPERT_BUFFERS)

/* Random numbers */

/* The part of a tensor of extents `whole` that begins at `starts` and has extents dims. */
struct rt_region {
    int ndim;
    const int64_t *dims, *starts, *whole;
};

/* ONNX Dropout-13 of x, and its gradient if x is dy: each element is 0 with probability `ratio`, in [0, 1), else x / (1
 * - ratio). The choice depends only on key, step, micro-batch and the element's index in the complete tensor (Note
 * [Masks] in random.c). y = x if *training is 0. In place. */
#define RT_DECLARE_DROPOUT(T, s)                                                                                       \
    void rt_dropout_##s(T *y, const T *x, const double *training, const double *step, const double *micro,             \
                        const struct rt_region *region, double ratio, int64_t key);

RT_FLOATS(RT_DECLARE_DROPOUT)

/* Uniform random numbers in the open interval (0, 1): the middles of 2^23 equal parts for f32, of 2^32 for f64. They
 * depend on the same as the mask of dropout. */
#define RT_DECLARE_UNIFORM(T, s)                                                                                       \
    void rt_uniform_##s(T *y, const double *step, const double *micro, const struct rt_region *region, int64_t key);

RT_FLOATS(RT_DECLARE_UNIFORM)

/* Convolutions and pooling */

#include "conv.h"

/* Recurrent layers */

#include "recurrence.h"

/* Linear attention */

#include "determinant.h"
#include "linear_attention.h"

/* Sampling */

#include "sampling.h"

#endif
