/* Lowering: from one ONNX node to core operators. Shared by import.c, which walks the graph, and the lower_*.c
 * families.
 *
 * A lowering finds the node's inputs as tensor ids and its attributes checked against the row, and leaves the
 * tensors of the results in `outputs`. It returns 0, or -1 after a diagnostic. Everything it emits is named after
 * the node.
 *
 * The emit functions take -1 for an operand that failed and give -1 back, so that a composition is checked once, at
 * its end. Tensors are copied out of the graph (lower_input, lower_tensor): pointers into it do not survive an
 * emit. */
#ifndef FRONTEND_LOWER_ONNX_LOWER_H
#define FRONTEND_LOWER_ONNX_LOWER_H

#include "frontend/lower/onnx_ops.h"
#include "frontend/read/onnx_read.h"
#include "ir/build.h"

struct lower;

struct import;
struct frame;

/* Why a value's declared shape may differ from its own without the model being malformed: rows of import_values.c. */
enum dispute {
    NO_DISPUTE,
    DISPUTED_CONSTANT, /* the value lies in the model: it has the shape it was stored with */
    DISPUTED_CEIL,     /* a pool with ceil_mode, or computed from one */
    DISPUTES
};

struct lower {
    struct build b;        /* graph, diagnostics, name of the node */
    struct import *import; /* import.c's, as are frame, first_tensor and entered */
    const struct frame *frame;
    int first_tensor; /* the node's own tensors begin here */
    bool entered;     /* its results are still to come, from a frame */
    const struct onnx_op *op;
    const Onnx__NodeProto *node;
    int64_t index;             /* of the node in its graph */
    int version;               /* of the operator set it is from */
    enum rt_dtype float_dtype; /* options->dtype */
    bool train;
    enum dispute dispute; /* of the results' shapes */
    int ninputs, noutputs;
    int *inputs;  /* tensor ids, -1: left out */
    int *outputs; /* to be set; a name left empty by the node needs none: lower_wants */
};

/* Checks the node's attributes against its row: E334 unknown, E335 wrong type, E336 missing. */
int lower_check_attributes(struct lower *l);
/* The place of the node, for diagnostics. */
const char *lower_where(const struct lower *l);

/* Diagnostics at the node's place; return -1. */
int lower_error(struct lower *l, int code, enum exit_code exit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* E402: valid, but a form that rankc does not implement. */
int lower_unsupported(struct lower *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* E378 for operands whose shapes do not fit. */
int lower_misfit(struct lower *l, int x, int y);

bool lower_has(const struct lower *l, int input);
bool lower_wants(const struct lower *l, int output);
struct tensor lower_input(const struct lower *l, int input);
struct tensor lower_tensor(const struct lower *l, int tensor);
enum rt_dtype lower_dtype(const struct lower *l, int tensor);
int lower_ndim(const struct lower *l, int tensor);

/* Sets output 0; for `return lower_result(l, emit...)`. */
int lower_result(struct lower *l, int tensor);

/* Attributes of the row: as given, else the row's default, else 0, "" or NULL. */
bool lower_given(const struct lower *l, const char *name);
int64_t lower_int(const struct lower *l, const char *name);
double lower_float(const struct lower *l, const char *name);
const char *lower_text(const struct lower *l, const char *name);
const int64_t *lower_ints(const struct lower *l, const char *name, int *n);
const float *lower_floats(const struct lower *l, const char *name, int *n);
const Onnx__AttributeProto *lower_attribute(const struct lower *l, const char *name);

/* Values of an operand that must be known at compile time; NULL after E409. `what` names it: "shape". */
const int64_t *lower_known(struct lower *l, int input, const char *what, int *n);
/* Likewise a single value, of any number type; a weight that is asked for so is no parameter. */
int lower_known_int(struct lower *l, int input, const char *what, int64_t *value);
int lower_known_float(struct lower *l, int input, const char *what, double *value);
/* The values of operand `input` if given, else of attribute `name`: axes, pads, splits moved from one to the other.
 * NULL with *n = 0 if neither is there; -1 after a diagnostic. Rows without the attribute pass over `name`. */
int lower_list(struct lower *l, int input, const char *name, const int64_t **list, int *n);

/* -ndim .. ndim-1 to 0 .. ndim-1, else E375. */
int lower_axis(struct lower *l, int64_t axis, int ndim, int *out);
/* A set of axes, each at most once, as flags; E375. */
int lower_axes(struct lower *l, const int64_t *axes, int n, int ndim, bool flags[MAX_NDIM]);

/* E385 unless attribute epsilon is a number from 0 on (lower_norm.c). */
int lower_epsilon(struct lower *l);

/* The model says that it comes from that program. */
bool lower_made_by(const struct lower *l, const char *producer);

/* The key of one more random operator: Philox's, of its number in the model and the seed it is given. */
int64_t lower_random_key(struct lower *l, int64_t seed);

/* A float type after --dtype. */
enum rt_dtype lower_float_type(const struct lower *l, enum rt_dtype dtype);

/* Sequences: ids of their own, given to rows marked with `sequences`. */
bool lower_is_sequence(int id);
int lower_sequence(struct lower *l, int n, const int *items);
const int *lower_items(const struct lower *l, int sequence, int *n);

/* A tensor of an attribute (Constant, ConstantOfShape) as a constant. */
int lower_proto(struct lower *l, const Onnx__TensorProto *proto);

/* Goes on with a graph attribute of the node in place of the node: If, Loop (lower_control.c). */
struct subgraph {
    const Onnx__GraphProto *graph;
    int ninputs;
    const int *inputs;
    /* Called with the values of the graph's outputs: sets the node's outputs, or enters another. */
    int (*done)(struct lower *l, void *state, int n, const int *values);
    void *state;
};
int lower_enter(struct lower *l, const struct subgraph *subgraph);

/* Emit ------------------------------------------------------------------------------------------------------------- */

/* The core operator that has the name of the node's ONNX operator. */
enum op_id lower_namesake(const struct lower *l);

int emit(struct lower *l, enum op_id op, int ninputs, const int *inputs, int nattrs, const struct attr *attrs);
int emit1(struct lower *l, enum op_id op, int x);
int emit2(struct lower *l, enum op_id op, int x, int y);
int emit3(struct lower *l, enum op_id op, int x, int y, int z);
int emit_cast(struct lower *l, int x, enum rt_dtype dtype);
/* A scalar constant of x's type. */
int emit_like(struct lower *l, int x, double value);
/* op(x, value): "Mul" by 0.5 ... */
int emit_with(struct lower *l, enum op_id op, int x, double value);
/* The square root; in training one whose slope at 0 is 0, as that of PyTorch's norms. */
int emit_root(struct lower *l, int x);
int emit_ints(struct lower *l, int n, const int64_t *values, int ndim, const int64_t *dims);
int emit_reshape(struct lower *l, int x, int ndim, const int64_t *shape);
int emit_transpose(struct lower *l, int x, const int64_t *perm);
int emit_expand(struct lower *l, int x, int ndim, const int64_t *shape);
/* `size` elements of dimension `axis` from `start` on. */
int emit_piece(struct lower *l, int x, int axis, int64_t start, int64_t step, int64_t size);
int emit_concat(struct lower *l, int axis, int n, const int *inputs);
int emit_gather(struct lower *l, int x, int index, int axis);
/* A new dimension of extent 1 at `axis`, or a dimension of extent 1 taken away. */
int emit_unsqueeze(struct lower *l, int x, int axis);
int emit_squeeze(struct lower *l, int x, int axis);
/* 1-D x of C elements as (C, 1, ..) so that it broadcasts along dimension 1 of a tensor of ndim dimensions. */
int emit_per_channel(struct lower *l, int x, int ndim);
/* Input `input`, one value for each channel of x, likewise (lower_norm.c); E385 if it is not that. */
int emit_channels(struct lower *l, int input, const struct tensor *x);
/* Reduction (lower_reduce.c) over the flagged dimensions. */
int emit_reduce(struct lower *l, enum op_id op, int x, const bool *axes, bool keepdims);
int emit_mean(struct lower *l, int x, const bool *axes, bool keepdims);
/* Matrix product of operands of 2 or more dimensions (lower_matmul.c), broadcasting the others. */
int emit_matmul(struct lower *l, int a, int b, bool trans_a, bool trans_b);
int emit_softmax(struct lower *l, enum op_id op, int x, int axis);
/* LayerNorm or RMSNorm (lower_norm.c) of inputs 0, 1 (scale) and 2 (bias, if there) over the dimensions from `axis` on,
 * which become one; attribute epsilon. */
int emit_normalised(struct lower *l, enum op_id op, int axis);

/* Extent of each dimension of the broadcast of two shapes; false if they do not fit or there are too many. */
bool broadcast_dims(int nx, const int64_t *x, int ny, const int64_t *y, int *n, int64_t *dims);
/* Product of dims[first .. end - 1] of a tensor that exists. */
int64_t extent_between(const struct tensor *tensor, int first, int end);

#endif
