/* Adding nodes to a graph, with shape inference and constant folding.
 *
 * build() adds a core operator and returns the tensor of its result. It infers shape and type. Where the result equals
 * an operand (a Reshape to the same shape, x * 1 ...) it returns that, and where all inputs are known it returns a
 * constant. So the importer and the passes need no special cases: arithmetic on shapes folds while it is built. */
#ifndef IR_BUILD_H
#define IR_BUILD_H

#include "ir/op.h"

enum { BUILD_KNOWN_BYTES = 64 << 10 }; /* larger weights are not folded: they stay in the file */

struct build {
    struct graph *graph;
    struct diags *diags;
    const char *node; /* name of the nodes that are added */
};

/* Returns the tensor id of the result, or -1 after a diagnostic. An input of -1 is omitted. */
int build(struct build *builder, enum op_id op, int ninputs, const int *inputs, int nattrs, const struct attr *attrs);

/* The same for an operator with several results, whose tensor ids are written to `outputs`. It does not fold. 0, or -1
 * after a diagnostic. */
int build_many(struct build *builder, enum op_id op, int ninputs, const int *inputs, int noutputs, int *outputs,
               int nattrs, const struct attr *attrs);

/* The same for an operator that the user declared. */
int build_op(struct build *builder, const struct op *op, int ninputs, const int *inputs, int noutputs, int *outputs,
             int nattrs, const struct attr *attrs);

/* build() for common operators; each returns the tensor id of the result, or -1 after a diagnostic. */
int build1(struct build *builder, enum op_id op, int x);
int build2(struct build *builder, enum op_id op, int x, int y);
int build_reshape(struct build *builder, int x, int ndim, const int64_t *shape);
int build_transpose(struct build *builder, int x, const int64_t *perm);
int build_expand(struct build *builder, int x, int ndim, const int64_t *shape);
/* `step` NULL: steps of 1. */
int build_slice(struct build *builder, int x, const int64_t *start, const int64_t *step, const int64_t *size);
/* A slice of one dimension: `size` indices of `axis`, from `start` on in steps of `step`. */
int build_piece(struct build *builder, int x, int axis, int64_t start, int64_t step, int64_t size);
/* -1 also if an input is. */
int build_concat(struct build *builder, int axis, int n, const int *inputs);
int build_cast(struct build *builder, int x, enum rt_dtype dtype);
/* Adds a scalar constant (ndim 0) of that type and returns its tensor id. */
int build_scalar(struct build *builder, enum rt_dtype dtype, double value);

/* The sum of x over the scale units, in which dummy micro-batches count as zero: an operand of it, and who reads that
 * gets the sum (Note [Replicas] in layout.h). */
int build_unit_sum(struct build *builder, int x);

/* Expressions (ir/expr/expr.h) as nodes. Names in the text stand for the tensors or numbers of the scope. In the text
 * "d = a + b; d * d", the assignment adds d to the scope, and the last value is the result; a later definition of a
 * name hides the earlier one. Subexpressions of numbers alone are computed in double and become constants of the
 * scope's dtype. Every operator and function must be an elementwise row of ops.def. The text is part of rankc: an
 * unknown function or name is a BUG. build_expr returns the tensor id of the result, or -1 after a diagnostic. */
enum { BUILD_NAMES = 64 };
struct build_scope {
    enum rt_dtype dtype;
    struct build_known *known; /* build_know; NULL: texts are parsed each time */
    int n;
    struct {
        const char *name;
        int tensor; /* -1: `number` */
        double number;
    } names[BUILD_NAMES];
};
void build_scope_tensor(struct build_scope *scope, const char *name, int tensor);
void build_scope_number(struct build_scope *scope, const char *name, double number);
int build_expr(struct build *builder, struct build_scope *scope, const char *text);
/* Keeps, in the arena, what build_expr has parsed: for a pass that builds the same expressions for many nodes. */
struct build_known *build_know(struct arena *arena);

/* The reason why an untrusted text is no such expression of the n names; NULL: it is one. `rows`: it is for build_expr,
 * which takes assignments and needs a row for every operator and function; else it is for a row's own expression. */
const char *build_expr_fault(struct arena *arena, const char *text, int n, const char *const *names, bool rows);

/* True for constants, and for small weights that no step changes; also for -1. */
bool build_is_known(const struct graph *graph, int tensor);

/* The tensor that the result would equal, one of the inputs: of x * 1, a Reshape to the same shape, a choice by a known
 * condition. -1: none. Used by build() and pass fold. */
int build_same(const struct graph *graph, enum op_id op, int ninputs, const int *inputs, int nattrs,
               const struct attr *attrs);

/* Folds the node if all its inputs are known: returns the tensor id of the constant, or -1. Used by build() and pass
 * fold. */
int build_fold(struct graph *graph, int node);

/* True for a constant of integers that depend on open sizes (ir/open.h): other sizes have other values. */
bool build_is_open(const struct graph *graph, int tensor);
/* True if an extent of the tensor depends on open sizes. */
bool build_has_open_extent(const struct graph *graph, int tensor);

/* True if an input of the node is such a constant. */
bool build_reads_open(const struct graph *graph, const struct node *node);
/* The data of the result of a node that reads such constants; NULL: it is computed at run time. */
const void *build_fold_open(struct graph *graph, int node);
/* The data of the result of a Cast to integers of what float arithmetic makes of one open size, if it is a quotient of
 * the size for all its values (build_rounded.c); NULL: it is computed at run time. */
const void *build_fold_rounded(struct graph *graph, int node);
/* Replaces such constants where nodes read them: what computes them at run time comes first in the order. 0, or -1
 * after a diagnostic. */
int build_compute_open(struct graph *graph, struct diags *diags);

/* The values of an integer tensor if they are known at compile time, *n of them; else, and for other types, NULL. */
const int64_t *build_known_ints(struct graph *graph, int tensor, int *n);

#endif
