#include "passes/rank/rankplan.h"

#include <string.h>

#include "runtime/base/number/checked.h"

const char *const plan_arena_names[RT_ARENAS] = {
#define ARENA(ID, name) #name,
#include "runtime/base/arenas.def"
#undef ARENA
};

const char *const plan_arena_enumerators[RT_ARENAS + 1] = {
#define ARENA(ID, name) "RT_" #ID,
#include "runtime/base/arenas.def"
#undef ARENA
    "RT_CALLER"};

bool rankplan_is_literal(const struct graph *graph, const struct node *node, int operand) {
    int id = node->inputs[operand];
    return node->op->kind == OP_ELEMENTWISE && id >= 0 && graph->tensors.at[id].kind == TENSOR_CONST &&
           tensor_elements(&graph->tensors.at[id]) == 1;
}

const struct rankplan *rankplan_at(const struct rankplan *plan, const int64_t *sizes, struct arena *arena) {
    const struct graph *graph = plan->graph;
    struct rankplan *view = ARENA_NEW(arena, struct rankplan);
    *view = *plan;
    view->graph = graph_at(graph, sizes, arena);
    view->classes = ARENA_ARRAY(arena, struct rank_class, plan->nclasses);
    EACH(plan->classes, plan->nclasses, c, const struct rank_class *class) {
        int64_t(*dims)[RT_MAX_NDIM] = arena_alloc(arena, (size_t)graph->tensors.n + 1, sizeof *dims);
        for (int t = 0; t < graph->tensors.n; t++)
            for (int d = 0; d < graph->tensors.at[t].ndim; d++)
                dims[t][d] = open_at(graph->open, class->dims[t][d], sizes);
        view->classes[c] = *class;
        view->classes[c].dims = dims;
    }
    return view;
}

const struct rankplan *rankplan_typical(const struct rankplan *plan, struct arena *arena) {
    return plan->graph->open ? rankplan_at(plan, graph_typical_sizes(plan->graph), arena) : plan;
}

int64_t rankplan_elements(const struct rank_class *class, const struct graph *graph, int tensor) {
    int64_t elements;
    if (!rt_product(class->dims[tensor], graph->tensors.at[tensor].ndim, &elements)) BUG("a part is too large");
    return elements;
}

int64_t rankplan_room(const struct rank_class *class, const struct graph *graph, int tensor) {
    return open_most(graph->open, rankplan_elements(class, graph, tensor)) *
           (int64_t)rt_dtype_bytes(graph->tensors.at[tensor].dtype);
}

int64_t rankplan_bytes(const struct rank_class *class, const struct graph *graph, int tensor) {
    return rankplan_elements(class, graph, tensor) * (int64_t)rt_dtype_bytes(graph->tensors.at[tensor].dtype);
}

int64_t rankplan_memory(const struct rankplan *plan, const struct rank_class *class, int root) {
    const bool shared = plan->shared[root];
    int64_t bytes = 1;
    for (int c = 0; c < plan->nclasses; c++) {
        if (shared ? plan->classes[c].coordinate != class->coordinate : &plan->classes[c] != class) continue;
        const int64_t own = rankplan_room(&plan->classes[c], plan->graph, root);
        if (own > bytes) bytes = own;
    }
    return rt_align(bytes, RT_ALIGNMENT);
}

bool rankplan_moves_slices(const struct graph *graph, const struct node *node) {
    const int axis = node->op->kind == OP_COMM ? (int)attr_int(node, "mesh", -1) : -1;
    return axis >= 0 && ((layout_flat_axes(&graph->tensors.at[op_moved_input(node)].layout) |
                          layout_flat_axes(&graph->tensors.at[node->outputs[0]].layout)) >>
                             axis &
                         1u);
}

bool rankplan_is_gathered(const struct graph *graph, int slice, int tensor) {
    const unsigned axes = layout_flat_axes(&graph->tensors.at[slice].layout);
    return (axes & ~layout_flat_axes(&graph->tensors.at[tensor].layout)) != 0;
}

int rankplan_in_place(const struct rank_class *class, const struct graph *graph, const struct node *node, int output) {
    const struct plan_place *out = &class->place[node->outputs[output]];
    if (node->op->kind != OP_ELEMENTWISE) return -1;
    for (int k = 0; k < node->ninputs; k++) {
        const struct plan_place *in = &class->place[node->inputs[k]];
        const struct tensor *tensor = &graph->tensors.at[node->inputs[k]];
        if ((tensor_is_stored(tensor) || layout_flat_axes(&tensor->layout)) && in->offset >= 0 &&
            in->arena == out->arena && in->offset == out->offset)
            return k;
    }
    return -1;
}

void rankplan_localize(struct graph *graph, const struct rank_class *class, struct node *node, struct dims *dims) {
    dims_bind_checked(graph->arena, graph, node, dims);
    if (!node->op->split_attr) return;
    int64_t(*local)[RT_MAX_NDIM] = arena_alloc(graph->arena, (size_t)(dims->ninputs + dims->noutputs), sizeof *local);
    for (int o = 0; o < dims->ninputs + dims->noutputs; o++) {
        const int k = o < dims->ninputs ? o : o - dims->ninputs;
        const int tensor = o < dims->ninputs ? (k < node->ninputs ? node->inputs[k] : -1) : node->outputs[k];
        if (tensor >= 0) memcpy(local[o], class->dims[tensor], sizeof *local);
    }
    node->op->split_attr(graph, dims, local, node);
}

int rankplan_part(const struct rank_class *class, const struct node *node) {
    int part = STAGE_NONE;
    for (int c = 0; c < class->nchunks; c++) part |= stage_part(node, class->chunks[c]);
    return part;
}

int64_t rankplan_peak(const struct rankplan *plan, const struct rank_class *class, int units, int groups,
                      int64_t bytes[RT_ARENAS]) {
    const struct mesh *mesh = &plan->graph->mesh;
    int ways[RT_LAYOUT_AXES];
    int64_t all = 0, *at = ARENA_ARRAY(plan->graph->arena, int64_t, class->flats.n + 1);
    for (int a = 0; a < RT_LAYOUT_AXES; a++) ways[a] = a < mesh->naxes ? mesh->axis[a].size : 1;
    ways[mesh->naxes] = units % groups ? units : units / groups; /* fewer units than groups: not divided yet */
    memcpy(bytes, class->bytes, sizeof class->bytes);
    rt_flat_place(class->flats.at, class->flats.n, ways, bytes, at);
    for (int a = 0; a < RT_HOST; a++) all += bytes[a];
    return all;
}
