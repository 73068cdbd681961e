/* Addresses: lifetimes to offsets, exact and static (see rankplan.h). */
#ifndef PASSES_RANK_MEMPLAN_H
#define PASSES_RANK_MEMPLAN_H

#include "passes/rank/rankplan.h"

void memplan_make(struct rankplan *plan);
int memplan_verify(const struct rankplan *plan, struct diags *diags);

#endif
