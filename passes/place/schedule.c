/* Fills the table that says when ranks execute each segment (ir/schedule.h). */
#include "ir/schedule.h"

#include "ir/timeline.h"
#include "passes/pipeline.h"
#include "passes/place/messages.h"
#include "passes/plan/schedule/schedules.h"
#include "passes/train/training.h"

/* Forward and backward of each micro-batch in turn, then reduction and update. The first two rows are repeated, so that
 * a run may choose the number of micro-batches. A micro-batch is finished before the next one begins: one slot. */
static struct schedule one_by_one(struct graph *graph, int coordinate) {
    const int phases = schedule_phases(graph);
    struct step_op *ops = ARENA_ARRAY(graph->arena, struct step_op, phases);
    int rows = 0, repeated = 0;
    for (int p = 0; p < phases; p++) {
        const int segment = schedule_find(graph, coordinate, (enum phase)p);
        if (segment < 0) continue;
        ops[rows++].segment = segment;
        if (p < PHASE_REDUCE) repeated = rows;
    }
    return (struct schedule){.shape = {.micro_batches = 1, .repeats = repeated > 0, .nchunks = 1, .slots = {1}},
                             .nops = rows,
                             .ops = ops,
                             .repeat_end = repeated};
}

/* The table of a coordinate in the making. */
struct table {
    struct graph *graph;
    const struct column *column;
    struct transfer_ends ends;
    struct arrivals arrivals; /* the receives that it posts */
    struct schedule schedule; /* its slots */
    enum phase last;          /* of a micro-batch */
    int most;                 /* slots of a chunk */
    int arrived;              /* receives posted so far */
    int *sending; /* [end * most + slot]: 1 + the micro-batch whose send was posted and not waited for; 0: none */
    VEC(struct step_op) ops;
};

static void put_row(struct table *t, enum step_kind kind, int chunk, enum phase phase, int micro, int transfer) {
    const struct step_op op = {.segment = schedule_find(t->graph, chunk, phase),
                               .chunk = schedule_number(t->graph, chunk),
                               .micro = micro,
                               .kind = kind,
                               .transfer = transfer};
    VEC_PUSH(t->graph->arena, &t->ops, op);
}

/* A row for an end of a transfer. */
static void put_end(struct table *t, enum step_kind kind, int end, int micro) {
    const struct transfer_end *e = &t->ends.all.at[end];
    put_row(t, kind, e->chunk, t->graph->nodes.at[e->node].phase, micro, end);
    t->ops.at[t->ops.n - 1].chunk = schedule_number(t->graph, e->owner);
}

static enum phase phase_of_end(const struct table *t, int end) {
    return t->graph->nodes.at[t->ends.all.at[end].node].phase;
}

/* Before the cell (NULL: at the end of the micro-batches), a send must be complete if the cell's segment may write
 * to the value's memory: a forward segment to what another micro-batch left in the slot that it takes, a backward
 * segment to what was sent of its own micro-batch's forward phase, and to what another one left in the slot for
 * gradients that it takes. A weight segment does not write to what has been
 * sent. */
static bool must_end(const struct table *t, const struct cell *cell, int end, int micro) {
    const struct transfer_end *e = &t->ends.all.at[end];
    if (!cell) return true;
    if (cell->phase == PHASE_WEIGHT) return false;
    const int set = schedule_end_set(t->graph, &t->schedule.shape, e), slots = t->schedule.shape.slots[set];
    const bool takes = e->owner == cell->chunk && micro != cell->micro && micro % slots == cell->micro % slots;
    if (cell->phase == PHASE_FORWARD) return takes && set < RT_MAX_CHUNKS;
    return (takes && set >= RT_MAX_CHUNKS) || (phase_of_end(t, end) == PHASE_FORWARD && micro == cell->micro);
}

/* Waits for the sends of the phase that are under way and must be complete before the cell. */
static void wait_for_sends(struct table *t, enum phase phase, const struct cell *cell) {
    for (int s = 0; s < t->most; s++)
        for (int e = 0; e < t->ends.all.n; e++) {
            int *sending = &t->sending[e * t->most + s];
            if (!*sending || phase_of_end(t, e) != phase || !must_end(t, cell, e, *sending - 1)) continue;
            put_end(t, STEP_WAIT, e, *sending - 1);
            *sending = 0;
        }
}

static bool is_of_cell(const struct table *t, int end, const struct cell *cell, bool sends) {
    const struct transfer_end *e = &t->ends.all.at[end];
    return e->sends == sends && e->chunk == cell->chunk && phase_of_end(t, end) == cell->phase;
}

static void wait_for_memory(struct table *t, const struct cell *cell) {
    wait_for_sends(t, PHASE_BACKWARD, cell);
    wait_for_sends(t, PHASE_FORWARD, cell);
}

/* Posts the receives that precede cell number `i`. One for the forward segment of a later cell takes that one's
 * slot. */
static void post_receives(struct table *t, int i) {
    for (; t->arrived < t->arrivals.all.n && t->arrivals.all.at[t->arrived].cell == i; t->arrived++) {
        const struct arrival *arrival = &t->arrivals.all.at[t->arrived];
        const struct cell cell = {phase_of_end(t, arrival->end), arrival->micro, t->ends.all.at[arrival->end].chunk};
        if (cell.phase == PHASE_FORWARD) wait_for_memory(t, &cell);
        put_end(t, STEP_POST_RECEIVE, arrival->end, arrival->micro);
    }
}

static void wait_for_receives(struct table *t, const struct cell *cell) {
    for (int e = 0; e < t->ends.all.n; e++)
        if (is_of_cell(t, e, cell, false)) put_end(t, STEP_WAIT, e, cell->micro);
}

static void post_sends(struct table *t, const struct cell *cell) {
    for (int e = 0; e < t->ends.all.n; e++) {
        if (!is_of_cell(t, e, cell, true)) continue;
        const int slot = cell->micro % t->schedule.shape.slots[schedule_number(t->graph, t->ends.all.at[e].owner)];
        put_end(t, STEP_POST_SEND, e, cell->micro);
        t->sending[e * t->most + slot] = cell->micro + 1;
    }
}

/* The rows of a segment and of the transfers around it (Note [Transfers between chunks] in ir/step_table.h). */
static void put_cell(struct table *t, int i) {
    const struct cell *cell = &t->column->cells.at[i];
    wait_for_memory(t, cell);
    post_receives(t, i);
    wait_for_receives(t, cell);
    put_row(t, STEP_RUN, cell->chunk, cell->phase, cell->micro, 0);
    post_sends(t, cell);
}

/* Slots ------------------------------------------------------------------------------------------------------------ */

/* Gives the micro-batch its slot; false if another has it. holder: per slot 1 + the micro-batch; 0: free. */
static bool take_slot(int *holder, int slots, int micro) {
    int *slot = &holder[micro % slots];
    if (*slot && *slot != micro + 1) return false;
    *slot = micro + 1;
    return true;
}

static enum rt_slot_kind kind_of_receive(const struct table *t, int end) {
    return t->ends.all.at[end].of_backward ? RT_SLOT_FROM_BACKWARD : RT_SLOT_WHOLE;
}

/* True if no two micro-batches need a slot of the kind and chunk at the same time when there are `slots` of them. What
 * is received takes its slot when the first receive is posted. */
static bool suffice(const struct table *t, enum rt_slot_kind kind, int chunk, int slots) {
    const struct slot_span span = schedule_slot_span(kind, t->last);
    int *holder = ARENA_ARRAY(t->graph->arena, int, slots), a = 0;
    for (int i = 0; i < t->column->cells.n; i++) {
        const struct cell *cell = &t->column->cells.at[i];
        for (; a < t->arrivals.all.n && t->arrivals.all.at[a].cell == i; a++)
            if (kind == kind_of_receive(t, t->arrivals.all.at[a].end) &&
                t->ends.all.at[t->arrivals.all.at[a].end].chunk == chunk &&
                !take_slot(holder, slots, t->arrivals.all.at[a].micro))
                return false;
        if (cell->chunk != chunk) continue;
        if (cell->phase == span.first && !take_slot(holder, slots, cell->micro)) return false;
        if (cell->phase == span.last) holder[cell->micro % slots] = 0;
    }
    return true;
}

static int count_slots(const struct table *t, enum rt_slot_kind kind, int chunk) {
    int slots = 1;
    while (slots < t->column->micro_batches && !suffice(t, kind, chunk, slots)) slots++;
    return slots;
}

/* True if the chunk's backward segments come in the order of the micro-batches. */
static bool is_ascending(const struct table *t, int chunk) {
    int before = -1;
    for (int i = 0; i < t->column->cells.n; i++) {
        const struct cell *cell = &t->column->cells.at[i];
        if (cell->chunk != chunk || cell->phase != PHASE_BACKWARD) continue;
        if (cell->micro < before) return false;
        before = cell->micro;
    }
    return true;
}

static int at_most(int value, int limit) {
    return value < limit ? value : limit;
}

/* Slots for the gradients that a chunk receives and sends: at least two, so that those of one micro-batch are sent
 * while those of the next are computed. As many as for whole micro-batches suffice. */
static int count_gradient_slots(const struct table *t, int chunk, int whole, int more) {
    const int needed = count_slots(t, RT_SLOT_FROM_BACKWARD, chunk);
    return is_ascending(t, chunk) ? at_most((needed > 2 ? needed : 2) + more, whole) : whole;
}

static int common_divisor(int a, int b) {
    return b ? common_divisor(b, a % b) : a;
}

static int common_multiple(int a, int b) {
    return a / common_divisor(a, b) * b;
}

/* Micro-batch m has slot m modulo the number of each set, so there are as many combinations as their least common
 * multiple. If these are too many for a device that records each, there are a few more slots for whole micro-batches,
 * which then have only what is received and sent; or as many of each set. */
static void limit_combinations(const struct table *t, int *whole, int *kept, int *gradients) {
    const int parts = common_multiple(*kept, *gradients), more = (*whole + parts - 1) / parts * parts;
    if (common_multiple(*whole, parts) <= RT_MOST_COMBINATIONS || *whole > RT_MOST_COMBINATIONS) return;
    if (more <= RT_MOST_COMBINATIONS && more <= t->column->micro_batches)
        *whole = more;
    else
        *kept = *gradients = *whole;
}

/* more: slots of each chunk, for whole micro-batches and for gradients, beyond those that it needs. */
static void find_slots(struct table *t, const int *more) {
    int *slots = t->schedule.shape.slots;
    for (int chunk = 0; chunk < schedule_chunks(t->graph); chunk++) {
        if (schedule_home(t->graph, chunk) != t->column->coordinate) continue;
        const int number = t->schedule.shape.nchunks++;
        int *whole = &slots[rt_slot_set(RT_SLOT_WHOLE, number)];
        int *kept = &slots[rt_slot_set(RT_SLOT_TO_BACKWARD, number)];
        int *gradients = &slots[rt_slot_set(RT_SLOT_FROM_BACKWARD, number)];
        *whole = at_most(count_slots(t, RT_SLOT_WHOLE, chunk) + more[chunk], t->column->micro_batches);
        if (t->last == PHASE_FORWARD) continue;
        *kept = count_slots(t, RT_SLOT_TO_BACKWARD, chunk);
        *gradients = t->last == PHASE_WEIGHT ? count_slots(t, RT_SLOT_FROM_BACKWARD, chunk)
                                             : count_gradient_slots(t, chunk, *whole, more[chunk]);
        if (t->last == PHASE_BACKWARD) limit_combinations(t, whole, kept, gradients);
    }
    t->most = rt_schedule_most_slots(&t->schedule.shape);
}

/* The table of a coordinate: the rows of its column, then reduction and update. */
static struct schedule schedule_of(struct graph *graph, const struct column *columns, const struct transfer_ends *ends,
                                   int coordinate, const int *more) {
    const struct column *column = &columns[coordinate];
    struct table t = {.graph = graph, .column = column, .ends = ends[coordinate], .last = schedule_last_phase(graph)};
    t.arrivals = messages_order(graph, columns, ends, coordinate);
    find_slots(&t, more);
    t.sending = ARENA_ARRAY(graph->arena, int, t.ends.all.n *t.most + 1);
    for (int i = 0; i < column->cells.n; i++) {
        if (i == column->repeat_first) t.schedule.repeat_first = t.ops.n;
        put_cell(&t, i);
        if (i + 1 == column->repeat_end) t.schedule.repeat_end = t.ops.n;
    }
    for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) wait_for_sends(&t, (enum phase)phase, NULL);
    for (int p = PHASE_REDUCE; p < schedule_phases(graph); p++)
        put_row(&t, STEP_RUN, schedule_first(graph, coordinate), (enum phase)p, 0, 0);
    t.schedule.nops = t.ops.n;
    t.schedule.ops = t.ops.at;
    t.schedule.shape.micro_batches = column->micro_batches;
    if (column->repeat_first == column->repeat_end) t.schedule.repeat_first = t.schedule.repeat_end = 0;
    t.schedule.shape.repeats = t.schedule.repeat_first < t.schedule.repeat_end;
    return t.schedule;
}

/* Note [Further slots]
 * A rank that waits for the end of a send before it takes the slot again may wait forever: for a receive that the other
 * side posts only after it has got something from this rank. The tables are simulated; where that happens, the chunk
 * gets a further slot, at most one for each micro-batch.
 *
 * It may also wait long: the last stage sends the first one gradients of tied weights, which that one takes when it has
 * come as far, as many micro-batches later as there are stages. Where the step takes longer because a rank waits so,
 * the chunk that is waited for longest gets a further slot, as long as that saves time.
 *
 * In inference a chunk needs one slot, but has two: while it computes a micro-batch, the results of the one before are
 * sent. */
struct further {
    const struct column *columns;
    const struct transfer_ends *ends;
    int *more; /* per chunk */
};

static void make_tables(struct graph *graph, const struct further *further) {
    graph->schedules.n = 0;
    for (int c = 0; c < schedule_coordinates(graph); c++) {
        const struct schedule schedule = schedule_of(graph, further->columns, further->ends, c, further->more);
        VEC_PUSH(graph->arena, &graph->schedules, schedule);
    }
}

/* Makes the tables that complete. */
static void complete_tables(struct graph *graph, const struct further *further, struct timeline *timeline) {
    const int most = further->columns[0].micro_batches;
    const struct timeline_times times = {.ends = further->ends};
    for (;;) {
        make_tables(graph, further);
        if (!timeline_simulate(graph, most, &times, timeline)) return;
        if (timeline->stuck < 0 || further->more[timeline->stuck] >= most) return;
        further->more[timeline->stuck]++;
    }
}

static void put_tables(struct graph *graph, const struct column *columns, const struct transfer_ends *ends) {
    const struct further further = {columns, ends, ARENA_ARRAY(graph->arena, int, schedule_chunks(graph))};
    struct timeline timeline;
    for (int c = 0; c < schedule_chunks(graph); c++) further.more[c] = !graph->train;
    complete_tables(graph, &further, &timeline);
    while (timeline.stuck < 0 && timeline.delayed >= 0 && further.more[timeline.delayed] < columns[0].micro_batches) {
        const int chunk = timeline.delayed;
        const double before = timeline.end;
        further.more[chunk]++;
        complete_tables(graph, &further, &timeline);
        if (timeline.end < before) continue;
        further.more[chunk]--;
        complete_tables(graph, &further, &timeline);
        return;
    }
}

/* The tables of a program whose pipeline stages execute several micro-batches. */
static int fill_tables(struct graph *graph, const struct pass_context *context) {
    const bool trains = context->training != NULL;
    const int coordinates = schedule_coordinates(graph);
    const int accumulate = trains ? (int)context->decisions.micro_batches : graph->micro_batches;
    struct column *columns = ARENA_ARRAY(graph->arena, struct column, coordinates);
    struct schedule_choice choice;
    const char *name = trains ? context->decisions.schedule : schedule_of_inference;
    if (schedule_choose(&choice, name, context->diags) < 0) return -1;
    for (int c = 0; c < coordinates; c++) {
        columns[c] = (struct column){.arena = graph->arena,
                                     .coordinate = c,
                                     .coordinates = coordinates,
                                     .micro_batches = schedule_listed(&choice, coordinates, accumulate),
                                     .chunks = graph->chunks};
        schedule_fill(&choice, &columns[c]);
    }
    put_tables(graph, columns, schedule_ends(graph));
    return 0;
}

int pass_schedule(struct graph *graph, const struct pass_context *context) {
    const int coordinates = schedule_coordinates(graph);
    if ((context->training || graph->micro_batches > 1) && coordinates > 1) return fill_tables(graph, context);
    for (int coordinate = 0; coordinate < coordinates; coordinate++) {
        const struct schedule schedule = one_by_one(graph, coordinate);
        VEC_PUSH(graph->arena, &graph->schedules, schedule);
    }
    return 0;
}
