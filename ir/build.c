#include "ir/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/dims.h"
#include "ir/expr/eval.h"

enum {
    FOLD_RESULT_BYTES = 64 << 20,   /* larger constants are computed at run time instead */
    FOLD_POINTS = 1 << 26,          /* iteration points; larger computations are left to run time */
    FOLD_REPEATED_BYTES = 64 << 10, /* larger constants of one repeated value: readers broadcast the value instead */
    FOLD_QUANTISED_BYTES = 64 /* of stored integers of 8 bits that become a wider type: folding dequantises them */
};

bool build_is_known(const struct graph *graph, int id) {
    if (id < 0) return true;
    const struct tensor *tensor = &graph->tensors.at[id];
    if (tensor->kind == TENSOR_CONST) return true;
    if (tensor->kind != TENSOR_WEIGHT || tensor->mark == MARK_ADAPTER) return false;
    if (graph->train ? !tensor->constant : graph->keeps && tensor->ndim >= 2) return false;
    return tensor->data && tensor_bytes(tensor) <= BUILD_KNOWN_BYTES;
}

static double points_of(const struct graph *graph, const struct node *node) {
    struct dims dims;
    return dims_bind(graph->arena, graph, node, &dims, NULL) < 0 ? 0 : dims_flops(&dims, 1);
}

/* True if folding makes quantised values larger. */
static bool dequantises(const struct graph *graph, const struct node *node) {
    if (node->op->id != OP_Cast) return false;
    const struct tensor *in = &graph->tensors.at[node->inputs[0]], *out = &graph->tensors.at[node->outputs[0]];
    return rt_dtype_bytes(in->dtype) == 1 && in->dtype != RT_BOOL && rt_dtype_bytes(out->dtype) > 1 &&
           tensor_bytes(in) > FOLD_QUANTISED_BYTES;
}

/* The cast of a weight that would be folded if its values were known (--model-config): a weight of that type. Else
 * -1. */
static int cast_unknown(struct graph *graph, const struct node *node) {
    if (node->op->id != OP_Cast || graph->train) return -1;
    const struct tensor in = graph->tensors.at[node->inputs[0]], out = graph->tensors.at[node->outputs[0]];
    if (in.kind != TENSOR_WEIGHT || in.data || in.stored.file >= 0 || in.stored.dtype != in.dtype) return -1;
    if (tensor_bytes(&in) > (in.constant ? FOLD_RESULT_BYTES : BUILD_KNOWN_BYTES)) return -1;
    const int id = graph_add_tensor(graph, TENSOR_WEIGHT, out.name, out.dtype, out.ndim, out.dims);
    graph->tensors.at[id].stored = (struct stored){.file = -1, .dtype = out.dtype};
    graph->tensors.at[id].constant = in.constant;
    return id;
}

int build_fold(struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    const int cast = cast_unknown(graph, node);
    if (cast >= 0) return cast;
    if (node->noutputs != 1 || !eval_can(node->op) || dequantises(graph, node)) return -1;
    const void *rounded = build_fold_rounded(graph, id);
    for (int i = 0; i < node->ninputs && !rounded; i++)
        if (!build_is_known(graph, node->inputs[i])) return -1;
    if (build_has_open_extent(graph, node->outputs[0])) return -1;
    struct tensor out = graph->tensors.at[node->outputs[0]];
    int64_t most = node->op->id == OP_Expand ? FOLD_REPEATED_BYTES : FOLD_RESULT_BYTES;
    if (tensor_bytes(&out) > most || points_of(graph, node) > FOLD_POINTS) return -1;
    const void *data = rounded                         ? rounded
                       : build_reads_open(graph, node) ? build_fold_open(graph, id)
                                                       : eval_node(graph, id);
    return data ? graph_add_const(graph, out.name, out.dtype, out.ndim, out.dims, data) : -1;
}

/* Nodes whose result is one of their operands: what exporters write where a factor is 1, a shape stays as it is, or a
 * condition is constant. */

static bool same_shape(const struct tensor *tensor, const struct attr *shape) {
    return shape && shape->n == tensor->ndim &&
           (shape->n == 0 || memcmp(shape->ints, tensor->dims, (size_t)shape->n * sizeof(int64_t)) == 0);
}

static bool is_identity_perm(const struct attr *perm) {
    for (int i = 0; i < perm->n; i++)
        if (perm->ints[i] != i) return false;
    return true;
}

static const struct attr *find(const struct attr *attrs, int n, const char *key) {
    for (int i = 0; i < n; i++)
        if (strcmp(attrs[i].key, key) == 0) return &attrs[i];
    return NULL;
}

/* True if the result would equal the first input. A Slice is the identity if its size equals the shape and its
 * steps are 1 wherever an extent exceeds 1 (a step of -1 reverses). */
static bool moves_nothing(const struct tensor *x, enum op_id op, int ninputs, const struct attr *attrs, int n) {
    if (op == OP_Reshape || op == OP_Expand) return same_shape(x, find(attrs, n, "shape"));
    if (op == OP_Transpose) return is_identity_perm(find(attrs, n, "perm"));
    if (op == OP_Concat) return ninputs == 1;
    if (op == OP_Cast) return x->dtype == rt_dtype_by_name(find(attrs, n, "to")->text);
    if (op != OP_Slice || !same_shape(x, find(attrs, n, "size"))) return false;
    const struct attr *step = find(attrs, n, "step");
    for (int d = 0; d < step->n; d++)
        if (step->ints[d] != 1 && x->dims[d] > 1) return false;
    return true;
}

/* True if the operands are broadcast to the shape of operand k. */
static bool has_shape_of(const struct graph *graph, const int *inputs, int ninputs, int k) {
    const struct tensor *x = &graph->tensors.at[inputs[k]];
    for (int i = 0; i < ninputs; i++) {
        const struct tensor *other = &graph->tensors.at[inputs[i]];
        if (other->ndim > x->ndim) return false;
        for (int d = 1; d <= other->ndim; d++) {
            const int64_t extent = other->dims[other->ndim - d];
            if (extent != 1 && extent != x->dims[x->ndim - d]) return false;
        }
    }
    return true;
}

/* True if all elements are known to be the number, whose sign counts where it is 0. A vector of the model is not looked
 * at: a norm's scale of ones is what another model has other numbers for. */
static bool is_number(const struct graph *graph, int id, double number) {
    const struct tensor *t = &graph->tensors.at[id];
    const int64_t n = tensor_elements(t);
    if (!build_is_known(graph, id) || !n || (t->kind != TENSOR_CONST && n > 1)) return false;
    const void *bytes = eval_bytes((struct graph *)graph, t);
    for (int64_t i = 0; i < n; i++) {
        const struct number value = eval_load(bytes, t->dtype, i);
        if (value.is_float ? value.f != number || !signbit(value.f) != !signbit(number) : (double)value.i != number)
            return false;
    }
    return true;
}

/* The operand that the result equals because another is the operator's unit, or a known condition; -1: none. */
static int operand_of(const struct graph *graph, enum op_id op, int ninputs, const int *inputs) {
    for (int k = 0; k < ninputs; k++)
        if (inputs[k] < 0) return -1;
    if (op == OP_Where)
        for (int k = 1; k < 3; k++)
            if (is_number(graph, inputs[0], k == 1) && has_shape_of(graph, inputs, 3, k)) return k;
    for (int k = 0; ops[op].unit && ninputs == 2 && k < (ops[op].commutes ? 2 : 1); k++)
        if (has_shape_of(graph, inputs, 2, k) && is_number(graph, inputs[1 - k], strtod(ops[op].unit, NULL))) return k;
    return -1;
}

int build_same(const struct graph *graph, enum op_id op, int ninputs, const int *inputs, int nattrs,
               const struct attr *attrs) {
    if (!ninputs || moves_nothing(&graph->tensors.at[inputs[0]], op, ninputs, attrs, nattrs))
        return ninputs ? inputs[0] : -1;
    const int k = operand_of(graph, op, ninputs, inputs);
    return k < 0 ? -1 : inputs[k];
}

/* What a Reshape or Cast can read in place of the tensor: of a chain of Reshapes only the last shape matters, and of a
 * bool that was cast and is cast again only the last type. */
static int source_of(const struct graph *graph, enum op_id op, int tensor) {
    if (op != OP_Reshape && op != OP_Cast) return tensor;
    for (const struct node *node; (node = made_by(graph, tensor, op));) {
        if (op == OP_Cast && graph->tensors.at[node->inputs[0]].dtype != RT_BOOL) break;
        tensor = node->inputs[0];
    }
    return tensor;
}

int build(struct build *builder, enum op_id op, int ninputs, const int *inputs, int nattrs, const struct attr *attrs) {
    struct graph *graph = builder->graph;
    if (ninputs && inputs[0] < 0) return -1; /* after a diagnostic */
    int same = build_same(graph, op, ninputs, inputs, nattrs, attrs);
    const int source = same < 0 && ninputs ? source_of(graph, op, inputs[0]) : -1;
    if (source >= 0 && source != inputs[0]) inputs = &source, same = build_same(graph, op, 1, inputs, nattrs, attrs);
    if (same >= 0) return same;
    const char *name = arena_printf(graph->arena, "%s.%s", builder->node, ops[op].name);
    int out = graph_add_tensor(graph, TENSOR_VALUE, name, RT_F32, 0, NULL);
    int id = graph_add_node(graph, &ops[op], builder->node, ninputs, inputs, 1, &out, nattrs, attrs);
    if (op_infer(graph, id, builder->diags) < 0) return -1;
    int folded = build_fold(graph, id);
    if (folded < 0) return out;
    graph->order.n--;
    return folded;
}

int build_op(struct build *builder, const struct op *op, int ninputs, const int *inputs, int noutputs, int *outputs,
             int nattrs, const struct attr *attrs) {
    struct graph *graph = builder->graph;
    for (int o = 0; o < noutputs; o++) {
        const char *name = arena_printf(graph->arena, "%s.%s", builder->node, op->name);
        if (o) name = arena_printf(graph->arena, "%s.%d", name, o);
        outputs[o] = graph_add_tensor(graph, TENSOR_VALUE, name, RT_F32, 0, NULL);
    }
    int id = graph_add_node(graph, op, builder->node, ninputs, inputs, noutputs, outputs, nattrs, attrs);
    return op_infer(graph, id, builder->diags);
}

int build_many(struct build *builder, enum op_id op, int ninputs, const int *inputs, int noutputs, int *outputs,
               int nattrs, const struct attr *attrs) {
    return build_op(builder, &ops[op], ninputs, inputs, noutputs, outputs, nattrs, attrs);
}

int build1(struct build *builder, enum op_id op, int x) {
    return build(builder, op, 1, &x, 0, NULL);
}
int build2(struct build *builder, enum op_id op, int x, int y) {
    if (y < 0) return -1;
    return build(builder, op, 2, (int[]){x, y}, 0, NULL);
}

static int build_with_ints(struct build *builder, enum op_id op, int x, const char *key, int n, const int64_t *ints) {
    struct attr attr = attr_of_ints(key, n, ints);
    return build(builder, op, 1, &x, 1, &attr);
}

int build_reshape(struct build *builder, int x, int ndim, const int64_t *shape) {
    return build_with_ints(builder, OP_Reshape, x, "shape", ndim, shape);
}

int build_transpose(struct build *builder, int x, const int64_t *perm) {
    if (x < 0) return -1;
    return build_with_ints(builder, OP_Transpose, x, "perm", builder->graph->tensors.at[x].ndim, perm);
}

int build_expand(struct build *builder, int x, int ndim, const int64_t *shape) {
    int64_t elements = 1;
    if (x < 0) return -1;
    for (int d = 0; d < ndim; d++) elements *= shape[d];
    if (elements == tensor_elements(&builder->graph->tensors.at[x])) return build_reshape(builder, x, ndim, shape);
    return build_with_ints(builder, OP_Expand, x, "shape", ndim, shape);
}

int build_slice(struct build *builder, int x, const int64_t *start, const int64_t *step, const int64_t *size) {
    int n = builder->graph->tensors.at[x].ndim;
    int64_t ones[RT_MAX_NDIM];
    for (int d = 0; d < n; d++) ones[d] = 1;
    struct attr attrs[] = {attr_of_ints("start", n, start), attr_of_ints("step", n, step ? step : ones),
                           attr_of_ints("size", n, size)};
    return build(builder, OP_Slice, 1, &x, 3, attrs);
}

int build_piece(struct build *builder, int x, int axis, int64_t start, int64_t step, int64_t size) {
    if (x < 0) return -1;
    struct tensor tensor = builder->graph->tensors.at[x];
    int64_t starts[RT_MAX_NDIM] = {0}, steps[RT_MAX_NDIM];
    for (int d = 0; d < tensor.ndim; d++) steps[d] = 1;
    starts[axis] = start;
    steps[axis] = step;
    tensor.dims[axis] = size;
    return build_slice(builder, x, starts, steps, tensor.dims);
}

int build_concat(struct build *builder, int axis, int n, const int *inputs) {
    const struct attr attr = attr_of_int("axis", axis);
    for (int i = 0; i < n; i++)
        if (inputs[i] < 0) return -1;
    return build(builder, OP_Concat, n, inputs, 1, &attr);
}

int build_cast(struct build *builder, int x, enum rt_dtype dtype) {
    struct attr to = attr_of_text("to", rt_dtypes[dtype].name);
    return build(builder, OP_Cast, 1, &x, 1, &to);
}

int build_scalar(struct build *builder, enum rt_dtype dtype, double value) {
    unsigned char bytes[8];
    rt_convert(bytes, dtype, &value, RT_F64, 1);
    return graph_add_const(builder->graph, arena_printf(builder->graph->arena, "%s.number", builder->node), dtype, 0,
                           NULL, bytes);
}

int build_unit_sum(struct build *builder, int x) {
    const int real = graph_control(builder->graph, RT_REAL);
    if (x < 0) return -1;
    const enum rt_dtype dtype = builder->graph->tensors.at[x].dtype;
    const int counts = build2(builder, OP_Greater, real, build_scalar(builder, RT_F64, 0));
    const int sum = build(builder, OP_Where, 3, (int[]){counts, x, build_scalar(builder, dtype, 0)}, 0, NULL);
    if (sum >= 0) builder->graph->tensors.at[sum].joined = JOINED_SUM;
    return sum;
}

const int64_t *build_known_ints(struct graph *graph, int id, int *n) {
    if (id < 0 || !build_is_known(graph, id)) return NULL;
    const struct tensor *tensor = &graph->tensors.at[id];
    if (rt_dtype_is_float(tensor->dtype)) return NULL;
    *n = (int)tensor_elements(tensor);
    int64_t *ints = ARENA_ARRAY(graph->arena, int64_t, *n + 1);
    rt_convert(ints, RT_I64, eval_bytes(graph, tensor), tensor->dtype, (size_t)*n);
    return ints;
}
