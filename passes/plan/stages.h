/* Stages: values that cross from one to another are sent, cheap ones are made again where they are read.
 *
 * Note [Stages]
 * A node belongs to one stage, its place on the pipeline axis. Values of another stage reach it by a Transfer node,
 * once per value and stage, straight from where they are made. Inputs and stored tensors are everywhere. What is
 * computed from those alone by cheap operators (masks, positions, slices of tables) is remade in every stage that reads
 * it. Outputs are broadcast, so that every rank holds them, as it does without stages.
 * All ranks execute their part of one common order, so a send always meets its receive: nothing can wait for ever. */
#ifndef PASSES_PLAN_STAGES_H
#define PASSES_PLAN_STAGES_H

#include "ir/op.h"

/* Per node: made again in each stage that reads it. */
bool *stage_remade(const struct graph *graph);

/* Whether a rank at `stage` of the pipeline axis executes the node, and on which side. */
enum stage_part { STAGE_NONE = 0, STAGE_READS = 1, STAGE_WRITES = 2 };
int stage_part(const struct node *node, int stage);

#endif
