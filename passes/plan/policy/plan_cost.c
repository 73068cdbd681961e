#include "passes/plan/layouts.h"
#include "passes/plan/machine/kernel_time.h"
#include "passes/plan/machine/moves.h"
#include "passes/pipeline.h"
#include "passes/plan/policy/policy.h"

#include <string.h>

/* Note [Prices before placement]
 * What a node costs depends on its part, on the kernel that computes it with other nodes, and on the collectives behind
 * it. All of this is decided after placement. So a copy of the graph gets the splits of the draft and the layouts that
 * follow from them (passes/plan/layouts.h), and the passes that fuse nodes are run on it. The price of a kernel is that
 * of the node that computed its first result; what else was fused into the kernel costs nothing. */
struct prices {
    const struct graph *graph; /* the copy, at its typical sizes */
    const struct machine *machine;
    struct arena *arena;
    struct uses uses;
    struct layout *wanted; /* per place of uses.users: how that reader needs the tensor */
    struct kernel kernel;
};

static const struct graph *fused_copy(const struct draft *draft, const struct pass_context *context,
                                      struct arena *arena) {
    static int (*const fusions[])(struct graph * graph, const struct pass_context *context) = {
#define PASS(name, from, to, run, help)
#define FUSION(name, from, to, run, help) run,
#include "passes/passes.def"
#undef PASS
    };
    struct graph *copy = graph_copy(draft->graph, arena);
    GRAPH_EACH_ID(copy, id, struct node *const node)
        memcpy(node->split, draft->split[id], RT_MAX_AXES * sizeof *node->split);
    layouts_assign(copy, false);
    for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++)
        if (fusions[i](copy, context) < 0) BUG("a graph that is not placed cannot be fused");
    return graph_typical(copy, arena);
}

/* Lists how each reader needs what it reads. */
static void find_wanted(struct prices *p) {
    int *next = ARENA_ARRAY(p->arena, int, p->graph->tensors.n + 1);
    p->uses = graph_uses(p->graph, p->arena);
    p->wanted = ARENA_ARRAY(p->arena, struct layout, p->uses.first[p->graph->tensors.n] + 1);
    GRAPH_EACH(p->graph, i, const struct node *node) {
        struct dims dims;
        dims_bind_checked(p->arena, p->graph, node, &dims);
        EACH_VALUE(node->inputs, node->ninputs, k, const int tensor) {
            if (tensor < 0) continue;
            p->wanted[p->uses.first[tensor] + next[tensor]++] = dims_layout_wanted(p->graph, &dims, node, k);
        }
    }
}

/* Seconds of the node's kernel on a rank of the first coordinates, which has the largest parts. */
static double kernel_seconds(struct prices *p, const struct node *node) {
    static const int first[RT_MAX_AXES];
    struct dims dims;
    if (node->op->kind == OP_VIEW) return 0;
    dims_bind_checked(p->arena, p->graph, node, &dims);
    for (int k = 0; k < node->ninputs + node->noutputs; k++) {
        const int id = node_tensor(node, k);
        if (id < 0) continue;
        struct tensor tensor = p->graph->tensors.at[id];
        if (k < node->ninputs) tensor.layout = dims_layout_wanted(p->graph, &dims, node, k);
        tensor_local_dims(p->graph, &tensor, first, p->kernel.extents[id]);
    }
    p->kernel.node = node, p->kernel.split = node->split;
    return kernel_work(&p->kernel).seconds;
}

/* Seconds to redistribute the tensor along the axis for its readers. If one of them needs it whole, that serves all;
 * else it is redistributed once for all that need it alike. */
static double seconds_along(const struct prices *p, int tensor, int axis) {
    const struct graph *graph = p->graph;
    const struct tensor *t = &graph->tensors.at[tensor];
    const struct mesh *mesh = &graph->mesh;
    const int stage = mesh->axis[axis].first;
    struct moving moving = {.tensor = t,
                            .bytes = (double)tensor_bytes(t),
                            .from = layout_along(&t->layout, axis),
                            .group = {p->machine, mesh->axis[axis].size, mesh_stride(mesh, axis, stage)}};
    double sum = 0;
    if (moving.from.kind == PLACED_WHOLE || !(moving.bytes > 0)) return 0;
    EACH(t->layout.cuts, t->layout.ncuts, c, const struct cut *cut)
        if (cut->axis != axis) moving.bytes /= mesh->axis[cut->axis].size;
    for (int u = p->uses.first[tensor]; u < p->uses.first[tensor + 1]; u++) {
        double seconds = 0;
        bool served = false;
        moving.to = layout_along(&p->wanted[u], axis);
        for (int earlier = p->uses.first[tensor]; earlier < u && !served; earlier++) {
            const struct placement other = layout_along(&p->wanted[earlier], axis);
            served = placement_equal(&other, &moving.to);
        }
        if (served || placement_equal(&moving.from, &moving.to)) continue;
        moves_first(&moving, &seconds);
        if (moving.to.kind == PLACED_WHOLE) return seconds;
        sum += seconds;
    }
    return sum;
}

double plan_seconds(const struct draft *draft, const struct pass_context *context, double *of_node) {
    const struct graph *whole = draft->graph;
    struct arena *scratch = arena_scratch(whole->arena);
    struct prices p = {.graph = fused_copy(draft, context, scratch),
                       .machine = machine_or_default(context->machine),
                       .arena = scratch};
    double sum = 0;
    p.kernel =
        (struct kernel){.graph = p.graph,
                        .machine = p.machine,
                        .units = 1,
                        .extents = arena_alloc(scratch, (size_t)p.graph->tensors.n + 1, sizeof(int64_t[RT_MAX_NDIM]))};
    find_wanted(&p);
    GRAPH_EACH(p.graph, i, const struct node *node) {
        double seconds = kernel_seconds(&p, node);
        for (int k = 0; k < node->noutputs; k++)
            for (int axis = 0; axis < p.graph->mesh.naxes && node->outputs[k] >= 0; axis++)
                seconds += seconds_along(&p, node->outputs[k], axis);
        sum += seconds;
        if (of_node) of_node[whole->tensors.at[node->outputs[0]].producer] += seconds;
    }
    arena_release(whole->arena, scratch);
    return sum;
}

static struct placement wanted_by(struct propagation *propagation, int node, int tensor) {
    const struct node *n = &propagation->graph->nodes.at[node];
    int k = 0;
    while (n->inputs[k] != tensor) k++;
    return dims_placement(propagation_dims(propagation, node), k, &propagation->split[node][propagation->axis]);
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
