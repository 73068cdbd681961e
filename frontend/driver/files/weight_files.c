#include "frontend/driver/files/weight_files.h"

#include "runtime/base/number/checked.h"
#include "runtime/base/dtype.h"
#include "runtime/base/io/file.h"

static bool lies_within(const struct stored *stored, int64_t elements, int64_t count) {
    int64_t bytes, end;
    elements = rt_coding_stored(&stored->coding, elements);
    return stored->offset <= INT64_MAX && rt_mul(elements, (int64_t)rt_dtype_bytes(stored->dtype), &bytes) &&
           rt_add((int64_t)stored->offset, bytes, &end) && end <= count;
}

static int lies_outside(struct diags *diags, const char *name, int file) {
    return diag_error(diags, 353, EXIT_MALFORMED, NULL, "weight %s is outside of file %d of the model",
                      diag_quote(diags, name), file);
}

int weight_files_attach(struct graph *graph, int nfiles, const struct weight_file *files, struct diags *diags) {
    VEC_EACH(&graph->tensors, t, struct tensor *const tensor) {
        int file = tensor->stored.file;
        if (tensor->kind != TENSOR_WEIGHT || file < 0 || file >= nfiles || !files[file].bytes) continue;
        if (!lies_within(&tensor->stored, tensor_elements(tensor), files[file].count))
            return lies_outside(diags, tensor->name, file);
        if (!rt_coding_is_code(&tensor->stored.coding)) tensor->data = files[file].bytes + tensor->stored.offset;
    }
    return 0;
}

int weight_files_check(const struct slices *slices, int nfiles, const int64_t *bytes, struct diags *diags) {
    VEC_EACH(&slices->at, i, const struct sliced *sliced) {
        const int file = sliced->stored.file;
        int64_t elements = 1;
        for (int d = 0; d < sliced->ndim; d++) elements *= sliced->dims[d];
        if (sliced->bytes || !elements) continue;
        if (file < 0 || file >= nfiles || !lies_within(&sliced->stored, elements, bytes[file]))
            return lies_outside(diags, sliced->name, file);
    }
    return 0;
}

static void unmap(void *mapped) {
    const struct weight_file *file = mapped;
    rt_file_unmap(file->bytes, file->count);
}

int weight_file_map(struct arena *arena, struct diags *diags, const char *path, struct weight_file *file) {
    struct weight_file *own = ARENA_NEW(arena, struct weight_file);
    struct rt_file_info info;
    struct rt_reason why;
    const void *bytes;
    if (!rt_file_map(path, &bytes, &info, &why)) return diag_refusal(diags, 601, EXIT_SYSTEM, NULL, &why);
    *own = *file = (struct weight_file){bytes, info.bytes};
    arena_own(arena, own, unmap);
    return 0;
}
