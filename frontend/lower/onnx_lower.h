/* Lowering: emits core operators for one ONNX node. The interface between import.c, which visits the nodes, and the
 * lowerings in lower_*.c, one file per family of operators.
 *
 * A lowering gets the node's inputs as tensor ids and its attributes, checked against the operator's row; it stores the
 * tensor ids of the results in `outputs` and returns 0, or -1 after a diagnostic. Emitted nodes are named after the
 * ONNX node.
 *
 * The emit functions return a tensor id, or -1 if an operand is -1 or after a diagnostic, so that a composition of them
 * needs one check at its end. Emitting may move the graph's tensors: lower_input and lower_tensor return copies. */
#ifndef FRONTEND_LOWER_ONNX_LOWER_H
#define FRONTEND_LOWER_ONNX_LOWER_H

#include "frontend/lower/onnx_ops.h"
#include "frontend/read/onnx_read.h"
#include "ir/build.h"

struct frame;
struct lowering; /* frontend/lower/lowering_state.h */
struct subgraph;
struct taken;

struct lower {
    struct build builder; /* graph, diagnostics, name of the node */
    struct arena *arena;
    struct lowering *shared;       /* by all nodes of the model */
    const struct frame *frame;     /* private to the import, as is `entered`: the list of nodes it is in */
    bool entered;                  /* a subgraph or function was entered: its frame sets the outputs later */
    const struct subgraph *enters; /* lower_enter: what is to be entered in place of the node */
    const struct taken *taken;     /* the conditions under which the node counts; NULL: always */
    int first_tensor;              /* tensors from this id on were created for this node */
    const struct onnx_op *op;      /* the operator's row */
    const Onnx__NodeProto *node;
    const Onnx__AttributeProto *const *attributes; /* of the node, or of the call that they refer to; NULL: not given */
    int64_t index;                                 /* of the node in its graph */
    int version;                                   /* of its operator set */
    int ninputs, noutputs;
    int *inputs;  /* tensor ids, -1: left out */
    int *outputs; /* tensor ids, set by the lowering; may stay -1 for an output that lower_wants says is unused */
};

/* Checks the node's attributes against its row: E334 unknown, E335 wrong type, E336 missing. 0 or -1. */
int lower_check_attributes(struct lower *lower);
/* Lowers a MAP row: one elementwise core operator with the same inputs and attributes. */
int lower_map(struct lower *lower);
/* The place of the node, for diagnostics. */
const char *lower_where(const struct lower *lower);

/* Diagnostics at the node's place; return -1. */
int lower_error(struct lower *lower, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* E505 for the result; E410 for a shape of which more than one extent depends on data. */
int lower_too_large(struct lower *lower);
int lower_too_open(struct lower *lower);
/* Help with a mixture of experts whose export follows the tokens that its experts get. Returns -1. */
int lower_help_experts(struct lower *lower);
/* E402, valid ONNX that rankc does not implement; the text is a form of the operator, such as "negative padding". */
int lower_unsupported(struct lower *lower, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* E335 for a value of attribute `what` that ONNX does not have. */
int lower_unknown(struct lower *lower, const char *what, const char *value);
/* A name in quotes and a tensor's type, for messages. */
const char *lower_quote(const struct lower *lower, const char *name);
const char *lower_type(const struct lower *lower, const struct tensor *tensor);
/* open_meet of two extents. */
bool lower_meet(const struct lower *lower, int64_t a, int64_t b);
/* E378 for operands whose shapes do not fit. */
int lower_misfit(struct lower *lower, int x, int y);

/* The node has optional input `input`, whose id is -1 if it has not; its output `output` has a name. */
bool lower_has(const struct lower *lower, int input);
int lower_id(const struct lower *lower, int input);
bool lower_wants(const struct lower *lower, int output);
/* Input number `input` of the node; a tensor by its id, with its type and number of dimensions. */
struct tensor lower_input(const struct lower *lower, int input);
struct tensor lower_tensor(const struct lower *lower, int tensor);
enum rt_dtype lower_dtype(const struct lower *lower, int tensor);
int lower_ndim(const struct lower *lower, int tensor);

/* Adds to the latest diagnostic how --bind makes the tensor a constant, if it depends on small graph inputs alone.
 * Returns -1. */
int lower_help_bind(struct lower *lower, int tensor);

/* Sets output 0 and returns 0, or -1 if `tensor` is -1. A lowering ends with it. */
int lower_result(struct lower *lower, int tensor);

/* Values of attributes that the row lists: as given by the node, else the row's default, else 0, "" or NULL.
 * lower_given: the node gives the attribute. Lists belong to the model; *n is their length. */
bool lower_given(const struct lower *lower, const char *name);
int64_t lower_int(const struct lower *lower, const char *name);
double lower_float(const struct lower *lower, const char *name);
const char *lower_text(const struct lower *lower, const char *name);
const int64_t *lower_ints(const struct lower *lower, const char *name, int *n);
const float *lower_floats(const struct lower *lower, const char *name, int *n);
const Onnx__AttributeProto *lower_attribute(const struct lower *lower, const char *name);

/* The *n integers of an input that must be known at compile time; NULL after E409. `what` names it in the message, as
 * in "shape". */
const int64_t *lower_known(struct lower *lower, int input, const char *what, int *n);
/* The same of an input with one element; lower_known_float takes any numeric type; the values of a
 * weight are fixed by it at compile time. */
int lower_known_int(struct lower *lower, int input, const char *what, int64_t *value);
int lower_known_float(struct lower *lower, int input, const char *what, double *value);
/* A list of integers (axes, pads, splits) that older opsets have as attribute `name` and newer ones as input `input`:
 * the input if given, else the attribute. *list is NULL and *n 0 if neither is given. 0, or -1 after a diagnostic.
 * `name` is ignored if the row does not list it. */
int lower_list(struct lower *lower, int input, const char *name, const int64_t **list, int *n);

/* False if a mask of so many keys is for others than those there are; it may be for fewer, not of an open number. */
bool lower_meets_keys(const struct lower *lower, int64_t length, int64_t keys);
/* E439: the number varies, where only a fixed one will do. */
int lower_varies(struct lower *lower, int64_t number, const char *what);
/* The graph's open sizes; NULL: there are none. */
struct open_sizes *lower_open(const struct lower *lower);
/* E439 with the option that would do, unless the number is at least `least` for all sizes: "WHAT must be MUST for all
 * open sizes". */
int lower_at_least(struct lower *lower, int64_t number, int64_t least, const char *what, const char *must);

/* Maps an axis in [-ndim, ndim) to [0, ndim); E375 if it is outside. */
int lower_axis(struct lower *lower, int64_t axis, int ndim, int *out);
/* A list of axes as flags; E375 for an axis outside of [-ndim, ndim) or given twice. */
int lower_axes(struct lower *lower, const int64_t *axes, int n, int ndim, bool flags[RT_MAX_NDIM]);

/* E385 unless attribute epsilon is finite and not negative (lower_norm.c). */
int lower_epsilon(struct lower *lower);

/* True if the model's producer_name is `producer`. */
bool lower_made_by(const struct lower *lower, const char *producer);

/* A key for Philox, made of `seed` and the number of random operators so far, so that each has its own. */
int64_t lower_random_key(struct lower *lower, int64_t seed);

/* The type that float type `dtype` of the model has in the graph: that of --dtype, if given. */
enum rt_dtype lower_float_type(const struct lower *lower, enum rt_dtype dtype);

/* ONNX sequences exist at compile time only: a list of tensor ids with an id of its own, which only operators whose row
 * is marked `sequences` may have as input. */
bool lower_is_sequence(int id);
int lower_sequence(struct lower *lower, int n, const int *items);
const int *lower_items(const struct lower *lower, int sequence, int *n);
/* E341 if input `input` is given and is no sequence, or with sequence = false no tensor. */
int lower_want(struct lower *lower, int input, bool sequence);
bool lower_is_nothing(const struct lower *lower, int id);

/* Values whose size along a dimension depends on data: the extent of the tensor is a bound, and `count`, an i64 without
 * dimensions, says how many indices are valid, from 0 on. zero: the elements at the others are 0. See Note [Counted
 * values] in counts.c. */
struct counted {
    int dim, count;
    bool zero;
};
/* NULL: the size of the tensor does not depend on data. */
const struct counted *lower_counted(const struct lower *lower, int tensor);
/* Records that the tensor is counted; NULL: that all of its elements are valid. */
void lower_set_counted(struct lower *lower, int tensor, const struct counted *counted);
/* True if x, or what it is a Reshape of, has a count or lost one: a Reshape of it must not become one of that. */
bool lower_is_resized(const struct lower *lower, int x);
/* Which indices are valid: bool of `ndim` dimensions, `bound` of them in dimension `dim`. */
int lower_valid(struct lower *lower, const struct counted *counted, int64_t bound, int ndim, int dim);
/* A counted tensor with `value` in place of the elements that are not valid, so that all are; others as they are. */
int lower_masked(struct lower *lower, int x, int value);
/* For a node that is about to be added: replaces counted operands, in the copy `inputs`, by masked ones where the
 * operator reduces the counted dimension or reads it whole. True if its result is to be recorded as *result. */
bool lower_mask(struct lower *lower, const struct node *node, int *inputs, struct counted *result);
/* Counted indices with 0 in place of those that are not valid, so that all may be gathered; still counted. */
int lower_masked_index(struct lower *lower, int x);
/* E410 if the node's operator does not take its counted operands. Brings operands that broadcast to the same bounds. */
int lower_check_counted(struct lower *lower);
/* Finds which results of the nodes so far are counted; E410 if one of those from `first` on cannot be computed on valid
 * indices alone. */
int lower_pass_counts(struct lower *lower, int first);

/* Adds the tensor of an attribute (Constant, ConstantOfShape) to the graph as a constant. */
int lower_proto(struct lower *lower, const Onnx__TensorProto *proto);
int lower_sparse(struct lower *lower, const Onnx__SparseTensorProto *proto);

/* Why a subgraph could not be lowered. misfit: for no other reason than that operands do not fit its operators. */
struct failure {
    struct diags diags;
    bool misfit;
};

/* When a subgraph is taken, of which only results are chosen at run time: if the condition has that value. */
struct taken {
    int condition; /* a bool without dimensions */
    bool value;
    const struct taken *outer; /* set by lower_enter */
};

/* A graph attribute of the node that is inlined in place of the node: If, Loop (lower_control.c). */
struct subgraph {
    const Onnx__GraphProto *graph;
    int ninputs;
    const int *inputs;
    const struct taken *taken; /* NULL: always */
    /* Called with the ids of the graph's outputs after its nodes were lowered. Sets the node's outputs, or enters the
     * next subgraph; 0, or -1 after a diagnostic. */
    int (*done)(struct lower *lower, void *state, int n, const int *values);
    /* Called in its place after errors, which have been taken from the diagnostics. NULL: they are the node's. */
    int (*failed)(struct lower *lower, void *state, const struct failure *failure);
    void *state;
};
/* The subgraph, whose inputs must be in the arena, is entered when the lowering has returned with its outputs not set.
 * 0, or -1 after a diagnostic. */
int lower_enter(struct lower *lower, const struct subgraph *subgraph);
/* x if the subgraphs that the node is in are all taken, else `value`. */
int lower_if_taken(struct lower *lower, int x, int value);

/* Emitting core operators */

/* The core operator that has the name of the node's ONNX operator. */
enum op_id lower_namesake(const struct lower *lower);

int emit(struct lower *lower, enum op_id op, int ninputs, const int *inputs, int nattrs, const struct attr *attrs);
/* The same with attribute axis alone. */
int emit_along(struct lower *lower, enum op_id op, int ninputs, const int *inputs, int axis);
int emit1(struct lower *lower, enum op_id op, int x);
int emit2(struct lower *lower, enum op_id op, int x, int y);
int emit3(struct lower *lower, enum op_id op, int x, int y, int z);
int emit_cast(struct lower *lower, int x, enum rt_dtype dtype);
/* The bytes of x as elements of another type of the same size. */
int emit_bit_cast(struct lower *lower, int x, enum rt_dtype dtype);
/* x in a type for which core operators have kernels: f32, f64, fp16, bf16, i64 and i32. emit_wrapping: sums and
 * products of the results are those of x once emit_narrowed converts them back to x's type. emit_ordered: the results
 * are in the same order, so that ranks, maxima and minima are those of x; emit_from_ordered converts them back. */
int emit_wrapping(struct lower *lower, int x);
int emit_narrowed(struct lower *lower, int x, enum rt_dtype dtype);
int emit_ordered(struct lower *lower, int x);
int emit_from_ordered(struct lower *lower, int x, enum rt_dtype dtype);
/* A scalar constant of x's type. */
int emit_like(struct lower *lower, int x, double value);
/* op(x, value) with a constant as second operand. */
int emit_with(struct lower *lower, enum op_id op, int x, double value);
/* The square root. When training, one with gradient 0 at 0, like PyTorch's norms. */
int emit_root(struct lower *lower, int x);
/* A scalar with the number, and one with 1 / number, which may depend on open sizes. */
int emit_number(struct lower *lower, enum rt_dtype dtype, int64_t number);
int emit_reciprocal(struct lower *lower, enum rt_dtype dtype, int64_t number);
int emit_ints(struct lower *lower, int n, const int64_t *values, int ndim, const int64_t *dims);
/* i64 first, first + 1, .. along dimension `axis`, of extent n, of a tensor of ndim dimensions, whose others are 1. */
int emit_places(struct lower *lower, int64_t first, int64_t n, int ndim, int axis);
/* A constant of type `dtype`, made of doubles. */
int emit_floats(struct lower *lower, enum rt_dtype dtype, int ndim, const int64_t *dims, const double *values);
int emit_reshape(struct lower *lower, int x, int ndim, const int64_t *shape);
/* The same as a tensor of its own, even if the shape is x's. */
int emit_view(struct lower *lower, int x, int ndim, const int64_t *shape);
int emit_transpose(struct lower *lower, int x, const int64_t *perm);
int emit_expand(struct lower *lower, int x, int ndim, const int64_t *shape);
/* A slice: `size` indices of dimension `axis`, from `start` on in steps of `step`. */
int emit_piece(struct lower *lower, int x, int axis, int64_t start, int64_t step, int64_t size);
int emit_concat(struct lower *lower, int axis, int n, const int *inputs);
int emit_gather(struct lower *lower, int x, int index, int axis);
int emit_gather_elements(struct lower *lower, int x, int index, int axis);
/* x with indices of `value` before and behind those of dimension `axis`. */
int emit_padded(struct lower *lower, int x, int axis, int64_t before, int64_t behind, double value);
/* The indices of the k largest or least elements along `axis` (core operator TopK). */
int emit_top(struct lower *lower, int x, int axis, int64_t k, bool largest);
/* Core operator CumSum or CumProd. */
int emit_cumulated(struct lower *lower, enum op_id op, int x, int axis, bool exclusive, bool reverse);
/* A convolution with stride 1 and without padding. */
int emit_conv(struct lower *lower, int x, int weights, int64_t groups);
/* Adds or removes a dimension of extent 1 at `axis`. */
int emit_unsqueeze(struct lower *lower, int x, int axis);
int emit_squeeze(struct lower *lower, int x, int axis);
/* Reshapes x of C elements to (C, 1, ..) with ndim - 1 dimensions, so that it broadcasts along dimension 1 of a tensor
 * of ndim dimensions. */
int emit_per_channel(struct lower *lower, int x, int ndim);
/* The same of the node's input `input`; E385 unless it has one value per channel of `like` (lower_norm.c). */
int emit_channels(struct lower *lower, int input, const struct tensor *like);
/* A core reduction `op` over the dimensions d with axes[d] (lower_reduce.c). */
int emit_reduce(struct lower *lower, enum op_id op, int x, const bool *axes, bool keepdims);
/* The same over one dimension. */
int emit_reduce_along(struct lower *lower, enum op_id op, int x, int axis, bool keepdims);
/* The index of the largest element along `axis`, the first of equal ones (core operator ArgMax). */
int emit_arg_max(struct lower *lower, int x, int axis, bool keepdims);
/* The least or greatest value of a type, as a scalar. */
int emit_extreme(struct lower *lower, enum rt_dtype dtype, bool least);
/* The mean; of a counted operand that of the valid elements. */
int emit_mean(struct lower *lower, int x, const bool *axes, bool keepdims);
/* Matrix product of the last two dimensions; leading dimensions broadcast (lower_matmul.c). */
int emit_matmul(struct lower *lower, int a, int b, bool trans_a, bool trans_b);
/* Core operator IntConv of x and w with the window and the groups that the node's attributes say; zero points of -1 are
 * 0 (lower_conv.c). */
int emit_int_conv(struct lower *lower, int x, int w, int x_zero, int w_zero);
int emit_softmax(struct lower *lower, enum op_id op, int x, int axis);
/* Heads of attention: x (batch, length, heads x size) as (batch, length, heads, size), or E378; x (batch, kv, length,
 * size) with each head repeated for its group of adjacent query heads, `heads` in all; (batch, heads, length, size) as
 * (batch, length, heads x size) (lower_attention.c). */
int emit_split_heads(struct lower *lower, int x, int64_t heads);
int emit_repeated_heads(struct lower *lower, int x, int64_t heads);
int emit_joined_heads(struct lower *lower, int x);
/* Core operator LayerNorm or RMSNorm of input 0 over the dimensions from `axis` on, with inputs 1 (scale) and 2 (bias,
 * if given) and attribute epsilon (lower_norm.c). */
int emit_normalised(struct lower *lower, enum op_id op, int axis);
/* ONNX GroupNormalization-21 of `image` (n, c, ..), reshaped to (n, groups, c / groups, ..): with attribute epsilon,
 * and with inputs 1 (scale) and 2 (bias), which have one value per channel, else per group (lower_norm.c). */
int emit_group_norm(struct lower *lower, int image, int64_t groups, bool per_channel);

/* The shape that two shapes broadcast to; false if they do not fit or have more than RT_MAX_NDIM dimensions. */
bool broadcast_dims(struct open_sizes *open, int nx, const int64_t *x, int ny, const int64_t *y, int *n, int64_t *dims);
/* Product of the tensor's extents dims[first .. end - 1]. */
int64_t extent_between(const struct tensor *tensor, int first, int end);

#endif
