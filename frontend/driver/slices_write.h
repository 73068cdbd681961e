/* Writes the files of `--weights copy` (codegen/slices.h), piece by piece. */
#ifndef FRONTEND_DRIVER_SLICES_WRITE_H
#define FRONTEND_DRIVER_SLICES_WRITE_H

#include "codegen/slices.h"
#include "frontend/driver/output.h"

struct slices_file {
    const char *path;
    int64_t bytes;
    char hash[RT_HASH_HEX];
};

/* A file that weights lie in, by stored.file. */
struct slices_source {
    const char *path, *given; /* `given`: as the user knows it, for diagnostics */
    int fd;
};

/* Writes the file of a shard and sets the hashes of its slices. Sources are read in pieces: no weight is in memory as a
 * whole. E0604: a source ends before a weight does. */
int slices_write(struct slices *slices, int shard, const struct slices_source *sources, struct output *output,
                 struct slices_file *file);

#endif
