/* Memory of the values that a rank keeps from forward to backward: what lies in a slot (Note [Slots] in
 * runtime/base/schedule.h), and where.
 *
 * Note [Slots in memory]
 * A slot contains the values that the backward segment reads and the forward segment of the same micro-batch leaves.
 * A schedule with several slots keeps several such sets: in each arena, ACTIVATIONS and COMMUNICATION, the slots of
 * a chunk are of equal size and lie one after the other behind all other values, and a value of slot s is at base +
 * s x size + its offset in the slot. A schedule with one chunk and one slot needs no such region: the values share
 * addresses with temporaries before they are computed and after they are last read, as all other values do. Values
 * that go from rank to rank lie in the region in any case, because transfers access them while other segments are
 * executed.
 *
 * Chunks of a rank read each other's slots. A value that several chunks access lies in a slot of the first of them,
 * which begins its forward segment first and ends its backward segment last.
 *
 * A value that follows from weights and constants alone, such as a weight in 16 bits, is the same for all
 * micro-batches: each forward segment writes the same bytes. It has one place for the whole step, behind the slots.
 *
 * In training a value that one chunk accesses lies in the set of slots of its own lifetime (Note [Slots]). What no
 * weight segment accesses is free after the backward segment. Under a zero-bubble schedule, what no forward segment
 * accesses is taken by the backward segment; there, values that go from rank to rank have slots of whole
 * micro-batches, since the wait for the end of a send knows those alone. Under other schedules, gradients that are sent
 * or received have slots of their own (schedule_end_set in ir/schedule.h). */
#include "passes/rank/memplan.h"

static const enum rt_arena arenas[] = {RT_ACTIVATIONS, RT_COMMUNICATION}; /* those that have slots */
enum { SLOT_ARENAS = sizeof arenas / sizeof *arenas };

static enum rt_arena arena_of(const struct rankplan *plan, int root) {
    return plan->shared[root] ? RT_COMMUNICATION : RT_ACTIVATIONS;
}

static void keep(const struct rankplan *plan, struct rank_class *class, bool *listed, int tensor) {
    const int root = plan->root[tensor];
    if (listed[root] || plan->graph->tensors.at[root].kind != TENSOR_VALUE || class->place[root].offset >= 0) return;
    listed[root] = true;
    VEC_PUSH(plan->graph->arena, &class->kept, root);
}

/* Lists the roots of the values that other coordinates read, and of those that forward and backward segments read and
 * other segments compute. */
static void list_kept(const struct rankplan *plan, struct rank_class *class) {
    const struct graph *graph = plan->graph;
    const struct transfer_ends ends = plan->ends[class->coordinate];
    bool *listed = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int e = 0; e < ends.all.n; e++) keep(plan, class, listed, ends.all.at[e].tensor);
    class->transferred = class->kept.n;
    for (int s = 0; s < class->nsegments; s++) {
        const struct segment *segment = &graph->segments.at[class->segments[s]];
        for (int i = 0; i < segment->in.n && segment->phase < PHASE_REDUCE; i++)
            keep(plan, class, listed, segment->in.at[i]);
    }
}

/* Per root: the chunk that owns its slot, as an index into class->chunks. */
static const int *find_owners(const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    const int *of = schedule_owners(graph, class->coordinate);
    int *owner = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) owner[t] = class->nchunks - 1;
    for (int t = 0; t < graph->tensors.n; t++)
        while (owner[plan->root[t]] > 0 && class->chunks[owner[plan->root[t]]] > of[t]) owner[plan->root[t]]--;
    return owner;
}

/* Who accesses a root in the phases of micro-batches: `phases`, a bit set; `chunk`: an index into class->chunks, or
 * SEVERAL. `elsewhere`: so do later phases or the caller. */
struct access {
    unsigned phases;
    int chunk;
    bool elsewhere;
};
enum { SEVERAL = -1 };

/* The tensors that a segment reads and writes, by the nodes that its chunk executes. */
static struct accessed { VEC(int) all; } accessed_by(const struct graph *graph, const struct segment *segment) {
    struct accessed tensors = {0};
    for (int i = segment->first; i < segment->end; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const bool executes = stage_part(node, segment->chunk) != STAGE_NONE;
        for (int k = 0; k < node->ninputs + node->noutputs && executes; k++)
            if (node_tensor(node, k) >= 0) VEC_PUSH(graph->arena, &tensors.all, node_tensor(node, k));
    }
    return tensors;
}

static void note_access(struct access *access, const struct rank_class *class, const struct segment *segment) {
    int chunk = 0;
    while (class->chunks[chunk] != segment->chunk) chunk++;
    access->elsewhere = access->elsewhere || segment->phase >= PHASE_REDUCE;
    access->chunk = access->phases && access->chunk != chunk ? SEVERAL : chunk;
    access->phases |= 1u << segment->phase;
}

/* Per root. */
static const struct access *find_root_accesses(const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    struct access *access = ARENA_ARRAY(graph->arena, struct access, graph->tensors.n + 1);
    for (int s = 0; s < class->nsegments; s++) {
        const struct segment *segment = &graph->segments.at[class->segments[s]];
        const struct accessed tensors = accessed_by(graph, segment);
        for (int i = 0; i < tensors.all.n; i++) note_access(&access[plan->root[tensors.all.at[i]]], class, segment);
    }
    for (int i = 0; i < graph->outputs.n; i++) access[plan->root[graph->outputs.at[i]]].elsewhere = true;
    for (int i = 0; i < graph->updates.n; i++) access[plan->root[graph->updates.at[i].value]].elsewhere = true;
    return access;
}

/* Per root of a value that goes from rank to rank: its set of slots; -1 for others. */
static const int *find_end_sets(const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    const struct transfer_ends ends = plan->ends[class->coordinate];
    int *set = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) set[t] = -1;
    for (int e = 0; e < ends.all.n; e++)
        set[plan->root[ends.all.at[e].tensor]] = schedule_end_set(graph, &class->schedule->shape, &ends.all.at[e]);
    return set;
}

/* Per tensor: true for weights that no micro-batch updates, and constants. */
static bool *find_fixed(const struct graph *graph) {
    bool *fixed = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    VEC_EACH(&graph->tensors, t, const struct tensor *tensor)
        fixed[t] = tensor->kind == TENSOR_WEIGHT || tensor->kind == TENSOR_CONST;
    VEC_EACH(&graph->updates, u, const struct update *update)
        if (graph_phase_of(graph, update->value) < PHASE_REDUCE) fixed[update->weight] = false;
    return fixed;
}

/* Per root: true if nodes compute all that lies there from weights and constants alone. */
static bool *find_alike(const struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    bool *alike = find_fixed(graph), *of_root = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        bool all = !op_communicates(node->op) && node->ninputs > 0;
        for (int k = 0; k < node->ninputs; k++) all = all && (node->inputs[k] < 0 || alike[node->inputs[k]]);
        for (int k = 0; k < node->noutputs; k++)
            if (node->outputs[k] >= 0) alike[node->outputs[k]] = all;
    }
    for (int t = 0; t < graph->tensors.n; t++) of_root[t] = true;
    for (int t = 0; t < graph->tensors.n; t++) of_root[plan->root[t]] = of_root[plan->root[t]] && alike[t];
    return of_root;
}

/* The set of slots for a kept value with these accesses. A value that several chunks access is in a slot of `owner` for
 * the whole micro-batch. */
static int choose_set(const struct rank_class *class, const struct access *access, int owner) {
    const unsigned forward = 1u << PHASE_FORWARD, weight = 1u << PHASE_WEIGHT;
    const bool parts = class->schedule->shape.slots[rt_slot_set(RT_SLOT_TO_BACKWARD, 0)] > 0;
    if (!parts || access->elsewhere || access->chunk == SEVERAL) return rt_slot_set(RT_SLOT_WHOLE, owner);
    const enum rt_slot_kind kind = !(access->phases & weight)    ? RT_SLOT_TO_BACKWARD
                                   : !(access->phases & forward) ? RT_SLOT_FROM_BACKWARD
                                                                 : RT_SLOT_WHOLE;
    return rt_slot_set(kind, kind == RT_SLOT_WHOLE ? owner : access->chunk);
}

static bool several_in_use(const struct rank_class *class) {
    return class->nchunks > 1 || class->schedule->shape.slots[0] > 1;
}

/* How many kept values lie in the regions of slots: the first ones of the list. */
static int in_regions(const struct rank_class *class) {
    return several_in_use(class) ? class->kept.n : class->transferred;
}

/* Takes the values that are the same for all micro-batches from the kept ones. They are placed behind the slots. */
static void separate_alike(const struct rankplan *plan, struct rank_class *class) {
    const bool *alike = find_alike(plan);
    int n = class->transferred;
    for (int i = n; i < class->kept.n; i++) {
        const int root = class->kept.at[i];
        if (!alike[root] || plan->shared[root] || !several_in_use(class)) {
            class->kept.at[n++] = root;
            continue;
        }
        class->place[root] = (struct plan_place){RT_ACTIVATIONS, class->alike_bytes};
        class->alike_bytes += rankplan_memory(plan, class, root);
        VEC_PUSH(plan->graph->arena, &class->alike, root);
    }
    class->kept.n = n;
}

void slots_find(const struct rankplan *plan, struct rank_class *class) {
    list_kept(plan, class);
    separate_alike(plan, class);
    const int *owner = find_owners(plan, class);
    const struct access *access = find_root_accesses(plan, class);
    const int *end_set = find_end_sets(plan, class);
    VEC_EACH_VALUE(&class->kept, i, const int root) {
        const int set = i < class->transferred ? end_set[root] : choose_set(class, &access[root], owner[root]);
        int64_t *bytes = &class->slot_bytes[set][arena_of(plan, root)];
        if (i < in_regions(class)) class->place[root] = (struct plan_place){arena_of(plan, root), *bytes, .set = set};
        *bytes += rankplan_memory(plan, class, root);
    }
}

/* Size of a slot of the set in its region. */
static int64_t stride_of(const struct rankplan *plan, const struct rank_class *class, int set, enum rt_arena arena) {
    int64_t bytes = 0;
    for (int i = 0; i < in_regions(class); i++) {
        const struct plan_place *place = &class->place[class->kept.at[i]];
        if (place->arena == (int)arena && place->set == set) bytes += rankplan_memory(plan, class, class->kept.at[i]);
    }
    return bytes;
}

/* Puts the slots of a set behind what lies in the arena. */
static void place_region(const struct rankplan *plan, struct rank_class *class, int set, enum rt_arena arena) {
    const int64_t stride = stride_of(plan, class, set, arena);
    for (int i = 0; i < in_regions(class); i++) {
        struct plan_place *place = &class->place[class->kept.at[i]];
        if (place->arena != (int)arena || place->set != set) continue;
        place->offset += class->bytes[arena];
        place->stride = stride;
    }
    class->bytes[arena] += class->schedule->shape.slots[set] * stride;
}

void slots_place(const struct rankplan *plan, struct rank_class *class) {
    for (int set = 0; set < RT_SLOT_SETS; set++)
        for (int a = 0; a < SLOT_ARENAS; a++) place_region(plan, class, set, arenas[a]);
    VEC_EACH_VALUE(&class->alike, i, const int root) class->place[root].offset += class->bytes[RT_ACTIVATIONS];
    class->bytes[RT_ACTIVATIONS] += class->alike_bytes;
}

/* The slots of a set in an arena: [first, end); empty if it has none. */
struct region {
    int64_t first, end;
};

static void find_regions(const struct rank_class *class, struct region region[RT_SLOT_SETS][RT_ARENAS]) {
    for (int i = 0; i < in_regions(class); i++) {
        const struct plan_place *place = &class->place[class->kept.at[i]];
        struct region *r = &region[place->set][place->arena];
        if (!r->end || place->offset < r->first) r->first = place->offset;
        r->end = r->first + class->schedule->shape.slots[place->set] * place->stride;
    }
}

/* A value in a slot ends in the slot, and no other lies in a region. */
static bool is_apart(const struct rankplan *plan, const struct rank_class *class, int tensor,
                     struct region region[RT_SLOT_SETS][RT_ARENAS]) {
    const struct plan_place *place = &class->place[tensor];
    if (place->offset < 0 || place->arena >= RT_ARENAS) return true;
    const int64_t behind = place->offset + rankplan_room(class, plan->graph, tensor);
    if (place->stride) return behind <= region[place->set][place->arena].first + place->stride;
    for (int set = 0; set < RT_SLOT_SETS; set++) {
        const struct region *r = &region[set][place->arena];
        if (r->end && behind > r->first && place->offset < r->end) return false;
    }
    return true;
}

/* By segment of the graph: the sets of slots, as a bit set, that it reads or writes. */
static const uint64_t *find_accesses(const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    uint64_t *accesses = ARENA_ARRAY(graph->arena, uint64_t, graph->segments.n + 1);
    for (int s = 0; s < class->nsegments; s++) {
        const struct segment *segment = &graph->segments.at[class->segments[s]];
        const struct accessed tensors = accessed_by(graph, segment);
        for (int i = 0; i < tensors.all.n && segment->phase < PHASE_REDUCE; i++) {
            const struct plan_place *place = &class->place[tensors.all.at[i]];
            if (place->offset >= 0 && place->stride) accesses[class->segments[s]] |= UINT64_C(1) << place->set;
        }
    }
    return accesses;
}

/* The chunk's sets of slots, as a bit set, in which a segment of the phase takes a slot (or frees one, if `frees`). */
static uint64_t sets_of(int chunk, enum phase phase, enum phase last_phase, bool frees) {
    uint64_t sets = 0;
    for (int kind = 0; kind < RT_SLOT_KINDS; kind++) {
        const struct slot_span span = schedule_slot_span((enum rt_slot_kind)kind, last_phase);
        if (phase == (frees ? span.last : span.first))
            sets |= UINT64_C(1) << rt_slot_set((enum rt_slot_kind)kind, chunk);
    }
    return sets;
}

/* Walks the table: a segment accesses only slots that its micro-batch has taken and not freed. */
static bool is_held(const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    const int micro_batches = class->schedule->shape.micro_batches;
    const enum phase last = schedule_last_phase(graph);
    const uint64_t *accesses = find_accesses(plan, class);
    uint64_t *held = ARENA_ARRAY(graph->arena, uint64_t, micro_batches + 1); /* by micro-batch: sets, a bit set */
    EACH(class->schedule->ops, class->schedule->nops, i, const struct step_op *op) {
        const enum phase phase = graph->segments.at[op->segment].phase;
        if (op->kind != STEP_RUN || phase >= PHASE_REDUCE) continue;
        held[op->micro] |= sets_of(op->chunk, phase, last, false);
        if (accesses[op->segment] & ~held[op->micro]) return false;
        held[op->micro] &= ~sets_of(op->chunk, phase, last, true);
    }
    return true;
}

int slots_verify(const struct rankplan *plan, const struct rank_class *class, struct diags *diags) {
    const struct graph *graph = plan->graph;
    struct region region[RT_SLOT_SETS][RT_ARENAS] = {{{0}}};
    find_regions(class, region);
    const struct transfer_ends ends = plan->ends[class->coordinate];
    for (int e = 0; e < ends.all.n; e++) {
        const int tensor = ends.all.at[e].tensor;
        if (class->place[tensor].stride &&
            class->place[tensor].set != schedule_end_set(graph, &class->schedule->shape, &ends.all.at[e]))
            return diag_error(diags, 1103, EXIT_INTERNAL, graph->name,
                              "memory plan: '%s' is in a slot of another stage", graph->tensors.at[tensor].name);
    }
    for (int t = 0; t < graph->tensors.n; t++)
        if (!is_apart(plan, class, t, region))
            return diag_error(diags, 1103, EXIT_INTERNAL, graph->name, "memory plan: '%s' overlaps another slot",
                              graph->tensors.at[t].name);
    if (is_held(plan, class)) return 0;
    return diag_error(diags, 1103, EXIT_INTERNAL, graph->name,
                      "schedule %d: a segment reads what another stage of the rank no longer keeps", class->coordinate);
}
