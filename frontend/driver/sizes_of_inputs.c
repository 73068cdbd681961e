/* Sizes that a model leaves open and the inputs of a run tell. */
#include <string.h>

#include "frontend/driver/driver.h"
#include "frontend/driver/job/job.h"
#include "frontend/import/import.h"
#include "ir/base/str.h"
#include "runtime/base/io/tensor_pb.h"
#include "runtime/base/npy.h"

/* Reads the shape of a file. Errors are left to the program, which reads it too. */
static bool read_shape(const char *path, struct rt_tensor *tensor) {
    struct rt_reader reader;
    struct rt_reason why;
    int64_t data;
    if (rt_has_suffix(path, ".pb")) {
        const bool read = rt_tensor_pb_read(tensor, path, &why);
        if (read) rt_tensor_free(tensor);
        return read;
    }
    if (!rt_reader_open(&reader, path, &why)) return false;
    const bool found = rt_npy_find(tensor, &data, &reader, &why);
    rt_reader_close(&reader);
    return found;
}

static bool has_shape(const struct options *options, const char *input) {
    for (int i = 0; i < options->shapes.all.n; i++)
        if (strcmp(options->shapes.all.at[i].name, input) == 0) return true;
    return false;
}

int driver_sizes_of_inputs(const struct options *options, struct arena *arena, struct option_sizes *out) {
    struct diags diags; /* errors are those of the compile, which opens the model too */
    struct job job = {.options = options, .arena = arena, .diags = &diags};
    diags_init(&diags, arena);
    *out = (struct option_sizes){0};
    if (options->model_config || rt_has_suffix(options->operand, ".rir") || job_open(&job) < 0) return -1;
    VEC_EACH(&options->inputs.all, i, const struct option_file *input) {
        struct import_dim dims[RT_MAX_NDIM];
        struct rt_tensor tensor;
        int n;
        if (has_shape(options, input->name) || !read_shape(input->path, &tensor) ||
            !import_dims_of_input(arena, job.model, input->name, tensor.ndim, tensor.dims, &n, dims))
            continue;
        for (int d = 0; d < n; d++)
            if (!strpbrk(dims[d].name, "+-*/( ") && (*dims[d].name < '0' || *dims[d].name > '9') &&
                !option_has_size(&options->dims, dims[d].name) && !option_has_size(out, dims[d].name))
                VEC_PUSH(arena, &out->all, ((struct option_size){dims[d].name, dims[d].range}));
    }
    return 0;
}
