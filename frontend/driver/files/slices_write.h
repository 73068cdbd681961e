/* Writes the files of --weights copy (codegen/slices.h). */
#ifndef FRONTEND_DRIVER_SLICES_WRITE_H
#define FRONTEND_DRIVER_SLICES_WRITE_H

#include "codegen/slices.h"
#include "frontend/driver/output/output.h"

/* A written file. */
struct slices_file {
    const char *path; /* in the staging directory */
    int64_t bytes;
    char hash[RT_HASH_HEX];
};

/* A file that holds weights, indexed by stored.file. */
struct slices_source {
    const char *path, *given; /* `given`: as the user spells it, for diagnostics */
    int fd;
};

/* Writes the file of a shard and sets the hashes of its slices. Sources are read in pieces, so that no weight is in
 * memory as a whole. 0, or -1 after a diagnostic; E0604: a source ends before a weight does. */
int slices_write(struct slices *slices, int shard, const struct slices_source *sources, struct output *output,
                 struct slices_file *file);

#endif
