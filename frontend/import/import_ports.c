/* Graph inputs and outputs that are sequences or optionals. They are resolved at import, so that a program has tensors
 * only: the tensors of sequence x are the ports x.0, x.1, ..; an optional's value has its name.
 *
 * Of an input, options say what is given: --shape x.0=2,3 --shape x.1=2,4 (or --bind) that x has two tensors,
 * --shape x=empty that it has none, --shape x=none that an optional has no value. An optional tensor has a value unless
 * options say that it does not. The tensors of a sequence may differ in shape; names of dimensions in its declared type
 * are therefore not names for --dim. */
#include "frontend/import/import_state.h"

#include <stdlib.h>

#include "frontend/import/import_sizes.h"
#include "ir/base/str.h"

enum { MOST_ITEMS = 1 << 12, NOT_GIVEN = SHAPE_EMPTY - 1 };

/* The type within optional(..), and whether the type is an optional. */
static const Onnx__TypeProto *within(const Onnx__TypeProto *type, bool *optional) {
    *optional = type && type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
    return *optional ? type->optional_type->elem_type : type;
}

static bool is_tensor(const Onnx__TypeProto *type) {
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
}

/* The type of a sequence's tensors; NULL if the type is no sequence of tensors. */
static const Onnx__TypeProto *item_type(const Onnx__TypeProto *type) {
    bool sequence = type && type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
    const Onnx__TypeProto *item = sequence ? type->sequence_type->elem_type : NULL;
    return is_tensor(item) ? item : NULL;
}

/* Number of dimensions that --shape gives the input, or what it says instead. */
static int given_shape(const struct import *import, const char *name) {
    for (int i = 0; i < import->options->nshapes; i++)
        if (strcmp(import->options->shapes[i].input, name) == 0) return import->options->shapes[i].ndim;
    return NOT_GIVEN;
}

/* The k of an option's name "x.k" for sequence x; -1: it is not of this form. */
static int64_t item_of(const char *option, const char *sequence) {
    size_t length = strlen(sequence);
    if (strncmp(option, sequence, length) != 0 || option[length] != '.') return -1;
    const char *digits = option + length + 1;
    if (strspn(digits, "0123456789") != strlen(digits) || !*digits || strlen(digits) > 8) return -1;
    return strtol(digits, NULL, 10);
}

/* One more than the largest number of a tensor of the sequence that an option names. */
static int64_t given_items(const struct import *import, const char *name) {
    int64_t n = 0;
    for (int i = 0; i < import->options->nshapes; i++) {
        int64_t k = item_of(import->options->shapes[i].input, name);
        if (k >= n) n = k + 1;
    }
    for (int i = 0; i < import->options->nbinds; i++) {
        int64_t k = item_of(import->options->binds[i].input, name);
        if (k >= n) n = k + 1;
    }
    return n;
}

/* A copy of a tensor type whose dimensions have sizes and no names. */
static Onnx__TypeProto *without_names(struct arena *arena, const Onnx__TypeProto *type) {
    Onnx__TypeProto *copy = arena_copy(arena, type, sizeof *type);
    Onnx__TypeProto__Tensor *tensor = arena_copy(arena, type->tensor_type, sizeof *type->tensor_type);
    copy->tensor_type = tensor;
    if (!tensor->shape) return copy;
    Onnx__TensorShapeProto *shape = tensor->shape = arena_copy(arena, tensor->shape, sizeof *tensor->shape);
    Onnx__TensorShapeProto__Dimension **dims =
        ARENA_ARRAY(arena, Onnx__TensorShapeProto__Dimension *, shape->n_dim + 1);
    for (size_t d = 0; d < shape->n_dim; d++) {
        dims[d] = arena_copy(arena, shape->dim[d], sizeof *shape->dim[d]);
        if (!sizes_is_number(dims[d])) dims[d]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE__NOT_SET;
    }
    shape->dim = dims;
    return copy;
}

static void add_port(struct import *import, const Onnx__ValueInfoProto *info, const char *name,
                     const Onnx__TypeProto *type) {
    Onnx__ValueInfoProto *port = arena_copy(import->arena, info, sizeof *info);
    port->name = arena_strdup(import->arena, name);
    port->type = type ? arena_copy(import->arena, type, sizeof *type) : NULL;
    VEC_PUSH(import->arena, &import->ports, port);
}

static bool is_taken(const struct import *import, const char *name) {
    const Onnx__GraphProto *proto = import->model->proto->graph;
    for (size_t i = 0; i < proto->n_input; i++)
        if (strcmp(onnx_text(proto->input[i]->name), name) == 0) return true;
    for (size_t i = 0; i < proto->n_initializer; i++)
        if (strcmp(onnx_text(proto->initializer[i]->name), name) == 0) return true;
    return false;
}

/* Adds the tensors of a sequence to the ports. */
static int add_items(struct import *import, const Onnx__ValueInfoProto *info, const Onnx__TypeProto *type) {
    const char *name = onnx_text(info->name), *where = onnx_where(import->model, "input", name);
    const int64_t n = given_items(import, name);
    const bool empty = given_shape(import, name) == SHAPE_EMPTY;
    if (!n && !empty) {
        const char *shown = str_name(import->arena, name);
        diag_error(import->diags, 343, EXIT_USAGE, where, "the number of the sequence's tensors is not given");
        return diag_help(import->diags, "--shape %s.0=SIZE,.. --shape %s.1=SIZE,.. gives it two, --shape %s=empty none",
                         shown, shown, shown);
    }
    if (n && empty)
        return diag_error(import->diags, 201, EXIT_USAGE, where,
                          "--shape says that the sequence is empty, and gives it tensors");
    if (n > MOST_ITEMS)
        return diag_error(import->diags, 506, EXIT_LIMIT, where,
                          "the sequence has %lld tensor(s), at most %d are supported", (long long)n, MOST_ITEMS);
    for (int64_t k = 0; k < n; k++) {
        const char *item = arena_printf(import->arena, "%s.%lld", name, (long long)k);
        if (is_taken(import, item))
            return diag_error(import->diags, 404, EXIT_UNSUPPORTED, where,
                              "a tensor of the sequence would be input %s, but the model has such a value",
                              diag_quote(import->diags, item));
        add_port(import, info, item, without_names(import->arena, type));
    }
    return (int)n;
}

static int add_input(struct import *import, const Onnx__ValueInfoProto *info) {
    bool optional;
    const char *name = onnx_text(info->name), *where = onnx_where(import->model, "input", name);
    const Onnx__TypeProto *type = within(info->type, &optional), *item = item_type(type);
    const char *shown = str_name(import->arena, name);
    const int shape = given_shape(import, name), first = import->ports.n;
    struct boundary boundary = {name, first, -1};
    if (shape == SHAPE_NONE && !optional)
        return diag_error(import->diags, 201, EXIT_USAGE, where, "--shape %s=none: the input is not an optional",
                          shown);
    if (shape == SHAPE_EMPTY && !item)
        return diag_error(import->diags, 201, EXIT_USAGE, where, "--shape %s=empty: the input is not a sequence",
                          shown);
    if (shape >= 0 && item)
        return diag_error(import->diags, 201, EXIT_USAGE, where,
                          "--shape %s: the input is a sequence; %s.0 is its first tensor", shown, shown);
    if (shape == SHAPE_NONE)
        boundary.nothing = true;
    else if (!item)
        add_port(import, info, name, is_tensor(type) ? type : info->type);
    else if ((boundary.n = add_items(import, info, item)) < 0)
        return -1;
    if (item || boundary.nothing) VEC_PUSH(import->arena, &import->boundaries, boundary);
    return 0;
}

int import_ports(struct import *import) {
    const Onnx__GraphProto *proto = import->model->proto->graph;
    int status = 0;
    for (size_t i = 0; i < proto->n_input; i++) {
        if (add_input(import, proto->input[i]) == 0) continue;
        VEC_PUSH(import->arena, &import->boundaries,
                 ((struct boundary){.name = onnx_text(proto->input[i]->name), .n = -1, .poisoned = true}));
        status = -1;
    }
    return status;
}

void import_boundaries(struct import *import, struct scope *scope) {
    VEC_EACH(&import->boundaries, i, const struct boundary *boundary) {
        int *items = ARENA_ARRAY(import->arena, int, boundary->n + 2), id = POISONED;
        bool known = !boundary->poisoned;
        for (int k = 0; k < boundary->n; k++) {
            items[k] = scope_find(scope, onnx_text(import->ports.at[boundary->first + k]->name));
            known = known && items[k] >= 0;
        }
        if (known)
            id = lowering_sequence(&import->lowering, boundary->nothing ? 0 : boundary->n, items, boundary->nothing);
        scope_define(scope, boundary->name, id);
    }
}

static int add_output(struct import *import, const char *name, int id, const char *where) {
    for (int i = 0; import->lowering.sequences.n && i < import->graph->output_names.n; i++)
        if (strcmp(import->graph->output_names.at[i], name) == 0)
            return diag_error(import->diags, 404, EXIT_UNSUPPORTED, where,
                              "a tensor of the sequence would be output %s, but the model has such an output",
                              diag_quote(import->diags, name));
    VEC_PUSH(import->arena, &import->graph->outputs, id);
    VEC_PUSH(import->arena, &import->graph->output_names, arena_strdup(import->arena, name));
    return 0;
}

/* The tensors of a sequence; none for an optional without a value. */
static int add_sequence(struct import *import, const char *name, const struct sequence *sequence, const char *where) {
    if (!sequence->n)
        diag_remark(import->diags, where, sequence->nothing ? "the optional has no value" : "the sequence is empty");
    for (int k = 0; k < sequence->n; k++)
        if (add_output(import, arena_printf(import->arena, "%s.%d", name, k), sequence->items[k], where) < 0) return -1;
    return 0;
}

/* Adds the counts of outputs to the outputs. */
static void count_outputs(struct import *import) {
    struct graph *graph = import->graph;
    const int n = graph->outputs.n;
    for (int i = 0; i < n; i++) {
        const struct counted *counted = lowering_counted(&import->lowering, graph->outputs.at[i]);
        if (!counted) continue;
        int at = n;
        while (at < graph->outputs.n && graph->outputs.at[at] != counted->count) at++;
        if (at == graph->outputs.n) {
            VEC_PUSH(graph->arena, &graph->outputs, counted->count);
            VEC_PUSH(graph->arena, &graph->output_names,
                     arena_printf(graph->arena, "%s.count", graph->output_names.at[i]));
        }
        struct counted_output output = {i, counted->dim, at};
        VEC_PUSH(graph->arena, &graph->counted, output);
    }
}

int import_outputs(struct import *import, const struct scope *scope) {
    const Onnx__GraphProto *proto = import->model->proto->graph;
    struct map seen = {.arena = import->arena};
    for (size_t i = 0; i < proto->n_output; i++) {
        const char *name = onnx_text(proto->output[i]->name), *where = onnx_where(import->model, "output", name);
        int id = scope_find(scope, name);
        if (!map_set(&seen, name, 1))
            diag_remark(import->diags, where, "the model gives the output more than once; programs give it once");
        else if (id == UNDEFINED)
            diag_error(import->diags, 325, EXIT_MALFORMED, where, "no node computes the graph output");
        else if (lower_is_sequence(id))
            add_sequence(import, name, &import->lowering.sequences.at[id - SEQUENCES], where);
        else if (id >= 0)
            add_output(import, name, id, where);
    }
    if (proto->n_output && !import->graph->outputs.n && !import->diags->errors)
        diag_error(import->diags, 404, EXIT_UNSUPPORTED, import->model->place,
                   "no output has a tensor: all are empty sequences or optionals without a value");
    count_outputs(import);
    return import->diags->errors ? -1 : 0;
}
