#include "frontend/lower/onnx_lower.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/lower/lowering_state.h"
#include "ir/base/str.h"
#include "ir/expr/eval.h"
#include "ir/provenance.h"
#include "runtime/base/number/checked.h"

const char *lower_where(const struct lower *lower) {
    return arena_printf(lower->arena, "%s%s", onnx_where_node(lower->shared->model, lower->node, lower->index),
                        provenance_text(lower->arena, lower->shared->graph, lower->builder.node));
}

int lower_error(struct lower *lower, int code, const char *format, ...) {
    const char *text;
    ARENA_PRINT_TO(text, lower->arena, format);
    return diag_error(lower->builder.diags, code, onnx_exit(code), lower_where(lower), "%s", text);
}

int lower_too_large(struct lower *lower) {
    return lower_error(lower, 505, "the result is too large");
}
int lower_too_open(struct lower *lower) {
    return lower_error(lower, 410, "a shape of several extents that depend on data");
}
int lower_help_experts(struct lower *lower) {
    return diag_help(lower->builder.diags, "export the mixture of experts in its batched form; in transformers: "
                                           "config._experts_implementation = \"batched_mm\"");
}

int lower_unsupported(struct lower *lower, const char *format, ...) {
    const char *text;
    ARENA_PRINT_TO(text, lower->arena, format);
    return diag_error(lower->builder.diags, 402, EXIT_UNSUPPORTED, lower_where(lower), "%s of %s is not supported",
                      text, lower_quote(lower, onnx_text(lower->node->op_type)));
}

int lower_unknown(struct lower *lower, const char *what, const char *value) {
    return lower_error(lower, 335, "unknown %s %s", what, lower_quote(lower, value));
}

const char *lower_quote(const struct lower *lower, const char *name) {
    return diag_quote(lower->builder.diags, name);
}
const char *lower_type(const struct lower *lower, const struct tensor *tensor) {
    return tensor_type(lower->arena, tensor);
}

bool lower_meet(const struct lower *lower, int64_t a, int64_t b) {
    return open_meet(lower->builder.graph->open, a, b);
}

int lower_misfit(struct lower *lower, int x, int y) {
    struct arena *arena = lower->arena;
    struct tensor a = lower_tensor(lower, x), b = lower_tensor(lower, y);
    return lower_error(lower, 378, "shapes do not fit: %s and %s", tensor_type(arena, &a), tensor_type(arena, &b));
}

bool lower_has(const struct lower *lower, int input) {
    return input < lower->ninputs && lower->inputs[input] >= 0;
}

int lower_id(const struct lower *lower, int input) {
    return lower_has(lower, input) ? lower->inputs[input] : -1;
}

bool lower_wants(const struct lower *lower, int output) {
    return output < lower->noutputs && *onnx_text(lower->node->output[output]);
}

struct tensor lower_tensor(const struct lower *lower, int tensor) {
    return lower->builder.graph->tensors.at[tensor];
}
struct tensor lower_input(const struct lower *lower, int input) {
    return lower_tensor(lower, lower->inputs[input]);
}
enum rt_dtype lower_dtype(const struct lower *lower, int tensor) {
    return lower->builder.graph->tensors.at[tensor].dtype;
}
int lower_ndim(const struct lower *lower, int tensor) {
    return lower->builder.graph->tensors.at[tensor].ndim;
}

int lower_result(struct lower *lower, int tensor) {
    lower->outputs[0] = tensor;
    return tensor < 0 ? -1 : 0;
}

/* The graph inputs that a tensor is computed from: *n of them, in the graph's order. */
static const int *roots_of(struct lower *lower, int tensor, int *n) {
    const struct graph *graph = lower->builder.graph;
    struct arena *arena = graph->arena;
    bool *reached = ARENA_ARRAY(arena, bool, graph->tensors.n);
    int *roots = ARENA_ARRAY(arena, int, graph->inputs.n + 1);
    reached[tensor] = true;
    *n = 0;
    for (int i = graph->nodes.n - 1; i >= 0; i--) { /* operands come before results */
        const struct node *node = &graph->nodes.at[i];
        bool needed = false;
        for (int o = 0; o < node->noutputs; o++) needed = needed || reached[node->outputs[o]];
        for (int k = 0; needed && k < node->ninputs; k++)
            if (node->inputs[k] >= 0) reached[node->inputs[k]] = true;
    }
    for (int i = 0; i < graph->inputs.n; i++)
        if (reached[graph->inputs.at[i]]) roots[(*n)++] = graph->inputs.at[i];
    return roots;
}

/* True for an input that a user may well know before the program runs. */
static bool is_small(const struct tensor *tensor) {
    return tensor_elements(tensor) <= (rt_dtype_is_float(tensor->dtype) ? 1 : RT_MAX_NDIM);
}

int lower_help_bind(struct lower *lower, int tensor) {
    int n;
    const int *roots = roots_of(lower, tensor, &n);
    for (int i = 0; i < n; i++) {
        struct tensor root = lower_tensor(lower, roots[i]);
        if (!is_small(&root)) return -1;
    }
    for (int i = 0; i < n; i++) {
        struct tensor root = lower_tensor(lower, roots[i]);
        const char *name = str_name(lower->builder.diags->arena, root.name);
        diag_help(lower->builder.diags, "--bind %s=FILE.npy, or %s in place of the file, makes input %s a constant",
                  name, tensor_elements(&root) == 1 ? "a number" : "a list such as 1,2", lower_quote(lower, root.name));
    }
    return -1;
}

/* E0409: an input that must be known at compile time is not; suggests --bind. Returns -1. */
static int unknown(struct lower *lower, int input, const char *what) {
    const char *name = lower_quote(lower, lower_input(lower, input).name);
    lower_error(lower, 409, "%s is computed at run time (%s): it must be a constant", what, name);
    return lower_help_bind(lower, lower->inputs[input]);
}

const int64_t *lower_known(struct lower *lower, int input, const char *what, int *n) {
    struct tensor tensor = lower_input(lower, input);
    if (rt_dtype_is_float(tensor.dtype)) {
        lower_error(lower, 379, "%s has type %s, not an integer type", what, rt_dtypes[tensor.dtype].name);
        return NULL;
    }
    const int64_t *values = NULL;
    if (tensor_elements(&tensor) <= INT_MAX / 16)
        values = build_known_ints(lower->builder.graph, lower->inputs[input], n);
    if (!values) unknown(lower, input, what);
    return values;
}

int lower_known_int(struct lower *lower, int input, const char *what, int64_t *value) {
    int n;
    const int64_t *values = lower_known(lower, input, what, &n);
    if (!values) return -1;
    if (n != 1) return lower_error(lower, 384, "%s must be one value, but %d are given", what, n);
    if (lower_ndim(lower, lower->inputs[input]) > 1)
        return lower_error(lower, 384, "%s has more than one dimension", what);
    *value = values[0];
    return 0;
}

int lower_known_float(struct lower *lower, int input, const char *what, double *value) {
    struct tensor tensor = lower_input(lower, input);
    const void *bytes = tensor.kind == TENSOR_CONST ? tensor.data : NULL;
    if (tensor.kind == TENSOR_WEIGHT) bytes = eval_bytes(lower->builder.graph, &tensor);
    if (!bytes) return unknown(lower, input, what);
    if (tensor_elements(&tensor) != 1) return lower_error(lower, 384, "%s must be one value", what);
    struct number number = eval_load(bytes, tensor.dtype, 0);
    *value = number.is_float ? number.f : (double)number.i;
    return 0;
}

int lower_list(struct lower *lower, int input, const char *name, const int64_t **list, int *n) {
    *list = NULL;
    *n = 0;
    if (input >= 0 && lower_has(lower, input)) return (*list = lower_known(lower, input, name, n)) ? 0 : -1;
    if (lower_given(lower, name)) *list = lower_ints(lower, name, n);
    return 0;
}

int lower_axis(struct lower *lower, int64_t axis, int ndim, int *out) {
    if (axis < -ndim || axis >= ndim)
        return lower_error(lower, 375, "axis %lld is out of range for %d dimension(s)", (long long)axis, ndim);
    *out = (int)(axis < 0 ? axis + ndim : axis);
    return 0;
}

int lower_axes(struct lower *lower, const int64_t *axes, int n, int ndim, bool flags[RT_MAX_NDIM]) {
    memset(flags, 0, RT_MAX_NDIM * sizeof *flags);
    for (int i = 0; i < n; i++) {
        int axis;
        if (lower_axis(lower, axes[i], ndim, &axis) < 0) return -1;
        if (flags[axis]) return lower_error(lower, 375, "axis %d is given twice", axis);
        flags[axis] = true;
    }
    return 0;
}

enum rt_dtype lower_float_type(const struct lower *lower, enum rt_dtype dtype) {
    return lowering_type(lower->shared, dtype);
}

bool lower_made_by(const struct lower *lower, const char *producer) {
    return strcmp(onnx_text(lower->shared->model->proto->producer_name), producer) == 0;
}

int64_t lower_random_key(struct lower *lower, int64_t seed) {
    return (int64_t)((uint64_t)seed << 32 | (uint32_t)lower->shared->random_operators++);
}

const Onnx__AttributeProto *lower_attribute(const struct lower *lower, const char *name) {
    for (size_t i = 0; i < lower->node->n_attribute; i++)
        if (lower->attributes[i] && strcmp(onnx_text(lower->node->attribute[i]->name), name) == 0)
            return lower->attributes[i];
    return NULL;
}

int lower_sparse(struct lower *lower, const Onnx__SparseTensorProto *proto) {
    struct onnx_tensor tensor;
    if (onnx_sparse(lower->shared->model, proto, lower_where(lower), &tensor) < 0) return -1;
    return lowering_tensor(lower->shared, lower->builder.node, &tensor);
}

/* A name for a constant that the lowering adds. */
static const char *constant_name(const struct lower *lower) {
    return arena_printf(lower->arena, "%s.%d", lower->builder.node, lower->builder.graph->tensors.n);
}

int lower_proto(struct lower *lower, const Onnx__TensorProto *proto) {
    struct onnx_tensor tensor;
    if (onnx_tensor(lower->shared->model, proto, NULL, &tensor) < 0) return -1;
    return lowering_tensor(lower->shared, constant_name(lower), &tensor);
}

bool lower_given(const struct lower *lower, const char *name) {
    return lower_attribute(lower, name) != NULL;
}

/* The default of an attribute in the row: the text from "=" to the next space; NULL if there is none. */
static const char *fallback(const struct lower *lower, const char *name, size_t *length) {
    struct onnx_attr attr;
    for (const char *rest = lower->op->attrs; (rest = onnx_next_attr(rest, &attr));) {
        if (strlen(name) != attr.length || strncmp(name, attr.name, attr.length) != 0) continue;
        *length = attr.fallback_length;
        return attr.fallback;
    }
    BUG("%s has no attribute '%s' in onnx_ops.def", lower->op->name, name);
}

int64_t lower_int(const struct lower *lower, const char *name) {
    size_t length;
    const char *text = fallback(lower, name, &length);
    const Onnx__AttributeProto *attribute = lower_attribute(lower, name);
    return attribute ? attribute->i : text ? strtoll(text, NULL, 10) : 0;
}

double lower_float(const struct lower *lower, const char *name) {
    size_t length;
    const char *text = fallback(lower, name, &length);
    const Onnx__AttributeProto *attribute = lower_attribute(lower, name);
    return attribute ? (double)attribute->f : text ? strtof(text, NULL) : 0;
}

const char *lower_text(const struct lower *lower, const char *name) {
    size_t length = 0;
    const char *text = fallback(lower, name, &length);
    const Onnx__AttributeProto *attribute = lower_attribute(lower, name);
    if (attribute) return arena_copy(lower->arena, attribute->s.data, attribute->s.len);
    return text ? arena_copy(lower->arena, text, length) : "";
}

const int64_t *lower_ints(const struct lower *lower, const char *name, int *n) {
    const Onnx__AttributeProto *attribute = lower_attribute(lower, name);
    *n = attribute ? (int)attribute->n_ints : 0;
    if (!attribute) return NULL;
    return attribute->n_ints ? attribute->ints : arena_alloc(lower->arena, 1, sizeof(int64_t));
}

const float *lower_floats(const struct lower *lower, const char *name, int *n) {
    const Onnx__AttributeProto *attribute = lower_attribute(lower, name);
    *n = attribute ? (int)attribute->n_floats : 0;
    return attribute ? attribute->floats : NULL;
}

int lower_enter(struct lower *lower, const struct subgraph *subgraph) {
    struct subgraph *enters = arena_copy(lower->arena, subgraph, sizeof *subgraph);
    if ((int)subgraph->graph->n_input != subgraph->ninputs)
        return lower_error(lower, 331, "the subgraph takes %zu input(s), but %d are given", subgraph->graph->n_input,
                           subgraph->ninputs);
    if (subgraph->taken) {
        struct taken *taken = arena_copy(lower->arena, subgraph->taken, sizeof *taken);
        taken->outer = lower->taken;
        enters->taken = taken;
    }
    lower->enters = enters;
    return 0;
}

int lower_if_taken(struct lower *lower, int x, int value) {
    for (const struct taken *taken = lower->taken; taken && x >= 0; taken = taken->outer)
        x = emit3(lower, OP_Where, taken->condition, taken->value ? x : value, taken->value ? value : x);
    return x;
}

enum op_id lower_namesake(const struct lower *lower) {
    return op_named(lower->op->name)->id;
}

static int add(struct lower *lower, enum op_id op, int ninputs, const int *inputs, int nattrs,
               const struct attr *attrs) {
    struct arena *arena = lower->arena;
    struct counted counted;
    int output = -1, *masked = arena_copy(arena, inputs, (size_t)ninputs * sizeof *inputs);
    const struct node node = {.op = &ops[op],
                              .ninputs = ninputs,
                              .noutputs = 1,
                              .inputs = arena_copy(arena, inputs, (size_t)ninputs * sizeof *inputs),
                              .outputs = &output,
                              .nattrs = nattrs,
                              .attrs = arena_copy(arena, attrs, (size_t)nattrs * sizeof *attrs)};
    const bool counts = lower_mask(lower, &node, masked, &counted);
    const int y = build(&lower->builder, op, ninputs, masked, nattrs, attrs);
    if (counts) lower_set_counted(lower, y, &counted);
    return y;
}

int emit(struct lower *lower, enum op_id op, int ninputs, const int *inputs, int nattrs, const struct attr *attrs) {
    for (int i = 0; i < ninputs; i++)
        if (inputs[i] < 0 && op_input_letter(&ops[op], i)[1] != '?') return -1;
    return add(lower, op, ninputs, inputs, nattrs, attrs);
}

int emit_along(struct lower *lower, enum op_id op, int ninputs, const int *inputs, int axis) {
    const struct attr attr = attr_of_int("axis", axis);
    return emit(lower, op, ninputs, inputs, 1, &attr);
}

int emit1(struct lower *lower, enum op_id op, int x) {
    return x < 0 ? -1 : build1(&lower->builder, op, x);
}
int emit2(struct lower *lower, enum op_id op, int x, int y) {
    return x < 0 || y < 0 ? -1 : build2(&lower->builder, op, x, y);
}

int emit3(struct lower *lower, enum op_id op, int x, int y, int z) {
    return x < 0 || y < 0 || z < 0 ? -1 : build(&lower->builder, op, 3, (int[]){x, y, z}, 0, NULL);
}

int emit_cast(struct lower *lower, int x, enum rt_dtype dtype) {
    return x < 0 ? -1 : build_cast(&lower->builder, x, dtype);
}
int emit_bit_cast(struct lower *lower, int x, enum rt_dtype dtype) {
    struct attr to = attr_of_text("to", rt_dtypes[dtype].name);
    if (x < 0 || lower_dtype(lower, x) == dtype) return x;
    return emit(lower, OP_BitCast, 1, &x, 1, &to);
}

/* The types of kernels. Unsigned integers of these sizes keep their bits, others their values. */
static enum rt_dtype kernel_type(enum rt_dtype dtype) {
    if (rt_dtype_is_float(dtype)) return dtype;
    return dtype == RT_U64 || dtype == RT_I64 ? RT_I64 : RT_I32;
}

static bool keeps_bits(enum rt_dtype dtype) {
    return dtype == RT_U32 || dtype == RT_U64;
}

int emit_wrapping(struct lower *lower, int x) {
    if (x < 0) return -1;
    const enum rt_dtype dtype = lower_dtype(lower, x), to = kernel_type(dtype);
    return keeps_bits(dtype) ? emit_bit_cast(lower, x, to) : emit_cast(lower, x, to);
}
int emit_narrowed(struct lower *lower, int x, enum rt_dtype dtype) {
    return keeps_bits(dtype) ? emit_bit_cast(lower, x, dtype) : emit_cast(lower, x, dtype);
}

/* Turns the order of unsigned integers into that of signed ones with the same bits, and back. */
static int emit_turned(struct lower *lower, int x) {
    return emit_with(lower, OP_BitwiseXor, x, lower_dtype(lower, x) == RT_I64 ? (double)INT64_MIN : (double)INT32_MIN);
}

int emit_ordered(struct lower *lower, int x) {
    const int y = emit_wrapping(lower, x);
    return y >= 0 && keeps_bits(lower_dtype(lower, x)) ? emit_turned(lower, y) : y;
}
int emit_from_ordered(struct lower *lower, int x, enum rt_dtype dtype) {
    if (x < 0) return -1;
    return emit_narrowed(lower, keeps_bits(dtype) ? emit_turned(lower, x) : x, dtype);
}

int emit_like(struct lower *lower, int x, double value) {
    return x < 0 ? -1 : build_scalar(&lower->builder, lower_dtype(lower, x), value);
}
int emit_with(struct lower *lower, enum op_id op, int x, double value) {
    return emit2(lower, op, x, emit_like(lower, x, value));
}

int emit_root(struct lower *lower, int x) {
    if (!lower->builder.graph->train) return emit1(lower, OP_Sqrt, x);
    int zero = emit_like(lower, x, 0), none = emit2(lower, OP_Equal, x, zero);
    int root = emit1(lower, OP_Sqrt, emit3(lower, OP_Where, none, emit_like(lower, x, 1), x));
    return emit3(lower, OP_Where, none, zero, root);
}

int emit_ints(struct lower *lower, int n, const int64_t *values, int ndim, const int64_t *dims) {
    int64_t elements;
    if (!rt_product(dims, ndim, &elements) || elements != n) BUG("%d values for another shape", n);
    return graph_add_const(lower->builder.graph, constant_name(lower), RT_I64, ndim, dims, values);
}

struct open_sizes *lower_open(const struct lower *lower) {
    return lower->builder.graph->open;
}

int emit_number(struct lower *lower, enum rt_dtype dtype, int64_t number) {
    if (!open_is(lower_open(lower), number)) return build_scalar(&lower->builder, dtype, (double)number);
    return emit_cast(lower, emit_ints(lower, 1, &number, 0, NULL), dtype);
}

/* The quotient is one of f64, as that of a fixed number is. */
int emit_reciprocal(struct lower *lower, enum rt_dtype dtype, int64_t number) {
    if (!open_is(lower_open(lower), number)) return build_scalar(&lower->builder, dtype, 1 / (double)number);
    const int one = build_scalar(&lower->builder, RT_F64, 1);
    return emit_cast(lower, emit2(lower, OP_Div, one, emit_number(lower, RT_F64, number)), dtype);
}

/* The size with the most steps that the number depends on; -1: none. */
static int size_of(struct open_sizes *open, int64_t number) {
    int64_t sizes[OPEN_SIZES];
    for (int s = 0; s < open->all.n; s++) {
        for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].range.most;
        const int64_t most = open_at(open, number, sizes);
        sizes[s] = open->all.at[s].range.least;
        if (open_at(open, number, sizes) != most) return s;
    }
    return -1;
}

int lower_at_least(struct lower *lower, int64_t number, int64_t least, const char *what, const char *must) {
    struct open_sizes *open = lower_open(lower);
    if (open_least(open, number) >= least) return 0;
    lower_error(lower, 439, "%s must be %s for all open sizes", what, must);
    const int s = size_of(open, number);
    if (s < 0) return -1;
    int64_t sizes[OPEN_SIZES];
    struct open_range range = open->all.at[s].range;
    for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].range.least;
    for (; range.least <= range.most; range.least += range.step) {
        sizes[s] = range.least;
        if (open_at(open, number, sizes) < least) continue;
        const char *text = open_range_text(lower->arena, &range);
        diag_help(lower->builder.diags, "it is for --dim %s=%s", str_name(lower->arena, open->all.at[s].name), text);
        break;
    }
    return -1;
}

bool lower_meets_keys(const struct lower *lower, int64_t length, int64_t keys) {
    struct open_sizes *open = lower_open(lower);
    return length == 1 || open_meet(open, length, keys) || !(open_is(open, length) || open_is(open, keys));
}

int lower_varies(struct lower *lower, int64_t number, const char *what) {
    struct open_sizes *open = lower_open(lower);
    const int s = size_of(open, number);
    lower_error(lower, 439, "%s varies: it is %s", what, open_text(open, lower->arena, number, NULL, false));
    if (s >= 0)
        diag_help(lower->builder.diags, "one size will do: --dim %s=%lld", str_name(lower->arena, open->all.at[s].name),
                  (long long)open->all.at[s].range.most);
    return -1;
}

/* Of an open number of places: how many ones are before each. */
static int open_places(struct lower *lower, int64_t first, int ndim, int axis, const int64_t *shape) {
    const struct attr attrs[] = {attr_of_int("axis", axis), attr_of_int("exclusive", 1), attr_of_int("reverse", 0)};
    const int ones = emit_expand(lower, build_scalar(&lower->builder, RT_I64, 1), ndim, shape);
    const int places = emit(lower, OP_CumSum, 1, &ones, 3, attrs);
    return first ? emit2(lower, OP_Add, places, emit_ints(lower, 1, &first, 0, NULL)) : places;
}

int emit_places(struct lower *lower, int64_t first, int64_t n, int ndim, int axis) {
    int64_t shape[RT_MAX_NDIM + 1], *places;
    for (int d = 0; d < ndim; d++) shape[d] = d == axis ? n : 1;
    if (open_is(lower->builder.graph->open, n)) return open_places(lower, first, ndim, axis, shape);
    places = ARENA_ARRAY(lower->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) places[i] = first + i;
    return emit_ints(lower, (int)n, places, ndim, shape);
}

int emit_floats(struct lower *lower, enum rt_dtype dtype, int ndim, const int64_t *dims, const double *values) {
    const char *name = constant_name(lower);
    return emit_cast(lower, graph_add_const(lower->builder.graph, name, RT_F64, ndim, dims, values), dtype);
}

static int too_many_dims(struct lower *lower, int ndim) {
    return lower_error(lower, 506, "a tensor of %d dimension(s): at most %d are supported", ndim, RT_MAX_NDIM);
}

int emit_view(struct lower *lower, int x, int ndim, const int64_t *shape) {
    int y;
    const struct attr attr = attr_of_ints("shape", ndim, shape);
    return build_op(&lower->builder, &ops[OP_Reshape], 1, &x, 1, &y, 1, &attr) < 0 ? -1 : y;
}

int emit_reshape(struct lower *lower, int x, int ndim, const int64_t *shape) {
    if (x < 0) return -1;
    if (ndim > RT_MAX_NDIM) return too_many_dims(lower, ndim);
    return lower_is_resized(lower, x) ? emit_view(lower, x, ndim, shape)
                                      : build_reshape(&lower->builder, x, ndim, shape);
}

int emit_transpose(struct lower *lower, int x, const int64_t *perm) {
    return x < 0 ? -1 : build_transpose(&lower->builder, x, perm);
}

int emit_expand(struct lower *lower, int x, int ndim, const int64_t *shape) {
    if (x < 0) return -1;
    return ndim > RT_MAX_NDIM ? too_many_dims(lower, ndim) : build_expand(&lower->builder, x, ndim, shape);
}

int emit_piece(struct lower *lower, int x, int axis, int64_t start, int64_t step, int64_t size) {
    return x < 0 ? -1 : build_piece(&lower->builder, x, axis, start, step, size);
}

int emit_concat(struct lower *lower, int axis, int n, const int *inputs) {
    return emit_along(lower, OP_Concat, n, inputs, axis);
}

int emit_gather(struct lower *lower, int x, int index, int axis) {
    return emit_along(lower, OP_Gather, 2, (int[]){x, index}, axis);
}

int emit_gather_elements(struct lower *lower, int x, int index, int axis) {
    return emit_along(lower, OP_GatherElements, 2, (int[]){x, index}, axis);
}

int emit_padded(struct lower *lower, int x, int axis, int64_t before, int64_t behind, double value) {
    int64_t begin[RT_MAX_NDIM] = {0}, end[RT_MAX_NDIM] = {0};
    if (x < 0) return -1;
    const int ndim = lower_ndim(lower, x);
    begin[axis] = before;
    end[axis] = behind;
    const struct attr attrs[] = {attr_of_ints("begin", ndim, begin), attr_of_ints("end", ndim, end)};
    return emit(lower, OP_Pad, 2, (int[]){x, emit_like(lower, x, value)}, 2, attrs);
}

int emit_top(struct lower *lower, int x, int axis, int64_t k, bool largest) {
    const struct attr attrs[] = {attr_of_int("axis", axis), attr_of_int("k", k), attr_of_int("largest", largest)};
    return emit(lower, OP_TopK, 1, &x, 3, attrs);
}

int emit_conv(struct lower *lower, int x, int weights, int64_t groups) {
    static const int64_t one[] = {1, 1, 1}, none[] = {0, 0, 0};
    if (x < 0 || weights < 0) return -1;
    const int n = lower_ndim(lower, x) - 2;
    const struct attr attrs[] = {attr_of_ints("stride", n, one), attr_of_ints("dilation", n, one),
                                 attr_of_ints("begin", n, none), attr_of_ints("end", n, none),
                                 attr_of_int("group", groups)};
    return emit(lower, OP_Conv, 2, (int[]){x, weights}, 5, attrs);
}

int emit_unsqueeze(struct lower *lower, int x, int axis) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    int64_t shape[RT_MAX_NDIM + 1];
    for (int d = 0; d <= tensor.ndim; d++) shape[d] = d < axis ? tensor.dims[d] : d == axis ? 1 : tensor.dims[d - 1];
    return emit_reshape(lower, x, tensor.ndim + 1, shape);
}

int emit_squeeze(struct lower *lower, int x, int axis) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    for (int d = axis; d < tensor.ndim - 1; d++) tensor.dims[d] = tensor.dims[d + 1];
    return emit_reshape(lower, x, tensor.ndim - 1, tensor.dims);
}

int emit_per_channel(struct lower *lower, int x, int ndim) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    int64_t shape[RT_MAX_NDIM];
    for (int d = 0; d < RT_MAX_NDIM; d++) shape[d] = 1;
    shape[0] = tensor_elements(&tensor);
    return emit_reshape(lower, x, ndim > 1 ? ndim - 1 : 1, shape);
}

int lower_map(struct lower *lower) {
    struct attr attrs[4];
    int n = 0, ndim;
    struct onnx_attr attr;
    if (lower->ninputs == 2) {
        struct tensor a = lower_input(lower, 0), b = lower_input(lower, 1);
        int64_t dims[RT_MAX_NDIM];
        if (!broadcast_dims(lower->builder.graph->open, a.ndim, a.dims, b.ndim, b.dims, &ndim, dims))
            return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    }
    for (const char *rest = lower->op->attrs; (rest = onnx_next_attr(rest, &attr)); n++) {
        const char *name = arena_copy(lower->arena, attr.name, attr.length);
        attrs[n] = attr_of_float(name, lower_float(lower, name));
    }
    return lower_result(lower, add(lower, lower->op->core->id, lower->ninputs, lower->inputs, n, attrs));
}

bool broadcast_dims(struct open_sizes *open, int nx, const int64_t *x, int ny, const int64_t *y, int *n,
                    int64_t *dims) {
    *n = nx > ny ? nx : ny;
    if (*n > RT_MAX_NDIM) return false;
    for (int d = 0; d < *n; d++) {
        int64_t a = d < *n - nx ? 1 : x[d - (*n - nx)], b = d < *n - ny ? 1 : y[d - (*n - ny)];
        if (a != 1 && b != 1 && !open_meet(open, a, b)) return false;
        dims[d] = a == 1 ? b : a;
    }
    return true;
}

int64_t extent_between(const struct tensor *tensor, int first, int end) {
    int64_t product;
    if (end <= first) return 1;
    if (!rt_product(tensor->dims + first, end - first, &product)) BUG("tensor '%s' is too large", tensor->name);
    return product;
}
