/* Attention in one pass over the keys (Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023): scores stay
 * in registers. The manual is kernels/c/kernels.h, struct rt_attention; the gradient: flash_grad.cuh.
 *
 * A thread block processes rows of queries of one head, or in part of the gradient rows of keys; each warp 16 of them.
 * The other operands are loaded in tiles, the next one while the current one is used. Sums are in f32. No two blocks
 * accumulate into the same element: dq is computed by blocks of queries, dk and dv by blocks of keys, so results do not
 * depend on timing. Two statistics per row are kept for the gradient: the largest score, and the sum of e^(score -
 * that). Their combination, the log-sum-exp, would lose the sum beside a mask's large fill value. Masked elements of v
 * are not read; elsewhere an infinity times 0 gives NaN. */
#ifndef RT_CUDA_FLASH_CUH
#define RT_CUDA_FLASH_CUH

#include <limits.h>

#include <type_traits>

#include "mma.cuh"

/* Tile sizes for elements E and heads of at most D elements: what fits into 48 KB of shared memory. */
template <class E, int D> struct rt_flash_tiles {
    using T = typename E::type;
    static constexpr bool narrow = sizeof(T) == 2, small = D <= 64;
    static constexpr int head = D;
    static constexpr int keys = narrow ? (small ? 64 : 32) : (small ? 16 : 8); /* forward: keys per tile */
    /* gradient: keys, or rows of queries, per tile */
    static constexpr int others = narrow ? (small ? 32 : 16) : 8;
    static constexpr int stages = narrow && small ? 2 : 1; /* gradient: tiles in flight */
    static constexpr int warps = narrow || small ? 4 : 2, threads = warps * RT_WARP;
    static constexpr int rows = warps * RT_TILE_ROWS; /* rows or keys per thread block */
    /* resident thread blocks per multiprocessor */
    static constexpr int blocks = narrow && small ? 3 : 2;
    static constexpr int pitch = D + 16 / (int)sizeof(T); /* padded, so that lines begin in different banks */
};

/* Arguments of a call, with derived extents: `rows` rows of q for each of `heads` heads of k and v. */
template <class T> struct rt_flash {
    rt_strided<const T> q, k, v;
    const T *bias, *sink;
    const uint8_t *keep;
    rt_attention shape;
    uint32_t heads, group;
    int t, s, d, e;
    float scale, fill, cap;
};

template <class T>
static inline rt_flash<T> rt_flash_of(const rt_strided<const T> &q, const rt_strided<const T> &k,
                                      const rt_strided<const T> &v, const uint8_t *keep, const T *bias, const T *sink,
                                      const rt_attention &shape) {
    const int ndim = shape.ndim;
    const int64_t heads = rt_count(shape.q, 0, ndim - 3) * shape.kv;
    return {q,
            k,
            v,
            bias,
            sink,
            keep,
            shape,
            (uint32_t)heads,
            (uint32_t)(heads ? rt_count(shape.q, 0, ndim - 2) / heads : 0),
            (int)shape.q[ndim - 2],
            (int)shape.s,
            (int)shape.q[ndim - 1],
            (int)shape.e,
            (float)shape.scale,
            (float)shape.fill,
            (float)shape.cap};
}

/* The lines of a head. */
template <class T> struct rt_flash_lines {
    T *at;
    int64_t step;
    __device__ T *operator[](int line) const { return at + line * step; }
};

/* Offset of head number `head`, counted over all samples, each of which has `heads`. */
template <class T>
static inline __device__ rt_flash_lines<T> rt_flash_head(const rt_strided<T> &x, const rt_attention &shape,
                                                         uint32_t heads, uint32_t head) {
    const int ndim = shape.ndim;
    T *at = x.at;
    if (ndim > 3) {
        at += head % heads * x.step[ndim - 3];
        head /= heads;
        for (int d = ndim - 4; d > 0; d--) {
            at += head % (uint32_t)shape.q[d] * x.step[d];
            head /= (uint32_t)shape.q[d];
        }
    }
    return {at + head * x.step[0], x.step[ndim - 2]};
}
/* ... of tensors with the heads of q, and with those of k. */
template <class A, class T>
static inline __device__ rt_flash_lines<T> rt_flash_of_rows(const A &call, const rt_strided<T> &x, uint32_t head) {
    return rt_flash_head(x, call.shape, (uint32_t)call.shape.q[call.shape.ndim - 3], head);
}
template <class A, class T>
static inline __device__ rt_flash_lines<T> rt_flash_of_keys(const A &call, const rt_strided<T> &x, uint32_t head) {
    return rt_flash_head(x, call.shape, (uint32_t)call.shape.kv, head);
}

/* Offsets of a row's masks, and the first and the last key that it sees. */
struct rt_flash_row {
    int64_t keep, bias;
    int first, last;
};

template <class T> static inline __device__ int rt_flash_last(const rt_flash<T> &call, int row) {
    const int64_t last = rt_last_key(call.shape, row);
    return !call.shape.causal || last > call.s ? call.s : last < -1 ? -1 : (int)last;
}

template <class T> static inline __device__ int rt_flash_first(const rt_flash<T> &call, int row) {
    const int64_t first = rt_last_key(call.shape, row) - call.shape.window + 1;
    return !call.shape.window || first < 0 ? 0 : first > call.s ? call.s : (int)first;
}

template <class T>
static inline __device__ rt_flash_row rt_flash_row_of(const rt_flash<T> &call, uint32_t head, int i) {
    const rt_attention &shape = call.shape;
    int64_t step;
    rt_flash_row row = {0, 0, rt_flash_first(call, i), rt_flash_last(call, i)};
    if (i >= call.t) return row;
    if (call.keep) row.keep = rt_mask_row(shape.keep, shape.q, shape.ndim, (int64_t)head * call.t + i, &step);
    if (call.bias) row.bias = rt_mask_row(shape.bias, shape.q, shape.ndim, (int64_t)head * call.t + i, &step);
    return row;
}

struct rt_score {
    float value, slope; /* for the product of q and k */
};

template <class E>
static inline __device__ rt_score rt_flash_score(const rt_flash<typename E::type> &call, const rt_flash_row &row, int j,
                                                 float product) {
    const rt_attention &shape = call.shape;
    const float lowest = -3.402823466e38f;
    const int keep_step = shape.keep[shape.ndim - 1] == 1 ? 0 : 1, bias_step = shape.bias[shape.ndim - 1] == 1 ? 0 : 1;
    const float bias = call.bias ? (float)E::load(call.bias[row.bias + j * bias_step]) : 0;
    rt_score score = {product * call.scale, call.scale};
    if (call.cap > 0) {
        const float capped = rt_tanh_of(score.value / call.cap);
        score = {call.cap * capped, call.scale * (1 - capped * capped)};
    }
    if (call.bias && shape.bias_first) score.value += bias;
    if (j > row.last || j < row.first || (call.keep && (call.keep[row.keep + j * keep_step] != 0) == (shape.drop != 0)))
        score = {call.fill, 0};
    if (call.bias && !shape.bias_first) score.value += bias;
    if (shape.clamp && score.value < lowest) score = {lowest, 0};
    return score;
}

/* True if neither mask nor cap applies to the scores of rows [first_row, behind_rows) and `keys` keys from `key` on:
 * all exist and are visible. */
template <class T>
static inline __device__ bool rt_flash_is_plain(const rt_flash<T> &call, int first_row, int behind_rows, int key,
                                                int keys) {
    const int last_key = key + keys - 1;
    return !call.keep && !call.bias && !call.shape.clamp && !(call.cap > 0) && behind_rows <= call.t &&
           last_key < call.s && last_key <= rt_flash_last(call, first_row) &&
           key >= rt_flash_first(call, behind_rows - 1);
}

/* Calls body(plain) with a compile-time constant, because nearly all tiles have no mask. */
template <class F> static inline __device__ void rt_flash_either(bool plain, F body) {
    if (plain)
        body(std::true_type());
    else
        body(std::false_type());
}

/* e^x with the precision that weights of this type need. */
template <class E> static inline __device__ float rt_flash_exp(float x) {
#ifdef __CUDA_ARCH__
    if (sizeof(typename E::type) == 2) return __expf(x);
#endif
    return rt_exp_of(x);
}

/* True if keys beyond the last visible one have weight 0 beside a score of `high`. */
template <class T> static inline __device__ bool rt_flash_is_far(const rt_flash<T> &call, float high) {
    const float cutoff = 104; /* e^-104 is 0 */
    return call.shape.causal && (!call.bias || call.shape.bias_first) && call.fill - high <= -cutoff;
}

/* The first key of the first tile, of `keys` keys, that rows from `row` on weigh: keys before a window have weight 0 if
 * their scores are -inf. */
template <class T> static inline __device__ int rt_flash_begin(const rt_flash<T> &call, int row, int keys) {
    const bool hidden = call.fill == -INFINITY && (!call.bias || call.shape.bias_first) && !call.shape.clamp;
    const int first = hidden ? rt_flash_first(call, row) : 0;
    return (first < call.s ? first : call.s) / keys * keys;
}

/* Starts copying COUNT lines from `first` on, of `lines` lines of `width` elements, to shared memory, padded with
 * zeros. */
template <class S, int COUNT, class T>
static inline __device__ void rt_flash_load(T *to, const rt_flash_lines<const T> &x, int first, int lines, int width) {
    constexpr int N = RT_WIDTH(T), threads_of_line = S::head / N, at_once = S::threads / threads_of_line;
    static_assert(COUNT % at_once == 0, "every thread has as many");
    const int c = (int)threadIdx.x % threads_of_line * N, own = (int)threadIdx.x / threads_of_line;
    if (width % N == 0 && x.step % N == 0 && (uintptr_t)x.at % RT_VECTOR_BYTES == 0) {
#pragma unroll
        for (int line = 0; line < COUNT; line += at_once) {
            const bool there = first + own + line < lines && c < width;
            rt_copy_begin(to + (own + line) * S::pitch + c, there ? x[first + own + line] + c : x.at, there);
        }
        return;
    }
    for (int line = own; line < COUNT; line += at_once)
        for (int i = c; i < c + N; i++)
            to[line * S::pitch + i] = first + line < lines && i < width ? x[first + line][i] : (T)0;
}

/* Tiles of COUNT lines of two operands in shared memory, in a ring of stages. */
template <class S, int COUNT> struct rt_flash_ring {
    using T = typename S::T;
    static constexpr int elements = COUNT * S::pitch;
    T *memory;
    __device__ T *first(int stage) const { return memory + stage * 2 * elements; }
    __device__ T *second(int stage) const { return first(stage) + elements; }
    /* Starts copying lines from `line` on, of `lines`; none beyond the end. Always commits a group of copies. */
    __device__ void bring(int stage, const rt_flash_lines<const T> &a, int a_width, const rt_flash_lines<const T> &b,
                          int b_width, int line, int lines) const {
        if (line < lines) {
            rt_flash_load<S, COUNT>(first(stage), a, line, lines, a_width);
            rt_flash_load<S, COUNT>(second(stage), b, line, lines, b_width);
        }
        rt_copies_group();
    }
};

/* A left operand that is reused for all tiles: 16-bit elements stay in registers, f32 in shared memory. */
template <class E, int D> struct rt_flash_held {
    static constexpr bool lends_memory = true;
    uint32_t at[D / RT_TILE_DEPTH][4];
    __device__ void take(const rt_lines_of_tile<typename E::type> &lines) {
#pragma unroll
        for (int p = 0; p < D; p += RT_TILE_DEPTH) lines.left(at[p / RT_TILE_DEPTH], p);
    }
    __device__ void left(uint32_t (&to)[4], int p) const {
#pragma unroll
        for (int i = 0; i < 4; i++) to[i] = at[p / RT_TILE_DEPTH][i];
    }
};
template <int D> struct rt_flash_held<rt_plain<float>, D> : rt_lines_of_tile<float> {
    static constexpr bool lends_memory = false;
    __device__ void take(const rt_lines_of_tile<float> &lines) { *(rt_lines_of_tile<float> *)this = lines; }
};

template <int N> static inline __device__ void rt_flash_clear(float (&sums)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0;
}

/* Stores the warp's 16 lines of y from `first` on, of `count` lines, multiplied by the factors of the thread's two
 * lines. */
template <class E, int N>
static inline __device__ void rt_flash_put(const rt_flash_lines<typename E::type> &y, int first, int count, int width,
                                           const float (&values)[N][4], float factor0 = 1, float factor1 = 1) {
    using T = typename E::type;
    const bool paired = sizeof(T) == 2 && width % 2 == 0 && y.step % 2 == 0 && (uintptr_t)y.at % 4 == 0;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int line = first + rt_tile_row(2 * r), c = n * RT_TILE_COLUMNS + rt_tile_column(0);
            const float factor = r ? factor1 : factor0; /* 0: so is the line, even where a value is NaN */
            const float low = factor == 0 ? 0 : values[n][2 * r] * factor,
                        high = factor == 0 ? 0 : values[n][2 * r + 1] * factor;
            if (line >= count) continue;
            if constexpr (sizeof(T) == 2)
                if (paired && c < width) *(uint32_t *)(y[line] + c) = rt_pair_of(E(), low, high);
            if (!paired && c < width) y[line][c] = E::store(low);
            if (!paired && c + 1 < width) y[line][c + 1] = E::store(high);
        }
}

/* Loads such lines of sums; lines from `count` on are 0. */
template <int N>
static inline __device__ void rt_flash_take(const rt_flash_lines<float> &sums, int first, int count, int width,
                                            float (&values)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int line = first + rt_tile_row(i), c = n * RT_TILE_COLUMNS + rt_tile_column(i);
            values[n][i] = line < count && c < width ? sums[line][c] : 0;
        }
}

/* The sums of a head's rows between calls with some of the keys each. */
template <class T>
static inline __device__ rt_flash_lines<float> rt_flash_sums(const rt_flash<T> &call, uint32_t head, int width) {
    return {call.shape.sums + (int64_t)head * call.t * width, width};
}

/* Per-thread state of its two rows. */
struct rt_flash_rows_of {
    rt_flash_row mask[2];
    rt_exponentials<float> of[2]; /* sum: over this thread's keys */
};

/* Replaces the products with keys from `key` on by weights; updates the two rows' statistics and returns the factors
 * for the sums so far. */
template <class E, int N>
static inline __device__ void rt_flash_weigh(const rt_flash<typename E::type> &call, float (&score)[N][4], int key,
                                             bool plain, rt_flash_rows_of &rows, float (&turn)[2]) {
    float high[2] = {rows.of[0].high, rows.of[1].high};
    rt_flash_either(plain, [&](auto is_plain) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int j = key + n * RT_TILE_COLUMNS + rt_tile_column(i);
                if constexpr (is_plain.value)
                    score[n][i] *= call.scale;
                else
                    score[n][i] =
                        j < call.s ? rt_flash_score<E>(call, rows.mask[i / 2], j, score[n][i]).value : -INFINITY;
                high[i / 2] = rt_most_of()(high[i / 2], score[n][i]);
            }
    });
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float before = rows.of[r].high;
        rows.of[r].high = rt_quad_fold(high[r], rt_most_of());
        turn[r] = rt_flash_exp<E>(before - rows.of[r].base());
        rows.of[r].sum *= turn[r];
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            score[n][i] = rt_flash_exp<E>(score[n][i] - rows.of[i / 2].base());
            rows.of[i / 2].sum += score[n][i];
        }
}

/* Adds the contribution of keys from `key` on to the sums of the warp's rows. */
template <class S, class E, int M>
static inline __device__ void rt_flash_add_keys(const rt_flash<typename E::type> &call,
                                                const rt_flash_held<E, S::head> &queries, const typename E::type *k,
                                                const typename E::type *v, int key, bool plain, rt_flash_rows_of &rows,
                                                float (&out)[M][4]) {
    using T = typename E::type;
    constexpr int N = S::keys / RT_TILE_COLUMNS;
    float score[N][4], turn[2];
    rt_flash_clear(score);
    rt_tile_product(E(), score, queries, rt_lines_of_tile<T>{k, S::pitch}, S::head);
    rt_flash_weigh<E>(call, score, key, plain, rows, turn);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) out[m][i] *= turn[i / 2];
    rt_tile_product(E(), out, rt_result_of_tile<E, N>{score}, rt_columns_of_tile<T>{v, S::pitch}, S::keys);
}

/* The factor that makes weights of the terms e^(score - high) of a row. */
template <class T> static inline __device__ float rt_flash_factor(const rt_flash<T> &call, float sum) {
    return rt_has_no_weights(call.shape, sum) ? 0 : 1 / sum;
}

/* A row's statistics before its keys: the sink's. */
template <class E>
static inline __device__ rt_exponentials<float> rt_flash_sink(const rt_flash<typename E::type> &call, int64_t row) {
    int64_t step;
    if (!call.sink) return {-INFINITY, 0};
    const float high = E::load(call.sink[rt_mask_row(call.shape.sink, call.shape.q, call.shape.ndim, row, &step)]);
    return {high, high == -INFINITY ? 0.0f : 1.0f};
}

/* A row's statistics before its first key. Each of the four threads of a row sums a part of its terms; one of them has
 * the sink's, or what a call with other keys has summed. */
template <class E>
static inline __device__ rt_exponentials<float> rt_flash_open(const rt_flash<typename E::type> &call, uint32_t head,
                                                              int row, const float *stats) {
    if (row >= call.t) return {-INFINITY, 0};
    if (call.shape.more_before) {
        const float *const kept = stats + ((int64_t)head * call.t + row) * 2;
        return {kept[0], rt_lane() % 4 == 0 ? kept[1] : 0};
    }
    rt_exponentials<float> of = rt_flash_sink<E>(call, (int64_t)head * call.t + row);
    if (rt_lane() % 4) of.sum = 0;
    return of;
}

/* Completes the rows' statistics, stores them, and returns the factors for y. */
template <class T>
static inline __device__ void rt_flash_close(const rt_flash<T> &call, uint32_t head, int row, rt_flash_rows_of &rows,
                                             float *stats, float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int line = row + rt_tile_row(2 * r);
        rows.of[r].sum = rt_quad_fold(rows.of[r].sum, rt_sum_of());
        factor[r] = rt_flash_factor(call, rows.of[r].sum);
        if (rt_lane() % 4 || line >= call.t) continue;
        float *const kept = stats + ((int64_t)head * call.t + line) * 2;
        kept[0] = rows.of[r].high;
        kept[1] = rows.of[r].sum;
    }
}

/* Position of a thread block: the last rows of a head, which see most keys, come first. */
template <class S, class T>
static inline __device__ int rt_flash_row_of_block(const rt_flash<T> &call, uint32_t block, uint32_t *head) {
    const uint32_t tiles = (uint32_t)((call.t + S::rows - 1) / S::rows);
    *head = block / tiles;
    return (int)(tiles - 1 - block % tiles) * S::rows;
}

template <class E, int D>
static __global__ void __launch_bounds__(rt_flash_tiles<E, D>::threads, rt_flash_tiles<E, D>::blocks)
    rt_flash_kernel(rt_flash<typename E::type> call, rt_strided<typename E::type> y, float *stats, uint32_t blocks) {
    using S = rt_flash_tiles<E, D>;
    using T = typename E::type;
    using ring = rt_flash_ring<S, S::keys>;
    constexpr int own = S::rows * S::pitch, keys_at = rt_flash_held<E, D>::lends_memory ? 0 : own,
                  all = keys_at + 4 * ring::elements;
    alignas(RT_VECTOR_BYTES) __shared__ T memory[all > own ? all : own]; /* q; then k and v, in two stages */
    const ring tiles = {memory + keys_at};
    const int first = (int)threadIdx.x / RT_WARP * RT_TILE_ROWS; /* of the warp's rows */
    for (uint32_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        uint32_t head;
        const int row = rt_flash_row_of_block<S>(call, block, &head);
        const auto k = rt_flash_of_keys(call, call.k, head / call.group),
                   v = rt_flash_of_keys(call, call.v, head / call.group);
        rt_flash_rows_of rows = {{rt_flash_row_of(call, head, row + first + rt_tile_row(0)),
                                  rt_flash_row_of(call, head, row + first + rt_tile_row(2))},
                                 {rt_flash_open<E>(call, head, row + first + rt_tile_row(0), stats),
                                  rt_flash_open<E>(call, head, row + first + rt_tile_row(2), stats)}};
        float out[D / RT_TILE_COLUMNS][4], factor[2];
        rt_flash_held<E, D> queries;
        rt_flash_clear(out);
        if (call.shape.more_before) rt_flash_take(rt_flash_sums(call, head, call.e), row + first, call.t, call.e, out);
        __syncthreads(); /* the previous tiles have been read */
        rt_flash_load<S, S::rows>(memory, rt_flash_of_rows(call, call.q, head), row, call.t, call.d);
        rt_copies_group();
        rt_copies_wait<0>();
        __syncthreads();
        queries.take(rt_lines_of_tile<T>{memory + first * S::pitch, S::pitch});
        __syncthreads();
        const int seen = rt_flash_last(call, row + S::rows - 1) + 1; /* keys seen by the last row */
        int j = rt_flash_begin(call, row, S::keys), end = seen < call.s ? seen : call.s;
        bool near;
        do {
            int stage = 0;
            tiles.bring(stage, k, call.d, v, call.e, j, call.s);
            for (; j < end; j += S::keys, stage ^= 1) {
                const int next = j + S::keys < end ? j + S::keys : call.s;
                tiles.bring(stage ^ 1, k, call.d, v, call.e, next, call.s);
                rt_copies_wait<1>();
                __syncthreads();
                const bool plain = rt_flash_is_plain(call, row, row + S::rows, j, S::keys);
                rt_flash_add_keys<S, E>(call, queries, tiles.first(stage), tiles.second(stage), j, plain, rows, out);
                __syncthreads();
            }
            /* A row that sees no key has equal weights for all keys, including those beyond the causal limit. */
            near = false;
            for (int r = 0; r < 2; r++)
                near = near || (row + first + rt_tile_row(2 * r) < call.t && !rt_flash_is_far(call, rows.of[r].high));
            rt_copies_wait<0>();
            near = end < call.s && __syncthreads_or(near);
            end = call.s;
        } while (near);
        rt_flash_close(call, head, row + first, rows, stats, factor);
        if (call.shape.more_behind)
            rt_flash_put<rt_plain<float>>(rt_flash_sums(call, head, call.e), row + first, call.t, call.e, out);
        else
            rt_flash_put<E>(rt_flash_of_rows(call, y, head), row + first, call.t, call.e, out, factor[0], factor[1]);
    }
}

/* Decoding: few rows that share a head of k and v. The keys are divided among thread blocks and their warps (Dao et
 * al., "Flash-Decoding for long-context inference", 2023); a group of threads reads a key's line 16 bytes each, as many
 * keys at a time as a warp has groups. What each warp has summed is in scratch, in order, and is added by a second
 * kernel. */
template <class E, int D> struct rt_flash_few {
    using T = typename E::type;
    static constexpr int width = RT_WIDTH(T), lanes = D / width, keys = RT_WARP / lanes; /* keys: of a warp at a time */
    static constexpr int rows = 4;                                                       /* at a time */
};

/* What some keys contribute to a row: its statistics, and the thread's elements of the sum of lines of v. */
template <class E, int N> struct rt_flash_share {
    rt_exponentials<float> of;
    float out[N];
    /* The largest score becomes `high`. */
    __device__ void raise(float high) {
        const float before = of.high;
        of.high = high;
        const float turn = rt_flash_exp<E>(before - of.base());
        of.sum *= turn;
        for (int i = 0; i < N; i++) out[i] *= turn;
    }
    __device__ void add(float score, const float (&v)[N]) {
        if (score == -INFINITY) return; /* v is not read */
        raise(rt_most_of()(of.high, score));
        const float weight = rt_flash_exp<E>(score - of.base());
        of.sum += weight;
        for (int i = 0; i < N; i++) out[i] += weight * v[i];
    }
    /* Adds the shares of threads that are `far` lanes away, and so on in steps of powers of two. */
    __device__ void join(int far) {
        for (; far < RT_WARP; far *= 2) {
            raise(rt_most_of()(of.high, (float)__shfl_xor_sync(RT_ALL_LANES, of.high, far)));
            of.sum += __shfl_xor_sync(RT_ALL_LANES, of.sum, far);
            for (int i = 0; i < N; i++) out[i] += __shfl_xor_sync(RT_ALL_LANES, out[i], far);
        }
    }
};

/* Elements [c, c + N) of a line of `width` elements; zeros beyond it, and if it is not there. */
template <class E, int N, class T>
static inline __device__ void rt_flash_elements(float (&to)[N], const T *line, int c, int width, bool there,
                                                bool wide) {
    if (wide && there && c < width) {
        const rt_vector<T, N> vector = rt_get_vector<N>(line + c);
        for (int i = 0; i < N; i++) to[i] = E::load(vector.at[i]);
        return;
    }
    for (int i = 0; i < N; i++) to[i] = there && c + i < width ? (float)E::load(line[c + i]) : 0;
}
template <int N, class T> static inline __device__ bool rt_flash_is_wide(const rt_flash_lines<const T> &x, int width) {
    return width % N == 0 && x.step % N == 0 && (uintptr_t)x.at % RT_VECTOR_BYTES == 0;
}

/* The place of a warp's share of a row: its statistics, and the sum of e elements. */
template <class T>
static inline __device__ float *rt_flash_part(const rt_flash<T> &call, float *parts, int64_t row, int count, int part) {
    return parts + (row * count + part) * (call.e + 2);
}

template <class T> struct rt_flash_few_call {
    rt_flash<T> call;
    float *parts;
    int pieces;
};

template <class E, int D>
static inline __device__ void rt_flash_few_keys(const rt_flash_few_call<typename E::type> &of) {
    using S = rt_flash_few<E, D>;
    const auto &call = of.call;
    const int warp = (int)threadIdx.x / RT_WARP, c = rt_lane() % S::lanes * S::width, pieces = of.pieces;
    for (uint32_t block = blockIdx.x; block < call.heads * (uint32_t)pieces; block += gridDim.x) {
        const int piece = (int)(block % (uint32_t)pieces), span = (call.s + pieces - 1) / pieces;
        const uint32_t head = block / (uint32_t)pieces;
        const auto k = rt_flash_of_keys(call, call.k, head), v = rt_flash_of_keys(call, call.v, head);
        const bool wide_k = rt_flash_is_wide<S::width>(k, call.d), wide_v = rt_flash_is_wide<S::width>(v, call.e);
        const int count = (int)call.group * call.t, end = (piece + 1) * span < call.s ? (piece + 1) * span : call.s;
        for (int first = 0; first < count; first += S::rows) {
            float q[S::rows][S::width];
            rt_flash_row masks[S::rows];
            rt_flash_share<E, S::width> shares[S::rows];
#pragma unroll
            for (int r = 0; r < S::rows; r++) {
                const int row = first + r < count ? first + r : first, line = row % call.t;
                const uint32_t own = head * call.group + (uint32_t)(row / call.t);
                const auto lines = rt_flash_of_rows(call, call.q, own);
                rt_flash_elements<E>(q[r], lines[line], c, call.d, true, false);
                masks[r] = rt_flash_row_of(call, own, line);
                shares[r] = {{-INFINITY, 0}, {}};
            }
            for (int at = piece * span + warp * S::keys; at < end; at += RT_FLASH_WARPS * S::keys) {
                const int j = at + rt_lane() / S::lanes;
                float key[S::width], value[S::width];
                rt_flash_elements<E>(key, k[j], c, call.d, j < end, wide_k);
                rt_flash_elements<E>(value, v[j], c, call.e, j < end, wide_v);
#pragma unroll
                for (int r = 0; r < S::rows; r++) {
                    float product = 0;
                    for (int i = 0; i < S::width; i++) product += q[r][i] * key[i];
                    for (int far = 1; far < S::lanes; far *= 2) product += __shfl_xor_sync(RT_ALL_LANES, product, far);
                    if (j < end) shares[r].add(rt_flash_score<E>(call, masks[r], j, product).value, value);
                }
            }
#pragma unroll
            for (int r = 0; r < S::rows; r++) {
                shares[r].join(S::lanes);
                if (first + r >= count || rt_lane() >= S::lanes) continue;
                float *const part = rt_flash_part(call, of.parts, (int64_t)head * count + first + r,
                                                  pieces * RT_FLASH_WARPS, piece * RT_FLASH_WARPS + warp);
                if (c == 0) part[0] = shares[r].of.high, part[1] = shares[r].of.sum;
                for (int i = 0; i < S::width && c + i < call.e; i++) part[2 + c + i] = shares[r].out[i];
            }
        }
    }
}

template <class E, int D>
static __global__ void __launch_bounds__(RT_FLASH_WARPS *RT_WARP)
    rt_flash_few_kernel(rt_flash_few_call<typename E::type> call) {
    rt_flash_few_keys<E, D>(call);
}
template <class E, int D>
static __global__ void __launch_bounds__(RT_FLASH_WARPS *RT_WARP)
    rt_moved_flash_few_kernel(const rt_flash_few_call<typename E::type> *call) {
    rt_flash_few_keys<E, D>(*call);
}

template <class E, int D, class T>
static inline int rt_flash_few_rows(struct rt *rt, const rt_flash<T> &call, const rt_strided<T> &y, float *stats) {
    if (call.heads == 0) return RT_OK;
    const int pieces = (int)rt_flash_pieces(call.heads, call.s), count = pieces * RT_FLASH_WARPS;
    float *const parts = (float *)rt->arena[RT_SCRATCH];
    rt_moved_kernel<rt_flash_few_call<T>> moved = NULL;
    if constexpr (RT_GROWS) moved = rt_moved_flash_few_kernel<E, D>;
    RT_TRY(rt_launch_movable(rt, rt_flash_few_kernel<E, D>, moved, (int64_t)call.heads * pieces,
                             RT_FLASH_WARPS * RT_WARP, rt_flash_few_call<T>{call, parts, pieces}));
    return rt_points(rt, (int64_t)call.heads * call.group * call.t * call.e, [=] __device__(int64_t p) {
        const int64_t row = p / call.e;
        const int c = (int)(p % call.e);
        rt_exponentials<float> of = rt_flash_sink<E>(call, row);
        const float opened = of.high;
        float value = 0;
        for (int i = 0; i < count; i++) of.high = rt_most_of()(of.high, *rt_flash_part(call, parts, row, count, i));
        of.sum *= rt_flash_exp<E>(opened - of.base());
        for (int i = 0; i < count; i++) {
            const float *const part = rt_flash_part(call, parts, row, count, i);
            const float turn = rt_flash_exp<E>(part[0] - of.base());
            of.sum += part[1] * turn;
            value += part[2 + c] * turn;
        }
        const float factor = rt_flash_factor(call, of.sum);
        rt_flash_of_rows(call, y, (uint32_t)(row / call.t))[(int)(row % call.t)][c] =
            E::store(factor == 0 ? 0 : value * factor);
        if (c > 0) return;
        stats[2 * row] = of.high;
        stats[2 * row + 1] = of.sum;
    });
}

/* True if rows, keys, and heads times tiles fit 32-bit counters. */
static inline bool rt_flash_fits(const rt_attention &shape) {
    const int64_t rows = shape.q[shape.ndim - 2], longest = rows > shape.s ? rows : shape.s;
    return longest < INT_MAX / 2 && rt_count(shape.q, 0, shape.ndim - 2) * (longest / RT_TILE_ROWS + 1) < INT_MAX;
}

/* The library's status if the program requests it; -1: it does not support the call. */
static inline int rt_library_attends(struct rt *rt, const rt_attention_call &call) {
    int (*library)(struct rt *, const rt_attention_call *) = rt_cuda_of(rt)->attend;
    return library && call.shape.library && !rt->reference_kernels ? library(rt, &call) : -1;
}
template <class T> static inline rt_operand rt_operand_of(const rt_strided<T> &x) {
    return {(void *)x.at, x.step};
}

/* By head size, so that nvcc compiles only the kernels that a program calls. */
template <class E, int D, class T = typename E::type>
RT_FAMILY int rt_flash_attention(struct rt *rt, const rt_strided<T> &y, float *stats, const rt_strided<const T> &q,
                                 const rt_strided<const T> &k, const rt_strided<const T> &v, const uint8_t *keep,
                                 const T *bias, const T *sink, const rt_attention &shape) {
    using S = rt_flash_tiles<E, D>;
    const rt_attention_call all = {.dtype = E::dtype,
                                   .q = rt_operand_of(q),
                                   .k = rt_operand_of(k),
                                   .v = rt_operand_of(v),
                                   .keep = keep,
                                   .bias = bias,
                                   .sink = sink,
                                   .y = rt_operand_of(y),
                                   .stats = stats,
                                   .shape = shape};
    const rt_flash<T> call = rt_flash_of<T>(q, k, v, keep, bias, sink, shape);
    const bool few = (int64_t)call.group * call.t <= RT_FLASH_ROWS && !shape.more_before && !shape.more_behind;
    /* The library makes a graph of each number of keys, which takes longer than a step of decoding. */
    rt_take_note(rt, NULL, false, few);
    const int status = few && rt->program->nsizes ? -1 : rt_library_attends(rt, all);
    if (status >= 0) return status;
    if (!rt_flash_fits(shape)) return rt_note(rt, cudaErrorInvalidValue);
    if (few) return rt_flash_few_rows<E, D>(rt, call, y, stats);
    const uint32_t blocks = call.heads * call.group * (uint32_t)((call.t + S::rows - 1) / S::rows);
    return rt_launch(rt, rt_flash_kernel<E, D>, blocks, S::threads, call, y, stats, blocks);
}

#define RT_CUDA_FLASH(T, s)                                                                                            \
    RT_NAME(rt_flash_attention_##s##_64, rt_flash_attention<rt_##s, 64>)                                               \
    RT_NAME(rt_flash_attention_##s##_128, rt_flash_attention<rt_##s, 128>)
RT_CUDA_FLASH(float, f32)
RT_HALVES(RT_CUDA_FLASH)

#endif
