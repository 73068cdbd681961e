#include "passes/rank/views.h"

#include <stdio.h>
#include <string.h>

#include "passes/pipeline.h"

/* A node that moves elements, on ranks of one class: its attributes are those for the part. */
struct move {
    const struct graph *graph;
    const struct rank_class *class;
    const struct node *node;
};

static int ndim_of(const struct graph *graph, int tensor) {
    return graph->tensors.at[tensor].ndim;
}

static struct strides dense(const int64_t *dims, int ndim) {
    struct strides s = {0};
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        s.step[d] = step;
        step *= dims[d];
    }
    return s;
}

static bool has_no_element(const int64_t *dims, int ndim) {
    for (int d = 0; d < ndim; d++)
        if (!dims[d]) return true;
    return false;
}

/* Lists the dimensions of more than one element; returns how many. */
static int longer_than_one(const int64_t *dims, int ndim, int *kept) {
    int n = 0;
    for (int d = 0; d < ndim; d++)
        if (dims[d] != 1) kept[n++] = d;
    return n;
}

/* True if dimensions first .. last of kept[] can be merged into one with a single step. */
static bool is_one_run(const int64_t *dims, const struct strides *s, const int *kept, int first, int last) {
    for (int i = first; i < last; i++)
        if (s->step[kept[i]] != s->step[kept[i + 1]] * dims[kept[i + 1]]) return false;
    return true;
}

/* The strides of a tensor under another shape; false if dimensions would be merged that have no common step. */
static bool reshaped(const int64_t *from_dims, int from_ndim, const struct strides *from, const int64_t *dims, int ndim,
                     struct strides *out) {
    int old[RT_MAX_NDIM], new[RT_MAX_NDIM];
    const int nold = longer_than_one(from_dims, from_ndim, old), nnew = longer_than_one(dims, ndim, new);
    *out = dense(dims, ndim);
    out->offset = from->offset;
    if (has_no_element(dims, ndim)) return true;
    for (int i = 0, j = 0; i < nold && j < nnew; i++, j++) {
        const int first_old = i, first_new = j;
        int64_t before = from_dims[old[i]], after = dims[new[j]];
        while (before != after)
            if (before < after)
                before *= from_dims[old[++i]];
            else
                after *= dims[new[++j]];
        if (!is_one_run(from_dims, from, old, first_old, i)) return false;
        int64_t step = from->step[old[i]];
        for (int k = j; k >= first_new; k--) {
            out->step[new[k]] = step;
            step *= dims[new[k]];
        }
    }
    return true;
}

static const int64_t *part_of(const struct move *m, int tensor) {
    return m->class->dims[tensor];
}

static bool reshape(const struct move *m, int from, int to, const struct strides *s, struct strides *out) {
    return reshaped(part_of(m, from), ndim_of(m->graph, from), s, part_of(m, to), ndim_of(m->graph, to), out);
}

static bool see_reshape(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    return reshape(m, m->node->inputs[operand], m->node->outputs[0], s, out);
}
static bool lie_in_reshape(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    return reshape(m, m->node->outputs[0], m->node->inputs[operand], s, out);
}

static bool see_transpose(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    int n;
    const int64_t *perm = attr_ints(m->node, "perm", &n);
    (void)operand;
    out->offset = s->offset;
    for (int d = 0; d < n; d++) out->step[d] = s->step[perm[d]];
    return true;
}
static bool lie_in_transpose(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    int n;
    const int64_t *perm = attr_ints(m->node, "perm", &n);
    (void)operand;
    out->offset = s->offset;
    for (int d = 0; d < n; d++) out->step[perm[d]] = s->step[d];
    return true;
}

static bool see_slice(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    int n;
    const int64_t *start = attr_ints(m->node, "start", &n), *step = attr_ints(m->node, "step", &n);
    (void)operand;
    *out = *s;
    for (int d = 0; d < n; d++) {
        out->offset += start[d] * s->step[d];
        out->step[d] *= step[d];
    }
    return true;
}

static bool lie_in_concat(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    const int axis = (int)attr_int(m->node, "axis", 0);
    *out = *s;
    for (int k = 0; k < operand; k++) out->offset += part_of(m, m->node->inputs[k])[axis] * s->step[axis];
    return true;
}

typedef bool strides_fn(const struct move *move, int operand, const struct strides *strides, struct strides *out);

/* Operators that move elements. see: computes the strides of the result as a view of operand 0 from those of the
 * operand; lie: the strides of an operand as a view into the result from those of the result. False: that is no strided
 * view. */
static const struct mover {
    enum op_id op;
    strides_fn *see, *lie;
} movers[] = {{OP_Reshape, see_reshape, lie_in_reshape},
              {OP_Detach, see_reshape, lie_in_reshape},
              {OP_Whole, see_reshape, lie_in_reshape},
              {OP_Transpose, see_transpose, lie_in_transpose},
              {OP_Slice, see_slice, NULL},
              {OP_Concat, NULL, lie_in_concat}};

static const struct mover *mover_of(const struct node *node) {
    for (size_t i = 0; i < sizeof movers / sizeof *movers; i++)
        if (movers[i].op == node->op->id) return &movers[i];
    return NULL;
}

struct strides views_strides(const struct rankplan *plan, const struct rank_class *class, int tensor) {
    const struct strides *strides = class->strides[tensor];
    return strides ? *strides : dense(class->dims[tensor], ndim_of(plan->graph, tensor));
}

/* Note [Work per move]
 * Whether a move can be a view depends on all readers of its result and, if these are moves, on the readers of their
 * results. In a long chain of moves every search would walk the whole chain. So a search that has met MOST_READERS
 * readers stops, and the move is executed: the time for all moves stays linear. Searches in models meet a handful. */
enum { MOST_READERS = 256, MOST_OPERANDS = 16 };

/* A tensor that would have these strides. */
struct placed {
    int tensor;
    struct strides strides;
};

/* The operands and results that an operator's kernel accesses with strides: bit k for number k. */
struct taken {
    unsigned operands, results;
};

/* Classes with the same extents, and per node a copy with the attributes for their parts; NULL: not made yet. */
struct kind {
    const struct rank_class *class; /* the first of them */
    const struct node **local;
};

struct finder {
    struct rankplan *plan;
    VEC(struct kind) kinds;
    const struct rank_class *class; /* the class under consideration */
    const struct node **local;      /* of its kind */
    bool *fixed;                    /* per tensor: it must be contiguous: an output or the new value of an update */
    struct uses readers;            /* graph_uses */
    struct taken *taken;            /* per operator, as in ops[] */
    VEC(struct placed) open;        /* of the search: tensors whose readers are still to be checked */
    int met;                        /* readers that the search has met */
};

static const struct node *node_at(const struct finder *f, int id) {
    return &f->plan->graph->nodes.at[id];
}

/* True if the target's kernel takes no strides. */
static bool takes_dense(const struct rankplan *plan, int op) {
    return plan->kernels.of && plan->kernels.of[op].dense;
}

static void find_taken(struct finder *f) {
    char name[24];
    f->taken = ARENA_ARRAY(f->plan->graph->arena, struct taken, NOPS);
    for (int o = 0; o < NOPS; o++) {
        if (!ops[o].call || !strstr(ops[o].call, "$strided(") || takes_dense(f->plan, o)) continue;
        for (int k = 0; k < MOST_OPERANDS; k++) {
            snprintf(name, sizeof name, "$strided(x%d)", k);
            if (strstr(ops[o].call, name)) f->taken[o].operands |= 1u << k;
            snprintf(name, sizeof name, "$strided(y%d)", k);
            if (strstr(ops[o].call, name)) f->taken[o].results |= 1u << k;
        }
    }
}

/* The node with the attributes for parts of the class. */
static struct move move_of(struct finder *f, int id) {
    struct graph *graph = f->plan->graph;
    if (!node_at(f, id)->op->split_attr || node_at(f, id)->op->kind == OP_VIEW)
        return (struct move){graph, f->class, node_at(f, id)};
    if (!f->local[id]) {
        struct dims dims;
        struct node *local = arena_copy(graph->arena, node_at(f, id), sizeof *local);
        rankplan_localize(graph, f->class, local, &dims);
        f->local[id] = local;
    }
    return (struct move){graph, f->class, f->local[id]};
}

static bool has_neighbours(const struct finder *f, int tensor, const struct strides *s) {
    const int last = ndim_of(f->plan->graph, tensor) - 1;
    return s->step[last] == 1 || f->class->dims[tensor][last] == 1;
}

/* True if the reader's kernel can read the tensor with the strides. If the reader is a move, its result may be a
 * view too, and is added to the search. */
static bool reader_takes(struct finder *f, int id, const struct placed *at) {
    const struct node *node = node_at(f, id);
    const struct mover *mover = mover_of(node);
    if (mover && mover->see) {
        const struct move m = move_of(f, id);
        struct placed result = {.tensor = node->outputs[0]};
        if (!mover->see(&m, 0, &at->strides, &result.strides)) return false;
        VEC_PUSH(f->plan->graph->arena, &f->open, result);
        return true;
    }
    const unsigned takes = node->op->user ? 0 : f->taken[node->op - ops].operands;
    for (int k = 0; k < node->ninputs; k++)
        if (node->inputs[k] == at->tensor &&
            !(k < MOST_OPERANDS && takes >> k & 1 && has_neighbours(f, at->tensor, &at->strides)))
            return false;
    return true;
}

/* True if all readers of the tensor except node `but` can read it with the strides, directly or through moves (Note
 * [Work per move]). */
static bool readers_take(struct finder *f, int tensor, int but, const struct strides *s) {
    f->open.n = 0;
    VEC_PUSH(f->plan->graph->arena, &f->open, (struct placed){tensor, *s});
    while (f->open.n) {
        const struct placed at = f->open.at[--f->open.n];
        if (f->fixed[at.tensor]) return false;
        for (int u = f->readers.first[at.tensor]; u < f->readers.first[at.tensor + 1]; u++) {
            const int reader = f->readers.users[u];
            if (at.tensor == tensor && reader == but) continue;
            if (++f->met > MOST_READERS || !reader_takes(f, reader, &at)) return false;
        }
    }
    return true;
}

/* True if the node's kernel can write the result with strides. */
static bool writes_strides(const struct finder *f, const struct node *node, int tensor) {
    for (int o = 0; o < node->noutputs && o < MOST_OPERANDS; o++)
        if (node->outputs[o] == tensor) return !node->op->user && f->taken[node->op - ops].results >> o & 1;
    return false;
}

/* True if the tensor can have the strides that node `reader` needs: its producer can write with them, directly or
 * through moves, and all other readers can read with them. */
static bool writer_takes(struct finder *f, int reader, int tensor, struct strides s) {
    for (;;) {
        if (f->plan->graph->tensors.at[tensor].kind != TENSOR_VALUE || f->plan->view[tensor].kind != VIEW_NONE ||
            ++f->met > MOST_READERS || !readers_take(f, tensor, reader, &s))
            return false;
        const int producer = f->plan->graph->tensors.at[tensor].producer;
        const struct node *node = node_at(f, producer);
        const struct mover *mover = mover_of(node);
        if (writes_strides(f, node, tensor)) return has_neighbours(f, tensor, &s);
        if (!mover || !mover->lie || node->ninputs != 1) return false;
        const struct move m = move_of(f, producer);
        const struct strides lies = s;
        if (!mover->lie(&m, 0, &lies, &s)) return false;
        reader = producer;
        tensor = node->inputs[0];
    }
}

static struct strides strides_of(const struct finder *f, int tensor) {
    return views_strides(f->plan, f->class, tensor);
}

static void lie_at(struct finder *f, int tensor, const struct strides *s) {
    f->class->strides[tensor] = arena_copy(f->plan->graph->arena, s, sizeof *s);
}

/* True if the tensor lies in the caller's memory, whose tensors have no parts in plans. */
static bool is_callers(const struct finder *f, int tensor) {
    const struct graph *graph = f->plan->graph;
    for (int producer; (producer = graph->tensors.at[tensor].producer) >= 0;) {
        if (node_at(f, producer)->op->kind != OP_VIEW && f->plan->view[tensor].kind != VIEW_OF_OPERAND) return false;
        tensor = node_at(f, producer)->inputs[0];
    }
    return graph->tensors.at[tensor].kind == TENSOR_INPUT && !f->plan->kernels.holds_inputs;
}

/* True if the view begins at the same offset whatever the open sizes are: addresses are numbers of the plan. */
static bool is_fixed(const struct finder *f, const struct strides *s) {
    return !open_is(f->plan->graph->open, s->offset);
}

static bool result_is_seen(struct finder *f, int id) {
    const struct move m = move_of(f, id);
    const struct strides operand = strides_of(f, m.node->inputs[0]);
    struct strides s;
    return mover_of(m.node)->see(&m, 0, &operand, &s) && is_fixed(f, &s) &&
           !(s.offset && is_callers(f, m.node->inputs[0])) && readers_take(f, m.node->outputs[0], -1, &s);
}

static bool operands_lie(struct finder *f, int id) {
    const struct move m = move_of(f, id);
    const struct strides result = strides_of(f, m.node->outputs[0]);
    struct strides s;
    for (int k = 0; k < m.node->ninputs; k++) {
        if (node_operand(m.node, m.node->inputs[k]) != k)
            return false; /* an operand given twice cannot lie in two places */
        if (!mover_of(m.node)->lie(&m, k, &result, &s) || !is_fixed(f, &s) ||
            !writer_takes(f, id, m.node->inputs[k], s))
            return false;
    }
    return true;
}

/* Sets the result's strides from those of the operand. */
static bool see_result(struct finder *f, int id) {
    const struct move m = move_of(f, id);
    const struct strides operand = strides_of(f, m.node->inputs[0]);
    struct strides s;
    if (m.node->op->kind == OP_VIEW && !f->class->strides[m.node->inputs[0]]) {
        f->class->strides[m.node->outputs[0]] = NULL;
        return true;
    }
    if (!mover_of(m.node)->see(&m, 0, &operand, &s)) BUG("'%s' cannot be a view of its operand", m.node->name);
    lie_at(f, m.node->outputs[0], &s);
    return true;
}

/* Sets the operands' strides from those of the result. */
static bool place_operands(struct finder *f, int id) {
    const struct move m = move_of(f, id);
    const struct strides result = strides_of(f, m.node->outputs[0]);
    struct strides s;
    for (int k = 0; k < m.node->ninputs; k++) {
        if (!mover_of(m.node)->lie(&m, k, &result, &s))
            BUG("the operands of '%s' cannot be views of its result", m.node->name);
        lie_at(f, m.node->inputs[k], &s);
    }
    return true;
}

/* True if holds(f, id) is true for every kind of class. */
static bool in_all_kinds(struct finder *f, bool (*holds)(struct finder *f, int id), int id) {
    for (int k = 0; k < f->kinds.n; k++) {
        f->class = f->kinds.at[k].class;
        f->local = f->kinds.at[k].local;
        f->met = 0;
        if (!holds(f, id)) return false;
    }
    return true;
}

/* Gives classes with the same extents, such as those of different pipeline stages, one common table of strides. */
static void list_kinds(struct finder *f) {
    const struct graph *graph = f->plan->graph;
    EACH(f->plan->classes, f->plan->nclasses, c, struct rank_class *const class) {
        for (int k = 0; k < f->kinds.n && !class->strides; k++)
            if (f->kinds.at[k].class->dims == class->dims) class->strides = f->kinds.at[k].class->strides;
        if (class->strides) continue;
        class->strides = ARENA_ARRAY(graph->arena, const struct strides *, graph->tensors.n + 1);
        VEC_PUSH(graph->arena, &f->kinds,
                 (struct kind){class, ARENA_ARRAY(graph->arena, const struct node *, graph->nodes.n + 1)});
    }
}

static bool is_view(const struct rankplan *plan, int tensor, enum plan_view_kind kind, int node) {
    return plan->view[tensor].kind == kind && plan->view[tensor].node == node;
}

static void mark(struct finder *f, int tensor, enum plan_view_kind kind, int node) {
    f->plan->view[tensor] = (struct plan_view){kind, node};
    f->plan->moves_nothing[node] = true;
}

/* Finds results that are views of operands; in the order of nodes, so that the operand's strides are known. */
static void find_seen(struct finder *f) {
    const struct graph *graph = f->plan->graph;
    VEC_EACH_VALUE(&graph->order, i, const int id) {
        const struct node *node = node_at(f, id);
        const struct mover *mover = mover_of(node);
        if (!mover || !mover->see) continue;
        if (node->op->kind != OP_VIEW) {
            if (!in_all_kinds(f, result_is_seen, id)) continue;
            mark(f, node->outputs[0], VIEW_OF_OPERAND, id);
        }
        in_all_kinds(f, see_result, id);
    }
}

/* Finds operands that are views into results, from the last node on. The operand of a Reshape is one if the result
 * of the Reshape is. */
static void find_lying(struct finder *f) {
    const struct graph *graph = f->plan->graph;
    for (int i = graph->order.n - 1; i >= 0; i--) {
        const int id = graph->order.at[i];
        const struct node *node = node_at(f, id);
        const struct mover *mover = mover_of(node);
        if (!mover || !mover->lie || f->plan->moves_nothing[id]) continue;
        if (node->op->kind == OP_VIEW ? f->plan->view[node->outputs[0]].kind != VIEW_IN_RESULT
                                      : !in_all_kinds(f, operands_lie, id))
            continue;
        for (int k = 0; k < node->ninputs; k++) mark(f, node->inputs[k], VIEW_IN_RESULT, id);
        in_all_kinds(f, place_operands, id);
    }
}

/* Makes the results of operators that never move elements (Reshape, Detach) views of their operands, unless the
 * operand is a view into the result; and sets the strides of all views of operands again, since operands may have
 * become views. */
static void find_others(struct finder *f) {
    const struct graph *graph = f->plan->graph;
    VEC_EACH_VALUE(&graph->order, i, const int id) {
        const struct node *node = node_at(f, id);
        if (node->op->kind == OP_VIEW && !is_view(f->plan, node->inputs[0], VIEW_IN_RESULT, id))
            mark(f, node->outputs[0], VIEW_OF_OPERAND, id);
        if (is_view(f->plan, node->outputs[0], VIEW_OF_OPERAND, id)) in_all_kinds(f, see_result, id);
    }
}

void views_find(struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    struct finder f = {.plan = plan};
    plan->view = arena_alloc(graph->arena, (size_t)graph->tensors.n + 1, sizeof *plan->view);
    plan->moves_nothing = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    f.readers = graph_uses(graph, graph->arena);
    f.fixed = graph_kept(graph, graph->arena);
    list_kinds(&f);
    find_taken(&f);
    find_seen(&f);
    find_lying(&f);
    find_others(&f);
}
