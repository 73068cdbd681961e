/* What the products of a step take at least: by cuBLASLt alone, each by the fastest of the algorithms that it proposes.
 *
 *     products < PRODUCTS
 *
 * A line "COUNT TYPE BATCH M K N TRANS_A TRANS_B" each: y(m,n) = a(m,k) b(k,n), COUNT times in a step; TYPE is bf16,
 * fp16 or f32, sums are in f32. Prints {"ms": of all, "products": n}. Operands are random, since zeros are multiplied
 * faster. */
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if (const int status = (int)(call)) {                                                                          \
            fprintf(stderr, "products.cu:%d: %s: %d\n", __LINE__, #call, status);                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { ALGORITHMS = 8, WARM = 3, OPERANDS = 3 };
static const size_t workspace_bytes = (size_t)32 << 20, random_bytes = (size_t)1 << 20;
static const double least_seconds = 5e-3; /* of a measurement */

struct type {
    const char *name;
    cudaDataType element;
    size_t bytes;
};
static const type types[] = {{"bf16", CUDA_R_16BF, 2}, {"fp16", CUDA_R_16F, 2}, {"f32", CUDA_R_32F, 4}};

struct product {
    const type *of;
    int count, trans_a, trans_b;
    long long batch, m, k, n;
};

struct gpu {
    cublasLtHandle_t handle;
    cudaStream_t stream;
    void *workspace, *operand[OPERANDS];
    size_t bytes[OPERANDS];
};

static double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* Numbers of about 1 in every type: exponents of 16-bit floats and f32 are alike in their upper halves. */
static void fill(gpu *gpu, void *memory, size_t bytes) {
    static uint16_t values[random_bytes / sizeof(uint16_t)];
    uint32_t state = 1;
    for (uint16_t &value : values) {
        state = state * 1664525u + 1013904223u;
        value = (uint16_t)(0x3c00 + (state >> 16 & 0x83ff));
    }
    for (size_t at = 0; at < bytes; at += random_bytes)
        TRY(cudaMemcpyAsync((char *)memory + at, values, bytes - at < random_bytes ? bytes - at : random_bytes,
                            cudaMemcpyHostToDevice, gpu->stream));
}

static void *room(gpu *gpu, int which, size_t bytes) {
    if (bytes > gpu->bytes[which]) {
        if (gpu->operand[which]) TRY(cudaFree(gpu->operand[which]));
        TRY(cudaMalloc(&gpu->operand[which], bytes));
        fill(gpu, gpu->operand[which], gpu->bytes[which] = bytes);
    }
    return gpu->operand[which];
}

/* The library's matrices are column-major: (rows,columns) of ours is (columns,rows) of theirs. */
static cublasLtMatrixLayout_t layout(const product *p, long long rows, long long columns) {
    cublasLtMatrixLayout_t made;
    const int32_t count = (int32_t)p->batch;
    const int64_t stride = rows * columns;
    TRY(cublasLtMatrixLayoutCreate(&made, p->of->element, (uint64_t)columns, (uint64_t)rows, columns));
    TRY(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    TRY(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return made;
}

static cublasLtMatmulDesc_t operation(const product *p) {
    cublasLtMatmulDesc_t made;
    const cublasOperation_t a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    TRY(cublasLtMatmulDescSetAttribute(made, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b));
    TRY(cublasLtMatmulDescSetAttribute(made, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a));
    return made;
}

/* y = a b of ours is y = b a of theirs. */
static double time_product(gpu *gpu, const product *p) {
    const size_t of_a = (size_t)(p->batch * p->m * p->k), of_b = (size_t)(p->batch * p->k * p->n),
                 of_y = (size_t)(p->batch * p->m * p->n);
    void *a = room(gpu, 0, of_a * p->of->bytes), *b = room(gpu, 1, of_b * p->of->bytes),
         *y = room(gpu, 2, of_y * p->of->bytes);
    const cublasLtMatrixLayout_t as = p->trans_a ? layout(p, p->k, p->m) : layout(p, p->m, p->k),
                                 bs = p->trans_b ? layout(p, p->n, p->k) : layout(p, p->k, p->n),
                                 ys = layout(p, p->m, p->n);
    const cublasLtMatmulDesc_t desc = operation(p);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    const uint64_t most = workspace_bytes;
    int n = 0;
    TRY(cublasLtMatmulPreferenceCreate(&preference));
    TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    TRY(cublasLtMatmulAlgoGetHeuristic(gpu->handle, desc, bs, as, ys, ys, preference, ALGORITHMS, found, &n));

    const float one = 1, zero = 0;
    auto multiply = [&](const cublasLtMatmulAlgo_t *algorithm, int times) {
        const double begin = seconds();
        for (int i = 0; i < times; i++)
            TRY(cublasLtMatmul(gpu->handle, desc, &one, b, bs, a, as, &zero, y, ys, y, ys, algorithm, gpu->workspace,
                               workspace_bytes, gpu->stream));
        TRY(cudaStreamSynchronize(gpu->stream));
        return seconds() - begin;
    };
    double best = 0;
    for (int i = 0; i < n; i++) {
        const double rough = multiply(&found[i].algo, WARM) / (double)WARM;
        const int times = rough < least_seconds ? (int)(least_seconds / rough) + 1 : 1;
        const double taken = multiply(&found[i].algo, times) / times;
        if (i == 0 || taken < best) best = taken;
    }
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(desc);
    for (cublasLtMatrixLayout_t made : {as, bs, ys}) cublasLtMatrixLayoutDestroy(made);
    if (!n) fprintf(stderr, "no algorithm for a product of %lld, %lld, %lld\n", p->m, p->k, p->n), exit(1);
    return best;
}

static bool read_product(product *p) {
    char name[8];
    if (scanf("%d %7s %lld %lld %lld %lld %d %d", &p->count, name, &p->batch, &p->m, &p->k, &p->n, &p->trans_a,
              &p->trans_b) != 8)
        return false;
    for (const type &type : types)
        if (strcmp(type.name, name) == 0) p->of = &type;
    return p->of != nullptr;
}

int main() {
    gpu gpu = {};
    double sum = 0;
    int products = 0;
    TRY(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
    TRY(cublasLtCreate(&gpu.handle));
    TRY(cudaMalloc(&gpu.workspace, workspace_bytes));
    for (product p = {}; read_product(&p); p = {}) sum += p.count * time_product(&gpu, &p), products += p.count;
    printf("{\"ms\": %g, \"products\": %d}\n", sum * 1e3, products);
    return !feof(stdin);
}
