#include "passes/views.h"

#include <stdio.h>
#include <string.h>

/* What moves do to strides ----------------------------------------------------------------------------------------- */

/* A move of one class: what it reads and writes, and the node, with attributes of the part. */
struct move {
    const struct rankplan *plan;
    const struct plan_class *class;
    struct node node;
};

static int ndim_of(const struct rankplan *plan, int tensor) {
    return plan->graph->tensors.at[tensor].ndim;
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

/* Dimensions of more than one element; how many. */
static int longer_than_one(const int64_t *dims, int ndim, int *kept) {
    int n = 0;
    for (int d = 0; d < ndim; d++)
        if (dims[d] != 1) kept[n++] = d;
    return n;
}

/* Whether dimensions first .. last of kept[] can be counted through as one. */
static bool is_one_run(const int64_t *dims, const struct strides *s, const int *kept, int first, int last) {
    for (int i = first; i < last; i++)
        if (s->step[kept[i]] != s->step[kept[i + 1]] * dims[kept[i + 1]]) return false;
    return true;
}

/* The strides under another shape: dimensions are split, and joined where they are one run. */
static bool reshaped(const int64_t *from_dims, int from_ndim, const struct strides *from, const int64_t *dims, int ndim,
                     struct strides *out) {
    int old[MAX_NDIM], new[MAX_NDIM];
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
    return reshaped(part_of(m, from), ndim_of(m->plan, from), s, part_of(m, to), ndim_of(m->plan, to), out);
}

static bool see_reshape(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    return reshape(m, m->node.inputs[operand], m->node.outputs[0], s, out);
}
static bool lie_in_reshape(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    return reshape(m, m->node.outputs[0], m->node.inputs[operand], s, out);
}

static bool see_transpose(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    int n;
    const int64_t *perm = attr_ints(&m->node, "perm", &n);
    (void)operand;
    out->offset = s->offset;
    for (int d = 0; d < n; d++) out->step[d] = s->step[perm[d]];
    return true;
}
static bool lie_in_transpose(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    int n;
    const int64_t *perm = attr_ints(&m->node, "perm", &n);
    (void)operand;
    out->offset = s->offset;
    for (int d = 0; d < n; d++) out->step[perm[d]] = s->step[d];
    return true;
}

static bool see_slice(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    int n;
    const int64_t *start = attr_ints(&m->node, "start", &n), *step = attr_ints(&m->node, "step", &n);
    (void)operand;
    *out = *s;
    for (int d = 0; d < n; d++) {
        out->offset += start[d] * s->step[d];
        out->step[d] *= step[d];
    }
    return true;
}

static bool lie_in_concat(const struct move *m, int operand, const struct strides *s, struct strides *out) {
    const int axis = (int)attr_int(&m->node, "axis", 0);
    *out = *s;
    for (int k = 0; k < operand; k++) out->offset += part_of(m, m->node.inputs[k])[axis] * s->step[axis];
    return true;
}

typedef bool strides_fn(const struct move *move, int operand, const struct strides *strides, struct strides *out);

/* Where the result lies in operand 0, and where an operand lies in the result, given the other's strides. */
static const struct mover {
    const char *op;
    strides_fn *see, *lie;
} movers[] = {{"Reshape", see_reshape, lie_in_reshape},
              {"Detach", see_reshape, lie_in_reshape},
              {"Transpose", see_transpose, lie_in_transpose},
              {"Slice", see_slice, NULL},
              {"Concat", NULL, lie_in_concat}};

static const struct mover *mover_of(const struct node *node) {
    for (size_t i = 0; i < sizeof movers / sizeof *movers; i++)
        if (strcmp(movers[i].op, node->op->name) == 0) return &movers[i];
    return NULL;
}

static struct move move_of(const struct rankplan *plan, const struct plan_class *class, int node) {
    struct move m = {plan, class, plan->graph->nodes.at[node]};
    struct dims dims;
    rankplan_localize(plan->graph, class, &m.node, &dims);
    return m;
}

static int operand_of(const struct node *node, int tensor) {
    int k = 0;
    while (node->inputs[k] != tensor) k++;
    return k;
}

struct strides views_strides(const struct rankplan *plan, const struct plan_class *class, int tensor) {
    const struct plan_view *view = &plan->view[tensor];
    struct strides out;
    if (view->kind == VIEW_NONE) return dense(class->dims[tensor], ndim_of(plan, tensor));
    const struct move m = move_of(plan, class, view->node);
    const struct mover *mover = mover_of(&m.node);
    const bool sees = view->kind == VIEW_OF_OPERAND;
    const struct strides other = views_strides(plan, class, sees ? m.node.inputs[0] : m.node.outputs[0]);
    if (!(sees ? mover->see : mover->lie)(&m, sees ? 0 : operand_of(&m.node, tensor), &other, &out))
        BUG("'%s' cannot be seen through '%s'", plan->graph->tensors.at[tensor].name, m.node.name);
    return out;
}

/* Who takes strides ------------------------------------------------------------------------------------------------ */

struct finder {
    struct rankplan *plan;
    const struct plan_class *class; /* of which strides are asked */
    bool *fixed;                    /* per tensor: someone outside of the graph knows where it lies */
    VEC(int) *readers;              /* per tensor: nodes, once for each operand */
};

static const struct node *node_at(const struct finder *f, int id) {
    return &f->plan->graph->nodes.at[id];
}

static bool takes_strides(const struct node *node, char side, int operand) {
    char name[24];
    snprintf(name, sizeof name, "$strided(%c%d)", side, operand);
    return node->op->call && strstr(node->op->call, name);
}

static bool has_neighbours(const struct finder *f, int tensor, const struct strides *s) {
    const int ndim = ndim_of(f->plan, tensor);
    return s->step[ndim - 1] == 1 || f->class->dims[tensor][ndim - 1] == 1;
}

static bool reader_takes(const struct finder *f, int id, int tensor, const struct strides *s);

/* Everyone but node `but` reads the tensor at the strides. */
static bool readers_take(const struct finder *f, int tensor, int but, const struct strides *s) {
    if (f->fixed[tensor]) return false;
    for (int i = 0; i < f->readers[tensor].n; i++) {
        const int reader = f->readers[tensor].at[i];
        if (reader != but && !reader_takes(f, reader, tensor, s)) return false;
    }
    return true;
}

/* ... itself, or as what it makes of it is read. */
static bool reader_takes(const struct finder *f, int id, int tensor, const struct strides *s) {
    const struct node *node = node_at(f, id);
    const struct mover *mover = mover_of(node);
    struct strides seen;
    if (mover && mover->see) {
        const struct move m = move_of(f->plan, f->class, id);
        return mover->see(&m, 0, s, &seen) && readers_take(f, node->outputs[0], -1, &seen);
    }
    for (int k = 0; k < node->ninputs; k++)
        if (node->inputs[k] == tensor && !(takes_strides(node, 'x', k) && has_neighbours(f, tensor, s))) return false;
    return true;
}

/* Operand `k` of node `id`, which is to lie at the strides: who makes it writes it so, and who else reads it reads it so. */
static bool writer_takes(const struct finder *f, int id, int k, const struct strides *s) {
    const int tensor = node_at(f, id)->inputs[k], producer = f->plan->graph->tensors.at[tensor].producer;
    struct strides lies;
    if (f->plan->graph->tensors.at[tensor].kind != TENSOR_VALUE || f->plan->view[tensor].kind != VIEW_NONE ||
        !readers_take(f, tensor, id, s))
        return false;
    const struct node *node = node_at(f, producer);
    const struct mover *mover = mover_of(node);
    for (int o = 0; o < node->noutputs; o++)
        if (node->outputs[o] == tensor && takes_strides(node, 'y', o)) return has_neighbours(f, tensor, s);
    if (!mover || !mover->lie || node->ninputs != 1) return false;
    const struct move m = move_of(f->plan, f->class, producer);
    return mover->lie(&m, 0, s, &lies) && writer_takes(f, producer, 0, &lies);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static bool result_is_seen(const struct finder *f, int id) {
    const struct move m = move_of(f->plan, f->class, id);
    const struct strides operand = views_strides(f->plan, f->class, m.node.inputs[0]);
    struct strides s;
    return mover_of(&m.node)->see(&m, 0, &operand, &s) && readers_take(f, m.node.outputs[0], -1, &s);
}

static bool operands_lie(const struct finder *f, int id) {
    const struct move m = move_of(f->plan, f->class, id);
    const struct strides result = views_strides(f->plan, f->class, m.node.outputs[0]);
    struct strides s;
    for (int k = 0; k < m.node.ninputs; k++) {
        if (operand_of(&m.node, m.node.inputs[k]) != k) return false; /* it cannot lie in two places */
        if (!mover_of(&m.node)->lie(&m, k, &result, &s) || !writer_takes(f, id, k, &s)) return false;
    }
    return true;
}

static bool in_all_classes(struct finder *f, bool (*holds)(const struct finder *f, int id), int id) {
    for (int c = 0; c < f->plan->nclasses; c++) {
        f->class = &f->plan->classes[c];
        if (!holds(f, id)) return false;
    }
    return true;
}

static void list_readers(struct finder *f) {
    const struct graph *graph = f->plan->graph;
    f->readers = arena_alloc(graph->arena, (size_t)graph->tensors.n + 1, sizeof *f->readers);
    f->fixed = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = node_at(f, graph->order.at[i]);
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) VEC_PUSH(graph->arena, &f->readers[node->inputs[k]], graph->order.at[i]);
    }
    for (int i = 0; i < graph->outputs.n; i++) f->fixed[graph->outputs.at[i]] = true;
    for (int i = 0; i < graph->updates.n; i++) f->fixed[graph->updates.at[i].value] = true;
}

static bool is_view(const struct rankplan *plan, int tensor, enum plan_view_kind kind, int node) {
    return plan->view[tensor].kind == kind && plan->view[tensor].node == node;
}

/* Results that are seen in operands, in the order of nodes: there the operand's own place is known. */
static void find_seen(struct finder *f) {
    const struct graph *graph = f->plan->graph;
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i];
        const struct node *node = node_at(f, id);
        const struct mover *mover = mover_of(node);
        if (!mover || !mover->see || node->op->class == OP_VIEW || !in_all_classes(f, result_is_seen, id)) continue;
        f->plan->view[node->outputs[0]] = (struct plan_view){VIEW_OF_OPERAND, id};
        f->plan->moves_nothing[id] = true;
    }
}

/* Operands that lie in results, from the last node on. Those of a Reshape do where its result lies in another. */
static void find_lying(struct finder *f) {
    const struct graph *graph = f->plan->graph;
    for (int i = graph->order.n - 1; i >= 0; i--) {
        const int id = graph->order.at[i];
        const struct node *node = node_at(f, id);
        const struct mover *mover = mover_of(node);
        if (!mover || !mover->lie || f->plan->moves_nothing[id]) continue;
        if (node->op->class == OP_VIEW ? f->plan->view[node->outputs[0]].kind != VIEW_IN_RESULT : !in_all_classes(f, operands_lie, id))
            continue;
        for (int k = 0; k < node->ninputs; k++) f->plan->view[node->inputs[k]] = (struct plan_view){VIEW_IN_RESULT, id};
        f->plan->moves_nothing[id] = true;
    }
}

/* What never moves anything: the result is seen in the operand, unless that lies in it. */
static void find_others(struct finder *f) {
    const struct graph *graph = f->plan->graph;
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i];
        const struct node *node = node_at(f, id);
        if (node->op->class != OP_VIEW || is_view(f->plan, node->inputs[0], VIEW_IN_RESULT, id)) continue;
        f->plan->view[node->outputs[0]] = (struct plan_view){VIEW_OF_OPERAND, id};
        f->plan->moves_nothing[id] = true;
    }
}

void views_find(struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    struct finder f = {.plan = plan};
    plan->view = arena_alloc(graph->arena, (size_t)graph->tensors.n + 1, sizeof *plan->view);
    plan->moves_nothing = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    list_readers(&f);
    find_seen(&f);
    find_lying(&f);
    find_others(&f);
}
