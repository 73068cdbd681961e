#include "frontend/import/import.h"

#include <string.h>

#include "frontend/import/import_sizes.h"

/* Names of inputs that are constants: those with an initializer, and those of --bind. */
static void note_constants(struct map *constants, const Onnx__GraphProto *graph, int nbound, const char *const *bound) {
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = onnx_text(graph->initializer[i]->name);
        map_set(constants, name, 1);
    }
    for (int i = 0; i < nbound; i++) map_set(constants, bound[i], 1);
}

/* The name of the input's first dimension, NULL if it has a size or there is none. */
static const char *first_dim(const Onnx__ValueInfoProto *info, struct arena *arena) {
    const Onnx__TypeProto__Tensor *type = sizes_tensor_type(info);
    if (!type || !type->shape || !type->shape->n_dim || sizes_is_number(type->shape->dim[0])) return NULL;
    return sizes_dim_name(info, 0, arena);
}

const char *import_batch_dim(struct arena *arena, const struct onnx_model *model, int nbound,
                             const char *const *bound) {
    const Onnx__GraphProto *graph = model->proto->graph;
    const char *batch = NULL;
    struct map constants = {.arena = arena};
    note_constants(&constants, graph, nbound, bound);
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *input = onnx_text(graph->input[i]->name);
        if (map_find(&constants, input) >= 0) continue;
        const char *name = first_dim(graph->input[i], arena);
        if (!name || (batch && strcmp(name, batch) != 0)) return NULL;
        batch = name;
    }
    return batch;
}

void import_open_dims(struct arena *arena, const struct onnx_model *model, struct import_open_dims *out) {
    const Onnx__GraphProto *graph = model->proto->graph;
    struct map constants = {.arena = arena};
    note_constants(&constants, graph, 0, NULL);
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TypeProto__Tensor *type = sizes_tensor_type(graph->input[i]);
        const char *input = onnx_text(graph->input[i]->name);
        if (!type || !type->shape || map_find(&constants, input) >= 0) continue;
        for (size_t d = 0; d < type->shape->n_dim && type->shape->n_dim <= RT_MAX_NDIM; d++)
            if (!sizes_is_number(type->shape->dim[d]))
                VEC_PUSH(
                    arena, &out->all,
                    ((struct import_open_dim){arena_strdup(arena, input), sizes_dim_name(graph->input[i], d, arena),
                                              (int)d, (int)type->shape->n_dim}));
    }
}

bool import_dims_of_input(struct arena *arena, const struct onnx_model *model, const char *input, int ndim,
                          const int64_t *shape, int *n, struct import_dim *dims) {
    const Onnx__GraphProto *graph = model->proto->graph;
    *n = 0;
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TypeProto__Tensor *type = sizes_tensor_type(graph->input[i]);
        if (strcmp(onnx_text(graph->input[i]->name), input) != 0) continue;
        if (!type || !type->shape || (int)type->shape->n_dim != ndim) return false;
        for (int d = 0; d < ndim; d++)
            if (!sizes_is_number(type->shape->dim[d]))
                dims[(*n)++] =
                    (struct import_dim){sizes_dim_name(graph->input[i], (size_t)d, arena), open_fixed(shape[d])};
        return true;
    }
    return false;
}
