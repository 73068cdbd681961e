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

#define RT_CUDA_DET(T, s)                                                                                              \
    RT_NAME(rt_det_##s, rt_det<T>)                                                                                     \
    RT_NAME(rt_det_grad_##s, rt_det_grad<T>)
RT_FLOATS(RT_CUDA_DET)

#endif
