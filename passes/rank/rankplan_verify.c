/* Verification of the plan of ranks: that they meet at every collective and transfer, and that memory is intact when it
 * is read. */

#include "passes/rank/memplan.h"
#include "passes/rank/reuse.h"

/* Verification of the memory plan: walks the nodes as a rank executes them, records which tensor was written last at
 * each address, and checks that every operand is intact when it is read.
 *
 * Note [Last writers]
 * The places of tensors divide a rank's memory into pieces (passes/rank/reuse.h). A segment tree over the pieces, in
 * the order of addresses, records the tensor that was written last to each. A node of the tree has that tensor for all
 * of its pieces if it is the same for all, so that a write or a check takes time logarithmic in their number. */

enum { NOBODY = -1, SEVERAL = -2 };

struct walk {
    const struct rankplan *plan;
    const struct rank_class *class;
    struct arena *arena;
    struct pieces pieces;
    int leaves;
    bool *written; /* per root */
    /* per node of the tree: a root, NOBODY or SEVERAL; 1 is the tree's root, 2n and 2n + 1 are the children of n */
    int *writer;
};

/* False for tensors outside of the arenas: literals in the code, and inputs in the caller's memory. */
static bool has_place(const struct walk *w, int tensor) {
    const struct plan_place *place = &w->class->place[tensor];
    return place->offset >= 0 && place->arena < RT_ARENAS;
}

static void plant_tree(struct walk *w) {
    w->leaves = 1;
    while (w->leaves < w->pieces.n + 1) w->leaves *= 2;
    w->writer = ARENA_ARRAY(w->arena, int, 2 * w->leaves);
    for (int node = 0; node < 2 * w->leaves; node++) w->writer[node] = NOBODY;
}

/* Moves the writer that an ancestor of the leaf has for all of its leaves down to the children. */
static void push_down(struct walk *w, int leaf) {
    for (int bit = w->leaves / 2; bit; bit /= 2) {
        const int parent = (w->leaves + leaf) / (2 * bit), all = w->writer[parent];
        if (all == SEVERAL) continue;
        w->writer[2 * parent] = w->writer[2 * parent + 1] = all;
        w->writer[parent] = SEVERAL;
    }
}

/* Gives ancestors of the leaf whose children have the same writer that writer. */
static void pull_up(struct walk *w, int leaf) {
    for (int parent = (w->leaves + leaf) / 2; parent; parent /= 2)
        if (w->writer[parent] == SEVERAL && w->writer[2 * parent] == w->writer[2 * parent + 1])
            w->writer[parent] = w->writer[2 * parent];
}

static void write_value(struct walk *w, int root) {
    w->written[root] = true;
    if (!has_place(w, root)) return;
    const int first = w->pieces.first[root], end = w->pieces.end[root];
    if (first == end) return;
    push_down(w, first);
    push_down(w, end - 1);
    for (int left = w->leaves + first, right = w->leaves + end; left < right; left /= 2, right /= 2) {
        if (left % 2) w->writer[left++] = root;
        if (right % 2) w->writer[--right] = root;
    }
    pull_up(w, first);
    pull_up(w, end - 1);
}

/* The last writer that the tree records for the node. An ancestor with one writer for all of its leaves takes
 * precedence; the topmost such node decides. */
static int writer_of(const struct walk *w, int node) {
    int writer = SEVERAL;
    for (; node; node /= 2)
        if (w->writer[node] != SEVERAL) writer = w->writer[node];
    return writer;
}

static bool all_written_by(const struct walk *w, int tensor, int writer) {
    int left = w->leaves + w->pieces.first[tensor], right = w->leaves + w->pieces.end[tensor];
    for (; left < right; left /= 2, right /= 2) {
        if (left % 2 && writer_of(w, left++) != writer) return false;
        if (right % 2 && writer_of(w, --right) != writer) return false;
    }
    return true;
}

/* True if the tensor's memory still has its value: the last write there was by the tensor itself, or by a tensor that
 * shares its memory on purpose. The memory of a stored tensor must not have been written at all. */
static bool is_intact(const struct walk *w, int tensor) {
    const int root = w->plan->root[tensor];
    const bool stored = w->plan->graph->tensors.at[root].kind != TENSOR_VALUE && (tensor == root || !w->written[root]);
    if (!stored && !w->written[root]) return false;
    return !has_place(w, root) || all_written_by(w, root, stored ? NOBODY : root);
}

static int lost(const struct walk *w, struct diags *diags, const char *where, int tensor) {
    return diag_error(diags, 1103, EXIT_INTERNAL, where, "memory plan: '%s' is overwritten before it is read",
                      w->plan->graph->tensors.at[tensor].name);
}

/* True if the result lies in the memory of an operand by intention (Notes [In place], [On the operand]). */
static bool is_on_operand(const struct walk *w, const struct node *node, int output) {
    if (rankplan_in_place(w->class, w->plan->graph, node, output) >= 0) return true;
    const bool may = node->op->in_place || rankplan_moves_slices(w->plan->graph, node);
    return may && w->plan->root[node->outputs[output]] == w->plan->root[node->inputs[0]];
}

/* Checks that the new value of every weight that the class holds is intact. A weight may have several updates, one per
 * stage: the one whose value the class computes or receives counts. */
static int check_updates(struct walk *w, struct diags *diags) {
    const struct graph *graph = w->plan->graph;
    bool *renewed = ARENA_ARRAY(w->arena, bool, graph->tensors.n + 1);
    VEC_EACH(&graph->updates, i, const struct update *u) {
        const int root = w->plan->root[u->value];
        if (graph->tensors.at[root].kind == TENSOR_VALUE && !w->written[root]) continue;
        if (!is_intact(w, u->value)) return lost(w, diags, graph->name, u->value);
        renewed[u->weight] = true;
    }
    for (int i = 0; i < graph->updates.n; i++)
        if (has_place(w, graph->updates.at[i].weight) && !renewed[graph->updates.at[i].weight])
            return lost(w, diags, graph->name, graph->updates.at[i].value);
    return 0;
}

/* True for an output that only another stage has (give_outputs in place/stage.c). */
static bool is_elsewhere(const struct walk *w, int output) {
    const struct graph *graph = w->plan->graph;
    const int producer = graph->tensors.at[output].producer;
    return graph_overlaps_stages(graph) && producer >= 0 && !rankplan_part(w->class, &graph->nodes.at[producer]);
}

static int walk_class(struct walk *w, struct diags *diags) {
    const struct graph *graph = w->plan->graph;
    GRAPH_EACH(graph, i, const struct node *node) {
        int part = rankplan_part(w->class, node);
        bool moves = !w->plan->moves_nothing[graph->order.at[i]];
        int results = moves && part & STAGE_WRITES ? node->noutputs : 0;
        /* Operands are checked after results are written: only results in place may lie on an operand. */
        for (int o = 0; o < results; o++)
            if (!is_on_operand(w, node, o)) write_value(w, w->plan->root[node->outputs[o]]);
        for (int k = 0; k < node->ninputs && part & STAGE_READS; k++)
            if (node->inputs[k] >= 0 && !is_intact(w, node->inputs[k]))
                return lost(w, diags, node_place(graph, graph->order.at[i]), node->inputs[k]);
        for (int o = 0; o < results; o++)
            if (is_on_operand(w, node, o)) write_value(w, w->plan->root[node->outputs[o]]);
    }
    for (int i = 0; i < graph->outputs.n; i++)
        if (!is_elsewhere(w, graph->outputs.at[i]) && !is_intact(w, graph->outputs.at[i]))
            return lost(w, diags, graph->name, graph->outputs.at[i]);
    return check_updates(w, diags);
}

static int verify_class(struct walk *w, struct diags *diags) {
    if (slots_verify(w->plan, w->class, diags) < 0) return -1;
    w->written = ARENA_ARRAY(w->arena, bool, w->plan->graph->tensors.n + 1);
    w->pieces = pieces_find(w->plan->graph, w->class, w->arena);
    plant_tree(w);
    return walk_class(w, diags);
}

/* The memory of a state or weight that is a slice has no room for what is gathered from it. */
static int check_slices(const struct rankplan *plan, struct diags *diags) {
    const struct graph *graph = plan->graph;
    for (int t = 0; t < graph->tensors.n; t++)
        if (tensor_is_stored(&graph->tensors.at[plan->root[t]]) && rankplan_is_gathered(graph, plan->root[t], t))
            return diag_error(diags, 1103, EXIT_INTERNAL, graph->name,
                              "memory plan: '%s' is larger than the slice in whose memory it is",
                              graph->tensors.at[t].name);
    return 0;
}

/* Checks that no tensor is overwritten before its last use. */
static int verify_memory(const struct rankplan *plan, struct diags *diags) {
    int status = check_slices(plan, diags);
    for (int c = 0; c < plan->nclasses && status == 0; c++) {
        struct walk walk = {.plan = plan, .class = &plan->classes[c], .arena = arena_scratch(plan->graph->arena)};
        status = verify_class(&walk, diags);
        arena_release(plan->graph->arena, walk.arena);
    }
    return status;
}

/* The class with the coordinates of `class` on all axes but `axis`, where its coordinate is in set number `set`. */
static const struct rank_class *member(const struct rankplan *plan, const struct rank_class *class, int axis, int set) {
    const struct mesh *mesh = &plan->graph->mesh;
    int coordinate[RT_MAX_AXES];
    mesh_coordinate(mesh, class->shard, coordinate);
    coordinate[axis] = plan->sets[axis].first[set];
    return &plan->classes[rankplan_class_of(plan, mesh_shard(mesh, coordinate))];
}

/* True if all members of the groups of the class' ranks execute the node, or, of a transfer, its sender and its
 * receiver. Groups of all ranks of a class consist of the same classes; along a replica axis, of the class alone. */
static bool all_meet(const struct rankplan *plan, const struct rank_class *class, const struct node *node) {
    const int axis = (int)attr_int(node, "mesh", 0);
    const bool transfer = node->op->id == OP_Transfer;
    int ends = 0;
    if (axis >= plan->graph->mesh.naxes) return true;
    for (int set = 0; set < plan->sets[axis].n; set++) {
        const int part = rankplan_part(member(plan, class, axis, set), node);
        if (!transfer && !part) return false;
        ends += part == STAGE_READS ? 1 : part == STAGE_WRITES ? 2 : 0;
    }
    return !transfer || ends == 3;
}

/* Every rank executes a part of one common order. If all members of a group execute each of its nodes, then the first
 * node in the order at which some rank waits is reached by all its members. So there is no deadlock, and all ranks meet
 * in the same order. */
static int verify_order(const struct rankplan *plan, struct diags *diags) {
    const struct graph *graph = plan->graph;
    for (int c = 0; c < plan->nclasses; c++)
        GRAPH_EACH(graph, i, const struct node *node) {
            if (!op_communicates(node->op) || !rankplan_part(&plan->classes[c], node) ||
                all_meet(plan, &plan->classes[c], node))
                continue;
            return diag_error(diags, 1102, EXIT_MISMATCH, node_place(graph, graph->order.at[i]),
                              "deadlock: rank %d would wait for a rank that never takes part", plan->classes[c].shard);
        }
    return 0;
}

int rankplan_verify(const struct rankplan *plan, struct diags *diags) {
    return verify_order(plan, diags) < 0 || verify_memory(plan, diags) < 0 ? -1 : 0;
}
