#include "passes/plan/machine/kernel_time.h"
#include "passes/plan/machine/moves.h"
#include "passes/plan/policy/policy.h"

#include <string.h>

/* Seconds of the node with the splits that the kernel has, on a rank of the first coordinates, which has the largest
 * parts. */
static double node_seconds(struct kernel *kernel, const struct node *node, const struct dims *dims) {
    static const int first[RT_MAX_AXES];
    struct node split = *node;
    if (node->op->kind == OP_VIEW) return 0;
    memcpy(split.split, kernel->split, RT_MAX_AXES * sizeof *split.split); /* those of a plan */
    for (int k = 0; k < node->ninputs + node->noutputs; k++) {
        const int id = node_tensor(node, k), output = k - node->ninputs;
        if (id < 0) continue;
        struct tensor tensor = kernel->graph->tensors.at[id];
        tensor.layout = output < 0 ? dims_layout_wanted(kernel->graph, dims, &split, k)
                                   : dims_layout_given(kernel->graph, dims, &split, output);
        tensor_local_dims(kernel->graph, &tensor, first, kernel->extents[id]);
    }
    kernel->node = node;
    return kernel_work(kernel).seconds;
}

/* A kernel of the graph, without a node. Memory is of `arena`. */
static struct kernel kernel_of(const struct graph *graph, const struct machine *machine, struct arena *arena) {
    return (struct kernel){.graph = graph,
                           .machine = machine,
                           .units = 1,
                           .extents = arena_alloc(arena, (size_t)graph->tensors.n + 1, sizeof(int64_t[RT_MAX_NDIM]))};
}

/* Per tensor: true if it is computed in the loop of its only reader. */
static bool *find_fused(const struct graph *graph) {
    bool *fused = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    const int *readers = graph_readers(graph, graph->arena);
    GRAPH_EACH(graph, i, const struct node *node) {
        if (node->op->kind != OP_ELEMENTWISE) continue;
        for (int k = 0; k < node->ninputs; k++) {
            const int id = node->inputs[k], from = id < 0 ? -1 : graph->tensors.at[id].producer;
            const struct node *producer = from < 0 ? NULL : &graph->nodes.at[from];
            if (!producer || producer->op->kind != OP_ELEMENTWISE || producer->phase != node->phase) continue;
            fused[id] = readers[id] == 1 && tensor_elements(&graph->tensors.at[id]) ==
                                                tensor_elements(&graph->tensors.at[node->outputs[0]]);
        }
    }
    return fused;
}

double *plan_node_seconds(const struct graph *whole, const struct machine *machine) {
    const struct graph *graph = graph_typical(whole, whole->arena);
    double *seconds = ARENA_ARRAY(graph->arena, double, graph->nodes.n + 1);
    struct node_split none[RT_MAX_AXES];
    struct kernel kernel = kernel_of(graph, machine, graph->arena);
    for (int axis = 0; axis < RT_MAX_AXES; axis++)
        none[axis] = (struct node_split){SPLIT_NONE, .blocks = 1, .grain = 1};
    kernel.split = none, kernel.fused = find_fused(graph);
    GRAPH_EACH(graph, i, const struct node *node) {
        struct dims dims;
        if (dims_bind(graph->arena, graph, node, &dims, NULL) == 0)
            seconds[graph->order.at[i]] = node_seconds(&kernel, node, &dims);
    }
    return seconds;
}

static struct placement wanted_by(struct propagation *propagation, int node, int tensor) {
    const struct node *n = &propagation->graph->nodes.at[node];
    int k = 0;
    while (n->inputs[k] != tensor) k++;
    return dims_placement(propagation_dims(propagation, node), k, &propagation->split[node][propagation->axis]);
}

/* True if an earlier reader in the list of uses needs the tensor in the same placement: it is redistributed once. */
static bool is_served(struct propagation *propagation, int tensor, int use, const struct placement *wanted) {
    for (int u = propagation->uses.first[tensor]; u < use; u++) {
        struct placement other = wanted_by(propagation, propagation->uses.users[u], tensor);
        if (placement_equal(&other, wanted)) return true;
    }
    return false;
}

static double path_seconds(struct moving *moving, const struct placement *wanted) {
    double seconds = 0;
    moving->to = *wanted;
    if (placement_equal(&moving->from, wanted) || moving->from.kind == PLACED_WHOLE || !(moving->bytes > 0)) return 0;
    moves_first(moving, &seconds);
    return seconds;
}

/* Seconds to redistribute the node's result for its readers. If one of them needs it whole, that serves all. */
static double seconds_of_moves(struct propagation *propagation, int tensor, const struct placement *given,
                               const struct machine_group *group) {
    const struct tensor *t = &propagation->graph->tensors.at[tensor];
    const struct placement whole = {PLACED_WHOLE};
    struct moving moving = {.tensor = t, .bytes = (double)tensor_bytes(t), .from = *given, .group = *group};
    double seconds = 0;
    for (int u = propagation->uses.first[tensor]; u < propagation->uses.first[tensor + 1]; u++) {
        struct placement wanted = wanted_by(propagation, propagation->uses.users[u], tensor);
        if (wanted.kind == PLACED_WHOLE) return path_seconds(&moving, &whole);
        if (!is_served(propagation, tensor, u, &wanted)) seconds += path_seconds(&moving, &wanted);
    }
    return seconds;
}

double plan_cost(struct propagation *decided, const struct machine *machine) {
    struct propagation *const propagation = propagation_typical(decided);
    const struct graph *graph = propagation->graph;
    const int axis = propagation->axis, stage = graph->mesh.axis[axis].first;
    const struct machine_group group = {machine, propagation->ways, mesh_stride(&graph->mesh, axis, stage)};
    struct arena *scratch = arena_scratch(graph->arena);
    struct kernel kernel = kernel_of(graph, machine, scratch);
    double seconds = 0;
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        const struct dims *dims = propagation_dims(propagation, id);
        kernel.split = propagation->split[id];
        seconds += node_seconds(&kernel, node, dims);
        for (int k = 0; k < node->noutputs; k++) {
            const struct placement given = dims_placement(dims, dims->ninputs + k, &kernel.split[axis]);
            if (node->outputs[k] >= 0) seconds += seconds_of_moves(propagation, node->outputs[k], &given, &group);
        }
    }
    arena_release(graph->arena, scratch);
    return seconds;
}

bool plan_needs_whole(struct propagation *propagation, int tensor) {
    for (int u = propagation->uses.first[tensor]; u < propagation->uses.first[tensor + 1]; u++) {
        const int reader = propagation->uses.users[u];
        if (propagation_lacks_axis(propagation, reader)) continue;
        if (wanted_by(propagation, reader, tensor).kind == PLACED_WHOLE) return true;
    }
    return false;
}

/* True if a stage that has the axis reads the tensor. */
static bool is_read(const struct propagation *propagation, int tensor) {
    bool read = false;
    for (int u = propagation->uses.first[tensor]; u < propagation->uses.first[tensor + 1] && !read; u++)
        read = !propagation_lacks_axis(propagation, propagation->uses.users[u]);
    return read;
}

int64_t plan_whole_weights(struct propagation *propagation, int64_t *divided) {
    int64_t whole = 0;
    *divided = 0;
    VEC_EACH(&propagation->graph->tensors, t, const struct tensor *tensor) {
        if (tensor->kind != TENSOR_WEIGHT || !is_read(propagation, t)) continue;
        *(plan_needs_whole(propagation, t) ? &whole : divided) += tensor_bytes(tensor);
    }
    return whole;
}
