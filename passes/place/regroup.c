/* Note [Regrouped sums]
 * A chain is a tree of Add nodes of one shape and type, each read by the next alone: a + b + c + d in any brackets.
 * Where some of its terms are partial sums along a mesh axis and others are not, every partial one has to be reduced
 * before it meets one that is not. So terms of equal layout are added first, and the sums of these groups afterwards:
 * the chain needs one all-reduce for each group that is partial, instead of one for each term. The global norm of the
 * gradients is such a chain, over all parameters; x + attention(x) + mlp(x) of a parallel residual is another.
 *
 * The chain keeps its nodes, the last of which gives the result as before: they only read other operands, and those
 * before the last one move to where their operands are complete. */
#include "passes/place/regroup.h"

#include <string.h>

#include "ir/op.h"

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

/* Per term the node that adds it to its group: the one that read it before, so that names still tell what is added; -1
 * where that is the root, or adds its other operand, or the term is the first of its group. *spare gets the nodes that
 * are left, the root last. */
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

/* `node` becomes left + right, and comes as soon as both exist: its result. */
static int set_sum(struct regrouping *r, int node, int left, int right, int first) {
    struct node *add = &r->graph->nodes.at[node];
    add->inputs[0] = left;
    add->inputs[1] = right;
    struct tensor *all = r->graph->tensors.at;
    set_broadcast_shape(&all[add->outputs[0]], &all[left], &all[right]);
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

/* Adds the terms of each group, then the groups' sums; the root, which is last, stays where it is. */
static void rebuild(struct regrouping *r, const struct chain *chain, const int *group, int groups) {
    const int first = first_place(r, chain), root = chain->nodes.at[0];
    const int result = r->graph->nodes.at[root].outputs[0], place = r->place[result];
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

bool regroup_sums(struct graph *graph) {
    bool *inner = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1), any = false; /* in a chain, and not its root */
    struct regrouping r = {.graph = graph,
                           .readers = graph_readers(graph, graph->arena),
                           .place = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1),
                           .after = ARENA_ARRAY(graph->arena, int, graph->order.n + 1),
                           .before_it = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1),
                           .moved = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1)};
    for (int t = 0; t < graph->tensors.n; t++) r.place[t] = -1;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
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
