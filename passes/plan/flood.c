#include "passes/plan/flood.h"

#include <string.h>

enum { MAX_RESTARTS = 24 };

/* A tensor to be cut, met while spreading. */
struct wish {
    int tensor, dim;
    int64_t blocks, unit;
};

/* One attempt. Its splits are written to the graph as it goes and taken back if it fails. */
struct attempt {
    struct flood *flood;
    enum flood_end end;
    bool keep_sources;       /* a producer that cannot follow stays whole, and its reader takes a slice */
    VEC(struct wish) wishes; /* also those already served: every tensor once */
    VEC(int) nodes;          /* split by this attempt */
    bool failed;
    VEC(struct cut_option) finer; /* multipliers of the origin's cut with which it might succeed */
};

void flood_init(struct flood *flood, struct graph *graph, struct arena *arena, int axis) {
    *flood = (struct flood){.graph = graph, .arena = arena, .axis = axis, .ways = graph->mesh.axis[axis].size};
    graph_uses(graph, arena, &flood->uses);
    flood->dims = ARENA_ARRAY(arena, struct dims *, graph->nodes.n + 1);
    flood->decided = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    flood->wished = ARENA_ARRAY(arena, int, graph->tensors.n + 1);
    flood->closed = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
}

const struct dims *flood_dims(struct flood *flood, int node) {
    const char *why;
    if (flood->dims[node]) return flood->dims[node];
    struct dims *dims = flood->dims[node] = ARENA_NEW(flood->arena, struct dims);
    if (dims_bind(flood->arena, flood->graph, &flood->graph->nodes.at[node], dims, &why) < 0)
        BUG("%s: %s", node_place(flood->graph, node), why);
    return dims;
}

static struct node_split *split_of(struct flood *flood, int node) {
    return &flood->graph->nodes.at[node].split[flood->axis];
}

/* The dimension of the operand that ranks divide among them where the node is so split, -1 if they do not. */
static int divided_dim(const struct dims *dims, int operand, const struct node_split *split) {
    struct holding holding = dims_holding(dims, operand, split);
    return holding_divides(&holding) ? holding.dim : -1;
}

/* A factor is cut along one axis at most, and two axes must not cut one dimension of any operand either. */
int flood_other_axis(const struct node *node, const struct dims *dims, int axis, const struct node_split *split) {
    for (int a = 0; a < MAX_AXES; a++) {
        const struct node_split *other = &node->split[a];
        if (a == axis || other->factor < 0) continue;
        if (other->factor == split->factor) return a;
        for (int o = 0; o < dims->ninputs + dims->noutputs; o++) {
            int dim = divided_dim(dims, o, split);
            if (dim >= 0 && dim == divided_dim(dims, o, other)) return a;
        }
    }
    return -1;
}

static bool may_split(struct flood *flood, int node, const struct node_split *split) {
    return dims_can_split(flood_dims(flood, node), split, flood->ways) &&
           op_can_split(flood->graph->nodes.at[node].op, flood_dims(flood, node), split) &&
           flood_other_axis(&flood->graph->nodes.at[node], flood_dims(flood, node), flood->axis, split) < 0;
}

static void wish_for(struct attempt *attempt, int tensor, const struct holding *part) {
    struct wish wish = {tensor, part->dim, part->blocks, part->unit};
    int before = attempt->flood->wished[tensor];
    if (!before) {
        VEC_PUSH(attempt->flood->arena, &attempt->wishes, wish);
        attempt->flood->wished[tensor] = attempt->wishes.n;
        return;
    }
    const struct wish *had = &attempt->wishes.at[before - 1];
    if (had->dim == wish.dim && had->blocks == wish.blocks && had->unit == wish.unit) return;
    /* The same dimension in other units: the origin's must serve both. */
    if (had->dim == wish.dim && had->blocks == wish.blocks) {
        int64_t larger = had->unit > wish.unit ? had->unit : wish.unit;
        int64_t smaller = had->unit > wish.unit ? wish.unit : had->unit;
        if (larger % smaller == 0)
            VEC_PUSH(attempt->flood->arena, &attempt->finer,
                     (struct cut_option){.more_blocks = 1, .more_unit = larger / smaller});
    }
    attempt->failed = attempt->end == FLOOD_STRICT;
}

/* Windows can be had from any parts of the dimension; plain ones are wished for where nothing else was. */
static void wish_for_source(struct attempt *attempt, int tensor, const struct holding *window) {
    const struct holding part = {.kind = HOLD_PART, .dim = window->dim, .blocks = 1, .unit = 1};
    if (!attempt->flood->wished[tensor]) wish_for(attempt, tensor, &part);
}

/* Cuts the node, and wishes for all its computed operands that hold the factor. */
static void split_node(struct attempt *attempt, int node, const struct node_split *split) {
    struct flood *flood = attempt->flood;
    const struct dims *dims = flood_dims(flood, node);
    const struct node *n = &flood->graph->nodes.at[node];
    *split_of(flood, node) = *split;
    flood->decided[node] = true;
    VEC_PUSH(flood->arena, &attempt->nodes, node);
    for (int o = 0; o < dims->ninputs + dims->noutputs && !attempt->failed; o++) {
        int k = o < dims->ninputs ? o : o - dims->ninputs;
        if (o < dims->ninputs ? k >= n->ninputs : k >= n->noutputs) continue;
        int tensor = o < dims->ninputs ? n->inputs[k] : n->outputs[k];
        struct holding holding = dims_holding(dims, o, split);
        if (tensor < 0 || tensor_is_stored(&flood->graph->tensors.at[tensor])) continue;
        if (holding.kind == HOLD_PART) wish_for(attempt, tensor, &holding);
        if (holding.kind == HOLD_WINDOW) wish_for_source(attempt, tensor, &holding);
    }
}

/* The node holds the wished tensor as operand `operand`: cuts the node to match. False if it cannot follow. */
static bool follow(struct attempt *attempt, int node, int operand, const struct wish *wish) {
    struct flood *flood = attempt->flood;
    const struct dims *dims = flood_dims(flood, node);
    if (flood->decided[node]) {
        struct holding held = dims_holding(dims, operand, split_of(flood, node));
        if (held.kind == HOLD_WINDOW) return held.dim == wish->dim;
        return held.kind == HOLD_PART && held.dim == wish->dim && held.blocks == wish->blocks &&
               held.unit == wish->unit;
    }
    if (attempt->end == FLOOD_GATHER && flood->closed[node]) return false;
    struct cut_option options[MAX_NDIM];
    int n = dims_cut_options(dims, operand, wish->dim, wish->blocks, wish->unit, options);
    for (int i = 0; i < n; i++) {
        if (options[i].more_blocks != 1 || options[i].more_unit != 1 || !may_split(flood, node, &options[i].split))
            continue;
        split_node(attempt, node, &options[i].split);
        return true;
    }
    for (int i = 0; i < n; i++)
        if (options[i].more_blocks != 1 || options[i].more_unit != 1)
            VEC_PUSH(flood->arena, &attempt->finer, options[i]);
    return false;
}

static void serve(struct attempt *attempt, struct wish wish) {
    struct flood *flood = attempt->flood;
    struct graph *graph = flood->graph;
    int producer = graph->tensors.at[wish.tensor].producer;
    if (producer >= 0) {
        int known = attempt->finer.n;
        const int result = flood_dims(flood, producer)->ninputs; /* every operator that may be cut has one result */
        bool follows = follow(attempt, producer, result, &wish);
        if (!follows && (attempt->keep_sources || attempt->finer.n == known)) {
            attempt->finer.n = known;
            if (flood->decided[producer] && attempt->end == FLOOD_STRICT) {
                struct holding held = dims_holding(flood_dims(flood, producer), flood_dims(flood, producer)->ninputs,
                                                   split_of(flood, producer));
                attempt->failed = attempt->failed || held.kind != HOLD_WHOLE;
            }
            return; /* computed whole, sliced for the reader that wished: its other readers keep the whole */
        }
        if (!follows) attempt->failed = true;
    }
    for (int u = flood->uses.first[wish.tensor]; u < flood->uses.first[wish.tensor + 1] && !attempt->failed; u++) {
        int reader = flood->uses.users[u];
        int operand = node_operand(&graph->nodes.at[reader], wish.tensor);
        if (!follow(attempt, reader, operand, &wish) && attempt->end == FLOOD_STRICT) attempt->failed = true;
    }
}

static void take_back(struct attempt *attempt) {
    for (int i = 0; i < attempt->nodes.n; i++) {
        *split_of(attempt->flood, attempt->nodes.at[i]) = (struct node_split){-1, 1, 1};
        attempt->flood->decided[attempt->nodes.at[i]] = false;
    }
}

/* Where a flood starts: a factor of a node, or a dimension of an input. */
struct origin {
    int node, factor;
    int tensor, dim;
    enum flood_end end;
};

static bool start(struct attempt *attempt, const struct origin *origin, int64_t blocks, int64_t unit) {
    struct flood *flood = attempt->flood;
    if (origin->node < 0) {
        wish_for(attempt, origin->tensor,
                 &(struct holding){.kind = HOLD_PART, .dim = origin->dim, .blocks = blocks, .unit = unit});
        return true;
    }
    struct node_split split = {origin->factor, blocks, unit};
    int64_t extent = flood_dims(flood, origin->node)->factor[origin->factor].extent;
    if (flood->decided[origin->node] || extent % (blocks * unit) || !may_split(flood, origin->node, &split))
        return false;
    split_node(attempt, origin->node, &split);
    return true;
}

/* One attempt with the given cut at the origin; on failure *finer lists what to try next. */
static bool try_cut(struct flood *flood, const struct origin *origin, int64_t blocks, int64_t unit, bool keep_sources,
                    struct cut_option **finer, int *nfiner) {
    struct attempt attempt = {.flood = flood, .end = origin->end, .keep_sources = keep_sources};
    *nfiner = 0;
    if (!start(&attempt, origin, blocks, unit)) return false; /* before any wish */
    for (int i = 0; i < attempt.wishes.n && !attempt.failed; i++) serve(&attempt, attempt.wishes.at[i]);
    for (int i = 0; i < attempt.wishes.n; i++) flood->wished[attempt.wishes.at[i].tensor] = 0;
    if (!attempt.failed && (attempt.end == FLOOD_STRICT || attempt.nodes.n)) return true;
    take_back(&attempt);
    *finer = attempt.finer.at;
    *nfiner = attempt.finer.n;
    return false;
}

/* Depth-first over the cuts that failures ask for. */
static bool search(struct flood *flood, const struct origin *origin, int64_t first_blocks, int64_t first_unit,
                   bool keep_sources) {
    struct {
        int64_t blocks, unit;
    } stack[64] = {{first_blocks, first_unit}};
    int n = 1;
    for (int tries = 0; n && tries < MAX_RESTARTS; tries++) {
        int64_t blocks = stack[--n].blocks, unit = stack[n].unit;
        struct cut_option *finer;
        int nfiner;
        if (try_cut(flood, origin, blocks, unit, keep_sources, &finer, &nfiner)) return true;
        for (int i = nfiner - 1; i >= 0 && n < 64; i--) { /* the first asked for is tried first */
            stack[n].blocks = blocks * finer[i].more_blocks;
            stack[n++].unit = unit * finer[i].more_unit;
        }
    }
    return false;
}

bool flood_node(struct flood *flood, int node, int factor, enum flood_end end) {
    struct origin origin = {.node = node, .factor = factor, .end = end};
    return (end == FLOOD_STRICT && search(flood, &origin, 1, 1, false)) || search(flood, &origin, 1, 1, true);
}

bool flood_input(struct flood *flood, int tensor, int dim, enum flood_end end) {
    struct origin origin = {.node = -1, .tensor = tensor, .dim = dim, .end = end};
    return search(flood, &origin, 1, 1, true);
}

static bool cut_alone(struct flood *flood, int node, const struct node_split *split) {
    if (flood->decided[node] || !may_split(flood, node, split)) return false;
    *split_of(flood, node) = *split;
    flood->decided[node] = true;
    return true;
}

bool flood_alone(struct flood *flood, int node, int factor) {
    return cut_alone(flood, node, &(struct node_split){factor, 1, 1});
}

bool flood_from(struct flood *flood, int node, const struct node_split *split) {
    struct origin strict = {.node = node, .factor = split->factor, .end = FLOOD_STRICT}, far = strict;
    far.end = FLOOD_GATHER;
    return search(flood, &strict, split->blocks, split->unit, false) ||
           search(flood, &strict, split->blocks, split->unit, true) ||
           search(flood, &far, split->blocks, split->unit, true) || cut_alone(flood, node, split);
}
