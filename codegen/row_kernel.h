/* Functions of programs over rows and columns (ir/expr/rows.h): one kernel each, written from the expressions. */
#ifndef CODEGEN_ROW_KERNEL_H
#define CODEGEN_ROW_KERNEL_H

#include "codegen/kernels.h"
#include "passes/rank/rankplan.h"

/* The call of the node's function, made now or shared with an equal one before; its tensors (outputs first) in
 * *tensors, *n. */
const char *row_kernel_call(struct kernels *kernels, const struct rankplan *plan, const struct plan_class *class,
                            int node, int **tensors, int *n);

/* Bytes of SCRATCH that a node of Columns wants. */
int64_t row_kernel_scratch(const struct graph *graph, const struct plan_class *class, const struct node *node);

#endif
