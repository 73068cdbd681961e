/* Stable radix sort of indices, so that updates of one element are applied in order, the same at every run. */
#ifndef RT_CUDA_SORT_CUH
#define RT_CUDA_SORT_CUH

#include "launch.cuh"

/* Exclusive prefix sum over the threads of the block; *total: the sum of all. */
static __device__ inline int64_t rt_block_scan(int64_t value, int64_t *total) {
    __shared__ int64_t sums[RT_BLOCK];
    const int thread = (int)threadIdx.x;
    int64_t sum = value;
    __syncthreads(); /* the last result has been read */
    sums[thread] = sum;
    for (int far = 1; far < RT_BLOCK; far *= 2) {
        __syncthreads();
        const int64_t before = thread >= far ? sums[thread - far] : 0;
        __syncthreads();
        sums[thread] = sum += before;
    }
    __syncthreads();
    *total = sums[RT_BLOCK - 1];
    return sum - value;
}

/* Exclusive prefix sums of each row(length); total(rows): the rows' sums. */
static inline int rt_scan_rows(struct rt *rt, int64_t *x, int64_t *total, int64_t rows, int64_t length) {
    return rt_rows(rt, rows, [=] __device__(int64_t row) {
        int64_t carried = 0;
        for (int64_t from = 0; from < length; from += RT_BLOCK) {
            const int64_t i = from + threadIdx.x;
            int64_t sum, before = rt_block_scan(i < length ? x[row * length + i] : 0, &sum);
            if (i < length) x[row * length + i] = carried + before;
            carried += sum;
        }
        if (threadIdx.x == 0 && total) total[row] = carried;
    });
}

/* Keys in ascending order and their original positions. */
struct rt_sorted {
    int64_t *key, *position;
};

static inline __device__ int64_t rt_digit_of(int64_t key, int shift) {
    return key >> shift & (RT_SORT_DIGITS - 1);
}

/* One pass over a digit: a thread processes RT_SORT_RUN keys. count(digits,runs): occurrences of each digit per run,
 * then their prefix sums; base(digits): number of keys with a lower digit. */
static inline int rt_sort_digit(struct rt *rt, const rt_sorted &to, const rt_sorted &from, int64_t n, int shift,
                                int64_t *count, int64_t *base) {
    const int64_t runs = rt_sort_runs(n);
    rt_points(rt, runs, [=] __device__(int64_t run) {
        for (int64_t digit = 0; digit < RT_SORT_DIGITS; digit++) count[digit * runs + run] = 0;
        for (int64_t i = run * RT_SORT_RUN; i < n && i < (run + 1) * RT_SORT_RUN; i++)
            count[rt_digit_of(from.key[i], shift) * runs + run]++;
    });
    rt_scan_rows(rt, count, base, RT_SORT_DIGITS, runs);
    rt_scan_rows(rt, base, nullptr, 1, RT_SORT_DIGITS);
    return rt_points(rt, runs, [=] __device__(int64_t run) {
        for (int64_t i = run * RT_SORT_RUN; i < n && i < (run + 1) * RT_SORT_RUN; i++) {
            const int64_t digit = rt_digit_of(from.key[i], shift), place = base[digit] + count[digit * runs + run]++;
            to.key[place] = from.key[i];
            to.position[place] = from.position[i];
        }
    });
}

/* Sorts n positions by key_of(position), keys in [0, most]. Uses rt_sort_bytes(n) bytes at `memory`, which also hold
 * the result. */
template <class F> static inline rt_sorted rt_sort(struct rt *rt, void *memory, int64_t n, int64_t most, F key_of) {
    int64_t *at = (int64_t *)memory;
    rt_sorted now = {at, at + n}, next = {at + 2 * n, at + 3 * n};
    int64_t *base = at + 4 * n, *count = base + RT_SORT_DIGITS;
    rt_points(rt, n, [=] __device__(int64_t p) {
        now.key[p] = key_of(p);
        now.position[p] = p;
    });
    for (int shift = 0; shift < 63 && most >> shift; shift += RT_SORT_BITS) {
        rt_sort_digit(rt, next, now, n, shift, count, base);
        const rt_sorted last = now;
        now = next;
        next = last;
    }
    return now;
}

#endif
