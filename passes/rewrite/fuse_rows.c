/* Fuses reductions and the elementwise operators around them into row programs (ir/expr/row_program.h): one kernel
 * reads and writes each row once, and no tensors lie in between.
 *
 * Runs after the plan is applied and before fuse_elementwise, which fuses what is left. First come sums of columns,
 * such as gradients of biases and norms: the elementwise operators that compute the operand of a sum are computed again
 * inside of it, and sums that read the same tensors share one node. Then each reduction of the last dimension, norm or
 * softmax becomes a region that grows by the nodes before and behind it that work on the same rows. A region may grow
 * as long as all its inputs are computed before the first node outside that reads one of its results, since the new
 * node stands there in the order. */
#include <stdlib.h>
#include <string.h>

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/elementwise.h"
#include "passes/rewrite/epilogues.h"
#include "passes/rewrite/row_program_build.h"

/* LONGEST_SOFTMAX: elements of a row. Longer rows do not fit in registers, and the kernel of Softmax reads them once
 * less than a row program. */
enum { LONGEST_SOFTMAX = 8192 };

/* Note [Exact rows]
 * Where row programs give the bits of their nodes' own kernels (exact_rows), a node computes the same alone, among
 * others, and copied for recomputation or to another stage, which has other neighbours. Norms and softmax are then left
 * to their kernels, whose sums have an order of their own. A program is worth while if it saves a tensor of full size;
 * ROW_BYTES are what the buffers of a row may take of a core's cache. */
enum { ROW_BYTES = 1 << 18 };

struct fuser {
    struct graph *graph;
    const struct pass_context *context;
    struct arena *scratch;   /* of the tables below */
    struct readers *readers; /* per tensor */
    bool *kept;              /* graph_kept */
    bool *updated;           /* per tensor: it is the new value of an update */
    struct place *places; /* per node, with room for those that are added; its order is graph->order after put_order */
    int first, last;      /* nodes of the order; -1: it is empty */
    VEC(struct column_sum) sums;
    int *sum;              /* per node: 1 + its number among `sums`; 0: it is not one */
    VEC(int) reading_none; /* numbers of the sums that read no full tensor (Note [Sums that read the same]) */
    VEC(int) reached;      /* tensors that find_candidates has reached */
    VEC(int) candidates;   /* numbers of the sums that it has found */
    int *search, searches; /* per node: the last of the searches that reached it; how many there were */
};

/* A node that sums columns; `sums` lists them in order. A run is a range of that list that belongs to one phase. */
struct column_sum {
    int node, run;
};

/* Where a node stands in the order, which is a list, so that the time of a fusion does not depend on its length. */
struct place {
    int64_t position; /* grows along the order; -1: the node is not in it */
    int before, after;
};
enum { STEP = 1 << 20 }; /* between positions, for nodes that are added there */

/* The nodes of the order that read a tensor, in order; one that reads it twice is listed twice. */
struct readers {
    VEC(int) nodes;
};

/* Nodes to be fused. All belong to one stage and phase, compute in one type, and work on the rows of one shape in one
 * layout. */
struct region {
    struct tensor full; /* the shape and layout of its tensors that have all elements of the rows */
    enum rt_dtype dtype;
    int stage;
    enum phase phase;
    struct row_members members; /* in the order of the graph */
};

static int64_t position(const struct fuser *f, int id) {
    return f->places[id].position;
}

/* Links two neighbours of the order; -1: there is none. */
static void link(struct fuser *f, int before, int after) {
    *(before < 0 ? &f->first : &f->places[before].after) = after;
    *(after < 0 ? &f->last : &f->places[after].before) = before;
}

static void number(struct fuser *f) {
    int64_t position = 0;
    for (int id = f->first; id >= 0; id = f->places[id].after) f->places[id].position = position += STEP;
}

/* Puts the node into the order, before another one. */
static void put_before(struct fuser *f, int id, int other) {
    const int before = f->places[other].before;
    const int64_t low = before < 0 ? 0 : position(f, before), high = position(f, other);
    link(f, before, id), link(f, id, other);
    f->places[id].position = low + (high - low) / 2;
    if (position(f, id) == low) number(f);
}

static void put_order(struct fuser *f) {
    f->graph->order.n = 0;
    for (int id = f->first; id >= 0; id = f->places[id].after) f->graph->order.at[f->graph->order.n++] = id;
}

static void fill_tables(struct fuser *f) {
    const struct graph *graph = f->graph;
    const int most = graph->nodes.n + graph->order.n; /* nodes: each that is added replaces one */
    f->readers = ARENA_ARRAY(f->scratch, struct readers, graph->tensors.n + 1);
    f->places = ARENA_ARRAY(f->scratch, struct place, most + 1);
    f->sum = ARENA_ARRAY(f->scratch, int, most + 1);
    f->search = ARENA_ARRAY(f->scratch, int, most + 1);
    f->kept = graph_kept(graph, f->scratch);
    f->updated = ARENA_ARRAY(f->scratch, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->updates.n; i++) f->updated[graph->updates.at[i].value] = true;
    f->first = f->last = -1;
    for (int i = 0; i < most; i++) f->places[i].position = -1;
    GRAPH_EACH(graph, i, const struct node *node) {
        link(f, f->last, graph->order.at[i]), link(f, graph->order.at[i], -1);
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) VEC_PUSH(f->scratch, &f->readers[node->inputs[k]].nodes, graph->order.at[i]);
    }
    number(f);
}

/* The index of the first reader that does not stand before node `id`. */
static int first_not_before(const struct fuser *f, const struct readers *readers, int id) {
    int low = 0;
    BISECT(low, readers->nodes.n, middle, position(f, readers->nodes.at[middle]) < position(f, id))
    return low;
}

/* The node leaves the order: it reads nothing any more. */
static void forget(struct fuser *f, int id) {
    const struct node *node = &f->graph->nodes.at[id];
    for (int k = 0; k < node->ninputs; k++) {
        if (node->inputs[k] < 0) continue;
        struct readers *readers = &f->readers[node->inputs[k]];
        int at = first_not_before(f, readers, id), end = at;
        while (end < readers->nodes.n && readers->nodes.at[end] == id) end++;
        memmove(readers->nodes.at + at, readers->nodes.at + end, (size_t)(readers->nodes.n - end) * sizeof(int));
        readers->nodes.n -= end - at;
    }
    link(f, f->places[id].before, f->places[id].after);
    f->places[id].position = -1;
}

/* The node, which has a position, reads its inputs. */
static void list_reader(struct fuser *f, int id) {
    const struct node *node = &f->graph->nodes.at[id];
    for (int k = 0; k < node->ninputs; k++) {
        if (node->inputs[k] < 0) continue;
        struct readers *readers = &f->readers[node->inputs[k]];
        const int at = first_not_before(f, readers, id), behind = readers->nodes.n - at;
        VEC_PUSH(f->scratch, &readers->nodes, id);
        memmove(readers->nodes.at + at + 1, readers->nodes.at + at, (size_t)behind * sizeof(int));
        readers->nodes.at[at] = id;
    }
}

static const struct tensor *tensor_at(const struct fuser *f, int tensor) {
    return &f->graph->tensors.at[tensor];
}

static const struct node *node_at(const struct fuser *f, int node) {
    return &f->graph->nodes.at[node];
}

static bool is_in(const struct region *r, int node) {
    for (int i = 0; i < r->members.n; i++)
        if (r->members.node[i] == node) return true;
    return false;
}

/* True if no mesh axis splits the last dimension, and the values are not partial. */
static bool has_whole_rows(const struct fuser *f, const struct tensor *t) {
    if (t->ndim < 1) return false;
    for (int axis = 0; axis < f->graph->mesh.naxes; axis++) {
        const struct placement held = layout_along(&t->layout, axis);
        if (held.kind != PLACED_WHOLE && (held.kind != PLACED_PART || held.dim == t->ndim - 1)) return false;
    }
    return true;
}

/* True if the tensor has one value for each row of `full`, with the same layout. */
static bool is_column(const struct tensor *t, const struct tensor *full) {
    struct tensor one = *full;
    one.dims[one.ndim - 1] = 1;
    return elementwise_same_shard(t, &one);
}

static bool has_rows(const struct region *r, const struct tensor *t) {
    return elementwise_same_shard(t, &r->full) || is_column(t, &r->full);
}

/* True for the last axis, which may be given as -1. */
static bool is_along_rows(const struct tensor *x, int64_t axis) {
    return axis == x->ndim - 1 || axis == -1;
}

static bool reduces_rows(const struct node *node, const struct tensor *x) {
    int naxes;
    const int64_t *axes = attr_ints(node, "axes", &naxes);
    return node->op->fold && naxes == 1 && is_along_rows(x, axes[0]) && attr_int(node, "keepdims", 1);
}

/* True for a norm or softmax, unless a kernel of its own computes it in any case. */
static bool is_norm(const struct fuser *f, const struct node *node) {
    return !f->context->exact_rows && row_is_norm(node);
}

/* True for a norm, and for a softmax along rows that are not too long at any size. */
static bool normalises_rows(const struct fuser *f, const struct node *node, const struct tensor *x) {
    const struct attr *axis = attr_find(node, "axis");
    if (!is_norm(f, node) || !axis) return is_norm(f, node);
    return is_along_rows(x, axis->value) && open_most(f->graph->open, x->dims[x->ndim - 1]) <= LONGEST_SOFTMAX;
}

/* True if a region can begin with the node: it reduces or normalises whole rows, in f32 or f64. */
static bool is_seed(const struct fuser *f, const struct node *node) {
    if (node->ninputs < 1 || node->noutputs != 1) return false;
    const struct tensor *x = tensor_at(f, node->inputs[0]);
    const enum rt_dtype dtype = op_summed_in(x->dtype);
    return x->ndim && (reduces_rows(node, x) || normalises_rows(f, node, x)) && has_whole_rows(f, x) &&
           (dtype == RT_F32 || dtype == RT_F64);
}

/* A region without members that works on the rows of the node's operand. */
static struct region region_of(const struct fuser *f, const struct node *node) {
    const struct tensor *x = tensor_at(f, node->inputs[0]);
    return (struct region){.full = *x, .dtype = op_summed_in(x->dtype), .stage = node->stage, .phase = node->phase};
}

static bool is_taken(const struct fuser *f, const struct region *r, int id) {
    const struct node *node = node_at(f, id);
    const struct tensor *y = tensor_at(f, node->outputs[0]);
    if (node->noutputs != 1 || node->stage != r->stage || node->phase != r->phase) return false;
    if (is_seed(f, node))
        return elementwise_same_shard(tensor_at(f, node->inputs[0]), &r->full) && op_summed_in(y->dtype) == r->dtype;
    const enum rt_dtype dtype =
        elementwise_is_fusible(f->graph, node) ? elementwise_compute_type(f->graph, node) : RT_DTYPE_NONE;
    return (dtype == r->dtype || dtype == RT_BOOL) && has_rows(r, y);
}

static bool is_result(const struct fuser *f, const struct region *r, int tensor) {
    if (f->kept[tensor]) return true;
    const struct readers *readers = &f->readers[tensor];
    for (int u = 0; u < readers->nodes.n; u++)
        if (!is_in(r, readers->nodes.at[u])) return true;
    return false;
}

/* The first of the node and those outside of the region that read the tensor. */
static int first_reader(const struct fuser *f, const struct region *r, int tensor, int first) {
    VEC_EACH_VALUE(&f->readers[tensor].nodes, u, int user)
        if (!is_in(r, user) && position(f, user) < position(f, first)) first = user;
    return first;
}

/* Lists the tensors that nodes outside of the region read. False if one of them cannot be a result of a row program: a
 * condition, or the new value of an update, which an elementwise node writes in place. */
static bool find_results(const struct fuser *f, const struct region *r, struct row_members *members) {
    members->nresults = 0;
    for (int i = 0; i < members->n; i++) {
        int tensor = node_at(f, members->node[i])->outputs[0];
        if (!is_result(f, r, tensor)) continue;
        if (members->nresults == EXPR_VALUES || tensor_at(f, tensor)->dtype == RT_BOOL) return false;
        if (f->updated[tensor] && elementwise_is_fusible(f->graph, node_at(f, members->node[i]))) return false;
        members->result[members->nresults] = members->output[members->nresults] = tensor;
        members->nresults++;
    }
    return true;
}

/* Sets *next to the node before which the new node stands: `latest`, or the first node that reads a result if it comes
 * before. False if an input is computed only after that. */
static bool find_place(const struct fuser *f, const struct region *r, int latest, int *next) {
    int inputs[EXPR_INPUTS], n = row_inputs(f->graph, &r->members, inputs);
    int64_t made = -1;
    if (n < 1 || n > EXPR_INPUTS) return false;
    *next = latest;
    for (int k = 0; k < n; k++) {
        int producer = tensor_at(f, inputs[k])->producer;
        if (producer >= 0 && position(f, producer) > made) made = position(f, producer);
    }
    for (int i = 0; i < r->members.nresults; i++) *next = first_reader(f, r, r->members.output[i], *next);
    return made < position(f, *next);
}

static int last_member(const struct region *r) {
    return r->members.node[r->members.n - 1];
}

/* True if the buffers of a row do not get too large at any size (Note [Exact rows]). */
static bool fits(const struct fuser *f, const struct region *r) {
    const int64_t columns = open_most(f->graph->open, r->full.dims[r->full.ndim - 1]);
    const int64_t most = ROW_BYTES / (int64_t)rt_dtype_bytes(r->dtype) / row_names(f->graph, &r->members);
    return !f->context->exact_rows || columns <= most;
}

static bool is_possible(const struct fuser *f, struct region *r) {
    int next;
    return row_names(f->graph, &r->members) <= EXPR_NAMED && fits(f, r) && find_results(f, r, &r->members) &&
           find_place(f, r, last_member(r), &next);
}

static void insert(const struct fuser *f, struct row_members *members, int id) {
    int at = members->n++;
    for (; at > 0 && position(f, members->node[at - 1]) > position(f, id); at--)
        members->node[at] = members->node[at - 1];
    members->node[at] = id;
}

/* Adds the node to the region. A condition cannot be a result, so all readers of one are added too. */
static bool add(const struct fuser *f, struct region *r, int id) {
    const int tensor = node_at(f, id)->outputs[0];
    if (r->members.n == ROW_MEMBERS || !is_taken(f, r, id)) return false;
    insert(f, &r->members, id);
    if (tensor_at(f, tensor)->dtype != RT_BOOL) return true;
    const struct readers *readers = &f->readers[tensor];
    for (int u = 0; u < readers->nodes.n; u++)
        if (!is_in(r, readers->nodes.at[u]) && !add(f, r, readers->nodes.at[u])) return false;
    return true;
}

static bool try_to_add(const struct fuser *f, struct region *r, int id) {
    struct region grown = *r;
    if (is_in(r, id) || !add(f, &grown, id) || !is_possible(f, &grown)) return false;
    *r = grown;
    return true;
}

static bool add_readers(const struct fuser *f, struct region *r, int id) {
    bool added = false;
    const struct readers *readers = &f->readers[node_at(f, id)->outputs[0]];
    for (int u = 0; u < readers->nodes.n; u++) added = try_to_add(f, r, readers->nodes.at[u]) || added;
    return added;
}

static bool add_producers(const struct fuser *f, struct region *r, int id) {
    bool added = false;
    for (int k = 0; k < node_at(f, id)->ninputs; k++) {
        int tensor = node_at(f, id)->inputs[k], producer = tensor < 0 ? -1 : tensor_at(f, tensor)->producer;
        if (producer >= 0 && !epilogue_follows(f->graph, f->context, node_at(f, producer), 2))
            added = try_to_add(f, r, producer) || added;
    }
    return added;
}

static void grow(const struct fuser *f, struct region *r) {
    for (bool more = true; more;) {
        const struct row_members before = r->members;
        more = false;
        for (int i = 0; i < before.n; i++) {
            more = add_readers(f, r, before.node[i]) || more;
            more = add_producers(f, r, before.node[i]) || more;
        }
    }
}

/* The split of a node along an axis that gives operand number `operand` the placement `held`. */
static struct node_split split_of(const struct dims *dims, int operand, const struct placement *held) {
    struct cut_option options[RT_MAX_NDIM];
    struct node_split none = {.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
    if (held->kind != PLACED_PART) return none;
    return dims_cut_options(dims, operand, held->dim, held->blocks, held->grain, options) ? options[0].split : none;
}

/* Splits the node as `full` is split; each split dimension is a dimension of some input. */
static void set_splits(struct graph *graph, struct node *node, const struct tensor *full) {
    struct dims dims;
    dims_bind_checked(graph->arena, graph, node, &dims);
    EACH(full->layout.cuts, full->layout.ncuts, c, const struct cut *cut) {
        if (cut->placement.kind != PLACED_PART) continue;
        for (int k = 0; k < node->ninputs && node->split[cut->axis].factor < 0; k++) {
            struct placement own = cut->placement;
            own.dim -= full->ndim - graph->tensors.at[node->inputs[k]].ndim;
            if (own.dim < 0 || !dims.operand[k].dim[own.dim].n) continue;
            const struct node_split split = split_of(&dims, k, &own);
            dims_nest(node->split, graph->mesh.naxes, cut->axis, &split);
        }
    }
}

/* Lists the nodes in graph->members as parts of the new one. */
static void name_members(const struct fuser *f, int made, const int *nodes, int n) {
    for (int i = 0; i < n; i++)
        VEC_PUSH(f->graph->arena, &f->graph->members, (struct member){made, node_at(f, nodes[i])->name});
}

/* Puts the new node before node `next`, and removes the nodes in `gone`. */
static void replace(struct fuser *f, int made, int next, const int *gone, int ngone) {
    put_before(f, made, next);
    for (int g = 0; g < ngone; g++) forget(f, gone[g]);
    list_reader(f, made);
}

static void write_rows(struct fuser *f, struct region *r, int seed) {
    int next;
    if (!find_results(f, r, &r->members) || !find_place(f, r, last_member(r), &next))
        BUG("a region that is_possible accepted cannot be fused");
    int made = row_program_add(f->graph, OP_Rows, &r->members, node_at(f, seed));
    set_splits(f->graph, &f->graph->nodes.at[made], &r->full);
    name_members(f, made, r->members.node, r->members.n);
    replace(f, made, next, r->members.node, r->members.n);
}

/* True if it is worth while to fuse the region. */
static bool pays(const struct fuser *f, const struct region *r) {
    bool full = false;
    for (int i = 0; i < r->members.n; i++)
        full = full || !is_column(tensor_at(f, node_at(f, r->members.node[i])->outputs[0]), &r->full);
    return r->members.n > 1 && (full || !f->context->exact_rows);
}

static void fuse_rows(struct fuser *f, int seed) {
    const struct node *node = node_at(f, seed);
    struct region r = region_of(f, node);
    r.members.node[r.members.n++] = seed;
    if (!is_taken(f, &r, seed) || !is_possible(f, &r)) return;
    grow(f, &r);
    if (pays(f, &r) || is_norm(f, node)) write_rows(f, &r, seed);
}

/* The node sums all dimensions but the last, in floats. */
static bool sums_columns(const struct fuser *f, const struct node *node) {
    int naxes;
    if (node->op->id != OP_ReduceSum) return false;
    const struct tensor *x = tensor_at(f, node->inputs[0]);
    const int64_t *axes = attr_ints(node, "axes", &naxes);
    const enum rt_dtype dtype = op_summed_in(x->dtype);
    for (int axis = 0; axis < f->graph->mesh.naxes; axis++)
        if (node->split[axis].factor < SPLIT_NONE || layout_along(&x->layout, axis).kind == PLACED_WINDOW) return false;
    return naxes > 0 && axes[0] == 0 && naxes == x->ndim - 1 && (dtype == RT_F32 || dtype == RT_F64);
}

/* True if the tensor is stored in memory in any case: a sum that may become the result of a product, or a node reads it
 * that no row program contains. */
static bool is_needed(const struct fuser *f, int tensor) {
    const struct node *producer = node_at(f, tensor_at(f, tensor)->producer);
    if (f->kept[tensor] || (producer->op->id == OP_Add && epilogue_follows(f->graph, f->context, producer, 1)))
        return true;
    for (int u = 0; u < f->readers[tensor].nodes.n; u++) {
        const struct node *user = node_at(f, f->readers[tensor].nodes.at[u]);
        if (!elementwise_is_fusible(f->graph, user) && !user->op->fold && !is_norm(f, user)) return true;
    }
    return false;
}

/* The producer of the tensor if a sum of columns can compute the tensor again instead of reading it; else -1. */
static int recomputable_producer(const struct fuser *f, const struct region *r, int tensor) {
    int producer = tensor_at(f, tensor)->producer;
    if (producer < 0 || !elementwise_same_shard(tensor_at(f, tensor), &r->full) || is_needed(f, tensor)) return -1;
    const struct node *node = node_at(f, producer);
    const enum rt_dtype dtype =
        elementwise_is_fusible(f->graph, node) ? elementwise_compute_type(f->graph, node) : RT_DTYPE_NONE;
    bool together = node->stage == r->stage && node->phase == r->phase && (dtype == r->dtype || dtype == RT_BOOL);
    return together ? producer : -1;
}

/* Adds the producer of the tensor and, in turn, its producers, as far as they can be computed again. False if the
 * region becomes too large. */
static bool add_operand(const struct fuser *f, struct region *r, int tensor) {
    int producer = recomputable_producer(f, r, tensor);
    if (producer < 0 || is_in(r, producer)) return true;
    if (r->members.n == ROW_MEMBERS) return false;
    insert(f, &r->members, producer);
    for (int k = 0; k < node_at(f, producer)->ninputs; k++)
        if (!add_operand(f, r, node_at(f, producer)->inputs[k])) return false;
    return true;
}

/* Bytes that the region reads per element: the sizes of the elements of its full inputs. */
static size_t bytes_read(const struct fuser *f, const struct region *r) {
    int inputs[EXPR_INPUTS], n = row_inputs(f->graph, &r->members, inputs);
    size_t bytes = 0;
    for (int k = 0; k < n && n <= EXPR_INPUTS; k++)
        if (elementwise_same_shard(tensor_at(f, inputs[k]), &r->full))
            bytes += rt_dtype_bytes(tensor_at(f, inputs[k])->dtype);
    return bytes;
}

/* Adds sum `id` to the region. False if there is no room for it, no common place, or too much to read. */
static bool add_sum(const struct fuser *f, struct region *r, int id, int *next) {
    const struct node *node = node_at(f, id);
    struct row_members *members = &r->members;
    if (members->nresults == EXPR_VALUES || !add_operand(f, r, node->inputs[0])) return false;
    members->result[members->nresults] = node->inputs[0];
    members->output[members->nresults++] = node->outputs[0];
    if (members->n == 0 || row_names(f->graph, members) > EXPR_NAMED || bytes_read(f, r) > 2 * rt_dtype_bytes(r->dtype))
        return false;
    return find_place(f, r, id, next);
}

/* Note [Sums that read the same]
 * A sum joins a region if that does not increase the bytes that the region reads. All nodes that can be computed again
 * are members, so no input of the region stops being one: the sum may read only full tensors that the region reads.
 * The search for such sums therefore starts at these tensors and follows their readers, through nodes that can be
 * computed again. It does not find sums that read no full tensor at all, for example sums of a broadcast value. These
 * are listed before the first fusion. None is added later, since a fusion never makes more nodes recomputable. */
static void list_sums(struct fuser *f, int n, const int *order) {
    for (int i = 0; i < n; i++) {
        const struct node *node = node_at(f, order[i]);
        if (!sums_columns(f, node)) continue;
        const struct column_sum *last = f->sums.n ? &f->sums.at[f->sums.n - 1] : NULL;
        const int run = last ? last->run + (node_at(f, last->node)->phase != node->phase) : 0;
        struct region r = region_of(f, node);
        VEC_PUSH(f->scratch, &f->sums, (struct column_sum){order[i], run});
        f->sum[order[i]] = f->sums.n;
        if (add_operand(f, &r, node->inputs[0]) && r.members.n && !bytes_read(f, &r))
            VEC_PUSH(f->scratch, &f->reading_none, f->sums.n - 1);
    }
}

static void add_candidate(struct fuser *f, int number) {
    int *search = &f->search[f->sums.at[number].node];
    if (*search != f->searches) VEC_PUSH(f->scratch, &f->candidates, number);
    *search = f->searches;
}

/* Lists the sums that read the tensor, and the results of its readers that can be computed again. */
static void follow_readers(struct fuser *f, const struct region *r, int tensor) {
    const struct readers *readers = &f->readers[tensor];
    for (int u = 0; u < readers->nodes.n; u++) {
        const int id = readers->nodes.at[u], result = node_at(f, id)->outputs[0];
        if (f->sum[id]) {
            add_candidate(f, f->sum[id] - 1);
        } else if (f->search[id] != f->searches) {
            f->search[id] = f->searches;
            if (recomputable_producer(f, r, result) == id) VEC_PUSH(f->scratch, &f->reached, result);
        }
    }
}

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Lists the sums that may join the region, in order (Note [Sums that read the same]). */
static void find_candidates(struct fuser *f, const struct region *r) {
    int inputs[EXPR_INPUTS], n = row_inputs(f->graph, &r->members, inputs);
    f->searches++, f->reached.n = f->candidates.n = 0;
    for (int k = 0; k < n && n <= EXPR_INPUTS; k++)
        if (elementwise_same_shard(tensor_at(f, inputs[k]), &r->full)) VEC_PUSH(f->scratch, &f->reached, inputs[k]);
    for (int i = 0; i < f->reached.n; i++) follow_readers(f, r, f->reached.at[i]);
    for (int i = 0; i < f->reading_none.n; i++) add_candidate(f, f->reading_none.at[i]);
    if (f->candidates.n) qsort(f->candidates.at, (size_t)f->candidates.n, sizeof *f->candidates.at, by_number);
}

/* Adds sums after number `sum`, the first of the region, that read no further tensors from memory; lists them in
 * `gone`. */
static void add_sums_like(struct fuser *f, struct region *r, int sum, int *gone, int *ngone, int *next) {
    const struct node *first = node_at(f, gone[0]);
    const size_t bytes = bytes_read(f, r);
    find_candidates(f, r);
    for (int i = 0; i < f->candidates.n && *ngone < EXPR_VALUES; i++) {
        const int number = f->candidates.at[i], other = f->sums.at[number].node;
        const struct node *node = node_at(f, other);
        int at = *next;
        if (number <= sum || f->sums.at[number].run != f->sums.at[sum].run) continue;
        if (position(f, other) < 0 || node->stage != r->stage ||
            attr_int(node, "keepdims", 1) != attr_int(first, "keepdims", 1) ||
            !elementwise_same_shard(tensor_at(f, node->inputs[0]), &r->full))
            continue;
        struct region grown = *r;
        if (!add_sum(f, &grown, other, &at) || bytes_read(f, &grown) > bytes) continue;
        *r = grown, *next = at;
        gone[(*ngone)++] = other;
    }
}

/* Fuses sum number `sum` of f->sums. */
static void fuse_columns(struct fuser *f, int sum) {
    const int id = f->sums.at[sum].node;
    const struct node *node = node_at(f, id);
    struct region r = region_of(f, node);
    int next, gone[EXPR_VALUES] = {id}, ngone = 1;
    if (!add_sum(f, &r, id, &next)) return;
    add_sums_like(f, &r, sum, gone, &ngone, &next);
    const struct node like = *node;
    int made = row_program_add(f->graph, OP_Columns, &r.members, &like);
    attr_set(f->graph, &f->graph->nodes.at[made], attr_of_int("keepdims", attr_int(&like, "keepdims", 1)));
    set_splits(f->graph, &f->graph->nodes.at[made], &r.full);
    name_members(f, made, r.members.node, r.members.n);
    name_members(f, made, gone, ngone);
    replace(f, made, next, gone, ngone);
}

/* Removes elementwise nodes whose results are no longer read, because every reader was a sum that computes them
 * again. */
static void drop_unread(struct fuser *f) {
    for (int id = f->last, before; id >= 0; id = before) {
        const struct node *node = node_at(f, id);
        bool read = node->op->kind != OP_ELEMENTWISE;
        for (int o = 0; o < node->noutputs && !read; o++)
            read = f->kept[node->outputs[o]] || f->readers[node->outputs[o]].nodes.n;
        before = f->places[id].before;
        if (!read) forget(f, id);
    }
}

int pass_fuse_rows(struct graph *graph, const struct pass_context *context) {
    if (!context->row_programs) return 0;
    struct fuser f = {.graph = graph, .context = context, .scratch = arena_scratch(graph->arena)};
    const int n = graph->order.n;
    const int *order = arena_copy(f.scratch, graph->order.at, (size_t)n * sizeof *order);
    fill_tables(&f);
    list_sums(&f, n, order);
    for (int i = 0; i < f.sums.n; i++)
        if (position(&f, f.sums.at[i].node) >= 0) fuse_columns(&f, i);
    drop_unread(&f);
    for (int i = 0; i < n; i++)
        if (position(&f, order[i]) >= 0 && is_seed(&f, node_at(&f, order[i]))) fuse_rows(&f, order[i]);
    put_order(&f);
    arena_release(graph->arena, f.scratch);
    return 0;
}
