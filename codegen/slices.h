/* The weights that `--weights copy` writes: of every stored tensor the parts that ranks hold, each once.
 *
 * A slice is what the cuts of a tensor's layout make of it (Note [Cuts] in runtime/base/part.h), without gaps, in the
 * type that the model stores. Ranks that hold the same slice share it: the first shard of a unit that holds it gives
 * its number to the file, weights/slices-<shard>.safetensors. What the graph has and no rank holds - a weight that was
 * folded into a constant, a mask that was recognised - is shard 0's, whole: the graph can be compiled again without the
 * model. */
#ifndef CODEGEN_SLICES_H
#define CODEGEN_SLICES_H

#include "passes/rank/rankplan.h"
#include "runtime/base/hash.h"

struct slice {
    int shard; /* of the file */
    int ndim;
    int64_t dims[MAX_NDIM], bytes;
    char hash[RT_HASH_HEX]; /* of its bytes; set when they are written or read */
};

struct slice_cut {
    int axis, dim;
    struct rt_cut cut;
};

/* A tensor and its slices, in the order of their places along the cuts, the first cut fastest. */
struct sliced {
    const char *key; /* in the files: the tensor's name, or NAME#2 where that is taken */
    const char *name;
    enum rt_dtype dtype; /* as stored */
    int ndim;
    int64_t dims[MAX_NDIM];
    struct stored stored;       /* where the model has it; file -1: a constant of the plan, which no file has */
    const unsigned char *bytes; /* of a constant, complete */
    int ncuts, nslices;
    struct slice_cut cut[MAX_AXES];
    struct slice *slices;
};

/* The slices of a file, in its order: a tensor of slices.at, and which of its slices. */
struct slice_ref {
    int tensor, index;
};
struct slice_list {
    VEC(struct slice_ref) at;
};

struct slices {
    VEC(struct sliced) at;
    int *of_weight;              /* by index into plan->weights */
    int shards;                  /* files are numbered below this */
    struct slice_list *of_shard; /* empty: there is no such file */
};

/* The weights of a graph as graph.rir has them: those in use, by first use. Passes change the graph; this is of the
 * imported one. */
struct stored_weights {
    VEC(struct tensor) at;
};
void slices_stored(struct stored_weights *weights, const struct graph *graph);

/* The tensors that a compiled model stores: those of the plan, and of the weights of the imported graph those that no
 * tensor of the plan comes from. */
void slices_find(struct slices *slices, const struct rankplan *plan, const struct stored_weights *weights);

/* Makes `slices` of a tensor whose cuts are known, with their shapes; no shard owns them yet. */
void slices_shape(struct sliced *sliced, struct arena *arena);

/* The file of a shard, below the instance's directory. */
char *slices_path(struct arena *arena, int shard);

/* Its header, in the arena; *bytes is its length. NULL: out of memory. */
const char *slices_header(const struct slices *slices, int shard, struct arena *arena, size_t *bytes);

/* Where the tensor's part at `index` begins and ends in the complete tensor, run by run, in the order of the slice.
 * `take` gets offsets in bytes, in rising order. */
void slice_walk(const struct sliced *sliced, int index, void (*take)(void *context, size_t offset, size_t bytes),
                void *context);

#endif
