/* Times in a rank's stream, for traces: events, which are made when first needed and used again in every step. */
#ifndef RT_CUDA_MARKS_CUH
#define RT_CUDA_MARKS_CUH

#include "rank.cuh"

#include <stdlib.h>

static inline int rt_cuda_grow_marks(struct rt *rt, int64_t most) {
    rt_cuda_private *own = rt_cuda_of(rt)->own;
    cudaEvent_t *grown = (cudaEvent_t *)realloc(own->marks, (size_t)most * sizeof *grown);
    if (!grown) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory for %lld events", (long long)most);
    own->marks = grown;
    for (; own->nmarks < most; own->nmarks++)
        RT_CUDA_TRY(rt, cudaEventCreateWithFlags(&own->marks[own->nmarks], cudaEventDefault));
    return RT_OK;
}

static inline int rt_cuda_mark(struct rt *rt, int64_t number) {
    rt_cuda_private *own = rt_cuda_of(rt)->own;
    RT_CUDA_TRY(rt, cudaSetDevice(own->number));
    if (number >= own->nmarks) RT_TRY(rt_cuda_grow_marks(rt, 2 * number + 256));
    RT_CUDA_TRY(rt, cudaEventRecord(own->marks[number], rt_cuda_of(rt)->stream));
    return RT_OK;
}

static inline int rt_cuda_times(struct rt *rt, int64_t n, int64_t *ns) {
    const rt_cuda_private *own = rt_cuda_of(rt)->own;
    for (int64_t i = 0; i < n; i++) {
        float ms = 0;
        RT_CUDA_TRY(rt, cudaEventElapsedTime(&ms, own->marks[0], own->marks[i]));
        ns[i] = (int64_t)((double)ms * 1e6);
    }
    return RT_OK;
}

static inline void rt_cuda_close_marks(rt_cuda_private *own) {
    for (int64_t i = 0; i < own->nmarks; i++) cudaEventDestroy(own->marks[i]);
    free(own->marks);
}

#endif
