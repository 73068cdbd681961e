#include "codegen/target/target.h"

#include <string.h>

#include "codegen/kernel/row_buffers.h"
#include "passes/pipeline.h"
#include "runtime/base/scratch.h"
#include "runtime/base/shape/conv_room.h"
#include "runtime/base/shape/linear_attention.h"
#include "runtime/base/shape/recurrence.h"

/* Functions of the C library by type, and of runtime/kernels/c/math.h. */
const struct target_function target_c_functions[] = {{"abs", "rt_abs_%", NULL},
                                                     {"acos", "rt_acos_f32", "acos"},
                                                     {"acosh", "rt_acosh_f32", "acosh"},
                                                     {"asin", "rt_asin_f32", "asin"},
                                                     {"asinh", "rt_asinh_f32", "asinh"},
                                                     {"atan", "rt_atan_f32", "atan"},
                                                     {"atanh", "rt_atanh_f32", "atanh"},
                                                     {"bit_and", "rt_bit_and_%", NULL},
                                                     {"bit_or", "rt_bit_or_%", NULL},
                                                     {"bit_xor", "rt_bit_xor_%", NULL},
                                                     {"ceil", "ceilf", "ceil"},
                                                     {"clamp", "rt_clamp_%", NULL},
                                                     {"cos", "rt_cos_f32", "cos"},
                                                     {"cosh", "rt_cosh_f32", "cosh"},
                                                     {"erf", "rt_erf_%", NULL},
                                                     {"exp", "rt_exp_%", NULL},
                                                     {"floor", "floorf", "floor"},
                                                     {"fma", "fmaf", "fma"},
                                                     {"fmod", "rt_fmod_%", NULL},
                                                     {"isinf", "isinf", "isinf"},
                                                     {"isnan", "isnan", "isnan"},
                                                     {"log", "rt_log_%", NULL},
                                                     {"max", "rt_max_%", NULL},
                                                     {"min", "rt_min_%", NULL},
                                                     {"mod", "rt_mod_%", NULL},
                                                     {"pow", "rt_pow_%", NULL},
                                                     {"round", "rt_round_%", NULL},
                                                     {"sigmoid", "rt_sigmoid_%", NULL},
                                                     {"shift_left", "rt_shift_left_%", NULL},
                                                     {"shift_right", "rt_shift_right_%", NULL},
                                                     {"sign", "rt_sign_%", NULL},
                                                     {"sin", "rt_sin_f32", "sin"},
                                                     {"sinh", "rt_sinh_f32", "sinh"},
                                                     {"softplus", "rt_softplus_%", NULL},
                                                     {"sqrt", "sqrtf", "sqrt"},
                                                     {"tan", "rt_tan_f32", "tan"},
                                                     {"tanh", "rt_tanh_%", NULL},
                                                     {"bf16", "rt_round_bf16", NULL},
                                                     {"fp16", "rt_round_fp16", NULL},
                                                     {NULL, NULL, NULL}};

const struct target_arguments target_c_arguments = {
    .array = "(const %[]){", .no_array = "NULL", .structure = "&(struct %){", .restricted = "restrict"};

static const struct target_file files[] = {TARGET_HOST_FILES, {"c/Makefile.in", "Makefile"}, {NULL, NULL}};

int64_t target_dtype_bytes(const struct graph *graph, int tensor) {
    return (int64_t)rt_dtype_bytes(graph->tensors.at[tensor].dtype);
}

int64_t target_recurrence_states(const struct rank_class *class, const struct node *node) {
    const int x = node->inputs[node->op->id == OP_RecurrenceGrad ? 2 : 0];
    const int weights = node->inputs[node->op->id == OP_RecurrenceGrad ? 3 : 1];
    const int64_t h = class->dims[weights][1], gates = h ? class->dims[x][2] / h : 0;
    return class->dims[x][1] * h * (gates + RT_RECURRENCE_STATES);
}

int64_t target_recurrence_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const int64_t *weights = class->dims[node->inputs[1]], gates = weights[1] ? weights[0] / weights[1] : 0;
    const bool packs = node->op->id == OP_Recurrence;
    return target_dtype_bytes(graph, node->outputs[0]) *
           (target_recurrence_states(class, node) + (packs ? rt_recurrence_packed(gates, weights[1]) : 0));
}

int64_t target_det_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const int x = node->inputs[node->op->id == OP_DetGrad];
    const int64_t n = class->dims[x][graph->tensors.at[x].ndim - 1];
    const int64_t elements = n ? rankplan_elements(class, graph, x) / (n * n) * RT_DET_WORKSPACE(n) : 0;
    return target_dtype_bytes(graph, node->outputs[0]) * elements;
}

/* Of convolutions of channels last whose weights are not packed. */
static int64_t target_conv_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    if (!attr_int(node, "channels_last", 0) || attr_int(node, "packed", 0)) return 0;
    const int last = graph->tensors.at[node->inputs[0]].ndim - 1, y = node->outputs[0];
    const int64_t *in = class->dims[node->inputs[0]], *out = class->dims[y], size = (int64_t)sizeof(float);
    const int64_t *w = node->op->id == OP_ConvWeightGrad ? out : class->dims[node->inputs[1]];
    int64_t taps = 1, pixels = 1, stride = 1;
    int n;
    const int64_t *strides = attr_ints(node, "stride", &n);
    for (int d = 0; d < n; d++) taps *= w[2 + d], stride *= strides[d];
    if (node->op->id == OP_Conv) return size * rt_conv_room(taps * in[last], out[last]);
    if (node->op->id == OP_ConvTranspose)
        return size *
               rt_conv_transpose_room(taps, out[last], in[last], stride > 1 ? rankplan_elements(class, graph, y) : 0);
    const int64_t *dy = class->dims[node->inputs[1]];
    for (int d = 0; d < last; d++) pixels *= dy[d];
    return size * rt_conv_weight_grad_room(pixels, dy[last], taps * in[last]);
}

int64_t target_linear_attention_bytes(const struct graph *graph, const struct rank_class *class,
                                      const struct node *node) {
    const int64_t *state = class->dims[node->inputs[4]], heads = state[0] * state[1];
    const int64_t slots = heads < RT_LINEAR_ATTENTION_SLOTS ? heads : RT_LINEAR_ATTENTION_SLOTS;
    return target_dtype_bytes(graph, node->outputs[0]) * slots *
           rt_linear_attention_workspace(class->dims[node->inputs[0]][1], state[2], state[3]);
}

int64_t target_ring_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    int moved[4];
    const bool gradient = op_ring_tensors(node, moved) > 2;
    const int q = node->inputs[gradient], k = moved[0], v = moved[1];
    const int axis = (int)attr_int(node, "mesh", 0), line = graph->tensors.at[k].ndim - 1;
    const struct node_split *split = &node->split[axis];
    const int64_t keys = graph->tensors.at[k].dims[line - 1];
    const struct rt_cut cut = {keys, split->blocks, split->grain, graph->mesh.axis[axis].size};
    /* the largest part: that of the first rank, and of open sizes any, since all are equal */
    const int64_t most = open_is(graph->open, keys) ? class->dims[k][line - 1] : rt_cut_extent(&cut, 0);
    const int64_t bytes = (int64_t)rt_dtype_bytes(graph->tensors.at[k].dtype);
    int64_t lines = 1, rows = 1;
    for (int d = 0; d < line - 1; d++) lines *= class->dims[k][d];
    for (int d = 0; d < line; d++) rows *= class->dims[q][d];
    const int64_t part = rt_ring_part_bytes(lines, most, (class->dims[k][line] + class->dims[v][line]) * bytes);
    return gradient ? 2 * part : part + rows * class->dims[v][line] * (int64_t)sizeof(float);
}

#define KERNEL(op, c, cuda) [OP_##op] = {c},
#define C(...)              __VA_ARGS__
const struct target_kernel target_c_kernels[NOPS + 1] = {
#include "codegen/target/kernels.def"
};

const struct target target_c = {.name = "c",
                                .help = "C11 for CPUs",
                                .source_suffix = ".c",
                                .head_template = "c/head.c.in",
                                .elementwise_template = "c/elementwise.c.in",
                                .epilogue_template = "c/epilogue.c.in",
                                .rows = &row_buffers,
                                .rows_template = "c/rows.c.in",
                                .columns_template = "c/columns.c.in",
                                .exact_rows = true,
                                .files = files,
                                .functions = target_c_functions,
                                .call_prefix = "rt_",
                                .arguments = &target_c_arguments,
                                .cast_to_half = "rt_cast_all_f32_",
                                .copy = "memcpy(",
                                .device = "rt_host",
                                .kernels = {.of = target_c_kernels}};

const struct target *const targets[] = {&target_c, &target_cuda, NULL};

struct pass_context target_pass_context(const struct target *target) {
    return (struct pass_context){.library_products = target->library_products,
                                 .block_epilogues = target->epilogue_template != NULL,
                                 .row_programs = target->rows != NULL,
                                 .exact_rows = target->exact_rows,
                                 .kernels = target->kernels.of};
}

const struct target *target_find(const char *name) {
    for (int i = 0; targets[i]; i++)
        if (strcmp(targets[i]->name, name) == 0) return targets[i];
    return NULL;
}
