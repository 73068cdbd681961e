#include "ir/schedule.h"

#include "ir/op.h"

int stage_part(const struct node *node, int stage) {
    if (node->op->id == OP_Transfer)
        return attr_int(node, "from", -1) == stage ? STAGE_READS
               : attr_int(node, "to", -1) == stage ? STAGE_WRITES
                                                   : STAGE_NONE;
    if (node->op->id == OP_Broadcast)
        return attr_int(node, "from", -1) == stage ? STAGE_READS | STAGE_WRITES : STAGE_WRITES;
    return node->stage == STAGE_ALL || node->stage == stage ? STAGE_READS | STAGE_WRITES : STAGE_NONE;
}

int schedule_chunks(const struct graph *graph) {
    const int axis = mesh_pipeline_axis(&graph->mesh);
    return axis < 0 ? 1 : graph->mesh.axis[axis].size;
}

bool schedule_posts(const struct graph *graph, const struct node *node) {
    return node->op->id == OP_Transfer && graph_trains(graph) && node->phase <= PHASE_BACKWARD;
}

struct transfer_ends schedule_ends(const struct graph *graph, int coordinate) {
    struct transfer_ends ends = {0};
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i];
        const struct node *node = &graph->nodes.at[id];
        const int part = schedule_posts(graph, node) ? stage_part(node, coordinate) : STAGE_NONE;
        if (part & STAGE_READS) VEC_PUSH(graph->arena, &ends.all, (struct transfer_end){id, coordinate, true});
        if (part & STAGE_WRITES) VEC_PUSH(graph->arena, &ends.all, (struct transfer_end){id, coordinate, false});
    }
    return ends;
}

int schedule_phases(const struct graph *graph) {
    int phases = graph_trains(graph) ? PHASES : 1;
    for (int i = 0; i < graph->order.n; i++) {
        const int phase = (int)graph->nodes.at[graph->order.at[i]].phase;
        if (phase >= phases) phases = phase + 1;
    }
    return phases;
}

static bool is_read_in_backward(const struct graph *graph, int weight) {
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs && node->phase == PHASE_BACKWARD; k++)
            if (node->inputs[k] == weight) return true;
    }
    return false;
}

enum phase schedule_update_phase(const struct graph *graph, const struct update *update) {
    const enum phase phase = graph_phase_of(graph, update->value);
    if (phase != PHASE_FORWARD || !graph_trains(graph)) return phase;
    return schedule_chunks(graph) == 1 || is_read_in_backward(graph, update->weight) ? PHASE_BACKWARD : PHASE_FORWARD;
}

int schedule_find(const struct graph *graph, int chunk, enum phase phase) {
    for (int s = 0; s < graph->segments.n; s++)
        if (graph->segments.at[s].chunk == chunk && graph->segments.at[s].phase == phase) return s;
    return -1;
}

/* Verification of segments ----------------------------------------------------------------------------------------- */

struct checker {
    const struct graph *graph;
    struct diags *diags;
    const char *where; /* the segment or schedule under check */
    int *written;      /* per tensor: 1 + the segment under check, if that computes it */
    int *used; /* per tensor: 1 + the segment under check, if a list of it has the tensor; negative: it is read */
};

static int fail(const struct checker *c, const char *what) {
    return diag_error(c->diags, 1101, EXIT_MISMATCH, c->graph->name, "%s: %s", c->where, what);
}

/* "before 'tensor' after" */
static int fail_on(const struct checker *c, const char *before, int tensor, const char *after) {
    return fail(c, arena_printf(c->graph->arena, "%s '%s'%s", before, c->graph->tensors.at[tensor].name, after));
}

static const char *segment_name(const struct graph *graph, const struct segment *segment) {
    return arena_printf(graph->arena, "segment %s %d", phase_names[segment->phase], segment->chunk);
}

/* Every node lies in a segment of its phase, for each chunk that takes part in it. */
static int check_homes(const struct checker *c) {
    const struct graph *graph = c->graph;
    const int chunks = schedule_chunks(graph);
    for (int chunk = 0; chunk < chunks; chunk++) {
        int segment[PHASES];
        for (int p = 0; p < PHASES; p++) segment[p] = schedule_find(graph, chunk, (enum phase)p);
        for (int i = 0; i < graph->order.n; i++) {
            const struct node *node = &graph->nodes.at[graph->order.at[i]];
            const int s = segment[node->phase];
            if (stage_part(node, chunk) == STAGE_NONE) continue;
            if (s < 0 || i < graph->segments.at[s].first || i >= graph->segments.at[s].end)
                return diag_error(c->diags, 1101, EXIT_MISMATCH, node_place(graph, graph->order.at[i]),
                                  "no segment of chunk %d executes the node", chunk);
        }
    }
    return 0;
}

/* Marks the values that `in` or `out` lists; fails if one is listed twice. */
static int mark_listed(const struct checker *c, int stamp, int n, const int *tensors) {
    for (int i = 0; i < n; i++) {
        if (c->used[tensors[i]] == stamp) return fail_on(c, "lists", tensors[i], " twice");
        c->used[tensors[i]] = stamp;
    }
    return 0;
}

/* A value that the segment reads: it is computed in the segment, or in the list. */
static int check_read(const struct checker *c, int stamp, int tensor) {
    if (tensor < 0 || c->graph->tensors.at[tensor].kind != TENSOR_VALUE || c->written[tensor] == stamp) return 0;
    if (c->used[tensor] != stamp && c->used[tensor] != -stamp)
        return fail_on(c, "reads", tensor, ", which 'in' does not list");
    c->used[tensor] = -stamp;
    return 0;
}

/* True if ranks of the chunk compute or receive the value. */
static bool has_value(const struct graph *graph, int chunk, int tensor) {
    const int producer = graph->tensors.at[tensor].producer;
    return producer >= 0 && stage_part(&graph->nodes.at[producer], chunk) & STAGE_WRITES;
}

static int check_nodes(const struct checker *c, const struct segment *segment, int stamp) {
    const struct graph *graph = c->graph;
    for (int i = segment->first; i < segment->end; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const int part = stage_part(node, segment->chunk);
        if (part != STAGE_NONE && node->phase != segment->phase) return fail(c, "has a node of another phase");
        for (int k = 0; k < node->ninputs && part & STAGE_READS; k++)
            if (check_read(c, stamp, node->inputs[k]) < 0) return -1;
        for (int k = 0; k < node->noutputs && part & STAGE_WRITES; k++) c->written[node->outputs[k]] = stamp;
    }
    for (int i = 0; i < graph->updates.n; i++) {
        const int value = graph->updates.at[i].value;
        if (!has_value(graph, segment->chunk, value) ||
            schedule_update_phase(graph, &graph->updates.at[i]) != segment->phase)
            continue;
        if (check_read(c, stamp, value) < 0) return -1;
    }
    return 0;
}

/* Every value that a segment of the chunk reads from another is in `out` of one. */
static int check_chunk(struct checker *c, int chunk) {
    const struct graph *graph = c->graph;
    const int stamp = graph->segments.n + 1 + chunk;
    for (int s = 0; s < graph->segments.n; s++) {
        const struct segment *segment = &graph->segments.at[s];
        for (int i = 0; i < segment->out.n && segment->chunk == chunk; i++) c->used[segment->out.at[i]] = stamp;
    }
    for (int s = 0; s < graph->segments.n; s++) {
        const struct segment *segment = &graph->segments.at[s];
        c->where = segment_name(graph, segment);
        for (int i = 0; i < segment->in.n && segment->chunk == chunk; i++)
            if (c->used[segment->in.at[i]] != stamp)
                return fail_on(c, "reads", segment->in.at[i], ", which no segment lists in 'out'");
    }
    return 0;
}

static int check_segment(struct checker *c, int s) {
    const struct graph *graph = c->graph;
    const struct segment *segment = &graph->segments.at[s];
    const int stamp = s + 1;
    c->where = segment_name(graph, segment);
    if (segment->chunk >= schedule_chunks(graph)) return fail(c, "there is no such chunk");
    if (segment->first > segment->end || segment->end > graph->order.n) return fail(c, "is outside of the order");
    if (schedule_find(graph, segment->chunk, segment->phase) != s) return fail(c, "occurs twice");
    if (mark_listed(c, stamp, segment->in.n, segment->in.at) < 0 || check_nodes(c, segment, stamp) < 0) return -1;
    for (int i = 0; i < segment->in.n; i++)
        if (c->used[segment->in.at[i]] != -stamp) return fail_on(c, "does not read", segment->in.at[i], " of 'in'");
    for (int i = 0; i < segment->out.n; i++)
        if (c->written[segment->out.at[i]] != stamp)
            return fail_on(c, "does not compute", segment->out.at[i], " of 'out'");
    return mark_listed(c, stamp, segment->out.n, segment->out.at);
}

/* Verification of schedules ---------------------------------------------------------------------------------------- */

/* What was executed so far of a step with `micro_batches` micro-batches. */
struct progress {
    int micro_batches;
    bool *ran;  /* [phase * micro_batches + micro] */
    int *holds; /* per slot: 1 + its micro-batch, 0: free */
    int count[PHASES];
    struct transfer_ends ends;
    int slots;
    int *pending, *arrived; /* [end * slots + slot]: 1 + the micro-batch that is posted, that was received; 0: none */
};

static bool runs_per_micro_batch(enum phase phase) {
    return phase == PHASE_FORWARD || phase == PHASE_BACKWARD;
}

static int check_slot(const struct checker *c, const struct progress *p, enum phase phase,
                      const struct rt_step_op *op) {
    const int holder = op->micro + 1;
    if (phase == PHASE_FORWARD && p->holds[op->slot]) return fail(c, "two micro-batches are in one slot");
    if (phase == PHASE_BACKWARD && p->holds[op->slot] != holder)
        return fail(c, "a micro-batch is not in the slot of its backward row");
    p->holds[op->slot] = phase == PHASE_FORWARD && graph_trains(c->graph) ? holder : 0;
    return 0;
}

/* A row that posts or waits for the end of a transfer. */
static int check_transfer(const struct checker *c, struct progress *p, const struct rt_step_op *op) {
    if (op->transfer >= p->ends.all.n) return fail(c, "a row has a transfer that the coordinate does not have");
    const struct transfer_end *end = &p->ends.all.at[op->transfer];
    const enum phase phase = c->graph->nodes.at[end->node].phase;
    int *pending = &p->pending[op->transfer * p->slots + op->slot], *arrived = &p->arrived[op->transfer * p->slots];
    if (c->graph->segments.at[op->segment].phase != phase || c->graph->segments.at[op->segment].chunk != end->chunk)
        return fail(c, "a row has a transfer of another segment");
    if (op->kind == RT_WAIT) {
        if (*pending != op->micro + 1) return fail(c, "a row waits for a transfer that was not posted");
        if (!end->sends) arrived[op->slot] = *pending;
        *pending = 0;
        return 0;
    }
    if (end->sends != (op->kind == RT_POST_SEND)) return fail(c, "a row sends what it is to receive, or the other way");
    if (*pending || arrived[op->slot]) return fail(c, "a transfer is posted while its memory is in use");
    const int holder = p->holds[op->slot];
    if (holder && holder != op->micro + 1) return fail(c, "two micro-batches are in one slot");
    if (end->sends && !p->ran[(int)phase * p->micro_batches + op->micro])
        return fail(c, "a row sends a value before it is computed");
    *pending = op->micro + 1;
    return 0;
}

/* Before a segment is executed in a slot: its values have been received, and no transfer still needs the memory. */
static int check_arrived(const struct checker *c, struct progress *p, enum phase phase, const struct rt_step_op *op) {
    for (int e = 0; e < p->ends.all.n; e++) {
        const struct transfer_end *end = &p->ends.all.at[e];
        const enum phase of = c->graph->nodes.at[end->node].phase;
        const int at = e * p->slots + op->slot;
        const bool reads = !end->sends && of == phase;
        if (reads && p->arrived[at] != op->micro + 1)
            return fail(c, "a segment is executed before a value has arrived");
        if (end->sends && p->pending[at] && (phase == PHASE_FORWARD || of == PHASE_FORWARD))
            return fail(c, "a segment is executed while a value in its slot is being sent");
        if (reads) p->arrived[at] = 0;
    }
    return 0;
}

static int check_row(const struct checker *c, struct progress *p, const struct rt_step_op *op) {
    if (op->micro < p->micro_batches && op->kind != RT_RUN) return check_transfer(c, p, op);
    const enum phase phase = c->graph->segments.at[op->segment].phase;
    const bool per_micro_batch = runs_per_micro_batch(phase);
    if (op->micro >= p->micro_batches) return fail(c, "a row has a micro-batch that the step does not have");
    bool *ran = &p->ran[(int)phase * p->micro_batches + (per_micro_batch ? op->micro : 0)];
    if (*ran) return fail(c, "a segment is executed twice for a micro-batch");
    *ran = true;
    p->count[phase]++;
    if (phase > PHASE_BACKWARD && p->count[phase - 1] != (phase == PHASE_REDUCE ? p->micro_batches : 1))
        return fail(c, "a phase begins before the one in front of it has ended");
    if (!per_micro_batch) return 0;
    return check_arrived(c, p, phase, op) < 0 ? -1 : check_slot(c, p, phase, op);
}

/* Walks the table of a step with that many micro-batches. */
static int check_table(const struct checker *c, const struct rt_schedule *schedule, int micro_batches) {
    struct rt_schedule_walk walk = {0};
    struct progress p = {.micro_batches = micro_batches};
    p.ran = ARENA_ARRAY(c->graph->arena, bool, PHASES *micro_batches);
    p.holds = ARENA_ARRAY(c->graph->arena, int, schedule->slots);
    p.ends = schedule_ends(c->graph, (int)(schedule - c->graph->schedules.at));
    p.slots = schedule->slots;
    p.pending = ARENA_ARRAY(c->graph->arena, int, p.ends.all.n *p.slots + 1);
    p.arrived = ARENA_ARRAY(c->graph->arena, int, p.ends.all.n *p.slots + 1);
    while (rt_schedule_next(schedule, micro_batches, &walk))
        if (check_row(c, &p, &walk.op) < 0) return -1;
    for (int phase = 0; phase < schedule_phases(c->graph); phase++)
        if (p.count[phase] != (runs_per_micro_batch((enum phase)phase) ? micro_batches : 1))
            return fail(c, "a segment is not executed for every micro-batch");
    for (int i = 0; i < p.ends.all.n * p.slots; i++)
        if (p.pending[i]) return fail(c, "a transfer is never waited for");
    return 0;
}

/* Of a new value that forward computes and that is stored after backward (schedule_update_phase): with several slots,
 * the forward segments in between would start from the old value. */
static int check_updates(const struct checker *c, const struct rt_schedule *schedule) {
    const struct graph *graph = c->graph;
    for (int i = 0; i < graph->updates.n && schedule->slots > 1; i++) {
        const int value = graph->updates.at[i].value;
        if (graph->tensors.at[value].producer >= 0 && graph_phase_of(graph, value) == PHASE_FORWARD &&
            schedule_update_phase(graph, &graph->updates.at[i]) != PHASE_FORWARD)
            return fail_on(c, "several slots, but forward updates", graph->updates.at[i].weight,
                           ", which every micro-batch must find updated");
    }
    return 0;
}

static int check_schedule(struct checker *c, int coordinate) {
    const struct graph *graph = c->graph;
    const struct rt_schedule *schedule = &graph->schedules.at[coordinate];
    c->where = arena_printf(graph->arena, "schedule %d", coordinate);
    if (schedule->slots > schedule->micro_batches) return fail(c, "it has more slots than micro-batches");
    if (schedule->repeat_first > schedule->repeat_end || schedule->repeat_end > schedule->nops)
        return fail(c, "it repeats rows that it does not have");
    if (schedule->micro_batches > schedule->nops) return fail(c, "it has more micro-batches than rows");
    if (schedule->micro_batches != graph->schedules.at[0].micro_batches)
        return fail(c, "it has another number of micro-batches than schedule 0");
    for (int i = 0; i < schedule->nops; i++) {
        const struct rt_step_op *op = &schedule->ops[i];
        if (graph->segments.at[op->segment].chunk != coordinate) return fail(c, "a row has a segment of another chunk");
        if (op->slot >= schedule->slots) return fail(c, "a row has a slot that there is not");
    }
    if (check_updates(c, schedule) < 0) return -1;
    /* without repetition; repeated once; and as often as it takes to come to the same slots again */
    const int further[] = {0, 1, schedule->slots + 1};
    for (int k = 0; k < 3 && rt_schedule_allows(schedule, schedule->micro_batches + further[k]); k++)
        if (check_table(c, schedule, schedule->micro_batches + further[k]) < 0) return -1;
    return 0;
}

int schedule_verify(const struct graph *graph, struct diags *diags) {
    const int ntensors = graph->tensors.n + 1;
    struct checker c = {.graph = graph, .diags = diags, .where = "segments"};
    if (graph->level < SEGMENTED) return 0;
    c.written = ARENA_ARRAY(graph->arena, int, ntensors);
    c.used = ARENA_ARRAY(graph->arena, int, ntensors);
    for (int s = 0; s < graph->segments.n; s++)
        if (check_segment(&c, s) < 0) return -1;
    for (int chunk = 0; chunk < schedule_chunks(graph); chunk++)
        if (check_chunk(&c, chunk) < 0) return -1;
    if (check_homes(&c) < 0) return -1;
    if (graph->level < SCHEDULED) return 0;
    c.where = "schedules";
    if (graph->schedules.n != schedule_chunks(graph)) return fail(&c, "there is not one for each pipeline coordinate");
    for (int s = 0; s < graph->schedules.n; s++)
        if (check_schedule(&c, s) < 0) return -1;
    return 0;
}
