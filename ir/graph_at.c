/* A graph with open sizes at sizes that are chosen: for what is estimated, drawn or printed. */
#include "ir/ir.h"

static int64_t at(const struct graph *graph, int64_t value, const int64_t *sizes) {
    return open_at(graph->open, value, sizes);
}

static void place_at(const struct graph *graph, struct placement *placement, const int64_t *sizes) {
    if (!placement_divides(placement)) return;
    placement->blocks = at(graph, placement->blocks, sizes);
    placement->grain = at(graph, placement->grain, sizes);
    placement->reach.positions = at(graph, placement->reach.positions, sizes);
    placement->reach.before = at(graph, placement->reach.before, sizes);
    placement->reach.span = at(graph, placement->reach.span, sizes);
}

static void tensor_at(const struct graph *graph, struct tensor *tensor, const int64_t *sizes, struct arena *arena) {
    for (int d = 0; d < tensor->ndim; d++) tensor->dims[d] = at(graph, tensor->dims[d], sizes);
    if (!tensor->layout.ncuts) return;
    struct cut *cuts = ARENA_ARRAY(arena, struct cut, tensor->layout.ncuts);
    for (int c = 0; c < tensor->layout.ncuts; c++) {
        cuts[c] = tensor->layout.cuts[c];
        place_at(graph, &cuts[c].placement, sizes);
    }
    tensor->layout.cuts = cuts;
}

static void attr_at(const struct graph *graph, struct attr *attr, const int64_t *sizes, struct arena *arena) {
    if (attr->kind == ATTR_INT) attr->value = at(graph, attr->value, sizes);
    if (attr->kind != ATTR_INTS) return;
    int64_t *ints = ARENA_ARRAY(arena, int64_t, attr->n + 1);
    for (int i = 0; i < attr->n; i++) ints[i] = at(graph, attr->ints[i], sizes);
    attr->ints = ints;
}

void split_at(const struct graph *graph, struct node_split *split, const int64_t *sizes) {
    split->blocks = at(graph, split->blocks, sizes);
    split->grain = at(graph, split->grain, sizes);
}

static void node_at(const struct graph *graph, struct node *node, const int64_t *sizes, struct arena *arena) {
    struct attr *attrs = ARENA_ARRAY(arena, struct attr, node->nattrs + 1);
    for (int i = 0; i < node->nattrs; i++) {
        attrs[i] = node->attrs[i];
        attr_at(graph, &attrs[i], sizes, arena);
    }
    node->attrs = attrs;
    for (int axis = 0; axis < RT_LAYOUT_AXES; axis++) split_at(graph, &node->split[axis], sizes);
}

struct graph *graph_at(const struct graph *graph, const int64_t *sizes, struct arena *arena) {
    struct graph *view = ARENA_NEW(arena, struct graph);
    *view = *graph;
    view->open = NULL;
    VEC_UNSHARE(arena, &view->tensors);
    VEC_UNSHARE(arena, &view->nodes);
    for (int t = 0; t < view->tensors.n; t++) tensor_at(graph, &view->tensors.at[t], sizes, arena);
    for (int i = 0; i < view->order.n; i++) node_at(graph, &view->nodes.at[view->order.at[i]], sizes, arena);
    return view;
}

const int64_t *graph_typical_sizes(const struct graph *graph) {
    struct open_sizes *open = graph->open;
    int64_t *sizes = ARENA_ARRAY(graph->arena, int64_t, OPEN_SIZES);
    for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].range.typical ? open->all.at[i].range.typical : 1;
    open_fit(open, sizes);
    return sizes;
}

const struct graph *graph_typical(const struct graph *graph, struct arena *arena) {
    return graph->open ? graph_at(graph, graph_typical_sizes(graph), arena) : graph;
}
