/* rankc ckpt to-onnx: the model file with trained parameters in place of its initializers. Low-rank adapters are added
 * to the matrices of the products beside which they were trained; where others read the matrix too, as an embedding
 * does that is tied to the logits, the product gets a matrix of its own. Everything else of the model is written as it
 * was read. Values that lay in the model file lie there again; those of external data are written to OUT.onnx.data. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/ckpt/checkpoint_target.h"
#include "frontend/read/onnx_read.h"
#include "ir/base/own.h"
#include "runtime/base/io/file.h"
#include "runtime/base/number/half.h"

#define DATA_MOST  ((size_t)INT32_MAX) /* bytes of a model file: a limit of protobuf */
#define DATA_ALIGN 64

struct export {
    struct cli *cli;
    struct checkpoint *from;
    struct onnx_model *model;   /* checked; gives the values */
    Onnx__ModelProto *proto;    /* the whole file, which is changed */
    const char *out, *external; /* OUT.onnx, and OUT.onnx.data */
    struct rt_new_file data;    /* of external data; descriptor -1: none yet */
    int64_t at;                 /* bytes in it */
    int directory;              /* of OUT.onnx */
    int trained;                /* parameters so far */
    struct checkpoint_adapters adapters;
    struct lora_places places; /* of the adapters */
};

static bool converts(enum rt_dtype from, enum rt_dtype to) {
    return from == to || (from == RT_F32 && (to == RT_F64 || to == RT_F16 || to == RT_BF16));
}

/* Element `index` of the parameter, as the initializer's type. */
static void convert(unsigned char *to, enum rt_dtype wanted, const unsigned char *from, enum rt_dtype dtype) {
    float value;
    if (wanted == dtype) {
        memcpy(to, from, rt_dtype_bytes(dtype));
        return;
    }
    memcpy(&value, from, sizeof value);
    const double wide = value;
    const uint16_t half = wanted == RT_F16 ? rt_f32_to_f16(value) : rt_f32_to_bf16(value);
    memcpy(to, wanted == RT_F64 ? (const void *)&wide : (const void *)&half, rt_dtype_bytes(wanted));
}

/* How an initializer holds the elements of a parameter: as they are, a matrix transposed, or several times in a row. */
struct original {
    const struct rt_saved_tensor *tensor; /* NULL: the initializer has none of a parameter */
    bool transposed;
    int64_t times;
};

static void exchange(unsigned char *to, const unsigned char *from, int64_t rows, int64_t columns, size_t size) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            memcpy(to + (size_t)(c * rows + r) * size, from + (size_t)(r * columns + c) * size, size);
}

/* The values of the initializer, as its type. */
static unsigned char *values_for(struct export *export, const struct original *original, enum rt_dtype wanted,
                                 size_t *bytes) {
    const struct rt_saved_tensor *tensor = original->tensor;
    const int64_t n = checkpoint_elements(tensor), columns = original->transposed ? tensor->dims[1] : 1,
                  rows = original->transposed ? tensor->dims[0] : n;
    const size_t size = rt_dtype_bytes(wanted), given = rt_dtype_bytes(tensor->dtype), once = (size_t)n * size;
    const unsigned char *values = checkpoint_values(export->cli, export->from, tensor);
    if (!values) return NULL;
    unsigned char *out = ARENA_ARRAY(export->cli->arena, unsigned char, original->times *(int64_t)once + 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            convert(out + (size_t)(c * rows + r) * size, wanted, values + (size_t)(r * columns + c) * given,
                    tensor->dtype);
    for (int64_t i = 1; i < original->times; i++) memcpy(out + (size_t)i * once, out, once);
    *bytes = (size_t)original->times * once;
    return out;
}

static bool has_dims(const struct onnx_tensor *value, const int64_t *dims, int ndim) {
    return value->ndim == ndim && memcmp(value->dims, dims, (size_t)ndim * sizeof *dims) == 0;
}

/* True if `copy` is `value` transposed, element by element, and not one value repeated. */
static bool is_transposed(const struct onnx_tensor *copy, const struct onnx_tensor *value) {
    if (copy->ndim != 2 || value->ndim != 2 || copy->dtype != value->dtype || copy->dims[0] != value->dims[1] ||
        copy->dims[1] != value->dims[0] || copy->bits < 8 || copy->count < 2)
        return false;
    const size_t size = rt_dtype_bytes(copy->dtype);
    const unsigned char *a = copy->data, *b = value->data;
    bool varies = false;
    for (int64_t r = 0; r < copy->dims[0]; r++)
        for (int64_t c = 0; c < copy->dims[1]; c++) {
            const unsigned char *x = a + (size_t)(r * copy->dims[1] + c) * size;
            if (memcmp(x, b + (size_t)(c * copy->dims[0] + r) * size, size) != 0) return false;
            varies = varies || memcmp(x, a, size) != 0;
        }
    return varies;
}

/* True if the initializer can be the parameter several times in a row: the same but for outer dimensions, which the
 * parameter has once (passes/train/unrepeat.c). */
static bool is_repeated(const struct onnx_tensor *value, const struct rt_saved_tensor *tensor) {
    int d = 0;
    if (value->ndim != tensor->ndim || value->count <= checkpoint_elements(tensor)) return false;
    while (d < tensor->ndim && tensor->dims[d] == 1) d++;
    return memcmp(value->dims + d, tensor->dims + d, (size_t)(tensor->ndim - d) * sizeof *tensor->dims) == 0;
}

static const char *folded_from(const Onnx__GraphProto *graph, const char *name) {
    for (size_t i = 0; i < graph->n_value_info; i++) {
        const Onnx__ValueInfoProto *info = graph->value_info[i];
        if (strcmp(onnx_text(info->name), name) == 0)
            return onnx_property(info->metadata_props, info->n_metadata_props, ONNX_FOLDED_FROM);
    }
    return "";
}

/* The parameter of which the exporter made the initializer by repeating it, as it says in the metadata. */
static const struct rt_saved_tensor *repeated_parameter(struct export *export, const char *name,
                                                        const struct onnx_tensor *value) {
    const char *sources = folded_from(export->model->proto->graph, name);
    for (int i = 0; *sources && i < rt_saved_count(export->from->saved, RT_SAVED_PARAMETERS); i++) {
        const struct rt_saved_tensor *tensor = rt_saved_at(export->from->saved, RT_SAVED_PARAMETERS, i);
        if (is_repeated(value, tensor) && strstr(sources, arena_printf(export->cli->arena, "'%s'", tensor->name)))
            return tensor;
    }
    return NULL;
}

/* The parameter of which the initializer is a transposed copy, made by an exporter; rankc trains both as one. NULL:
 * none. */
static const struct rt_saved_tensor *transposed_parameter(struct export *export, const struct onnx_tensor *copy) {
    const Onnx__GraphProto *graph = export->model->proto->graph;
    for (size_t i = 0; i < graph->n_initializer && copy->ndim == 2; i++) {
        const struct rt_saved_tensor *tensor =
            rt_saved_find(export->from->saved, RT_SAVED_PARAMETERS, onnx_text(graph->initializer[i]->name));
        struct onnx_tensor value;
        if (tensor && !onnx_tensor(export->model, graph->initializer[i], NULL, &value) && is_transposed(copy, &value))
            return tensor;
    }
    return NULL;
}

static ProtobufCBinaryData bytes_of(void *bytes, size_t count) {
    return (ProtobufCBinaryData){count, bytes};
}

/* The initializer has these values in the model file. The tree keeps pointers into the arena; it is never freed. */
static void set_raw(Onnx__TensorProto *proto, unsigned char *bytes, size_t count) {
    proto->n_float_data = proto->n_int32_data = proto->n_int64_data = proto->n_double_data = 0;
    proto->n_uint64_data = 0;
    proto->has_raw_data = 1;
    proto->raw_data = bytes_of(bytes, count);
}

static Onnx__StringStringEntryProto *entry(struct arena *arena, const char *key, const char *value) {
    Onnx__StringStringEntryProto *made = ARENA_NEW(arena, Onnx__StringStringEntryProto);
    onnx__string_string_entry_proto__init(made);
    made->key = arena_strdup(arena, key);
    made->value = arena_strdup(arena, value);
    return made;
}

/* The initializer has these values in OUT.onnx.data. */
static void set_external(struct export *export, Onnx__TensorProto *proto, const void *bytes, size_t count) {
    static const char zeros[DATA_ALIGN];
    struct arena *arena = export->cli->arena;
    const size_t gap = (size_t)(-export->at & (DATA_ALIGN - 1));
    if (export->data.descriptor < 0 && !export->data.error)
        rt_file_begin_at(&export->data, export->directory, checkpoint_beside(export->cli, export->external));
    rt_file_append(&export->data, zeros, gap);
    rt_file_append(&export->data, bytes, count);
    export->at += (int64_t)gap;
    proto->external_data = ARENA_ARRAY(arena, Onnx__StringStringEntryProto *, 3);
    proto->n_external_data = 3;
    proto->external_data[0] = entry(arena, "location", rt_path_name(export->external));
    proto->external_data[1] = entry(arena, "offset", arena_printf(arena, "%" PRId64, export->at));
    proto->external_data[2] = entry(arena, "length", arena_printf(arena, "%zu", count));
    export->at += (int64_t)count;
}

static bool is_external(const Onnx__TensorProto *proto) {
    return proto->has_data_location && proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

static struct original original_of(struct export *export, const char *name, const struct onnx_tensor *value) {
    struct original original = {rt_saved_find(export->from->saved, RT_SAVED_PARAMETERS, name), false, 1};
    if (original.tensor) return original;
    original.tensor = transposed_parameter(export, value);
    original.transposed = original.tensor != NULL;
    if (original.tensor) return original;
    original.tensor = repeated_parameter(export, name, value);
    if (original.tensor) original.times = value->count / checkpoint_elements(original.tensor);
    return original;
}

static int refuse_parameter(struct export *export, const char *name, const struct onnx_tensor *value,
                            const struct rt_saved_tensor *tensor) {
    struct rt_saved_tensor own = {.name = name, .dtype = value->dtype, .ndim = value->ndim};
    memcpy(own.dims, value->dims, (size_t)value->ndim * sizeof *own.dims);
    return diag_error(export->cli->diags, 805, EXIT_MISMATCH, onnx_where(export->model, "initializer", name),
                      "the model has %s, and the checkpoint %s", checkpoint_tensor_text(&own, export->cli),
                      checkpoint_tensor_text(tensor, export->cli));
}

/* The values of the parameter that the initializer has: 0 and *values, NULL if it has none; -1 after a diagnostic. */
static int trained_values(struct export *export, const char *name, const struct onnx_tensor *value,
                          unsigned char **values, size_t *bytes) {
    const struct original original = original_of(export, name, value);
    const bool copied = original.transposed || original.times > 1;
    *values = NULL;
    if (!original.tensor) return 0;
    if ((!copied && !has_dims(value, original.tensor->dims, original.tensor->ndim)) ||
        !converts(original.tensor->dtype, value->dtype))
        return refuse_parameter(export, name, value, original.tensor);
    *values = values_for(export, &original, value->dtype, bytes);
    if (!*values) return -1;
    cli_tell(export->cli, "%s: %s", str_escape(export->cli->arena, name, strlen(name), 0),
             checkpoint_tensor_text(original.tensor, export->cli));
    export->trained += !original.transposed;
    return 0;
}

/* `external`: whether the values lie in OUT.onnx.data. */
static void set_values(struct export *export, Onnx__TensorProto *proto, bool external, unsigned char *values,
                       size_t bytes) {
    if (external)
        set_external(export, proto, values, bytes);
    else
        set_raw(proto, values, bytes);
}

/* Which operand of the operator is the matrix; 0: none is. An embedding reads it first. */
static int matrix_operand(const char *op) {
    if (strcmp(op, "Gather") == 0) return 1;
    return strcmp(op, "MatMul") == 0 || strcmp(op, "Gemm") == 0 ? 2 : 0;
}

static Onnx__NodeProto *find_product(const Onnx__GraphProto *graph, const char *name) {
    for (size_t i = 0; i < graph->n_node; i++) {
        Onnx__NodeProto *node = graph->node[i];
        const bool named = strcmp(onnx_text(node->name), name) == 0 ||
                           (node->n_output && strcmp(onnx_text(node->output[0]), name) == 0);
        if (named && node->n_input > 1 && matrix_operand(onnx_text(node->op_type))) return node;
    }
    return NULL;
}

static bool reads_transposed(const Onnx__NodeProto *product) {
    for (size_t i = 0; i < product->n_attribute; i++)
        if (strcmp(onnx_text(product->attribute[i]->name), "transB") == 0) return product->attribute[i]->i;
    return false;
}

static Onnx__TensorProto *add_initializer(struct export *export, const char *name, int32_t type, int64_t rows,
                                          int64_t columns) {
    Onnx__GraphProto *graph = export->proto->graph;
    struct arena *arena = export->cli->arena;
    Onnx__TensorProto **all = ARENA_ARRAY(arena, Onnx__TensorProto *, (int64_t)graph->n_initializer + 1);
    Onnx__TensorProto *made = ARENA_NEW(arena, Onnx__TensorProto);
    onnx__tensor_proto__init(made);
    made->name = arena_strdup(arena, name);
    made->has_data_type = 1, made->data_type = type;
    made->n_dims = 2, made->dims = ARENA_ARRAY(arena, int64_t, 2);
    made->dims[0] = rows, made->dims[1] = columns;
    memcpy(all, graph->initializer, graph->n_initializer * sizeof *all);
    all[graph->n_initializer++] = made;
    graph->initializer = all;
    return made;
}

/* The product reads the matrix `values`, (outputs, inputs) if place->turned, in place of one that others read too. */
static int give_own_matrix(struct export *export, const struct lora_place *place, const Onnx__TensorProto *shared,
                           const unsigned char *values, size_t bytes) {
    struct arena *arena = export->cli->arena;
    const bool stack = place->given->kind == LORA_STACK;
    Onnx__NodeProto *product = stack ? NULL : find_product(export->proto->graph, place->node);
    if (!product)
        return diag_error(export->cli->diags, 805, EXIT_MISMATCH, onnx_where(export->model, "node", place->node),
                          "the adapter of %s cannot be merged: others read the matrix too, and the product is no "
                          "MatMul, Gemm or Gather of the main graph",
                          diag_quote(export->cli->diags, place->module));
    const int64_t inputs = place->given->inputs, outputs = place->given->outputs, n = inputs * outputs;
    const int64_t rows = place->turned ? outputs : inputs, columns = n / rows;
    const bool exchanged = reads_transposed(product) != place->turned;
    unsigned char *own = ARENA_ARRAY(arena, unsigned char, (int64_t)bytes);
    exchange(own, values, exchanged ? rows : 1, exchanged ? columns : n, bytes / (size_t)n);
    const char *name = arena_printf(arena, "%s.merged_weight", place->node);
    Onnx__TensorProto *made =
        add_initializer(export, name, shared->data_type, exchanged ? columns : rows, exchanged ? rows : columns);
    if (is_external(shared)) made->has_data_location = 1, made->data_location = shared->data_location;
    set_values(export, made, is_external(shared), own, bytes);
    product->input[matrix_operand(onnx_text(product->op_type)) - 1] = made->name;
    return 0;
}

/* Adds the adapters of the products that read the initializer; *values become its own, if others do not read it. */
static int merge_adapters(struct export *export, const Onnx__TensorProto *proto, const struct onnx_tensor *value,
                          unsigned char **values, size_t *bytes) {
    struct cli *cli = export->cli;
    const char *merged = NULL; /* the module: it may be executed several times */
    EACH(export->places.all.at, export->places.all.n, i, const struct lora_place *place) {
        if (strcmp(place->weight, onnx_text(proto->name)) != 0 || merged) continue;
        if (!*values) *bytes = (size_t)value->bytes;
        unsigned char *sum = arena_copy(cli->arena, *values ? *values : value->data, *bytes);
        checkpoint_add_adapter(cli, place, sum, value->dtype);
        cli_tell(cli, "%s: with the adapter of %s", str_escape(cli->arena, proto->name, strlen(proto->name), 0),
                 diag_quote(cli->diags, place->module));
        if (place->shared && give_own_matrix(export, place, proto, sum, *bytes) < 0) return -1;
        if (!place->shared) *values = sum, merged = place->module;
    }
    return 0;
}

/* `checked`: the same initializer in the checked model. */
static int change_initializer(struct export *export, Onnx__TensorProto *proto, const Onnx__TensorProto *checked) {
    struct onnx_tensor value;
    unsigned char *values;
    size_t bytes;
    if (onnx_tensor(export->model, checked, NULL, &value)) return -1;
    if (trained_values(export, onnx_text(proto->name), &value, &values, &bytes) < 0 ||
        merge_adapters(export, proto, &value, &values, &bytes) < 0)
        return -1;
    if (values)
        set_values(export, proto, is_external(proto), values, bytes);
    else if (is_external(proto))
        set_external(export, proto, value.data, (size_t)value.bytes);
    return 0;
}

static int change_model(struct export *export) {
    const Onnx__GraphProto *checked = export->model->proto->graph;
    const int wanted = export->adapters.others;
    for (size_t i = 0; i < checked->n_initializer; i++)
        if (change_initializer(export, export->proto->graph->initializer[i], checked->initializer[i])) return -1;
    if (export->trained == wanted) return 0;
    return diag_error(export->cli->diags, 805, EXIT_MISMATCH, export->model->place,
                      "the model has %d of the checkpoint's %d parameter(s)", export->trained, wanted);
}

static int write_model(struct export *export) {
    struct arena *arena = export->cli->arena;
    const size_t count = onnx__model_proto__get_packed_size(export->proto);
    struct rt_reason why;
    if (count > DATA_MOST)
        return diag_error(export->cli->diags, 500, EXIT_LIMIT, export->model->place,
                          "the model would have more than 2 GiB; store its weights as external data");
    unsigned char *bytes = ARENA_ARRAY(arena, unsigned char, count + 1);
    onnx__model_proto__pack(export->proto, bytes);
    const struct rt_piece piece = {bytes, count};
    const char *beside = checkpoint_beside(export->cli, export->out);
    if (rt_file_create_at(export->directory, beside, &piece, 1, &why)) return 0;
    return diag_refusal(export->cli->diags, 611, EXIT_SYSTEM, NULL, &why);
}

static int export_model(struct export *export) {
    struct rt_reason why;
    int status = change_model(export);
    const bool opened = export->data.descriptor >= 0 || export->data.error;
    if (status && opened) export->data.error = EIO; /* removes the file */
    if (opened && !rt_file_end(&export->data, &why) && !status)
        status = diag_refusal(export->cli->diags, 611, EXIT_SYSTEM, NULL, &why);
    if (!status) status = onnx_check_files(export->model);
    if (!status) status = write_model(export);
    if (!status && opened)
        status = checkpoint_publish(export->cli, export->directory, export->external);
    else if (opened)
        unlinkat(export->directory, rt_path_name(checkpoint_beside(export->cli, export->external)), 0);
    return status ? status : checkpoint_publish(export->cli, export->directory, export->out);
}

/* The tree is in the arena, so that its fields may be replaced by memory of the arena. */
static void *allocate(void *arena, size_t bytes) {
    return arena_alloc(arena, 1, bytes);
}

static void keep(void *arena, void *pointer) {
    (void)arena, (void)pointer;
}

/* Reads the model file a second time, with all data, and checks that it is the file that was checked. */
static int read_whole(struct export *export, const char *path) {
    struct cli *cli = export->cli;
    ProtobufCAllocator allocator = {allocate, keep, cli->arena};
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file(cli->arena, path, DATA_MOST, &bytes, &count, &why))
        return diag_refusal(cli->diags, 601, EXIT_SYSTEM, path, &why);
    export->proto = onnx__model_proto__unpack(&allocator, count, bytes);
    if (export->proto && export->proto->graph &&
        export->proto->graph->n_initializer == export->model->proto->graph->n_initializer)
        return onnx_check_files(export->model);
    return onnx_file_refuse(export->model, &export->model->files.at[0]);
}

int checkpoint_to_onnx(struct cli *cli, struct checkpoint *from) {
    const char *model = cli->options->operands[1], *out = cli->options->operands[2];
    struct export export = {.cli = cli, .from = from, .out = out, .data = {.descriptor = -1}};
    if (onnx_open(cli->arena, cli->diags, model, cli->options->allow_links, &export.model)) return -1;
    if (read_whole(&export, model)) return -1;
    if (checkpoint_adapters_read(&export.adapters, from, cli) < 0 ||
        checkpoint_adapters_place(&export.adapters, from, model, export.model, cli, &export.places) < 0)
        return -1;
    export.external = arena_printf(cli->arena, "%s.data", out);
    export.directory = checkpoint_open_parent(cli, out);
    if (export.directory < 0) return -1;
    const int status = export_model(&export);
    close(export.directory);
    if (status) return status;
    const int merged = export.adapters.all.n;
    const char *adapters = merged ? arena_printf(cli->arena, ", %d adapter(s) merged", merged) : "";
    return cli_confirm(cli, "%s: %d parameter(s)%s\n", out, export.trained, adapters);
}
