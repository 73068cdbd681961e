/* Rows of a state that are written through a transposed view, as exporters write an index_copy: into the state itself.
 *
 *     %1 = Transpose(%0) the dimension of rows first
 *     %2 = ScatterND(%1, places, rows) depth=1          becomes    %4 = ScatterND(%0, places for each row before that
 *     %3 = Transpose(%2) back                                           dimension, rows) batch_dims=.. depth=1
 *     update %0 <- %3                                              update %0 <- %4
 *
 * which is done in place (Note [State] in state.c). */
#include "ir/build.h"
#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/state_writes.h"

struct writes {
    struct build builder;
    const int *readers;
};

/* A write through a view: of the rows of dimension `axis`. */
struct write {
    int state, places, rows, axis;
    const int64_t *back; /* the transpose to the state's dimensions */
};

/* The place to which the transpose moves the first dimension; -1 if it changes the order of the others. */
static int place_of_first(const int64_t *perm, int n) {
    int axis = 0;
    while (axis < n && perm[axis]) axis++;
    for (int d = 0; d < n; d++)
        if (perm[d] != (d < axis ? d + 1 : d == axis ? 0 : d)) return -1;
    return axis;
}

/* True if the tensor is a state whose new value is `value`. */
static bool is_update(const struct graph *graph, int state, int value) {
    for (int u = 0; u < graph->updates.n; u++)
        if (graph->updates.at[u].weight == state && graph->updates.at[u].value == value)
            return graph->tensors.at[state].kind == TENSOR_STATE;
    return false;
}

/* True if the node `back` ends a write through a view. */
static bool match(const struct writes *writes, const struct node *back, struct write *write) {
    const struct graph *graph = writes->builder.graph;
    int n;
    if (back->op->id != OP_Transpose || writes->readers[back->inputs[0]] != 1) return false;
    const struct node *scatter = made_by(graph, back->inputs[0], OP_ScatterND);
    if (!scatter || attr_int(scatter, "batch_dims", 0) || attr_int(scatter, "depth", 0) != 1) return false;
    const struct node *there = made_by(graph, scatter->inputs[0], OP_Transpose);
    if (!there || !is_update(graph, there->inputs[0], back->outputs[0])) return false;
    if (graph->tensors.at[scatter->inputs[1]].ndim != 2) return false;
    *write = (struct write){.state = there->inputs[0], .places = scatter->inputs[1], .rows = scatter->inputs[2]};
    write->back = attr_ints(back, "perm", &n);
    write->axis = place_of_first(write->back, n);
    const int64_t *perm = attr_ints(there, "perm", &n);
    for (int d = 0; d < n; d++)
        if (write->back[perm[d]] != d) return false;
    return write->axis >= 0;
}

/* The rows, with the state's dimensions. */
static int turned(struct build *builder, const struct write *write) {
    const struct graph *graph = builder->graph;
    const struct node *made = made_by(graph, write->rows, OP_Transpose);
    const int ndim = graph->tensors.at[write->rows].ndim, from = made ? made->inputs[0] : write->rows;
    int64_t perm[RT_MAX_NDIM];
    bool same = true;
    for (int d = 0; d < ndim; d++) {
        perm[d] = made ? attr_ints(made, "perm", &(int){0})[write->back[d]] : write->back[d];
        same = same && perm[d] == d;
    }
    return same ? from : build_transpose(builder, from, perm);
}

/* The places of the rows, repeated for each index of the dimensions before `axis`. */
static int placed(struct build *builder, const struct write *write) {
    const struct graph *graph = builder->graph;
    int64_t shape[RT_MAX_NDIM], all[RT_MAX_NDIM];
    for (int d = 0; d < write->axis; d++) shape[d] = 1, all[d] = graph->tensors.at[write->state].dims[d];
    for (int d = 0; d < 2; d++)
        shape[write->axis + d] = all[write->axis + d] = graph->tensors.at[write->places].dims[d];
    const int flat = build_reshape(builder, write->places, write->axis + 2, shape);
    return flat < 0 ? -1 : build_expand(builder, flat, write->axis + 2, all);
}

static int write_into(void *env, int id) {
    struct writes *writes = env;
    struct build *builder = &writes->builder;
    struct write write;
    if (!match(writes, &builder->graph->nodes.at[id], &write)) return REWRITE_KEPT;
    builder->node = builder->graph->nodes.at[id].name;
    const int rows = turned(builder, &write), places = placed(builder, &write);
    const struct attr attrs[] = {attr_of_int("batch_dims", write.axis), attr_of_int("depth", 1)};
    if (rows < 0 || places < 0) return -1;
    return build(builder, OP_ScatterND, 3, (int[]){write.state, places, rows}, 2, attrs);
}

int state_writes(struct graph *graph, struct diags *diags) {
    struct writes writes = {{graph, diags, NULL}, graph_readers(graph, graph->arena)};
    return rewrite_each(graph, write_into, &writes);
}
