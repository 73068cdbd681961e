#include "passes/rank/estimate.h"

#include <limits.h>
#include <math.h>

#include "passes/plan/machine/kernel_time.h"
#include "passes/plan/machine/moves.h"
#include "passes/rank/reuse.h"

/* What an estimate is made from. */
struct estimation {
    const struct rankplan *plan;
    const struct machine *machine;
    int units, groups;
    const int *first; /* per coordinate: its first shard */
    bool alone;       /* one rank at a time computes */
    /* per tensor, of a walk through a segment: seconds of computing before its collective, 0: it is not in the segment;
     * seconds of the gather */
    double *begun_at, *gathering;
    struct span *executed; /* per class: operations of a step */
};

/* True if the output replaces an operand. */
static bool overwrites(const struct kernel *kernel, int output) {
    const struct node *node = kernel->node;
    const struct rank_class *class = kernel->memory->class;
    if (node->op->kind == OP_ELEMENTWISE) return rankplan_in_place(class, kernel->graph, node, output) >= 0;
    if (node->op->kind != OP_COMM) return false;
    const struct plan_place *to = &class->place[node->outputs[output]], *from = &class->place[op_moved_input(node)];
    return to->arena == from->arena && to->offset == from->offset;
}

/* The node as a rank of the class executes it. */
static struct kernel kernel_of(const struct estimation *e, const struct rank_class *class, const struct node *node,
                               const struct kernel_memory *memory) {
    return (struct kernel){.graph = e->plan->graph,
                           .node = node,
                           .split = node ? node->split : NULL,
                           .extents = class->dims,
                           .units = e->units / e->groups,
                           .machine = e->machine,
                           .alone = e->alone,
                           .memory = memory};
}

static double bytes_of(const struct estimation *e, const struct rank_class *class, int tensor) {
    const struct kernel kernel = kernel_of(e, class, NULL, NULL);
    return kernel_bytes(&kernel, tensor);
}

/* Ranks along the mesh axis at a pipeline coordinate, and the difference between the numbers of two neighbours. */
static double ranks_along(const struct estimation *e, int coordinate, int axis, double *stride) {
    const struct mesh *mesh = &e->plan->graph->mesh;
    const int replica = axis - mesh->naxes;
    *stride = replica < 0 ? mesh_stride(mesh, axis, coordinate) : mesh_size(mesh);
    if (replica < 0) return mesh->axis[axis].size;
    if (replica == 1) *stride *= (double)e->units / e->groups;
    return mesh->nreplicas == 1 ? e->units : replica == 0 ? (double)e->units / e->groups : e->groups;
}

/* Seconds in which a gather reads its slice from the host's memory. */
static double fetching_seconds(const struct estimation *e, const struct rank_class *class, const struct node *node) {
    const struct graph *graph = e->plan->graph;
    const struct node *start = made_by(graph, op_moved_input(node), OP_AllGatherStart);
    const int slice = op_moved_input(start ? start : node);
    return graph->tensors.at[slice].host ? bytes_of(e, class, slice) / e->machine->host_bandwidth : 0;
}

/* Seconds of the collective, if nothing else is done. */
static double seconds_of(const struct estimation *e, const struct rank_class *class, const struct node *node) {
    const int moved = op_moved_input(node), result = node->outputs[0];
    double stride;
    const double ranks = ranks_along(e, class->coordinate, (int)attr_int(node, "mesh", 0), &stride);
    const struct machine_group group = {e->machine, ranks, stride};
    return moves_seconds(&group, node->op, bytes_of(e, class, moved), bytes_of(e, class, result),
                         (double)attr_int(node, "runs", 1)) +
           fetching_seconds(e, class, node);
}

/* Per coordinate: its first shard. */
static int *first_shards(const struct rankplan *plan) {
    const int coordinates = schedule_coordinates(plan->graph);
    int *first = ARENA_ARRAY(plan->graph->arena, int, coordinates);
    for (int c = 0; c < coordinates; c++) first[c] = INT_MAX;
    for (int c = 0; c < plan->nclasses; c++) {
        int *of = &first[plan->classes[c].coordinate];
        if (plan->classes[c].shard < *of) *of = plan->classes[c].shard;
    }
    return first;
}

/* The same for a message from one stage to another, by a class that receives it. */
static double message_seconds(const struct estimation *e, const struct rank_class *class, const struct node *node) {
    const struct graph *graph = e->plan->graph;
    const int from = e->first[schedule_home(graph, (int)attr_int(node, "from", 0))],
              to = e->first[schedule_home(graph, (int)attr_int(node, "to", 0))];
    const struct machine_group group = machine_pair(e->machine, from < to ? from : to, from < to ? to : from);
    return machine_collective(&group, COLLECTIVE_SEND, bytes_of(e, class, node->outputs[0]), 1);
}

/* Per node: seconds of the messages that schedules post. `of`: the class that stands for each coordinate. */
static double *find_messages(const struct estimation *e, const struct rank_class *const *of) {
    const struct graph *graph = e->plan->graph;
    double *seconds = ARENA_ARRAY(graph->arena, double, graph->nodes.n + 1);
    GRAPH_EACH_ID(graph, id, const struct node *node)
        if (schedule_posts(graph, node)) seconds[id] = message_seconds(e, of[schedule_home(graph, node->stage)], node);
    return seconds;
}

/* The same for ring attention: the other ranks' keys and values, and sums of gradients, come to the rank. */
static double ring_seconds(const struct estimation *e, const struct rank_class *class, const struct node *node) {
    int tensors[4];
    double stride, bytes = 0;
    const double ranks = ranks_along(e, class->coordinate, (int)attr_int(node, "mesh", 0), &stride);
    const struct machine_group group = {e->machine, ranks, stride};
    const int n = op_ring_tensors(node, tensors);
    for (int i = 0; i < n; i++) bytes += bytes_of(e, class, tensors[i]);
    return ranks * machine_exchange(&group, COLLECTIVE_SEND, (ranks - 1) / ranks, bytes, n / 2);
}

/* What a rank does in a segment. Collectives that were begun in an earlier node take place beside what is computed
 * in between; `begun` are those that an earlier segment began. Of a product in runs of rows, the sum of the last run is
 * not hidden. */
struct span {
    double computing, communicating, hidden, begun;
    double flops, causal_flops, by_type[MACHINE_TYPES];
    double by_part[KERNEL_PARTS]; /* of `computing` */
};

static void add_operations(struct span *all, double times, const struct span *span) {
    all->flops += times * span->flops;
    all->causal_flops += times * span->causal_flops;
    for (int t = 0; t < MACHINE_TYPES; t++) all->by_type[t] += times * span->by_type[t];
}

static double length_of(const struct span *span) {
    return span->computing + span->communicating;
}

/* A rank's way through a segment. The links are busy until `busy_until`, in seconds of computing: while nothing is
 * computed, they are waited for. */
struct walk {
    const struct estimation *e;
    const struct rank_class *class;
    struct kernel_memory memory;
    struct span span;
    double busy_until;
};

/* Adds a collective that began at a place of what is computed. Collectives take place one after the other on the links,
 * beside what was computed since. */
static void add_begun(struct walk *walk, double began, double seconds, double runs) {
    const double begin = began > walk->busy_until ? began : walk->busy_until;
    const double most = runs > 1 ? seconds * (1 - 1 / runs) : seconds;
    const double hidden = machine_hidden(walk->e->machine, walk->span.computing - begin, most);
    walk->busy_until = fmin(begin + seconds, walk->span.computing);
    walk->span.hidden += hidden;
    walk->span.communicating += seconds - hidden;
}

/* Adds a node that computes. A product in runs of rows begins its sum behind the first run, and waits for its operand's
 * gather before the last. */
static void add_work(struct walk *walk, const struct node *node) {
    const struct estimation *e = walk->e;
    struct span *span = &walk->span;
    const struct kernel kernel = kernel_of(e, walk->class, node, &walk->memory);
    const struct kernel_work work = kernel_work(&kernel);
    const double runs = (double)attr_int(node, "runs", 1), last = work.seconds / runs;
    span->computing += work.seconds - last;
    walk->e->begun_at[node->outputs[0]] = 1e-30 + span->computing - (work.seconds - 2 * last);
    if (attr_find(node, "gather_axis"))
        add_begun(walk, walk->e->begun_at[node->inputs[0]], walk->e->gathering[node->inputs[0]], runs);
    span->computing += last;
    span->flops += work.flops;
    span->causal_flops += work.causal_flops;
    span->by_type[work.type] += work.flops;
    span->by_part[work.part] += work.seconds - work.launching;
    span->by_part[KERNEL_LAUNCH] += work.launching;
}

/* Seconds that a collective takes because its operands are not in caches. */
static double moving_of(const struct walk *walk, const struct node *node) {
    const struct kernel kernel = kernel_of(walk->e, walk->class, node, &walk->memory);
    return walk->memory.reuse ? collective_moving(&kernel) : 0;
}

static void add_node(struct walk *walk, const struct node *node) {
    const bool gathers = node->op->id == OP_AllGather && attr_int(node, "runs", 1) > 1;
    const bool starts = gathers || node->op->id == OP_AllGatherStart || node->op->id == OP_AllReduceStart ||
                        node->op->id == OP_ReduceScatterStart;
    if (node->op->ring) {
        add_work(walk, node);
        walk->span.communicating += ring_seconds(walk->e, walk->class, node);
    } else if (starts) {
        walk->e->begun_at[node->outputs[0]] = 1e-30 + walk->span.computing;
        if (gathers) walk->e->gathering[node->outputs[0]] = seconds_of(walk->e, walk->class, node);
    } else if (node->op->id == OP_Transfer) { /* else find_messages has it */
        if (!schedule_posts(walk->e->plan->graph, node) && rankplan_part(walk->class, node) & STAGE_WRITES)
            walk->span.communicating += message_seconds(walk->e, walk->class, node);
    } else if (op_communicates(node->op)) {
        const double seconds = seconds_of(walk->e, walk->class, node) + moving_of(walk, node);
        const double began = attr_int(node, "begun", 0) ? walk->e->begun_at[op_moved_input(node)] : -1;
        if (began == 0)
            walk->span.begun += seconds;
        else if (began < 0)
            walk->span.communicating += seconds;
        else
            add_begun(walk, began, seconds, (double)attr_int(node, "runs", 1));
    } else {
        add_work(walk, node);
    }
}

static struct span span_of(const struct estimation *e, const struct rank_class *class, const struct segment *segment,
                           struct reuse *reuse) {
    const struct graph *graph = e->plan->graph;
    struct walk walk = {.e = e, .class = class, .memory = {class, reuse, overwrites, reuse_byte_seconds}};
    for (int i = segment->first; i < segment->end; i++) {
        const int id = graph->order.at[i];
        const struct node *node = &graph->nodes.at[id];
        if (!rankplan_part(class, node) || e->plan->moves_nothing[id] || node->op->kind == OP_VIEW) continue;
        if (segment->phase < PHASE_REDUCE && stage_part(node, segment->chunk) == STAGE_NONE) continue;
        add_node(&walk, node);
        if (reuse) reuse_touch(reuse, node);
    }
    for (int i = segment->first; i < segment->end; i++) {
        const int result = graph->nodes.at[graph->order.at[i]].outputs[0];
        e->begun_at[result] = e->gathering[result] = 0;
    }
    return walk.span;
}

/* Products of the forward phase of the whole model, in a micro-batch of a scale unit. */
static struct kernel_work forward_products(const struct graph *graph) {
    struct kernel_work sum = {0};
    GRAPH_EACH(graph, i, const struct node *node) {
        struct dims dims;
        if (node->phase != PHASE_FORWARD || dims_bind(graph->arena, graph, node, &dims, NULL) < 0 ||
            !kernel_is_product(node, &dims))
            continue;
        const double flops = dims_flops(&dims, node->op->flops);
        sum.flops += flops;
        sum.causal_flops += op_is_attention(node->op) && attr_int(node, "causal", 0) ? flops / 2 : flops;
    }
    return sum;
}

/* Per segment and class of its coordinate: the spans. The class that works longest stands for a coordinate. */
static const struct rank_class *slowest(const struct estimation *e, int coordinate, int micro_batches,
                                        struct span *spans) {
    const struct rankplan *plan = e->plan;
    const struct rank_class *found = NULL;
    struct span *tried = ARENA_ARRAY(plan->graph->arena, struct span, plan->graph->segments.n + 1);
    const bool caches = e->machine->by_size.n > 0; /* else memory is as fast for all distances */
    double longest = -1;
    EACH(plan->classes, plan->nclasses, c, const struct rank_class *class) {
        double seconds = 0;
        if (class->coordinate != coordinate) continue;
        struct reuse reuse = caches ? reuse_begin(plan->graph, class, plan->graph->arena) : (struct reuse){0};
        for (int s = 0; s < class->nsegments; s++) {
            const struct segment *segment = &plan->graph->segments.at[class->segments[s]];
            tried[s] = span_of(e, class, segment, caches ? &reuse : NULL);
            const double times = segment->phase >= PHASE_REDUCE ? 1 : micro_batches;
            seconds += times * length_of(&tried[s]);
            add_operations(&e->executed[c], times, &tried[s]);
        }
        if (seconds <= longest) continue;
        longest = seconds, found = class;
        for (int s = 0; s < class->nsegments; s++) spans[class->segments[s]] = tried[s];
    }
    return found;
}

/* Operations of all ranks in a step. */
static void count_executed(const struct estimation *e, struct estimate *estimate) {
    const struct rankplan *plan = e->plan;
    const int shards = mesh_size(&plan->graph->mesh);
    const struct span *of_class = e->executed;
    double most = -1;
    for (int t = 0; t < MACHINE_TYPES; t++) {
        double flops = 0;
        for (int c = 0; c < plan->nclasses; c++) flops += of_class[c].by_type[t];
        if (flops > most) most = flops, estimate->peak_rate = e->machine->peak[t];
    }
    for (int shard = 0; shard < shards; shard++) {
        const int c = rankplan_class_of(plan, shard);
        estimate->executed_flops += e->units * of_class[c].flops;
        estimate->executed_flops_causal += e->units * of_class[c].causal_flops;
    }
}

/* Seconds of the phases of micro-batches. Stages of inference of one micro-batch have no posted transfers that the
 * simulation could wait for: the samples pass through one stage after the other. */
static double walk_of(const struct graph *graph, const struct timeline *timeline) {
    double seconds = 0;
    if (graph_overlaps_stages(graph)) return timeline->end;
    for (int c = 0; c < schedule_coordinates(graph); c++) seconds += timeline->busy[c];
    return seconds;
}

/* Multiplies the times by the factor between measured steps of this machine and their estimates. */
static void correct(struct estimate *estimate, double factor) {
    double *const seconds[] = {&estimate->step,           &estimate->computing, &estimate->updating,
                               &estimate->communicating,  &estimate->hidden,    &estimate->summing,
                               &estimate->summing_hidden, &estimate->waiting};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) *seconds[i] *= factor;
    for (int p = 0; p < KERNEL_PARTS; p++) estimate->by_part[p] *= factor;
}

static struct estimation estimation_of(const struct rankplan *plan, const struct machine *machine, int units,
                                       int groups) {
    const struct graph *graph = plan->graph;
    const int coordinates = schedule_coordinates(graph);
    const bool in_turn = !graph_trains(graph) && coordinates == mesh_size(&graph->mesh);
    return (struct estimation){plan,
                               machine,
                               units,
                               groups,
                               .first = first_shards(plan),
                               .alone = units == 1 && (coordinates == 1 ? mesh_size(&graph->mesh) == 1 : in_turn),
                               .begun_at = ARENA_ARRAY(graph->arena, double, graph->tensors.n + 1),
                               .gathering = ARENA_ARRAY(graph->arena, double, graph->tensors.n + 1),
                               .executed = ARENA_ARRAY(graph->arena, struct span, plan->nclasses + 1)};
}

/* Sets per segment what the ranks of its coordinate that work longest do in it, and simulates the schedule. */
static void simulate(const struct estimation *e, int micro_batches, struct span *spans, struct timeline *timeline) {
    const struct graph *graph = e->plan->graph;
    const int coordinates = schedule_coordinates(graph);
    const struct rank_class **of = ARENA_ARRAY(graph->arena, const struct rank_class *, coordinates);
    double *seconds = ARENA_ARRAY(graph->arena, double, graph->segments.n + 1);
    for (int c = 0; c < coordinates; c++) of[c] = slowest(e, c, micro_batches, spans);
    for (int s = 0; s < graph->segments.n; s++) seconds[s] = length_of(&spans[s]);
    const struct timeline_times given = {.seconds = seconds, .messages = find_messages(e, of)};
    if (timeline_simulate(graph, micro_batches, &given, timeline))
        BUG("the schedule of a verified graph does not complete");
}

void estimate_timeline(const struct rankplan *planned, const struct machine *machine, int micro_batches,
                       struct timeline *timeline) {
    const struct rankplan *plan = rankplan_typical(planned, planned->graph->arena);
    const struct estimation e = estimation_of(plan, machine, 1, 1);
    simulate(&e, micro_batches, ARENA_ARRAY(plan->graph->arena, struct span, plan->graph->segments.n + 1), timeline);
}

struct estimate estimate_step(const struct rankplan *planned, const struct machine *machine, int units, int groups,
                              int micro_batches) {
    const struct rankplan *plan = rankplan_typical(planned, planned->graph->arena);
    const struct graph *graph = plan->graph;
    const int coordinates = schedule_coordinates(graph);
    const bool overlaps = graph_overlaps_stages(graph);
    const struct estimation e = estimation_of(plan, machine, units, groups);
    const double times = graph_trains(graph) ? 3 : 1;
    struct span *spans = ARENA_ARRAY(graph->arena, struct span, graph->segments.n + 1);
    double longest = -1;
    struct estimate estimate = {0};
    struct timeline timeline;
    simulate(&e, micro_batches, spans, &timeline);
    for (int c = 0; c < coordinates; c++) {
        struct span once = {0}, repeated = {0};
        VEC_EACH(&graph->segments, s, const struct segment *segment) {
            if (schedule_home(graph, segment->chunk) != c) continue;
            struct span *to = segment->phase >= PHASE_REDUCE ? &once : &repeated;
            to->computing += spans[s].computing, to->communicating += spans[s].communicating;
            to->hidden += spans[s].hidden, to->begun += spans[s].begun;
            for (int p = 0; p < KERNEL_PARTS; p++) to->by_part[p] += spans[s].by_part[p];
        }
        const double exposed = once.begun - machine_hidden(machine, repeated.computing, once.begun);
        const double moving = overlaps ? timeline.moving[c] : 0;
        const double working = length_of(&once) + exposed + micro_batches * length_of(&repeated);
        estimate.step = fmax(estimate.step, walk_of(graph, &timeline) + length_of(&once) + exposed);
        if (working <= longest) continue;
        longest = working;
        estimate.updating = once.computing, estimate.summing = once.communicating + exposed;
        estimate.summing_hidden = once.begun - exposed;
        estimate.computing = once.computing + micro_batches * repeated.computing;
        for (int p = 0; p < KERNEL_PARTS; p++)
            estimate.by_part[p] = once.by_part[p] + micro_batches * repeated.by_part[p];
        estimate.communicating = once.communicating + exposed + micro_batches * repeated.communicating + moving;
        estimate.hidden = estimate.summing_hidden + micro_batches * repeated.hidden;
    }
    estimate.waiting = fmax(0, estimate.step - estimate.computing - estimate.communicating); /* rounding */
    correct(&estimate, machine->correction);
    estimate.bubble = coordinates > 1 ? timeline_bubble(&timeline, coordinates) : 0;
    const struct kernel_work forward = forward_products(graph);
    estimate.model_flops = times * forward.flops * micro_batches * units;
    estimate.model_flops_causal = times * forward.causal_flops * micro_batches * units;
    count_executed(&e, &estimate);
    for (int c = 0; c < plan->nclasses; c++) {
        int64_t parts[RT_ARENAS];
        const int64_t bytes = rankplan_peak(plan, &plan->classes[c], units, groups, parts);
        if (bytes > estimate.memory) estimate.memory = bytes;
    }
    return estimate;
}
