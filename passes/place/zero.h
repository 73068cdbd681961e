/* ZeRO: divides what replicas would hold alike among them (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
 * Training Trillion Parameter Models", SC 2020; PyTorch's FSDP is stage 3).
 *
 *   stage 1   states of the optimizer
 *   stage 2   and sums of gradients, reduce-scattered after each micro-batch
 *   stage 3   and parameters, gathered where a phase first uses them
 */
#ifndef PASSES_PLACE_ZERO_H
#define PASSES_PLACE_ZERO_H

#include "passes/train/training.h"

enum { ZERO_THRESHOLD = 1024 }; /* elements: smaller parameters stay whole, since messages cost more than they save */

/* The number of ZeRO groups; 1 without ZeRO. */
int zero_groups(const struct training *training);

/* Cuts the updates of parameters flat along the data axis and the scale units of a ZeRO group, by the stage that
 * `training` asks for: sets splits of nodes and placements of weights and states. Runs before other tensors are laid
 * out. */
void zero_cut(struct graph *graph, const struct training *training);

#endif
