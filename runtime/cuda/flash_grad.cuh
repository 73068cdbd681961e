/* The gradient of attention in one pass: flash.cuh, whose tiles it uses. */
#ifndef RT_CUDA_FLASH_GRAD_CUH
#define RT_CUDA_FLASH_GRAD_CUH

#include "flash.cuh"

/* Operands and results of the gradient, in addition to those of the call. */
template <class T> struct rt_flash_grad {
    rt_strided<T> dq, dk, dv;
    rt_strided<const T> y, dy;
    const float *stats;
    float *deltas; /* (heads,t): sums of dy y */
};

/* Statistics of a row for the gradient. */
struct rt_flash_known {
    float base, scale, delta; /* weight = e^(score - base) scale; delta: sum of dy y */
};

template <class T>
static inline __device__ rt_flash_known rt_flash_known_of(const rt_flash<T> &call, const float *stats, float delta) {
    const rt_exponentials<float> of = {stats[0], stats[1]};
    return {of.base(), rt_flash_factor(call, of.sum), delta};
}

/* The weight of a key, and the gradient of the product of q and k, from that product and the product of v and dy. */
struct rt_flash_change {
    float weight, slope;
};

template <class E, bool plain>
static inline __device__ rt_flash_change rt_flash_change_of(const rt_flash<typename E::type> &call,
                                                            const rt_flash_row &row, const rt_flash_known &known,
                                                            int key, float product, float up) {
    const rt_score score =
        plain ? rt_score{product * call.scale, call.scale} : rt_flash_score<E>(call, row, key, product);
    const float weight = known.scale == 0 ? 0 : rt_flash_exp<E>(score.value - known.base) * known.scale;
    return {weight, weight * (up - known.delta) * score.slope};
}

/* Per-thread state of its two rows in the gradient, and whether keys beyond the causal limit have weight 0 in both. */
struct rt_flash_grad_rows {
    rt_flash_row mask[2];
    rt_flash_known known[2];
    bool far;
};

/* Loads the state of rows from `row` on, whose dy is in shared memory; computes and stores their deltas. */
template <class S, class E>
static inline __device__ rt_flash_grad_rows rt_flash_grad_rows_of(const rt_flash<typename E::type> &call,
                                                                  const rt_flash_grad<typename E::type> &grad,
                                                                  uint32_t head, int row, const typename E::type *up) {
    const auto y = rt_flash_of_rows(call, grad.y, head);
    rt_flash_grad_rows rows = {{}, {}, true};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int line = row + rt_tile_row(2 * r), there = line < call.t ? line : call.t - 1;
        const int64_t at = (int64_t)head * call.t + there;
        float delta = 0;
        for (int c = rt_lane() % 4; c < call.e; c += 4)
            delta += E::load(up[rt_tile_row(2 * r) * S::pitch + c]) * E::load(y[there][c]);
        delta = rt_quad_fold(delta, rt_sum_of());
        rows.mask[r] = rt_flash_row_of(call, head, line);
        rows.known[r] = rt_flash_known_of(call, grad.stats + at * 2, delta);
        rows.far = rows.far && rt_flash_is_far(call, grad.stats[at * 2]);
        if (rt_lane() % 4 == 0 && line < call.t) grad.deltas[at] = delta;
    }
    return rows;
}

/* Adds the contribution of keys from `key` on to dq of the warp's rows. */
template <class S, class E, int M>
static inline __device__ void rt_flash_add_slopes(const rt_flash<typename E::type> &call, const typename E::type *q,
                                                  const typename E::type *up, const typename E::type *k,
                                                  const typename E::type *v, int key, bool plain,
                                                  const rt_flash_grad_rows &rows, float (&out)[M][4]) {
    using T = typename E::type;
    constexpr int N = S::others / RT_TILE_COLUMNS;
    float score[N][4], weight[N][4];
    rt_flash_clear(score);
    rt_flash_clear(weight);
    rt_tile_product(E(), score, rt_lines_of_tile<T>{q, S::pitch}, rt_lines_of_tile<T>{k, S::pitch}, S::head);
    rt_tile_product(E(), weight, rt_lines_of_tile<T>{up, S::pitch}, rt_lines_of_tile<T>{v, S::pitch}, S::head);
    rt_flash_either(plain, [&](auto is_plain) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int j = key + n * RT_TILE_COLUMNS + rt_tile_column(i), r = i / 2;
                const auto change = rt_flash_change_of<E, is_plain.value>(call, rows.mask[r], rows.known[r], j,
                                                                          score[n][i], weight[n][i]);
                score[n][i] = is_plain.value || j < call.s ? change.slope : 0;
            }
    });
    rt_tile_product(E(), out, rt_result_of_tile<E, N>{score}, rt_columns_of_tile<T>{k, S::pitch}, S::others);
}

/* Computes dq by blocks of rows, and delta(heads,t) for the other kernel. */
template <class E, int D>
static __global__ void __launch_bounds__(rt_flash_tiles<E, D>::threads, rt_flash_tiles<E, D>::blocks)
    rt_flash_grad_q_kernel(rt_flash<typename E::type> call, rt_flash_grad<typename E::type> grad, uint32_t blocks) {
    using S = rt_flash_tiles<E, D>;
    using T = typename E::type;
    using ring = rt_flash_ring<S, S::others>;
    constexpr int ahead = S::stages - 1;
    alignas(RT_VECTOR_BYTES) __shared__ T q[S::rows * S::pitch], up[S::rows * S::pitch],
        memory[S::stages * 2 * ring::elements];
    const ring tiles = {memory};
    const int first = (int)threadIdx.x / RT_WARP * RT_TILE_ROWS, own = first * S::pitch;
    for (uint32_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        uint32_t head;
        const int row = rt_flash_row_of_block<S>(call, block, &head);
        const auto k = rt_flash_of_keys(call, call.k, head / call.group),
                   v = rt_flash_of_keys(call, call.v, head / call.group);
        float out[D / RT_TILE_COLUMNS][4];
        rt_flash_clear(out);
        if (call.shape.more_before) rt_flash_take(rt_flash_sums(call, head, call.d), row + first, call.t, call.d, out);
        __syncthreads();
        rt_flash_load<S, S::rows>(q, rt_flash_of_rows(call, call.q, head), row, call.t, call.d);
        rt_flash_load<S, S::rows>(up, rt_flash_of_rows(call, grad.dy, head), row, call.t, call.e);
        rt_copies_group();
        rt_copies_wait<0>();
        __syncthreads();
        const rt_flash_grad_rows rows = rt_flash_grad_rows_of<S, E>(call, grad, head, row + first, up + own);
        const int seen = rt_flash_last(call, row + S::rows - 1) + 1;
        const int end = seen < call.s && !__syncthreads_or(!rows.far) ? seen : call.s;
        int stage = 0;
        const int begin = rt_flash_begin(call, row, S::others);
        if (ahead) tiles.bring(0, k, call.d, v, call.e, begin, call.s);
        for (int j = begin; j < end; j += S::others, stage = (stage + 1) % S::stages) {
            const int next = j + ahead * S::others < end ? j + ahead * S::others : call.s;
            tiles.bring((stage + ahead) % S::stages, k, call.d, v, call.e, next, call.s);
            rt_copies_wait<ahead>();
            __syncthreads();
            const bool plain = rt_flash_is_plain(call, row, row + S::rows, j, S::others);
            rt_flash_add_slopes<S, E>(call, q + own, up + own, tiles.first(stage), tiles.second(stage), j, plain, rows,
                                      out);
            __syncthreads();
        }
        rt_copies_wait<0>();
        if (call.shape.more_behind)
            rt_flash_put<rt_plain<float>>(rt_flash_sums(call, head, call.d), row + first, call.t, call.d, out);
        else
            rt_flash_put<E>(rt_flash_of_rows(call, grad.dq, head), row + first, call.t, call.d, out);
    }
}

/* True if a row before `behind`, of any head that shares the keys, has nonzero weights for keys beyond its causal
 * limit. */
template <class T>
static inline __device__ bool rt_flash_any_near(const rt_flash<T> &call, const float *stats, uint32_t kv, int behind) {
    bool near = false;
    for (uint32_t head = kv * call.group; head < (kv + 1) * call.group; head++)
        for (int i = (int)threadIdx.x; i < behind; i += (int)blockDim.x)
            near = near || !rt_flash_is_far(call, stats[((int64_t)head * call.t + i) * 2]);
    return __syncthreads_or(near);
}

/* Iterates over tiles of rows, from row `begin` of each head that shares the keys. */
struct rt_flash_place {
    uint32_t head, end;
    int begin, line;
    /* Advances to the next tile; true if it belongs to another head. */
    __device__ bool go_on(int count, int lines) {
        line += count;
        if (line < lines) return false;
        line = begin;
        head++;
        return true;
    }
};

/* ... with the addresses of their q and dy. */
template <class T> struct rt_flash_walk {
    const rt_flash<T> &call;
    const rt_flash_grad<T> &grad;
    rt_flash_place at;
    rt_flash_lines<const T> q, dy;

    __device__ rt_flash_walk(const rt_flash<T> &call, const rt_flash_grad<T> &grad, const rt_flash_place &from)
        : call(call), grad(grad), at(from) {
        enter();
    }
    __device__ void enter() {
        q = rt_flash_of_rows(call, call.q, at.head);
        dy = rt_flash_of_rows(call, grad.dy, at.head);
    }
    /* Rows of the current head; 0 after the last head. */
    __device__ int lines() const { return at.head < at.end ? call.t : 0; }
    /* Loads the statistics of row `own` of the tile, if it exists. */
    __device__ void look(int own, rt_flash_row &mask, rt_flash_known &known) const {
        if (at.line + own >= lines()) return;
        const int64_t row = (int64_t)at.head * call.t + at.line + own;
        mask = rt_flash_row_of(call, at.head, at.line + own);
        known = rt_flash_known_of(call, grad.stats + row * 2, grad.deltas[row]);
    }
    __device__ void go_on(int count) {
        if (at.go_on(count, call.t) && at.head < at.end) enter();
    }
};

/* First row that sees, or weighs, a key from `key` on. */
template <class S, class T>
static inline __device__ int rt_flash_first_row(const rt_flash<T> &call, const float *stats, uint32_t kv, int key) {
    const int64_t half = call.t / 2;
    int64_t behind = call.shape.causal ? key - call.shape.start - call.shape.offset : 0;
    if (behind > half) behind = behind - call.shape.jump > half ? behind - call.shape.jump : half;
    const int hidden = behind < 0 ? 0 : behind < call.t ? (int)behind : call.t;
    return hidden && !rt_flash_any_near(call, stats, kv, hidden) ? hidden / S::others * S::others : 0;
}

/* Statistics of a tile's rows, in shared memory. */
template <class S> struct rt_flash_seen {
    rt_flash_row mask[S::others];
    rt_flash_known known[S::others];
};

/* Adds the contribution of rows from `line` on to dk and dv of the warp's keys, which begin at `key`. */
template <class S, class E, int M>
static inline __device__ void rt_flash_add_rows(const rt_flash<typename E::type> &call, const typename E::type *k,
                                                const typename E::type *v, const typename E::type *q,
                                                const typename E::type *up, const rt_flash_seen<S> &rows, int key,
                                                int line, bool plain, float (&out_k)[M][4], float (&out_v)[M][4]) {
    using T = typename E::type;
    constexpr int N = S::others / RT_TILE_COLUMNS;
    float score[N][4], slope[N][4];
    rt_flash_clear(score);
    rt_flash_clear(slope);
    rt_tile_product(E(), score, rt_lines_of_tile<T>{k, S::pitch}, rt_lines_of_tile<T>{q, S::pitch}, S::head);
    rt_tile_product(E(), slope, rt_lines_of_tile<T>{v, S::pitch}, rt_lines_of_tile<T>{up, S::pitch}, S::head);
    rt_flash_either(plain, [&](auto is_plain) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int j = key + rt_tile_row(i), r = n * RT_TILE_COLUMNS + rt_tile_column(i);
                rt_flash_change change = {0, 0};
                if (is_plain.value || (j < call.s && line + r < call.t))
                    change = rt_flash_change_of<E, is_plain.value>(call, rows.mask[r], rows.known[r], j, score[n][i],
                                                                   slope[n][i]);
                score[n][i] = change.weight;
                slope[n][i] = change.slope;
            }
    });
    rt_tile_product(E(), out_v, rt_result_of_tile<E, N>{score}, rt_columns_of_tile<T>{up, S::pitch}, S::others);
    rt_tile_product(E(), out_k, rt_result_of_tile<E, N>{slope}, rt_columns_of_tile<T>{q, S::pitch}, S::others);
}

/* Computes dk and dv by blocks of keys, over the rows of all heads that share them, in order. */
template <class E, int D>
static __global__ void __launch_bounds__(rt_flash_tiles<E, D>::threads, rt_flash_tiles<E, D>::blocks)
    rt_flash_grad_kv_kernel(rt_flash<typename E::type> call, rt_flash_grad<typename E::type> grad, uint32_t blocks) {
    using S = rt_flash_tiles<E, D>;
    using T = typename E::type;
    using ring = rt_flash_ring<S, S::others>;
    constexpr int ahead = S::stages - 1;
    alignas(RT_VECTOR_BYTES) __shared__ T k[S::rows * S::pitch], v[S::rows * S::pitch],
        memory[S::stages * 2 * ring::elements];
    __shared__ rt_flash_seen<S> seen[S::stages];
    const ring tiles = {memory};
    /* of a tile's rows */
    const int first = (int)threadIdx.x / RT_WARP * RT_TILE_ROWS, own = first * S::pitch, mine = (int)threadIdx.x;
    const uint32_t blocks_of_head = (uint32_t)((call.s + S::rows - 1) / S::rows);
    for (uint32_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const uint32_t kv = block / blocks_of_head;
        const int key = (int)(block % blocks_of_head) * S::rows;
        const int begin = rt_flash_first_row<S>(call, grad.stats, kv, key);
        rt_flash_place now = {kv * call.group, kv * call.group + (begin < call.t ? call.group : 0), begin, begin};
        rt_flash_walk<T> next(call, grad, now);
        const auto keep = [&](int stage, const rt_flash_row &mask, const rt_flash_known &known) {
            if (mine >= S::others) return;
            seen[stage].mask[mine] = mask;
            seen[stage].known[mine] = known;
        };
        float out_k[D / RT_TILE_COLUMNS][4], out_v[D / RT_TILE_COLUMNS][4];
        rt_flash_clear(out_k);
        rt_flash_clear(out_v);
        __syncthreads();
        rt_flash_load<S, S::rows>(k, rt_flash_of_keys(call, call.k, kv), key, call.s, call.d);
        rt_flash_load<S, S::rows>(v, rt_flash_of_keys(call, call.v, kv), key, call.s, call.e);
        rt_copies_group();
        rt_flash_row mask = {};
        rt_flash_known known = {};
        if (ahead) {
            tiles.bring(0, next.q, call.d, next.dy, call.e, next.at.line, next.lines());
            next.look(mine, mask, known);
            keep(0, mask, known);
            next.go_on(S::others);
        }
        for (int stage = 0; now.head < now.end; stage = (stage + 1) % S::stages) {
            const int coming = (stage + ahead) % S::stages;
            tiles.bring(coming, next.q, call.d, next.dy, call.e, next.at.line, next.lines());
            next.look(mine, mask, known);
            next.go_on(S::others);
            if (!ahead) keep(coming, mask, known);
            rt_copies_wait<ahead>();
            __syncthreads();
            const bool plain = rt_flash_is_plain(call, now.line, now.line + S::others, key, S::rows);
            rt_flash_add_rows<S, E>(call, k + own, v + own, tiles.first(stage), tiles.second(stage), seen[stage],
                                    key + first, now.line, plain, out_k, out_v);
            if (ahead) keep(coming, mask, known); /* it has arrived by now */
            __syncthreads();
            now.go_on(S::others, call.t);
        }
        rt_copies_wait<0>();
        rt_flash_put<E>(rt_flash_of_keys(call, grad.dk, kv), key + first, call.s, call.d, out_k);
        rt_flash_put<E>(rt_flash_of_keys(call, grad.dv, kv), key + first, call.s, call.e, out_v);
    }
}

template <class E, int D, class T = typename E::type>
RT_FAMILY int rt_flash_attention_grad(struct rt *rt, const rt_strided<T> &dq, const rt_strided<T> &dk,
                                      const rt_strided<T> &dv, const rt_strided<const T> &dy,
                                      const rt_strided<const T> &q, const rt_strided<const T> &k,
                                      const rt_strided<const T> &v, const rt_strided<const T> &y, const float *stats,
                                      const uint8_t *keep, const T *bias, const rt_attention &shape) {
    using S = rt_flash_tiles<E, D>;
    const rt_attention_call all = {.dtype = E::dtype,
                                   .backward = true,
                                   .q = rt_operand_of(q),
                                   .k = rt_operand_of(k),
                                   .v = rt_operand_of(v),
                                   .keep = keep,
                                   .bias = bias,
                                   .y = rt_operand_of(y),
                                   .stats = (float *)stats,
                                   .dy = rt_operand_of(dy),
                                   .dq = rt_operand_of(dq),
                                   .dk = rt_operand_of(dk),
                                   .dv = rt_operand_of(dv),
                                   .shape = shape};
    const int status = rt_library_attends(rt, all);
    if (status >= 0) return status;
    if (!rt_flash_fits(shape)) return rt_note(rt, cudaErrorInvalidValue);
    const rt_flash<T> call = rt_flash_of<T>(q, k, v, keep, bias, NULL, shape);
    const rt_flash_grad<T> grad = {dq, dk, dv, y, dy, stats, (float *)rt->arena[RT_SCRATCH]};
    const uint32_t rows = call.heads * call.group * (uint32_t)((call.t + S::rows - 1) / S::rows);
    const uint32_t keys = call.heads * (uint32_t)((call.s + S::rows - 1) / S::rows);
    rt_launch(rt, rt_flash_grad_q_kernel<E, D>, rows, S::threads, call, grad, rows);
    return rt_launch(rt, rt_flash_grad_kv_kernel<E, D>, keys, S::threads, call, grad, keys);
}

#define RT_CUDA_FLASH_GRAD(T, s)                                                                                       \
    RT_NAME(rt_flash_attention_grad_##s##_64, rt_flash_attention_grad<rt_##s, 64>)                                     \
    RT_NAME(rt_flash_attention_grad_##s##_128, rt_flash_attention_grad<rt_##s, 128>)
RT_CUDA_FLASH_GRAD(float, f32)
RT_HALVES(RT_CUDA_FLASH_GRAD)

#endif
