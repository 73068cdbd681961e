/* Import: the ONNX graph of a model that was read becomes a graph of core operators, level IMPORTED.
 *
 * The nodes are walked once in their order. Each has a row in onnx_ops.def, which maps it to one core operator or calls
 * a lowering (onnx_lower.h) that builds several. ir/build.h infers shapes and folds constants at once, so chains that
 * compute shapes are gone when the walk ends; nodes that turn out to be unused remain until dead code is removed.
 *
 * Local functions are expanded, branches of a known condition and loops of a known trip count inlined, all by one
 * explicit stack: nothing here recurses over the model. The number of nodes walked is bounded by ONNX_NODES.
 *
 * Initializers of a float type that lie in a file become WEIGHTs (data points into the model: keep it open while the
 * graph is in use), everything else known becomes a CONST. An initializer that is also a graph input is a default: it
 * is no input of the graph. */
#ifndef FRONTEND_IMPORT_IMPORT_H
#define FRONTEND_IMPORT_IMPORT_H

#include "frontend/read/onnx_read.h"
#include "ir/ir.h"
#include "runtime/base/npy.h"

/* --dim: the size of a symbolic dimension. A dimension without a name is called by its input and index, "x.0". */
struct import_dim {
    const char *name;
    int64_t size;
};

/* --bind: the graph input of that name is a constant. The tensor must have the input's type and fit its shape; it sizes
 * symbolic dimensions. It is copied. */
struct import_bind {
    const char *input;
    struct rt_tensor tensor;
};

struct import_options {
    int ndims, nbinds;
    const struct import_dim *dims;
    const struct import_bind *binds;
    enum rt_dtype dtype; /* every float tensor becomes this; RT_DTYPE_NONE: all keep the model's types */
    bool train;          /* weights may change: nothing computed from them is folded */
    const char *loss;    /* --loss: what is added to the model, and alone given out; NULL: nothing */
};

/* 0 and *out, or -1 with the reasons in `diags`: it goes on after an error, so that all operators that are not
 * supported (E402, E403) and most other faults are reported at once. The errors that onnx_open left in `diags`
 * count. */
int import_model(struct arena *arena, struct diags *diags, struct onnx_model *model,
                 const struct import_options *options, struct graph **out);

/* How the model's training_info updates parameters, as --optimizer says it; *text is NULL if the model has none. 0, or
 * -1 with E402 where no optimizer of ours does the same (import_training.c). */
int import_optimizer(struct arena *arena, struct diags *diags, struct onnx_model *model, const char **text);

#endif
