/* ZeRO: divides what replicas would hold alike among them (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
 * Training Trillion Parameter Models", SC 2020; PyTorch's FSDP is stage 3).
 *
 *   stage 1   states of the optimizer
 *   stage 2   and sums of gradients, reduce-scattered after each micro-batch
 *   stage 3   and parameters, gathered where a phase first uses them
 */
#ifndef PASSES_PLACE_ZERO_H
#define PASSES_PLACE_ZERO_H

#include "passes/pipeline.h"

enum { ZERO_THRESHOLD = 1024 }; /* elements: smaller parameters stay whole, since messages cost more than they save */

/* Cuts the updates of parameters flat along the data axis and the scale units of a ZeRO group, by the stage that
 * is decided: sets splits of nodes and placements of weights and states. Runs before other tensors are laid
 * out. */
void zero_cut(struct graph *graph, const struct pass_context *context);

#endif
