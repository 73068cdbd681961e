/* Layouts of what nodes compute, by the splits of the nodes. The sum of partial values, and a view of one, stay
 * partial, so that one later reduction serves for all.
 *
 * Note [Delayed reductions]
 * A partial gradient is reduced once per step, after its micro-batches are accumulated: the accumulator is partial
 * too. With --amp the reduction comes after the cast to the parameter's type, as in PyTorch's DDP: the sum over
 * ranks is then not rounded to 16 bits, and all reductions can overlap with the backward phase. */
#ifndef PASSES_PLAN_LAYOUTS_H
#define PASSES_PLAN_LAYOUTS_H

#include "ir/ir.h"

/* Sets the layouts of all results of nodes, and of accumulators of gradients; nodes whose result stays partial get
 * SPLIT_PARTIAL. Layouts of inputs and stored tensors are set before. reduces_each: gradients are reduced over scale
 * units in each micro-batch. */
void layouts_assign(struct graph *graph, bool reduces_each);

#endif
