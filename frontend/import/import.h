/* Import: turns the ONNX graph of an opened model into a graph of core operators, level IMPORTED.
 *
 * Nodes are visited once, in the model's order. The row of a node's operator in onnx_ops.def maps it to one core
 * operator or names a lowering (onnx_lower.h) that emits several. ir/build.h infers shapes and folds constants at once,
 * so that chains of nodes that compute shapes are gone after the import. Unused nodes remain until dead code
 * elimination.
 *
 * Model-local functions are expanded, branches with a known condition and loops with a known trip count are inlined,
 * all with an explicit stack: no function recurses over the model. At most ONNX_NODES nodes are visited.
 *
 * An initializer of a float type whose data lies in a file becomes a WEIGHT; its data points into the model, which must
 * stay open while the graph is in use. Every other initializer or known value becomes a CONST. A graph input with an
 * initializer is not an input of the imported graph: the initializer is its value. */
#ifndef FRONTEND_IMPORT_IMPORT_H
#define FRONTEND_IMPORT_IMPORT_H

#include "frontend/read/onnx_read.h"
#include "ir/ir.h"
#include "runtime/base/npy.h"

/* --dim: the size of a symbolic dimension. Dimension 0 of input x is called "x.0" if the model gives it no name. */
struct import_dim {
    const char *name;
    struct open_range range;
};

/* Values of ndim that say something else than a number of dimensions. */
enum { SHAPE_NONE = -1 /* an optional has no value */, SHAPE_EMPTY = -2 /* a sequence has no tensors */ };

/* --shape: the sizes of all dimensions of the graph input `input`. Symbolic dimensions get their sizes from it, also
 * those of other inputs with the same names; an input without a declared shape gets this one. */
struct import_shape {
    const char *input;
    int ndim;
    const struct open_range *sizes;
};

/* --bind: makes the graph input `input` a constant. The tensor must have the input's type and fit its shape; symbolic
 * dimensions of the input get their sizes from it. The values are copied. `numbers` is text such as "16000", "1,2,3" or
 * "true", which gets type and shape from the input; NULL: the tensor is given. */
struct import_bind {
    const char *input, *numbers;
    struct rt_tensor tensor;
};

/* True if the text can be import_bind.numbers. */
bool import_is_numbers(const char *text);

/* The input by which merged decoders choose between a branch that has caches and one that has none. */
#define IMPORT_BRANCH "use_cache_branch"

struct import_options {
    int ndims, nshapes, nbinds;
    const struct import_dim *dims;
    const struct import_shape *shapes;
    const struct import_bind *binds;
    int specimen;            /* of open sizes (ir/open.h) */
    enum rt_dtype dtype;     /* every float tensor becomes this; RT_DTYPE_NONE: all keep the model's types */
    bool train;              /* weights are trained: nodes computed from them are not folded */
    bool keeps;              /* nor are those computed from matrices (struct graph) */
    bool sync_batch_norm;    /* --sync-batch-norm */
    const char *state;       /* --state; NULL: not given */
    const char *state_names; /* IN=OUT,.. that --state auto knows beside the usual names; NULL: none */
    const char *loss;        /* --loss: the loss to append; it becomes the only output. NULL: none */
    const struct rt_tensor *loss_weights; /* of classes, where import_loss_file() names one; else NULL */
    const struct graph *operators;        /* --ops: declares operators of the user; NULL: none */
    const char *command;                  /* the user's command line, for suggestions; NULL: unknown */
};

/* Imports the model: 0 and *out, in the arena, or -1 with diagnostics, also if onnx_open has left errors in `diags`.
 * Goes on after an error, so that all unsupported operators (E402, E403) and most other errors are reported at once. */
int import_model(struct arena *arena, struct diags *diags, struct onnx_model *model,
                 const struct import_options *options, struct graph **out);

/* The dimension that counts the samples of a batch: the symbolic dimension that is the first of every input, without
 * those that have an initializer or are named in `bound` (of --bind and --shared). Its name, in the model or `arena`;
 * NULL: there is none. */
const char *import_batch_dim(struct arena *arena, const struct onnx_model *model, int nbound, const char *const *bound);

/* The symbolic dimensions of all inputs without an initializer, in order; names as --dim takes them. */
struct import_open_dim {
    const char *input, *name;
    int dim, ndim;
};
struct import_open_dims {
    VEC(struct import_open_dim) all;
};
void import_open_dims(struct arena *arena, const struct onnx_model *model, struct import_open_dims *out);

/* The symbolic dimensions of an input of that name, with the sizes of such a shape: *n of at most ndim, names as --dim
 * takes them. False: the model has no such input, or one of another number of dimensions. */
bool import_dims_of_input(struct arena *arena, const struct onnx_model *model, const char *input, int ndim,
                          const int64_t *shape, int *n, struct import_dim *dims);

/* The file of class weights that --loss names, weight=FILE.npy; NULL: none. The text may be NULL. */
const char *import_loss_file(const char *loss, struct arena *arena);

/* The optimizer in the model's training_info, as text for --optimizer; *text is NULL if the model has none. 0, or -1
 * with E402 if rankc has no optimizer with the same update (import_training.c). */
int import_optimizer(struct arena *arena, struct diags *diags, struct onnx_model *model, const char **text);

#endif
