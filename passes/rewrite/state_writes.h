/* Writes of rows through transposed views of states. */
#ifndef PASSES_REWRITE_STATE_WRITES_H
#define PASSES_REWRITE_STATE_WRITES_H

#include "ir/ir.h"

struct diags;
/* Replaces such writes by those of rows into the states. Nodes that nothing reads then stay in the graph. Returns 0, or
 * -1 after a diagnostic. */
int state_writes(struct graph *graph, struct diags *diags);

#endif
