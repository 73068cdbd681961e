/* Reductions, scans and normalisations; the manual is kernels/c/kernels.h, but for the order of sums: here f32 is summed in
 * f32, each thread of a row its share, then the threads of the block in a tree. */
#ifndef RT_CUDA_REDUCE_CUH
#define RT_CUDA_REDUCE_CUH

#include "move.cuh"

/* --- Reductions --- */

template <class T> struct rt_limits;
template <> struct rt_limits<float> {
    static __host__ __device__ float lowest() { return -INFINITY; }
    static __host__ __device__ float highest() { return INFINITY; }
};
template <> struct rt_limits<double> {
    static __host__ __device__ double lowest() { return -(double)INFINITY; }
    static __host__ __device__ double highest() { return (double)INFINITY; }
};
template <> struct rt_limits<int64_t> {
    static __host__ __device__ int64_t lowest() { return INT64_MIN; }
    static __host__ __device__ int64_t highest() { return INT64_MAX; }
};
template <> struct rt_limits<int32_t> {
    static __host__ __device__ int32_t lowest() { return INT32_MIN; }
    static __host__ __device__ int32_t highest() { return INT32_MAX; }
};

/* A NaN on either side is the result. */
struct rt_max_of {
    template <class T> __host__ __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct rt_min_of {
    template <class T> __host__ __device__ T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};

#define RT_COLUMNS 32 /* neighbours that a block reduces together, where the reduced dimension is not the last */

/* y(outer,inner) = op over the middle of x(outer,r,inner), in A. A block takes a row, or RT_COLUMNS neighbouring columns. */
template <class A, class T, class Op>
static inline int rt_reduce(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, int64_t inner, A identity,
                            Op op) {
    if (inner == 1)
        return rt_rows(rt, outer, [=] __device__(int64_t o) {
            A part = identity;
            RT_EACH(i, r) part = op(part, (A)x[o * r + i]);
            part = rt_block_fold(part, op);
            if (threadIdx.x == 0) y[o] = (T)part;
        });
    const int64_t groups = (inner + RT_COLUMNS - 1) / RT_COLUMNS;
    return rt_rows(rt, outer * groups, [=] __device__(int64_t row) {
        __shared__ A parts[RT_BLOCK];
        const int64_t o = row / groups, j = row % groups * RT_COLUMNS + threadIdx.x % RT_COLUMNS;
        A part = identity;
        for (int64_t i = threadIdx.x / RT_COLUMNS; i < r && j < inner; i += blockDim.x / RT_COLUMNS)
            part = op(part, (A)x[(o * r + i) * inner + j]);
        __syncthreads();
        parts[threadIdx.x] = part;
        __syncthreads();
        if (threadIdx.x >= RT_COLUMNS || j >= inner) return;
        for (int lane = RT_COLUMNS; lane < (int)blockDim.x; lane += RT_COLUMNS)
            part = op(part, parts[threadIdx.x + lane]);
        y[o * inner + j] = (T)part;
    });
}

/* An element and where it is; `at` -1: none. */
template <class T> struct rt_found {
    T value;
    int64_t at;
};

/* The better of two; a NaN is, and of equals the first, or the last. */
struct rt_better {
    bool least, last;
    template <class T> __host__ __device__ rt_found<T> operator()(rt_found<T> a, rt_found<T> b) const {
        if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
        const bool a_nan = rt_is_nan(a.value), b_nan = rt_is_nan(b.value);
        if (a_nan != b_nan) return a_nan ? a : b;
        if (a_nan || a.value == b.value) return (a.at < b.at) != last ? a : b;
        return (least ? a.value < b.value : a.value > b.value) ? a : b;
    }
};

template <class T>
static inline int rt_arg(struct rt *rt, int64_t *y, const T *x, int64_t outer, int64_t r, int64_t inner, rt_better op) {
    return rt_rows(rt, outer * inner, [=] __device__(int64_t row) {
        const T *from = x + row / inner * r * inner + row % inner;
        rt_found<T> best = {0, -1};
        RT_EACH(i, r) best = op(best, rt_found<T>{from[i * inner], i});
        best = rt_block_fold(best, op);
        if (threadIdx.x == 0) y[row] = best.at < 0 ? 0 : best.at;
    });
}

template <class T>
static inline int rt_cumsum(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner, int exclusive,
                            int reverse) {
    using A = typename rt_sum_type<T>::type;
    return rt_points(rt, outer * inner, [=] __device__(int64_t p) {
        const int64_t first = p / inner * c * inner + p % inner;
        A sum = 0;
        for (int64_t i = 0; i < c; i++) {
            const int64_t at = first + (reverse ? c - 1 - i : i) * inner;
            const A before = sum;
            sum = before + (A)x[at];
            y[at] = (T)(exclusive ? before : sum);
        }
    });
}

/* Partial sums lie in SCRATCH. */
template <class T> static inline int rt_sum_squares(struct rt *rt, double *y, const T *x, int64_t n) {
    double *part = (double *)rt->arena[RT_SCRATCH];
    rt_rows(rt, RT_SQUARE_BLOCKS, [=] __device__(int64_t row) {
        double sum = 0;
        for (int64_t i = row * blockDim.x + threadIdx.x; i < n; i += (int64_t)RT_SQUARE_BLOCKS * blockDim.x)
            sum += (double)x[i] * (double)x[i];
        sum = rt_block_fold(sum, rt_sum_of());
        if (threadIdx.x == 0) part[row] = sum;
    });
    return rt_rows(rt, 1, [=] __device__(int64_t) {
        double sum = 0;
        RT_EACH(i, RT_SQUARE_BLOCKS) sum += part[i];
        sum = rt_block_fold(sum, rt_sum_of());
        if (threadIdx.x == 0) *y = sum;
    });
}

#define RT_CUDA_REDUCE(T, s)                                                                                           \
    RT_ON_CALL int rt_reduce_sum_##s(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, int64_t inner) {       \
        return rt_reduce(rt, y, x, outer, r, inner, (rt_sum_type<T>::type)0, rt_sum_of());                             \
    }                                                                                                                  \
    RT_ON_CALL int rt_reduce_prod_##s(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, int64_t inner) {      \
        return rt_reduce(rt, y, x, outer, r, inner, (rt_sum_type<T>::type)1, rt_product_of());                         \
    }                                                                                                                  \
    RT_ON_CALL int rt_reduce_max_##s(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, int64_t inner) {       \
        return rt_reduce(rt, y, x, outer, r, inner, rt_limits<T>::lowest(), rt_max_of());                              \
    }                                                                                                                  \
    RT_ON_CALL int rt_reduce_min_##s(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, int64_t inner) {       \
        return rt_reduce(rt, y, x, outer, r, inner, rt_limits<T>::highest(), rt_min_of());                             \
    }                                                                                                                  \
    RT_ON_CALL int rt_argmax_##s(struct rt *rt, int64_t *y, const T *x, int64_t outer, int64_t r, int64_t inner,       \
                                 int select_last) {                                                                    \
        return rt_arg(rt, y, x, outer, r, inner, rt_better{false, select_last != 0});                                  \
    }                                                                                                                  \
    RT_ON_CALL int rt_argmin_##s(struct rt *rt, int64_t *y, const T *x, int64_t outer, int64_t r, int64_t inner,       \
                                 int select_last) {                                                                    \
        return rt_arg(rt, y, x, outer, r, inner, rt_better{true, select_last != 0});                                   \
    }                                                                                                                  \
    RT_ON_CALL int rt_cumsum_##s(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner,             \
                                 int exclusive, int reverse) {                                                         \
        return rt_cumsum(rt, y, x, outer, c, inner, exclusive, reverse);                                               \
    }

RT_CUDA_REDUCE(float, f32)
RT_CUDA_REDUCE(double, f64)
RT_CUDA_REDUCE(int64_t, i64)
RT_CUDA_REDUCE(int32_t, i32)

/* --- Normalisation --- */

/* max over the row's elements that are numbers: a NaN shows in the terms that follow. */
struct rt_most_of {
    template <class T> __host__ __device__ T operator()(T a, T b) const { return b > a ? b : a; }
};

/* One row of softmax, of the terms that value(i) gives: written as they are, then divided by their sum. */
template <class T, class F> static __device__ inline void rt_softmax_row(T *y, int64_t c, int64_t stride, F value) {
    T most = -(T)INFINITY, sum = 0;
    RT_EACH(i, c) most = rt_most_of()(most, value(i));
    most = rt_block_fold(most, rt_most_of());
    RT_EACH(i, c) {
        const T term = rt_exp_of(value(i) - most);
        y[i * stride] = term;
        sum += term;
    }
    const T scale = (T)1 / rt_block_fold(sum, rt_sum_of());
    RT_EACH(i, c) y[i * stride] *= scale;
}

template <class T>
static inline int rt_softmax(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner) {
    return rt_rows(rt, outer * inner, [=] __device__(int64_t row) {
        const int64_t at = row / inner * c * inner + row % inner;
        rt_softmax_row(y + at, c, inner, [=](int64_t i) { return x[at + i * inner]; });
    });
}

template <class T>
static inline int rt_log_softmax(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner) {
    return rt_rows(rt, outer * inner, [=] __device__(int64_t row) {
        const int64_t at = row / inner * c * inner + row % inner;
        T most = -(T)INFINITY, sum = 0;
        RT_EACH(i, c) most = rt_most_of()(most, x[at + i * inner]);
        most = rt_block_fold(most, rt_most_of());
        RT_EACH(i, c) sum += rt_exp_of(x[at + i * inner] - most);
        const T shift = log(rt_block_fold(sum, rt_sum_of()));
        RT_EACH(i, c) y[at + i * inner] = x[at + i * inner] - most - shift;
    });
}

/* y = (x - mean) / sqrt(mean of squares + epsilon) * scale + bias; `centred` says whether there is a mean. */
template <class T>
static inline int rt_norm(struct rt *rt, T *y, const T *x, const T *scale, const T *bias, int64_t outer, int64_t c,
                          double epsilon, bool centred) {
    return rt_rows(rt, outer, [=] __device__(int64_t row) {
        const T *from = x + row * c;
        T *to = y + row * c, sum = 0, squares = 0;
        if (centred) RT_EACH(i, c) sum += from[i];
        const T mean = centred ? rt_block_fold(sum, rt_sum_of()) / (T)c : (T)0;
        RT_EACH(i, c) squares += (from[i] - mean) * (from[i] - mean);
        const T factor = (T)1 / sqrt(rt_block_fold(squares, rt_sum_of()) / (T)c + (T)epsilon);
        RT_EACH(i, c) to[i] = (from[i] - mean) * factor * scale[i] + (bias ? bias[i] : (T)0);
    });
}

#define RT_CUDA_NORMALIZE(T, s)                                                                                        \
    RT_ON_CALL int rt_softmax_##s(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner) {          \
        return rt_softmax(rt, y, x, outer, c, inner);                                                                  \
    }                                                                                                                  \
    RT_ON_CALL int rt_log_softmax_##s(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner) {      \
        return rt_log_softmax(rt, y, x, outer, c, inner);                                                              \
    }                                                                                                                  \
    RT_ON_CALL int rt_layernorm_##s(struct rt *rt, T *y, const T *x, const T *scale, const T *bias, int64_t outer,     \
                                    int64_t c, double epsilon) {                                                       \
        return rt_norm(rt, y, x, scale, bias, outer, c, epsilon, true);                                                \
    }                                                                                                                  \
    RT_ON_CALL int rt_rmsnorm_##s(struct rt *rt, T *y, const T *x, const T *scale, int64_t outer, int64_t c,           \
                                  double epsilon) {                                                                    \
        return rt_norm(rt, y, x, scale, (const T *)nullptr, outer, c, epsilon, false);                                 \
    }                                                                                                                  \
    RT_ON_CALL int rt_sum_squares_##s(struct rt *rt, double *y, const T *x, int64_t n) {                               \
        return rt_sum_squares(rt, y, x, n);                                                                            \
    }

RT_CUDA_NORMALIZE(float, f32)
RT_CUDA_NORMALIZE(double, f64)

#endif
