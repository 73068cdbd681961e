/* Operators that are evaluated by their kernels in f64, for tests of their derivatives. What the kernels compute is
 * compared with NumPy and PyTorch elsewhere (tests/programs/opcheck). */
#ifndef TESTS_IR_KERNEL_REFERENCE_H
#define TESTS_IR_KERNEL_REFERENCE_H

#include "ir/ir.h"
#include "ir/op.h"

bool kernel_reference_can(const struct op *op);

/* That result of a node of constants, floats as f64, in memory of the graph's arena. */
const void *kernel_reference(struct graph *graph, const struct node *node, int result);

#endif
