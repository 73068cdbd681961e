/* References for operators that ir/eval does not evaluate, in the plainest C: for tests only. */
#ifndef TESTS_IR_REFERENCE_H
#define TESTS_IR_REFERENCE_H

#include "ir/ir.h"
#include "ir/op.h"

bool reference_can(const struct op *op);

/* The node's only result, of constants (f64 for those that compute), in memory of the graph's arena. */
const void *reference_eval(struct graph *graph, const struct node *node);

/* Those of reference_attention.c. */
const void *reference_attention(struct graph *graph, const struct node *node);
const void *reference_rope(struct graph *graph, const struct node *node);

#endif
