#include "tests/import/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "tests/import/evaluate.h"

enum { MAX_SIZES = 16 };

static int read_dims(struct arena *arena, const char *dir, struct import_dim *dims) {
    FILE *file = fopen(arena_printf(arena, "%s/dims", dir), "r");
    char line[256];
    int n = 0;
    while (file && n < MAX_SIZES && fgets(line, sizeof line, file)) {
        char *equal = strchr(line, '=');
        if (!equal) continue;
        *equal = 0;
        dims[n++] = (struct import_dim){arena_strdup(arena, line), open_fixed(strtoll(equal + 1, NULL, 10))};
    }
    if (file) fclose(file);
    return n;
}

int sample_import(struct sample *sample, const char *dir, enum rt_dtype dtype, bool train) {
    struct import_dim dims[MAX_SIZES];
    struct import_options options = {.dims = dims, .dtype = dtype, .train = train};
    *sample = (struct sample){0};
    arena_init(&sample->arena, 0, NULL);
    diags_init(&sample->diags, &sample->arena);
    options.ndims = read_dims(&sample->arena, dir, dims);
    const char *path = arena_printf(&sample->arena, "%s/model.onnx", dir);
    if (onnx_open(&sample->arena, &sample->diags, path, false, &sample->model) < 0) return -1;
    struct graph *graph;
    if (import_model(&sample->arena, &sample->diags, sample->model, &options, &graph) < 0) return -1;
    sample->graph = graph;
    return 0;
}

static const char *read_npy(struct sample *sample, const char *dir, const char *kind, const char *name,
                            struct rt_tensor *out) {
    const char *file = str_filename(&sample->arena, name, strlen(name));
    const char *path = arena_printf(&sample->arena, "%s/%s/%s.npy", dir, kind, file);
    struct rt_reason why;
    if (rt_npy_read(out, path, &why)) return NULL;
    return arena_printf(&sample->arena, "cannot read %s", path);
}

const char *sample_check(struct sample *sample, const char *dir, double rtol, double atol) {
    struct graph *graph = sample->graph;
    struct given *given = ARENA_ARRAY(&sample->arena, struct given, graph->inputs.n + 1);
    const char *why = NULL;
    for (int i = 0; i < graph->inputs.n && !why; i++) {
        given[i].name = graph->tensors.at[graph->inputs.at[i]].name;
        why = read_npy(sample, dir, "inputs", given[i].name, &given[i].tensor);
    }
    if (!why) why = evaluate(graph, graph->inputs.n, given);
    for (int i = 0; i < graph->inputs.n; i++) rt_tensor_free(&given[i].tensor);
    for (int i = 0; i < graph->outputs.n && !why; i++) {
        struct rt_tensor expected;
        if ((why = read_npy(sample, dir, "outputs", graph->output_names.at[i], &expected))) break;
        why = compare(&sample->arena, &graph->tensors.at[graph->outputs.at[i]], &expected, rtol, atol);
        rt_tensor_free(&expected);
    }
    return why;
}

void sample_close(struct sample *sample) {
    onnx_close(sample->model);
    arena_free(&sample->arena);
}
