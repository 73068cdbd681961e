/* What lowerings do with values whose size depends on data (Note [Counted values] in counts.c), and with sizes
 * that are known up to such a size (Note [Amounts] in amounts.h). */
#ifndef FRONTEND_LOWER_LOWER_COUNTED_H
#define FRONTEND_LOWER_LOWER_COUNTED_H

#include "frontend/lower/amounts.h"
#include "frontend/lower/onnx_lower.h"

/* The amounts of an integer input, *n of them, each of which is known or has a bound; NULL after E409. `what` names the
 * input in the message. */
const struct amount *lower_amounts(struct lower *lower, int input, const char *what, int *n);
/* The amount of an i64 scalar, and the scalar of an amount. */
struct amount lower_amount(struct lower *lower, int scalar);
int emit_amount(struct lower *lower, const struct amount *amount);
/* The size of the tensor's dimension. */
struct amount lower_extent(struct lower *lower, int x, int dim);

/* How many of start, start + step .. are before `end`. */
struct amount lower_steps(struct lower *lower, const struct amount *end, int64_t start, int64_t step);

/* x, of which the first `size` indices along `dim` are valid: counted, or shorter where the size is known. */
int lower_sized(struct lower *lower, int x, int dim, const struct amount *size);
/* x with all of its elements valid: what the others are does not matter. */
int lower_all_valid(struct lower *lower, int x);
/* Brings dimension dims[i] of each operand i to the same bound, unless its extent is 1: 0, or -1 if their sizes differ
 * (E410). A dimension below 0: the operand has none. */
int lower_fit_along(struct lower *lower, int n, int *operands, const int *dims);
/* The same of all dimensions, aligned at the right, but dimension `except` from the left, if it is not negative. */
int lower_fit(struct lower *lower, int n, int *operands, int except);
/* Indices of a dimension of that size: those that count from its end become such from its begin. */
int lower_from_begin(struct lower *lower, int index, const struct amount *extent);
/* x[first + i] for i below `size`, along `dim`; `first` is an i64 scalar. */
int lower_run(struct lower *lower, int x, int dim, int first, const struct amount *size);
/* Split of input 0 along `axis` into n pieces, whose sizes input 1 gives at run time (lower_move.c). */
int lower_split_at(struct lower *lower, int axis, int n, int *pieces);
/* Concat of operands of which some may be counted along `axis`. */
int lower_join(struct lower *lower, int axis, int n, const int *operands);
/* Reshape of a counted operand; shape[open] is the extent that follows from the others, -1: none does. */
int lower_reshaped(struct lower *lower, int x, int ndim, const struct amount *shape, int open);
/* The tensor `yes` where the condition, a scalar, is true, else `no`. Their sizes may differ along one dimension, which
 * is counted then; lower_can_choose: they do not differ in more. */
bool lower_can_choose(struct lower *lower, int yes, int no);
int lower_choice(struct lower *lower, int condition, int yes, int no);

#endif
