/* Functions for elementwise nodes: one loop nest each, generated from the operator's expression. */
#ifndef CODEGEN_ELEMENTWISE_H
#define CODEGEN_ELEMENTWISE_H

#include "codegen/kernel/kernels.h"
#include "passes/rank/rankplan.h"

/* The number of elements of the rank's part of the tensor, as an expression: a marked text (sizes.h), or for a slice
 * (PLACED_FLAT) a call. */
const char *elements_text(struct kernels *kernels, const struct graph *graph, const struct rank_class *class,
                          int tensor);

/* The call of the node's function, as text of an instruction (instruction.h); the function is generated, or shared with
 * an earlier one of equal text. *tensors: its *n pointer arguments, outputs first. */
const char *elementwise_call(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                             int node, int **tensors, int *n);

/* True if launches of the node's kernel may be held (codegen/held.h). */
bool elementwise_is_held(const struct target *target, const struct rankplan *plan, const struct rank_class *class,
                         int node);

/* For a product `node` that is not packed: the call that applies its fused expression to the result in place. As
 * elementwise_call. */
const char *elementwise_finish(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                               int node, int **tensors, int *n);

/* For a packed product `node`: the name of the function that applies its fused expression to a block of the result
 * (struct rt_epilogue of the runtime). Its operands are the node's inputs from the third on. */
const char *elementwise_epilogue(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                                 int node);
/* True if the function's numbers depend on open sizes (ir/open.h): the program's extents are then its last operand. */
bool elementwise_epilogue_is_open(const struct graph *graph, const struct rank_class *class, const struct node *node);

#endif
