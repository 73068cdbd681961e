/* Values that no node computes (initializers, inputs, bound inputs), and the declared types and shapes of values. */
#include "frontend/import/import_sizes.h"
#include "frontend/import/import_state.h"
#include "frontend/read/onnx_data.h"

#include "ir/base/str.h"
#include "runtime/base/number/checked.h"

/* True for the types of quantised weights: integers of at most 16 bits, and codes. */
static bool is_quantised(enum rt_dtype dtype) {
    return rt_dtype_bytes(dtype) <= 2 && dtype != RT_BOOL && !rt_dtype_is_float(dtype);
}

/* A float of one element becomes a constant, which can be folded, unless it may be a parameter. */
static bool is_weight(const struct import *import, const struct onnx_tensor *tensor) {
    if (!tensor->in_file || !tensor->bytes || tensor->bits < 8) return false;
    if (is_quantised(tensor->dtype)) return tensor->count > 1 && !import->options->train;
    return rt_dtype_is_float(tensor->dtype) && (tensor->count > 1 || import->options->train);
}

/* A weight of type `dtype`, stored as `stored`. */
static int add_weight(struct import *import, const struct onnx_tensor *tensor, const char *name, enum rt_dtype dtype,
                      enum rt_dtype stored, const int64_t *dims) {
    int id = graph_add_tensor(import->graph, TENSOR_WEIGHT, name, lowering_type(&import->lowering, dtype), tensor->ndim,
                              dims);
    struct tensor *weight = &import->graph->tensors.at[id];
    weight->data = tensor->data;
    weight->stored = (struct stored){tensor->file, tensor->offset, stored};
    return id;
}

enum { PACKED_COUNT = 1024 }; /* fewer packed elements become a constant, one per byte */

/* Elements of fewer than 8 bits. A weight stays packed: it becomes a tensor of bytes and an Unpack. That needs whole
 * bytes in every row. */
static int import_packed(struct import *import, const struct onnx_tensor *tensor, const char *name) {
    struct build builder = {import->graph, import->diags, name};
    int64_t dims[RT_MAX_NDIM], row = tensor->ndim ? tensor->dims[tensor->ndim - 1] * tensor->bits : 0;
    if (!tensor->in_file || tensor->count < PACKED_COUNT || row % 8 || import->options->train)
        return lowering_tensor(&import->lowering, name, tensor);
    for (int d = 0; d < tensor->ndim; d++) dims[d] = d < tensor->ndim - 1 ? tensor->dims[d] : row / 8;
    const struct attr to = attr_of_text("to", rt_dtypes[tensor->dtype].name);
    int packed = add_weight(import, tensor, name, RT_U8, RT_U8, dims);
    return build(&builder, OP_Unpack, 1, &packed, 1, &to);
}

/* Note [Shared weights]
 * Initializers that --weights-from reads from one tensor of a file are one weight, as tied parameters are in PyTorch. A
 * tensor that is stored transposed is a weight in the file's layout, and a node transposes it. */
struct shared {
    int file, transposed, dtype;
    uint64_t offset;
};

static struct shared shared_key(const struct onnx_tensor *tensor, bool transposed) {
    struct shared key;
    memset(&key, 0, sizeof key);
    key.file = tensor->file;
    key.offset = tensor->offset;
    key.transposed = transposed;
    key.dtype = tensor->declared;
    return key;
}

static int add_transposed(struct import *import, const struct onnx_tensor *tensor, int weight) {
    const struct shared key = shared_key(tensor, true);
    struct build builder = {import->graph, import->diags, import->graph->tensors.at[weight].name};
    const struct attr perm = attr_of_ints("perm", 2, (int64_t[]){1, 0});
    int id; /* not folded: the weight stays in the file */
    if (build_op(&builder, &ops[OP_Transpose], 1, &weight, 1, &id, 1, &perm) < 0) return POISONED;
    map_put(&import->shared, (const char *)&key, sizeof key, id);
    return id;
}

/* The value of an initializer whose tensor another one has; -1 if there is none yet. */
static int find_shared(struct import *import, const struct onnx_tensor *tensor) {
    const struct shared key = shared_key(tensor, tensor->transposed), plain = shared_key(tensor, false);
    if (!import->model->elsewhere.n) return -1;
    const int same = map_get(&import->shared, (const char *)&key, sizeof key),
              weight = map_get(&import->shared, (const char *)&plain, sizeof plain);
    return same >= 0 || weight < 0 ? same : add_transposed(import, tensor, weight);
}

/* Records the weight that was added for the tensor; returns the value of the initializer. */
static int share(struct import *import, const struct onnx_tensor *tensor, int weight) {
    const struct shared key = shared_key(tensor, false);
    if (!import->model->elsewhere.n) return weight;
    map_put(&import->shared, (const char *)&key, sizeof key, weight);
    return tensor->transposed ? add_transposed(import, tensor, weight) : weight;
}

/* The value of an initializer; POISONED after a diagnostic. Large float tensors become WEIGHTs. */
static int import_initializer(struct import *import, const Onnx__TensorProto *proto, const char *name) {
    struct onnx_tensor tensor;
    if (onnx_tensor(import->model, proto, NULL, &tensor) < 0) return POISONED;
    if (tensor.count && tensor.bits < 8) return import_packed(import, &tensor, name);
    if (!is_weight(import, &tensor)) return lowering_tensor(&import->lowering, name, &tensor);
    const int shared = find_shared(import, &tensor);
    if (shared >= 0) return shared;
    int64_t dims[RT_MAX_NDIM] = {0};
    for (int d = 0; d < tensor.ndim; d++) dims[d] = tensor.dims[tensor.transposed ? 1 - d : d];
    int id = add_weight(import, &tensor, name, tensor.declared, tensor.dtype, dims);
    if (import->options->train || import->options->keeps) import_mark(import, id);
    return share(import, &tensor, id);
}

static int import_sparse(struct import *import, const Onnx__SparseTensorProto *proto, const char *name) {
    struct onnx_tensor tensor;
    const char *where = onnx_where(import->model, "initializer", name);
    if (onnx_sparse(import->model, proto, where, &tensor) < 0) return POISONED;
    return lowering_tensor(&import->lowering, name, &tensor);
}

void import_initializers(struct import *import, const Onnx__GraphProto *graph, struct scope *scope) {
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = onnx_text(graph->initializer[i]->name);
        if (map_find(&scope->ids, name) < 0) /* else it is bound */
            scope_define(scope, name, import_initializer(import, graph->initializer[i], name));
    }
    for (size_t i = 0; i < graph->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *sparse = graph->sparse_initializer[i];
        const char *name = onnx_text(sparse->values->name);
        if (map_find(&scope->ids, name) < 0) scope_define(scope, name, import_sparse(import, sparse, name));
    }
}

static const char *place_of(struct import *import, const char *what, const char *name) {
    return onnx_where(import->model, what, name);
}

/* The size of dimension d of an input, which may be OPEN; `given` is the shape of an input without a declared one. */
static int64_t input_size(struct sizes *sizes, const Onnx__ValueInfoProto *info, const struct import_shape *given,
                          size_t d) {
    return info->type->tensor_type->shape ? sizes_of(sizes, info, d) : sizes_undeclared(sizes, info, given, d);
}

/* The extents of input `at`: how many, or -1 if a dimension has no size or is invalid. */
static int input_dims(struct sizes *sizes, int at, int64_t *dims) {
    struct import *import = sizes->import;
    const Onnx__ValueInfoProto *info = import->ports.at[at];
    const Onnx__TensorShapeProto *shape = info->type->tensor_type->shape;
    const struct import_shape *given = sizes_shape(sizes, onnx_text(info->name));
    const size_t ndim = shape ? shape->n_dim : (size_t)given->ndim;
    int64_t bytes = 16;
    bool open = false;
    for (size_t d = 0; d < ndim; d++) {
        dims[d] = input_size(sizes, info, given, d);
        if (dims[d] == OPEN && !sizes_is_number(shape->dim[d]))
            open = true;
        else if (dims[d] < 0)
            return diag_error(import->diags, 352, EXIT_MALFORMED, place_of(import, "input", info->name),
                              "dimension %zu is negative", d);
        else if (!rt_mul(bytes, open_most(import->graph->open, dims[d] ? dims[d] : 1), &bytes) || bytes >> 46)
            return diag_error(import->diags, 505, EXIT_LIMIT, place_of(import, "input", info->name),
                              "the input is too large");
    }
    if (open) return sizes_miss(sizes, at), -1;
    if (!graph_shape_fits(import->graph, (int)ndim, dims))
        return diag_error(import->diags, 505, EXIT_LIMIT, place_of(import, "input", info->name),
                          "the input is too large");
    return (int)ndim;
}

static int no_shape(struct import *import, const Onnx__ValueInfoProto *info, const char *where) {
    diag_error(import->diags, 344, EXIT_UNSUPPORTED, where, "the input has no shape");
    return diag_help(import->diags, "--shape %s=SIZE,.. gives it one", str_name(import->arena, info->name));
}

/* The declared element type of an input; false after a diagnostic if it is unsupported. */
static bool input_type(struct sizes *sizes, const Onnx__ValueInfoProto *info, enum rt_dtype *dtype) {
    struct import *import = sizes->import;
    const Onnx__TypeProto__Tensor *type = sizes_tensor_type(info);
    const char *where = place_of(import, "input", info->name);
    *dtype = type ? rt_dtype_by_onnx(type->elem_type) : RT_DTYPE_NONE;
    if (!type)
        diag_error(import->diags, 404, EXIT_UNSUPPORTED, where, "type %s is not supported",
                   onnx_type_text(import->model, info->type));
    else if (!type->shape && !sizes_shape(sizes, onnx_text(info->name)))
        no_shape(import, info, where);
    else if (type->shape && type->shape->n_dim > RT_MAX_NDIM)
        diag_error(import->diags, 506, EXIT_LIMIT, where, "the input has %zu dimension(s), at most %d are supported",
                   type->shape->n_dim, RT_MAX_NDIM);
    else if (*dtype == RT_DTYPE_NONE)
        diag_error(import->diags, 407, EXIT_UNSUPPORTED, where, "the input's type %s is not supported",
                   type->elem_type ? onnx_type_name(type->elem_type) : "UNDEFINED");
    else
        return true;
    return false;
}

static int import_input(struct sizes *sizes, int at) {
    struct import *import = sizes->import;
    const Onnx__ValueInfoProto *info = import->ports.at[at];
    enum rt_dtype dtype;
    int64_t dims[RT_MAX_NDIM];
    const int ndim = input_type(sizes, info, &dtype) ? input_dims(sizes, at, dims) : -1;
    if (ndim < 0) return POISONED;
    return graph_add_tensor(import->graph, TENSOR_INPUT, info->name, lowering_type(&import->lowering, dtype), ndim,
                            dims);
}

static void import_inputs(struct sizes *sizes, struct scope *scope) {
    struct import *import = sizes->import;
    for (int i = 0; i < import->ports.n; i++) {
        const char *name = onnx_text(import->ports.at[i]->name);
        if (scope_find(scope, name) != UNDEFINED) continue; /* bound, or with an initializer as its value */
        int id = import_input(sizes, i);
        if (id >= 0) VEC_PUSH(import->arena, &import->graph->inputs, id);
        scope_define(scope, name, id);
    }
}

static void declare(struct import *import, Onnx__ValueInfoProto *const *infos, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char *name = onnx_text(infos[i]->name);
        if (!sizes_tensor_type(infos[i]) || map_find(&import->declared, name) >= 0) continue;
        map_set(&import->declared, name, import->infos.n);
        VEC_PUSH(import->arena, &import->infos, infos[i]);
    }
}

static bool has_declared_type(const struct import *import, const Onnx__TypeProto__Tensor *type,
                              const struct tensor *tensor) {
    enum rt_dtype dtype = rt_dtype_by_onnx(type->elem_type);
    return dtype != RT_DTYPE_NONE && lowering_type(&import->lowering, dtype) == tensor->dtype;
}

/* A dimension whose size depends on data may be declared with a size up to the bound. */
static bool has_declared_shape(const Onnx__TypeProto__Tensor *type, const struct tensor *tensor,
                               const struct counted *counted) {
    if (!type->shape) return true;
    if ((int)type->shape->n_dim != tensor->ndim) return false;
    for (int d = 0; d < tensor->ndim; d++)
        if (sizes_is_number(type->shape->dim[d]) && type->shape->dim[d]->dim_value != tensor->dims[d] &&
            !(counted && counted->dim == d && type->shape->dim[d]->dim_value < tensor->dims[d]))
            return false;
    return true;
}

int import_check_declared(struct import *import, const char *name, int id) {
    int at = map_find(&import->declared, name);
    if (at < 0) return 0;
    const Onnx__TypeProto__Tensor *type = sizes_tensor_type(import->infos.at[at]);
    struct tensor tensor = import->graph->tensors.at[id];
    bool right_type = has_declared_type(import, type, &tensor);
    if (right_type && has_declared_shape(type, &tensor, lowering_counted(&import->lowering, id))) return 0;
    const char *where = place_of(import, "value", name);
    const char *text = arena_printf(import->arena, "declared as %s, but it is %s", sizes_declared(type, import->arena),
                                    tensor_type(import->arena, &tensor));
    if (!right_type && at < import->nfixed) {
        diag_error(import->diags, 342, EXIT_MALFORMED, where, "%s", text);
        return diag_help(import->diags, "remove the declaration, or run the onnx package's shape inference anew");
    }
    if (!import->undeclared.count++) import->undeclared.where = where, import->undeclared.text = text;
    return 0;
}

void import_report_undeclared(struct import *import) {
    if (!import->undeclared.count) return;
    diag_warning(import->diags, 342, import->undeclared.where, "%s: the declaration is ignored",
                 import->undeclared.text);
    if (import->undeclared.count > 1)
        diag_note(import->diags, "%d value(s) are declared otherwise than computed", import->undeclared.count);
}

int import_values(struct import *import, struct scope *scope) {
    const Onnx__GraphProto *proto = import->model->proto->graph;
    struct sizes sizes;
    map_init(&import->declared, import->arena);
    declare(import, proto->input, proto->n_input);
    declare(import, proto->output, proto->n_output);
    import->nfixed = import->infos.n;
    declare(import, proto->value_info, proto->n_value_info);
    import_trained(import);
    import_signature(import);
    import_ports(import);
    sizes_init(&sizes, import);
    import_binds(&sizes, scope); /* first: other inputs may use the sizes of their dimensions */
    import_initializers(import, proto, scope);
    import_inputs(&sizes, scope);
    import_boundaries(import, scope);
    sizes_limit(&sizes);
    sizes_report(&sizes, import_decoder_options(import, &sizes.open));
    return import->diags->errors ? -1 : 0;
}
