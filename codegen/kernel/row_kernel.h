/* Functions for nodes Rows and Columns: row programs (ir/expr/row_program.h), such as the gradient of a norm with its
 * neighbours, become one function each, in the way of the target (struct row_writer). */
#ifndef CODEGEN_ROW_KERNEL_H
#define CODEGEN_ROW_KERNEL_H

#include "codegen/kernel/kernels.h"
#include "passes/rank/rankplan.h"

/* The call of the node's function, as text of an instruction; the function is generated, or shared with an earlier one
 * of equal text. *tensors: its *n pointer arguments, outputs first. */
const char *row_kernel_call(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                            int node, int **tensors, int *n);

#endif
