/* The part of the runtime that uses cuDNN: opened if the program has operations for it. */
#ifndef RT_CUDA_CUDNN_CUH
#define RT_CUDA_CUDNN_CUH

#include "attend.cuh"
#include "convolve.cuh"

#ifdef RT_WITH_CUDNN

int rt_cuda_open_cudnn(struct rt *rt) {
    if (!rt->program->convolves && !rt->program->attends) return RT_OK;
    rt_cudnn *cudnn = (rt_cudnn *)calloc(1, sizeof *cudnn);
    rt_cuda_of(rt)->own->cudnn = cudnn;
    if (!cudnn) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    if (!load_cudnn(cudnn)) return RT_OK;
    RT_CUDNN_TRY(rt, "start", cudnn->Create(&cudnn->handle));
    rt_cuda_of(rt)->convolve = library_convolve;
    rt_cuda_of(rt)->attend = library_attend;
    return RT_OK;
}

void rt_cuda_forget_cudnn(struct rt *rt) {
    rt_cudnn *cudnn = cudnn_of(rt);
    if (!cudnn) return;
    forget_convolutions(cudnn);
    forget_attentions(cudnn);
    cudnn->convolutions = NULL;
    cudnn->attentions = NULL;
}

void rt_cuda_close_cudnn(struct rt *rt) {
    rt_cudnn *cudnn = cudnn_of(rt);
    if (!cudnn) return;
    rt_cuda_forget_cudnn(rt);
    if (cudnn->handle) cudnn->Destroy(cudnn->handle);
    if (cudnn->library) dlclose(cudnn->library);
    free(cudnn);
}

#else /* all of it is done by kernels of rankc */

int rt_cuda_open_cudnn(struct rt *) {
    return RT_OK;
}

void rt_cuda_close_cudnn(struct rt *) {}
void rt_cuda_forget_cudnn(struct rt *) {}

#endif

#endif
