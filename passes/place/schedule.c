/* Fills the table that says when ranks execute each segment (ir/schedule.h). */
#include "passes/pipeline.h"

/* Forward and backward of each micro-batch in turn, then reduction and update. The first two rows are repeated, so that
 * a run may choose the number of micro-batches. A micro-batch is finished before the next one begins: one slot. */
static struct schedule one_by_one(struct graph *graph, int chunk) {
    struct schedule schedule = {.micro_batches = 1, .slots = 1};
    for (int p = 0; p < schedule_phases(graph); p++) {
        const struct step_op op = {.segment = schedule_find(graph, chunk, (enum phase)p)};
        VEC_PUSH(graph->arena, &schedule.ops, op);
        if (p <= PHASE_BACKWARD) schedule.repeat_end = p + 1;
    }
    return schedule;
}

int pass_schedule(struct graph *graph, const struct pass_context *context) {
    (void)context;
    for (int chunk = 0; chunk < schedule_chunks(graph); chunk++)
        VEC_PUSH(graph->arena, &graph->schedules, one_by_one(graph, chunk));
    return 0;
}
