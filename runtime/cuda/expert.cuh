/* Products of a mixture of experts; the manual is kernels/c/kernels.h. A thread computes one element: no tiles, and no
 * tensor cores yet. */
#ifndef RT_CUDA_EXPERT_CUH
#define RT_CUDA_EXPERT_CUH

#include "index.cuh"
#include "product.cuh"

template <class E, class T = typename E::type>
RT_FAMILY int rt_expert_matmul(struct rt *rt, T *y, const T *x, const T *w, const void *indices, int is_64,
                               int64_t count, int64_t experts, int64_t k, int64_t n, int trans_b, int64_t start,
                               int64_t total) {
    const rt_row_of expert_of = {rt_index_of(rt, indices, is_64), experts, start, total};
    return rt_points(rt, count * n, [=] __device__(int64_t p) {
        const int64_t row = p / n, column = p % n, expert = expert_of(row);
        const T *from = w + expert * k * n + (trans_b ? column * k : column);
        const int64_t step = trans_b ? 1 : n;
        typename E::sum sum = 0;
        for (int64_t q = 0; expert < experts && q < k; q++) sum += E::load(x[row * k + q]) * E::load(from[q * step]);
        y[p] = E::store(sum);
    });
}

/* Rows are sorted by expert, in SCRATCH: those of one expert are neighbours and keep their order. */
template <class E, class T = typename E::type>
RT_FAMILY int rt_expert_weight_grad(struct rt *rt, T *y, const T *x, const T *dy, const void *indices, int is_64,
                                    int64_t count, int64_t experts, int64_t k, int64_t n, int64_t start,
                                    int64_t total) {
    const rt_row_of expert_of = {rt_index_of(rt, indices, is_64), experts, start, total};
    const rt_sorted sorted = rt_sort(rt, rt->arena[RT_SCRATCH], count, experts, expert_of);
    return rt_points(rt, experts * k * n, [=] __device__(int64_t p) {
        const int64_t expert = p / (k * n), i = p / n % k, j = p % n;
        int64_t first = 0, end = count;
        while (first < end) {
            const int64_t middle = first + (end - first) / 2;
            if (sorted.key[middle] < expert)
                first = middle + 1;
            else
                end = middle;
        }
        typename E::sum sum = 0;
        for (int64_t at = first; at < count && sorted.key[at] == expert; at++) {
            const int64_t row = sorted.position[at];
            sum += E::load(x[row * k + i]) * E::load(dy[row * n + j]);
        }
        y[p] = E::store(sum);
    });
}

/* The experts of the rows of a group, for places in their buffers. */
struct rt_expert_rows {
    rt_index index;
    int64_t rows, experts, start, total;
    __device__ int64_t operator()(int64_t group, int64_t row) const {
        const int64_t expert = rt_index_place(index, group * rows + row, total) - start;
        return expert < 0 || expert >= experts ? -1 : expert;
    }
};

/* A thread block fills the buffer of one expert in one group. */
template <class T>
RT_FAMILY int rt_expert_dispatch(struct rt *rt, T *y, const T *x, const void *indices, int is_64, int64_t groups,
                                 int64_t rows, int64_t tokens, int64_t h, int64_t capacity, int64_t experts,
                                 int64_t start, int64_t total) {
    const rt_expert_rows expert_of = {rt_index_of(rt, indices, is_64), rows, experts, start, total};
    return rt_rows(rt, experts * groups, [=] __device__(int64_t buffer) {
        const int64_t expert = buffer / groups, group = buffer % groups;
        T *to = y + buffer * capacity * h;
        int64_t used = 0;
        for (int64_t row = 0; row < rows && used < capacity; row++) {
            if (expert_of(group, row) != expert) continue;
            const T *from = x + (group * tokens + row / (rows / tokens)) * h;
            RT_EACH(q, h) to[used * h + q] = from[q];
            used++;
        }
        RT_EACH(q, (capacity - used) * h) to[used * h + q] = T{};
    });
}

enum { RT_EXPERT_CHOICES = 64 };

/* A thread block sums the rows of one token. The place of a row is the number of rows of its expert before it. */
template <class E, class T = typename E::type>
RT_FAMILY int rt_expert_combine(struct rt *rt, T *y, const T *x, const void *indices, int is_64, int64_t groups,
                                int64_t rows, int64_t tokens, int64_t h, int64_t capacity, int64_t experts,
                                int64_t start, int64_t total) {
    const rt_expert_rows expert_of = {rt_index_of(rt, indices, is_64), rows, experts, start, total};
    return rt_rows(rt, groups * tokens, [=] __device__(int64_t token) {
        const int64_t group = token / tokens, choices = rows / tokens, first = token % tokens * choices;
        int64_t from[RT_EXPERT_CHOICES];
        int n = 0;
        for (int64_t row = first; row < first + choices; row++) {
            const int64_t expert = expert_of(group, row);
            int64_t place = 0;
            for (int64_t before = 0; expert >= 0 && before < row; before++) place += expert_of(group, before) == expert;
            if (expert >= 0 && place < capacity) from[n++] = ((expert * groups + group) * capacity + place) * h;
        }
        RT_EACH(q, h) {
            typename E::sum sum = 0;
            for (int i = 0; i < n; i++) sum += E::load(x[from[i] + q]);
            y[token * h + q] = E::store(sum);
        }
    });
}

#define RT_CUDA_EXPERT(T, s)                                                                                           \
    RT_NAME(rt_expert_matmul_##s, rt_expert_matmul<rt_##s>)                                                            \
    RT_NAME(rt_expert_weight_grad_##s, rt_expert_weight_grad<rt_##s>)                                                  \
    RT_NAME(rt_expert_dispatch_##s, rt_expert_dispatch<T>)                                                             \
    RT_NAME(rt_expert_combine_##s, rt_expert_combine<rt_##s>)
RT_FLOATS(RT_CUDA_EXPERT)
RT_HALVES(RT_CUDA_EXPERT)

#endif
