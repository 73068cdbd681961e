/* States that grow: caches to which every step adds rows.
 *
 * Note [State]
 * A TENSOR_STATE keeps its value from one step to the next: an update stores the new one. The state of a cache has
 * another extent in every step: `past`, an open size, whose new value is past + new rows. Here it becomes a buffer of
 * the bound's extent, in which the past is a view of the first `past` rows:
 *
 *     state %0 [b, heads, past, d]                    state %0 [b, heads, capacity, d]
 *     %2 = Concat(%0, %1) axis=2          becomes     %a = Append(%0, %1) axis=2 at=past
 *     update %0 <- %2                                 %2 = Slice(%a) .. size=[b, heads, past + rows, d]
 *                                                     update %0 <- %a
 *
 * and likewise where rows are written at places that differ within the batch, counted from 0, with room behind the past
 * for them:
 *
 *     %2 = Pad(%0) end=rows                           %a = ScatterND(%0, places, %1)
 *     %3 = ScatterND(%2, places, %1)        becomes     %3 = Slice(%a) .. size=[b, heads, past + rows, d]
 *     update %0 <- %3                                   update %0 <- %a
 *
 * Both write in place, and readers that take strides read the slice as a view (passes/rank/views.h): nothing of the
 * past is copied. The program keeps the size `past` itself (open_keep), and refuses a step after which it would exceed
 * the capacity before anything is written. */
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/state_writes.h"

/* A state to which a node adds rows. */
struct growing {
    int state, value; /* of the update */
    int writer, pad;  /* nodes: a Concat and -1, or a ScatterND and the Pad that makes room for it */
    int axis, buffer; /* buffer: the state of the bound's extent */
    int past;         /* the tensor that readers read: first without, then with the rows of this step */
    int64_t rows;     /* extent of the past, an open size */
};

struct growth {
    struct build builder;
    struct rewrite rewrite;
    VEC(struct growing) all;
};

static const struct tensor *tensor_at(const struct growth *growth, int id) {
    return &growth->builder.graph->tensors.at[id];
}

static int refuse(struct growth *growth, const struct update *update, const char *why) {
    struct diags *diags = growth->builder.diags;
    const struct tensor *state = tensor_at(growth, update->weight), *value = tensor_at(growth, update->value);
    diag_error(diags, 441, EXIT_UNSUPPORTED, NULL, "%s cannot be state with the new value %s: %s",
               diag_quote(diags, state->name), diag_quote(diags, value->name), why);
    return diag_help(diags, "--state none keeps inputs and outputs as they are; --state IN=OUT,.. names the pairs");
}

/* The one dimension in which the state grows; -1: there is none, or several. */
static int axis_of(const struct tensor *state, const struct tensor *value) {
    int axis = -1;
    if (state->ndim != value->ndim || state->dtype != value->dtype) return -1;
    for (int d = 0; d < state->ndim; d++) {
        if (state->dims[d] == value->dims[d]) continue;
        if (axis >= 0) return -1;
        axis = d;
    }
    return axis;
}

/* The number of the open size of that value; -1: it is none. */
static int size_of(const struct open_sizes *open, int64_t value) {
    for (int i = 0; open && i < open->all.n; i++)
        if (open->all.at[i].value == value) return i;
    return -1;
}

/* True if the Pad adds room behind the state in this dimension only, and a single node reads its result. */
static bool makes_room(const struct growth *growth, const struct node *pad, int axis) {
    const struct graph *graph = growth->builder.graph;
    const int64_t *begin = attr_ints(pad, "begin", &(int){0}), *end = attr_ints(pad, "end", &(int){0});
    for (int d = 0; d < tensor_at(growth, pad->inputs[0])->ndim; d++)
        if (begin[d] || (d != axis && end[d])) return false;
    return graph_readers(graph, graph->arena)[pad->outputs[0]] == 1;
}

/* Finds the nodes that add the rows of the update. */
static bool find_writer(const struct growth *growth, struct growing *g) {
    const struct graph *graph = growth->builder.graph;
    const struct node *node = made_by(graph, g->value, OP_Concat);
    g->writer = tensor_at(growth, g->value)->producer, g->pad = -1;
    if (node) return node->ninputs == 2 && node->inputs[0] == g->state && attr_int(node, "axis", -1) == g->axis;
    node = made_by(graph, g->value, OP_ScatterND);
    if (!node || attr_int(node, "batch_dims", 0) != g->axis || attr_int(node, "depth", 0) != 1) return false;
    const struct node *pad = made_by(graph, node->inputs[0], OP_Pad);
    g->pad = pad ? tensor_at(growth, node->inputs[0])->producer : -1;
    return pad && pad->inputs[0] == g->state && makes_room(growth, pad, g->axis);
}

static int add(struct growth *growth, const struct update *update) {
    struct graph *graph = growth->builder.graph;
    const struct tensor *state = tensor_at(growth, update->weight), *value = tensor_at(growth, update->value);
    const int axis = axis_of(state, value);
    if (axis < 0) return refuse(growth, update, "they have other shapes or types, in more than one dimension");
    const int size = size_of(graph->open, state->dims[axis]);
    const int64_t next = value->dims[axis];
    if (size >= 0 && (graph->open->all.at[size].range.least || graph->open->all.at[size].range.step != 1))
        return refuse(growth, update, "the bounds of the dimension in which it grows begin at 0, in steps of 1");
    if (size < 0) return refuse(growth, update, "the dimension in which it grows has no bounds (--dim NAME=0..MOST)");
    if (graph->open->all.at[size].next && graph->open->all.at[size].next != next)
        return refuse(growth, update, "another state with its size grows otherwise");
    struct growing g = {.state = update->weight,
                        .value = update->value,
                        .axis = axis,
                        .buffer = -1,
                        .past = -1,
                        .rows = state->dims[axis]};
    if (!find_writer(growth, &g)) return refuse(growth, update, "the new value is not the old one with rows behind it");
    open_keep(graph->open, size, next);
    VEC_PUSH(graph->arena, &growth->all, g);
    return 0;
}

/* The first `rows` rows of the tensor. */
static int see(struct growth *growth, const struct growing *g, int of, int64_t rows) {
    return build_piece(&growth->builder, of, g->axis, 0, 1, rows);
}

static void show_past(struct growth *growth, struct growing *g, int past) {
    rewrite_replace(&growth->rewrite, g->state, past);
    if (g->past >= 0) rewrite_replace(&growth->rewrite, g->past, past);
    g->past = past;
}

static int begin(struct growth *growth, struct growing *g) {
    struct graph *graph = growth->builder.graph;
    const struct tensor state = *tensor_at(growth, g->state);
    int64_t dims[RT_MAX_NDIM];
    for (int d = 0; d < state.ndim; d++) dims[d] = state.dims[d];
    dims[g->axis] = open_most(graph->open, g->rows);
    g->buffer = graph_add_tensor(graph, TENSOR_STATE, state.name, state.dtype, state.ndim, dims);
    growth->builder.node = graph->nodes.at[g->writer].name;
    const int past = see(growth, g, g->buffer, g->rows);
    if (past < 0) return -1;
    show_past(growth, g, past);
    return 0;
}

/* The buffer with the rows that the writer adds. */
static int written(struct growth *growth, const struct growing *g) {
    const struct node writer = growth->builder.graph->nodes.at[g->writer];
    const struct attr attrs[] = {attr_of_int("axis", g->axis), attr_of_int("at", g->rows)};
    growth->builder.node = writer.name;
    if (g->pad < 0) return build(&growth->builder, OP_Append, 2, (int[]){g->buffer, writer.inputs[1]}, 2, attrs);
    const int operands[] = {g->buffer, writer.inputs[1], writer.inputs[2]};
    return build(&growth->builder, OP_ScatterND, 3, operands, writer.nattrs, writer.attrs);
}

/* Replaces the writer. */
static int append(struct growth *growth, struct growing *g) {
    struct graph *graph = growth->builder.graph;
    const int64_t rows = tensor_at(growth, g->value)->dims[g->axis];
    const int appended = written(growth, g);
    const int all = appended < 0 ? -1 : see(growth, g, appended, rows);
    const int past = all < 0 ? -1 : see(growth, g, appended, g->rows);
    if (past < 0) return -1;
    rewrite_replace(&growth->rewrite, g->value, all);
    show_past(growth, g, past);
    for (int u = 0; u < graph->updates.n; u++)
        if (graph->updates.at[u].weight == g->state) graph->updates.at[u] = (struct update){g->buffer, appended};
    return 0;
}

/* The state for which the node is the writer, or makes room. */
static struct growing *growing_at(const struct growth *growth, int node) {
    for (int i = 0; i < growth->all.n; i++)
        if (growth->all.at[i].writer == node || growth->all.at[i].pad == node) return &growth->all.at[i];
    return NULL;
}

int pass_state(struct graph *graph, const struct pass_context *context) {
    struct growth growth = {.builder = {graph, context->diags, NULL}};
    bool any = false;
    for (int u = 0; u < graph->updates.n; u++)
        any = any || graph->tensors.at[graph->updates.at[u].weight].kind == TENSOR_STATE;
    if (any && state_writes(graph, context->diags) < 0) return -1;
    VEC_EACH(&graph->updates, u, const struct update *update) {
        const struct tensor *state = &graph->tensors.at[update->weight];
        if (state->kind != TENSOR_STATE || tensor_same_shape(state, &graph->tensors.at[update->value])) continue;
        if (add(&growth, update) < 0) return -1;
    }
    if (!growth.all.n) return 0;
    rewrite_begin(&growth.rewrite, graph);
    for (int i = 0; i < growth.all.n; i++)
        if (begin(&growth, &growth.all.at[i]) < 0) return -1;
    for (int i = 0; i < growth.rewrite.order_n; i++) {
        const int id = rewrite_next(&growth.rewrite, i);
        struct growing *g = growing_at(&growth, id);
        if (!g)
            rewrite_keep(&growth.rewrite, id);
        else if (g->writer == id && append(&growth, g) < 0)
            return -1;
    }
    rewrite_end(&growth.rewrite);
    return 0;
}
