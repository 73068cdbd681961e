/* Fills the table that says when ranks execute each segment (ir/schedule.h). */
#include "ir/schedule.h"

#include "ir/timeline.h"
#include "passes/pipeline.h"
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

/* Note [Order of messages]
 * Messages between two ranks match in the order of posting. Each rank sends a value when the segment that computes it
 * has been executed, so the order of sends follows from the columns of a schedule alone. A rank may need the values in
 * another order, if it has several chunks: a gradient of tied weights for its first chunk is sent before the gradients
 * that its second chunk waits for. So before it posts the receive that a segment needs, it posts those of all messages
 * that are sent before that one.
 *
 * A rank waits for the end of its sends before it takes a slot again, and so for the receives of the other side. These
 * must not come too late: a rank with several chunks also posts the receives of the messages that the same segment of
 * the sender sends, and, before each cell, those of the next messages as long as their memory is in a slot that their
 * micro-batch has. Gradients lie in a slot from the posting of their receive on: of each chunk, they are received ahead
 * for MESSAGES_AHEAD micro-batches. */

/* MESSAGES_AHEAD: that one is received while another is used. */
enum { MESSAGES_AHEAD = 2 };

/* A receive that is posted before cell number `cell` of the coordinate's column. */
struct arrival {
    int cell, end, micro; /* end: number of the end of the transfer on the coordinate */
};
struct arrivals {
    VEC(struct arrival) all; /* in the order of posting */
};

static bool is_of_cell(const struct graph *graph, const struct transfer_end *end, const struct cell *cell, bool sends) {
    return end->sends == sends && end->chunk == cell->chunk && graph->nodes.at[end->node].phase == cell->phase;
}

struct message {
    int node, micro, cell; /* cell: number of the sender's that computes it */
};

/* The messages that one coordinate sends to another, in order; `next`: the first whose receive is not posted. */
struct channel {
    VEC(struct message) all;
    int next;
};

struct ordering {
    const struct graph *graph;
    const struct transfer_ends *ends; /* of the coordinate that receives */
    struct channel *from;             /* by coordinate */
    int *end_of;                      /* per node: 1 + the end that receives from it, 0: none */
    bool *posted;                     /* [end * micro-batches + micro] */
    bool *held;                       /* [chunk * micro-batches + micro]: the micro-batch has a slot of the chunk */
    bool *taken; /* [chunk * micro-batches + micro]: it has one for the gradients that are received and sent */
    int *ahead;  /* per chunk: how many have one */
    int micro_batches;
    struct arrivals arrivals;
};

static void list_sends(const struct graph *graph, const struct column *column, const struct transfer_ends *ends, int to,
                       struct channel *channel) {
    for (int i = 0; i < column->cells.n; i++)
        VEC_EACH(&ends->all, e, const struct transfer_end *end) {
            if (is_of_cell(graph, end, &column->cells.at[i], true) &&
                schedule_home(graph, (int)attr_int(&graph->nodes.at[end->node], "to", 0)) == to)
                VEC_PUSH(graph->arena, &channel->all, (struct message){end->node, column->cells.at[i].micro, i});
        }
}

static void post(struct ordering *o, int cell, int end, int micro) {
    bool *posted = &o->posted[end * o->micro_batches + micro];
    if (!*posted) VEC_PUSH(o->graph->arena, &o->arrivals.all, (struct arrival){cell, end, micro});
    *posted = true;
    const int chunk = o->ends->all.at[end].chunk, at = chunk * o->micro_batches + micro;
    if (!o->ends->all.at[end].of_backward || o->taken[at]) return;
    o->taken[at] = true;
    o->ahead[chunk]++;
}

static void post_next(struct ordering *o, int cell, struct channel *channel) {
    const struct message *message = &channel->all.at[channel->next++];
    post(o, cell, o->end_of[message->node] - 1, message->micro);
}

/* Posts the receive that the cell needs, with those of Note [Order of messages]. */
static void post_up_to(struct ordering *o, int cell, int end, int micro) {
    const int from = (int)attr_int(&o->graph->nodes.at[o->ends->all.at[end].node], "from", 0);
    struct channel *channel = &o->from[schedule_home(o->graph, from)];
    while (!o->posted[end * o->micro_batches + micro] && channel->next < channel->all.n) post_next(o, cell, channel);
    while (channel->next > 0 && channel->next < channel->all.n &&
           channel->all.at[channel->next].cell == channel->all.at[channel->next - 1].cell)
        post_next(o, cell, channel);
    post(o, cell, end, micro);
}

/* Posts the next receives whose memory is in slots that their micro-batches have. */
static void post_held(struct ordering *o, int cell, struct channel *channel) {
    while (channel->next < channel->all.n) {
        const struct message *message = &channel->all.at[channel->next];
        const struct transfer_end *end = &o->ends->all.at[o->end_of[message->node] - 1];
        const int at = end->chunk * o->micro_batches + message->micro;
        if (!o->held[at]) return;
        if (end->of_backward && !o->taken[at] && o->ahead[end->chunk] >= MESSAGES_AHEAD) return;
        post_next(o, cell, channel);
    }
}

/* The receives of the coordinate. columns, ends: of every coordinate. */
static struct arrivals order_messages(const struct graph *graph, const struct column *columns,
                                      const struct transfer_ends *ends, int coordinate) {
    const int coordinates = schedule_coordinates(graph);
    const enum phase last = schedule_last_phase(graph);
    const struct column *column = &columns[coordinate];
    struct ordering o = {.graph = graph, .ends = &ends[coordinate], .micro_batches = column->micro_batches};
    o.from = ARENA_ARRAY(graph->arena, struct channel, coordinates);
    o.end_of = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1);
    o.posted = ARENA_ARRAY(graph->arena, bool, o.ends->all.n *o.micro_batches + 1);
    for (int e = 0; e < o.ends->all.n; e++)
        if (!o.ends->all.at[e].sends) o.end_of[o.ends->all.at[e].node] = e + 1;
    for (int from = 0; from < coordinates; from++)
        list_sends(graph, &columns[from], &ends[from], coordinate, &o.from[from]);
    o.held = ARENA_ARRAY(graph->arena, bool, schedule_chunks(graph) * o.micro_batches + 1);
    o.taken = ARENA_ARRAY(graph->arena, bool, schedule_chunks(graph) * o.micro_batches + 1);
    o.ahead = ARENA_ARRAY(graph->arena, int, schedule_chunks(graph) + 1);
    VEC_EACH(&column->cells, i, const struct cell *cell) {
        for (int e = 0; e < o.ends->all.n; e++)
            if (is_of_cell(graph, &o.ends->all.at[e], cell, false)) post_up_to(&o, i, e, cell->micro);
        for (int from = 0; from < coordinates && graph->chunks.n; from++) post_held(&o, i, &o.from[from]);
        const int at = cell->chunk * o.micro_batches + cell->micro;
        o.held[at] = cell->phase != last;
        if (cell->phase == last && o.taken[at]) o.taken[at] = false, o.ahead[cell->chunk]--;
    }
    return o.arrivals;
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

/* Before the cell (NULL: at the end of the micro-batches), a send must be complete if the cell's segment may overwrite
 * the value. A forward segment overwrites what another micro-batch left in its slot. A backward segment overwrites
 * values of its own micro-batch's forward phase, and gradients that another micro-batch left in its slot for gradients.
 * A weight segment overwrites nothing that is sent. */
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
        if (is_of_cell(t->graph, &t->ends.all.at[e], cell, false)) put_end(t, STEP_WAIT, e, cell->micro);
}

static void post_sends(struct table *t, const struct cell *cell) {
    for (int e = 0; e < t->ends.all.n; e++) {
        if (!is_of_cell(t->graph, &t->ends.all.at[e], cell, true)) continue;
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
    VEC_EACH(&t->column->cells, i, const struct cell *cell) {
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
    VEC_EACH(&t->column->cells, i, const struct cell *cell) {
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
    t.arrivals = order_messages(graph, columns, ends, coordinate);
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
    if (context->training && context->decisions.schedule)
        diag_remark(context->diags, graph->name, "--schedule %s: the plan has one stage, and no pipeline",
                    diag_quote(context->diags, context->decisions.schedule));
    for (int coordinate = 0; coordinate < coordinates; coordinate++) {
        const struct schedule schedule = one_by_one(graph, coordinate);
        VEC_PUSH(graph->arena, &graph->schedules, schedule);
    }
    return 0;
}
