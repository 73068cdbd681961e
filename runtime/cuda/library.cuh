/* Products by cuBLASLt, where the toolkit has it. The algorithm for a shape is asked for once, at its first product. */
#ifndef RT_CUDA_LIBRARY_CUH
#define RT_CUDA_LIBRARY_CUH

#include "device.cuh"

#if __has_include(<cublasLt.h>) && !defined(RT_PLAIN_PRODUCTS)
#include <cublasLt.h>

/* A product that has been asked for, ready to run. */
struct rt_lt_plan {
    rt_product shape; /* without its pointers */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, y;
    cublasLtMatmulAlgo_t algorithm;
    rt_lt_plan *next;
};

struct rt_lt {
    cublasLtHandle_t handle;
    rt_lt_plan *plans;
};

/* Types that the library takes: of elements and of sums. Rows of others are left out. */
struct rt_lt_type {
    enum rt_dtype dtype;
    cudaDataType_t element, scale;
    cublasComputeType_t compute;
};
static const rt_lt_type lt_types[] = {{RT_F32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                                      {RT_F64, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
                                      {RT_BF16, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                                      {RT_F16, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F}};

static const rt_lt_type *lt_type_of(enum rt_dtype dtype) {
    for (const rt_lt_type &type : lt_types)
        if (type.dtype == dtype) return &type;
    return NULL;
}

static int fail_library(struct rt *rt, cublasStatus_t status, const char *what) {
    return rt_fail(rt, RT_ERROR_DEVICE, "cuBLASLt cannot %s: %s", what, cublasLtGetStatusString(status));
}

#define RT_LT_TRY(rt, what, call)                                                                                      \
    do {                                                                                                               \
        cublasStatus_t rt_lt_status = (call);                                                                          \
        if (rt_lt_status != CUBLAS_STATUS_SUCCESS) return fail_library(rt, rt_lt_status, what);                        \
    } while (0)

/* Note [Column-major]
 * The library's matrices are column-major. A dense (rows,columns) of ours is a (columns,rows) of theirs, so that
 * y = a b of ours is y = b a of theirs: operands change places, each transposed or not as it was. */
static int make_layout(struct rt *rt, cublasLtMatrixLayout_t *out, const rt_lt_type *type, int64_t rows, int64_t columns,
                       int64_t batch) {
    const int32_t count = (int32_t)batch;
    const int64_t stride = rows * columns;
    RT_LT_TRY(rt, "describe a matrix",
              cublasLtMatrixLayoutCreate(out, type->element, (uint64_t)columns, (uint64_t)rows, columns));
    RT_LT_TRY(rt, "describe a matrix",
              cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    RT_LT_TRY(rt, "describe a matrix",
              cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                               sizeof stride));
    return RT_OK;
}

static int describe(struct rt *rt, rt_lt_plan *plan, const rt_lt_type *type) {
    const rt_product *p = &plan->shape;
    const cublasOperation_t a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    RT_LT_TRY(rt, "describe a product", cublasLtMatmulDescCreate(&plan->operation, type->compute, type->scale));
    RT_LT_TRY(rt, "describe a product",
              cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b));
    RT_LT_TRY(rt, "describe a product",
              cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a));
    RT_TRY(make_layout(rt, &plan->a, type, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->batch));
    RT_TRY(make_layout(rt, &plan->b, type, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->batch));
    return make_layout(rt, &plan->y, type, p->m, p->n, p->batch);
}

/* What an algorithm may count on: the workspace, and how tensors are aligned in arenas. */
static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference) {
    const uint64_t workspace = RT_PRODUCT_WORKSPACE;
    const uint32_t alignment = RT_ALIGNMENT;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } rows[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment}};
    for (const auto &row : rows) {
        cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, row.name, row.value, row.bytes);
        if (status != CUBLAS_STATUS_SUCCESS) return status;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static int choose(struct rt *rt, cublasLtHandle_t handle, rt_lt_plan *plan) {
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    RT_LT_TRY(rt, "choose an algorithm", cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = set_preference(preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(handle, plan->operation, plan->b, plan->a, plan->y, plan->y, preference,
                                                1, &found, &n);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && n == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    RT_LT_TRY(rt, "choose an algorithm", status);
    plan->algorithm = found.algo;
    return RT_OK;
}

static bool same_shape(const rt_product *a, const rt_product *b) {
    return a->dtype == b->dtype && a->batch == b->batch && a->m == b->m && a->k == b->k && a->n == b->n &&
           a->trans_a == b->trans_a && a->trans_b == b->trans_b;
}

static void free_plan(rt_lt_plan *plan) {
    if (plan->operation) cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a) cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->y) cublasLtMatrixLayoutDestroy(plan->y);
    free(plan);
}

static int find_plan(struct rt *rt, rt_lt *library, const rt_product *product, const rt_lt_type *type, rt_lt_plan **out) {
    for (*out = library->plans; *out; *out = (*out)->next)
        if (same_shape(&(*out)->shape, product)) return RT_OK;
    rt_lt_plan *plan = (rt_lt_plan *)calloc(1, sizeof *plan);
    if (!plan) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    plan->shape = *product;
    int status = describe(rt, plan, type);
    if (!status) status = choose(rt, library->handle, plan);
    if (status) {
        free_plan(plan);
        return status;
    }
    plan->next = library->plans;
    *out = library->plans = plan;
    return RT_OK;
}

static int library_product(struct rt *rt, const rt_product *product) {
    rt_lt *library = (rt_lt *)rt_cuda_of(rt)->own->library;
    const rt_lt_type *type = lt_type_of(product->dtype);
    const double one64 = 1, zero64 = 0;
    const float one32 = 1, zero32 = 0;
    const bool wide = product->dtype == RT_F64;
    rt_lt_plan *plan;
    if (!type) return -1;
    RT_TRY(find_plan(rt, library, product, type, &plan));
    RT_LT_TRY(rt, "multiply",
              cublasLtMatmul(library->handle, plan->operation, wide ? (const void *)&one64 : &one32, product->b, plan->b,
                             product->a, plan->a, wide ? (const void *)&zero64 : &zero32, product->y, plan->y,
                             product->y, plan->y, &plan->algorithm, product->workspace, RT_PRODUCT_WORKSPACE,
                             rt_cuda_of(rt)->stream));
    return RT_OK;
}

int rt_cuda_open_library(struct rt *rt) {
    rt_lt *library = (rt_lt *)calloc(1, sizeof *library);
    rt_cuda_of(rt)->own->library = library;
    if (!library) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    RT_LT_TRY(rt, "start", cublasLtCreate(&library->handle));
    rt_cuda_of(rt)->product = library_product;
    return RT_OK;
}

void rt_cuda_close_library(struct rt *rt) {
    rt_lt *library = (rt_lt *)rt_cuda_of(rt)->own->library;
    if (!library) return;
    for (rt_lt_plan *plan = library->plans, *next; plan; plan = next) {
        next = plan->next;
        free_plan(plan);
    }
    if (library->handle) cublasLtDestroy(library->handle);
    free(library);
}

#else /* products are the kernels of product.cuh */

int rt_cuda_open_library(struct rt *) {
    return RT_OK;
}

void rt_cuda_close_library(struct rt *) {
}

#endif

#endif
