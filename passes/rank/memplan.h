/* Memory planning: assigns to every tensor of a class of ranks an arena and an offset (rankplan.h). Tensors whose
 * lifetimes do not overlap share addresses. */
#ifndef PASSES_RANK_MEMPLAN_H
#define PASSES_RANK_MEMPLAN_H

#include "passes/rank/rankplan.h"

/* Sets places, sizes of arenas and peak_live of every class. Classes, views, roots and shared are set before. */
void memplan_make(struct rankplan *plan);
/* Checks that no tensor is overwritten before its last use: 0, or -1 after a diagnostic. */
int memplan_verify(const struct rankplan *plan, struct diags *diags);

#endif
