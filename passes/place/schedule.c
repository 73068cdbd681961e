/* Fills the table that says when ranks execute each segment (ir/schedule.h). */
#include "ir/schedule.h"
#include "passes/pipeline.h"

/* Forward and backward of each micro-batch in turn, then reduction and update. The first two rows are repeated, so that
 * a run may choose the number of micro-batches. A micro-batch is finished before the next one begins: one slot. */
static struct rt_schedule one_by_one(struct graph *graph, int chunk) {
    const int phases = schedule_phases(graph);
    struct rt_step_op *ops = ARENA_ARRAY(graph->arena, struct rt_step_op, phases);
    for (int p = 0; p < phases; p++) ops[p].segment = schedule_find(graph, chunk, (enum phase)p);
    return (struct rt_schedule){.nops = phases,
                                .ops = ops,
                                .micro_batches = 1,
                                .repeat_end = phases > PHASE_BACKWARD ? PHASE_BACKWARD + 1 : phases,
                                .slots = 1};
}

int pass_schedule(struct graph *graph, const struct pass_context *context) {
    (void)context;
    for (int chunk = 0; chunk < schedule_chunks(graph); chunk++)
        VEC_PUSH(graph->arena, &graph->schedules, one_by_one(graph, chunk));
    return 0;
}
