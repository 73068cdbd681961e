#include "frontend/driver/job/job.h"

#include <string.h>

#include "frontend/import/import.h"

/* *batch becomes the batch of the model file, in `arena`; NULL: it has none. Errors that do not end the reading are
 * left to whoever reads the file next. */
static int read_batch(const struct options *options, struct arena *arena, struct diags *diags, const char **batch) {
    struct arena *scratch = arena_scratch(arena);
    struct diags *own = ARENA_NEW(arena, struct diags);
    struct job job = {.options = options, .arena = scratch, .diags = own};
    diags_init(own, arena);
    const bool read = job_open(&job) == 0;
    int nbound = 0;
    const char **bound = ARENA_ARRAY(scratch, const char *, options->binds.all.n + options->shared.all.n + 1);
    for (int i = 0; i < options->binds.all.n; i++) bound[nbound++] = options->binds.all.at[i].name;
    for (int i = 0; i < options->shared.all.n; i++) bound[nbound++] = options->shared.all.at[i];
    *batch = read && job.model ? import_batch_dim(scratch, job.model, nbound, bound) : NULL;
    if (*batch) *batch = arena_strdup(arena, *batch);
    if (!read) diags_append(diags, own);
    arena_release(arena, scratch);
    return read ? 0 : -1;
}

/* All inputs begin with the batch, so the shape of any of them says its size. */
static void take_shape(struct options *options, struct arena *arena) {
    for (int i = 0; i < options->dims.all.n; i++)
        if (strcmp(options->dims.all.at[i].name, options->batch_dim) == 0) return;
    if (!options->shapes.all.n || options->shapes.all.at[0].ndim < 1) return;
    VEC_UNSHARE(arena, &options->dims.all);
    VEC_PUSH(arena, &options->dims.all, (struct option_size){options->batch_dim, options->shapes.all.at[0].sizes[0]});
}

int batch_take(const struct options **options, struct arena *arena, struct diags *diags) {
    const char *batch;
    if (!(*options)->global_batch || (*options)->batch_dim) return 0;
    if (read_batch(*options, arena, diags, &batch) < 0) return -1;
    if (!batch) {
        diag_error(diags, 205, EXIT_USAGE, "--global-batch",
                   "the first dimension of the inputs is no batch: it has a size, or not one name for all of them");
        return diag_help(diags, "--accumulate gives the micro-batches of a step for any model");
    }
    struct options *taken = ARENA_NEW(arena, struct options);
    *taken = **options, taken->batch_dim = batch;
    take_shape(taken, arena);
    *options = taken;
    return options_take_batch(taken, arena, diags);
}
