/* A node as the ranks of one class compute it, and the arguments that its call takes: pointers, arrays, extents.
 * put_*, open_* append to `out`. Extents that calls give (open sizes) are written by name. */
#ifndef CODEGEN_LOCAL_H
#define CODEGEN_LOCAL_H

#include "codegen/kernel/kernels.h"
#include "ir/base/str.h"
#include "passes/rank/rankplan.h"

enum { HOLE_TENSOR = 1, HOLE_KEY = 7 }; /* bytes that stand for a pointer, and for a key: struct instruction */

struct local {
    const struct rankplan *plan;
    const struct rank_class *class;
    const struct graph *graph;
    int id;           /* of the node */
    struct node node; /* with attributes rewritten for the rank's part */
    struct dims dims;
    int64_t extent[MAX_FACTORS]; /* of the rank's part, by factor of dims */
    struct strbuf out;
    VEC(int) tensors; /* of the call: struct instruction */
    VEC(int64_t) keys;
    struct kernels *kernels;
};

/* The tensor of operand x0, x1, .., y, y1, ..; -1 if it is left out. */
int local_operand(const struct local *local, const char *operand);
const struct tensor *local_tensor(const struct local *local, int tensor);
/* The extents of the rank's part, and the product of those of dimensions [from, to). */
const int64_t *local_shape(const struct local *local, int tensor);
int64_t local_product(const struct local *local, int tensor, int from, int to);

/* As C expressions: that product; an extent of the whole tensor; a factor, or the rank's part of it. */
const char *local_dims_text(struct local *local, int tensor, int from, int to);
const char *local_whole_text(struct local *local, int tensor, int dim);
const char *local_factor_text(struct local *local, int factor, bool whole);
/* The dimension of an operand that consists of these factors; NULL: none does. */
const char *local_factors_text(struct local *local, int n, const int *factors, bool whole);

/* A product that is computed in runs of rows (passes/place/product_runs.c). */
struct runs {
    int64_t rows, length;      /* of the product; of a run, the last of which may have fewer */
    int64_t items;             /* before the dimension that ranks divide; 0: they divide none */
    int sum_axis, gather_axis; /* mesh axes; -1: none */
};
bool local_in_runs(const struct local *local);
struct runs local_runs(const struct local *local);

/* A pointer to the rank's part; NULL for tensor -1. */
void put_tensor(struct local *local, int tensor);
/* The same for a product: a pointer to its first row, or to that of the run (variable `row` of the loop). */
void put_row(struct local *local, int tensor);
/* The inputs from `first` on as an array of pointers. */
void put_pointers(struct local *local, int first);
void put_array(struct local *local, const char *type, int n, const int64_t *values);
void put_no_array(struct local *local);
/* Opens an array, which '}' closes. */
void open_array(struct local *local, const char *type);
/* Appends a text of struct target_arguments, with % replaced by `name`. */
void open_argument(struct local *local, const char *text, const char *name);
/* The extent of a dimension. */
void put_dim(struct local *local, int tensor, int dim);

#endif
