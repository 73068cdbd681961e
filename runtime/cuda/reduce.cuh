/* Reductions, scans and normalisations; the manual is kernels/c/kernels.h, except for the order of sums: here f32 is
 * summed in f32, first each thread's share of a row, then the threads of the block in a tree. */
#ifndef RT_CUDA_REDUCE_CUH
#define RT_CUDA_REDUCE_CUH

#include <limits>

#include "held.cuh"
#include "move.cuh"

/* Less than every number, and more. */
template <class T> struct rt_limits {
    using of = std::numeric_limits<T>;
    static constexpr T least = of::has_infinity ? -of::infinity() : of::min();
    static constexpr T most = of::has_infinity ? of::infinity() : of::max();
    static __host__ __device__ T lowest() { return least; }
    static __host__ __device__ T highest() { return most; }
};

/* NaN if either argument is NaN. */
struct rt_max_of {
    template <class T> static T identity() { return rt_limits<T>::least; }
    template <class T> __host__ __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct rt_min_of {
    template <class T> static T identity() { return rt_limits<T>::most; }
    template <class T> __host__ __device__ T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};

/* The last dimension is reduced: rows. */
template <int N, class A, class T, class Op>
static inline int rt_reduce_rows(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, A identity, Op op) {
    return rt_rows(rt, outer, [=] __device__(int64_t o) {
        A part = identity;
        rt_each<N>(x + o * r, r, [&](int64_t, T value) { part = op(part, (A)value); });
        part = rt_block_fold(part, op);
        if (threadIdx.x == 0) y[o] = (T)part;
    });
}

/* Reduces chunks of at most `length` elements: y(outer,chunks,inner) from x(outer,r,inner). A thread block takes
 * RT_REDUCE_COLUMNS adjacent columns. */
template <class A, class From, class To, class Op>
static inline int rt_reduce_chunks(struct rt *rt, To *y, const From *x, int64_t outer, int64_t r, int64_t inner,
                                   int64_t length, A identity, Op op) {
    const int64_t groups = (inner + RT_REDUCE_COLUMNS - 1) / RT_REDUCE_COLUMNS,
                  chunks = r ? (r + length - 1) / length : 1;
    return rt_rows(rt, outer * chunks * groups, [=] __device__(int64_t row) {
        __shared__ A parts[RT_BLOCK];
        const int64_t j = row % groups * RT_REDUCE_COLUMNS + threadIdx.x % RT_REDUCE_COLUMNS;
        const int64_t chunk = row / groups % chunks, o = row / groups / chunks, lane = threadIdx.x / RT_REDUCE_COLUMNS;
        const int64_t end = (chunk + 1) * length < r ? (chunk + 1) * length : r;
        A part = identity;
        for (int64_t i = chunk * length + lane; i < end && j < inner; i += blockDim.x / RT_REDUCE_COLUMNS)
            part = op(part, (A)x[(o * r + i) * inner + j]);
        __syncthreads();
        parts[threadIdx.x] = part;
        __syncthreads();
        if (threadIdx.x >= RT_REDUCE_COLUMNS || j >= inner) return;
        for (int other = RT_REDUCE_COLUMNS; other < (int)blockDim.x; other += RT_REDUCE_COLUMNS)
            part = op(part, parts[threadIdx.x + other]);
        y[(o * chunks + chunk) * inner + j] = (To)part;
    });
}

/* y(outer,inner) = op over the middle dimension of x(outer,r,inner), in A. Few long columns are divided into chunks;
 * partial results are in SCRATCH. */
template <class A, class T, class Op>
static inline int rt_reduce_in(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, int64_t inner, Op op) {
    const A identity = Op::template identity<A>();
    if (inner == 1) return rt_reduce_rows<RT_WIDTH(T)>(rt, y, x, outer, r, identity, op);
    const int64_t chunks = rt_reduce_chunks_of(outer, r, inner), length = chunks > 1 ? (r + chunks - 1) / chunks : r;
    if (chunks == 1) return rt_reduce_chunks(rt, y, x, outer, r, inner, length, identity, op);
    A *parts = (A *)rt->arena[RT_SCRATCH];
    const int64_t made = (r + length - 1) / length;
    rt_reduce_chunks(rt, parts, x, outer, r, inner, length, identity, op);
    return rt_reduce_chunks(rt, y, parts, outer, made, inner, made, identity, op);
}

/* In the type of sums ... */
template <class E, class Op, class T = typename E::type>
RT_FAMILY int rt_reduce(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, int64_t inner) {
    using V = typename E::element;
    return rt_reduce_in<typename E::sum>(rt, (V *)y, (const V *)x, outer, r, inner, Op());
}
/* ... or in that of numbers: those of integers are signed. */
template <class E, class Op, class T = typename E::type>
RT_FAMILY int rt_reduce_order(struct rt *rt, T *y, const T *x, int64_t outer, int64_t r, int64_t inner) {
    using V = typename E::element;
    using A = std::conditional_t<std::is_arithmetic_v<V>, V, float>;
    return rt_reduce_in<A>(rt, (V *)y, (const V *)x, outer, r, inner, Op());
}

/* An element and its index; `at` -1: none. */
template <class T> struct rt_found {
    T value;
    int64_t at;
};

/* The better of two: NaN wins; of equal ones the first, or the last. */
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

template <class T, bool least>
RT_FAMILY int rt_arg(struct rt *rt, int64_t *y, const T *x, int64_t outer, int64_t r, int64_t inner, int select_last) {
    const rt_better op = {least, select_last != 0};
    return rt_rows(rt, outer * inner, [=] __device__(int64_t row) {
        const T *from = x + row / inner * r * inner + row % inner;
        rt_found<T> best = {0, -1};
        RT_EACH(i, r) best = op(best, rt_found<T>{from[i * inner], i});
        best = rt_block_fold(best, op);
        if (threadIdx.x == 0) y[row] = best.at < 0 ? 0 : best.at;
    });
}

template <class T, class Op>
RT_FAMILY int rt_scan(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner, int exclusive,
                      int reverse) {
    using A = typename rt_sum_type<T>::type;
    const A identity = Op::template identity<A>();
    const Op op;
    return rt_points(rt, outer * inner, [=] __device__(int64_t p) {
        const int64_t first = p / inner * c * inner + p % inner;
        A sum = identity;
        for (int64_t i = 0; i < c; i++) {
            const int64_t at = first + (reverse ? c - 1 - i : i) * inner;
            const A before = sum;
            sum = op(before, (A)x[at]);
            y[at] = (T)(exclusive ? before : sum);
        }
    });
}

template <class T>
RT_FAMILY int rt_cumprod_grad(struct rt *rt, T *dx, const T *x, const T *dy, int64_t outer, int64_t c, int64_t inner,
                              int exclusive, int reverse) {
    return rt_points(rt, outer * inner, [=] __device__(int64_t p) {
        const int64_t first = p / inner * c * inner + p % inner;
        T product = 1, sum = 0, behind_x = 0, behind_dy = 0;
        for (int64_t i = 0; i < c; i++) {
            const int64_t at = first + (reverse ? c - 1 - i : i) * inner;
            dx[at] = product;
            product *= x[at];
        }
        for (int64_t i = c - 1; i >= 0; i--) {
            const int64_t at = first + (reverse ? c - 1 - i : i) * inner;
            sum = (exclusive ? behind_dy : dy[at]) + behind_x * sum;
            behind_x = x[at];
            behind_dy = dy[at];
            dx[at] *= sum;
        }
    });
}

/* n elements as vectors, then the remainder one by one; unaligned ones all one by one. */
template <class T> struct rt_squared {
    const T *x;
    int64_t vectors, n;
};

/* Partial sums of the squares of all rows, one from each block. */
template <class T, int most>
static __global__ void rt_squares_kernel(const __grid_constant__ rt_table<rt_squared<T>, most> table, double *part) {
    constexpr int width = RT_WIDTH(T);
    double sum = 0;
    RT_TABLE_POINTS(point, row, table) {
        const rt_squared<T> &of = table.row[row].of;
        if (point < of.vectors) {
            const rt_vector<T, width> vector = rt_get_vector<width>(of.x + point * width);
#pragma unroll
            for (int lane = 0; lane < width; lane++) sum += (double)vector.at[lane] * (double)vector.at[lane];
        } else {
            const double x = (double)of.x[point + of.vectors * (width - 1)];
            sum += x * x;
        }
    }
    sum = rt_block_fold(sum, rt_sum_of());
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

#define RT_SQUARE_PARTS (RT_SQUARE_BLOCKS < RT_MOST_BLOCKS ? RT_SQUARE_BLOCKS : RT_MOST_BLOCKS)

RT_ON_CALL int rt_add_square_parts(struct rt *rt, double *y, const double *before, const double *part) {
    return rt_rows(rt, 1, [=] __device__(int64_t) {
        double sum = 0;
        RT_EACH(i, RT_SQUARE_PARTS) sum += part[i];
        sum = rt_block_fold(sum, rt_sum_of());
        if (threadIdx.x == 0) *y = before ? *before + sum : sum;
    });
}

/* Partial sums are in SCRATCH. */
template <class Table>
static inline int rt_launch_squares(struct rt *rt, void (*kernel)(Table, double *), const Table &table, double *y,
                                    const double *before) {
    double *part = (double *)rt->arena[RT_SCRATCH];
    RT_TRY(rt_launch(rt, kernel, RT_SQUARE_PARTS, RT_BLOCK, table, part));
    return rt_add_square_parts(rt, y, before, part);
}

template <class T> static inline int rt_launch_held_squares(struct rt *rt, const rt_held *held) {
    using Row = rt_squared<T>;
    return rt_launch_squares(rt, rt_squares_kernel<T, rt_table_rows<Row>>, *(const rt_long_table<Row> *)held->table,
                             (double *)held->key, (const double *)held->before);
}

/* *y = *before + sum, or the sum if `before` is NULL. May be held (held.cuh). */
template <class S>
RT_FAMILY int rt_add_squares(struct rt *rt, double *y, const double *before, const typename S::type *given, int64_t n) {
    using T = typename S::element;
    using Row = rt_squared<T>;
    constexpr int width = RT_WIDTH(T);
    const T *x = (const T *)given;
    const int64_t vectors = (uintptr_t)x % RT_VECTOR_BYTES ? 0 : n / width, points = n - vectors * (width - 1);
    rt_held *held = rt_held_of<Row>(rt, y);
    rt_short_table<Row> table = {};
    if (held) {
        rt_long_table<Row> &all = *(rt_long_table<Row> *)held->table;
        if (all.n == 0) held->before = before;
        held->launch = rt_launch_held_squares<T>;
        rt_table_add(all, points, Row{x, vectors, n});
        return RT_OK;
    }
    rt_table_add(table, points, Row{x, vectors, n});
    return rt_launch_squares(rt, rt_squares_kernel<T, 1>, table, y, before);
}

template <class S> RT_FAMILY int rt_sum_squares(struct rt *rt, double *y, const typename S::type *x, int64_t n) {
    return rt_add_squares<S>(rt, y, NULL, x, n);
}

#define RT_CUDA_REDUCE(T, s)                                                                                           \
    RT_NAME(rt_reduce_sum_##s, rt_reduce<rt_##s, rt_sum_of>)                                                           \
    RT_NAME(rt_reduce_prod_##s, rt_reduce<rt_##s, rt_product_of>)                                                      \
    RT_NAME(rt_reduce_max_##s, rt_reduce_order<rt_##s, rt_max_of>)                                                     \
    RT_NAME(rt_reduce_min_##s, rt_reduce_order<rt_##s, rt_min_of>)                                                     \
    RT_NAME(rt_argmax_##s, rt_arg<T, false>)                                                                           \
    RT_NAME(rt_argmin_##s, rt_arg<T, true>)                                                                            \
    RT_NAME(rt_cumsum_##s, rt_scan<T, rt_sum_of>)                                                                      \
    RT_NAME(rt_cumprod_##s, rt_scan<T, rt_product_of>)
RT_NUMBERS(RT_CUDA_REDUCE)

#define RT_CUDA_REDUCE_HALF(T, s)                                                                                      \
    RT_NAME(rt_reduce_sum_##s, rt_reduce<rt_##s, rt_sum_of>)                                                           \
    RT_NAME(rt_reduce_max_##s, rt_reduce_order<rt_##s, rt_max_of>)
RT_HALVES(RT_CUDA_REDUCE_HALF)

/* The larger, NaN apart. */
struct rt_most_of {
    template <class T> __host__ __device__ T operator()(T a, T b) const { return b > a ? b : a; }
};

/* Softmax statistics in one pass (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018): the
 * largest number, ignoring NaN, and the sum of all e^(x - largest), which is NaN if there is a NaN or the largest is
 * infinite. */
template <class T> struct rt_exponentials {
    T high, sum;
    /* The number to subtract: 0 if all numbers are -inf, so that terms are 0 instead of NaN. */
    __device__ T base() const { return high == -(T)INFINITY ? (T)0 : high; }
    __device__ void add(T x) {
        if (x > high) {
            sum = sum * rt_exp_of(high - x) + ((T)1 + (x - x));
            high = x;
        } else {
            sum += rt_exp_of(x - base());
        }
    }
};

struct rt_join_exponentials {
    template <class T>
    __device__ rt_exponentials<T> operator()(const rt_exponentials<T> &a, const rt_exponentials<T> &b) const {
        rt_exponentials<T> both = {rt_most_of()(a.high, b.high), 0};
        both.sum = a.sum * rt_exp_of(a.high - both.base()) + b.sum * rt_exp_of(b.high - both.base());
        return both;
    }
};

/* Softmax statistics of a row, computed by the block and given to all its threads. */
template <class T> static __device__ inline rt_exponentials<T> rt_fold_exponentials(const rt_exponentials<T> &own) {
    return rt_block_fold(own, rt_join_exponentials());
}

/* Softmax of a row, once its exponentials are known. */
template <int N, class T>
static __device__ inline void rt_softmax_row(T *y, const T *x, int64_t c, const rt_exponentials<T> &of) {
    const T base = of.base(), scale = (T)1 / of.sum;
    RT_EACH_VECTOR(i, c, N) {
        rt_vector<T, N> vector = rt_get_vector<N>(x + i);
#pragma unroll
        for (int lane = 0; lane < N; lane++) vector.at[lane] = rt_exp_of(vector.at[lane] - base) * scale;
        rt_put_vector(y + i, vector);
    }
}

struct rt_softmax_of {
    template <class T> __device__ T operator()(T x, const rt_exponentials<T> &of) const {
        return rt_exp_of(x - of.base()) * ((T)1 / of.sum);
    }
};
struct rt_log_softmax_of {
    template <class T> __device__ T operator()(T x, const rt_exponentials<T> &of) const {
        return x - of.high - (T)log(of.sum);
    }
};

/* y = finish(x, statistics of x's line) for every line (c) of x(outer,c,inner). */
template <class T, class F>
static inline int rt_along(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner, F finish) {
    return rt_rows(rt, outer * inner, [=] __device__(int64_t row) {
        const int64_t at = row / inner * c * inner + row % inner;
        rt_exponentials<T> of = {-(T)INFINITY, 0};
        RT_EACH(i, c) of.add(x[at + i * inner]);
        of = rt_fold_exponentials(of);
        RT_EACH(i, c) y[at + i * inner] = finish(x[at + i * inner], of);
    });
}

template <class T> RT_FAMILY int rt_softmax(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner) {
    if (inner > 1 || !rt_is_wide<T>(rt, c, {y, x})) return rt_along(rt, y, x, outer, c, inner, rt_softmax_of());
    return rt_rows(rt, outer, [=] __device__(int64_t row) {
        rt_exponentials<T> of = {-(T)INFINITY, 0};
        rt_each<RT_WIDTH(T)>(x + row * c, c, [&](int64_t, T value) { of.add(value); });
        rt_softmax_row<RT_WIDTH(T)>(y + row * c, x + row * c, c, rt_fold_exponentials(of));
    });
}

template <class T>
RT_FAMILY int rt_log_softmax(struct rt *rt, T *y, const T *x, int64_t outer, int64_t c, int64_t inner) {
    return rt_along(rt, y, x, outer, c, inner, rt_log_softmax_of());
}

#define RT_CUDA_SOFTMAX(T, s)                                                                                          \
    RT_NAME(rt_softmax_##s, rt_softmax<T>)                                                                             \
    RT_NAME(rt_log_softmax_##s, rt_log_softmax<T>)                                                                     \
    RT_NAME(rt_cumprod_grad_##s, rt_cumprod_grad<T>)
RT_FLOATS(RT_CUDA_SOFTMAX)

#define RT_CUDA_SQUARES(T, s)                                                                                          \
    RT_NAME(rt_sum_squares_##s, rt_sum_squares<rt_##s>)                                                                \
    RT_NAME(rt_add_squares_##s, rt_add_squares<rt_##s>)
RT_FLOATS(RT_CUDA_SQUARES)
RT_HALVES(RT_CUDA_SQUARES)

#endif
