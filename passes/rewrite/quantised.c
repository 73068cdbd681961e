#include "passes/rewrite/quantised.h"

#include <string.h>

#include "passes/rewrite/matcher.h"

static const struct tensor *tensor_of(const struct graph *graph, int tensor) {
    return &graph->tensors.at[tensor];
}

bool is_code(enum rt_dtype dtype) {
    return dtype == RT_I8 || dtype == RT_U8 || rt_dtype_is_code(dtype);
}

int before_views(const struct graph *graph, int tensor) {
    for (int p; (p = tensor_of(graph, tensor)->producer) >= 0; tensor = graph->nodes.at[p].inputs[0]) {
        const enum op_id op = graph->nodes.at[p].op->id;
        if (op != OP_Reshape && (op != OP_Cast || is_code(tensor_of(graph, tensor)->dtype))) break;
    }
    return tensor;
}

/* Reads the product of `scale` and `shifted`, codes or codes minus their zero point. */
static bool read_shifted(const struct graph *graph, int shifted, int scale, struct dequantised *out) {
    const struct node *sub = made_by(graph, shifted, OP_Sub);
    out->codes = before_views(graph, sub ? sub->inputs[0] : shifted);
    out->zero = sub ? sub->inputs[1] : -1;
    out->scale = scale;
    out->packed = -1;
    const struct node *unpack = made_by(graph, out->codes, OP_Unpack);
    if (unpack) out->packed = unpack->inputs[0];
    return is_code(tensor_of(graph, out->codes)->dtype);
}

bool is_scalar(const struct graph *graph, int tensor) {
    return tensor < 0 || tensor_elements(tensor_of(graph, tensor)) == 1;
}

bool read_dequantised(const struct graph *graph, int tensor, struct dequantised *out) {
    const struct node *reshape = made_by(graph, tensor, OP_Reshape);
    const int inner = reshape ? reshape->inputs[0] : tensor;
    const struct node *mul = made_by(graph, inner, OP_Mul);
    if (!mul) return false;
    out->ndim = tensor_of(graph, inner)->ndim;
    memcpy(out->dims, tensor_of(graph, inner)->dims, sizeof out->dims);
    for (int k = 0; k < 2; k++)
        if (read_shifted(graph, mul->inputs[k], mul->inputs[1 - k], out))
            return tensor_elements(tensor_of(graph, out->codes)) == tensor_elements(tensor_of(graph, tensor)) &&
                   tensor_elements(tensor_of(graph, out->scale)) < tensor_elements(tensor_of(graph, tensor)) &&
                   (tensor_same_shape(tensor_of(graph, out->codes), tensor_of(graph, tensor)) ||
                    (is_scalar(graph, out->scale) && is_scalar(graph, out->zero)));
    return false;
}

bool read_requantised(const struct graph *graph, const struct node *node, struct requantised *out) {
    const struct node *step = node;
    out->zero = -1;
    if ((step = made_by(graph, step->inputs[0], OP_Min)) && (step = made_by(graph, step->inputs[0], OP_Max))) {
        const struct node *add = made_by(graph, step->inputs[0], OP_Add);
        if (add) out->zero = add->inputs[1];
        step = made_by(graph, (add ? add : step)->inputs[0], OP_Round);
    }
    if (!step || !(step = made_by(graph, step->inputs[0], OP_Div))) return false;
    out->x = step->inputs[0];
    out->scale = step->inputs[1];
    return true;
}

static bool is_known_scalar(const struct tensor *t) {
    return t->kind == TENSOR_CONST && tensor_elements(t) == 1;
}

/* True if both are the same tensor, or constants of one element with the same value. */
static bool same_scalar(const struct graph *graph, int a, int b) {
    if (a == b || a < 0 || b < 0) return a == b;
    const struct tensor *x = tensor_of(graph, a), *y = tensor_of(graph, b);
    return is_known_scalar(x) && is_known_scalar(y) && x->dtype == y->dtype &&
           memcmp(x->data, y->data, rt_dtype_bytes(x->dtype)) == 0;
}

bool requantises(const struct graph *graph, const struct node *node, const struct requantised *q,
                 const struct dequantised *d) {
    return same_scalar(graph, d->scale, q->scale) && same_scalar(graph, d->zero, q->zero) &&
           tensor_elements(tensor_of(graph, q->scale)) == 1 &&
           tensor_of(graph, d->codes)->dtype == tensor_of(graph, node->outputs[0])->dtype;
}
