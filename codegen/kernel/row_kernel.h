/* CUDA kernels for nodes Rows and Columns: row programs (ir/expr/row_program.h), such as a norm or a softmax with its
 * neighbours, become one kernel each. */
#ifndef CODEGEN_ROW_KERNEL_H
#define CODEGEN_ROW_KERNEL_H

#include "codegen/kernel/kernels.h"
#include "passes/rank/rankplan.h"

/* The call of the node's function, as text of an instruction; the function is generated, or shared with an earlier one
 * of equal text. *tensors: its *n pointer arguments, outputs first. */
const char *row_kernel_call(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                            int node, int **tensors, int *n);

/* Bytes of scratch memory that a node Columns needs. */
int64_t row_kernel_scratch(const struct graph *graph, const struct rank_class *class, const struct node *node);

#endif
