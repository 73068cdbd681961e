/* The graph of a model with fewer layers, for a search that plans many candidates.
 *
 * Note [Shortened graphs]
 * Layers that repeat cost the same each, so time and memory of a plan grow linearly with the repetitions of a block
 * (ir/blocks.h). What a plan of the whole model takes follows from plans of two models with few of them. */
#ifndef PASSES_PLAN_SHORTEN_H
#define PASSES_PLAN_SHORTEN_H

#include "ir/blocks.h"

/* Blocks whose repetitions can be removed, the one with the most nodes first. */
struct repeated {
    VEC(struct block) all;
};

/* Finds the blocks of a graph of level TYPED that have more than `least` repetitions, and of which those after the
 * first `least` can be removed: no node outside of the block reads a value that has no counterpart in the repetitions
 * that are left. */
void repeated_find(const struct graph *graph, struct arena *arena, int least, struct repeated *out);

/* Removes repetitions of the blocks, which repeated_find found in an equal graph, until times[b] of block b are left,
 * or all if there are not as many. Readers of the last repetitions read those that are the last ones then. Inputs and
 * outputs of the graph that only removed repetitions have are removed with them. */
void shorten(struct graph *graph, const struct repeated *repeated, const int *times);

#endif
