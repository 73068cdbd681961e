/* ZeRO: divides what replicas would hold alike among them (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
 * Training Trillion Parameter Models", SC 2020; PyTorch's FSDP is stage 3).
 *
 *   ZERO_STATES       states of the optimizer
 *   ZERO_SUMS         and sums of gradients, reduce-scattered after each micro-batch
 *   ZERO_PARAMETERS   and parameters, gathered where a phase first uses them
 */
#ifndef PASSES_PLACE_ZERO_H
#define PASSES_PLACE_ZERO_H

#include "ir/op.h"
#include "passes/pipeline.h"

enum { ZERO_THRESHOLD = 1024 }; /* elements: smaller parameters stay whole, since messages cost more than they save */

/* How often a step sums a parameter's gradient over replicas, by which collective, and gathers the parameter: what the
 * layouts that zero_cut decides lead to. For predictions, which have no placed graph; tests count those of plans. */
struct zero_moves {
    enum collective sum;
    int64_t sums, gathers;
};
struct zero_moves zero_moves(int64_t zero, int64_t micro_batches);

/* Cuts the updates of parameters flat along the data axis and the scale units of a ZeRO group, by the stage that
 * is decided: sets splits of nodes and placements of weights and states. Runs before other tensors are laid
 * out. */
void zero_cut(struct graph *graph, const struct pass_context *context);

#endif
