#include "codegen/target.h"

#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/scratch.h"

static int64_t score_bytes(const struct graph *graph, const struct plan_class *class, const struct node *node) {
    const int64_t *q = class->dims[node->inputs[0]], *k = class->dims[node->inputs[1]];
    int ndim = graph->tensors.at[node->inputs[0]].ndim;
    int64_t bytes = k[ndim - 2] * (int64_t)rt_dtype_bytes(graph->tensors.at[node->inputs[0]].dtype);
    for (int d = 0; d < ndim - 1; d++) bytes *= q[d];
    return rt_align(bytes, RT_SCORES_ALIGNMENT);
}

static int64_t scratch_of(const struct graph *graph, const struct plan_class *class, const struct node *node) {
    if (strcmp(node->op->name, "SumSquares") == 0) return RT_SQUARE_BLOCKS * (int64_t)sizeof(double);
    if (strcmp(node->op->name, "MatMul") == 0) return RT_PRODUCT_WORKSPACE;
    if (strcmp(node->op->name, "Attention") == 0) return score_bytes(graph, class, node) + RT_PRODUCT_WORKSPACE;
    return 0;
}

static const struct target_arguments arguments = {
    .names_rank = true, .array = "{", .no_array = "{}", .structure = "{", .restricted = "__restrict__",
    .later = "[&] { "};

static const struct target_file files[] = {{"model.h.in", "model.h"},
                                           {"c/model.c.in", "model.c"},
                                           {"c/main.c.in", "main.c"},
                                           {"cuda/device.cu.in", "device.cu"},
                                           {"cuda/Makefile.in", "Makefile"},
                                           {NULL, NULL}};

const struct target target_cuda = {.name = "cuda",
                                   .help = "CUDA for GPUs",
                                   .source_suffix = ".cu",
                                   .rank_template = "cuda/rank.cu.in",
                                   .elementwise_template = "cuda/elementwise.cu.in",
                                   .files = files,
                                   .functions = target_c_functions,
                                   .call_prefix = "rt_",
                                   .arguments = &arguments,
                                   .copy = "rt_copy(rt, ",
                                   .device = "rt_cuda_device",
                                   .library_products = true,
                                   .kernels = {.holds_inputs = true, .scratch = scratch_of}};
