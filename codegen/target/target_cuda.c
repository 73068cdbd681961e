#include "codegen/kernel/row_threads.h"
#include "codegen/target/target.h"
#include "passes/pipeline.h"
#include "passes/plan/machine/attention_time.h"
#include "runtime/base/scratch.h"

/* Bytes of an accumulator for sums of the tensor's type: at least f32. */
static int64_t sum_bytes(const struct graph *graph, int tensor) {
    int64_t bytes = target_dtype_bytes(graph, tensor);
    return bytes < (int64_t)sizeof(float) ? (int64_t)sizeof(float) : bytes;
}

static int64_t chunks_bytes(const struct graph *graph, int tensor, int64_t outer, int64_t r, int64_t inner) {
    int64_t chunks = rt_reduce_chunks_of(outer, r, inner);
    if (graph->open) return rt_reduce_parts_most(outer, r, inner) * sum_bytes(graph, tensor);
    return chunks > 1 ? chunks * outer * inner * sum_bytes(graph, tensor) : 0;
}

static int64_t workspace_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    (void)graph, (void)class, (void)node;
    return RT_PRODUCT_WORKSPACE;
}

/* The library's workspace. It is also used for partial sums of an operand, if the library does not compute that sum. */
static int64_t product_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    int summed = node->inputs[attr_int(node, "sums", 0)];
    const int64_t *rows = class->dims[summed];
    int64_t chunks = attr_find(node, "sums") ? chunks_bytes(graph, summed, 1, rows[0], rows[1]) : 0;
    return chunks > RT_PRODUCT_WORKSPACE ? chunks : RT_PRODUCT_WORKSPACE;
}

static int64_t attention_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const int64_t *q = class->dims[node->inputs[0]], *k = class->dims[node->inputs[1]];
    int ndim = graph->tensors.at[node->inputs[0]].ndim;
    int64_t scores = k[ndim - 2] * target_dtype_bytes(graph, node->inputs[0]);
    for (int d = 0; d < ndim - 1; d++) scores *= q[d];
    return rt_behind_scores(scores) + RT_PRODUCT_WORKSPACE;
}

static int64_t square_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    (void)graph, (void)class, (void)node;
    return RT_SQUARE_BLOCKS * (int64_t)sizeof(double);
}

static int64_t reduce_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const int64_t *x = class->dims[node->inputs[0]];
    int naxes, ndim = graph->tensors.at[node->inputs[0]].ndim;
    const int64_t *axes = attr_ints(node, "axes", &naxes);
    int64_t around[3] = {1, 1, 1}; /* products of the extents before, of and after the reduced dimensions */
    for (int d = 0; d < ndim && naxes; d++) around[d < axes[0] ? 0 : d <= axes[naxes - 1] ? 1 : 2] *= x[d];
    return chunks_bytes(graph, node->inputs[0], around[0], around[1], around[2]);
}

static int64_t flash_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const int64_t *q = class->dims[node->inputs[0]], *k = class->dims[node->inputs[1]],
                  *v = class->dims[node->inputs[2]];
    const int ndim = graph->tensors.at[node->inputs[0]].ndim;
    const int64_t workspace = library_attention(graph, node, q, k, v) ? workspace_bytes(graph, class, node) : 0;
    int64_t heads = 1;
    for (int d = 0; d < ndim - 2; d++) heads *= k[d];
    if (heads == 0) return workspace;
    const int64_t few = rt_flash_bytes(heads, q[ndim - 3] / k[ndim - 3] * q[ndim - 2], k[ndim - 2], v[ndim - 1]);
    return few > workspace ? few : workspace;
}

/* One f32 for each row of queries. If a library computes it: two, and its workspace. */
static int64_t flash_grad_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const int64_t *q = class->dims[node->inputs[1]], *k = class->dims[node->inputs[2]],
                  *v = class->dims[node->inputs[3]];
    const int64_t rows = rankplan_elements(class, graph, node->inputs[5]) / 2 * (int64_t)sizeof(float);
    const int ndim = graph->tensors.at[node->inputs[1]].ndim;
    int64_t batch = 1;
    if (rows == 0 || !library_attention(graph, node, q, k, v)) return rows;
    for (int d = 0; d < ndim - 3; d++) batch *= k[d];
    const struct rt_attend_size size = library_attention_size(graph, node, q, k, v);
    const struct rt_attend_part part = rt_attend_part_of(&size, batch, k[ndim - 3]);
    return rt_behind_scores(2 * rows) + rt_attend_bytes(&size, part.batch * part.heads);
}

/* Behind what the kernels of flash attention use; dq in f32 between their calls. */
static int64_t ring_grad_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    return rt_behind_scores(flash_grad_bytes(graph, class, node)) + target_ring_bytes(graph, class, node) +
           rankplan_elements(class, graph, node->inputs[1]) * (int64_t)sizeof(float);
}

static int64_t gather_grad_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    return rt_sort_bytes(rankplan_elements(class, graph, node->inputs[1]));
}

/* A step's states, and a library's workspace. The gradient of a GRU without reset_after keeps a state of every step. */
static int64_t recurrence_bytes_of_gpu(const struct graph *graph, const struct rank_class *class,
                                       const struct node *node) {
    const int64_t bytes = target_dtype_bytes(graph, node->outputs[0]);
    const int64_t states = node->noutputs > 2 ? rankplan_bytes(class, graph, node->outputs[2]) : 0;
    return rt_behind_scores(bytes * target_recurrence_states(class, node) + states) + RT_PRODUCT_WORKSPACE;
}

static int64_t expert_grad_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    return rt_sort_bytes(rankplan_elements(class, graph, node->inputs[2]));
}

#define KERNEL(op, c, cuda) [OP_##op] = {cuda},
#define CUDA(...)           __VA_ARGS__
static const struct target_kernel kernels[NOPS + 1] = {
#include "codegen/target/kernels.def"
};

static const struct target_arguments arguments = {.names_rank = true,
                                                  .sized_heads = true,
                                                  .array = "{",
                                                  .no_array = "{}",
                                                  .structure = "{",
                                                  .restricted = "__restrict__",
                                                  .later = "[&] { "};

static const struct target_file files[] = {
    TARGET_HOST_FILES, {"cuda/device.cu.in", "device.cu"}, {"cuda/Makefile.in", "Makefile"}, {NULL, NULL}};

const struct target target_cuda = {.name = "cuda",
                                   .help = "CUDA for GPUs",
                                   .source_suffix = ".cu",
                                   .head_template = "cuda/head.cu.in",
                                   .linkage = "extern \"C\" ",
                                   .elementwise_template = "cuda/elementwise.cu.in",
                                   .vector_template = "cuda/elementwise_vector.cu.in",
                                   .rows = &row_threads,
                                   .rows_template = "cuda/rows.cu.in",
                                   .columns_template = "cuda/columns.cu.in",
                                   .files = files,
                                   .functions = target_c_functions,
                                   .call_prefix = "rt_",
                                   .arguments = &arguments,
                                   .copy = "rt_copy(rt, ",
                                   .device = "rt_cuda_device",
                                   .unsafe_in_paths = "\"$`\\", /* nvcc runs a shell with the path in double quotes */
                                   .user_kernel = USER_CUDA,
                                   .library_products = true,
                                   .holds_launches = true,
                                   .kernels = {.holds_inputs = true, .of = kernels}};
