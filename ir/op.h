/* The core operators. Each is one row of ops.def, from which everything else about the operator is derived.
 *
 * Most ONNX operators are compositions of core operators (frontend/lower/onnx_ops.def). A row has the operator's
 * dimension annotation (ir/dims.h), its types, and either an expression (elementwise operators) or the call of a
 * runtime kernel:
 *
 *   types   one letter per operand, inputs "->" outputs, as in "TT->T". Equal letters are equal types. Types
 *           of quantised tensors (RT_KIND_CODE_*) are no numbers and no floats.
 *             T any type       N any number     f any float      I i32 or i64     . any, independent of the others
 *             Z any integer
 *             q i8 or u8, independent of the others              i i32
 *             b bool           d f64            s f32            u u8             l i64
 *             w the type in which the floats are summed (op_summed_in)
 *             c any, independent of the others, of stored weights: no pass converts it
 *             h the type of the letters before, or a 16-bit float if that is f32; k as h, or i8 if that is f32
 *             @ the type that attribute "to" names; with several outputs, "to" has one name for each
 *             e i32, or the type that attribute "to" names
 *           A "?" makes the input before it optional. A "*" repeats the letter before it for all further operands;
 *           "?*" is any number of inputs.
 *   expr    C expression of the inputs, the attributes by name, and functions (ir/expr/expr.h); inputs are x (one),
 *           a b (two), a b c (three)
 *   call    kernel and arguments, in the language of codegen/call/placeholders.h: $y $x0 $m $[*] $start(v) ... */
#ifndef IR_OP_H
#define IR_OP_H

#include "ir/ir.h"

/* Identifies an operator: the index of its row in ops[]. */
enum op_id {
#define EW(name, ...) OP_##name,
#define OP(name, ...) OP_##name,
#include "ir/ops.def"
#undef EW
#undef OP
    NOPS,
    OP_NONE = NOPS /* ends a list of operators */
};

enum op_kind {
    OP_ELEMENTWISE, /* expr */
    OP_KERNEL,      /* call */
    OP_PROGRAM, /* attribute expr: elementwise expressions and reductions of rows or columns (ir/expr/row_program.h) */
    OP_VIEW,    /* the operand's bytes under another shape: no code is generated */
    OP_COMM,    /* redistributes among the ranks of a mesh axis; made by passes/place/redist.c only */
    OP_SOURCE   /* always folded: no run-time form */
};

/* Whether the operator maps partial sums to a partial sum. LINEAR_EACH: if exactly one of its inputs is partial and the
 * others are whole (bilinear). LINEAR_ALL: if all inputs are partial (additive). */
enum op_linear { LINEAR_NO, LINEAR_EACH, LINEAR_ALL };

/* The padding of a dimension that is read whole which leaves the results unchanged: elements of that value, of any
 * value, or none. NEUTRAL_ANY also holds for dimensions that are summed. */
enum neutral { NEUTRAL_NONE, NEUTRAL_ANY, NEUTRAL_ZERO, NEUTRAL_ONE, NEUTRAL_LEAST, NEUTRAL_MOST };

/* How the ranks of a mesh axis communicate (collectives.def). */
enum collective {
#define COLLECTIVE(id, ...) COLLECTIVE_##id,
#include "ir/collectives.def"
#undef COLLECTIVE
    COLLECTIVES
};

struct dims;     /* ir/dims.h */
struct eval;     /* ir/expr/eval.h */
struct gradient; /* ir/gradient.h */

/* A row of ops.def; the columns are its fields. */
struct op {
    enum op_id id;
    const char *name; /* in text IR, plans and messages */
    enum op_kind kind;
    const char *dims;
    const char *types;
    double flops; /* per point of the iteration space */
    const char *expr, *call;
    enum collective collective; /* OP_COMM that is not local */
    bool ring;                  /* OP_KERNEL: the ranks of mesh axis `mesh` communicate while they compute it */
    bool local; /* OP_COMM: takes the rank's part of data that it already has; no data moves between ranks */
    /* output 0 overwrites input 0, unless another node still reads that (Note [On the operand] in rankplan_make.c) */
    bool in_place;
    bool halves; /* the kernel has 16-bit float variants; for others pass promote_to_f32 inserts casts to f32 */
    bool onto;   /* the result is added to input 0, which has the result's layout: a partial sum if that is one */
    enum op_linear linear;
    bool commutes; /* commutative: the two operands may be exchanged */
    /* Second operand with which the result is the first operand, bit for bit: x + -0 and x - 0 are x for every x, while
     * x + 0 makes 0 of -0. Integers have no -0. NULL: there is none. */
    const char *unit;
    const char *fold; /* the equal reduction of row programs (ir/expr/row_program.h); NULL: none */
    enum neutral neutral;
    int whole; /* LINEAR_ALL: number of last inputs, such as conditions, that stay whole while the others are partial */
    /* Operators with weights (input 1): names of the factors that column-parallel tensor parallelism divides, those of
     * both the weights and the result, separated by blanks. The first that the node has and that can be divided is
     * taken. NULL: none. */
    const char *columns;
    int (*dims_fn)(struct dims *dims, const struct graph *graph, const struct node *node, const char **why);
    /* Rewrites attributes of the node to those of one rank's part, such as the shape of a Reshape. `node` is a copy
     * that the hook edits; local[o] are the extents of operand o on that rank. NULL: no attribute depends on the
     * part. */
    void (*split_attr)(struct graph *graph, const struct dims *dims, const int64_t (*local)[RT_MAX_NDIM],
                       struct node *node);
    /* Evaluates the node on constant inputs (ir/expr/eval.h). NULL: elementwise operators are evaluated by expr, others
     * do not fold. */
    int (*eval)(struct eval *eval);
    /* The derivative (ir/gradient.h): of elementwise operators an expression per input, of others a function that
     * returns -1 after a diagnostic. Both NULL: not differentiable. */
    const char *gradient;
    int (*grad)(struct gradient *gradient);
    unsigned variants; /* bit 1 << type: there are kernels for these types only; 0: as op_has_kernel derives it */
    const struct user_op *user; /* the declaration of an operator of the user (ir/user.h), which is no row; else NULL */
};

extern const struct op ops[NOPS];

/* The operator of that name; NULL if there is none. */
const struct op *op_find(const char *name);
/* The same for a name in rankc's own texts and tables, such as a rewrite pattern: BUG if there is none. */
const struct op *op_named(const char *name);

/* True if the node maps partial sums to a partial sum: its operator is LINEAR_ALL, or it is a Cast to a float type that
 * represents every value of its operand. */
bool node_is_linear(const struct graph *graph, const struct node *node);
/* With SPLIT_PARTIAL: true if input k is a partial sum, false if it stays whole (column `whole`). */
bool node_sums_input(const struct node *node, int k);

/* The node that computes the tensor if its operator is `op`, else NULL. */
const struct node *made_by(const struct graph *graph, int tensor, enum op_id op);

/* True for a Transpose that exchanges the last two dimensions and moves no other. */
bool op_exchanges_last(const struct node *node);

/* The reduction that attribute `reduce` names; RT_SUM without it. */
enum rt_reduce op_reduction(const struct node *node);

/* The operand that a node of kind OP_COMM redistributes: the last. */
int op_moved_input(const struct node *node);

/* True if the ranks of a mesh axis communicate to execute it (OP_COMM that is not local, or a ring). */
bool op_communicates(const struct op *op);

/* The tensors that go round in ring attention, or its gradient: k and v, and dk and dv. Returns how many. */
int op_ring_tensors(const struct node *node, int tensors[4]);

/* True for attention as one operator, and for its gradient: products whose scores stay inside the kernel. */
bool op_is_attention(const struct op *op);
/* True for the products of integers that may have an epilogue, IntMatMul and IntConv. */
bool op_multiplies_integers(const struct op *op);

/* True for products by one of several matrices, those of experts: the last input has its index for each row. */
bool op_is_of_experts(const struct op *op);
/* The number of a product's inputs before the operands of its epilogue: 2, and of products of integers, which have
 * two zero points and a bias, 5. */
enum { OP_INTEGER_BIAS = 4, OP_INTEGER_INPUTS };
int op_epilogue_first(const struct node *node);

/* True for QuantizeBlocks and DequantizeBlocks. */
bool op_has_blocks(const struct op *op);
/* The shape of the scales of blocks of these elements. Returns its number of dimensions; 0: they are not blocks. */
int op_block_scales(const struct tensor *codes, int64_t dims[RT_MAX_NDIM]);

/* The input of attention, or of its gradient, that is q; k follows. */
int op_query(const struct node *node);

/* Number of inputs of an elementwise operator, from column `types`. */
int op_arity(const struct op *op);

/* The input whose type selects the kernel variant: the first whose letter allows several types, else input 0. */
int op_typed_input(const struct op *op);

/* True if the type is legal for the input that op_typed_input returns. op_has_kernel says whether a kernel for it
 * exists. */
bool op_takes(const struct op *op, enum rt_dtype dtype);

/* True if there is a kernel or an expression for that type of the input that op_typed_input returns. */
bool op_has_kernel(const struct op *op, enum rt_dtype dtype);

/* True if the operator is in the list, which ends with OP_NONE; NULL is an empty list. */
bool op_is_listed(const struct op *op, const enum op_id *list);

/* Column `types`. op_input_letter: the letter of input i, which must exist. op_letter_type: the type that a letter
 * stands for by itself, RT_DTYPE_NONE for one that allows several. op_type_fits: whether the letter allows the type;
 * *bound is the type that T, N or f stands for in this node, RT_DTYPE_NONE before the first, and is set by the
 * call. op_summed_in: the type in which elements of `dtype` are summed, f32 for 16-bit floats, else `dtype` itself. */
const char *op_input_letter(const struct op *op, int i);
enum rt_dtype op_letter_type(char letter);
bool op_type_fits(char letter, enum rt_dtype dtype, enum rt_dtype *bound);
enum rt_dtype op_summed_in(enum rt_dtype dtype);

/* Sets the shapes and types of the node's outputs, which follow from its dimension annotation (dims.h) and from column
 * `types`; those of its inputs must be set. 0, or -1 after a diagnostic that names the node. */
int op_infer(struct graph *graph, int node, struct diags *diags);

/* Converts every float tensor of an IMPORTED graph, and every Cast to a float type, to `dtype`, as importing with
 * --dtype does. 0, or -1 after a diagnostic. */
int graph_retype(struct graph *graph, enum rt_dtype dtype, struct diags *diags);

#endif
