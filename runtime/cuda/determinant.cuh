/* Determinants; the manual is kernels/c/determinant.h. A block per matrix: its threads share the rows while it is
 * factorised, and the columns of the inverse, which do not depend on each other. */
#ifndef RT_CUDA_DETERMINANT_CUH
#define RT_CUDA_DETERMINANT_CUH

#include <float.h>

#include "../base/scratch.h"
#include "launch.cuh"

#define LOCAL      template <class T> static __device__ inline
#define NAME(stem) rt_##stem
#define EACH       RT_EACH
#define JOIN       __syncthreads
#include "../kernels/c/determinant_of.h"
#undef LOCAL
#undef NAME
#undef EACH
#undef JOIN

template <class T> RT_FAMILY int rt_det(struct rt *rt, T *y, const T *x, void *workspace, int64_t count, int64_t n) {
    return rt_rows(rt, count, [=] __device__(int64_t i) {
        const T det = rt_det_of((T *)workspace + i * RT_DET_WORKSPACE(n), x + i * n * n, n);
        if (threadIdx.x == 0) y[i] = det;
    });
}

template <class T>
RT_FAMILY int rt_det_grad(struct rt *rt, T *dx, const T *dy, const T *x, void *workspace, int64_t count, int64_t n) {
    const T rounding = std::numeric_limits<T>::epsilon();
    return rt_rows(rt, count, [=] __device__(int64_t i) {
        rt_det_grad_of(dx + i * n * n, dy[i], (T *)workspace + i * RT_DET_WORKSPACE(n), x + i * n * n, n, rounding);
    });
}

#define RT_CUDA_DETERMINANT_CUH

#include <float.h>

#include "../base/scratch.h"
#include "launch.cuh"

/* All threads find the same row; each exchanges its share of the elements. */
template <class T> static __device__ inline T rt_choose_pivot(T *lu, T *order, int64_t n, int64_t k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < n; i++)
        if (fabs(lu[i * n + k]) > fabs(lu[best * n + k])) best = i;
    __syncthreads();
    if (best == k) return 1;
    RT_EACH(j, n + 1) {
        T *own = j < n ? lu + k * n + j : order + k, *other = j < n ? lu + best * n + j : order + best;
        const T element = *own;
        *own = *other;
        *other = element;
    }
    __syncthreads();
    return -1;
}

template <class T> static __device__ inline T rt_factorise(T *lu, T *order, const T *x, int64_t n, T floor) {
    T det = 1;
    RT_EACH(j, n * n) lu[j] = x[j];
    RT_EACH(i, n) order[i] = (T)i;
    __syncthreads();
    for (int64_t k = 0; k < n; k++) {
        det *= rt_choose_pivot(lu, order, n, k);
        T *row = lu + k * n;
        const T pivot = row[k] == 0 ? floor : row[k];
        det *= pivot;
        __syncthreads();
        RT_EACH(i, n - k) {
            if (i == 0) row[k] = pivot;
            T *below = row + i * n;
            if (i == 0 || below[k] == 0) continue;
            const T factor = below[k] /= pivot;
            for (int64_t j = k + 1; j < n; j++) below[j] -= factor * row[j];
        }
        __syncthreads();
    }
    return det;
}

template <class T> RT_FAMILY int rt_det(struct rt *rt, T *y, const T *x, void *workspace, int64_t count, int64_t n) {
    return rt_rows(rt, count, [=] __device__(int64_t matrix) {
        T *lu = (T *)workspace + matrix * RT_DET_WORKSPACE(n);
        const T det = rt_factorise(lu, lu + n * n, x + matrix * n * n, n, (T)0);
        if (threadIdx.x == 0) y[matrix] = det;
    });
}

/* Column j of dx = scale P^T L^-T U^-T. */
template <class T>
static __device__ inline void rt_invert_column(T *dx, const T *lu, const T *order, T scale, int64_t n, int64_t j) {
    for (int64_t i = 0; i < n; i++) {
        T element = i == j ? scale : (T)0;
        for (int64_t k = j; k < i; k++) element -= lu[k * n + i] * dx[(int64_t)order[k] * n + j];
        dx[(int64_t)order[i] * n + j] = i < j ? (T)0 : element / lu[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        T element = dx[(int64_t)order[i] * n + j];
        for (int64_t k = i + 1; k < n; k++) element -= lu[k * n + i] * dx[(int64_t)order[k] * n + j];
        dx[(int64_t)order[i] * n + j] = element;
    }
}

template <class T>
RT_FAMILY int rt_det_grad(struct rt *rt, T *dx, const T *dy, const T *x, void *workspace, int64_t count, int64_t n) {
    const T rounding = std::numeric_limits<T>::epsilon();
    return rt_rows(rt, count, [=] __device__(int64_t matrix) {
        T *lu = (T *)workspace + matrix * RT_DET_WORKSPACE(n), *order = lu + n * n, own = 0;
        const T *from = x + matrix * n * n;
        RT_EACH(j, n * n) own = fabs(from[j]) > own ? fabs(from[j]) : own;
        const T most = rt_block_fold(own, [](T a, T b) { return a > b ? a : b; });
        const T det = rt_factorise(lu, order, from, n, most > 0 ? most * rounding : rounding);
        RT_EACH(j, n) rt_invert_column(dx + matrix * n * n, lu, order, dy[matrix] * det, n, j);
    });
}

#define RT_CUDA_DET(T, s)                                                                                              \
    RT_NAME(rt_det_##s, rt_det<T>)                                                                                     \
    RT_NAME(rt_det_grad_##s, rt_det_grad<T>)
RT_FLOATS(RT_CUDA_DET)

#endif
