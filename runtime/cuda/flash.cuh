/* Attention in one pass over the keys, and its gradient (Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023):
 * scores stay in registers and shared memory. The manual is kernels/c/kernels.h, struct rt_attention.
 *
 * A block takes the rows of queries, or in the gradient of keys, of one head; each warp 16 of them. Sums are in f32. No two
 * blocks add to one place: dq is made by blocks of queries, dk and dv by blocks of keys, so that results do not depend on timing.
 * Of a row two numbers are kept for the gradient, not their log-sum-exp, which a mask's fill would drown in: the largest score,
 * and the sum of e^(score - that). Elements of v that masks hide are not looked at; elsewhere an infinity times 0 is a NaN. */
#ifndef RT_CUDA_FLASH_CUH
#define RT_CUDA_FLASH_CUH

#include "mma.cuh"

/* Tiles of elements E and heads of at most D: what fits into 48 KB. */
template <class E, int D> struct rt_flash_tiles {
    using T = typename E::type;
    static constexpr bool narrow = sizeof(T) == 2, small = D <= 64;
    static constexpr int warps = narrow || small ? 4 : 2;
    static constexpr int threads = warps * RT_WARP;
    static constexpr int rows = warps * RT_TILE_ROWS;                              /* of a block */
    static constexpr int keys = narrow ? (small ? 64 : 32) : (small ? 32 : 16);      /* at a time: forward */
    static constexpr int others = narrow ? (small ? 64 : 16) : 8;                    /* gradient: keys, or rows of queries */
    static constexpr int pad = 16 / (int)sizeof(T);                                /* lines begin in other banks */
    static constexpr int pitch = D + pad;
};

/* One call, with extents multiplied out: `rows` of q for each of `heads` heads of k and v. */
template <class T> struct rt_flash {
    const T *q, *k, *v, *bias;
    const uint8_t *keep;
    rt_attention shape;
    int64_t heads, group, t, s, d, e;
    float scale, fill;
};

template <class T>
static inline rt_flash<T> rt_flash_of(const T *q, const T *k, const T *v, const uint8_t *keep, const T *bias,
                                      const rt_attention &shape) {
    const int ndim = shape.ndim;
    const int64_t heads = rt_count(shape.q, 0, ndim - 3) * shape.kv;
    return {q, k, v, bias, keep, shape, heads, heads ? rt_count(shape.q, 0, ndim - 2) / heads : 0, shape.q[ndim - 2],
            shape.s, shape.q[ndim - 1], shape.e, (float)shape.scale, (float)shape.fill};
}

/* --- Scores --- */

/* Where a row of scores has its masks, and the last key that it sees. */
struct rt_flash_row {
    int64_t keep, bias, last;
};

template <class T> static inline __device__ rt_flash_row rt_flash_row_of(const rt_flash<T> &call, int64_t head, int64_t i) {
    const rt_attention &shape = call.shape;
    int64_t step;
    rt_flash_row row = {0, 0, shape.causal ? shape.start + i + shape.offset : call.s};
    if (i >= call.t) return row;
    if (call.keep) row.keep = rt_mask_row(shape.keep, shape.q, shape.ndim, head * call.t + i, &step);
    if (call.bias) row.bias = rt_mask_row(shape.bias, shape.q, shape.ndim, head * call.t + i, &step);
    return row;
}

struct rt_score {
    float value, slope; /* of the product of q and k */
};

template <class E>
static inline __device__ rt_score rt_flash_score(const rt_flash<typename E::type> &call, const rt_flash_row &row, int64_t j,
                                                 float product) {
    const rt_attention &shape = call.shape;
    const float lowest = -3.402823466e38f;
    const int64_t keep_step = shape.keep[shape.ndim - 1] == 1 ? 0 : 1, bias_step = shape.bias[shape.ndim - 1] == 1 ? 0 : 1;
    const float bias = call.bias ? (float)E::load(call.bias[row.bias + j * bias_step]) : 0;
    rt_score score = {product * call.scale, call.scale};
    if (call.bias && shape.bias_first) score.value += bias;
    if (j > row.last || (call.keep && (call.keep[row.keep + j * keep_step] != 0) == (shape.drop != 0)))
        score = {call.fill, 0};
    if (call.bias && !shape.bias_first) score.value += bias;
    if (shape.clamp && score.value < lowest) score = {lowest, 0};
    return score;
}

/* Keys behind the last that a row sees weigh nothing beside a score of `high`. */
template <class T> static inline __device__ bool rt_flash_is_far(const rt_flash<T> &call, float high) {
    const float cutoff = 104; /* e^-104 is 0 */
    return call.shape.causal && (!call.bias || call.shape.bias_first) && call.fill - high <= -cutoff;
}

/* Whether it holds for any thread of the block. */
static __device__ inline bool rt_block_any(bool mine) {
    __shared__ int any;
    __syncthreads();
    if (threadIdx.x == 0) any = 0;
    __syncthreads();
    if (mine) any = 1;
    __syncthreads();
    return any != 0;
}

/* --- Tiles --- */

/* Lines [0, lines) of x(count,width) in shared memory, zeros behind its ends. */
template <int D, int PITCH, class T>
static inline __device__ void rt_flash_load(T *to, const T *x, int lines, int64_t count, int64_t width) {
    constexpr int N = RT_WIDTH(T);
    const bool wide = width % N == 0 && (uintptr_t)x % RT_VECTOR_BYTES == 0;
    RT_EACH_VECTOR(p, lines * D, N) {
        const int64_t line = p / D, c = p % D;
        rt_vector<T, N> vector = {};
        if (line < count && c < width && wide) vector = rt_get_vector<N>(x + line * width + c);
#pragma unroll
        for (int lane = 0; lane < N && !wide; lane++)
            if (line < count && c + lane < width) vector.at[lane] = x[line * width + c + lane];
        rt_put_vector(to + line * PITCH + c, vector);
    }
}

/* sums(16,8 N) += a(16,depth) b(8 N,depth)^T; line n of b is shared memory's. */
template <class E, int N, class A, class T>
static inline __device__ void rt_flash_product(float (&sums)[N][4], const A &a, const rt_lines_of_tile<T> &b, int depth) {
#pragma unroll
    for (int n = 0; n < N; n++)
        rt_tile_product(E(), sums[n], a, rt_lines_of_tile<T>{b.at + n * RT_TILE_COLUMNS * b.pitch, b.pitch}, depth);
}
/* ... or its column. */
template <class E, int N, class A, class T>
static inline __device__ void rt_flash_product(float (&sums)[N][4], const A &a, const rt_columns_of_tile<T> &b, int depth) {
#pragma unroll
    for (int n = 0; n < N; n++)
        rt_tile_product(E(), sums[n], a, rt_columns_of_tile<T>{b.at + n * RT_TILE_COLUMNS, b.pitch}, depth);
}

template <int N> static inline __device__ void rt_flash_clear(float (&sums)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0;
}

/* The warp's lines of a tile, of its block's. */
template <class E, int N>
static inline __device__ void rt_flash_keep(typename E::type *to, int pitch, const float (&values)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[rt_tile_row(i) * pitch + n * RT_TILE_COLUMNS + rt_tile_column(i)] = E::store(values[n][i]);
}

/* y(count,width) = the warp's lines from `first` on. */
template <class E, int N>
static inline __device__ void rt_flash_put(typename E::type *y, int64_t first, int64_t count, int64_t width,
                                           const float (&values)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t line = first + rt_tile_row(i), c = n * RT_TILE_COLUMNS + rt_tile_column(i);
            if (line < count && c < width) y[line * width + c] = E::store(values[n][i]);
        }
}

/* --- Forward --- */

template <class E, int D>
static __global__ void rt_flash_kernel(rt_flash<typename E::type> call, typename E::type *y, float *stats, int64_t blocks) {
    using S = rt_flash_tiles<E, D>;
    using T = typename E::type;
    constexpr int N = S::keys / RT_TILE_COLUMNS, M = D / RT_TILE_COLUMNS, weight_pitch = S::keys + S::pad;
    alignas(RT_VECTOR_BYTES) __shared__ T q[S::rows * S::pitch], k[S::keys * S::pitch], v[S::keys * S::pitch], weights[S::rows * weight_pitch];
    const int first = (int)threadIdx.x / RT_WARP * RT_TILE_ROWS; /* of the warp's rows */
    const int64_t tiles = (call.t + S::rows - 1) / S::rows;
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const int64_t head = block / tiles, row = block % tiles * S::rows, kv = head / call.group;
        const rt_flash_row own[2] = {rt_flash_row_of(call, head, row + first + rt_tile_row(0)),
                                     rt_flash_row_of(call, head, row + first + rt_tile_row(2))};
        rt_exponentials<float> of[2] = {{-INFINITY, 0}, {-INFINITY, 0}}; /* sum: of the thread's keys */
        float out[M][4], score[N][4];
        rt_flash_clear(out);
        __syncthreads(); /* the last block's tiles have been read */
        rt_flash_load<D, S::pitch>(q, call.q + (head * call.t + row) * call.d, S::rows, call.t - row, call.d);
        for (int64_t j = 0; j < call.s; j += S::keys) {
            const int64_t most = call.shape.start + row + S::rows - 1 + call.shape.offset;
            bool near = false;
            for (int r = 0; r < 2; r++)
                near = near || (row + first + rt_tile_row(2 * r) < call.t && !rt_flash_is_far(call, of[r].high));
            if (call.shape.causal && j > most && !rt_block_any(near)) break;
            __syncthreads();
            rt_flash_load<D, S::pitch>(k, call.k + (kv * call.s + j) * call.d, S::keys, call.s - j, call.d);
            rt_flash_load<D, S::pitch>(v, call.v + (kv * call.s + j) * call.e, S::keys, call.s - j, call.e);
            __syncthreads();
            rt_flash_clear(score);
            rt_flash_product<E>(score, rt_lines_of_tile<T>{q + first * S::pitch, S::pitch}, rt_lines_of_tile<T>{k, S::pitch}, D);
            float high[2] = {of[0].high, of[1].high};
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int64_t key = j + n * RT_TILE_COLUMNS + rt_tile_column(i);
                    score[n][i] = key < call.s ? rt_flash_score<E>(call, own[i / 2], key, score[n][i]).value : -INFINITY;
                    high[i / 2] = rt_most_of()(high[i / 2], score[n][i]);
                }
            float turn[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float before = of[r].high;
                of[r].high = rt_row_fold(high[r], rt_most_of());
                turn[r] = rt_exp_of(before - of[r].base());
                of[r].sum *= turn[r];
            }
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    score[n][i] = rt_exp_of(score[n][i] - of[i / 2].base());
                    of[i / 2].sum += score[n][i];
                }
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) out[m][i] *= turn[i / 2];
            rt_flash_keep<E>(weights + first * weight_pitch, weight_pitch, score);
            __syncwarp();
            rt_flash_product<E>(out, rt_lines_of_tile<T>{weights + first * weight_pitch, weight_pitch},
                                rt_columns_of_tile<T>{v, S::pitch}, S::keys);
        }
#pragma unroll
        for (int r = 0; r < 2; r++) of[r].sum = rt_row_fold(of[r].sum, rt_sum_of());
        const float factor[2] = {1 / of[0].sum, 1 / of[1].sum};
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) out[m][i] *= factor[i / 2];
        rt_flash_put<E>(y + head * call.t * call.e, row + first, call.t, call.e, out);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t line = row + first + rt_tile_row(2 * r);
            if (rt_lane() % 4 || line >= call.t) continue;
            stats[(head * call.t + line) * 2] = of[r].high;
            stats[(head * call.t + line) * 2 + 1] = of[r].sum;
        }
    }
}

/* --- Gradient --- */

/* What a row of the gradient is made with. */
struct rt_flash_known {
    float base, scale, delta; /* weight = e^(score - base) scale; delta: sum of dy y */
};

static inline __device__ rt_flash_known rt_flash_known_of(const float *stats, float delta) {
    const rt_exponentials<float> of = {stats[0], stats[1]};
    return {of.base(), 1 / of.sum, delta};
}

/* dq, by blocks of rows; also delta(heads,t) for the other. */
template <class E, int D>
static __global__ void rt_flash_grad_q_kernel(rt_flash<typename E::type> call, typename E::type *dq, float *deltas,
                                              const typename E::type *y, const typename E::type *dy, const float *stats,
                                              int64_t blocks) {
    using S = rt_flash_tiles<E, D>;
    using T = typename E::type;
    constexpr int N = S::others / RT_TILE_COLUMNS, M = D / RT_TILE_COLUMNS, slope_pitch = S::others + S::pad;
    alignas(RT_VECTOR_BYTES) __shared__ T q[S::rows * S::pitch], up[S::rows * S::pitch], k[S::others * S::pitch], v[S::others * S::pitch],
        slopes[S::rows * slope_pitch];
    const int first = (int)threadIdx.x / RT_WARP * RT_TILE_ROWS;
    const int64_t tiles = (call.t + S::rows - 1) / S::rows;
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const int64_t head = block / tiles, row = block % tiles * S::rows, kv = head / call.group;
        float out[M][4], score[N][4], weight[N][4];
        rt_flash_known known[2];
        rt_flash_row own[2];
        bool far = true;
        rt_flash_clear(out);
        __syncthreads();
        rt_flash_load<D, S::pitch>(q, call.q + (head * call.t + row) * call.d, S::rows, call.t - row, call.d);
        rt_flash_load<D, S::pitch>(up, dy + (head * call.t + row) * call.e, S::rows, call.t - row, call.e);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t line = row + first + rt_tile_row(2 * r), at = head * call.t + (line < call.t ? line : call.t - 1);
            float delta = 0;
            for (int64_t c = rt_lane() % 4; c < call.e; c += 4)
                delta += E::load(up[(first + rt_tile_row(2 * r)) * S::pitch + c]) * E::load(y[at * call.e + c]);
            delta = rt_row_fold(delta, rt_sum_of());
            own[r] = rt_flash_row_of(call, head, line);
            known[r] = rt_flash_known_of(stats + at * 2, delta);
            far = far && rt_flash_is_far(call, stats[at * 2]);
            if (rt_lane() % 4 == 0 && line < call.t) deltas[at] = delta;
        }
        const int64_t behind = call.shape.start + row + S::rows + call.shape.offset;
        const int64_t end = call.shape.causal && behind < call.s && !rt_block_any(!far) ? behind : call.s;
        for (int64_t j = 0; j < end; j += S::others) {
            __syncthreads();
            rt_flash_load<D, S::pitch>(k, call.k + (kv * call.s + j) * call.d, S::others, call.s - j, call.d);
            rt_flash_load<D, S::pitch>(v, call.v + (kv * call.s + j) * call.e, S::others, call.s - j, call.e);
            __syncthreads();
            rt_flash_clear(score);
            rt_flash_clear(weight);
            rt_flash_product<E>(score, rt_lines_of_tile<T>{q + first * S::pitch, S::pitch}, rt_lines_of_tile<T>{k, S::pitch}, D);
            rt_flash_product<E>(weight, rt_lines_of_tile<T>{up + first * S::pitch, S::pitch}, rt_lines_of_tile<T>{v, S::pitch}, D);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int64_t key = j + n * RT_TILE_COLUMNS + rt_tile_column(i);
                    const rt_flash_known &of = known[i / 2];
                    if (key < call.s) {
                        const rt_score got = rt_flash_score<E>(call, own[i / 2], key, score[n][i]);
                        score[n][i] = rt_exp_of(got.value - of.base) * of.scale * (weight[n][i] - of.delta) * got.slope;
                    } else {
                        score[n][i] = 0;
                    }
                }
            rt_flash_keep<E>(slopes + first * slope_pitch, slope_pitch, score);
            __syncwarp();
            rt_flash_product<E>(out, rt_lines_of_tile<T>{slopes + first * slope_pitch, slope_pitch},
                                rt_columns_of_tile<T>{k, S::pitch}, S::others);
        }
        rt_flash_put<E>(dq + head * call.t * call.d, row + first, call.t, call.d, out);
    }
}

/* dk and dv, by blocks of keys: over the rows of all heads that share them, in order. */
template <class E, int D>
static __global__ void rt_flash_grad_kv_kernel(rt_flash<typename E::type> call, typename E::type *dk, typename E::type *dv,
                                               const typename E::type *dy, const float *stats, const float *deltas,
                                               int64_t blocks) {
    using S = rt_flash_tiles<E, D>;
    using T = typename E::type;
    constexpr int N = S::others / RT_TILE_COLUMNS, M = D / RT_TILE_COLUMNS, weight_pitch = S::others + S::pad;
    alignas(RT_VECTOR_BYTES) __shared__ T k[S::rows * S::pitch], v[S::rows * S::pitch], q[S::others * S::pitch], up[S::others * S::pitch],
        weights[S::rows * weight_pitch];
    __shared__ rt_flash_row masks[S::others];
    __shared__ rt_flash_known known[S::others];
    const int first = (int)threadIdx.x / RT_WARP * RT_TILE_ROWS;
    const rt_lines_of_tile<T> own = {weights + first * weight_pitch, weight_pitch};
    const int64_t tiles = (call.s + S::rows - 1) / S::rows;
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const int64_t kv = block / tiles, key = block % tiles * S::rows;
        float out_k[M][4], out_v[M][4], score[N][4], slope[N][4];
        rt_flash_clear(out_k);
        rt_flash_clear(out_v);
        __syncthreads();
        rt_flash_load<D, S::pitch>(k, call.k + (kv * call.s + key) * call.d, S::rows, call.s - key, call.d);
        rt_flash_load<D, S::pitch>(v, call.v + (kv * call.s + key) * call.e, S::rows, call.s - key, call.e);
        for (int64_t line = 0; line < call.group * call.t; line += S::others) {
            /* Lines of the group's heads lie one after the other. Those of the last tile have been read by all. */
            const int64_t lines = call.group * call.t - line, at = kv * call.group * call.t + line;
            bool near = false;
            __syncthreads();
            for (int r = (int)threadIdx.x; r < S::others && r < lines; r += S::threads) {
                masks[r] = rt_flash_row_of(call, kv * call.group + (line + r) / call.t, (line + r) % call.t);
                known[r] = rt_flash_known_of(stats + (at + r) * 2, deltas[at + r]);
                near = near || key <= masks[r].last || !rt_flash_is_far(call, stats[(at + r) * 2]);
            }
            if (!rt_block_any(near)) continue;
            rt_flash_load<D, S::pitch>(q, call.q + at * call.d, S::others, lines, call.d);
            rt_flash_load<D, S::pitch>(up, dy + at * call.e, S::others, lines, call.e);
            __syncthreads();
            rt_flash_clear(score);
            rt_flash_clear(slope);
            rt_flash_product<E>(score, rt_lines_of_tile<T>{k + first * S::pitch, S::pitch}, rt_lines_of_tile<T>{q, S::pitch}, D);
            rt_flash_product<E>(slope, rt_lines_of_tile<T>{v + first * S::pitch, S::pitch}, rt_lines_of_tile<T>{up, S::pitch}, D);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int64_t j = key + first + rt_tile_row(i), r = n * RT_TILE_COLUMNS + rt_tile_column(i);
                    float weight = 0, change = 0;
                    if (j < call.s && r < lines) {
                        const rt_score got = rt_flash_score<E>(call, masks[r], j, score[n][i]);
                        weight = rt_exp_of(got.value - known[r].base) * known[r].scale;
                        change = weight * (slope[n][i] - known[r].delta) * got.slope;
                    }
                    score[n][i] = weight;
                    slope[n][i] = change;
                }
            rt_flash_keep<E>(weights + first * weight_pitch, weight_pitch, score);
            __syncwarp();
            rt_flash_product<E>(out_v, own, rt_columns_of_tile<T>{up, S::pitch}, S::others);
            __syncwarp();
            rt_flash_keep<E>(weights + first * weight_pitch, weight_pitch, slope);
            __syncwarp();
            rt_flash_product<E>(out_k, own, rt_columns_of_tile<T>{q, S::pitch}, S::others);
            __syncwarp();
        }
        rt_flash_put<E>(dk + kv * call.s * call.d, key + first, call.s, call.d, out_k);
        rt_flash_put<E>(dv + kv * call.s * call.e, key + first, call.s, call.e, out_v);
    }
}

/* --- Calls --- */

template <class E, int D>
static inline int rt_flash_forward(struct rt *rt, const rt_flash<typename E::type> &call, typename E::type *y, float *stats) {
    using S = rt_flash_tiles<E, D>;
    const int64_t blocks = call.heads * call.group * ((call.t + S::rows - 1) / S::rows);
    return rt_launch(rt, rt_flash_kernel<E, D>, blocks, S::threads, call, y, stats, blocks);
}

template <class E, int D>
static inline int rt_flash_backward(struct rt *rt, const rt_flash<typename E::type> &call, typename E::type *dq,
                                    typename E::type *dk, typename E::type *dv, const typename E::type *y,
                                    const typename E::type *dy, const float *stats) {
    using S = rt_flash_tiles<E, D>;
    float *deltas = (float *)rt->arena[RT_SCRATCH]; /* as many as rows */
    const int64_t rows = call.heads * call.group * ((call.t + S::rows - 1) / S::rows);
    const int64_t keys = call.heads * ((call.s + S::rows - 1) / S::rows);
    rt_launch(rt, rt_flash_grad_q_kernel<E, D>, rows, S::threads, call, dq, deltas, y, dy, stats, rows);
    return rt_launch(rt, rt_flash_grad_kv_kernel<E, D>, keys, S::threads, call, dk, dv, dy, stats, (const float *)deltas, keys);
}

/* By the largest head that tiles hold: what a program calls is what nvcc compiles. */
#define RT_CUDA_FLASH(T, s, E, D)                                                                                      \
    RT_ON_CALL int rt_flash_attention_##s##_##D(struct rt *rt, T *y, float *stats, const T *q, const T *k, const T *v, \
                                                const uint8_t *keep, const T *bias, const rt_attention &shape) {       \
        return rt_flash_forward<E, D>(rt, rt_flash_of(q, k, v, keep, bias, shape), y, stats);                          \
    }                                                                                                                  \
    RT_ON_CALL int rt_flash_attention_grad_##s##_##D(                                                                  \
        struct rt *rt, T *dq, T *dk, T *dv, const T *dy, const T *q, const T *k, const T *v, const T *y,               \
        const float *stats, const uint8_t *keep, const T *bias, const rt_attention &shape) {                           \
        return rt_flash_backward<E, D>(rt, rt_flash_of(q, k, v, keep, bias, shape), dq, dk, dv, y, dy, stats);         \
    }

RT_CUDA_FLASH(float, f32, rt_plain<float>, 64)
RT_CUDA_FLASH(float, f32, rt_plain<float>, 128)
RT_CUDA_FLASH(uint16_t, bf16, rt_bf16, 64)
RT_CUDA_FLASH(uint16_t, bf16, rt_bf16, 128)
RT_CUDA_FLASH(uint16_t, fp16, rt_fp16, 64)
RT_CUDA_FLASH(uint16_t, fp16, rt_fp16, 128)

#endif
