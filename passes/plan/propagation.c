#include "passes/plan/propagation.h"

#include <string.h>

#include "passes/plan/constrain/constraints.h"
#include "passes/plan/stages.h"

enum { MAX_RESTARTS = 24 };

/* A tensor that propagation has reached, and how it is to be split. */
struct request {
    int tensor, dim;
    int64_t blocks, grain;
};

/* An attempt at propagation. Splits are written to the draft at once, and taken back if the attempt fails. */
struct attempt {
    struct propagation *propagation;
    enum propagation_mode mode;
    bool keep_sources;            /* a producer that cannot be split so stays whole, and its reader takes a slice */
    bool ends_at_kernels;         /* operands of nodes that are neither elementwise nor views are not followed */
    VEC(struct request) requests; /* one per tensor, served ones included */
    VEC(int) nodes;               /* split by this attempt */
    bool failed;
    VEC(struct cut_option) finer; /* factors for blocks and granule at the origin that might lead to success */
};

static void list_updates(struct propagation *propagation) {
    const struct graph *graph = propagation->graph;
    propagation->update = ARENA_ARRAY(propagation->arena, int, graph->tensors.n + 1);
    propagation->next_update = ARENA_ARRAY(propagation->arena, int, graph->updates.n + 1);
    for (int i = graph->updates.n - 1; i >= 0; i--) {
        int *first = &propagation->update[graph->updates.at[i].weight];
        propagation->next_update[i] = *first;
        *first = i + 1;
    }
}

void propagation_init(struct propagation *propagation, struct draft *draft, struct arena *arena, int axis) {
    const struct graph *graph = draft->graph;
    *propagation =
        (struct propagation){.graph = graph, .split = draft->split, .draft = draft, .arena = arena, .axis = axis};
    propagation->ways = axis < graph->mesh.naxes ? graph->mesh.axis[axis].size : 1;
    propagation->uses = graph_uses(graph, arena);
    list_updates(propagation);
    propagation->dims = ARENA_ARRAY(arena, struct dims *, graph->nodes.n + 1);
    propagation->decided = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    propagation->requested = ARENA_ARRAY(arena, int, graph->tensors.n + 1);
    propagation->closed = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    for (int id = 0; id < graph->nodes.n && draft->fixed; id++)
        propagation->decided[id] = propagation_is_fixed(propagation, id);
    if (axis < graph->mesh.naxes && graph->mesh.axis[axis].end) propagation->lacking = stages_lacking(draft);
}

struct propagation *propagation_typical(struct propagation *propagation) {
    const struct graph *graph = propagation->graph;
    if (!graph->open) return propagation;
    struct propagation *typical = ARENA_NEW(propagation->arena, struct propagation);
    *typical = *propagation;
    typical->graph = graph_typical(graph, propagation->arena);
    typical->dims = ARENA_ARRAY(propagation->arena, struct dims *, graph->nodes.n + 1);
    typical->split = arena_alloc(propagation->arena, (size_t)graph->nodes.n + 1, sizeof *typical->split);
    memcpy(typical->split, propagation->split, (size_t)graph->nodes.n * sizeof *typical->split);
    const int64_t *sizes = graph_typical_sizes(graph);
    for (int i = 0; i < graph->order.n; i++)
        for (int axis = 0; axis < RT_MAX_AXES; axis++)
            split_at(graph, &typical->split[graph->order.at[i]][axis], sizes);
    return typical;
}

bool propagation_is_fixed(const struct propagation *propagation, int node) {
    const struct draft *draft = propagation->draft;
    return draft->fixed && draft->fixed[node][propagation->axis];
}

const struct dims *propagation_dims(struct propagation *propagation, int node) {
    const char *why;
    if (propagation->dims[node]) return propagation->dims[node];
    struct dims *dims = propagation->dims[node] = ARENA_NEW(propagation->arena, struct dims);
    if (dims_bind(propagation->arena, propagation->graph, &propagation->graph->nodes.at[node], dims, &why) < 0)
        BUG("%s: %s", node_place(propagation->graph, node), why);
    return dims;
}

static struct node_split *split_of(struct propagation *propagation, int node) {
    return &propagation->split[node][propagation->axis];
}

bool propagation_lacks_axis(const struct propagation *propagation, int node) {
    return propagation->lacking && propagation->lacking[node] >> propagation->axis & 1u;
}

static bool may_split(struct propagation *propagation, int node, const struct node_split *split) {
    const struct dims *dims = propagation_dims(propagation, node);
    if (propagation_lacks_axis(propagation, node)) return false;
    if (!dims_can_split(dims, split, propagation->ways) ||
        !op_can_split(propagation->graph->nodes.at[node].op, dims, split))
        return false;
    const struct limits *limits = propagation->draft->limits;
    if (limits && !limits_allow(limits, node, dims, split)) return false;
    if (split_open_refused(propagation->graph, dims, propagation->split[node], propagation->axis, split)) return false;
    if (split_other_axis(propagation->split[node], dims, propagation->axis, split) < 0) return true;
    return propagation->nests &&
           dims_can_nest(dims, &propagation->graph->mesh, propagation->split[node], propagation->axis, split);
}

const char *propagation_refuses(struct propagation *propagation, int node, const struct node_split *split) {
    const struct graph *graph = propagation->graph;
    const struct dims *dims = propagation_dims(propagation, node);
    const int other = split_other_axis(propagation->split[node], dims, propagation->axis, split);
    const struct limits *limits = propagation->draft->limits;
    if (propagation_lacks_axis(propagation, node)) return "its pipeline stage does not have the axis";
    if (limits && !limits_allow(limits, node, dims, split)) return "a constraint does not allow it";
    if (other < 0 || propagation->nests)
        return split_refused(graph, dims, propagation->split[node], propagation->axis, split);
    return arena_printf(graph->arena, "it is already split along %s", graph->mesh.axis[other].name);
}

static void request_part(struct attempt *attempt, int tensor, const struct placement *part) {
    struct request request = {tensor, part->dim, part->blocks, part->grain};
    int before = attempt->propagation->requested[tensor];
    if (!before) {
        VEC_PUSH(attempt->propagation->arena, &attempt->requests, request);
        attempt->propagation->requested[tensor] = attempt->requests.n;
        return;
    }
    const struct request *had = &attempt->requests.at[before - 1];
    if (had->dim == request.dim && had->blocks == request.blocks && had->grain == request.grain) return;
    /* Two granules for one dimension: the granule at the origin must be a multiple of both. */
    if (had->dim == request.dim && had->blocks == request.blocks) {
        int64_t larger = had->grain > request.grain ? had->grain : request.grain;
        int64_t smaller = had->grain > request.grain ? request.grain : had->grain;
        if (larger % smaller == 0)
            VEC_PUSH(attempt->propagation->arena, &attempt->finer,
                     (struct cut_option){.more_blocks = 1, .more_grain = larger / smaller});
    }
    attempt->failed = attempt->mode == PROPAGATE_STRICT;
}

/* A window (halo) can be made of any parts of the dimension: requests equal parts unless there is a request. */
static void request_source(struct attempt *attempt, int tensor, const struct placement *window) {
    const struct placement part = {.kind = PLACED_PART, .dim = window->dim, .blocks = 1, .grain = 1};
    if (!attempt->propagation->requested[tensor]) request_part(attempt, tensor, &part);
}

/* Cuts the node, and requests for all its computed operands that hold the factor. */
static void split_node(struct attempt *attempt, int node, const struct node_split *split) {
    struct propagation *propagation = attempt->propagation;
    const struct dims *dims = propagation_dims(propagation, node);
    const struct node *n = &propagation->graph->nodes.at[node];
    dims_nest(propagation->split[node], propagation->graph->mesh.naxes, propagation->axis, split);
    propagation->decided[node] = true;
    VEC_PUSH(propagation->arena, &attempt->nodes, node);
    const bool ends = attempt->ends_at_kernels && n->op->kind != OP_ELEMENTWISE && n->op->kind != OP_VIEW;
    for (int o = ends ? dims->ninputs : 0; o < dims->ninputs + dims->noutputs && !attempt->failed; o++) {
        int k = o < dims->ninputs ? o : o - dims->ninputs;
        if (o < dims->ninputs ? k >= n->ninputs : k >= n->noutputs) continue;
        int tensor = o < dims->ninputs ? n->inputs[k] : n->outputs[k];
        struct placement placement = dims_placement(dims, o, split);
        if (tensor < 0 || tensor_is_stored(&propagation->graph->tensors.at[tensor])) continue;
        if (placement.kind == PLACED_PART) request_part(attempt, tensor, &placement);
        if (placement.kind == PLACED_WINDOW) request_source(attempt, tensor, &placement);
    }
}

/* Splits the node so that its operand number `operand` is split as requested; false if that is not possible. */
static bool follow(struct attempt *attempt, int node, int operand, const struct request *request) {
    struct propagation *propagation = attempt->propagation;
    const struct dims *dims = propagation_dims(propagation, node);
    if (propagation->decided[node]) {
        struct placement held = dims_placement(dims, operand, split_of(propagation, node));
        if (held.kind == PLACED_WINDOW) return held.dim == request->dim;
        return held.kind == PLACED_PART && held.dim == request->dim && held.blocks == request->blocks &&
               held.grain == request->grain;
    }
    if (attempt->mode == PROPAGATE_GATHER && propagation->closed[node]) return false;
    struct cut_option options[RT_MAX_NDIM];
    int n = dims_cut_options(dims, operand, request->dim, request->blocks, request->grain, options);
    for (int i = 0; i < n; i++) {
        if (options[i].more_blocks != 1 || options[i].more_grain != 1 ||
            !may_split(propagation, node, &options[i].split))
            continue;
        split_node(attempt, node, &options[i].split);
        return true;
    }
    for (int i = 0; i < n; i++)
        if (options[i].more_blocks != 1 || options[i].more_grain != 1)
            VEC_PUSH(propagation->arena, &attempt->finer, options[i]);
    return false;
}

/* The number of the result `tensor` among the operands of the node's annotation. */
static int result_operand(struct propagation *propagation, int node, int tensor) {
    const struct node *n = &propagation->graph->nodes.at[node];
    int k = 0;
    while (n->outputs[k] != tensor) k++;
    return propagation_dims(propagation, node)->ninputs + k;
}

static void serve(struct attempt *attempt, struct request request) {
    struct propagation *propagation = attempt->propagation;
    const struct graph *graph = propagation->graph;
    int producer = graph->tensors.at[request.tensor].producer;
    if (producer >= 0) {
        int known = attempt->finer.n;
        const int result = result_operand(propagation, producer, request.tensor);
        bool follows = follow(attempt, producer, result, &request);
        if (!follows && (attempt->keep_sources || attempt->finer.n == known)) {
            attempt->finer.n = known;
            if (propagation->decided[producer] && attempt->mode == PROPAGATE_STRICT) {
                struct placement held =
                    dims_placement(propagation_dims(propagation, producer), result, split_of(propagation, producer));
                attempt->failed = attempt->failed || held.kind != PLACED_WHOLE;
            }
            return; /* it is computed whole, and sliced for the reader that is split */
        }
        if (!follows) attempt->failed = true;
    }
    for (int u = propagation->uses.first[request.tensor];
         u < propagation->uses.first[request.tensor + 1] && !attempt->failed; u++) {
        int reader = propagation->uses.users[u];
        int operand = node_operand(&graph->nodes.at[reader], request.tensor);
        const bool gathers = attempt->mode == PROPAGATE_GATHER || graph->nodes.at[reader].op->id == OP_Whole;
        if (!follow(attempt, reader, operand, &request) && !gathers) attempt->failed = true;
    }
}

static void take_back(struct attempt *attempt) {
    for (int i = 0; i < attempt->nodes.n; i++) {
        *split_of(attempt->propagation, attempt->nodes.at[i]) =
            (struct node_split){.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
        attempt->propagation->decided[attempt->nodes.at[i]] = false;
    }
}

/* Where propagation starts: a factor of a node, or a dimension of an input of the graph (node -1). */
struct origin {
    int node, factor;
    int tensor, dim;
    enum propagation_mode mode;
    bool ends_at_kernels; /* struct attempt */
};

static bool start(struct attempt *attempt, const struct origin *origin, int64_t blocks, int64_t grain) {
    struct propagation *propagation = attempt->propagation;
    if (origin->node < 0) {
        request_part(attempt, origin->tensor,
                     &(struct placement){.kind = PLACED_PART, .dim = origin->dim, .blocks = blocks, .grain = grain});
        return true;
    }
    struct node_split split = {.factor = (int16_t)origin->factor, .blocks = blocks, .grain = grain};
    int64_t extent = propagation_dims(propagation, origin->node)->factor[origin->factor].extent;
    if (propagation->decided[origin->node] || extent % (blocks * grain) ||
        !may_split(propagation, origin->node, &split))
        return false;
    split_node(attempt, origin->node, &split);
    return true;
}

/* One attempt with the given blocks and granule at the origin. On failure *finer lists factors to try next. */
static bool try_cut(struct propagation *propagation, const struct origin *origin, int64_t blocks, int64_t grain,
                    bool keep_sources, struct cut_option **finer, int *nfiner) {
    struct attempt attempt = {.propagation = propagation,
                              .mode = origin->mode,
                              .keep_sources = keep_sources,
                              .ends_at_kernels = origin->ends_at_kernels};
    *nfiner = 0;
    if (!start(&attempt, origin, blocks, grain)) return false; /* nothing was requested */
    for (int i = 0; i < attempt.requests.n && !attempt.failed; i++) serve(&attempt, attempt.requests.at[i]);
    for (int i = 0; i < attempt.requests.n; i++) propagation->requested[attempt.requests.at[i].tensor] = 0;
    if (!attempt.failed && (attempt.mode == PROPAGATE_STRICT || attempt.nodes.n)) return true;
    take_back(&attempt);
    *finer = attempt.finer.at;
    *nfiner = attempt.finer.n;
    return false;
}

/* Tries blocks and granules until an attempt succeeds, depth-first in those that failed attempts suggest. */
static bool search(struct propagation *propagation, const struct origin *origin, int64_t first_blocks,
                   int64_t first_unit, bool keep_sources) {
    struct {
        int64_t blocks, grain;
    } stack[64] = {{first_blocks, first_unit}};
    int n = 1;
    for (int tries = 0; n && tries < MAX_RESTARTS; tries++) {
        int64_t blocks = stack[--n].blocks, grain = stack[n].grain;
        struct cut_option *finer;
        int nfiner;
        if (try_cut(propagation, origin, blocks, grain, keep_sources, &finer, &nfiner)) return true;
        for (int i = nfiner - 1; i >= 0 && n < 64; i--) { /* the first suggestion is tried first */
            stack[n].blocks = blocks * finer[i].more_blocks;
            stack[n++].grain = grain * finer[i].more_grain;
        }
    }
    return false;
}

bool propagate_factor(struct propagation *propagation, int node, int factor, enum propagation_mode mode) {
    const struct node_split split = {.factor = (int16_t)factor, .blocks = 1, .grain = 1};
    return propagate_cut(propagation, node, &split, mode);
}

bool propagate_cut(struct propagation *propagation, int node, const struct node_split *split,
                   enum propagation_mode mode) {
    struct origin origin = {.node = node, .factor = split->factor, .mode = mode};
    return (mode == PROPAGATE_STRICT && search(propagation, &origin, split->blocks, split->grain, false)) ||
           search(propagation, &origin, split->blocks, split->grain, true);
}

bool propagate_region(struct propagation *propagation, int node, int factor) {
    const struct origin origin = {.node = node, .factor = factor, .mode = PROPAGATE_GATHER};
    return search(propagation, &origin, 1, 1, false) || search(propagation, &origin, 1, 1, true);
}

bool propagate_input(struct propagation *propagation, int tensor, int dim, int64_t blocks, int64_t grain,
                     enum propagation_mode mode) {
    struct origin origin = {.node = -1, .tensor = tensor, .dim = dim, .mode = mode};
    return search(propagation, &origin, blocks, grain, true);
}

void propagate_held(struct propagation *propagation, int tensor, const struct placement *part) {
    const struct origin origin = {.node = -1, .tensor = tensor, .dim = part->dim, .mode = PROPAGATE_GATHER};
    struct cut_option *finer;
    int nfiner;
    try_cut(propagation, &origin, part->blocks, part->grain, true, &finer, &nfiner);
}

static bool split_only(struct propagation *propagation, int node, const struct node_split *split) {
    if (propagation->decided[node] || !may_split(propagation, node, split)) return false;
    dims_nest(propagation->split[node], propagation->graph->mesh.naxes, propagation->axis, split);
    propagation->decided[node] = true;
    return true;
}

bool split_alone(struct propagation *propagation, int node, int factor) {
    return split_only(propagation, node, &(struct node_split){.factor = (int16_t)factor, .blocks = 1, .grain = 1});
}

bool propagate_split(struct propagation *propagation, int node, const struct node_split *split) {
    struct origin strict = {.node = node, .factor = split->factor, .mode = PROPAGATE_STRICT}, far = strict;
    far.mode = PROPAGATE_GATHER;
    return search(propagation, &strict, split->blocks, split->grain, false) ||
           search(propagation, &strict, split->blocks, split->grain, true) ||
           search(propagation, &far, split->blocks, split->grain, true) || split_only(propagation, node, split);
}

/* Splits the node so that the operand is divided as `part`, and the elementwise nodes around it likewise. Propagation
 * does not continue to the operands of nodes of other kinds. Where an operand is not divided likewise, its reader takes
 * a slice of it. */
static bool propagate_part(struct propagation *propagation, int node, int operand, const struct placement *part) {
    struct cut_option options[RT_MAX_NDIM];
    const int n =
        dims_cut_options(propagation_dims(propagation, node), operand, part->dim, part->blocks, part->grain, options);
    for (int k = 0; k < n && options[k].more_blocks == 1 && options[k].more_grain == 1; k++) {
        const struct node_split *split = &options[k].split;
        const struct origin origin = {
            .node = node, .factor = split->factor, .mode = PROPAGATE_STRICT, .ends_at_kernels = true};
        if (search(propagation, &origin, split->blocks, split->grain, true)) return true;
    }
    return false;
}

/* Splits a reader of a parameter: recomputed copies with the nodes that their originals are split with, and others, for
 * which the parameter's part gives a partial result, alone. */
static bool split_reader(struct propagation *propagation, int node, const struct node_split *split) {
    const struct dims *dims = propagation_dims(propagation, node);
    const struct origin origin = {.node = node, .factor = split->factor, .mode = PROPAGATE_STRICT};
    return (dims_placement(dims, dims->ninputs, split).kind == PLACED_PART &&
            (search(propagation, &origin, split->blocks, split->grain, false) ||
             search(propagation, &origin, split->blocks, split->grain, true))) ||
           split_only(propagation, node, split);
}

/* Nodes that read the parameter and are not decided yet read the part, too; so do readers of a cast of it. */
static void split_readers(struct propagation *propagation, int tensor, const struct placement *part) {
    const struct graph *graph = propagation->graph;
    struct cut_option options[RT_MAX_NDIM];
    for (int u = propagation->uses.first[tensor]; u < propagation->uses.first[tensor + 1]; u++) {
        const int node = propagation->uses.users[u];
        const struct node *reader = &graph->nodes.at[node];
        const int n = dims_cut_options(propagation_dims(propagation, node), node_operand(reader, tensor), part->dim,
                                       part->blocks, part->grain, options);
        for (int k = 0; k < n && options[k].more_blocks == 1 && options[k].more_grain == 1; k++)
            if (split_reader(propagation, node, &options[k].split)) break;
        if (reader->op->id == OP_Cast) split_readers(propagation, reader->outputs[0], part);
    }
}

void propagate_update(struct propagation *propagation, int parameter, const struct placement *part) {
    const struct graph *graph = propagation->graph;
    for (int next = propagation->update[parameter]; next; next = propagation->next_update[next - 1]) {
        const int value = graph->updates.at[next - 1].value, node = graph->tensors.at[value].producer;
        if (node >= 0 && propagate_part(propagation, node, result_operand(propagation, node, value), part))
            split_readers(propagation, parameter, part);
    }
}
