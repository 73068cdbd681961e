/* bf16 products on processors with AMX: by oneDNN, which sums in f32 and rounds once. On other processors oneDNN would
 * convert the operands, or multiply pairs, which is slower on Intel's than f32, and than gemm_pairs.c on AMD's.
 *
 * Note [Kept products]
 * oneDNN generates code for every shape. Each thread caches recent ones in a direct-mapped table indexed by a hash of
 * the shape: a step requests the same few shapes again and again. */
#include "gemm.h"

#include "gemm_pairs.h"

#ifdef RT_HAVE_ONEDNN

#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <string.h>

#define KEPT 64

enum { LEFT, RIGHT, RESULT, OPERANDS };
static const int argument_of[OPERANDS] = {[LEFT] = DNNL_ARG_SRC, [RIGHT] = DNNL_ARG_WEIGHTS, [RESULT] = DNNL_ARG_DST};

/* Key of oneDNN's generated code: extents, and distances between elements. */
struct shape {
    dnnl_dims_t dims[OPERANDS], strides[OPERANDS];
};

struct kept {
    struct shape shape;
    dnnl_primitive_t primitive; /* NULL: the place is free */
    dnnl_memory_t memory[OPERANDS];
};

static dnnl_engine_t engine;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static _Thread_local dnnl_stream_t stream;
static _Thread_local struct kept kept[KEPT];

static void make_engine(void) {
    if (dnnl_engine_create(&engine, dnnl_cpu, 0)) engine = NULL;
}

int rt_gemm_has_tiles(void) {
    const unsigned needed = dnnl_cpu_isa_avx512_core_amx;
    return ((unsigned)dnnl_get_effective_cpu_isa() & needed) == needed;
}

static struct shape shape_of(int64_t y_row, int64_t a_row, int trans_a, int64_t b_row, int trans_b, int64_t m,
                             int64_t k, int64_t n) {
    struct shape shape;
    memset(&shape, 0, sizeof shape);
    const int64_t dims[OPERANDS][2] = {{m, k}, {k, n}, {m, n}};
    const int64_t strides[OPERANDS][2] = {
        {trans_a ? 1 : a_row, trans_a ? a_row : 1}, {trans_b ? 1 : b_row, trans_b ? b_row : 1}, {y_row, 1}};
    for (int i = 0; i < OPERANDS; i++) {
        memcpy(shape.dims[i], dims[i], sizeof dims[i]);
        memcpy(shape.strides[i], strides[i], sizeof strides[i]);
    }
    return shape;
}

static void forget(struct kept *entry) {
    for (int i = 0; i < OPERANDS; i++)
        if (entry->memory[i]) dnnl_memory_destroy(entry->memory[i]);
    if (entry->primitive) dnnl_primitive_destroy(entry->primitive);
    memset(entry, 0, sizeof *entry);
}

static int make_primitive(dnnl_primitive_t *primitive, const dnnl_memory_desc_t *memory) {
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t description;
    if (dnnl_matmul_desc_init(&matmul, &memory[LEFT], &memory[RIGHT], NULL, &memory[RESULT])) return -1;
    if (dnnl_primitive_desc_create(&description, &matmul, NULL, engine, NULL)) return -1;
    int status = dnnl_primitive_create(primitive, description) ? -1 : 0;
    dnnl_primitive_desc_destroy(description);
    return status;
}

static int make(struct kept *entry, const struct shape *shape) {
    dnnl_memory_desc_t memory[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        if (dnnl_memory_desc_init_by_strides(&memory[i], 2, shape->dims[i], dnnl_bf16, shape->strides[i])) return -1;
        if (dnnl_memory_create(&entry->memory[i], &memory[i], engine, DNNL_MEMORY_NONE)) return -1;
    }
    entry->shape = *shape;
    return make_primitive(&entry->primitive, memory);
}

static struct kept *find(const struct shape *shape) {
    uint64_t hash = 0;
    for (int i = 0; i < OPERANDS; i++)
        for (int d = 0; d < 2; d++)
            hash = (hash ^ (uint64_t)shape->dims[i][d] ^ (uint64_t)shape->strides[i][d] << 20) * 0x9e3779b97f4a7c15u;
    struct kept *entry = &kept[hash >> 58];
    if (entry->primitive && memcmp(&entry->shape, shape, sizeof *shape) == 0) return entry;
    forget(entry);
    if (make(entry, shape) == 0) return entry;
    forget(entry);
    return NULL;
}

static int execute(const struct kept *entry, void *const data[OPERANDS]) {
    dnnl_exec_arg_t arguments[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        if (dnnl_memory_set_data_handle(entry->memory[i], data[i])) return -1;
        arguments[i] = (dnnl_exec_arg_t){argument_of[i], entry->memory[i]};
    }
    return dnnl_primitive_execute(entry->primitive, stream, OPERANDS, arguments) || dnnl_stream_wait(stream) ? -1 : 0;
}

static int multiply(const struct shape *shape, void *const data[OPERANDS]) {
    pthread_once(&engine_once, make_engine);
    if (!engine || (!stream && dnnl_stream_create(&stream, engine, dnnl_stream_default_flags))) return -1;
    const struct kept *entry = find(shape);
    return entry ? execute(entry, data) : -1;
}

int rt_gemm_onednn_bf16(RT_GEMM_OPERANDS(uint16_t)) {
    const struct shape shape = shape_of(y_row, a_row, trans_a, b_row, trans_b, m, k, n);
    void *const data[OPERANDS] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, y}; /* it reads a and b */
    int threads = omp_get_max_threads();
    omp_set_num_threads(1); /* as rt_gemm_library_f32 */
    int status = multiply(&shape, data);
    omp_set_num_threads(threads);
    return status;
}

#else

int rt_gemm_has_tiles(void) {
    return 0;
}

int rt_gemm_onednn_bf16(RT_GEMM_OPERANDS(uint16_t)) {
    (void)y, (void)y_row, (void)a, (void)a_row, (void)trans_a, (void)b, (void)b_row, (void)trans_b, (void)m, (void)k,
        (void)n;
    return -1;
}

#endif

int rt_gemm_has_best_bf16(void) {
    return rt_processor_has_pairs() || rt_gemm_library_present();
}

int rt_gemm_best_bf16(RT_GEMM_OPERANDS(uint16_t)) {
    if (rt_processor_has_pairs()) {
        rt_gemm_pairs(y, y_row, a, a_row, trans_a, b, b_row, trans_b, m, k, n);
        return 0;
    }
    if (rt_gemm_has_tiles() && !rt_gemm_onednn_bf16(y, y_row, a, a_row, trans_a, b, b_row, trans_b, m, k, n)) return 0;
    return rt_gemm_library_bf16(y, y_row, a, a_row, trans_a, b, b_row, trans_b, m, k, n);
}
