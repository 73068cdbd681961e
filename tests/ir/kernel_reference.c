#include "tests/ir/kernel_reference.h"

#include <string.h>

#include "runtime/kernels/c/kernels.h"
#include "runtime/generated.h"

/* A node's operands. */
struct call {
    struct rt *rt;
    struct graph *graph;
    const struct node *node;
    double **y; /* its results */
};

static const struct tensor *input(const struct call *call, int i) {
    const int id = i < call->node->ninputs ? call->node->inputs[i] : -1;
    return id < 0 ? NULL : &call->graph->tensors.at[id];
}

static const void *x(const struct call *call, int i) {
    const struct tensor *tensor = input(call, i);
    return tensor ? tensor->data : NULL;
}

static struct rt_gate gate_of(const struct node *node, const char *name, const char *alpha, const char *beta) {
    static const char *const names[] = {
#define GATE(id, name, ...) name,
        RT_GATES(GATE)
#undef GATE
    };
    struct rt_gate gate = {RT_GATE_NONE, attr_float(node, alpha, 0), attr_float(node, beta, 0)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], attr_text(node, name, "none")) == 0) gate.function = (enum rt_gate_function)i;
    return gate;
}

static void recurrence(const struct call *call) {
    static const char *const names[] = {
#define CELL(id, name, gates, states) name,
        RT_CELLS(CELL)
#undef CELL
    };
    const struct node *node = call->node;
    const bool back = node->op->id == OP_RecurrenceGrad;
    const int first = back ? 2 : 0;
    struct rt_recurrence shape = {.t = input(call, first)->dims[0],
                                  .b = input(call, first)->dims[1],
                                  .h = input(call, first + 1)->dims[1],
                                  .reverse = (int)attr_int(node, "reverse", 0),
                                  .reset_after = (int)attr_int(node, "reset_after", 0),
                                  .coupled = (int)attr_int(node, "coupled", 0),
                                  .clip = attr_float(node, "clip", 0),
                                  .gate = gate_of(node, "gate", "gate_alpha", "gate_beta"),
                                  .candidate = gate_of(node, "candidate", "candidate_alpha", "candidate_beta"),
                                  .output = gate_of(node, "output", "output_alpha", "output_beta")};
    while (strcmp(names[shape.cell], attr_text(node, "cell", "")) != 0) shape.cell++;
    const int64_t states = rt_cell_gates(shape.cell) + RT_RECURRENCE_STATES;
    const int64_t packed = rt_recurrence_packed(rt_cell_gates(shape.cell), shape.h);
    double *workspace = ARENA_ARRAY(call->graph->arena, double, shape.b *shape.h *states + packed + 1);
    if (back)
        rt_recurrence_grad_f64(call->rt, call->y[0], call->y[1], node->noutputs > 2 ? call->y[2] : NULL, x(call, 0),
                               x(call, 1), x(call, 2), x(call, 3), x(call, 4), x(call, 5), x(call, 6), workspace,
                               &shape);
    else
        rt_recurrence_f64(call->rt, call->y[0], x(call, 0), x(call, 1), x(call, 2), x(call, 3), x(call, 4), x(call, 5),
                          workspace, &shape);
}

/* The row of `names` that an attribute names. */
static int named(const struct node *node, const char *key, const char *const *names) {
    int i = 0;
    while (strcmp(names[i], attr_text(node, key, "")) != 0) i++;
    return i;
}

static void sample(const struct call *call) {
    static const char *const modes[] = {"nearest", "linear", "cubic"}, *const paddings[] = {"zeros", "border",
                                                                                            "reflection"};
    const struct node *node = call->node;
    const enum op_id op = node->op->id;
    const struct tensor *points = input(call, op == OP_SamplePointsGrad ? 2 : 1), *y = input(call, 0);
    const struct tensor *image = op == OP_SamplePointsGrad ? input(call, 1)
                                 : op == OP_SampleGrad     ? &call->graph->tensors.at[node->outputs[0]]
                                                           : input(call, 0);
    const int ndim = (int)points->dims[points->ndim - 1], align = (int)attr_int(node, "align", 0);
    const int64_t n = y->dims[0], c = y->dims[1], p = tensor_elements(points) / n / ndim;
    const enum rt_sample_mode mode = (enum rt_sample_mode)named(node, "mode", modes);
    const enum rt_sample_padding padding = (enum rt_sample_padding)named(node, "padding", paddings);
    if (op == OP_Sample)
        rt_sample_f64(call->y[0], x(call, 0), x(call, 1), n, c, p, ndim, image->dims, mode, padding, align);
    else if (op == OP_SampleGrad)
        rt_sample_grad_f64(call->y[0], x(call, 0), x(call, 1), n, c, p, ndim, image->dims, mode, padding, align);
    else
        rt_sample_points_grad_f64(call->y[0], x(call, 0), x(call, 1), x(call, 2), n, c, p, ndim, image->dims, mode,
                                  padding, align);
}

static void roi_pool(const struct call *call) {
    static const char *const modes[] = {"avg", "max", "bins"};
    const struct node *node = call->node;
    const bool back = node->op->id == OP_RoiPoolGrad;
    const struct tensor *image = back ? &call->graph->tensors.at[node->outputs[0]] : input(call, 0);
    const struct rt_roi roi = {(enum rt_roi_mode)named(node, "mode", modes),
                               image->dims[0],
                               image->dims[1],
                               image->dims[2],
                               image->dims[3],
                               input(call, 1)->dims[0],
                               attr_int(node, "rows", 0),
                               attr_int(node, "columns", 0),
                               attr_int(node, "samples", 0),
                               attr_float(node, "scale", 1),
                               attr_float(node, "shift", 0)};
    if (back)
        rt_roi_pool_grad_f64(call->rt, call->y[0], x(call, 0), x(call, 1), x(call, 2), x(call, 3), &roi);
    else
        rt_roi_pool_f64(call->rt, call->y[0], x(call, 0), x(call, 1), x(call, 2), &roi);
}

static void det(const struct call *call) {
    const bool back = call->node->op->id == OP_DetGrad;
    const struct tensor *matrices = input(call, back);
    const int64_t n = matrices->dims[matrices->ndim - 1], count = tensor_elements(matrices) / n / n;
    double *workspace = ARENA_ARRAY(call->graph->arena, double, count *RT_DET_WORKSPACE(n));
    if (back)
        rt_det_grad_f64(call->y[0], x(call, 0), x(call, 1), workspace, count, n);
    else
        rt_det_f64(call->y[0], x(call, 0), workspace, count, n);
}

static void linear_attention(const struct call *call) {
    const struct node *node = call->node;
    const bool back = node->op->id == OP_LinearAttentionGrad;
    const struct tensor *q = input(call, back), *state = input(call, back + 3), *decay = input(call, back + 4);
    const struct rt_linear_attention shape = {.b = q->dims[0],
                                              .t = q->dims[1],
                                              .h = q->dims[2],
                                              .g = q->dims[3],
                                              .k = q->dims[4],
                                              .v = state->dims[3],
                                              .decays = decay ? decay->dims[3] : q->dims[4],
                                              .scale = attr_float(node, "scale", 1)};
    const int64_t elements = rt_linear_attention_workspace(shape.t, shape.k, shape.v) * RT_LINEAR_ATTENTION_SLOTS;
    double **y = call->y;
    if (back)
        rt_linear_attention_grad_f64(y[0], y[1], y[2], y[3], y[4], y[5], x(call, 0), x(call, 1), x(call, 2), x(call, 3),
                                     x(call, 4), x(call, 5), x(call, 6),
                                     ARENA_ARRAY(call->graph->arena, double, elements), &shape);
    else
        rt_linear_attention_f64(y[0], ARENA_ARRAY(call->graph->arena, double, tensor_elements(state)), x(call, 0),
                                x(call, 1), x(call, 2), x(call, 3), x(call, 4), x(call, 5), &shape);
}

static void dequant_matmul(const struct call *call) {
    const struct node *node = call->node;
    const bool turned = attr_int(node, "trans_b", 0), across = attr_int(node, "across", 0);
    const struct tensor *in = input(call, 0), *w = input(call, 1), *y = &call->graph->tensors.at[node->outputs[0]];
    const struct tensor *scale = input(call, 2), *index = input(call, 3);
    const enum rt_dtype codes = rt_dtype_by_name(attr_text(node, "codes", ""));
    const double offset = attr_float(node, "offset", 0);
    const int64_t k = in->dims[in->ndim - 1], n = y->dims[y->ndim - 1], rows = tensor_elements(in) / k;
    const int64_t matrices = w->ndim == 3 ? w->dims[0] : 1;
    const int64_t groups = scale ? scale->dims[scale->ndim - 2 + (turned != across)] : 1;
    if (node->op->id == OP_DequantExpertMatMul)
        rt_dequant_expert_matmul_f64(call->rt, call->y[0], x(call, 0), x(call, 1), x(call, 2), x(call, 3),
                                     index->dtype == RT_I64, rows, matrices, k, n, groups, w->dtype, codes, offset,
                                     turned, across, 0, matrices);
    else
        rt_dequant_matmul_f64(call->rt, call->y[0], x(call, 0), x(call, 1), x(call, 2), x(call, 3), matrices,
                              rows / matrices, k, n, groups, w->dtype, codes, offset, turned, across);
}

static const struct {
    enum op_id op;
    void (*run)(const struct call *call);
} rows[] = {{OP_LinearAttention, linear_attention},
            {OP_LinearAttentionGrad, linear_attention},
            {OP_DequantMatMul, dequant_matmul},
            {OP_DequantExpertMatMul, dequant_matmul},
            {OP_Det, det},
            {OP_DetGrad, det},
            {OP_Recurrence, recurrence},
            {OP_RecurrenceGrad, recurrence},
            {OP_Sample, sample},
            {OP_SampleGrad, sample},
            {OP_SamplePointsGrad, sample},
            {OP_RoiPool, roi_pool},
            {OP_RoiPoolGrad, roi_pool}};

static int row_of(const struct op *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op->id) return (int)i;
    return -1;
}

bool kernel_reference_can(const struct op *op) {
    return row_of(op) >= 0;
}

const void *kernel_reference(struct graph *graph, const struct node *node, int result) {
    struct rt rt = {.reference_kernels = 1};
    double **y = ARENA_ARRAY(graph->arena, double *, node->noutputs);
    for (int i = 0; i < node->noutputs; i++)
        y[i] = ARENA_ARRAY(graph->arena, double, tensor_elements(&graph->tensors.at[node->outputs[i]]) + 1);
    rows[row_of(node->op)].run(&(struct call){&rt, graph, node, y});
    return y[result];
}
