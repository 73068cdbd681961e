/* Tensors that lie in others.
 *
 * Note [Views]
 * What only moves elements need not be executed where those who read its result can do so at strides: the result of a
 * Slice or a Transpose is then seen in its operand. Or where who makes its operand can write it at strides: the
 * operands of a Transpose or a Concat then lie in its result. Who can is said by the call of the operator's row, which
 * takes $strided(x0) instead of $x0. Elements of the last dimension stay neighbours. */
#ifndef PASSES_RANK_VIEWS_H
#define PASSES_RANK_VIEWS_H

#include "passes/rank/rankplan.h"

/* Where elements of a part lie, counted in elements from the first of its root. */
struct strides {
    int64_t offset, step[MAX_NDIM];
};

/* Which moves of a SCHEDULED graph need not be executed, for all classes: plan->moves_nothing and plan->view. */
void views_find(struct rankplan *plan);

/* Where the elements of a tensor lie on ranks of the class. */
struct strides views_strides(const struct rankplan *plan, const struct plan_class *class, int tensor);

#endif
