/* Products by cuBLASLt, if the toolkit has it. The algorithm for a shape is chosen at its first product. */
#ifndef RT_CUDA_LIBRARY_CUH
#define RT_CUDA_LIBRARY_CUH

#include "rank.cuh"

#if __has_include(<cublasLt.h>) && !defined(RT_PLAIN_PRODUCTS)
#include <cublasLt.h>

/* The plan of a product. */
struct rt_lt_plan {
    rt_product shape;         /* of its pointers only which are NULL */
    rt_scaled_product scaled; /* of one of 8-bit floats */
    bool refused;             /* the library does not finish it so */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, y;
    cublasLtMatmulAlgo_t algorithm;
    rt_lt_plan *next;
};

struct rt_lt {
    cublasLtHandle_t handle;
    rt_lt_plan *plans, *scaled; /* plans; `scaled`: of 8-bit floats */
};

/* The library's types of elements, of scale factors, and of accumulation. */
struct rt_lt_type {
    enum rt_dtype dtype;
    bool finishes; /* there are epilogues */
    cudaDataType_t element, scale;
    cublasComputeType_t compute, tf32; /* with --kernels auto, and tf32 */
};
static const rt_lt_type lt_types[] = {
    {RT_F32, true, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
    {RT_F64, false, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F},
    {RT_BF16, true, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F},
    {RT_F16, true, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F}};

/* Note [Epilogues]
 * The library's GELU is the tanh approximation; PyTorch uses it for that one only, too. It is computed with about 18
 * bits (on an H200 the gradient differs by 4e-6 of the largest), so f32 is left to kernels. Its residual is matrix C
 * with factor 1. ReLU is not left to the library, which does not document its result for NaN. The forms with an
 * auxiliary matrix store the argument of GELU; its rows are multiples of 8 elements. Sums of operands (called bias
 * gradient by the library) are stored where a bias would be; operands are swapped (Note [Column-major]). */
struct rt_lt_epilogue {
    enum rt_activation activation;
    bool bias, sum;
    enum rt_summed summed;
    cublasLtEpilogue_t epilogue;
};
static const rt_lt_epilogue lt_epilogues[] = {{RT_NO_ACTIVATION, false, false, RT_NO_SUMS, CUBLASLT_EPILOGUE_DEFAULT},
                                              {RT_NO_ACTIVATION, true, false, RT_NO_SUMS, CUBLASLT_EPILOGUE_BIAS},
                                              {RT_GELU, false, false, RT_NO_SUMS, CUBLASLT_EPILOGUE_GELU},
                                              {RT_GELU, true, false, RT_NO_SUMS, CUBLASLT_EPILOGUE_GELU_BIAS},
                                              {RT_GELU, false, true, RT_NO_SUMS, CUBLASLT_EPILOGUE_GELU_AUX},
                                              {RT_GELU, true, true, RT_NO_SUMS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
                                              {RT_GELU_GRAD, false, true, RT_NO_SUMS, CUBLASLT_EPILOGUE_DGELU},
                                              {RT_NO_ACTIVATION, false, false, RT_SUMS_OF_A, CUBLASLT_EPILOGUE_BGRADB},
                                              {RT_NO_ACTIVATION, false, false, RT_SUMS_OF_B, CUBLASLT_EPILOGUE_BGRADA}};
enum { LT_AUX_ROW = 8 };

static bool is_finished(const rt_product *product) {
    const rt_finish &finish = product->finish;
    return finish.activation || finish.bias || finish.residual || finish.sum || finish.summed;
}

/* The library's epilogue for the product; NULL: none. */
static const rt_lt_epilogue *lt_epilogue_of(const rt_product *product) {
    const rt_finish &finish = product->finish;
    if (finish.sum && product->n % LT_AUX_ROW) return NULL;
    if (finish.activation && product->dtype == RT_F32) return NULL;
    for (const rt_lt_epilogue &row : lt_epilogues)
        if (row.activation == finish.activation && row.bias == !!finish.bias && row.sum == !!finish.sum &&
            row.summed == finish.summed)
            return &row;
    return NULL;
}

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
 * The library's matrices are column-major. A dense row-major (rows,columns) is a column-major (columns,rows), so y = a
 * b is computed as y^T = b^T a^T: operands are swapped, each transposed or not as before. */
static int make_layout(struct rt *rt, cublasLtMatrixLayout_t *out, cudaDataType_t element, int64_t rows,
                       int64_t columns, int64_t batch) {
    const int32_t count = (int32_t)batch;
    const int64_t stride = rows * columns;
    RT_LT_TRY(rt, "describe a matrix",
              cublasLtMatrixLayoutCreate(out, element, (uint64_t)columns, (uint64_t)rows, columns));
    RT_LT_TRY(rt, "describe a matrix",
              cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    RT_LT_TRY(
        rt, "describe a matrix",
        cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return RT_OK;
}

template <class T>
static int set_attribute(struct rt *rt, rt_lt_plan *plan, cublasLtMatmulDescAttributes_t name, const T &value) {
    RT_LT_TRY(rt, "describe a product", cublasLtMatmulDescSetAttribute(plan->operation, name, &value, sizeof value));
    return RT_OK;
}

/* Addresses of the epilogue's operands: an algorithm may require their alignment. */
static int point_epilogue(struct rt *rt, rt_lt_plan *plan, const rt_finish &finish) {
    const void *bias = finish.summed ? finish.sums : finish.bias;
    if (bias) RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    return finish.sum ? set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, finish.sum) : RT_OK;
}

static int describe_epilogue(struct rt *rt, rt_lt_plan *plan, cublasLtEpilogue_t epilogue) {
    RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    if (plan->shape.finish.sum) RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, plan->shape.n));
    return point_epilogue(rt, plan, plan->shape.finish);
}

static int describe(struct rt *rt, rt_lt_plan *plan, const rt_lt_type *type, cublasLtEpilogue_t epilogue) {
    const rt_product *p = &plan->shape;
    const cublasOperation_t a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    RT_LT_TRY(rt, "describe a product",
              cublasLtMatmulDescCreate(&plan->operation, rt->tf32 ? type->tf32 : type->compute, type->scale));
    RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_TRANSA, b));
    RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_TRANSB, a));
    if (is_finished(p)) RT_TRY(describe_epilogue(rt, plan, epilogue));
    RT_TRY(make_layout(rt, &plan->a, type->element, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->batch));
    RT_TRY(make_layout(rt, &plan->b, type->element, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->batch));
    return make_layout(rt, &plan->y, type->element, p->m, p->n, p->batch);
}

/* The alignment of all matrices of the product, at most that of tensors in arenas: rows of a tensor may have less. */
static uint32_t alignment_of(const rt_product *product) {
    const void *residual = product->finish.residual;
    const uintptr_t bits =
        (uintptr_t)product->a | (uintptr_t)product->b | (uintptr_t)product->y | (uintptr_t)residual | RT_ALIGNMENT;
    return (uint32_t)(bits & (~bits + 1)); /* the lowest bit that is set */
}

/* Preferences for the choice of an algorithm: the workspace, and the alignment of matrices. */
static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference, uint32_t alignment) {
    const uint64_t workspace = RT_PRODUCT_WORKSPACE;
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

static int choose(struct rt *rt, cublasLtHandle_t handle, rt_lt_plan *plan, uint32_t alignment) {
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    RT_LT_TRY(rt, "choose an algorithm", cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = set_preference(preference, alignment);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(handle, plan->operation, plan->b, plan->a, plan->y, plan->y, preference,
                                                1, &found, &n);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && n == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    plan->refused = status == CUBLAS_STATUS_NOT_SUPPORTED && is_finished(&plan->shape);
    if (plan->refused) return RT_OK;
    RT_LT_TRY(rt, "choose an algorithm", status);
    plan->algorithm = found.algo;
    return RT_OK;
}

/* A plan belongs to a shape, an alignment and an epilogue; addresses are passed with each product. */
static bool same_shape(const rt_product *a, const rt_product *b) {
    const rt_finish &f = a->finish, &g = b->finish;
    return a->dtype == b->dtype && a->batch == b->batch && a->m == b->m && a->k == b->k && a->n == b->n &&
           alignment_of(a) == alignment_of(b) && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           f.activation == g.activation && !f.bias == !g.bias && !f.residual == !g.residual && !f.sum == !g.sum &&
           f.summed == g.summed;
}

static void free_plan(rt_lt_plan *plan) {
    if (plan->operation) cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a) cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->y) cublasLtMatrixLayoutDestroy(plan->y);
    free(plan);
}

static void free_plans(rt_lt_plan *plan) {
    for (rt_lt_plan *next; plan; plan = next) {
        next = plan->next;
        free_plan(plan);
    }
}

static int make_plan(struct rt *rt, rt_lt *library, rt_lt_plan *plan, const rt_lt_type *type) {
    const rt_lt_epilogue *row = type->finishes || !is_finished(&plan->shape) ? lt_epilogue_of(&plan->shape) : NULL;
    plan->refused = !row;
    if (!row) return RT_OK;
    RT_TRY(describe(rt, plan, type, row->epilogue));
    return choose(rt, library->handle, plan, alignment_of(&plan->shape));
}

/* The plan of the list for which same(plan) is true; if there is none, one is added that make(plan) fills in. */
template <class S, class M> static int find_plan(struct rt *rt, rt_lt_plan **list, S same, M make, rt_lt_plan **out) {
    for (*out = *list; *out; *out = (*out)->next)
        if (same(*out)) return RT_OK;
    rt_lt_plan *plan = (rt_lt_plan *)calloc(1, sizeof *plan);
    if (!plan) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    const int status = make(plan);
    if (status) {
        free_plan(plan);
        return status;
    }
    plan->next = *list;
    *out = *list = plan;
    rt_cuda_of(rt)->own->nplans++;
    return RT_OK;
}

static int library_product(struct rt *rt, const rt_product *product) {
    rt_lt *library = (rt_lt *)rt_cuda_of(rt)->own->library;
    const rt_lt_type *type = lt_type_of(product->dtype);
    const void *residual = product->finish.residual;
    const double factors64[] = {0, 1};
    const float factors32[] = {0, 1};
    rt_lt_plan *plan;
    if (!type) return -1;
    const auto same = [&](const rt_lt_plan *known) { return same_shape(&known->shape, product); };
    const auto make = [&](rt_lt_plan *made) {
        made->shape = *product;
        return make_plan(rt, library, made, type);
    };
    RT_TRY(find_plan(rt, &library->plans, same, make, &plan));
    if (plan->refused) return -1;
    RT_TRY(point_epilogue(rt, plan, product->finish));
    auto factor = [&](int which) {
        return type->scale == CUDA_R_64F ? (const void *)&factors64[which] : &factors32[which];
    };
    RT_LT_TRY(rt, "multiply",
              cublasLtMatmul(library->handle, plan->operation, factor(1), product->b, plan->b, product->a, plan->a,
                             factor(residual != NULL), residual ? residual : product->y, plan->y, product->y, plan->y,
                             &plan->algorithm, product->workspace, RT_PRODUCT_WORKSPACE, rt_cuda_of(rt)->stream));
    return RT_OK;
}

/* Note [Products of 8-bit floats]
 * The library supports only transposed A and non-transposed B in column-major order: both are contiguous along k, like
 * row-major a(m,k) and b(n,k). Extents must be multiples of 16. Scales are read from GPU memory when the product
 * runs. */
static cudaDataType_t lt_element_of(enum rt_fp8 format) {
    return format == RT_FP8_E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

static int check_fp8(struct rt *rt) {
    int major = 0, minor = 0;
    RT_CUDA_TRY(rt, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, rt_cuda_of(rt)->own->number));
    RT_CUDA_TRY(rt, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, rt_cuda_of(rt)->own->number));
    if (major * 10 + minor >= 89) return RT_OK;
    return rt_fail(rt, RT_ERROR_DEVICE,
                   "this GPU has compute capability %d.%d; products of 8-bit floats need at least 8.9", major, minor);
}

static int describe_scaled(struct rt *rt, rt_lt_plan *plan) {
    const rt_scaled_product *p = &plan->scaled;
    const cublasOperation_t turned = CUBLAS_OP_T, straight = CUBLAS_OP_N;
    const int8_t fast = (int8_t)p->fast;
    const rt_lt_type *type = lt_type_of(p->dtype);
    RT_LT_TRY(rt, "describe a product", cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_TRANSA, turned));
    RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_TRANSB, straight));
    RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast));
    RT_TRY(make_layout(rt, &plan->a, lt_element_of(p->format_a), p->m, p->k, 1));
    RT_TRY(make_layout(rt, &plan->b, lt_element_of(p->format_b), p->n, p->k, 1));
    return make_layout(rt, &plan->y, type->element, p->m, p->n, 1);
}

static int point_scales(struct rt *rt, rt_lt_plan *plan, const rt_scaled_product *product) {
    RT_TRY(set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, product->unscale_b));
    return set_attribute(rt, plan, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, product->unscale_a);
}

static int make_scaled(struct rt *rt, rt_lt *library, rt_lt_plan *plan) {
    RT_TRY(check_fp8(rt));
    RT_TRY(describe_scaled(rt, plan));
    RT_TRY(point_scales(rt, plan, &plan->scaled));
    return choose(rt, library->handle, plan, RT_ALIGNMENT);
}

static bool same_scaled(const rt_scaled_product *a, const rt_scaled_product *b) {
    return a->dtype == b->dtype && a->m == b->m && a->k == b->k && a->n == b->n && a->format_a == b->format_a &&
           a->format_b == b->format_b && a->fast == b->fast;
}

static int library_scaled(struct rt *rt, const rt_scaled_product *product) {
    rt_lt *library = (rt_lt *)rt_cuda_of(rt)->own->library;
    const float one = 1, zero = 0;
    rt_lt_plan *plan;
    const auto same = [&](const rt_lt_plan *known) { return same_scaled(&known->scaled, product); };
    const auto make = [&](rt_lt_plan *made) {
        made->scaled = *product;
        return make_scaled(rt, library, made);
    };
    RT_TRY(find_plan(rt, &library->scaled, same, make, &plan));
    RT_TRY(point_scales(rt, plan, product));
    RT_LT_TRY(rt, "multiply",
              cublasLtMatmul(library->handle, plan->operation, &one, product->b, plan->b, product->a, plan->a, &zero,
                             product->y, plan->y, product->y, plan->y, &plan->algorithm, product->workspace,
                             RT_PRODUCT_WORKSPACE, rt_cuda_of(rt)->stream));
    return RT_OK;
}

int rt_cuda_open_library(struct rt *rt) {
    rt_lt *library = (rt_lt *)calloc(1, sizeof *library);
    rt_cuda_of(rt)->own->library = library;
    if (!library) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    RT_LT_TRY(rt, "start", cublasLtCreate(&library->handle));
    rt_cuda_of(rt)->product = library_product;
    rt_cuda_of(rt)->scaled_product = library_scaled;
    return RT_OK;
}

void rt_cuda_forget_products(struct rt *rt) {
    rt_lt *library = (rt_lt *)rt_cuda_of(rt)->own->library;
    if (!library) return;
    free_plans(library->plans);
    free_plans(library->scaled);
    library->plans = library->scaled = NULL;
}

void rt_cuda_close_library(struct rt *rt) {
    rt_lt *library = (rt_lt *)rt_cuda_of(rt)->own->library;
    if (!library) return;
    rt_cuda_forget_products(rt);
    if (library->handle) cublasLtDestroy(library->handle);
    free(library);
}

#else /* products are the kernels of product.cuh */

int rt_cuda_open_library(struct rt *) {
    return RT_OK;
}

void rt_cuda_close_library(struct rt *) {}
void rt_cuda_forget_products(struct rt *) {}

#endif

#endif
