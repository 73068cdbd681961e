/* Pipeline stages of nodes.
 *
 * Note [Stages]
 * A node belongs to one pipeline stage, a position on the pipeline axis. A value that another stage reads is sent to
 * it by a Transfer node, once per value and stage, directly from the stage that computes it. Inputs are given to all
 * stages, and each loads the stored tensors that it reads. Cheap operators that depend on those alone (masks,
 * positions, slices of tables) are recomputed in every stage that reads them. Outputs are broadcast to all stages,
 * so that every rank has them. All ranks execute their part of one common order of nodes, so every send meets its
 * receive and there is no deadlock. */
#ifndef PASSES_PLAN_STAGES_H
#define PASSES_PLAN_STAGES_H

#include "ir/op.h"

/* Per node: true if it is recomputed in each stage that reads it. In graph->arena. */
bool *stage_recomputed(const struct graph *graph);

#endif
