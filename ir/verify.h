/* Checks the invariants of a graph's level. Runs after every pass. The check uses the rules of operators and layouts
 * only, not the code of the passes. A violation is a defect of rankc, or of IR text that was written by hand.
 *
 *   all levels     ids are in range; every value is written once, before it is read; shapes and types are those that
 *                  op_infer infers
 *   from TYPED     every node has a result that is used
 *   from PLACED    every split is legal: its factor may be divided, no part is empty, no two axes divide one dimension;
 *                  layouts agree with the splits
 *   COMMUNICATING  all ranks together compute the one-device graph: Note [Equivalence] in verify.c
 *   SEGMENTED, SCHEDULED: segments and schedules: schedule_verify in schedule.h
 *
 * Nodes that are alike (blocks.h) are checked once: what is proved of the first layer holds for its repetitions. The
 * time does not depend on extents, and ranks are examined one mesh axis at a time (Note [Runs] in verify/parts.c). */
#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/ir.h"

/* 0, or -1 after a diagnostic for each violation (E1101, EXIT_MISMATCH). */
int verify_graph(struct graph *graph, struct diags *diags);

#endif
