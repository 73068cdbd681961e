/* Evaluation of a node whose inputs are known: constant folding, and the reference for it in tests.
 *
 * Slow and plain: elementwise operators run their expression on doubles or 64-bit integers, other operators have a
 * hook in their row. Values are rounded to the tensor's type at every node. */
#ifndef IR_EXPR_EVAL_H
#define IR_EXPR_EVAL_H

#include "ir/expr/expr.h"
#include "ir/ir.h"

struct eval {
    struct graph *graph;
    const struct node *node;
    const struct tensor **in; /* input tensors, NULL where left out */
    const void **x;           /* their bytes, in the tensors' types */
    const struct tensor *out;
    unsigned char *y;
};

/* True if the operator can be evaluated. */
bool eval_can(const struct op *op);

/* The bytes of a stored tensor in its own type, NULL if they are not at hand. */
const void *eval_bytes(struct graph *graph, const struct tensor *tensor);

/* Computes the single output of the node (its shape is known) into memory of graph->arena; NULL if an input is not
 * known, or at an error in the data (an index out of range). */
void *eval_node(struct graph *graph, int node);

/* Element `index` of an array of that type, and the reverse. */
struct number eval_load(const void *data, enum rt_dtype dtype, int64_t index);
void eval_store(void *data, enum rt_dtype dtype, int64_t index, struct number value);

/* Steps `at` through the indices of `dims`, last fastest; false after the last. */
bool eval_next(int64_t *at, const int64_t *dims, int ndim);
/* Offset in elements of index `at` in a dense tensor. */
int64_t eval_offset(const int64_t *at, const int64_t *dims, int ndim);

#endif
