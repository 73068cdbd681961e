/* Prefetches the parameters that ZeRO 3 divides. Each gather of a parameter in forward and backward is divided into a
 * node that starts it and the node that waits for it. The wait stands before the first operator that reads the gathered
 * parameter; the start stands `zero_prefetch` such operators earlier in the phase, or at its beginning. The
 * gathered parameter occupies memory from its start on.
 *
 * Note [Order of gathers]
 * A transport completes the gathers along an axis in the order in which they start. Gathers are therefore sorted by the
 * place of their wait: starts, which are the same distance ahead of each, have the same order. A parameter that is cut
 * along several axes is gathered along one after the other, each the distance ahead of the next. */
#include <stdlib.h>

#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/train/training.h"

/* A gather of a parameter along one axis. A place is the number of an operator among those of the phase and stage that
 * are the first to read a gathered parameter; AT_BEGINNING: before all nodes of the phase and stage. */
struct gather {
    int node;
    int use;         /* place of the operator that reads the complete parameter */
    int later;       /* gathers of the same parameter that follow, along other axes */
    int wait, start; /* places */
};
enum { AT_BEGINNING = -1 };

/* The gathers of one phase and pipeline stage. */
struct prefetch {
    struct graph *graph;
    int distance;
    enum phase phase;
    int stage;
    const int *order; /* as it was, n nodes */
    int n;
    bool *listed; /* per node: it is one of `gathers` */
    int *place;   /* per position of `order`: 1 + the place of the operator there, 0: none */
    bool *kept;   /* per node: it is in the new order */
    VEC(struct gather) gathers;
    int waited, started; /* gathers whose wait, and whose start, is in the new order: the first of the list */
};

static const struct node *node_at(const struct prefetch *p, int id) {
    return &p->graph->nodes.at[id];
}

static int producer_of(const struct prefetch *p, int tensor) {
    return p->graph->tensors.at[tensor].producer;
}

static bool is_here(const struct prefetch *p, const struct node *node) {
    return node->phase == p->phase && node->stage == p->stage;
}

/* True for nodes with one operand that turn a slice of a parameter into a larger slice, the complete parameter, or a
 * slice of another type. */
static bool moves_slice(const struct prefetch *p, int id) {
    const struct node *node = node_at(p, id);
    return is_here(p, node) && (node->op->id == OP_AllGather || node->op->id == OP_Cast) &&
           layout_flat_axes(&p->graph->tensors.at[node->inputs[0]].layout);
}

/* True if the tensor is a stored slice, or is computed from one by such nodes. These can be executed at any place of
 * the phase. */
static bool comes_from_slice(const struct prefetch *p, int tensor) {
    while (producer_of(p, tensor) >= 0) {
        const int producer = producer_of(p, tensor);
        if (!moves_slice(p, producer)) return false;
        tensor = node_at(p, producer)->inputs[0];
    }
    return layout_flat_axes(&p->graph->tensors.at[tensor].layout) != 0;
}

static bool is_gather(const struct prefetch *p, int id) {
    return moves_slice(p, id) && node_at(p, id)->op->id == OP_AllGather &&
           comes_from_slice(p, node_at(p, id)->inputs[0]);
}

/* Finds the operators that are the first to read gathered parameters, and the gathers of these. */
static void find_uses(struct prefetch *p) {
    int places = 0;
    for (int i = 0; i < p->n; i++) {
        const struct node *node = node_at(p, p->order[i]);
        if (!is_here(p, node) || is_gather(p, p->order[i])) continue;
        for (int k = 0; k < node->ninputs; k++) {
            const int gather = node->inputs[k] < 0 ? -1 : producer_of(p, node->inputs[k]);
            if (gather < 0 || !is_gather(p, gather)) continue;
            if (p->listed[gather]) continue; /* an earlier operator, or operand, reads it */
            if (!p->place[i]) p->place[i] = ++places;
            VEC_PUSH(p->graph->arena, &p->gathers, (struct gather){.node = gather, .use = p->place[i] - 1});
            p->listed[gather] = true;
        }
    }
}

/* Adds the gathers along other axes whose results the gathers read. */
static void find_earlier_axes(struct prefetch *p) {
    VEC_EACH_VALUE(&p->gathers, i, const struct gather gather) {
        int id = gather.node;
        do id = producer_of(p, node_at(p, id)->inputs[0]);
        while (id >= 0 && node_at(p, id)->op->id != OP_AllGather);
        if (id < 0 || p->listed[id]) continue;
        VEC_PUSH(p->graph->arena, &p->gathers,
                 (struct gather){.node = id, .use = gather.use, .later = gather.later + 1});
        p->listed[id] = true;
    }
}

static int earlier(int place, int distance) {
    return place - distance > AT_BEGINNING ? place - distance : AT_BEGINNING;
}

static int by_wait(const void *a, const void *b) {
    const struct gather *x = a, *y = b;
    if (x->wait != y->wait) return x->wait - y->wait;
    if (x->use != y->use) return x->use - y->use;
    return x->later != y->later ? y->later - x->later : x->node - y->node;
}

/* Sorts the gathers by their waits. They are then sorted by their starts too, each the same distance ahead. */
static void choose_places(struct prefetch *p) {
    VEC_EACH(&p->gathers, i, struct gather *const gather) {
        gather->wait = gather->use;
        for (int k = 0; k < gather->later; k++) gather->wait = earlier(gather->wait, p->distance);
        gather->start = earlier(gather->wait, p->distance);
    }
    if (p->gathers.n) qsort(p->gathers.at, (size_t)p->gathers.n, sizeof *p->gathers.at, by_wait);
}

static void keep(const struct prefetch *p, int id) {
    if (!p->kept[id]) VEC_PUSH(p->graph->arena, &p->graph->order, id);
    p->kept[id] = true;
}

/* Keeps the nodes from which the slice is computed. */
static void keep_slice(const struct prefetch *p, int slice) {
    const int producer = producer_of(p, slice);
    if (producer < 0 || p->kept[producer]) return;
    keep_slice(p, node_at(p, producer)->inputs[0]);
    keep(p, producer);
}

/* Adds the node that starts the gather. */
static void add_start(const struct prefetch *p, int id) {
    struct graph *graph = p->graph;
    int slice = graph->nodes.at[id].inputs[0];
    struct node start = graph->nodes.at[id];
    struct attr mesh = attr_of_int("mesh", attr_int(&start, "mesh", 0));
    keep_slice(p, slice);
    int out = graph_add_like(graph, slice, ".start");
    start.op = &ops[OP_AllGatherStart], start.inputs = &slice, start.outputs = &out;
    start.nattrs = 1, start.attrs = &mesh, start.origin = -1;
    graph_add_copy(graph, &start);
    graph->nodes.at[id].inputs[0] = out;
    attr_set(graph, &graph->nodes.at[id], attr_of_int("begun", 1));
}

/* Adds the waits of the place, then its starts. At the beginning of a phase, the gather of a parameter along one axis
 * is complete before that along the next axis starts. */
static void put_gathers(struct prefetch *p, int place) {
    for (; p->waited < p->gathers.n && p->gathers.at[p->waited].wait == place; p->waited++)
        if (place != AT_BEGINNING) keep(p, p->gathers.at[p->waited].node);
    for (; p->started < p->gathers.n && p->gathers.at[p->started].start == place; p->started++) {
        const struct gather *gather = &p->gathers.at[p->started];
        add_start(p, gather->node);
        if (gather->wait == AT_BEGINNING) keep(p, gather->node);
    }
}

/* Builds the new order. */
static void put_order(struct prefetch *p) {
    bool begun = false;
    EACH_VALUE(p->order, p->n, i, const int id) {
        const bool here = is_here(p, node_at(p, id));
        if (here && !begun) put_gathers(p, AT_BEGINNING);
        if (p->place[i]) put_gathers(p, p->place[i] - 1);
        if (!p->listed[id]) keep(p, id);
        begun = begun || here;
    }
}

static void prefetch(struct graph *graph, int distance, enum phase phase, int stage) {
    struct arena *arena = graph->arena;
    struct prefetch p = {.graph = graph, .distance = distance, .phase = phase, .stage = stage};
    p.order = graph->order.at;
    p.n = graph->order.n;
    p.listed = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    p.place = ARENA_ARRAY(arena, int, graph->order.n + 1);
    find_uses(&p);
    if (!p.gathers.n) return;
    find_earlier_axes(&p);
    choose_places(&p);
    p.kept = ARENA_ARRAY(arena, bool, graph->nodes.n + p.gathers.n + 1);
    graph_take_order(graph, &p.n);
    put_order(&p);
}

int pass_prefetch(struct graph *graph, const struct pass_context *context) {
    const int ahead = (int)context->decisions.zero_prefetch;
    if (!context->training || context->decisions.zero < ZERO_PARAMETERS || !ahead) return 0;
    for (int stage = STAGE_ALL; stage < schedule_chunks(graph); stage++) {
        prefetch(graph, ahead, PHASE_FORWARD, stage);
        prefetch(graph, ahead, PHASE_BACKWARD, stage);
    }
    return 0;
}
