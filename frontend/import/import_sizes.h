/* Sizes of the symbolic dimensions of graph inputs, private to the import: from --dim, --shape and bound inputs.
 *
 * Dimensions of the same name have one size, unless the name says that the size is not known ("?", "None", "unk__12"):
 * then each has its own, as without a name. A name that is an expression of others, as "past + seq", has the size that
 * follows from theirs, unless it is given; a number is its own; other names may follow from others by Note [Equal
 * sizes]. Every size remembers the option that gave it, so that a contradiction can name both. */
#ifndef FRONTEND_IMPORT_IMPORT_SIZES_H
#define FRONTEND_IMPORT_IMPORT_SIZES_H

#include "frontend/import/import_state.h"

enum { OPEN = -1 }; /* a symbolic dimension without a size */

struct size {
    const char *name;
    int64_t size; /* of an open size: in the specimen (ir/open.h) */
    struct open_range range;
    const char *option; /* that gave it, as "--shape x=4,16" */
};

struct sizes {
    struct import *import;
    struct map index; /* name -> position in all */
    VEC(struct size) all;
    struct map used;      /* names of symbolic dimensions in the model */
    struct map open;      /* those that need a size and have none */
    VEC(int) open_inputs; /* ports with dimensions that no earlier one of them has and that are open */
};

/* Takes the sizes of --dim and --shape. E0201 for a dimension or input that the model does not have, and for sizes that
 * contradict each other or the model. */
void sizes_init(struct sizes *sizes, struct import *import);

/* The declared type of a tensor; NULL if the value is none. Its `shape` may be NULL. */
const Onnx__TypeProto__Tensor *sizes_tensor_type(const Onnx__ValueInfoProto *info);
/* Its words, such as "f32[4,?]". */
const char *sizes_declared(const Onnx__TypeProto__Tensor *type, struct arena *arena);
bool sizes_is_number(const Onnx__TensorShapeProto__Dimension *dim);

/* The name of a symbolic dimension, in the model or `arena`: dim_param, or "input.index" without one that tells the
 * size from others. */
const char *sizes_dim_name(const Onnx__ValueInfoProto *info, size_t at, struct arena *arena);

/* The shape that --shape gives the input; NULL: none. */
const struct import_shape *sizes_shape(const struct sizes *sizes, const char *input);

/* The size of dimension `at` of an input, by number or name; OPEN if it has none. */
int64_t sizes_of(struct sizes *sizes, const Onnx__ValueInfoProto *info, size_t at);

/* The size of dimension `at` of an input without a declared shape: what --shape gives it, an open size of its own. */
int64_t sizes_undeclared(struct sizes *sizes, const Onnx__ValueInfoProto *info, const struct import_shape *given,
                         size_t at);

/* Limits what was found to need it (Note [Equal sizes]), once all sizes are known. */
void sizes_limit(struct sizes *sizes);

/* Gives the dimensions of a bound input their sizes. False if they contradict those that are known. */
bool sizes_bind(struct sizes *sizes, const Onnx__ValueInfoProto *info, int ndim, const int64_t *dims);

/* Records that port `at` of the import needs sizes that are not given. */
void sizes_miss(struct sizes *sizes, int at);

/* E0343 if sizes are missing: names all of them, with a command line that gives them. decoder: options that do, of
 * import_decoder_options; NULL: none. */
void sizes_report(struct sizes *sizes, const char *decoder);

/* E0201: the option names an input that the model lacks. Suggests the nearest name, else lists the first ones. */
void import_no_input(struct import *import, const char *option, const char *name);

#endif
