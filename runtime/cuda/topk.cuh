/* Top k; the manual is kernels/c/kernels.h. */
#ifndef RT_CUDA_TOPK_CUH
#define RT_CUDA_TOPK_CUH

#include "sort.cuh"

enum { RT_TOPK_COUNTED = 1024 }; /* extents up to which every element counts those before it */

/* Numbers in the order of the elements: unsigned, larger for what comes first. */
static inline __device__ uint64_t rt_rank_key(int64_t x) {
    return (uint64_t)x ^ (uint64_t)INT64_MIN;
}
static inline __device__ uint64_t rt_rank_key(int32_t x) {
    return (uint32_t)x ^ (uint32_t)INT32_MIN;
}
static inline __device__ uint64_t rt_rank_key(float x) {
    const uint32_t sign = (uint32_t)INT32_MIN;
    uint32_t bits;
    x = x == 0 ? 0 : x; /* of -0 */
    memcpy(&bits, &x, sizeof bits);
    return x != x ? UINT32_MAX : bits & sign ? (uint32_t)~bits : bits | sign;
}
static inline __device__ uint64_t rt_rank_key(double x) {
    const uint64_t sign = (uint64_t)INT64_MIN;
    uint64_t bits;
    x = x == 0 ? 0 : x;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? UINT64_MAX : bits & sign ? ~bits : bits | sign;
}

/* A column of x(outer,c,inner) and its order. */
template <class T> struct rt_ranked {
    const T *x;
    int64_t step;
    bool largest;
    __device__ uint64_t key(int64_t i) const {
        const uint64_t key = rt_rank_key(x[i * step]), all = UINT64_MAX >> (64 - 8 * sizeof(T));
        return largest ? key : ~key & all;
    }
    __device__ bool precedes(int64_t a, int64_t b) const {
        const uint64_t u = key(a), v = key(b);
        return u == v ? a < b : u > v;
    }
};

template <class T>
static __device__ inline int64_t rt_count_keys(const rt_ranked<T> &column, int64_t c, uint64_t least) {
    int64_t count = 0;
    RT_EACH(i, c) count += column.key(i) >= least;
    return rt_block_fold(count, rt_sum_of());
}

/* The largest key that k elements reach, found bit by bit. */
template <class T> static __device__ inline uint64_t rt_key_of_last(const rt_ranked<T> &column, int64_t c, int64_t k) {
    uint64_t least = 0;
    for (int bit = 8 * (int)sizeof(T) - 1; bit >= 0; bit--) {
        const uint64_t more = least | (uint64_t)1 << bit;
        if (rt_count_keys(column, c, more) >= k) least = more;
    }
    return least;
}

/* The k chosen positions in y: first those with keys above the last one's, then those with that key, each in rising
 * order. Returns the number of the first. */
template <class T>
static __device__ inline int64_t rt_choose(const rt_ranked<T> &column, int64_t *y, int64_t c, int64_t k) {
    const uint64_t least = rt_key_of_last(column, c, k);
    const int64_t above = least == UINT64_MAX ? 0 : rt_count_keys(column, c, least + 1);
    int64_t chosen = 0, equal = above;
    for (int64_t from = 0; from < c; from += RT_BLOCK) {
        const int64_t i = from + threadIdx.x;
        const uint64_t key = i < c ? column.key(i) : 0;
        const int64_t is_above = i < c && key > least, is_equal = i < c && key == least;
        int64_t sums, before = rt_block_scan(is_above + (is_equal << 32), &sums);
        const int64_t place = is_above ? chosen + (int32_t)before : equal + (before >> 32);
        if ((is_above || is_equal) && place < k) y[place * column.step] = i;
        chosen += (int32_t)sums;
        equal += sums >> 32;
    }
    return above;
}

template <class T>
static __device__ inline void rt_order(const rt_ranked<T> &column, int64_t *y, int64_t i, int64_t j, int64_t n) {
    if (j <= i || j >= n) return;
    const int64_t a = y[i * column.step], b = y[j * column.step];
    if (!column.precedes(b, a)) return;
    y[i * column.step] = b;
    y[j * column.step] = a;
}

/* Bitonic sort in which every exchange moves the better one to the front, so that n need not be a power of two. */
template <class T> static __device__ inline void rt_sort_column(const rt_ranked<T> &column, int64_t *y, int64_t n) {
    for (int64_t size = 2; size / 2 < n; size *= 2) {
        __syncthreads();
        RT_EACH(i, n) rt_order(column, y, i, i ^ (size - 1), n);
        for (int64_t far = size / 4; far > 0; far /= 2) {
            __syncthreads();
            RT_EACH(i, n) rt_order(column, y, i, i ^ far, n);
        }
    }
}

template <class T>
RT_FAMILY int rt_topk(struct rt *rt, int64_t *y, const T *x, int64_t outer, int64_t c, int64_t inner, int64_t k,
                      int largest) {
    if (k == 0) return RT_OK;
    if (c <= RT_TOPK_COUNTED)
        return rt_points(rt, outer * c * inner, [=] __device__(int64_t p) {
            int64_t o = p;
            const int64_t q = rt_take(&o, inner), i = rt_take(&o, c);
            const rt_ranked<T> column = {x + o * c * inner + q, inner, largest != 0};
            int64_t before = 0;
            for (int64_t j = 0; j < c; j++) before += column.precedes(j, i);
            if (before < k) y[(o * k + before) * inner + q] = i;
        });
    return rt_rows(rt, outer * inner, [=] __device__(int64_t row) {
        const int64_t o = row / inner, q = row % inner;
        const rt_ranked<T> column = {x + o * c * inner + q, inner, largest != 0};
        int64_t *to = y + o * k * inner + q;
        rt_sort_column(column, to, rt_choose(column, to, c, k));
    });
}

#define RT_CUDA_TOPK(T, s) RT_NAME(rt_topk_##s, rt_topk<T>)
RT_NUMBERS(RT_CUDA_TOPK)

#endif
