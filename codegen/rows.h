/* Functions of programs over rows and columns (ir/expr/rows.h): one kernel each, written from the expressions. */
#ifndef CODEGEN_ROWS_H
#define CODEGEN_ROWS_H

#include "codegen/kernels.h"
#include "passes/rank/rankplan.h"

/* The call of the node's function, made now or shared with an equal one before; its tensors (outputs first) in
 * *tensors, *n. */
const char *rows_call(struct kernels *kernels, const struct rankplan *plan, const struct plan_class *class, int node,
                      int **tensors, int *n);

/* Bytes of SCRATCH that a node of Columns wants. */
int64_t rows_scratch(const struct graph *graph, const struct plan_class *class, const struct node *node);

#endif
