/* Checks what must hold of a graph at its level, from the rules of operators and layouts alone and not from how passes
 * made it. Runs after every pass; a violation is a defect of rankc, or of text that was written by hand.
 *
 *   all levels     ids are in range, values are written once and before they are read, shapes and types are the
 *                  operators'
 *   from TYPED     the result of every node is used
 *   from PLACED    every split is legal: the factor may be cut, no part is empty, no two axes cut one dimension;
 *                  layouts are those that the splits give
 *   COMMUNICATING  all ranks together compute the one-device graph: Note [Equivalence] in verify.c
 *
 * Time does not depend on extents; of ranks it takes those of one axis at a time (Note [Runs] there). */
#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/ir.h"

/* 0, or -1 with a diagnostic for each violation (E1101, EXIT_MISMATCH). */
int verify_graph(struct graph *graph, struct diags *diags);

#endif
