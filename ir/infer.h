/* Shape and type inference. The shapes of a node's outputs follow from its dimension annotation (dims.h), the types
 * from column `types` of the operator's row (op.h). */
#ifndef IR_INFER_H
#define IR_INFER_H

#include "ir/ir.h"

/* Sets the shapes and types of the node's outputs; those of its inputs must be set. 0, or -1 after a diagnostic that
 * names the node. */
int op_infer(struct graph *graph, int node, struct diags *diags);

#endif
