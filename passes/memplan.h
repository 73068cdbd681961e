/* Addresses: lifetimes to offsets, exact and static (see rankplan.h). */
#ifndef PASSES_MEMPLAN_H
#define PASSES_MEMPLAN_H

#include "passes/rankplan.h"

void memplan_make(struct rankplan *plan);
int memplan_verify(const struct rankplan *plan, struct diags *diags);

#endif
