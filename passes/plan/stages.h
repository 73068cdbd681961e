/* Pipeline stages of nodes.
 *
 * Note [Stages]
 * A node belongs to one pipeline stage, a position on the pipeline axis. A value that another stage reads is sent to
 * it by a Transfer node, once per value and stage, directly from the stage that computes it. Inputs are given to all
 * stages, and each loads the stored tensors that it reads. Cheap operators that depend on those alone (masks,
 * positions, slices of tables) are recomputed in every stage that reads them. Outputs are broadcast to all stages,
 * so that every rank has them. All ranks execute their part of one common order of nodes, so every send meets its
 * receive and there is no deadlock.
 *
 * Note [Stages in training]
 * Policies choose the stages of the forward phase; later phases follow. A node of the backward phase belongs to the
 * stage of the forward node whose gradient it computes. The sum of a gradient, the optimizer's states and the update
 * belong to the stage that computes the gradient; of a parameter that several stages read (tied weights), that is the
 * first of them, to which the others send their contributions, and from which they get the new value. Scalars that
 * depend on all gradients (norm, clipping, loss scale) belong to the last stage.
 *
 * Values go from earlier to later stages in the forward phase, and from later to earlier ones in the backward phase:
 * then every stage can be executed as a whole, which schedules rely on (ir/schedule.h).
 *
 * Note [Results that gradients share]
 * The gradient of an operator may need a value that the model computes too: a slice of a recurrence's states, or the
 * cosine of what a sine is taken of. Pass share merges the two equal nodes, and the one of the forward phase stays. It
 * may be on a later stage than the operator, from which its result cannot be sent back to the gradient. It then moves
 * to the gradient's stage. Its operands are there, or move too: the merged node had the same ones. Nodes whose stage is
 * given (draft->given_stage) do not move; pass stage refuses them. */
#ifndef PASSES_PLAN_STAGES_H
#define PASSES_PLAN_STAGES_H

#include "passes/plan/plan.h"

/* Per node: true if it is recomputed in each stage that reads it. In graph->arena. */
bool *stage_recomputed(const struct graph *graph);

/* The node that a later phase follows (Note [Stages in training]): its origin, if that is executed; else -1. */
int stage_origin(const struct graph *graph, const bool *live, int id);

/* Per node: true if it is in the order. In graph->arena. */
bool *stage_live(const struct graph *graph);

/* Per node of the forward phase: the position in the order of the node that it must be on one stage with, which is its
 * own or an earlier one (Note [Results that gradients share]). In graph->arena. */
int *stage_positions(const struct graph *graph, const bool *recomputed);

/* Sets the stages of the nodes after the forward phase from those of the forward phase (Note [Stages in training]), of
 * which it moves some to earlier stages (Note [Results that gradients share]). */
void stages_follow(struct draft *draft);

/* Per node of a draft: the axes, bit a for axis a, that a stage which computes it does not have (Note [Unequal stages]
 * in runtime/base/shape/mesh.h). Nodes that stages recompute are where their readers are. In graph->arena. */
unsigned *stages_lacking(const struct draft *draft);

/* 0, or -1 after E0420 for a node that is split along an axis that a stage which computes it does not have. */
int stages_check_axes(const struct graph *graph, struct diags *diags);

#endif
