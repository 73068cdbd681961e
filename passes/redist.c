#include "passes/redist.h"

#include <string.h>

#include "ir/base/map.h"
#include "ir/base/str.h"
#include "passes/pipeline.h"
#include "passes/rewrite.h"

/* One move between states along one mesh axis: the node that makes it, and bytes sent per byte of the whole tensor
 * by each of n ranks times n (its cost). */
static const struct move {
    enum holding_kind from, to;
    const char *op;
    int cost; /* in parts of the tensor that cross a rank's link */
} moves[] = {{HOLD_WHOLE, HOLD_PART, "Chunk", 0},
             {HOLD_PART, HOLD_WHOLE, "AllGather", 1},
             {HOLD_PARTIAL, HOLD_WHOLE, "AllReduce", 2},
             {HOLD_PARTIAL, HOLD_PART, "ReduceScatter", 1}};
enum { NMOVES = sizeof moves / sizeof *moves, NSTATES = 3 };

/* The first move of a cheapest path, NULL if there is none. A part that is to become another part goes through a
 * state that is not a part. */
static const struct move *first_move(enum holding_kind from, enum holding_kind to) {
    int cost[NSTATES];
    const struct move *first[NSTATES] = {NULL};
    for (int s = 0; s < NSTATES; s++) cost[s] = s == (int)to && from != to ? 0 : 1 << 20;
    if (from == to) /* the last move leads into `to` */
        for (int m = 0; m < NMOVES; m++)
            if (moves[m].to == to && cost[moves[m].from] > moves[m].cost)
                cost[moves[m].from] = moves[m].cost, first[moves[m].from] = &moves[m];
    for (int round = 0; round < NSTATES; round++)
        for (int m = 0; m < NMOVES; m++)
            if (cost[moves[m].to] + moves[m].cost < cost[moves[m].from])
                cost[moves[m].from] = cost[moves[m].to] + moves[m].cost, first[moves[m].from] = &moves[m];
    return first[from];
}

/* A stored tensor loaded in a layout that nodes want. */
struct copy {
    int of, tensor;
};

struct redist {
    struct rewrite rewrite;
    struct graph *graph;
    struct diags *diags;
    enum phase phase; /* of who wants what is converted */
    struct map made; /* "tensor layout" -> tensor that holds it so */
    VEC(struct copy) copies;
};

static const char *layout_key(struct redist *redist, int tensor, const struct layout *layout) {
    struct strbuf key;
    strbuf_init(&key, redist->graph->arena);
    strbuf_printf(&key, "%d", tensor);
    for (int a = 0; a < redist->graph->mesh.naxes; a++) {
        const struct holding *h = &layout->axis[a];
        bool part = h->kind == HOLD_PART;
        strbuf_printf(&key, " %d/%d/%lld/%lld/%d", (int)h->kind, part ? h->dim : 0, part ? (long long)h->blocks : 0,
                      part ? (long long)h->unit : 0, h->kind == HOLD_PARTIAL ? (int)h->reduce : 0);
    }
    return strbuf_text(&key);
}

/* The same stored tensor, loaded in another layout. */
static int load_as(struct redist *redist, int id, const struct layout *layout) {
    struct tensor tensor = redist->graph->tensors.at[id];
    tensor.layout = *layout;
    VEC_PUSH(redist->graph->arena, &redist->graph->tensors, tensor);
    VEC_PUSH(redist->graph->arena, &redist->copies, (struct copy){id, redist->graph->tensors.n - 1});
    return redist->graph->tensors.n - 1;
}

/* Adds the node of one move along `axis`; returns the tensor it makes. */
static int add_move(struct redist *redist, int id, int axis, const struct move *move, const struct holding *wanted,
                    const char *name) {
    struct graph *graph = redist->graph;
    struct tensor from = graph->tensors.at[id];
    const struct holding *part = move->from == HOLD_PART ? &from.layout.axis[axis] : wanted;
    struct attr attrs[5] = {attr_of_int("mesh", axis)};
    int n = 1;
    if (move->from == HOLD_PART || move->to == HOLD_PART) {
        attrs[n++] = attr_of_int("dim", part->dim);
        attrs[n++] = attr_of_int("blocks", part->blocks);
        attrs[n++] = attr_of_int("unit", part->unit);
    }
    if (move->from == HOLD_PARTIAL)
        attrs[n++] = attr_of_text("reduce", reduce_names[from.layout.axis[axis].reduce]);
    const char *label = arena_printf(graph->arena, "%s.%s", from.name, move->op);
    int out = graph_add_tensor(graph, TENSOR_VALUE, label, from.dtype, from.ndim, from.dims);
    graph->tensors.at[out].layout = from.layout;
    graph->tensors.at[out].layout.axis[axis] = move->to == HOLD_PART ? *wanted : (struct holding){HOLD_WHOLE};
    int node = graph_add_node(graph, op_named(move->op), name, 1, &id, 1, &out, n, attrs);
    graph->nodes.at[node].stage = from.producer < 0 ? 0 : graph->nodes.at[from.producer].stage;
    graph->nodes.at[node].phase = redist->phase;
    return out;
}

/* When a tensor is there. */
static enum phase phase_of(const struct graph *graph, int tensor) {
    int producer = graph->tensors.at[tensor].producer;
    return producer < 0 ? PHASE_MICRO : graph->nodes.at[producer].phase;
}

/* The tensor in the wanted layout: itself, one made before, or a new one by moves on one axis after another.
 * Reductions come first, slices last, so that no move handles more than it must. */
static int convert(struct redist *redist, int id, const struct layout *wanted, const char *name) {
    static const enum holding_kind turn[] = {HOLD_PARTIAL, HOLD_PART, HOLD_WHOLE};
    struct graph *graph = redist->graph;
    if (layout_equal(&graph->tensors.at[id].layout, wanted)) return id;
    const char *key = layout_key(redist, id, wanted);
    int made = map_get(&redist->made, key, strlen(key));
    if (made >= 0) return made;
    int now = id;
    if (tensor_is_stored(&graph->tensors.at[id])) now = load_as(redist, id, wanted);
    for (int t = 0; t < 3; t++)
        for (int axis = 0; axis < graph->mesh.naxes; axis++) {
            if (graph->tensors.at[now].layout.axis[axis].kind != turn[t]) continue;
            while (!holding_equal(&graph->tensors.at[now].layout.axis[axis], &wanted->axis[axis])) {
                const struct move *move =
                    first_move(graph->tensors.at[now].layout.axis[axis].kind, wanted->axis[axis].kind);
                if (!move)
                    return diag_error(redist->diags, 420, EXIT_LIMIT, name, "no way to redistribute '%s'",
                                      graph->tensors.at[id].name);
                now = add_move(redist, now, axis, move, &wanted->axis[axis], name);
            }
        }
    map_put(&redist->made, key, strlen(key), now);
    return now;
}

static int serve_inputs(struct redist *redist, int id) {
    struct graph *graph = redist->graph;
    struct dims dims;
    const char *why;
    if (dims_bind(graph->arena, graph, &graph->nodes.at[id], &dims, &why) < 0) BUG("%s", why);
    redist->phase = graph->nodes.at[id].phase;
    for (int k = 0; k < graph->nodes.at[id].ninputs; k++) {
        const struct node *node = &graph->nodes.at[id];
        struct layout wanted = {0};
        if (node->inputs[k] < 0) continue;
        for (int axis = 0; axis < graph->mesh.naxes; axis++)
            wanted.axis[axis] = redist_wanted(graph, &dims, node, k, axis);
        int tensor = convert(redist, node->inputs[k], &wanted, node->name);
        if (tensor < 0) return -1;
        graph->nodes.at[id].inputs[k] = tensor;
    }
    return 0;
}

static int add_update(struct redist *redist, int weight, int value) {
    const struct layout layout = redist->graph->tensors.at[weight].layout;
    redist->phase = phase_of(redist->graph, value);
    int tensor = convert(redist, value, &layout, redist->graph->tensors.at[weight].name);
    if (tensor < 0) return -1;
    VEC_PUSH(redist->graph->arena, &redist->graph->updates, (struct update){weight, tensor});
    return 0;
}

/* Per tensor: a node reads it, or it is an output. */
static const bool *read_tensors(const struct graph *graph) {
    bool *read = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) read[node->inputs[k]] = true;
    }
    for (int i = 0; i < graph->outputs.n; i++) read[graph->outputs.at[i]] = true;
    return read;
}

/* A weight that is updated may be loaded in several layouts; each gets the new value in its own. Where all are copies,
 * what was asked for in the first place is not loaded. */
static int serve_updates(struct redist *redist) {
    struct graph *graph = redist->graph;
    const struct update *updates = graph->updates.at;
    const bool *read = read_tensors(graph);
    int n = graph->updates.n, ncopies = redist->copies.n;
    graph->updates.at = NULL;
    graph->updates.n = graph->updates.capacity = 0;
    for (int i = 0; i < n; i++) {
        int copies = 0;
        for (int c = 0; c < ncopies; c++) {
            if (redist->copies.at[c].of != updates[i].weight) continue;
            if (add_update(redist, redist->copies.at[c].tensor, updates[i].value) < 0) return -1;
            copies++;
        }
        if (copies && !read[updates[i].weight]) continue;
        if (add_update(redist, updates[i].weight, updates[i].value) < 0) return -1;
    }
    return 0;
}

int pass_redist(struct graph *graph, const struct pass_context *context) {
    struct redist redist = {.graph = graph, .diags = context->diags};
    map_init(&redist.made, graph->arena);
    rewrite_begin(&redist.rewrite, graph);
    for (int i = 0; i < redist.rewrite.order_n; i++) {
        int id = rewrite_next(&redist.rewrite, i);
        if (serve_inputs(&redist, id) < 0) return -1;
        rewrite_keep(&redist.rewrite, id);
    }
    const struct layout whole = {0};
    for (int i = 0; i < graph->outputs.n; i++) {
        redist.phase = phase_of(graph, graph->outputs.at[i]);
        int tensor = convert(&redist, graph->outputs.at[i], &whole, graph->output_names.at[i]);
        if (tensor < 0) return -1;
        graph->outputs.at[i] = tensor;
    }
    return serve_updates(&redist);
}
