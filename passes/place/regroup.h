/* Chains of additions, regrouped so that partial sums are added before they are reduced. */
#ifndef PASSES_PLACE_REGROUP_H
#define PASSES_PLACE_REGROUP_H

#include "ir/ir.h"

/* Regroups the chains of a graph whose tensors have layouts (Note [Regrouped sums]). The splits of the nodes of these
 * chains are cleared: partition gives them layouts again. True if there was such a chain. */
bool regroup_sums(struct graph *graph);

#endif
