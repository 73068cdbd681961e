/* Cross entropy, forward and backward in one pass over the scores each; the manual is kernels/c/kernels.h. */
#ifndef RT_CUDA_CLASSES_CUH
#define RT_CUDA_CLASSES_CUH

#include "index.cuh"
#include "reduce.cuh"

/* Element `row` of x(outer,c,inner): offset of its first score, and the score of its class. */
struct rt_class_row {
    int64_t first, own;
};

static inline __device__ rt_class_row rt_class_row_at(const rt_index &index, int64_t row, int64_t c, int64_t inner,
                                                      int64_t start) {
    return rt_class_row{row / inner * c * inner + row % inner, rt_index_value(index, row) - start};
}

template <class S, class T = typename S::sum>
RT_FAMILY int rt_class_terms(struct rt *rt, T *y, const typename S::type *scores, const typename S::type *largest,
                             const void *indices, int is_64, int64_t outer, int64_t c, int64_t inner, int64_t start) {
    using E = typename S::element;
    const E *x = (const E *)scores, *most = (const E *)largest;
    const rt_index index = rt_index_of(rt, indices, is_64);
    const int64_t plane = outer * inner;
    return rt_rows(rt, plane, [=] __device__(int64_t row) {
        const rt_class_row at = rt_class_row_at(index, row, c, inner, start);
        const T base = (T)most[row];
        T terms = 0, total = 0;
        auto add = [&](int64_t, E value) {
            terms += rt_exp_of((T)value - base);
            total += (T)value - base;
        };
        if (inner == 1)
            rt_each<RT_WIDTH(E)>(x + at.first, c, add);
        else
            RT_EACH(i, c) add(i, x[at.first + i * inner]);
        terms = rt_block_fold(terms, rt_sum_of());
        total = rt_block_fold(total, rt_sum_of());
        if (threadIdx.x != 0) return;
        y[row] = terms;
        y[plane + row] = at.own >= 0 && at.own < c ? (T)x[at.first + at.own * inner] - base : (T)0;
        y[2 * plane + row] = total;
    });
}

template <class S, class T = typename S::sum>
RT_FAMILY int rt_class_terms_grad(struct rt *rt, typename S::type *gradient, const typename S::type *scores,
                                  const typename S::type *largest, const void *indices, int is_64, const T *dy,
                                  int64_t outer, int64_t c, int64_t inner, int64_t start) {
    using E = typename S::element;
    const E *x = (const E *)scores, *most = (const E *)largest;
    E *dx = (E *)gradient;
    const rt_index index = rt_index_of(rt, indices, is_64);
    const int64_t plane = outer * inner;
    return rt_rows(rt, plane, [=] __device__(int64_t row) {
        const rt_class_row at = rt_class_row_at(index, row, c, inner, start);
        const T base = (T)most[row], terms = dy[row], own = dy[plane + row], total = dy[2 * plane + row];
        auto slope = [=](int64_t i, E value) {
            return (E)(rt_exp_of((T)value - base) * terms + total + (i == at.own ? own : (T)0));
        };
        if (inner > 1 || ((uintptr_t)x - (uintptr_t)dx) % RT_VECTOR_BYTES) {
            RT_EACH(i, c) dx[at.first + i * inner] = slope(i, x[at.first + i * inner]);
            return;
        }
        constexpr int N = RT_WIDTH(E);
        const E *from = x + at.first;
        E *to = dx + at.first;
        const rt_wide_part wide = rt_wide_part_of<N>(from, c);
        rt_each_beside(wide, c, [&](int64_t i) { to[i] = slope(i, from[i]); });
        RT_EACH_VECTOR(i, wide.end - wide.first, N) {
            rt_vector<E, N> vector = rt_get_vector<N>(from + wide.first + i);
#pragma unroll
            for (int lane = 0; lane < N; lane++) vector.at[lane] = slope(wide.first + i + lane, vector.at[lane]);
            rt_put_vector(to + wide.first + i, vector);
        }
    });
}

#define RT_CUDA_CLASSES(T, s)                                                                                          \
    RT_NAME(rt_class_terms_##s, rt_class_terms<rt_##s>)                                                                \
    RT_NAME(rt_class_terms_grad_##s, rt_class_terms_grad<rt_##s>)
RT_FLOATS(RT_CUDA_CLASSES)
RT_HALVES(RT_CUDA_CLASSES)

#endif
