/* The functions that generated GPU programs call. Names and meaning are those of kernels/c/kernels.h and rt.h; the
 * first parameter of all of them is the rank, and structs and arrays are passed as braced lists: {2, 3}. */
#ifndef RT_CUDA_KERNELS_CUH
#define RT_CUDA_KERNELS_CUH

#include "classes.cuh"
#include "expert.cuh"
#include "determinant.cuh"
#include "flash_grad.cuh"
#include "fp8.cuh"
#include "held.cuh"
#include "moments.cuh"
#include "index.cuh"
#include "linear_attention.cuh"
#include "move.cuh"
#include "ngrams.cuh"
#include "product.cuh"
#include "quantised.cuh"
#include "random.cuh"
#include "recurrence.cuh"
#include "reduce.cuh"
#include "ring.cuh"
#include "rows.cuh"
#include "sampling.cuh"
#include "suppress.cuh"
#include "topk.cuh"
#include "window.cuh"

/* rt.h, with structs and arrays as arguments */

static inline int64_t rt_window_before(struct rt *rt, int axis, const struct rt_placement &window) {
    return rt_window_before(rt, axis, &window);
}

static inline int64_t rt_window_behind(struct rt *rt, int axis, const struct rt_placement &window, int64_t behind) {
    return rt_window_behind(rt, axis, &window, behind);
}

static inline int rt_chunk(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim,
                           const rt_dims &dims, int dim, const struct rt_placement &to) {
    return rt_chunk(rt, axis, dst, src, dtype, ndim, dims.at, dim, &to);
}

static inline int rt_crop(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim,
                          const rt_dims &dims, int from_dim, const struct rt_placement &from, int to_dim,
                          const struct rt_placement &window) {
    return rt_crop(rt, axis, dst, src, dtype, ndim, dims.at, from_dim, &from, to_dim, &window);
}

static inline int rt_all_to_all(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                                int ndim, const rt_dims &dims, int from_dim, const struct rt_placement &from,
                                int to_dim, const struct rt_placement &to) {
    return rt_all_to_all(rt, axis, dst, src, scratch, dtype, ndim, dims.at, from_dim, &from, to_dim, &to);
}

static inline int rt_halo_exchange(struct rt *rt, int axis, void *dst, const void *src, void *scratch,
                                   enum rt_dtype dtype, int ndim, const rt_dims &dims, int from_dim,
                                   const struct rt_placement &from, int to_dim, const struct rt_placement &window) {
    return rt_halo_exchange(rt, axis, dst, src, scratch, dtype, ndim, dims.at, from_dim, &from, to_dim, &window);
}

#endif
