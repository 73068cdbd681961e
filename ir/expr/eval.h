/* Evaluation of nodes with known inputs: for constant folding, and as the reference for it in tests.
 *
 * Simple rather than fast. Elementwise operators evaluate their expression in double or int64_t; other operators have a
 * function in column `eval`. Values are rounded to the tensor's type after every node. */
#ifndef IR_EXPR_EVAL_H
#define IR_EXPR_EVAL_H

#include "ir/expr/expr.h"
#include "ir/ir.h"

struct eval {
    struct graph *graph;
    const struct node *node;
    const struct tensor **in; /* input tensors, NULL if omitted */
    const void **x;           /* their elements, in the tensors' types */
    const struct tensor *out;
    unsigned char *y;
};

/* True if the operator can be evaluated. */
bool eval_can(const struct op *op);

/* The elements of a stored tensor in the tensor's own type; NULL if its bytes are not in memory. */
const void *eval_bytes(struct graph *graph, const struct tensor *tensor);

/* Computes the single output of the node, whose shape is inferred, into memory of graph->arena. NULL if an input is not
 * known, or if the data are in error (an index out of range). */
void *eval_node(struct graph *graph, int node);

/* Loads or stores element `index` of an array of that type; storing rounds. */
struct number eval_load(const void *data, enum rt_dtype dtype, int64_t index);
void eval_store(void *data, enum rt_dtype dtype, int64_t index, struct number value);

/* Advances the index `at` through `dims`, the last fastest; false after the last index. */
bool eval_next(int64_t *at, const int64_t *dims, int ndim);
/* Offset, in elements, of index `at` in a dense row-major tensor. */
int64_t eval_offset(const int64_t *at, const int64_t *dims, int ndim);

#endif
