/* The core operators: one row each in ops.def, from which everything else about an operator is derived.
 *
 * ONNX's operators are mostly compositions of these (frontend/lower/onnx_ops.def). A row states its annotation
 * (ir/dims.h), its types, and either an expression (elementwise) or the call of a runtime kernel:
 *
 *   types   one letter per operand, "TT->T": equal letters are equal types; T any type, N any number, f any float; b
 *           bool, d f64, s f32, u u8, w what the floats are summed in (f32 of halves), l i64, I index (i32 or i64), .
 *           any; "*" repeats the letter before it (the last, of results), "?" lets that input be left out ("?*": any
 *           number); "@" the type named by attribute "to", of several results a name for each
 *   expr    C expression of inputs x (one), a b (two), a b c (three), attributes by name, and functions
 *           (ir/expr/expr.h)
 *   call    kernel and arguments, in the language of codegen/instruction.h: $y $x0 $m $[*] $start(v) ...
 */
#ifndef IR_OP_H
#define IR_OP_H

#include "ir/ir.h"

/* What an operator is told by: a number per row of ops.def, the index of its row in ops[]. */
enum op_id {
#define EW(name, ...) OP_##name,
#define OP(name, ...) OP_##name,
#include "ir/ops.def"
#undef EW
#undef OP
    NOPS,
    OP_NONE = NOPS /* ends a list of operators */
};

enum op_class {
    OP_ELEMENTWISE, /* expr */
    OP_KERNEL,      /* call */
    OP_PROGRAM,     /* attribute expr, with folds over rows or columns (ir/expr/rows.h) */
    OP_VIEW,        /* the same bytes under another shape: no code */
    OP_COMM,        /* moves data between ranks: only redist.c makes these */
    OP_UNITS,       /* call; exchanges with the same ranks of other units */
    OP_SOURCE       /* only ever folded: has no run-time form */
};

/* How a partial value passes through: LINEAR_EACH, if exactly one of the inputs in `linear` is partial, the others
 * whole; LINEAR_ALL, if all are. Sums only. */
enum op_linear { LINEAR_NO, LINEAR_EACH, LINEAR_ALL };

struct dims;     /* ir/dims.h */
struct eval;     /* ir/expr/eval.h */
struct gradient; /* ir/gradient.h */

/* Attributes a part of the operator needs: rewrites what the split changes (Slice's start ...). `local` are the
 * extents of the operands' parts on one rank. */
struct op {
    enum op_id id;
    const char *name; /* in IR text, plans and messages */
    enum op_class class;
    const char *dims;
    const char *types;
    double flops; /* per point of the annotation */
    const char *expr, *call;
    bool local; /* of OP_COMM: a rank takes it from what it has, nothing moves between ranks */
    /* output 0 is made where input 0 lies, unless something else reads that (Note [On the operand], rankplan_make.c) */
    bool in_place;
    bool halves; /* the kernel takes 16-bit floats too; where it does not, passes/rewrite/widen.c has f32 computed */
    enum op_linear linear;
    bool commutes;    /* the operands may be exchanged */
    const char *fold; /* function of row programs that computes this reduction (ir/expr/rows.h); NULL: none */
    int whole;        /* of LINEAR_ALL: so many of the last inputs are whole beside partial ones: conditions */
    /* Of operators with weights (input 1): factors of both weights and result that tensor parallelism cuts, the first
     * that the node has and that can be cut; separated by blanks. NULL: none. */
    const char *columns;
    int (*dims_fn)(struct dims *dims, const struct graph *graph, const struct node *node, const char **why);
    /* Attributes of the part that one rank computes, where a cut changes them. local[o] are the extents of operand
     * o on that rank; the node is a copy to be edited. NULL: none change. */
    void (*split_attr)(struct graph *graph, const struct dims *dims, const int64_t (*local)[MAX_NDIM],
                       struct node *node);
    /* Computes the outputs of a node of constants. NULL: elementwise is by expr, others do not fold. */
    int (*eval)(struct eval *eval);
    /* Where changes of the result come from (ir/gradient.h): of elementwise operators a text, of others a function.
     * Neither: not differentiable. The function returns -1 after a diagnostic. */
    const char *gradient;
    int (*grad)(struct gradient *gradient);
};

extern const struct op ops[NOPS];

/* The row of that name, NULL if there is none. */
const struct op *op_find(const char *name);
/* Likewise of a name that a text or table of this program has, such as a pattern: BUG if there is none. */
const struct op *op_named(const char *name);

/* The node is LINEAR_ALL, or a Cast to floats that hold all of its operand's. */
bool node_is_linear(const struct graph *graph, const struct node *node);
/* Whether its input k is a partial sum where it takes such. */
bool node_sums_input(const struct node *node, int k);

/* Ranks meet to execute it. */
bool op_communicates(const struct op *op);

/* Number of inputs an elementwise operator takes, by its types. */
int op_arity(const struct op *op);

/* The input by whose type an operator is known: the first that may have several, else input 0. */
int op_typed_input(const struct op *op);

/* True if that input may be of this type. Whether there is a kernel is another question: op_has_kernel. */
bool op_takes(const struct op *op, enum rt_dtype dtype);

/* True if the operator, known by that type (op_typed_input), has a kernel or an expression for it. */
bool op_has_kernel(const struct op *op, enum rt_dtype dtype);

/* The operator is one of the list, which ends with OP_NONE; a list that is NULL is empty. */
bool op_is_listed(const struct op *op, const enum op_id *list);

/* The language of column `types`. The letter of input `i`, which the row has; whether a letter allows the type, where
 * *bound is what the operator's T, N or f stand for (RT_DTYPE_NONE until one is met); what elements of a type are
 * summed in. */
const char *op_input_letter(const struct op *op, int i);
bool op_type_fits(char letter, enum rt_dtype dtype, enum rt_dtype *bound);
enum rt_dtype op_summed_in(enum rt_dtype dtype);

/* Makes every float tensor of an IMPORTED graph one of `dtype`, and casts to floats casts to it, as importing with
 * --dtype does. 0, or -1 with a diagnostic. */
int graph_retype(struct graph *graph, enum rt_dtype dtype, struct diags *diags);

#endif
