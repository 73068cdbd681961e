/* Row programs: elementwise expressions with reductions over the last dimension, for operators Rows and Columns.
 *
 *   Rows      "v0 = sum(a); v1 = a - v0 / 768; v2 = sum(v1 * v1); v1 / sqrt(v2 / 768 + 1e-5) * b, v0"
 *   Columns   "v0 = a * b; v0 * c, v0"        every result is summed over all dimensions but the last
 *
 * The inputs a, b, .. are broadcast to one shape (.., c), the program's shape. A value has a number per element, or, if
 * it is constant along the row, one per row: an input whose last extent is 1, a reduction, and any expression of these
 * alone. A result of Rows has the program's shape, or that with a last extent of 1; a result of Columns has shape (c),
 * with leading extents of 1 if attribute keepdims is set. Floats are computed in f32, or in f64 if the results are
 * f64. */
#ifndef IR_EXPR_ROW_PROGRAM_H
#define IR_EXPR_ROW_PROGRAM_H

#include "ir/expr/expr.h"
#include "ir/ir.h"

struct row_value {
    const struct expr *expr; /* the expression; of a reduction, its operand */
    const char *fold;        /* reduction "sum", "max" or "min"; NULL: none */
    bool varies;             /* true: a number per element; false: one per row */
    int phase;               /* number of passes over the row that must be complete before it can be computed */
};

/* A reduction of phase p is known after p + 1 passes. */
struct row_program {
    int nnamed, nvalues;
    int passes; /* passes over the row, including the one that stores results with a number per element */
    struct row_value named[EXPR_NAMED], value[EXPR_VALUES];
};

/* Parses attribute expr of a Rows or Columns node. False if it is invalid, or does not fit the node's inputs and
 * outputs. */
bool rows_read(const struct graph *graph, const struct node *node, struct row_program *out);

/* Broadcasts the shapes of the operands (dims[k], ndim[k] extents) to `shape`; returns its number of dimensions, or -1
 * if they cannot be broadcast. */
int rows_shape(int operands, const int *ndim, const int64_t *const *dims, int64_t shape[RT_MAX_NDIM]);

#endif
