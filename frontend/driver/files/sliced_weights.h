/* Reading back the weights that a compiled model holds as slices (--weights copy), when its graph is compiled or
 * verified again.
 *
 * graph.rir has file and offset of each weight in the original model; "weights" in manifest.json lists the slices that
 * hold these bytes now (codegen/slices.h). */
#ifndef FRONTEND_DRIVER_SLICED_WEIGHTS_H
#define FRONTEND_DRIVER_SLICED_WEIGHTS_H

#include "codegen/slices.h"
#include "frontend/driver/output/output.h"
#include "ir/base/diag.h"
#include "ir/base/map.h"
#include "ir/ir.h"
#include "runtime/base/text/json.h"

/* True if the manifest is of a model compiled with --weights copy. */
bool sliced_weights_present(const struct rt_json *manifest);

/* Sets `data` of the graph's weights so that passes can read their values: of all weights stored in one slice, and of
 * small weights stored in several. Other weights get no values. 0, or -1 with E0802 if a slice has changed. */
int sliced_weights_attach(const char *directory, const struct rt_json *manifest, struct graph *graph,
                          struct diags *diags);

/* Files that hold weights, indexed by stored.file. */
struct sliced_files {
    const char *directory;
    VEC(const char *) all;
    int model;           /* as many files of the model come first; no weight lies in them, and all are `first` */
    bool assembled;      /* the last one is the scratch file */
    struct map of_place; /* slices_place_of -> index into */
    VEC(struct stored) places;
};
/* Finds where the weights of a compiled model lie: a weight of one slice in the slice's file; weights of several slices
 * are assembled in a new file `scratch`. 0, or -1 after a diagnostic. */
int sliced_weights_locate(struct sliced_files *files, const char *directory, const struct rt_json *manifest,
                          const char *first, const char *scratch, struct diags *diags);

/* Sets tensor->stored of a weight that refers to the model to its place in those files. False: it is not there, as one
 * is not of which only what --weight-dtype made of it was copied. */
bool sliced_files_take(const struct sliced_files *files, struct tensor *tensor, struct arena *arena);

/* A file of --weights copy (codegen/slices.h) that was written. */
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
