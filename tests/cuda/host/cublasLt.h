/* The library of products as far as rankc uses it, on a CPU: what runtime/cuda/library.cuh asks of it is executed, and
 * checked.
 *
 * Matrices are column-major. Products are D = epilogue(alpha op(A) op(B) + beta C), sums in order of k, in f32, or f64.
 * It is stricter than the library may be: attributes have their size, matrices fit, pointers are aligned as the
 * preference said, and the heuristic takes no epilogue with a matrix aux whose rows are no multiple of 8 elements, nor
 * any in f64. Operands of 8-bit floats are both, and not both E5M2; A is transposed and B is not; extents are multiples
 * of 16; their scales lie in memory. */
#ifndef TESTS_CUBLASLT_H
#define TESTS_CUBLASLT_H

#include "cuda_runtime.h"

#include <rankc/base/dtype.h>
#include <rankc/base/number/fp8.h>

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
#if __has_include(<library_types.h>)
#include <library_types.h> /* as cudnn.h does */
#else
enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_16BF = 14,
    CUDA_R_8F_E4M3 = 28,
    CUDA_R_8F_E5M2 = 29
};
#endif
typedef cudaDataType_t cudaDataType;
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasLtEpilogue_t {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_GELU = 32,
    CUBLASLT_EPILOGUE_GELU_BIAS = 36,
    CUBLASLT_EPILOGUE_GELU_AUX = 32 | 128,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 36 | 128,
    CUBLASLT_EPILOGUE_DGELU = 64 | 128,
    CUBLASLT_EPILOGUE_BGRADA = 256,
    CUBLASLT_EPILOGUE_BGRADB = 512
};
enum cublasLtMatmulDescAttributes_t {
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
    CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
    CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25
};
enum cublasLtMatrixLayoutAttribute_t {
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
};
enum cublasLtMatmulPreferenceAttributes_t {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};

namespace host {

struct product_layout {
    cudaDataType type;
    int64_t rows, columns, ld;
    int32_t batch = 1;
    int64_t stride = 0;
};
struct product_desc {
    cublasComputeType_t compute;
    cudaDataType scale;
    cublasOperation_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void *bias = nullptr, *aux = nullptr;
    int64_t aux_ld = 0;
    const float *scale_a = nullptr, *scale_b = nullptr;
    int8_t fast = 0;
};
struct product_preference {
    uint64_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};
};

template <class T> cublasStatus_t set(T *field, const void *value, size_t bytes) {
    if (bytes != sizeof *field) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> cublasStatus_t destroy(T *object) {
    delete object;
    return CUBLAS_STATUS_SUCCESS;
}

inline rt_dtype dtype_of(cudaDataType type) {
    return type == CUDA_R_32F ? RT_F32 : type == CUDA_R_64F ? RT_F64 : type == CUDA_R_16F ? RT_F16 : RT_BF16;
}
inline bool is_fp8(cudaDataType type) {
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}
inline double element(const void *data, cudaDataType type, int64_t at) {
    double value;
    if (type == CUDA_R_8F_E4M3) return rt_e4m3_to_f32(((const uint8_t *)data)[at]);
    if (type == CUDA_R_8F_E5M2) return rt_e5m2_to_f32(((const uint8_t *)data)[at]);
    rt_convert(&value, RT_F64, (const char *)data + at * (int64_t)rt_dtype_bytes(dtype_of(type)), dtype_of(type), 1);
    return value;
}
inline void put_element(void *data, cudaDataType type, int64_t at, double value) {
    rt_convert((char *)data + at * (int64_t)rt_dtype_bytes(dtype_of(type)), dtype_of(type), &value, RT_F64, 1);
}

/* An operand of a product on tensor cores in tf32: 10 bits of mantissa, to nearest, ties away from 0. */
inline float to_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7F800000) != 0x7F800000) bits = (bits + 0x1000) & ~0x1FFFu;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* GELU approximated by tanh, and its derivative (Hendrycks and Gimpel, "Gaussian error linear units", 2016). */
inline double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
inline double gelu_slope(double x) {
    const double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

inline bool aligned(const void *pointer, uint32_t to) {
    return (uintptr_t)pointer % to == 0;
}

/* The matrices of a product, all of D's batch. */
struct product {
    product_desc desc;
    product_layout a, b, c, d;
    double alpha, beta;
    const void *at_a, *at_b, *at_c;
    void *at_d;

    int64_t k() const { return desc.trans_a == CUBLAS_OP_N ? a.columns : a.rows; }

    bool fits() const {
        const int64_t m = desc.trans_a == CUBLAS_OP_N ? a.rows : a.columns,
                      n = desc.trans_b == CUBLAS_OP_N ? b.columns : b.rows;
        const int64_t inner = desc.trans_b == CUBLAS_OP_N ? b.rows : b.columns;
        return d.rows == m && d.columns == n && inner == k() && c.rows == m && c.columns == n && a.batch == d.batch &&
               b.batch == d.batch && c.batch == d.batch && a.ld >= a.rows && b.ld >= b.rows && d.ld >= d.rows;
    }

    /* What the manual wants of 8-bit floats on GPUs of compute capability 8.9 and 9. */
    bool fits_fp8() const {
        if (!is_fp8(a.type) && !is_fp8(b.type)) return true;
        for (const product_layout *x : {&a, &b, &c, &d})
            if (x->rows % 16 || x->columns % 16 || x->ld % 16 || x->batch != 1) return false;
        return is_fp8(a.type) && is_fp8(b.type) && (a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3) &&
               desc.trans_a == CUBLAS_OP_T && desc.trans_b == CUBLAS_OP_N && desc.compute == CUBLAS_COMPUTE_32F &&
               desc.scale == CUDA_R_32F && desc.scale_a && desc.scale_b && desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT &&
               (d.type == CUDA_R_32F || d.type == CUDA_R_16BF || d.type == CUDA_R_16F) && c.type == d.type;
    }

    /* op(x) of batch i, or its transpose: `lines` lines of k elements. */
    std::vector<double> lines_of(const product_layout &x, const void *at, bool upright, int64_t lines,
                                 int64_t i) const {
        std::vector<double> out((size_t)(lines * k()));
        for (int64_t line = 0; line < lines; line++)
            for (int64_t p = 0; p < k(); p++) {
                double value = element(at, x.type, i * x.stride + (upright ? p + line * x.ld : line + p * x.ld));
                if (desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32) value = to_tf32((float)value);
                out[(size_t)(line * k() + p)] = value;
            }
        return out;
    }

    double sum(const double *x, const double *y) const {
        double wide = 0;
        float narrow = 0;
        for (int64_t p = 0; p < k(); p++) wide += x[p] * y[p], narrow += (float)x[p] * (float)y[p];
        return desc.compute == CUBLAS_COMPUTE_64F ? wide : (double)narrow;
    }

    double finished(double value, int64_t row, int64_t column) const {
        const int64_t aux = row + column * desc.aux_ld;
        if (desc.epilogue == CUBLASLT_EPILOGUE_DGELU) return value * gelu_slope(element(desc.aux, d.type, aux));
        if (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) value += element(desc.bias, d.type, row);
        if (desc.epilogue & 128) put_element(desc.aux, d.type, aux, value);
        return desc.epilogue & CUBLASLT_EPILOGUE_GELU ? gelu(value) : value;
    }

    /* Sums of lines into what is a bias elsewhere. */
    void put_sums(const std::vector<double> &lines, int64_t count) const {
        for (int64_t line = 0; line < count; line++) {
            float sum = 0;
            for (int64_t p = 0; p < k(); p++) sum += (float)lines[(size_t)(line * k() + p)];
            put_element(desc.bias, d.type, line, sum);
        }
    }

    void run() const {
        const double scale = (desc.scale_a ? *desc.scale_a : 1.f) * (desc.scale_b ? *desc.scale_b : 1.f);
        for (int64_t i = 0; i < d.batch; i++) {
            const std::vector<double> x = lines_of(a, at_a, desc.trans_a == CUBLAS_OP_T, d.rows, i);
            const std::vector<double> y = lines_of(b, at_b, desc.trans_b == CUBLAS_OP_N, d.columns, i);
            if (desc.epilogue & CUBLASLT_EPILOGUE_BGRADA) put_sums(x, d.rows);
            if (desc.epilogue & CUBLASLT_EPILOGUE_BGRADB) put_sums(y, d.columns);
            for (int64_t column = 0; column < d.columns; column++)
                for (int64_t row = 0; row < d.rows; row++) {
                    const int64_t at = i * d.stride + row + column * d.ld;
                    double value = alpha * scale * sum(x.data() + row * k(), y.data() + column * k());
                    if (beta != 0) value += beta * element(at_c, c.type, at);
                    put_element(at_d, d.type, at, finished(value, row, column));
                }
        }
    }
};

} /* namespace host */

typedef int *cublasLtHandle_t;
typedef host::product_desc *cublasLtMatmulDesc_t;
typedef host::product_layout *cublasLtMatrixLayout_t;
typedef host::product_preference *cublasLtMatmulPreference_t;
struct cublasLtMatmulAlgo_t {
    host::product_preference asked;
};
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
};

inline const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : status ? "invalid value" : "success";
}
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = new int(0);
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return host::destroy(handle);
}

inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                                 uint64_t columns, int64_t ld) {
    *out = new host::product_layout{type, (int64_t)rows, (int64_t)columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return host::destroy(layout);
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t name, const void *value,
                                                       size_t bytes) {
    return name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? host::set(&layout->batch, value, bytes)
                                                      : host::set(&layout->stride, value, bytes);
}

inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                               cudaDataType scale) {
    *out = new host::product_desc{compute, scale};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    return host::destroy(desc);
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                                     const void *value, size_t bytes) {
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return host::set(&desc->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return host::set(&desc->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return host::set(&desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return host::set(&desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return host::set(&desc->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return host::set(&desc->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return host::set(&desc->scale_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return host::set(&desc->scale_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return host::set(&desc->fast, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    *out = new host::product_preference;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return host::destroy(preference);
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                           cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                           size_t bytes) {
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return host::set(&preference->workspace, value, bytes);
    return host::set(&preference->alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
}

inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int wanted,
                                                     cublasLtMatmulHeuristicResult_t *results, int *found) {
    const host::product product = {*desc, *a, *b, *c, *d, 1, 0, nullptr, nullptr, nullptr, nullptr};
    const bool plain = desc->epilogue == CUBLASLT_EPILOGUE_DEFAULT, aux = desc->epilogue & 128;
    *found = 0;
    if (!product.fits() || wanted < 1 || (aux && (!desc->aux || desc->aux_ld < d->rows)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!product.fits_fp8()) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (desc->epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB) && (!desc->bias || d->batch > 1))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((!plain && d->type == CUDA_R_64F) || (aux && desc->aux_ld % 8)) return CUBLAS_STATUS_NOT_SUPPORTED;
    results->algo.asked = *preference;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b,
                                     const void *beta, const void *c, cublasLtMatrixLayout_t of_c, void *d,
                                     cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t *algorithm,
                                     void *workspace, size_t bytes, cudaStream_t stream) {
    const uint32_t *alignment = algorithm->asked.alignment;
    const host::product product = {
        *desc, *of_a, *of_b, *of_c, *of_d, host::element(alpha, desc->scale, 0), host::element(beta, desc->scale, 0),
        a,     b,     c,     d};
    if (!product.fits() || !product.fits_fp8() || bytes < algorithm->asked.workspace || !workspace)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!host::aligned(a, alignment[0]) || !host::aligned(b, alignment[1]) || !host::aligned(c, alignment[2]) ||
        !host::aligned(d, alignment[3]))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((desc->epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB) &&
         !desc->bias) ||
        (desc->epilogue & 128 && !host::aligned(desc->aux, 16)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return host::submit(stream, [=] { product.run(); }) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                       : CUBLAS_STATUS_EXECUTION_FAILED;
}

#endif
