/* Assigns to every tensor its layout: to what nodes compute by passes/plan/layouts.h, and to inputs and weights.
 *
 * Note [Originals]
 * Of a result that an earlier pipeline stage computes again in the backward phase, nodes of later stages read the
 * original: the backward phase begins with the last stage, which would have to wait for the copy. Layouts are assigned
 * afterwards, since the copy may be split otherwise than the original. A copy that every stage can compute for itself
 * without communication, such as that of a table of positions, is read as it is. */

#include "ir/dims.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/place/zero.h"
#include "passes/plan/layouts.h"
#include "passes/plan/stages.h"

/* Note [Regrouped sums]
 * A chain is a tree of Add nodes of one shape and type, each read by the next alone: a + b + c + d in any brackets.
 * Where some of its terms are partial sums along a mesh axis and others are not, every partial one has to be reduced
 * before it meets one that is not. So terms of equal layout are added first, and the sums of these groups afterwards:
 * the chain needs one all-reduce for each group that is partial, instead of one for each term. The global norm of the
 * gradients is such a chain, over all parameters; x + attention(x) + mlp(x) of a parallel residual is another.
 *
 * The chain keeps its nodes, the last of which gives the result as before: they only read other operands, and those
 * before the last one move to where their operands are complete. */

/* A node's operand that is not computed by another node of the chain. */
struct term {
    int tensor, node;
};

struct chain {
    VEC(int) nodes;         /* the root first */
    VEC(struct term) terms; /* from left to right */
};

/* The operand is computed by an Add for this node alone, in the shape, type and phase of its result. */
static bool is_inner(const struct graph *graph, const int *readers, const struct node *node, int operand) {
    if (!made_by(graph, operand, OP_Add) || readers[operand] != 1) return false;
    const struct tensor *term = &graph->tensors.at[operand], *sum = &graph->tensors.at[node->outputs[0]];
    return tensor_same_type(term, sum) && graph->nodes.at[term->producer].phase == node->phase;
}

/* The chain that ends at `root`, with a stack in place of recursion: chains are as long as models have parameters. */
static struct chain find_chain(const struct graph *graph, const int *readers, int root) {
    struct chain chain = {0};
    VEC(struct term) stack = {0}; /* operands still to be looked at, the leftmost on top */
    int id = root;
    do {
        const struct node *node = &graph->nodes.at[id];
        VEC_PUSH(graph->arena, &chain.nodes, id);
        VEC_PUSH(graph->arena, &stack, (struct term){node->inputs[1], id});
        VEC_PUSH(graph->arena, &stack, (struct term){node->inputs[0], id});
        id = -1;
        while (id < 0 && stack.n) {
            const struct term top = stack.at[--stack.n];
            if (is_inner(graph, readers, &graph->nodes.at[top.node], top.tensor))
                id = graph->tensors.at[top.tensor].producer;
            else
                VEC_PUSH(graph->arena, &chain.terms, top);
        }
    } while (id >= 0);
    return chain;
}

static bool is_partial(const struct graph *graph, int tensor) {
    for (int axis = 0; axis < mesh_layout_axes(&graph->mesh); axis++)
        if (layout_along(&graph->tensors.at[tensor].layout, axis).kind == PLACED_PARTIAL) return true;
    return false;
}

/* Numbers the terms' layouts in group[]; returns how many there are, 0 where regrouping would save no reduction. */
static int find_groups(const struct graph *graph, const struct chain *chain, int *group) {
    int *example = ARENA_ARRAY(graph->arena, int, chain->terms.n + 1), groups = 0; /* per group: its first tensor */
    bool saves = false;
    for (int i = 0; i < chain->terms.n; i++) {
        const int tensor = chain->terms.at[i].tensor;
        const struct layout *layout = &graph->tensors.at[tensor].layout;
        int g = 0;
        while (g < groups && !layout_equal(&graph->tensors.at[example[g]].layout, layout)) g++;
        saves = saves || (g < groups && is_partial(graph, tensor));
        if (g == groups) example[groups++] = tensor;
        group[i] = g;
    }
    return saves && groups > 1 ? groups : 0;
}

struct regrouping {
    struct graph *graph;
    const int *readers;
    int *place;     /* per tensor: the place in the order after which it exists; -1: from the start */
    int *after;     /* per place: the last node that follows it, -1: none */
    int *before_it; /* per node that follows a place: the one before it there, -1: none */
    bool *moved;    /* per node */
};

/* `node` comes behind the node at that place of the order, and behind those that were put there before. */
static void put_behind(struct regrouping *r, int node, int place) {
    r->before_it[node] = r->after[place];
    r->after[place] = node;
    r->moved[node] = true;
    r->place[r->graph->nodes.at[node].outputs[0]] = place;
}

static int later(const struct regrouping *r, int place, int tensor) {
    return r->place[tensor] > place ? r->place[tensor] : place;
}

/* Per term, the node that adds it to its group: the node that read the term before, whose name still tells what it
 * adds; -1 if that is the root or adds its other operand, or if the term is the first of its group. *spare gets the
 * nodes that are left, the root last. */
static int *assign_nodes(const struct regrouping *r, const struct chain *chain, const int *group, int *spare) {
    const int root = chain->nodes.at[0];
    int *adds = ARENA_ARRAY(r->graph->arena, int, chain->terms.n + 1), nspare = 0;
    bool *begun = ARENA_ARRAY(r->graph->arena, bool, chain->terms.n + 1); /* per group */
    for (int i = 0; i < chain->terms.n; i++) {
        const int node = chain->terms.at[i].node;
        adds[i] = begun[group[i]] && node != root && !r->moved[node] ? node : -1;
        if (adds[i] >= 0) r->moved[node] = true;
        begun[group[i]] = true;
    }
    for (int k = chain->nodes.n - 1; k >= 0; k--)
        if (!r->moved[chain->nodes.at[k]]) spare[nspare++] = chain->nodes.at[k];
    return adds;
}

/* Gives a tensor the shape to which two others are broadcast: terms such as biases are smaller than the chain's sum. */
static void set_broadcast_shape(struct tensor *y, const struct tensor *a, const struct tensor *b) {
    y->ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int d = 1; d <= y->ndim; d++) {
        const int64_t of_a = d <= a->ndim ? a->dims[a->ndim - d] : 1, of_b = d <= b->ndim ? b->dims[b->ndim - d] : 1;
        y->dims[y->ndim - d] = of_a == 1 ? of_b : of_a;
    }
}

/* Puts a sum on a stage to which its terms come: values of the backward phase go to earlier stages, others to later
 * ones. */
static void set_stage(const struct graph *graph, struct node *add) {
    int stage = -1;
    for (int k = 0; k < add->ninputs && add->stage >= 0; k++) {
        const struct node *term = graph_producer(graph, add->inputs[k]);
        if (!term || term->phase != add->phase || term->stage < 0) continue;
        if (stage < 0 || (add->phase == PHASE_BACKWARD ? term->stage < stage : term->stage > stage))
            stage = term->stage;
    }
    if (stage >= 0) add->stage = stage;
}

/* `node` becomes left + right, and comes as soon as both exist: its result. */
static int set_sum(struct regrouping *r, int node, int left, int right, int first) {
    struct node *add = &r->graph->nodes.at[node];
    add->inputs[0] = left;
    add->inputs[1] = right;
    struct tensor *all = r->graph->tensors.at;
    set_broadcast_shape(&all[add->outputs[0]], &all[left], &all[right]);
    set_stage(r->graph, add);
    for (int axis = 0; axis < mesh_layout_axes(&r->graph->mesh); axis++) add->split[axis].factor = SPLIT_NONE;
    put_behind(r, node, later(r, later(r, first, left), right));
    return add->outputs[0];
}

/* The place of the chain's first node. */
static int first_place(const struct regrouping *r, const struct chain *chain) {
    int first = r->graph->order.n;
    for (int k = 0; k < chain->nodes.n; k++) {
        const int place = r->place[r->graph->nodes.at[chain->nodes.at[k]].outputs[0]];
        if (place < first) first = place;
    }
    return first;
}

/* Adds the terms of each group, then the groups' sums; the root, which is last, stays at its place and stage. */
static void rebuild(struct regrouping *r, const struct chain *chain, const int *group, int groups) {
    const int first = first_place(r, chain), root = chain->nodes.at[0];
    const int result = r->graph->nodes.at[root].outputs[0], place = r->place[result];
    const int stage = r->graph->nodes.at[root].stage;
    int *spare = ARENA_ARRAY(r->graph->arena, int, chain->nodes.n + 1);
    int *sum = ARENA_ARRAY(r->graph->arena, int, groups + 1); /* per group: the sum of its terms so far, -1: none */
    const int *adds = assign_nodes(r, chain, group, spare);
    for (int g = 0; g < groups; g++) sum[g] = -1;
    for (int i = 0; i < chain->terms.n; i++) {
        const int term = chain->terms.at[i].tensor, g = group[i];
        sum[g] = sum[g] < 0 ? term : set_sum(r, adds[i] >= 0 ? adds[i] : *spare++, sum[g], term, first);
    }
    for (int g = 1; g < groups; g++) sum[0] = set_sum(r, *spare++, sum[0], sum[g], first);
    r->moved[root] = false;
    r->place[result] = place;
    r->graph->nodes.at[root].stage = stage;
}

/* The order with every moved node at its new place. */
static void reorder(const struct regrouping *r) {
    struct graph *graph = r->graph;
    int *behind = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1), n;
    const int *order = graph_take_order(graph, &n);
    for (int i = 0; i < n; i++) {
        int count = 0;
        if (!r->moved[order[i]]) VEC_PUSH(graph->arena, &graph->order, order[i]);
        for (int node = r->after[i]; node >= 0; node = r->before_it[node])
            if (r->moved[node]) behind[count++] = node;
        while (count) VEC_PUSH(graph->arena, &graph->order, behind[--count]);
    }
}

/* Regroups the chains of a graph whose tensors have layouts (Note [Regrouped sums]). The splits of the nodes of these
 * chains are cleared: partition gives them layouts again. True if there was such a chain. */
static bool regroup_sums(struct graph *graph) {
    bool *inner = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1), any = false; /* in a chain, and not its root */
    struct regrouping r = {.graph = graph,
                           .readers = graph_readers(graph, graph->arena),
                           .place = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1),
                           .after = ARENA_ARRAY(graph->arena, int, graph->order.n + 1),
                           .before_it = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1),
                           .moved = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1)};
    for (int t = 0; t < graph->tensors.n; t++) r.place[t] = -1;
    GRAPH_EACH(graph, i, const struct node *node) {
        r.after[i] = -1;
        for (int k = 0; k < node->noutputs; k++) r.place[node->outputs[k]] = i;
    }
    for (int i = graph->order.n - 1; i >= 0; i--) {
        const int root = graph->order.at[i];
        if (graph->nodes.at[root].op->id != OP_Add || inner[root]) continue;
        const struct chain chain = find_chain(graph, r.readers, root);
        int *group = ARENA_ARRAY(graph->arena, int, chain.terms.n + 1);
        for (int k = 1; k < chain.nodes.n; k++) inner[chain.nodes.at[k]] = true;
        const int groups = chain.terms.n > 2 ? find_groups(graph, &chain, group) : 0;
        if (groups) rebuild(&r, &chain, group, groups);
        any = any || groups;
    }
    if (any) reorder(&r);
    return any;
}

/* True for a control that each scale unit sets by itself. */
static bool control_is_own(const struct graph *graph, int tensor) {
    static const enum rt_control own[] = {RT_REAL, RT_MICRO, RT_SEED};
    for (size_t i = 0; i < sizeof own / sizeof *own && graph->controls.n; i++)
        if (graph->controls.at[own[i]] == tensor) return true;
    return false;
}

/* Along replica axes the inputs are the ranks' own, and so are the controls that differ between scale units. */
static void lay_out_inputs(struct graph *graph) {
    const struct mesh *mesh = &graph->mesh;
    for (int axis = mesh->naxes; axis < mesh_layout_axes(mesh); axis++)
        for (int t = 0; t < graph->tensors.n; t++) {
            const bool own = graph->tensors.at[t].kind == TENSOR_INPUT || control_is_own(graph, t);
            if (own) layout_place(graph->arena, &graph->tensors.at[t].layout, axis, (struct placement){PLACED_OWN});
        }
}

/* Makes weights and states that the phases of micro-batches update by OWN values OWN. True if one was not. What the
 * update phase computes must be alike in all scale units. */
static bool lay_out_updated(struct graph *graph) {
    bool any = false;
    for (int i = 0; i < graph->updates.n; i++)
        for (int axis = graph->mesh.naxes; axis < mesh_layout_axes(&graph->mesh); axis++) {
            const struct update *update = &graph->updates.at[i];
            struct layout *weight = &graph->tensors.at[update->weight].layout;
            if (layout_along(&graph->tensors.at[update->value].layout, axis).kind != PLACED_OWN ||
                layout_along(weight, axis).kind == PLACED_OWN || graph_phase_of(graph, update->value) >= PHASE_REDUCE)
                continue;
            layout_place(graph->arena, weight, axis, (struct placement){PLACED_OWN});
            any = true;
        }
    return any;
}

/* True if every stage computes the node for itself: what it reads too, and no rank has a part of either. */
static bool is_everywhere(const struct graph *graph, const bool *everywhere, const struct node *node) {
    for (int axis = 0; axis < graph->mesh.naxes; axis++)
        if (node->split[axis].factor != SPLIT_NONE) return false;
    for (int k = 0; k < node->ninputs; k++) {
        const int producer = node->inputs[k] < 0 ? -1 : graph->tensors.at[node->inputs[k]].producer;
        if (producer >= 0 && !everywhere[producer]) return false;
    }
    return true;
}

/* The value that a node on `stage` reads for `tensor` (Note [Originals]). */
static int original_before(const struct graph *graph, const bool *everywhere, int tensor, int stage) {
    const int producer = tensor < 0 ? -1 : graph->tensors.at[tensor].producer;
    const struct node *copy = producer < 0 ? NULL : &graph->nodes.at[producer];
    if (!copy || !attr_int(copy, "again", 0) || copy->origin < 0 || copy->stage >= stage || everywhere[producer])
        return tensor;
    for (int k = 0; k < copy->noutputs; k++)
        if (copy->outputs[k] == tensor) return graph->nodes.at[copy->origin].outputs[k];
    BUG("'%s' is no result of the node that computes it", graph->tensors.at[tensor].name);
}

static void read_originals(const struct graph *graph) {
    if (!graph->train || mesh_axis(&graph->mesh, AXIS_PIPELINE) < 0) return;
    bool *everywhere = stage_recomputed(graph); /* and without communication */
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        everywhere[id] = everywhere[id] && is_everywhere(graph, everywhere, node);
        for (int k = 0; k < node->ninputs; k++)
            node->inputs[k] = original_before(graph, everywhere, node->inputs[k], node->stage);
    }
}

int pass_partition(struct graph *graph, const struct pass_context *context) {
    const bool reduces_each = context->decisions.zero >= ZERO_SUMS && decisions_zero_groups(&context->decisions) == 1;
    if (graph->train) mesh_add_replicas(&graph->mesh, decisions_zero_groups(&context->decisions));
    zero_cut(graph, context);
    read_originals(graph);
    lay_out_inputs(graph);
    do {
        layouts_assign(graph, reduces_each);
    } while (lay_out_updated(graph));
    if (regroup_sums(graph)) layouts_assign(graph, reduces_each);
    return 0;
}
