/* What comments of generated sources say: the plan and its memory, and why ranks communicate. */
#ifndef CODEGEN_REMARKS_H
#define CODEGEN_REMARKS_H

#include "passes/rank/rankplan.h"

/* "data=2 tensor=4"; "one rank" of a mesh without axes. */
const char *remarks_mesh(const struct graph *graph);
/* Bytes of each of the rank's arenas that is used: "weights 4096, activations 512 to 768" of classes that differ. */
const char *remarks_memory(const struct rankplan *plan, int nclasses, const int *classes);

/* What a communication operator does with its operand, before the name of that: "partial sums of". */
const char *remarks_reason(const struct node *node);
/* The ranks that communicate along a mesh axis: "2 ranks", "4 ranks, 2 apart"; those of replica axes are counted at run
 * time. */
const char *remarks_group(const struct graph *graph, int axis);
/* The node whose result is communicated: a reduction that was begun has the operand of the node that began it. */
const struct node *remarks_origin(const struct graph *graph, const struct node *node);

#endif
