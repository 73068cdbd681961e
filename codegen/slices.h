/* The files of --weights copy: every part of a stored tensor that a rank loads, each once.
 *
 * A slice is the part of a tensor that the cuts of its layout give one rank (Note [Cuts] in runtime/base/shape/part.h),
 * contiguous, in the type that the model stores; of --weight-dtype the codes, scales or smaller floats themselves. A
 * slice that several ranks load is stored once, in the file of the first shard that loads it,
 * weights/slices-<shard>.safetensors. Weights of the imported graph that no rank loads, such as one folded into a
 * constant or a recognised mask, are stored whole in the file of shard 0, so that the graph can be compiled again
 * without the model. A weight that ranks load only as --weight-dtype made it is stored so alone, unless it is small:
 * passes read the values of small weights. */
#ifndef CODEGEN_SLICES_H
#define CODEGEN_SLICES_H

#include "passes/rank/rankplan.h"
#include "passes/train/lora.h"
#include "runtime/base/number/hash.h"

struct slice {
    int shard; /* number of the file */
    int ndim;
    int64_t dims[RT_MAX_NDIM], bytes;
    char hash[RT_HASH_HEX]; /* of its bytes; set when they are written or read */
};

/* A cut of the layout; of several that divide one dimension, the outermost comes first. */
struct slice_cut {
    int axis, dim, ways;
    int64_t blocks, grain;
};

/* A tensor and its slices, ordered by their coordinates along the cuts, the first cut fastest. */
struct sliced {
    const char *key; /* its name in the files: that of the tensor, or NAME#2 if that is taken */
    const char *name;
    enum rt_dtype dtype; /* as stored here */
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    struct stored stored;       /* its place in the model; file -1: a constant of the plan, which is in no file */
    const unsigned char *bytes; /* the values of a constant; NULL for a weight */
    int ncuts, nslices;
    struct slice_cut cut[RT_MAX_AXES];
    struct slice *slices;
};

/* The slices of a file in the order of the file: indices into slices.at and into its slices. */
struct slice_ref {
    int tensor, index;
};
struct slice_list {
    VEC(struct slice_ref) at;
};

struct slices {
    VEC(struct sliced) at;
    int *of_weight;              /* index into plan->weights -> index into `at`; of an adapter that of its first set,
                                  * behind which the others follow */
    int shards;                  /* number of shards */
    struct slice_list *of_shard; /* by shard: the slices of its file; empty: it has no file */
};

/* Copies of the weights of the imported graph, before passes change it: those in use, in order of first use, as in
 * graph.rir. */
struct stored_weights {
    VEC(struct tensor) at;
};
void slices_stored(struct stored_weights *weights, const struct graph *graph);

/* The type in which a loaded tensor is stored: the model's, or that of the codes, scales or floats of --weight-dtype.
 */
enum rt_dtype slices_dtype(const struct tensor *tensor);

/* Where the bytes of a tensor are, "FILE+OFFSET TYPE COUNT", followed by the conversion `coding`. Tensors of the same
 * bytes have equal texts. dtype: in the model. */
const char *slices_place(struct arena *arena, int64_t file, int64_t offset, enum rt_dtype dtype, int64_t count,
                         const char *coding);
const char *slices_place_of(struct arena *arena, const struct tensor *tensor);
/* The conversion of --weight-dtype as text; "" if there is none. `dtype`: of the result. */
const char *slices_coding(struct arena *arena, const struct rt_coding *coding, enum rt_dtype dtype);

/* Finds the tensors to store: those that ranks of the plan load, and weights of the imported graph from which no tensor
 * of the plan is loaded. */
void slices_find(struct slices *slices, const struct rankplan *plan, const struct stored_weights *weights,
                 const struct lora_sets *sets);

/* Allocates sliced->slices according to the cuts and sets their shapes; no shard owns them yet. */
void slices_shape(struct sliced *sliced, struct arena *arena);

/* The path of a shard's file in the instance directory. */
char *slices_path(struct arena *arena, int shard);

/* The safetensors header of a shard's file, in the arena; *bytes is its length. NULL: out of memory. */
const char *slices_header(const struct slices *slices, int shard, struct arena *arena, size_t *bytes);

/* Calls `take` for each contiguous run of slice `index` in the complete tensor, in the order of the slice; offsets, in
 * bytes, are ascending. */
void slice_walk(const struct sliced *sliced, int index, void (*take)(void *context, size_t offset, size_t bytes),
                void *context);

#endif
