/* Convolutions and their gradients by cuDNN, if it is available (cudnn_library.cuh). The algorithm for a shape is
 * chosen at its first convolution: the first deterministic one that fits the planned workspace. What cuDNN does not
 * support (asymmetric padding, some types) is computed by window.cuh. f32 is multiplied in f32, not TF32. */
#ifndef RT_CUDA_CONVOLVE_CUH
#define RT_CUDA_CONVOLVE_CUH

#include "cudnn_library.cuh"

#ifdef RT_WITH_CUDNN

enum { RT_CUDNN_ALGORITHMS = 16 };

/* The plan of a convolution. */
struct rt_cudnn_plan {
    rt_convolution shape; /* without its pointers */
    cudnnTensorDescriptor_t image, result;
    cudnnFilterDescriptor_t filter;
    cudnnConvolutionDescriptor_t window;
    int algorithm; /* of its kind */
    bool taken;    /* the library has one that will do */
    rt_cudnn_plan *next;
};

/* Extents in the library's form: at least two spatial dimensions, dense. */
struct rt_cudnn_dims {
    int n, at[5], stride[5];
};

/* From (n, channels, space...): a single spatial dimension becomes (1, extent). */
static rt_cudnn_dims cudnn_dims(const rt_dims &dims, int ndim) {
    rt_cudnn_dims made = {};
    const int more = ndim < 4;
    made.n = ndim + more;
    for (int d = 0; d < ndim; d++) made.at[d < 2 ? d : d + more] = (int)dims[d];
    if (more) made.at[2] = 1;
    for (int d = made.n - 1, stride = 1; d >= 0; stride *= made.at[d], d--) made.stride[d] = stride;
    return made;
}

/* Strides, dilations (1 where there is no dimension) or paddings (0). */
static rt_cudnn_dims cudnn_window(const rt_dims &values, int ndim, int otherwise) {
    rt_cudnn_dims made = {};
    const int more = ndim < 4;
    made.n = ndim - 2 + more;
    if (more) made.at[0] = otherwise;
    for (int d = 0; d < ndim - 2; d++) made.at[d + more] = (int)values[d];
    return made;
}

/* The library pads both sides equally: true if that gives the same output extents. */
static bool pads_alike(const rt_convolution *c) {
    for (int d = 0; d < c->ndim - 2; d++) {
        const int64_t reach = c->dilation[d] * (c->filter[d + 2] - 1) + 1;
        const int64_t space = c->image[d + 2] + 2 * c->begin[d] - reach;
        if (c->begin[d] < 0 || space < 0 || space / c->stride[d] + 1 != c->result[d + 2]) return false;
    }
    return true;
}

static bool fits(const rt_dims &dims, int ndim) {
    return rt_count(dims, 0, ndim) > 0 && rt_count(dims, 0, ndim) < INT32_MAX;
}

static bool can_take(const rt_convolution *c) {
    return (c->dtype == RT_F32 || c->dtype == RT_F64) && fits(c->image, c->ndim) && fits(c->filter, c->ndim) &&
           fits(c->result, c->ndim) && pads_alike(c);
}

static int describe(struct rt *rt, rt_cudnn_plan *plan) {
    const rt_cudnn *cudnn = cudnn_of(rt);
    const rt_convolution *c = &plan->shape;
    const cudnnDataType_t type = c->dtype == RT_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    const rt_cudnn_dims image = cudnn_dims(c->image, c->ndim), filter = cudnn_dims(c->filter, c->ndim),
                        result = cudnn_dims(c->result, c->ndim), stride = cudnn_window(c->stride, c->ndim, 1),
                        dilation = cudnn_window(c->dilation, c->ndim, 1), begin = cudnn_window(c->begin, c->ndim, 0);
    const char *what = "describe a convolution";
    RT_CUDNN_TRY(rt, what, cudnn->CreateTensorDescriptor(&plan->image));
    RT_CUDNN_TRY(rt, what, cudnn->CreateTensorDescriptor(&plan->result));
    RT_CUDNN_TRY(rt, what, cudnn->CreateFilterDescriptor(&plan->filter));
    RT_CUDNN_TRY(rt, what, cudnn->CreateConvolutionDescriptor(&plan->window));
    RT_CUDNN_TRY(rt, what, cudnn->SetTensorNdDescriptor(plan->image, type, image.n, image.at, image.stride));
    RT_CUDNN_TRY(rt, what, cudnn->SetTensorNdDescriptor(plan->result, type, result.n, result.at, result.stride));
    RT_CUDNN_TRY(rt, what, cudnn->SetFilterNdDescriptor(plan->filter, type, CUDNN_TENSOR_NCHW, filter.n, filter.at));
    RT_CUDNN_TRY(rt, what,
                 cudnn->SetConvolutionNdDescriptor(plan->window, begin.n, begin.at, stride.at, dilation.at,
                                                   CUDNN_CROSS_CORRELATION, type));
    RT_CUDNN_TRY(rt, what, cudnn->SetConvolutionGroupCount(plan->window, (int)c->group));
    RT_CUDNN_TRY(rt, what, cudnn->SetConvolutionMathType(plan->window, CUDNN_FMA_MATH));
    return RT_OK;
}

/* The first proposed algorithm that is deterministic and fits the workspace. */
template <class P> static bool pick(const P *found, int n, int *algorithm) {
    for (int i = 0; i < n; i++) {
        if (found[i].status != CUDNN_STATUS_SUCCESS || found[i].memory > RT_PRODUCT_WORKSPACE ||
            found[i].determinism != CUDNN_DETERMINISTIC)
            continue;
        *algorithm = (int)found[i].algo;
        return true;
    }
    return false;
}

static int choose(struct rt *rt, rt_cudnn_plan *plan) {
    const rt_cudnn *cudnn = cudnn_of(rt);
    cudnnConvolutionFwdAlgoPerf_t forward[RT_CUDNN_ALGORITHMS];
    cudnnConvolutionBwdDataAlgoPerf_t data[RT_CUDNN_ALGORITHMS];
    cudnnConvolutionBwdFilterAlgoPerf_t weights[RT_CUDNN_ALGORITHMS];
    int n = 0;
    switch (plan->shape.kind) {
    case RT_CONVOLVE:
        RT_CUDNN_TRY(rt, "choose an algorithm",
                     cudnn->GetConvolutionForwardAlgorithm_v7(cudnn->handle, plan->image, plan->filter, plan->window,
                                                              plan->result, RT_CUDNN_ALGORITHMS, &n, forward));
        plan->taken = pick(forward, n, &plan->algorithm);
        break;
    case RT_CONVOLVE_BACK:
        RT_CUDNN_TRY(rt, "choose an algorithm",
                     cudnn->GetConvolutionBackwardDataAlgorithm_v7(cudnn->handle, plan->filter, plan->result,
                                                                   plan->window, plan->image, RT_CUDNN_ALGORITHMS, &n,
                                                                   data));
        plan->taken = pick(data, n, &plan->algorithm);
        break;
    case RT_CONVOLVE_WEIGHTS:
        RT_CUDNN_TRY(rt, "choose an algorithm",
                     cudnn->GetConvolutionBackwardFilterAlgorithm_v7(cudnn->handle, plan->image, plan->result,
                                                                     plan->window, plan->filter, RT_CUDNN_ALGORITHMS,
                                                                     &n, weights));
        plan->taken = pick(weights, n, &plan->algorithm);
        break;
    }
    return RT_OK;
}

static bool same_dims(const rt_dims &a, const rt_dims &b, int n) {
    for (int d = 0; d < n; d++)
        if (a[d] != b[d]) return false;
    return true;
}

static bool same_shape(const rt_convolution *a, const rt_convolution *b) {
    return a->kind == b->kind && a->dtype == b->dtype && a->ndim == b->ndim && a->group == b->group &&
           same_dims(a->image, b->image, a->ndim) && same_dims(a->filter, b->filter, a->ndim) &&
           same_dims(a->result, b->result, a->ndim) && same_dims(a->stride, b->stride, a->ndim - 2) &&
           same_dims(a->dilation, b->dilation, a->ndim - 2) && same_dims(a->begin, b->begin, a->ndim - 2);
}

static void free_plan(const rt_cudnn *cudnn, rt_cudnn_plan *plan) {
    if (plan->image) cudnn->DestroyTensorDescriptor(plan->image);
    if (plan->result) cudnn->DestroyTensorDescriptor(plan->result);
    if (plan->filter) cudnn->DestroyFilterDescriptor(plan->filter);
    if (plan->window) cudnn->DestroyConvolutionDescriptor(plan->window);
    free(plan);
}

static int find_plan(struct rt *rt, const rt_convolution *convolution, rt_cudnn_plan **out) {
    rt_cudnn *cudnn = cudnn_of(rt);
    for (*out = cudnn->convolutions; *out; *out = (*out)->next)
        if (same_shape(&(*out)->shape, convolution)) return RT_OK;
    rt_cudnn_plan *plan = (rt_cudnn_plan *)calloc(1, sizeof *plan);
    if (!plan) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    plan->shape = *convolution;
    plan->next = cudnn->convolutions;
    *out = cudnn->convolutions = plan;
    rt_cuda_of(rt)->own->nplans++;
    RT_TRY(describe(rt, plan));
    return choose(rt, plan);
}

static cudnnStatus_t convolve(const rt_cudnn *cudnn, const rt_cudnn_plan *plan, const rt_convolution *c,
                              const void *one, const void *zero) {
    switch (c->kind) {
    case RT_CONVOLVE:
        return cudnn->ConvolutionForward(cudnn->handle, one, plan->image, c->a, plan->filter, c->b, plan->window,
                                         (cudnnConvolutionFwdAlgo_t)plan->algorithm, c->workspace, RT_PRODUCT_WORKSPACE,
                                         zero, plan->result, c->y);
    case RT_CONVOLVE_BACK:
        return cudnn->ConvolutionBackwardData(cudnn->handle, one, plan->filter, c->b, plan->result, c->a, plan->window,
                                              (cudnnConvolutionBwdDataAlgo_t)plan->algorithm, c->workspace,
                                              RT_PRODUCT_WORKSPACE, zero, plan->image, c->y);
    case RT_CONVOLVE_WEIGHTS:
        return cudnn->ConvolutionBackwardFilter(cudnn->handle, one, plan->image, c->a, plan->result, c->b, plan->window,
                                                (cudnnConvolutionBwdFilterAlgo_t)plan->algorithm, c->workspace,
                                                RT_PRODUCT_WORKSPACE, zero, plan->filter, c->y);
    }
    return CUDNN_STATUS_NOT_SUPPORTED;
}

static int library_convolve(struct rt *rt, const rt_convolution *convolution) {
    const rt_cudnn *cudnn = cudnn_of(rt);
    const double one64 = 1, zero64 = 0;
    const float one32 = 1, zero32 = 0;
    const bool wide = convolution->dtype == RT_F64;
    rt_cudnn_plan *plan;
    if (!can_take(convolution)) return -1;
    RT_TRY(find_plan(rt, convolution, &plan));
    if (!plan->taken) return -1;
    RT_CUDNN_TRY(rt, "convolve", cudnn->SetStream(cudnn->handle, rt_cuda_of(rt)->stream));
    RT_CUDNN_TRY(rt, "convolve",
                 convolve(cudnn, plan, convolution, wide ? (const void *)&one64 : &one32,
                          wide ? (const void *)&zero64 : &zero32));
    return RT_OK;
}

static void forget_convolutions(rt_cudnn *cudnn) {
    for (rt_cudnn_plan *plan = cudnn->convolutions, *next; plan; plan = next) {
        next = plan->next;
        free_plan(cudnn, plan);
    }
}

#endif

#endif
