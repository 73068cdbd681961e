/* The checker of graphs: what must hold at the graph's level, found from the rules alone and not from how passes
 * made it. Run after every pass; a violation is a bug of rankc (or of a hand-written text), reported with the node.
 *
 *   all levels     ids in range, values written once and before they are read, shapes and types as the operators
 * give TYPED          no node whose result nothing needs PLACED         every split legal: it may be cut, no part
 * is empty, no dimension is cut by two axes; layouts are those that the splits give COMMUNICATING  Note
 * [Equivalence] in verify.c: every rank's program together computes the one-device graph
 */
#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/ir.h"

/* 0, or -1 with a diagnostic for each violation (E1101, EXIT_MISMATCH). */
int verify_graph(struct graph *graph, struct diags *diags);

#endif
