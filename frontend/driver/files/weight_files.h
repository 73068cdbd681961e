/* Values of weights for a graph that was read from text IR. The text gives file and offset of each weight; some passes
 * also read values, to recognise an attention mask for example. */
#ifndef FRONTEND_DRIVER_WEIGHT_FILES_H
#define FRONTEND_DRIVER_WEIGHT_FILES_H

#include "codegen/slices.h"
#include "ir/base/diag.h"
#include "ir/ir.h"

struct weight_file {
    const unsigned char *bytes; /* NULL: the file is missing; its weights have no values */
    int64_t count;              /* bytes */
};

/* Points `data` of every weight into its file, files[stored.file]. 0, or -1 with E0353 if one lies outside of its
 * file. */
int weight_files_attach(struct graph *graph, int nfiles, const struct weight_file *files, struct diags *diags);

/* Maps a file until the arena is freed. 0, or -1 after a diagnostic. */
int weight_file_map(struct arena *arena, struct diags *diags, const char *path, struct weight_file *file);

/* For --weights copy: 0, or -1 with E0353 if a weight lies outside of its file. `bytes` are the sizes of the files. */
int weight_files_check(const struct slices *slices, int nfiles, const int64_t *bytes, struct diags *diags);

#endif
