/* Tensors that are strided views of other tensors.
 *
 * Note [Views]
 * A node that only moves elements need not be executed if all readers of its result can read with strides: the
 * result of a Slice or Transpose is then a view of its operand. Nor if the producers of its operands can write with
 * strides: the operands of a Transpose or Concat are then views into its result. An operator's kernel can if the
 * call in its row of ops.def has $strided(x0) in place of $x0. The last dimension of a view is always contiguous. */
#ifndef PASSES_RANK_VIEWS_H
#define PASSES_RANK_VIEWS_H

#include "passes/rank/rankplan.h"

/* Offset and steps per dimension of a part, in elements, relative to the first element of its root. */
struct strides {
    int64_t offset, step[RT_MAX_NDIM];
};

/* Finds the nodes of a SCHEDULED graph that need not be executed: sets plan->moves_nothing, plan->view and the
 * strides of all classes. */
void views_find(struct rankplan *plan);

/* The strides of the tensor on ranks of the class; those of a contiguous tensor if it is no view. */
struct strides views_strides(const struct rankplan *plan, const struct rank_class *class, int tensor);

#endif
