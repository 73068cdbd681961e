/* Fills the table that says when ranks execute each segment (ir/schedule.h). */
#include "ir/schedule.h"

#include <string.h>

#include "passes/pipeline.h"
#include "passes/plan/schedules.h"
#include "passes/train/training.h"

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

/* The most micro-batches between their forward and their backward segment at the same time. */
static int count_slots(const struct column *column) {
    int now = 0, most = 1;
    for (int i = 0; i < column->cells.n; i++) {
        now += column->cells.at[i].phase == PHASE_FORWARD ? 1 : -1;
        if (now > most) most = now;
    }
    return most;
}

/* The table of a stage: the rows of its column, then reduction and update. */
static struct rt_schedule schedule_of(struct graph *graph, const struct column *column) {
    const int n = column->cells.n, slots = count_slots(column), phases = schedule_phases(graph);
    struct rt_step_op *ops = ARENA_ARRAY(graph->arena, struct rt_step_op, n + phases);
    int nops = 0;
    for (int i = 0; i < n; i++) {
        const struct cell *cell = &column->cells.at[i];
        const int segment = schedule_find(graph, column->stage, cell->phase);
        ops[nops++] = (struct rt_step_op){segment, cell->micro, cell->micro % slots};
    }
    for (int p = PHASE_REDUCE; p < phases; p++)
        ops[nops++].segment = schedule_find(graph, column->stage, (enum phase)p);
    return (struct rt_schedule){.nops = nops,
                                .ops = ops,
                                .micro_batches = column->micro_batches,
                                .repeat_first = column->repeat_first,
                                .repeat_end = column->repeat_end,
                                .slots = slots};
}

/* The schedule of a training program's pipeline stages; NULL: it has none. */
static const struct schedule_kind *kind_of(const struct graph *graph, const struct training *training) {
    if (!training || schedule_chunks(graph) == 1) return NULL;
    return schedule_kind_find(training->schedule ? training->schedule : schedule_default);
}

int pass_schedule(struct graph *graph, const struct pass_context *context) {
    const int stages = schedule_chunks(graph);
    const struct schedule_kind *kind = kind_of(graph, context->training);
    if (kind && strcmp(kind->name, "1f1b") == 0)
        return diag_error(context->diags, 415, EXIT_UNSUPPORTED, graph->name,
                          "schedule '1f1b' of pipeline stages is not supported yet");
    for (int stage = 0; stage < stages; stage++) {
        struct column column = {.arena = graph->arena, .stage = stage, .stages = stages};
        if (kind) {
            column.micro_batches = schedule_listed(kind, stages, context->training->accumulate);
            kind->fill(&column);
        }
        const struct rt_schedule schedule = kind ? schedule_of(graph, &column) : one_by_one(graph, stage);
        VEC_PUSH(graph->arena, &graph->schedules, schedule);
    }
    return 0;
}
