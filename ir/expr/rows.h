/* Programs over rows: elementwise expressions, and folds of them over the last dimension.
 *
 *   Rows      "v0 = sum(a); v1 = a - v0 / 768; v2 = sum(v1 * v1); v1 / sqrt(v2 / 768 + 1e-5) * b, v0"
 *   Columns   "v0 = a * b; v0 * c, v0"        every value is summed over all dimensions but the last
 *
 * Inputs a, b, .. are broadcast to one shape (.., c), the program's. What is read or made of a value is one number for
 * each element, or, where it does not vary along the row, one for each row: that of an input whose last extent is 1, of
 * a fold, and of what is made of such alone. Results of Rows have the program's shape, or its with a last extent of 1;
 * those of Columns are (c), with leading extents of 1 if attribute keepdims is set. Floats are computed in f32, or f64
 * if the results are. */
#ifndef IR_EXPR_ROWS_H
#define IR_EXPR_ROWS_H

#include "ir/expr/expr.h"
#include "ir/ir.h"

struct row_value {
    const struct expr *expr; /* of a fold: what is folded */
    const char *fold;        /* "sum", "max" or "min"; NULL: it is none */
    bool varies;             /* along the row: it has a number for each element */
    int phase;               /* how many passes over the row must have ended before it can be made */
};

/* A fold of phase p is known after p + 1 passes. */
struct row_program {
    int nnamed, nvalues;
    int passes; /* over the row, that of what varies and is stored among them */
    struct row_value named[EXPR_NAMED], value[EXPR_VALUES];
};

/* Reads the attribute expr of a node of Rows or Columns. False if it is no program of the node's inputs and outputs. */
bool rows_read(struct arena *arena, const struct graph *graph, const struct node *node, struct row_program *out);

/* The shape that operands (their extents in dims[k], ndim[k] of them) are broadcast to: its number of dimensions, -1 if
 * there is none. */
int rows_shape(int operands, const int *ndim, const int64_t *const *dims, int64_t shape[MAX_NDIM]);

#endif
