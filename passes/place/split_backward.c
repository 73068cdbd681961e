/* Divides the backward phase in two for zero-bubble schedules (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR
 * 2024, section 2).
 *
 * Note [Two parts of backward]
 * Other pipeline stages wait for the gradients of activations that a stage sends, but nobody waits for its gradients of
 * weights before the end of the step. What a posted send needs stays in PHASE_BACKWARD, and so does what reads the
 * factor of the loss, which the runtime sets before that phase. All else moves to PHASE_WEIGHT, which a schedule may
 * place in time that the stage would otherwise spend waiting. The first stage sends no gradients: its whole backward
 * pass is of PHASE_WEIGHT. The pass follows the passes that fuse operators, so that results do not depend on the
 * schedule; an operator that computes both kinds of gradients, such as that of a layer norm, stays in
 * PHASE_BACKWARD. So does a sum of values that are computed there, such as the gradient of a norm's weight: it takes
 * little time, and the values, which are much larger, are not kept until PHASE_WEIGHT for it. */
#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/plan/schedule/schedules.h"
#include "passes/train/training.h"

/* Per tensor: true if a node that stays in PHASE_BACKWARD reads it. Moves the others to PHASE_WEIGHT. */
static void move_to_weight_phase(struct graph *graph, bool *needed) {
    const int seed = graph_control(graph, RT_SEED);
    GRAPH_EACH_BACK(graph, i, struct node *const node) {
        bool stays = schedule_posts(graph, node) || node_reads(node, seed);
        if (node->phase != PHASE_BACKWARD) continue;
        for (int k = 0; k < node->noutputs; k++) stays = stays || (node->outputs[k] >= 0 && needed[node->outputs[k]]);
        if (!stays) node->phase = PHASE_WEIGHT;
        for (int k = 0; k < node->ninputs && stays; k++)
            if (node->inputs[k] >= 0) needed[node->inputs[k]] = true;
    }
}

static bool is_sum(const struct node *node) {
    return node->op->id == OP_Columns || node->op->id == OP_ReduceSum;
}

/* Moves sums back whose operands are all computed before PHASE_WEIGHT. */
static void keep_sums(struct graph *graph) {
    GRAPH_EACH(graph, i, struct node *const node) {
        bool early = node->phase == PHASE_WEIGHT && is_sum(node), computed = false;
        for (int k = 0; k < node->ninputs && early; k++) {
            const struct node *producer = graph_producer(graph, node->inputs[k]);
            if (!producer) continue;
            early = producer->phase != PHASE_WEIGHT;
            computed = computed || producer->phase == PHASE_BACKWARD;
        }
        if (early && computed) node->phase = PHASE_BACKWARD;
    }
}

int pass_split_backward(struct graph *graph, const struct pass_context *context) {
    struct schedule_choice choice;
    if (!context->training || schedule_coordinates(graph) == 1) return 0;
    if (schedule_choose(&choice, context->decisions.schedule, context->diags) < 0) return -1;
    if (!schedule_splits(&choice)) return 0;
    struct arena *scratch = arena_scratch(graph->arena);
    move_to_weight_phase(graph, ARENA_ARRAY(scratch, bool, graph->tensors.n + RT_CONTROLS + 1));
    arena_release(graph->arena, scratch);
    keep_sums(graph);
    graph_sort_phases(graph);
    return 0;
}
