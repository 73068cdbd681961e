/* Weights of a graph that was read as text: text says where they lie, passes may look at what they are (a mask). */
#ifndef FRONTEND_DRIVER_WEIGHT_FILES_H
#define FRONTEND_DRIVER_WEIGHT_FILES_H

#include "codegen/slices.h"
#include "ir/base/diag.h"
#include "ir/ir.h"

struct weight_file {
    const unsigned char *bytes; /* NULL: not at hand, its weights stay without values */
    int64_t count;
};

/* Sets `data` of the weights, by stored.file. E0353 where one lies outside of its file. */
int weight_files_attach(struct graph *graph, int nfiles, const struct weight_file *files, struct diags *diags);

/* A file, mapped as long as the arena lives. */
int weight_file_map(struct arena *arena, struct diags *diags, const char *path, struct weight_file *file);

/* E0353 where a weight that is to be copied lies outside of its file, `bytes` being the sizes of files. */
int weight_files_check(const struct slices *slices, int nfiles, const int64_t *bytes, struct diags *diags);

#endif
