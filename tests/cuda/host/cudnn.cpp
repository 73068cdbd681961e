/* A library that stands in for cuDNN, behind streams.h: the calls that the runtime makes, as plain loops, on what its
 * descriptors say. Of the algorithms that it proposes the first gives other bits at every run, the second wants more
 * workspace than there is, and the third is the one that may be used; it spoils the workspace that it asks for. Grouped
 * convolutions it proposes nothing for where their channels are not a multiple of 2: the runtime has kernels of its
 * own. FAKE_CUDNN_LOG=FILE: a line per call. */
#include "stand_in_cudnn.h"

struct cudnnTensorStruct {
    cudnnDataType_t type;
    std::vector<int> dims;
};
struct cudnnFilterStruct {
    cudnnDataType_t type;
    std::vector<int> dims;
};
struct cudnnConvolutionStruct {
    std::vector<int> pad, stride, dilation;
    int group = 1;
    cudnnDataType_t type;
    cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace {

enum : size_t { ALGORITHM = 1, WANTED = 1 << 20 };

struct shape {
    std::vector<int> image, filter, result;
    cudnnConvolutionStruct window;
};

size_t count_of(const std::vector<int> &dims) {
    size_t count = 1;
    for (int d : dims) count *= (size_t)d;
    return count;
}

shape shape_of(const cudnnTensorStruct *image, const cudnnFilterStruct *filter, const cudnnConvolutionStruct *window,
               const cudnnTensorStruct *result) {
    const size_t n = image->dims.size();
    if (n < 4 || filter->dims.size() != n || result->dims.size() != n || window->pad.size() != n - 2)
        complain("dimensions");
    if (image->type != filter->type || image->type != result->type || image->type != window->type) complain("types");
    if (window->math != CUDNN_FMA_MATH) complain("f32 is to be multiplied as f32");
    if (image->dims[0] != result->dims[0] || filter->dims[0] != result->dims[1] ||
        filter->dims[1] * window->group != image->dims[1] || filter->dims[0] % window->group)
        complain("channels");
    for (size_t d = 0; d < n - 2; d++) {
        const int reach = window->dilation[d] * (filter->dims[d + 2] - 1) + 1;
        if ((image->dims[d + 2] + 2 * window->pad[d] - reach) / window->stride[d] + 1 != result->dims[d + 2])
            complain("extents");
    }
    return {image->dims, filter->dims, result->dims, *window};
}

/* visit(image index, filter index, result index) of every product of the convolution. */
template <class F> void each(const shape &s, F visit) {
    const size_t n = s.image.size(), taps = count_of(s.filter) / (size_t)(s.filter[0] * s.filter[1]);
    const int per_group = s.result[1] / s.window.group;
    for (size_t r = 0; r < count_of(s.result); r++) {
        std::vector<int> at(n);
        for (size_t d = n, rest = r; d-- > 0; rest /= (size_t)s.result[d]) at[d] = (int)(rest % (size_t)s.result[d]);
        for (int c = 0; c < s.filter[1]; c++)
            for (size_t tap = 0; tap < taps; tap++) {
                size_t image = (size_t)at[0] * (size_t)s.image[1] + (size_t)(at[1] / per_group * s.filter[1] + c),
                       rest = tap;
                std::vector<int> k(n);
                for (size_t d = n; d-- > 2; rest /= (size_t)s.filter[d]) k[d] = (int)(rest % (size_t)s.filter[d]);
                bool inside = true;
                for (size_t d = 2; d < n; d++) {
                    const int i =
                        at[d] * s.window.stride[d - 2] + k[d] * s.window.dilation[d - 2] - s.window.pad[d - 2];
                    inside = inside && i >= 0 && i < s.image[d];
                    image = image * (size_t)s.image[d] + (size_t)i;
                }
                if (inside) visit(image, ((size_t)at[1] * (size_t)s.filter[1] + (size_t)c) * taps + tap, r);
            }
    }
}

enum role { IMAGE, FILTER, RESULT };

/* y is the sum of products of a and b; which of the three each is. */
template <class T> void sum(const shape &s, T *y, role y_is, const T *a, role a_is, const T *b, role b_is) {
    const std::vector<int> &dims = y_is == IMAGE ? s.image : y_is == FILTER ? s.filter : s.result;
    std::vector<double> sums(count_of(dims));
    each(s, [&](size_t image, size_t filter, size_t result) {
        const size_t at[] = {image, filter, result};
        sums[at[y_is]] += (double)a[at[a_is]] * (double)b[at[b_is]];
    });
    for (size_t i = 0; i < sums.size(); i++) y[i] = (T)sums[i];
}

cudnnStatus_t submit(cudnnHandle_t handle, const shape &s, const void *one, const void *zero, int algorithm,
                     void *workspace, size_t bytes, void *y, role y_is, const void *a, role a_is, const void *b,
                     role b_is) {
    const bool wide = s.window.type == CUDNN_DATA_DOUBLE;
    if (algorithm != (int)ALGORITHM || bytes < WANTED)
        complain("an algorithm that was not proposed, or no workspace for it");
    if (wide ? *(const double *)one != 1 || *(const double *)zero != 0
             : *(const float *)one != 1 || *(const float *)zero != 0)
        complain("factors");
    if (!handle->stream) complain("no stream");
    log_call(y_is == RESULT ? "forward" : y_is == IMAGE ? "data" : "filter");
    handle->stream->submit([=] {
        memset(workspace, 0x77, WANTED);
        if (wide)
            sum(s, (double *)y, y_is, (const double *)a, a_is, (const double *)b, b_is);
        else
            sum(s, (float *)y, y_is, (const float *)a, a_is, (const float *)b, b_is);
        return true;
    });
    return CUDNN_STATUS_SUCCESS;
}

template <class P> cudnnStatus_t propose(const shape &s, int room, int *n, P *out) {
    const bool odd = s.window.group > 1 && s.filter[1] % 2;
    *n = odd ? 0 : room < 3 ? room : 3;
    for (int i = 0; i < *n; i++) {
        out[i] = {};
        out[i].algo = (decltype(out[i].algo))(i == 2 ? (int)ALGORITHM : 0);
        out[i].status = CUDNN_STATUS_SUCCESS;
        out[i].memory = i == 1 ? (size_t)1 << 40 : WANTED;
        out[i].determinism = i == 0 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    }
    return CUDNN_STATUS_SUCCESS;
}

template <class T> cudnnStatus_t make(T **out) {
    *out = new T();
    return CUDNN_STATUS_SUCCESS;
}
template <class T> cudnnStatus_t unmake(T *made) {
    delete made;
    return CUDNN_STATUS_SUCCESS;
}

} /* namespace */

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    return make(handle);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    return unmake(handle);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = (host::stream *)stream;
    return CUDNN_STATUS_SUCCESS;
}
const char *cudnnGetErrorString(cudnnStatus_t) {
    return "an error";
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out) {
    return make(out);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
    return unmake(tensor);
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int n, const int *dims,
                                         const int *strides) {
    int stride = 1;
    for (int d = n - 1; d >= 0; stride *= dims[d], d--)
        if (strides[d] != stride) complain("a tensor that is not dense");
    *tensor = {type, {dims, dims + n}};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *out) {
    return make(out);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
    return unmake(filter);
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int n, const int *dims) {
    if (format != CUDNN_TENSOR_NCHW) complain("a filter's format");
    *filter = {type, {dims, dims + n}};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *out) {
    return make(out);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t window) {
    return unmake(window);
}
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t window, int n, const int *pad,
                                              const int *stride, const int *dilation, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
    if (mode != CUDNN_CROSS_CORRELATION) complain("a window that is turned round");
    window->pad.assign(pad, pad + n), window->stride.assign(stride, stride + n),
        window->dilation.assign(dilation, dilation + n);
    window->type = type;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t window, int count) {
    window->group = count;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t window, cudnnMathType_t math) {
    window->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t image,
                                                     cudnnFilterDescriptor_t filter,
                                                     cudnnConvolutionDescriptor_t window,
                                                     cudnnTensorDescriptor_t result, int room, int *n,
                                                     cudnnConvolutionFwdAlgoPerf_t *out) {
    return propose(shape_of(image, filter, window, result), room, n, out);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t filter,
                                                          cudnnTensorDescriptor_t result,
                                                          cudnnConvolutionDescriptor_t window,
                                                          cudnnTensorDescriptor_t image, int room, int *n,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *out) {
    return propose(shape_of(image, filter, window, result), room, n, out);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t image,
                                                            cudnnTensorDescriptor_t result,
                                                            cudnnConvolutionDescriptor_t window,
                                                            cudnnFilterDescriptor_t filter, int room, int *n,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *out) {
    return propose(shape_of(image, filter, window, result), room, n, out);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *one, cudnnTensorDescriptor_t image,
                                      const void *x, cudnnFilterDescriptor_t filter, const void *w,
                                      cudnnConvolutionDescriptor_t window, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *workspace, size_t bytes, const void *zero, cudnnTensorDescriptor_t result,
                                      void *y) {
    return submit(handle, shape_of(image, filter, window, result), one, zero, (int)algorithm, workspace, bytes, y,
                  RESULT, x, IMAGE, w, FILTER);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *one, cudnnFilterDescriptor_t filter,
                                           const void *w, cudnnTensorDescriptor_t result, const void *dy,
                                           cudnnConvolutionDescriptor_t window, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void *workspace, size_t bytes, const void *zero,
                                           cudnnTensorDescriptor_t image, void *dx) {
    return submit(handle, shape_of(image, filter, window, result), one, zero, (int)algorithm, workspace, bytes, dx,
                  IMAGE, dy, RESULT, w, FILTER);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *one, cudnnTensorDescriptor_t image,
                                             const void *x, cudnnTensorDescriptor_t result, const void *dy,
                                             cudnnConvolutionDescriptor_t window,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace, size_t bytes,
                                             const void *zero, cudnnFilterDescriptor_t filter, void *dw) {
    return submit(handle, shape_of(image, filter, window, result), one, zero, (int)algorithm, workspace, bytes, dw,
                  FILTER, x, IMAGE, dy, RESULT);
}

} /* extern "C" */
