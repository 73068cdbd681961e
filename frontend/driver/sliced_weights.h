/* The weights of a compiled model that has copies of them (`--weights copy`), read back for its graph.
 *
 * graph.rir says where each weight was in the model; "weights" of manifest.json says which slices hold those bytes
 * now. */
#ifndef FRONTEND_DRIVER_SLICED_WEIGHTS_H
#define FRONTEND_DRIVER_SLICED_WEIGHTS_H

#include "ir/base/diag.h"
#include "ir/ir.h"
#include "runtime/base/json.h"

/* True if the manifest is that of a model with copied weights. */
bool sliced_weights_present(const struct rt_json *manifest);

/* Sets `data` of the graph's weights: of those that are one slice, and of small ones that are several, which passes may
 * look at. Others stay without. E0802 where a slice is not as it was written. */
int sliced_weights_attach(const char *directory, const struct rt_json *manifest, struct graph *graph,
                          struct diags *diags);

/* Makes the graph's weights those of files: weights that are one slice lie in their file, others are put together in a
 * new file, `scratch`. The files' names, by stored.file, `first` being file 0, which no weight is in. */
struct sliced_files {
    VEC(const char *) all;
    bool assembled; /* the last one is `scratch` */
};
int sliced_weights_locate(struct sliced_files *files, const char *directory, const struct rt_json *manifest,
                          struct graph *graph, const char *first, const char *scratch, struct diags *diags);

#endif
