/* Elementwise functions: one loop nest each, written from the operator's expression. */
#ifndef CODEGEN_ELEMENTWISE_H
#define CODEGEN_ELEMENTWISE_H

#include "codegen/kernels.h"
#include "passes/rank/rankplan.h"

/* The call of the node's function, made now or shared with an equal one before; its tensors (output first) in
 * *tensors, *n. */
const char *elementwise_call(struct kernels *kernels, const struct rankplan *plan, const struct plan_class *class,
                             int node, int **tensors, int *n);

/* The call that finishes the product `node`, which is not packed, in place: as that of elementwise_call. */
const char *elementwise_finish(struct kernels *kernels, const struct rankplan *plan, const struct plan_class *class,
                               int node, int **tensors, int *n);

/* The name of the function that finishes the product `node` (kernels.h, struct rt_epilogue), made now or shared. Its
 * operands are the node's inputs from the third on. */
const char *elementwise_epilogue(struct kernels *kernels, const struct rankplan *plan, const struct plan_class *class,
                                 int node);

#endif
