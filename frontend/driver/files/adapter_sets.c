/* Note [Sets of adapters]
 *
 * A program with several adapters has the matrices of one: beside each product that any of them adapts, A and B of the
 * largest r among them. They are loaded as weights are, cut as the plan cuts them. To choose another adapter is to load
 * its matrices into their place: kernels, plan and memory are those of a program with one adapter.
 *
 * The values of an adapter for these matrices are a set. A and B end with zeros where its r is smaller, and are zeros
 * where it adapts nothing. B contains the scale, which differs between adapters, so that the graph has none. Sets have
 * equal sizes and lie one after the other: the graph says where a matrix lies in set 0, and set i has it i * stride
 * bytes further. They lie at the beginning of the file of constants; with --weights copy each has slices of its own. */
#include "frontend/driver/files/adapter_sets.h"

#include <string.h>

enum { ALIGNMENT = 64 }; /* of matrices in a set, bytes */

static int64_t aligned(int64_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int contradiction(struct diags *diags, const struct lora_given *given, const char *what) {
    return diag_error(diags, 393, EXIT_MISMATCH, "--adapter", "%s %s", what, diag_quote(diags, given->name));
}

/* Enlarges r of the module for an adapter, or begins with it. */
static int merge_given(struct lora_given *module, const struct lora_given *given, const char *name,
                       struct diags *diags) {
    if (!module->name) {
        *module = *given;
        module->name = name;
        module->wraps = -1;
        return 0;
    }
    if (module->set == given->set) return contradiction(diags, given, "there are two matrices for the module of");
    if (module->kind != given->kind || module->count != given->count || module->inputs != given->inputs ||
        module->outputs != given->outputs)
        return contradiction(diags, given, "adapters have different numbers of inputs or outputs for");
    module->set = given->set;
    if (given->rule.r > module->rule.r) module->rule.r = given->rule.r;
    return 0;
}

static struct stored place(int file, enum rt_dtype dtype, int64_t rows, int64_t columns, int64_t *end) {
    const struct stored stored = {.file = file, .offset = (uint64_t)*end, .dtype = dtype};
    *end = aligned(*end + rows * columns * (int64_t)rt_dtype_bytes(dtype));
    return stored;
}

int adapter_sets_attach(struct graph *graph, const struct adapter_files *files, int file, struct diags *diags) {
    struct lora_given *modules = ARENA_ARRAY(graph->arena, struct lora_given, files->all.n + 1);
    enum rt_dtype dtype = RT_F32;
    int64_t end = 0;
    int n = 0;
    const struct lora_modules all = lora_modules_of(graph);
    for (int i = 0; i < files->all.n; i++) {
        const struct lora_given *given = &files->all.at[i];
        const char *found = lora_find(&all, given, graph->arena),
                   *name = found ? found : given->name; /* lora_attach reports it */
        int m = 0;
        while (m < n && (strcmp(modules[m].name, name) != 0 || modules[m].kind != given->kind)) m++;
        if (merge_given(&modules[m], given, name, diags) < 0) return -1;
        if (given->a.dtype == RT_F64) dtype = RT_F64;
        if (m == n) n++;
    }
    for (int m = 0; m < n; m++) {
        struct lora_given *module = &modules[m];
        const int64_t r = (int64_t)module->rule.r;
        module->rule = (struct lora_rule){.r = (double)r, .alpha = (double)r};
        module->a = place(file, dtype, module->count * r, module->inputs, &end);
        module->b = place(file, dtype, module->outputs, module->count * r, &end);
        module->a_bytes = module->b_bytes = NULL;
    }
    return lora_attach(graph, modules, n, diags);
}

/* Writes `rows` rows of `columns` values, times `scale`, to the rows of the matrix in a set from `first` on. */
static void put_matrix(unsigned char *set, const struct tensor *matrix, int64_t first, const void *bytes,
                       enum rt_dtype dtype, int64_t rows, int64_t columns, double scale, struct arena *arena) {
    const int64_t width = tensor_elements(matrix) / matrix->dims[0];
    const size_t row = (size_t)width * rt_dtype_bytes(matrix->stored.dtype);
    double *values = ARENA_ARRAY(arena, double, columns + 1);
    for (int64_t i = 0; i < rows; i++) {
        rt_convert(values, RT_F64, (const char *)bytes + i * columns * (int64_t)rt_dtype_bytes(dtype), dtype,
                   (size_t)columns);
        for (int64_t k = 0; k < columns; k++) values[k] *= scale;
        rt_convert(set + matrix->stored.offset + (size_t)(first + i) * row, matrix->stored.dtype, values, RT_F64,
                   (size_t)columns);
    }
}

struct lora_sets adapter_sets_of(const struct graph *graph, int n, const char *const *names) {
    struct lora_sets sets = {.n = n, .names = names};
    for (int t = 0; t < graph->tensors.n; t++) {
        const struct tensor *tensor = &graph->tensors.at[t];
        if (tensor->mark != MARK_ADAPTER) continue;
        const int64_t size = tensor_elements(tensor) * (int64_t)rt_dtype_bytes(tensor->stored.dtype);
        const int64_t end = aligned((int64_t)tensor->stored.offset + size);
        if (end > sets.stride) sets.stride = end;
    }
    return sets;
}

void adapter_sets_choose(struct graph *graph, int set) {
    const int64_t stride = adapter_sets_of(graph, 0, NULL).stride;
    VEC_EACH(&graph->tensors, t, struct tensor *const tensor) {
        if (tensor->mark != MARK_ADAPTER) continue;
        tensor->stored.offset += (uint64_t)(set > 0 ? set * stride : 0);
        if (set >= 0) continue;
        tensor->kind = TENSOR_CONST, tensor->mark = MARK_NONE;
        tensor->data = arena_alloc(graph->arena, (size_t)tensor_elements(tensor), rt_dtype_bytes(tensor->dtype));
    }
}

struct lora_sets adapter_sets_fill(const struct graph *graph, const struct adapter_files *files, struct arena *arena) {
    struct lora_sets sets = adapter_sets_of(graph, files->names.n, files->names.at);
    if (!sets.n) return sets;
    const struct lora_modules adapted = lora_modules_adapted(graph);
    const int64_t count = sets.n * sets.stride;
    unsigned char *bytes = ARENA_ARRAY(arena, unsigned char, count + 1);
    for (int i = 0; i < files->all.n; i++) {
        const struct lora_given *given = &files->all.at[i];
        const char *module = lora_find(&adapted, given, arena);
        unsigned char *set = bytes + given->set * sets.stride;
        const struct tensor *a = &graph->tensors.at[lora_find_matrix(graph, module, given->kind, 'A')];
        const struct tensor *b = &graph->tensors.at[lora_find_matrix(graph, module, given->kind, 'B')];
        const int64_t r = (int64_t)given->rule.r;
        const int64_t bytes_of_one = r * given->inputs * (int64_t)rt_dtype_bytes(given->a.dtype);
        for (int64_t e = 0; e < given->count; e++)
            put_matrix(set, a, e * a->dims[0] / given->count, (const char *)given->a_bytes + e * bytes_of_one,
                       given->a.dtype, r, given->inputs, 1, arena);
        put_matrix(set, b, 0, given->b_bytes, given->b.dtype, given->outputs, r * given->count,
                   lora_scale(&given->rule), arena);
    }
    sets.bytes = bytes;
    return sets;
}
