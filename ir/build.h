/* Building graphs: nodes whose shapes are inferred and which fold at once.
 *
 * build() adds a core operator and returns the tensor of its result. It infers shape and type, gives back an
 * existing tensor where the operator does nothing (a Reshape to the same shape ...), and a constant where all
 * inputs are known. So import and the passes that make nodes need no special cases: shape arithmetic is gone when
 * it has been built. */
#ifndef IR_BUILD_H
#define IR_BUILD_H

#include "ir/op.h"

struct build {
    struct graph *graph;
    struct diags *diags;
    const char *node; /* name given to the nodes made */
};

/* The result's tensor id, or -1 after a diagnostic. Inputs may be -1 (left out). */
int build(struct build *b, enum op_id op, int ninputs, const int *inputs, int nattrs, const struct attr *attrs);

/* An operator of several results: their tensor ids in `outputs`; 0, or -1 after a diagnostic. It does not fold. */
int build_many(struct build *b, enum op_id op, int ninputs, const int *inputs, int noutputs, int *outputs, int nattrs,
               const struct attr *attrs);

/* Shorthands. */
int build1(struct build *b, enum op_id op, int x);
int build2(struct build *b, enum op_id op, int x, int y);
int build_reshape(struct build *b, int x, int ndim, const int64_t *shape);
int build_transpose(struct build *b, int x, const int64_t *perm);
int build_expand(struct build *b, int x, int ndim, const int64_t *shape);
int build_slice(struct build *b, int x, const int64_t *start, const int64_t *step, const int64_t *size);
int build_cast(struct build *b, int x, enum rt_dtype dtype);
/* A scalar constant of the given type. */
int build_scalar(struct build *b, enum rt_dtype dtype, double value);

/* Expressions (ir/expr/expr.h) as core operators: names stand for tensors or numbers. "d = a + b; d * d" gives the last
 * value, and adds d to the scope; a name given again hides the earlier one. What is made of numbers alone is computed
 * in double and takes the scope's dtype. Every operator and function of the text must be an elementwise row of its own;
 * BUG if not, or if a name is unknown: texts are in the source. */
enum { BUILD_NAMES = 64 };
struct build_scope {
    enum rt_dtype dtype;
    int n;
    struct {
        const char *name;
        int tensor; /* -1: the number */
        double number;
    } names[BUILD_NAMES];
};
void build_scope_tensor(struct build_scope *scope, const char *name, int tensor);
void build_scope_number(struct build_scope *scope, const char *name, double number);
int build_expr(struct build *b, struct build_scope *scope, const char *text);

/* Folds the node if it can be: returns the constant's tensor, -1 if not. Used by build() and the fold pass. */
int build_fold(struct graph *graph, int node);

/* The values of an integer tensor known at compile time: count of them in *n, NULL if not known (or not integers).
 */
const int64_t *build_known_ints(struct graph *graph, int tensor, int *n);

#endif
