/* Matrix products and attention; the manual is kernels/c/kernels.h. A library computes the types that it supports
 * (library.cuh). The kernels here compute the others, and everything with --kernels reference: one thread per element,
 * in order of k. */
#ifndef RT_CUDA_PRODUCT_CUH
#define RT_CUDA_PRODUCT_CUH

#include "reduce.cuh"

template <class E> static inline int rt_plain_product(struct rt *rt, const rt_product &product) {
    using T = typename E::type;
    using A = typename E::sum;
    const int64_t m = product.m, k = product.k, n = product.n;
    const int64_t a_row = product.trans_a ? 1 : k, a_column = product.trans_a ? m : 1;
    const int64_t b_row = product.trans_b ? 1 : n, b_column = product.trans_b ? k : 1;
    T *y = (T *)product.y;
    const T *a = (const T *)product.a, *b = (const T *)product.b;
    return rt_points(rt, product.batch * m * n, [=] __device__(int64_t p) {
        int64_t which = p;
        const int64_t j = rt_take(&which, n), i = rt_take(&which, m);
        const T *left = a + which * m * k + i * a_row, *right = b + which * k * n + j * b_column;
        A sum = 0;
        for (int64_t q = 0; q < k; q++) sum += E::load(left[q * a_column]) * E::load(right[q * b_row]);
        y[p] = E::store(sum);
    });
}

/* The library's status; -1: it does not support the product. */
static inline int rt_library_product(struct rt *rt, const rt_product &product) {
    int (*library)(struct rt *, const rt_product *) = rt_cuda_of(rt)->product;
    const bool empty = product.batch * product.m * product.n * product.k == 0;
    rt_take_note(rt, NULL, false, product);
    return library && !rt->reference_kernels && !empty ? library(rt, &product) : -1;
}

template <class E> static inline int rt_multiply(struct rt *rt, const rt_product &product) {
    const int status = rt_library_product(rt, product);
    return status < 0 ? rt_plain_product<E>(rt, product) : status;
}

/* Computes the product with the library; if it does not support the epilogue, `finish` applies that afterwards, in
 * place. */
template <class E, class F> static inline int rt_multiply_finished(struct rt *rt, rt_product product, F finish) {
    const int status = rt_library_product(rt, product);
    if (status >= 0) return status;
    product.finish = {};
    RT_TRY(rt_multiply<E>(rt, product));
    finish();
    return RT_OK;
}

/* Sums over k of the operand that the epilogue requests, in its memory layout. */
template <class E> static inline int rt_sum_operand(struct rt *rt, const rt_product &product) {
    using T = typename E::type;
    const bool second = product.finish.summed == RT_SUMS_OF_B;
    const bool by_rows = second ? !product.trans_b : product.trans_a; /* stored (k,extent) */
    const int64_t extent = second ? product.n : product.m;
    return rt_reduce<E, rt_sum_of>(rt, (T *)product.finish.sums, (const T *)(second ? product.b : product.a),
                                   by_rows ? 1 : extent, product.k, by_rows ? extent : 1);
}

template <class E, class T = typename E::type>
RT_FAMILY int rt_bmm(struct rt *rt, T *y, const T *a, const T *b, int64_t batch, int64_t m, int64_t k, int64_t n,
                     int trans_a, int trans_b) {
    return rt_multiply<E>(rt,
                          rt_product{E::dtype, y, a, b, batch, m, k, n, trans_a, trans_b, rt->arena[RT_SCRATCH], {}});
}

template <class E, class T = typename E::type>
RT_FAMILY int rt_matmul(struct rt *rt, T *y, const T *a, const T *b, int64_t m, int64_t k, int64_t n, int trans_a,
                        int trans_b) {
    return rt_bmm<E>(rt, y, a, b, 1, m, k, n, trans_a, trans_b);
}

template <class E, class T = typename E::type>
RT_FAMILY int rt_matmul_summed(struct rt *rt, T *y, const T *a, const T *b, int64_t m, int64_t k, int64_t n,
                               int trans_a, int trans_b, T *sums, int operand) {
    const rt_finish form = {RT_NO_ACTIVATION, NULL, NULL, NULL, operand ? RT_SUMS_OF_B : RT_SUMS_OF_A, sums};
    const rt_product product = {E::dtype, y, a, b, 1, m, k, n, trans_a, trans_b, rt->arena[RT_SCRATCH], form};
    return rt_multiply_finished<E>(rt, product, [&] { rt_sum_operand<E>(rt, product); });
}

#define RT_CUDA_PRODUCT(T, s)                                                                                          \
    RT_NAME(rt_bmm_##s, rt_bmm<rt_##s>)                                                                                \
    RT_NAME(rt_matmul_##s, rt_matmul<rt_##s>)                                                                          \
    RT_NAME(rt_matmul_summed_##s, rt_matmul_summed<rt_##s>)                                                            \
    template <class F>                                                                                                 \
    static inline int rt_matmul_finished_##s(struct rt *rt, T *y, const T *a, const T *b, int64_t m, int64_t k,        \
                                             int64_t n, int trans_a, int trans_b, const rt_finish &form, F finish) {   \
        return rt_multiply_finished<rt_##s>(                                                                           \
            rt, rt_product{rt_##s::dtype, y, a, b, 1, m, k, n, trans_a, trans_b, rt->arena[RT_SCRATCH], form},         \
            finish);                                                                                                   \
    }

RT_NUMBERS(RT_CUDA_PRODUCT)
RT_HALVES(RT_CUDA_PRODUCT)

/* Offset of row `row` of (b.., heads, t) in a broadcast mask; *step: distance between keys. */
static inline __device__ int64_t rt_mask_row(const rt_dims &dims, const rt_dims &q, int ndim, int64_t row,
                                             int64_t *step) {
    int64_t at = 0, stride = dims[ndim - 1];
    *step = dims[ndim - 1] == 1 ? 0 : 1;
    for (int d = ndim - 2; d >= 0; d--) {
        const int64_t i = rt_take(&row, q[d]);
        if (dims[d] != 1) at += i * stride;
        stride *= dims[d];
    }
    return at;
}

/* Softmax of the scores with scale, masks and sinks, in place. */
template <class T>
static inline int rt_attend(struct rt *rt, T *scores, const uint8_t *keep, const T *bias, const T *sink,
                            const rt_attention &shape) {
    const int ndim = shape.ndim;
    return rt_rows(rt, rt_count(shape.q, 0, ndim - 1), [=] __device__(int64_t row) {
        T *x = scores + row * shape.s;
        rt_exponentials<T> of = {-(T)INFINITY, 0};
        int64_t keep_step = 0, bias_step = 0, sink_step;
        const uint8_t *kept = keep ? keep + rt_mask_row(shape.keep, shape.q, ndim, row, &keep_step) : nullptr;
        const T *added = bias ? bias + rt_mask_row(shape.bias, shape.q, ndim, row, &bias_step) : nullptr;
        const int64_t last = shape.causal ? rt_last_key(shape, row % shape.q[ndim - 2]) : shape.s;
        const int64_t before = shape.window ? last - shape.window : -1;
        if (sink && threadIdx.x == 0) of.add(sink[rt_mask_row(shape.sink, shape.q, ndim, row, &sink_step)]);
        RT_EACH(j, shape.s) {
            T score = x[j] * (T)shape.scale;
            if (shape.cap > 0) score = (T)shape.cap * rt_tanh_of(score / (T)shape.cap);
            if (added && shape.bias_first) score += added[j * bias_step];
            if (j > last || j <= before || (kept && (kept[j * keep_step] != 0) == (shape.drop != 0)))
                score = (T)shape.fill;
            if (added && !shape.bias_first) score += added[j * bias_step];
            if (shape.clamp && score < (T)-3.402823466e38f) score = (T)-3.402823466e38f;
            x[j] = score;
            of.add(score);
        }
        of = rt_fold_exponentials(of);
        if (!rt_has_no_weights(shape, of.sum)) return rt_softmax_row<1>(x, x, shape.s, of);
        RT_EACH(j, shape.s) x[j] = 0;
    });
}

/* Scores are in SCRATCH (base/scratch.h). Query heads that share a key-value head are rows of one product. Operands are
 * dense: products take no strides (codegen/target/kernels.def). */
template <class E, class T = typename E::type>
RT_FAMILY int rt_attention_by_products(struct rt *rt, const rt_strided<T> &y, const rt_strided<const T> &q,
                                       const rt_strided<const T> &k, const rt_strided<const T> &v, const uint8_t *keep,
                                       const T *bias, const T *sink, const rt_attention &shape) {
    const int ndim = shape.ndim;
    const int64_t heads = rt_count(shape.q, 0, ndim - 3) * shape.kv, d = shape.q[ndim - 1];
    const int64_t rows = heads ? rt_count(shape.q, 0, ndim - 1) / heads : 0;
    const size_t bytes = (size_t)(heads * rows * shape.s) * sizeof(T);
    T *scores = (T *)rt->arena[RT_SCRATCH];
    void *workspace = rt->arena[RT_SCRATCH] + rt_behind_scores((int64_t)bytes);
    RT_TRY(rt_multiply<E>(rt, rt_product{E::dtype, scores, q.at, k.at, heads, rows, d, shape.s, 0, 1, workspace, {}}));
    rt_attend(rt, scores, keep, bias, sink, shape);
    return rt_multiply<E>(rt,
                          rt_product{E::dtype, y.at, scores, v.at, heads, rows, shape.s, shape.e, 0, 0, workspace, {}});
}

RT_NAME(rt_attention_f32, rt_attention_by_products<rt_f32>)
RT_NAME(rt_attention_f64, rt_attention_by_products<rt_f64>)

/* Rows of the last dimension of y, and steps in y, x, cos and sin, in elements; 0: repeated. */
struct rt_rope_rows {
    int ndim; /* without the last */
    int64_t count;
    rt_dims extent, y, x, cos, sin;
};

static inline rt_dims rt_broadcast_steps(const rt_dims &dims, int ndim) {
    rt_dims step = {};
    int64_t count = dims[ndim - 1];
    for (int d = ndim - 2; d >= 0; d--) {
        step[d] = dims[d] == 1 ? 0 : count;
        count *= dims[d];
    }
    return step;
}

static inline rt_rope_rows rt_rope_rows_of(int ndim, const rt_dims &y_dims, const rt_dims &y_step, int x_ndim,
                                           const rt_dims &x_dims, const rt_dims &x_step, const rt_dims &cos_dims,
                                           const rt_dims &sin_dims) {
    rt_rope_rows rows = {};
    rows.ndim = ndim - 1;
    rows.count = rt_count(y_dims, 0, ndim - 1);
    rows.extent = y_dims;
    rows.y = y_step;
    for (int d = ndim - x_ndim; d < ndim - 1; d++) rows.x[d] = x_dims[d] == 1 ? 0 : x_step[d - (ndim - x_ndim)];
    rows.cos = rt_broadcast_steps(cos_dims, ndim);
    rows.sin = rt_broadcast_steps(sin_dims, ndim);
    return rows;
}

/* Element i of x and its partner in the other half, or the adjacent one; N of each at a time, with cos and sin of
 * both. A: the computed type. */
template <class A, int N, class T, class C>
static inline __device__ void rt_rope_halves(T *y, const T *x, const C *cosine, const C *sine, int64_t i,
                                             int64_t half) {
    const auto low = rt_get_vector<N>(x + i), high = rt_get_vector<N>(x + i + half);
    const auto cos_low = rt_get_vector<N>(cosine + i), cos_high = rt_get_vector<N>(cosine + i + half);
    const auto sin_low = rt_get_vector<N>(sine + i), sin_high = rt_get_vector<N>(sine + i + half);
    rt_vector<T, N> y_low, y_high;
#pragma unroll
    for (int n = 0; n < N; n++) {
        y_low.at[n] = (T)((A)low.at[n] * (A)cos_low.at[n] - (A)high.at[n] * (A)sin_low.at[n]);
        y_high.at[n] = (T)((A)high.at[n] * (A)cos_high.at[n] + (A)low.at[n] * (A)sin_high.at[n]);
    }
    rt_put_vector(y + i, y_low);
    rt_put_vector(y + i + half, y_high);
}
template <class A, class T, class C>
static inline __device__ void rt_rope_pair(T *y, const T *x, const C *cosine, const C *sine, int64_t i) {
    y[i] = (T)((A)x[i] * (A)cosine[i] - (A)x[i + 1] * (A)sine[i]);
    y[i + 1] = (T)((A)x[i + 1] * (A)cosine[i + 1] + (A)x[i] * (A)sine[i + 1]);
}

template <int N, class T, class C>
static inline int rt_rope_by(struct rt *rt, T *y, const T *x, const C *cosine, const C *sine, int64_t half,
                             const rt_rope_rows &rows, int interleaved) {
    using A = typename rt_sum_type<T>::type;
    return rt_points(rt, rows.count * (half / N), [=] __device__(int64_t row) {
        const int64_t first = rt_take(&row, half / N) * N;
        int64_t to = 0, from = 0, cos = 0, sin = 0;
        for (int d = rows.ndim - 1; d >= 0; d--) {
            const int64_t i = rt_take(&row, rows.extent[d]);
            to += i * rows.y[d];
            from += i * rows.x[d];
            cos += i * rows.cos[d];
            sin += i * rows.sin[d];
        }
        if (!interleaved) return rt_rope_halves<A, N>(y + to, x + from, cosine + cos, sine + sin, first, half);
        for (int64_t pair = first; pair < first + N; pair++)
            rt_rope_pair<A>(y + to, x + from, cosine + cos, sine + sin, 2 * pair);
    });
}

/* True if all rows begin at multiples of n elements. */
static inline bool rt_rope_is_even(const rt_rope_rows &rows, int n) {
    bool even = true;
    for (int d = 0; d < rows.ndim; d++) even = even && rows.x[d] % n == 0 && rows.y[d] % n == 0;
    return even;
}

template <class E, class R>
RT_FAMILY int rt_rope(struct rt *rt, const rt_strided<typename E::type> &y, const rt_strided<const typename E::type> &x,
                      const typename R::type *cosine, const typename R::type *sine, int ndim, const rt_dims &y_dims,
                      int x_ndim, const rt_dims &x_dims, const rt_dims &cos_dims, const rt_dims &sin_dims,
                      int interleaved) {
    using T = typename E::element;
    using C = typename R::element;
    constexpr int N = RT_WIDTH(T);
    const int64_t half = y_dims[ndim - 1] / 2;
    const rt_rope_rows rows = rt_rope_rows_of(ndim, y_dims, y.step, x_ndim, x_dims, x.step, cos_dims, sin_dims);
    const bool wide = rt_is_wide<T>(rt, half, {y.at, x.at, cosine, sine}) && rt_rope_is_even(rows, N);
    return (wide ? rt_rope_by<N, T, C> : rt_rope_by<1, T, C>)(rt, (T *)y.at, (const T *)x.at, (const C *)cosine,
                                                              (const C *)sine, half, rows, interleaved);
}

RT_NAME(rt_rope_f32_by_f32, rt_rope<rt_f32, rt_f32>)
RT_NAME(rt_rope_f64_by_f64, rt_rope<rt_f64, rt_f64>)
RT_NAME(rt_rope_bf16_by_bf16, rt_rope<rt_bf16, rt_bf16>)
RT_NAME(rt_rope_fp16_by_fp16, rt_rope<rt_fp16, rt_fp16>)
RT_NAME(rt_rope_bf16_by_f32, rt_rope<rt_bf16, rt_f32>)
RT_NAME(rt_rope_fp16_by_f32, rt_rope<rt_fp16, rt_f32>)

#endif
