/* Loads cuDNN at run time, if the toolkit had its header and the machine has the library. */
#ifndef RT_CUDA_CUDNN_LIBRARY_CUH
#define RT_CUDA_CUDNN_LIBRARY_CUH

#include "rank.cuh"

#if __has_include(<cudnn.h>) && !defined(RT_WITHOUT_CUDNN)
#define RT_WITH_CUDNN
#include "cudnn_graph.cuh"

#include <dlfcn.h>

/* The functions of the library that are used, in addition to those of graphs. */
#define RT_CUDNN_FUNCTIONS(F)                                                                                          \
    F(Create)                                                                                                          \
    F(Destroy)                                                                                                         \
    F(SetStream)                                                                                                       \
    F(GetErrorString)                                                                                                  \
    F(CreateTensorDescriptor)                                                                                          \
    F(DestroyTensorDescriptor)                                                                                         \
    F(SetTensorNdDescriptor)                                                                                           \
    F(CreateFilterDescriptor)                                                                                          \
    F(DestroyFilterDescriptor)                                                                                         \
    F(SetFilterNdDescriptor)                                                                                           \
    F(CreateConvolutionDescriptor)                                                                                     \
    F(DestroyConvolutionDescriptor)                                                                                    \
    F(SetConvolutionNdDescriptor)                                                                                      \
    F(SetConvolutionGroupCount)                                                                                        \
    F(SetConvolutionMathType)                                                                                          \
    F(GetConvolutionForwardAlgorithm_v7)                                                                               \
    F(GetConvolutionBackwardDataAlgorithm_v7)                                                                          \
    F(GetConvolutionBackwardFilterAlgorithm_v7)                                                                        \
    F(ConvolutionForward)                                                                                              \
    F(ConvolutionBackwardData)                                                                                         \
    F(ConvolutionBackwardFilter)

struct rt_cudnn {
    void *library;
#define F(name) decltype(&cudnn##name) name;
    RT_CUDNN_FUNCTIONS(F)
#undef F
    rt_cudnn_graph_functions graph;
    cudnnHandle_t handle;
    struct rt_cudnn_plan *convolutions; /* that have been asked for */
    struct rt_attend_plan *attentions;
};

static rt_cudnn *cudnn_of(struct rt *rt) {
    return (rt_cudnn *)rt_cuda_of(rt)->own->cudnn;
}

static int cudnn_fail(struct rt *rt, cudnnStatus_t status, const char *what) {
    return rt_fail(rt, RT_ERROR_DEVICE, "cuDNN cannot %s: %s", what, cudnn_of(rt)->GetErrorString(status));
}

#define RT_CUDNN_TRY(rt, what, call)                                                                                   \
    do {                                                                                                               \
        cudnnStatus_t rt_cudnn_status = (call);                                                                        \
        if (rt_cudnn_status != CUDNN_STATUS_SUCCESS) return cudnn_fail(rt, rt_cudnn_status, what);                     \
    } while (0)

/* Without the library, or with a version that lacks functions, rankc's own kernels are used: `rankc doctor` reports
 * it. */
static bool load_cudnn(rt_cudnn *cudnn) {
    cudnn->library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!cudnn->library) return false;
#define F(name)                                                                                                        \
    cudnn->name = (decltype(cudnn->name))dlsym(cudnn->library, "cudnn" #name);                                         \
    if (!cudnn->name) return false;
    RT_CUDNN_FUNCTIONS(F)
#undef F
#define F(name)                                                                                                        \
    cudnn->graph.name = (decltype(cudnn->graph.name))dlsym(cudnn->library, "cudnn" #name);                             \
    if (!cudnn->graph.name) return false;
    RT_CUDNN_GRAPH_FUNCTIONS(F)
#undef F
    return true;
}

#endif

#endif
