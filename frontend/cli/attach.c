#include "frontend/cli/attach.h"

#include "runtime/base/checked.h"
#include "runtime/base/dtype.h"

static bool lies_within(const struct tensor *tensor, int64_t count) {
    int64_t bytes, end;
    return tensor->stored.offset <= INT64_MAX &&
           rt_mul(tensor_elements(tensor), (int64_t)rt_dtype_bytes(tensor->stored.dtype), &bytes) &&
           rt_add((int64_t)tensor->stored.offset, bytes, &end) && end <= count;
}

int attach_weights(struct graph *graph, int nfiles, const struct attach_file *files, struct diags *diags) {
    for (int t = 0; t < graph->tensors.n; t++) {
        struct tensor *tensor = &graph->tensors.at[t];
        int file = tensor->stored.file;
        if (tensor->kind != TENSOR_WEIGHT || file < 0 || file >= nfiles || !files[file].bytes) continue;
        if (!lies_within(tensor, files[file].count))
            return diag_error(diags, 353, EXIT_MALFORMED, NULL, "weight %s lies outside of file %d of the model",
                              diag_quote(diags, tensor->name), file);
        tensor->data = files[file].bytes + tensor->stored.offset;
    }
    return 0;
}
