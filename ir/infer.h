/* Shapes and types of a node's outputs, from those of its inputs and the operator's row: dims.h gives the shapes, the
 * letters of column `types` (op.h) the types. */
#ifndef IR_INFER_H
#define IR_INFER_H

#include "ir/ir.h"

/* Sets the shapes and types of the node's outputs from its inputs; 0, or -1 with a diagnostic at the node's place. */
int op_infer(struct graph *graph, int node, struct diags *diags);

#endif
