/* Fills the table that says when ranks execute each segment (ir/schedule.h). */
#include "ir/schedule.h"

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

/* The table of a stage in the making. */
struct table {
    struct graph *graph;
    const struct column *column;
    struct transfer_ends ends;
    int slots;
    int *sending; /* [end * slots + slot]: 1 + the micro-batch whose send was posted and not waited for; 0: none */
    VEC(struct rt_step_op) ops;
};

static void put_row(struct table *t, enum rt_step_kind kind, enum phase phase, int micro, int transfer) {
    const struct rt_step_op op = {.segment = schedule_find(t->graph, t->column->stage, phase),
                                  .micro = micro,
                                  .slot = micro % t->slots,
                                  .kind = kind,
                                  .transfer = transfer};
    VEC_PUSH(t->graph->arena, &t->ops, op);
}

static enum phase phase_of_end(const struct table *t, int end) {
    return t->graph->nodes.at[t->ends.all.at[end].node].phase;
}

/* Waits for the sends of the phase that are under way from the slot. */
static void wait_for_sends(struct table *t, enum phase phase, int slot) {
    for (int e = 0; e < t->ends.all.n; e++) {
        int *sending = &t->sending[e * t->slots + slot];
        if (!*sending || phase_of_end(t, e) != phase) continue;
        put_row(t, RT_WAIT, phase, *sending - 1, e);
        *sending = 0;
    }
}

/* Posts the ends of the cell that send, or posts and waits for those that receive. */
static void put_transfers(struct table *t, const struct cell *cell, bool sends) {
    for (int e = 0; e < t->ends.all.n; e++) {
        if (t->ends.all.at[e].sends != sends || phase_of_end(t, e) != cell->phase) continue;
        put_row(t, sends ? RT_POST_SEND : RT_POST_RECEIVE, cell->phase, cell->micro, e);
        if (sends) t->sending[e * t->slots + cell->micro % t->slots] = cell->micro + 1;
    }
    for (int e = 0; e < t->ends.all.n && !sends; e++)
        if (!t->ends.all.at[e].sends && phase_of_end(t, e) == cell->phase)
            put_row(t, RT_WAIT, cell->phase, cell->micro, e);
}

/* The rows of a segment and of the transfers around it (Note [Transfers between chunks] in runtime/base/schedule.h). */
static void put_cell(struct table *t, const struct cell *cell) {
    const int slot = cell->micro % t->slots;
    if (cell->phase == PHASE_FORWARD) wait_for_sends(t, PHASE_BACKWARD, slot);
    wait_for_sends(t, PHASE_FORWARD, slot);
    put_transfers(t, cell, false);
    put_row(t, RT_RUN, cell->phase, cell->micro, 0);
    put_transfers(t, cell, true);
}

/* The table of a stage: the rows of its column, then reduction and update. */
static struct rt_schedule schedule_of(struct graph *graph, const struct column *column) {
    struct table t = {.graph = graph, .column = column, .slots = count_slots(column)};
    int repeat_first = 0, repeat_end = 0;
    t.ends = schedule_ends(graph, column->stage);
    t.sending = ARENA_ARRAY(graph->arena, int, t.ends.all.n *t.slots + 1);
    for (int i = 0; i < column->cells.n; i++) {
        if (i == column->repeat_first) repeat_first = t.ops.n;
        put_cell(&t, &column->cells.at[i]);
        if (i + 1 == column->repeat_end) repeat_end = t.ops.n;
    }
    for (int slot = 0; slot < t.slots; slot++) wait_for_sends(&t, PHASE_FORWARD, slot);
    for (int slot = 0; slot < t.slots; slot++) wait_for_sends(&t, PHASE_BACKWARD, slot);
    for (int p = PHASE_REDUCE; p < schedule_phases(graph); p++) put_row(&t, RT_RUN, (enum phase)p, 0, 0);
    return (struct rt_schedule){.nops = t.ops.n,
                                .ops = t.ops.at,
                                .micro_batches = column->micro_batches,
                                .repeat_first = repeat_first,
                                .repeat_end = repeat_end,
                                .slots = t.slots};
}

/* The schedule of a training program's pipeline stages; NULL: it has none. */
static const struct schedule_kind *kind_of(const struct graph *graph, const struct training *training) {
    if (!training || schedule_chunks(graph) == 1) return NULL;
    return schedule_kind_find(training->schedule ? training->schedule : schedule_default);
}

int pass_schedule(struct graph *graph, const struct pass_context *context) {
    const int stages = schedule_chunks(graph);
    const struct schedule_kind *kind = kind_of(graph, context->training);
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
