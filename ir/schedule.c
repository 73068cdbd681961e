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

int schedule_coordinates(const struct graph *graph) {
    const int axis = mesh_pipeline_axis(&graph->mesh);
    return axis < 0 ? 1 : graph->mesh.axis[axis].size;
}

int schedule_chunks(const struct graph *graph) {
    return graph->chunks.n ? graph->chunks.n : schedule_coordinates(graph);
}

int schedule_home(const struct graph *graph, int chunk) {
    return chunk >= 0 && chunk < graph->chunks.n ? graph->chunks.home[chunk] : chunk;
}

int schedule_first(const struct graph *graph, int coordinate) {
    int chunk = 0;
    while (schedule_home(graph, chunk) != coordinate) chunk++;
    return chunk;
}

int schedule_number(const struct graph *graph, int chunk) {
    int number = 0;
    for (int c = 0; c < chunk && graph->chunks.n; c++) number += schedule_home(graph, c) == schedule_home(graph, chunk);
    return number;
}

bool chunks_are_whole(const struct chunks *chunks, int coordinates) {
    int chunks_there = 0;
    for (int coordinate = 0; coordinate < coordinates; coordinate++) {
        int n = 0;
        for (int c = 0; c < chunks->n; c++) n += chunks->home[c] == coordinate;
        if (n < 1 || n > RT_MAX_CHUNKS) return false;
        chunks_there += n;
    }
    return chunks_there == chunks->n;
}

bool schedule_posts(const struct graph *graph, const struct node *node) {
    return node->op->id == OP_Transfer && (graph_trains(graph) || graph->micro_batches > 1) &&
           node->phase < PHASE_REDUCE;
}

/* The first tensor of the group. */
static int group_of(int *group, int tensor) {
    while (group[tensor] != tensor) tensor = group[tensor] = group[group[tensor]];
    return tensor;
}

/* True if the result may lie in the memory of an operand, or an operand in that of the result. */
static bool may_share_memory(const struct node *node) {
    return node->op->id != OP_Transfer && (node->op->flops == 0 || node->op->in_place);
}

static void use_in_chunk(const struct graph *graph, int *owner, int tensor, int chunk) {
    if (tensor >= 0 && graph->tensors.at[tensor].kind == TENSOR_VALUE && chunk < owner[tensor]) owner[tensor] = chunk;
}

/* Per tensor: one of those that may lie in the same memory during the phases of micro-batches. */
static int *find_groups(const struct graph *graph) {
    int *group = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) group[t] = t;
    GRAPH_EACH(graph, i, const struct node *node) {
        if (node->phase >= PHASE_REDUCE || node->stage < 0) continue;
        for (int k = 0; k < node->ninputs && may_share_memory(node); k++)
            if (node->inputs[k] >= 0 && graph->tensors.at[node->inputs[k]].kind == TENSOR_VALUE)
                group[group_of(group, node->inputs[k])] = group_of(group, node->outputs[0]);
    }
    for (int t = 0; t < graph->tensors.n; t++) group[t] = group_of(group, t);
    return group;
}

/* Per tensor, in *owner: schedule_owners. */
static void find_owners(const struct graph *graph, int coordinate, const int *group, int *owner) {
    const int n = graph->tensors.n, chunks = schedule_chunks(graph);
    for (int t = 0; t < n; t++) owner[t] = chunks;
    GRAPH_EACH(graph, i, const struct node *node) {
        const bool transfer = node->op->id == OP_Transfer;
        const int reads = transfer ? (int)attr_int(node, "from", 0) : node->stage;
        if (node->phase >= PHASE_REDUCE || node->stage < 0) continue;
        for (int k = 0; k < node->ninputs && schedule_home(graph, reads) == coordinate; k++)
            use_in_chunk(graph, owner, node->inputs[k], reads);
        for (int k = 0; k < node->noutputs && schedule_home(graph, node->stage) == coordinate; k++)
            use_in_chunk(graph, owner, node->outputs[k], node->stage);
    }
    for (int t = 0; t < n; t++) use_in_chunk(graph, owner, group[t], owner[t]);
    for (int t = 0; t < n; t++) owner[t] = owner[group[t]];
}

const int *schedule_owners(const struct graph *graph, int coordinate) {
    int *owner = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    find_owners(graph, coordinate, find_groups(graph), owner);
    return owner;
}

/* Who accesses a group of tensors that may lie in the same memory: 1 + the chunk if it is one and in the backward phase
 * alone, 0: nobody, MIXED: others. Transfers of a group by a coordinate: `sent`, `received`. */
enum { MIXED = -1 };
struct group_use {
    int chunk;
    bool sent, received;
};

static void use_group(const struct graph *graph, struct group_use *use, const int *group, int tensor, int chunk,
                      enum phase phase) {
    if (tensor < 0 || graph->tensors.at[tensor].kind != TENSOR_VALUE) return;
    struct group_use *of = &use[group[tensor]];
    const int now = phase == PHASE_BACKWARD && chunk >= 0 ? 1 + chunk : MIXED;
    of->chunk = of->chunk && of->chunk != now ? MIXED : now;
}

/* Per tensor, by its group, in *use: how the coordinate accesses it. */
static void find_uses(const struct graph *graph, int coordinate, const int *group, struct group_use *use) {
    for (int t = 0; t < graph->tensors.n; t++) use[t] = (struct group_use){0};
    GRAPH_EACH(graph, i, const struct node *node) {
        const bool transfer = node->op->id == OP_Transfer;
        const int reads = transfer ? (int)attr_int(node, "from", 0) : node->stage, writes = node->stage;
        const bool here = reads < 0 || schedule_home(graph, reads) == coordinate;
        const bool there = writes < 0 || schedule_home(graph, writes) == coordinate;
        for (int k = 0; k < node->ninputs && here; k++)
            use_group(graph, use, group, node->inputs[k], reads, node->phase);
        for (int k = 0; k < node->noutputs && there; k++)
            use_group(graph, use, group, node->outputs[k], writes, node->phase);
        if (transfer && here) use[group[node->inputs[0]]].sent = true;
        if (transfer && there) use[group[node->outputs[0]]].received = true;
    }
    for (int i = 0; i < graph->outputs.n; i++) use[group[graph->outputs.at[i]]].chunk = MIXED;
    for (int i = 0; i < graph->updates.n; i++) use[group[graph->updates.at[i].value]].chunk = MIXED;
}

/* What the ends of a coordinate's transfers are made from. */
struct ends_of {
    const struct graph *graph;
    const int *group;
    int *owner;
    struct group_use *use;
    bool last_is_backward; /* the last phase of a micro-batch */
    struct transfer_ends *ends;
};

static void add_end(struct ends_of *of, int id, bool sends) {
    const struct node *node = &of->graph->nodes.at[id];
    const int chunk = (int)attr_int(node, sends ? "from" : "to", 0),
              tensor = sends ? node->inputs[0] : node->outputs[0];
    const struct group_use *use = &of->use[of->group[tensor]];
    const struct transfer_end end = {
        id,    tensor,
        chunk, of->owner[tensor] < chunk ? of->owner[tensor] : chunk,
        sends, .of_backward = of->last_is_backward && use->chunk == 1 + chunk && !(use->sent && use->received)};
    VEC_PUSH(of->graph->arena, &of->ends->all, end);
}

const struct transfer_ends *schedule_ends(const struct graph *graph) {
    const int n = graph->tensors.n + 1, coordinates = schedule_coordinates(graph);
    struct transfer_ends *ends = ARENA_ARRAY(graph->arena, struct transfer_ends, coordinates);
    VEC(int) transfers = {0};
    for (int i = 0; i < graph->order.n; i++)
        if (schedule_posts(graph, &graph->nodes.at[graph->order.at[i]]))
            VEC_PUSH(graph->arena, &transfers, graph->order.at[i]);
    if (!transfers.n) return ends;
    struct ends_of of = {graph, find_groups(graph), ARENA_ARRAY(graph->arena, int, n),
                         ARENA_ARRAY(graph->arena, struct group_use, n),
                         .last_is_backward = schedule_last_phase(graph) == PHASE_BACKWARD};
    for (int coordinate = 0; coordinate < coordinates; coordinate++) {
        find_owners(graph, coordinate, of.group, of.owner);
        find_uses(graph, coordinate, of.group, of.use);
        of.ends = &ends[coordinate];
        for (int i = 0; i < transfers.n; i++) {
            const struct node *node = &graph->nodes.at[transfers.at[i]];
            const int from = (int)attr_int(node, "from", 0), to = (int)attr_int(node, "to", 0);
            if (schedule_home(graph, from) == coordinate) add_end(&of, transfers.at[i], true);
            if (schedule_home(graph, to) == coordinate) add_end(&of, transfers.at[i], false);
        }
    }
    return ends;
}

int schedule_end_set(const struct graph *graph, const struct rt_schedule *shape, const struct transfer_end *end) {
    const int number = schedule_number(graph, end->owner), own = rt_slot_set(RT_SLOT_FROM_BACKWARD, number);
    return end->of_backward && shape->slots[own] ? own : rt_slot_set(RT_SLOT_WHOLE, number);
}

int schedule_phases(const struct graph *graph) {
    int phases = graph_trains(graph) ? PHASES : 1;
    for (int i = 0; i < graph->order.n; i++) {
        const int phase = (int)graph->nodes.at[graph->order.at[i]].phase;
        if (phase >= phases) phases = phase + 1;
    }
    return phases;
}

enum phase schedule_last_phase(const struct graph *graph) {
    if (!graph_trains(graph)) return PHASE_FORWARD;
    for (int i = 0; i < graph->order.n; i++)
        if (graph->nodes.at[graph->order.at[i]].phase == PHASE_WEIGHT) return PHASE_WEIGHT;
    return PHASE_BACKWARD;
}

struct slot_span schedule_slot_span(enum rt_slot_kind kind, enum phase last) {
    const struct slot_span spans[RT_SLOT_KINDS] = {[RT_SLOT_WHOLE] = {PHASE_FORWARD, last},
                                                   [RT_SLOT_TO_BACKWARD] = {PHASE_FORWARD, PHASE_BACKWARD},
                                                   [RT_SLOT_FROM_BACKWARD] = {PHASE_BACKWARD, last}};
    return spans[kind];
}

static bool is_backward(enum phase phase) {
    return phase == PHASE_BACKWARD || phase == PHASE_WEIGHT;
}

static bool is_read_in_backward(const struct graph *graph, int weight) {
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs && is_backward(node->phase); k++)
            if (node->inputs[k] == weight) return true;
    }
    return false;
}

enum phase schedule_update_phase(const struct graph *graph, const struct update *update) {
    const enum phase phase = graph_phase_of(graph, update->value);
    if (phase != PHASE_FORWARD || !graph_trains(graph)) return phase;
    return schedule_chunks(graph) == 1 || is_read_in_backward(graph, update->weight) ? schedule_last_phase(graph)
                                                                                     : PHASE_FORWARD;
}

bool schedule_stores(const struct graph *graph, const struct segment *segment, const struct update *update) {
    const int producer = graph->tensors.at[update->value].producer;
    if (schedule_update_phase(graph, update) != segment->phase) return false;
    if (producer < 0) return schedule_number(graph, segment->chunk) == 0;
    return stage_part(&graph->nodes.at[producer], segment->chunk) & STAGE_WRITES;
}

int schedule_find(const struct graph *graph, int chunk, enum phase phase) {
    for (int s = 0; s < graph->segments.n; s++)
        if (graph->segments.at[s].chunk == chunk && graph->segments.at[s].phase == phase) return s;
    return -1;
}

struct checker {
    const struct graph *graph;
    struct diags *diags;
    const char *where; /* the segment or schedule under check */
    int *written;      /* per tensor: 1 + the segment under check, if that computes it */
    int *used; /* per tensor: 1 + the segment under check, if a list of it has the tensor; negative: it is read */
    const struct transfer_ends *ends; /* of each coordinate */
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

/* Every node lies in a segment of its phase, for each chunk that takes part in it; a node that all ranks execute once
 * in a step, for the first chunk of each coordinate. */
static int check_homes(const struct checker *c) {
    const struct graph *graph = c->graph;
    const int chunks = schedule_chunks(graph);
    for (int chunk = 0; chunk < chunks; chunk++) {
        const int number = schedule_number(graph, chunk);
        int segment[PHASES];
        for (int p = 0; p < PHASES; p++) segment[p] = schedule_find(graph, chunk, (enum phase)p);
        GRAPH_EACH(graph, i, const struct node *node) {
            const int s = segment[node->phase];
            const bool elsewhere = node->stage == STAGE_ALL && node->phase >= PHASE_REDUCE && number;
            if (stage_part(node, chunk) == STAGE_NONE || elsewhere) continue;
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
    VEC_EACH(&graph->updates, i, const struct update *update)
        if (schedule_stores(graph, segment, update) && check_read(c, stamp, update->value) < 0) return -1;
    return 0;
}

/* Every value that a segment of the coordinate reads from another is in `out` of one. */
static int check_coordinate(struct checker *c, int coordinate) {
    const struct graph *graph = c->graph;
    const int stamp = graph->segments.n + 1 + coordinate;
    VEC_EACH(&graph->segments, s, const struct segment *segment) {
        const bool own = schedule_home(graph, segment->chunk) == coordinate;
        for (int i = 0; i < segment->out.n && own; i++) c->used[segment->out.at[i]] = stamp;
    }
    VEC_EACH(&graph->segments, s, const struct segment *segment) {
        const bool own = schedule_home(graph, segment->chunk) == coordinate;
        c->where = segment_name(graph, segment);
        for (int i = 0; i < segment->in.n && own; i++)
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

/* What a coordinate has executed so far of a step with `micro_batches` micro-batches. */
struct progress {
    const struct schedule *schedule;
    int micro_batches;
    bool *ran;         /* [segment * micro_batches + micro] */
    int *holds;        /* [set of slots * most + slot]: 1 + its micro-batch, 0: free */
    int count[PHASES]; /* segments executed */
    enum phase last;   /* of a micro-batch */
    struct transfer_ends ends;
    int most;               /* slots of a chunk */
    int *pending, *arrived; /* [end * most + slot]: 1 + the micro-batch that is posted, that was received; 0: none */
};

static int check_slot(const struct checker *c, const struct progress *p, enum phase phase, const struct step_op *op,
                      enum rt_slot_kind kind) {
    const int holder = op->micro + 1, set = rt_slot_set(kind, op->chunk), slots = p->schedule->shape.slots[set];
    const struct slot_span span = schedule_slot_span(kind, p->last);
    if (!slots || phase < span.first || phase > span.last) return 0;
    int *holds = &p->holds[set * p->most + op->micro % slots];
    if (phase == span.first && *holds && *holds != holder) return fail(c, "two micro-batches are in one slot");
    if (phase != span.first && *holds != holder) return fail(c, "a micro-batch is not in the slot of its backward row");
    *holds = phase == span.last ? 0 : holder;
    return 0;
}

static int check_slots(const struct checker *c, const struct progress *p, enum phase phase, const struct step_op *op) {
    for (int kind = 0; kind < RT_SLOT_KINDS; kind++)
        if (check_slot(c, p, phase, op, (enum rt_slot_kind)kind) < 0) return -1;
    return 0;
}

/* A receive into a slot of a set of its own takes it when it is posted. */
static int take_own_slot(const struct checker *c, const struct progress *p, const struct transfer_end *end,
                         const struct step_op *op) {
    const int set = schedule_end_set(c->graph, &p->schedule->shape, end), slots = p->schedule->shape.slots[set];
    int *holds = &p->holds[set * p->most + op->micro % slots];
    if (set < RT_MAX_CHUNKS) return 0; /* of whole micro-batches */
    if (*holds && *holds != op->micro + 1) return fail(c, "two micro-batches are in one slot");
    *holds = op->micro + 1;
    return 0;
}

/* A row that posts or waits for the end of a transfer. */
static int check_transfer(const struct checker *c, struct progress *p, const struct step_op *op) {
    if (op->transfer >= p->ends.all.n) return fail(c, "a row has a transfer that the coordinate does not have");
    const struct transfer_end *end = &p->ends.all.at[op->transfer];
    const enum phase phase = c->graph->nodes.at[end->node].phase;
    const int slot = rt_schedule_slot(&p->schedule->shape, op->chunk, op->micro), at = op->transfer * p->most + slot;
    int *pending = &p->pending[at], *arrived = &p->arrived[at];
    if (c->graph->segments.at[op->segment].phase != phase || c->graph->segments.at[op->segment].chunk != end->chunk ||
        op->chunk != schedule_number(c->graph, end->owner))
        return fail(c, "a row has a transfer of another segment");
    if (op->kind == STEP_WAIT) {
        if (*pending != op->micro + 1) return fail(c, "a row waits for a transfer that was not posted");
        if (!end->sends) *arrived = *pending;
        *pending = 0;
        return 0;
    }
    if (end->sends != (op->kind == STEP_POST_SEND))
        return fail(c, "a row sends what it is to receive, or the other way");
    if (*pending || *arrived) return fail(c, "a transfer is posted while its memory is in use");
    const int holder = p->holds[op->chunk * p->most + slot];
    if (holder && holder != op->micro + 1) return fail(c, "two micro-batches are in one slot");
    if (end->sends && !p->ran[op->segment * p->micro_batches + op->micro])
        return fail(c, "a row sends a value before it is computed");
    if (!end->sends && take_own_slot(c, p, end, op) < 0) return -1;
    *pending = op->micro + 1;
    return 0;
}

/* True if the row's segment may overwrite a value that is being sent. holder: 1 + the value's micro-batch; 0: nothing
 * is being sent. A forward segment overwrites the slot that it takes, which another micro-batch used before. A
 * backward segment overwrites values of its own micro-batch that are no longer read, and the slot for gradients that
 * it takes. A weight segment never overwrites a value that is being sent (Note [On the operand] in
 * passes/rank/rankplan_make.c). */
static bool overwrites(const struct checker *c, const struct progress *p, const struct transfer_end *end,
                       const struct step_op *op, int holder) {
    const struct segment *segment = &c->graph->segments.at[op->segment];
    const int set = schedule_end_set(c->graph, &p->schedule->shape, end), slots = p->schedule->shape.slots[set];
    const int micro = holder - 1;
    const bool takes = end->owner == segment->chunk && micro != op->micro && micro % slots == op->micro % slots;
    const bool of_backward = set >= RT_MAX_CHUNKS;
    if (!holder || segment->phase == PHASE_WEIGHT) return false;
    if (segment->phase == PHASE_FORWARD) return takes && !of_backward;
    return (takes && of_backward) || (c->graph->nodes.at[end->node].phase == PHASE_FORWARD && micro == op->micro);
}

/* Before a segment is executed: its values have been received, and no transfer still needs the memory. */
static int check_arrived(const struct checker *c, struct progress *p, enum phase phase, const struct step_op *op) {
    VEC_EACH(&p->ends.all, e, const struct transfer_end *end) {
        const enum phase of = c->graph->nodes.at[end->node].phase;
        const int slot = op->micro % p->schedule->shape.slots[schedule_number(c->graph, end->owner)];
        const bool own = c->graph->segments.at[op->segment].chunk == end->chunk, reads = !end->sends && of == phase;
        if (own && reads && p->arrived[e * p->most + slot] != op->micro + 1)
            return fail(c, "a segment is executed before a value has arrived");
        for (int s = 0; s < p->most && end->sends; s++)
            if (overwrites(c, p, end, op, p->pending[e * p->most + s]))
                return fail(c, "a segment is executed while a value in its slot is being sent");
        if (own && reads) p->arrived[e * p->most + slot] = 0;
    }
    return 0;
}

/* Number of times that the coordinate executes a segment of the phase in a step. */
static int times_of(const struct progress *p, enum phase phase) {
    if (phase >= PHASE_REDUCE) return 1;
    return phase <= p->last ? p->schedule->shape.nchunks * p->micro_batches : 0;
}

/* True if the segment of the phase has been executed for the row's chunk and micro-batch. */
static bool has_run(const struct checker *c, const struct progress *p, const struct step_op *op, enum phase phase) {
    const int segment = schedule_find(c->graph, c->graph->segments.at[op->segment].chunk, phase);
    return segment >= 0 && p->ran[segment * p->micro_batches + op->micro];
}

static int check_row(const struct checker *c, struct progress *p, const struct step_op *op) {
    if (op->micro < p->micro_batches && op->kind != STEP_RUN) return check_transfer(c, p, op);
    const enum phase phase = c->graph->segments.at[op->segment].phase;
    const bool per_micro_batch = phase < PHASE_REDUCE;
    if (op->micro >= p->micro_batches) return fail(c, "a row has a micro-batch that the step does not have");
    bool *ran = &p->ran[op->segment * p->micro_batches + (per_micro_batch ? op->micro : 0)];
    if (*ran) return fail(c, "a segment is executed twice for a micro-batch");
    *ran = true;
    p->count[phase]++;
    for (int before = 0; before < (int)phase && !per_micro_batch; before++)
        if (p->count[before] != times_of(p, (enum phase)before))
            return fail(c, "a phase begins before the one in front of it has ended");
    if (!per_micro_batch) return 0;
    if (phase == PHASE_WEIGHT && !has_run(c, p, op, PHASE_BACKWARD))
        return fail(c, "a weight segment is executed before the backward segment of its micro-batch");
    return check_arrived(c, p, phase, op) < 0 ? -1 : check_slots(c, p, phase, op);
}

/* Walks the table of a step with that many micro-batches. */
static int check_table(const struct checker *c, const struct schedule *schedule, int micro_batches) {
    struct arena *arena = c->graph->arena;
    struct schedule_walk walk = {0};
    struct progress p = {.schedule = schedule, .micro_batches = micro_batches};
    p.most = rt_schedule_most_slots(&schedule->shape);
    p.last = schedule_last_phase(c->graph);
    p.ran = ARENA_ARRAY(arena, bool, c->graph->segments.n *micro_batches);
    p.holds = ARENA_ARRAY(arena, int, RT_SLOT_SETS *p.most);
    p.ends = c->ends[schedule - c->graph->schedules.at];
    p.pending = ARENA_ARRAY(arena, int, p.ends.all.n *p.most + 1);
    p.arrived = ARENA_ARRAY(arena, int, p.ends.all.n *p.most + 1);
    while (schedule_next(schedule, micro_batches, &walk))
        if (check_row(c, &p, &walk.op) < 0) return -1;
    for (int phase = 0; phase < schedule_phases(c->graph); phase++)
        if (p.count[phase] != times_of(&p, (enum phase)phase))
            return fail(c, "a segment is not executed for every micro-batch");
    for (int i = 0; i < p.ends.all.n * p.most; i++)
        if (p.pending[i]) return fail(c, "a transfer is never waited for");
    return 0;
}

/* Of a new value that forward computes and that is stored after backward (schedule_update_phase): with several slots,
 * the forward segments in between would start from the old value. */
static int check_updates(const struct checker *c, const struct schedule *schedule) {
    const struct graph *graph = c->graph;
    const bool several = schedule->shape.nchunks > 1 || schedule->shape.slots[0] > 1;
    for (int i = 0; i < graph->updates.n && several; i++) {
        const int value = graph->updates.at[i].value;
        if (graph->tensors.at[value].producer >= 0 && graph_phase_of(graph, value) == PHASE_FORWARD &&
            schedule_update_phase(graph, &graph->updates.at[i]) != PHASE_FORWARD)
            return fail_on(c, "several slots, but forward updates", graph->updates.at[i].weight,
                           ", which every micro-batch must find updated");
    }
    return 0;
}

/* Every chunk has slots, at most as many for a part of a micro-batch as for the whole. Those for parts are there for
 * all chunks or for none, and only if there are backward segments. */
static int check_sets(const struct checker *c, const struct schedule *schedule) {
    const enum phase last = schedule_last_phase(c->graph);
    const bool parts = schedule->shape.slots[rt_slot_set(RT_SLOT_TO_BACKWARD, 0)] > 0;
    if (parts && last == PHASE_FORWARD) return fail(c, "it has slots for backward segments, of which there are none");
    for (int kind = 0; kind < RT_SLOT_KINDS; kind++)
        for (int chunk = 0; chunk < schedule->shape.nchunks; chunk++) {
            const int slots = schedule->shape.slots[rt_slot_set((enum rt_slot_kind)kind, chunk)];
            if ((slots > 0) != (!kind || parts) || slots > schedule->shape.slots[chunk])
                return fail(c, "a chunk has too many slots for a part of its micro-batches, or too few");
        }
    return 0;
}

static int check_schedule(struct checker *c, int coordinate) {
    const struct graph *graph = c->graph;
    const struct schedule *schedule = &graph->schedules.at[coordinate];
    int chunks = 0;
    c->where = arena_printf(graph->arena, "schedule %d", coordinate);
    for (int chunk = 0; chunk < schedule_chunks(graph); chunk++) chunks += schedule_home(graph, chunk) == coordinate;
    if (schedule->shape.nchunks != chunks) return fail(c, "it does not have the slots of each chunk of the coordinate");
    if (rt_schedule_most_slots(&schedule->shape) > schedule->shape.micro_batches)
        return fail(c, "it has more slots than micro-batches");
    if (schedule->repeat_first > schedule->repeat_end || schedule->repeat_end > schedule->nops)
        return fail(c, "it repeats rows that it does not have");
    if (schedule->shape.micro_batches > schedule->nops) return fail(c, "it has more micro-batches than rows");
    if (schedule->shape.micro_batches != graph->schedules.at[0].shape.micro_batches)
        return fail(c, "it has another number of micro-batches than schedule 0");
    for (int i = 0; i < schedule->nops; i++) {
        const int chunk = graph->segments.at[schedule->ops[i].segment].chunk;
        if (schedule_home(graph, chunk) != coordinate) return fail(c, "a row has a segment of another coordinate");
    }
    if (check_sets(c, schedule) < 0 || check_updates(c, schedule) < 0) return -1;
    /* no repetition; one; and enough for the same slots to come up again */
    const int further[] = {0, 1, rt_schedule_most_slots(&schedule->shape) + 1};
    for (int k = 0; k < 3 && rt_schedule_allows(&schedule->shape, schedule->shape.micro_batches + further[k]); k++)
        if (check_table(c, schedule, schedule->shape.micro_batches + further[k]) < 0) return -1;
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
    for (int coordinate = 0; coordinate < schedule_coordinates(graph); coordinate++)
        if (check_coordinate(&c, coordinate) < 0) return -1;
    if (check_homes(&c) < 0) return -1;
    if (graph->level < SCHEDULED) return 0;
    c.where = "schedules";
    if (graph->schedules.n != schedule_coordinates(graph))
        return fail(&c, "there is not one for each pipeline coordinate");
    c.ends = schedule_ends(graph);
    for (int s = 0; s < graph->schedules.n; s++)
        if (check_schedule(&c, s) < 0) return -1;
    return 0;
}
