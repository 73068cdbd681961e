#include "passes/pipeline.h"
#include "passes/rank/memplan.h"
#include "passes/rank/views.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/number/checked.h"
#include "runtime/base/shape/panel.h"

/* A segment tree over time: a leaf stands for one time, a node for the times of both its children.
 *
 * Note [Occupied addresses]
 * Each node of the tree has two sets of addresses: `over`, occupied by blocks that live during all times of the node
 * but not all of its parent's, and `within`, occupied at any of its times. A set is a sorted list of spans that
 * neither touch nor overlap. A block that lives k times is added to the sets of about 4 log k nodes, and a search
 * reads as many. Blocks lie side by side, so there are few spans: n blocks take about n log n time, where comparing
 * all pairs takes n^2. */

struct span {
    int64_t from, to;
};

struct spans {
    VEC(struct span) all; /* by address */
};

struct occupied {
    struct arena *arena;
    int leaves;
    struct spans *over, *within; /* per node: 1 is the root, 2n and 2n + 1 are the children of n */
};

/* Everything is free at times 0 .. times - 1. Allocated in the arena. */
static struct occupied *occupied_new(struct arena *arena, int times) {
    struct occupied *occupied = ARENA_NEW(arena, struct occupied);
    *occupied = (struct occupied){.arena = arena, .leaves = 1};
    while (occupied->leaves < times) occupied->leaves *= 2;
    occupied->over = ARENA_ARRAY(arena, struct spans, 2 * occupied->leaves);
    occupied->within = ARENA_ARRAY(arena, struct spans, 2 * occupied->leaves);
    return occupied;
}

/* The index of the first span that ends at `address` or after it; the number of spans if there is none. */
static int find_span(const struct spans *spans, int64_t address) {
    int low = 0;
    BISECT(low, spans->all.n, middle, spans->all.at[middle].to < address)
    return low;
}

static void add_span(struct arena *arena, struct spans *spans, struct span span) {
    const int first = find_span(spans, span.from);
    int behind = first;
    for (; behind < spans->all.n && spans->all.at[behind].from <= span.to; behind++) {
        if (spans->all.at[behind].from < span.from) span.from = spans->all.at[behind].from;
        if (spans->all.at[behind].to > span.to) span.to = spans->all.at[behind].to;
    }
    if (first == behind) VEC_PUSH(arena, &spans->all, span); /* room for one more */
    const int kept = first == behind ? spans->all.n - 1 - first : spans->all.n - behind;
    memmove(&spans->all.at[first + 1], &spans->all.at[behind], (size_t)kept * sizeof span);
    spans->all.at[first] = span;
    spans->all.n = first + 1 + kept;
}

/* The first address from `address` on at which the spans leave room for `bytes`. */
static int64_t past_spans(const struct spans *spans, int64_t address, int64_t bytes) {
    for (int i = find_span(spans, address + 1); i < spans->all.n && spans->all.at[i].from < address + bytes; i++)
        address = spans->all.at[i].to;
    return address;
}

static int64_t past_parents(const struct occupied *occupied, int time, int64_t address, int64_t bytes) {
    for (int node = occupied->leaves + time; node; node /= 2)
        address = past_spans(&occupied->over[node], address, bytes);
    return address;
}

static int64_t past_all(const struct occupied *occupied, int first, int last, int64_t address, int64_t bytes) {
    address = past_parents(occupied, last, past_parents(occupied, first, address, bytes), bytes);
    for (int left = occupied->leaves + first, right = occupied->leaves + last + 1; left < right;
         left /= 2, right /= 2) {
        if (left % 2) address = past_spans(&occupied->within[left++], address, bytes);
        if (right % 2) address = past_spans(&occupied->within[--right], address, bytes);
    }
    return address;
}

/* The lowest address from which `bytes` (at least 1) are free at all times first .. last. */
static int64_t occupied_lowest(const struct occupied *occupied, int first, int last, int64_t bytes) {
    int64_t address = 0, before;
    do {
        before = address;
        address = past_all(occupied, first, last, address, bytes);
    } while (address != before);
    return address;
}

/* Occupies `bytes` from `address` on at times first .. last. */
static void occupied_take(struct occupied *occupied, int first, int last, int64_t address, int64_t bytes) {
    const struct span span = {address, address + bytes};
    for (int left = occupied->leaves + first, right = occupied->leaves + last + 1; left < right;
         left /= 2, right /= 2) {
        if (left % 2) {
            add_span(occupied->arena, &occupied->over[left], span);
            add_span(occupied->arena, &occupied->within[left++], span);
        }
        if (right % 2) {
            add_span(occupied->arena, &occupied->over[--right], span);
            add_span(occupied->arena, &occupied->within[right], span);
        }
    }
    for (int left = (occupied->leaves + first) / 2, right = (occupied->leaves + last) / 2; left;
         left /= 2, right /= 2) {
        add_span(occupied->arena, &occupied->within[left], span);
        if (right != left) add_span(occupied->arena, &occupied->within[right], span);
    }
}

/* A block of memory for a root that is live during [first, last], positions in the order. */
struct block {
    int tensor; /* root */
    int first, last;
    int64_t bytes, offset;
};

/* Sets per root the positions of its first write and last access; -1: none. Outputs, and new values of updates that the
 * class computes, live to the end of the step. Inputs belong to the caller. */
static void lifetimes(const struct rankplan *plan, const struct rank_class *class, int *first, int *last) {
    const struct graph *graph = plan->graph;
    for (int t = 0; t < graph->tensors.n; t++) first[t] = last[t] = -1;
    GRAPH_EACH(graph, i, const struct node *node) {
        int part = rankplan_part(class, node);
        for (int k = 0; k < node->noutputs && part & STAGE_WRITES; k++) {
            int root = plan->root[node->outputs[k]];
            if (first[root] < 0) first[root] = i;
            last[root] = i;
        }
        for (int k = 0; k < node->ninputs && part & STAGE_READS; k++)
            if (node->inputs[k] >= 0) last[plan->root[node->inputs[k]]] = i;
    }
    for (int i = 0; i < graph->outputs.n; i++) last[plan->root[graph->outputs.at[i]]] = graph->order.n;
    for (int i = 0; i < graph->updates.n; i++) {
        const int root = plan->root[graph->updates.at[i].value];
        if (last[root] >= 0) last[root] = graph->order.n;
    }
}

static int by_size(const void *a, const void *b) {
    const struct block *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first - y->first;
    return x->tensor - y->tensor;
}

/* The lowest offset at which the block overlaps no other that is live at the same time. */
static int64_t lowest(const struct occupied *occupied, const struct block *block) {
    return occupied_lowest(occupied, block->first, block->last, block->bytes);
}

static void take(struct occupied *occupied, const struct block *block, int64_t offset) {
    occupied_take(occupied, block->first, block->last, offset, block->bytes);
}

/* Assigns the lowest offsets to the blocks, the largest first, among equals the earliest. Returns the bytes needed. */
static int64_t assign(struct arena *arena, struct block *blocks, int n, int times) {
    struct arena *scratch = arena_scratch(arena);
    int64_t total = 0;
    struct occupied *occupied = occupied_new(scratch, times);
    qsort(blocks, (size_t)n, sizeof *blocks, by_size);
    for (int i = 0; i < n; i++) {
        blocks[i].offset = lowest(occupied, &blocks[i]);
        take(occupied, &blocks[i], blocks[i].offset);
        if (blocks[i].offset + blocks[i].bytes > total) total = blocks[i].offset + blocks[i].bytes;
    }
    arena_release(arena, scratch);
    return total;
}

static int64_t padded(int64_t bytes) {
    return rt_align(bytes ? bytes : 1, RT_ALIGNMENT);
}

/* Lists the roots of the arena as blocks, with the bytes that they take. */
static int collect(const struct rankplan *plan, const struct rank_class *class, bool shared, const int *first,
                   const int *last, struct block *blocks) {
    int n = 0;
    for (int t = 0; t < plan->graph->tensors.n; t++) {
        if (plan->root[t] != t || plan->graph->tensors.at[t].kind != TENSOR_VALUE || first[t] < 0 ||
            plan->shared[t] != shared || class->place[t].offset >= 0)
            continue;
        blocks[n++] = (struct block){t, first[t], last[t], rankplan_memory(plan, class, t), 0};
    }
    return n;
}

/* Bytes of a stored tensor in memory; packed matrices are padded to whole panels. */
static int64_t loaded_bytes(const struct rankplan *plan, const struct rank_class *class, int tensor) {
    const int64_t *dims = class->dims[tensor];
    const struct tensor *t = &plan->graph->tensors.at[tensor];
    enum rt_packing packing = plan->packing[tensor];
    if (packing == RT_PLAIN) return rankplan_bytes(class, plan->graph, tensor);
    const struct rt_packed panels = rt_packed_of(packing, t->ndim, dims);
    return (int64_t)rt_dtype_bytes(t->dtype) * rt_packed_elements(&panels, t->dtype);
}

/* Lists a tensor that is cut flat, or in the host's memory, in the class' flats; false if it is neither. Its offset is
 * known at run time. */
static bool place_flat(const struct rankplan *plan, struct rank_class *class, int tensor, enum rt_arena arena) {
    const struct tensor *t = &plan->graph->tensors.at[tensor];
    const struct rt_flat flat = {t->host ? RT_HOST : arena, t->dtype, tensor_slices(t),
                                 rankplan_elements(class, plan->graph, tensor)};
    if (!flat.axes) return false;
    class->place[tensor] = (struct plan_place){PLAN_FLAT, class->flats.n};
    VEC_PUSH(plan->graph->arena, &class->flats, flat);
    return true;
}

static void place_weights(const struct rankplan *plan, struct rank_class *class, const int *last) {
    int64_t offset = 0;
    VEC_EACH_VALUE(&plan->weights, i, int t) {
        if (last[t] < 0 || place_flat(plan, class, t, RT_WEIGHTS)) continue;
        class->place[t] = (struct plan_place){RT_WEIGHTS, offset};
        offset += padded(loaded_bytes(plan, class, t));
    }
    class->bytes[RT_WEIGHTS] = offset;
}

/* Note [Contiguous gradients]
 * Gradients that are reduced along the same axis during the backward phase lie in one
 * contiguous block, in the order in which they are complete. So the runtime can reduce any run of them in one
 * collective. */

/* True if the node starts a reduction along the axis. */
static bool begins_sum(const struct node *node, int axis) {
    return node->op->id == OP_AllReduceStart && attr_int(node, "mesh", -1) == axis;
}

static enum rt_arena arena_of_state(const struct graph *graph, int tensor) {
    if (!graph_trains(graph)) return RT_STATE;
    return graph->tensors.at[tensor].gradient ? RT_GRADIENTS : RT_OPTIMIZER;
}

static void place_state(const struct rankplan *plan, struct rank_class *class, int tensor) {
    const enum rt_arena arena = arena_of_state(plan->graph, tensor);
    if (class->place[tensor].offset >= 0 || place_flat(plan, class, tensor, arena)) return;
    class->place[tensor] = (struct plan_place){arena, class->bytes[arena]};
    class->bytes[arena] += padded(rankplan_room(class, plan->graph, tensor));
}

/* True for a state to which steps add rows (Note [State] in passes/rewrite/state.c). */
static bool grows(const struct graph *graph, int state) {
    for (int u = 0; u < graph->updates.n; u++)
        if (graph->updates.at[u].weight == state && made_by(graph, graph->updates.at[u].value, OP_Append)) return true;
    return false;
}

/* Places the states that the class reads, accumulated gradients and moments of the optimizer, one after the other;
 * first those that are reduced in place, in the order in which they are complete (Note [Contiguous gradients]). */
static void place_states(const struct rankplan *plan, struct rank_class *class, const int *last) {
    const struct graph *graph = plan->graph;
    for (int axis = 0; axis < mesh_layout_axes(&graph->mesh); axis++)
        GRAPH_EACH(graph, i, const struct node *node) {
            const int root = begins_sum(node, axis) ? plan->root[node->outputs[0]] : -1;
            if (root >= 0 && graph->tensors.at[root].kind == TENSOR_STATE && last[root] >= 0)
                place_state(plan, class, root);
        }
    for (int growing = 0; growing < 2; growing++) {
        for (int t = 0; t < graph->tensors.n; t++)
            if (graph->tensors.at[t].kind == TENSOR_STATE && last[t] >= 0 && grows(graph, t) == (growing == 1))
                place_state(plan, class, t);
        if (!growing) class->replaced = class->bytes[RT_STATE];
    }
}

/* Note [In place]
 * The new value of a weight or state is written over the old one if an elementwise node computes it from the old one
 * and nothing reads the old one afterwards. So an update needs no further memory and no copy. */

/* The tensor whose place has the value's elements: for a value gathered in place, the slice that is gathered; else the
 * value. */
static int written_value(const struct rankplan *plan, int value) {
    const int root = plan->root[value];
    return layout_flat_axes(&plan->graph->tensors.at[root].layout) ? root : value;
}

static bool is_in_place(const struct rankplan *plan, const struct rank_class *class, const struct update *update,
                        const int *position, const int *last) {
    const struct graph *graph = plan->graph;
    const int value = written_value(plan, update->value), producer = graph->tensors.at[value].producer;
    int reads = 0;
    if (producer < 0 || class->place[update->weight].offset < 0 || plan->root[value] != value ||
        (plan->shared[value] && value == update->value))
        return false;
    const struct node *node = &graph->nodes.at[producer];
    if (node->op->kind != OP_ELEMENTWISE || !rankplan_part(class, node)) return false;
    for (int k = 0; k < node->ninputs; k++)
        reads += node->inputs[k] >= 0 && plan->root[node->inputs[k]] == update->weight;
    return reads && last[update->weight] <= position[producer];
}

static void place_updates(const struct rankplan *plan, struct rank_class *class, const int *last) {
    const struct graph *graph = plan->graph;
    if (!graph->updates.n) return;
    const int *position = graph_positions(graph, graph->arena);
    for (int i = 0; i < graph->updates.n; i++)
        if (is_in_place(plan, class, &graph->updates.at[i], position, last))
            class->place[written_value(plan, graph->updates.at[i].value)] = class->place[graph->updates.at[i].weight];
}

/* An exchange of parts among the ranks of a mesh axis, as ranks of one class see it. */
struct exchange {
    struct rt_placement held, wanted; /* of the operand, of the result */
    bool same_dim;                    /* both divide the same dimension */
    int64_t others;                   /* product of the class' extents of the other dimensions */
};

static struct exchange exchange_of(const struct graph *graph, const struct rank_class *class, const struct node *node,
                                   int axis) {
    const struct tensor *from = &graph->tensors.at[node->inputs[0]], *to = &graph->tensors.at[node->outputs[0]];
    const int from_dim = layout_along(&from->layout, axis).dim, to_dim = layout_along(&to->layout, axis).dim;
    int coordinate[RT_MAX_AXES];
    mesh_coordinate(&graph->mesh, class->shard, coordinate);
    struct exchange exchange = {.held = placement_of_ranks(graph, from, axis, coordinate),
                                .wanted = placement_of_ranks(graph, to, axis, coordinate),
                                .same_dim = from_dim == to_dim,
                                .others = 1};
    for (int d = 0; d < to->ndim; d++)
        if (d != from_dim && d != to_dim) exchange.others *= class->dims[node->outputs[0]][d];
    return exchange;
}

/* What `sender` transfers to `receiver`. Between different dimensions: the extent that one holds times the extent that
 * the other needs; in the same dimension: the overlap of both. */
static int64_t transferred(const struct exchange *exchange, int sender, int receiver) {
    const struct rt_placement *held = &exchange->held, *wanted = &exchange->wanted;
    struct rt_overlap overlap = {0};
    int64_t both = 0;
    if (!exchange->same_dim) return rt_placement_extent(held, sender) * rt_placement_extent(wanted, receiver);
    while (rt_overlap_next(&overlap, held, sender, wanted, receiver)) both += overlap.length;
    return both;
}

/* The indices of the rank's part or window, if that is one run. */
static void range_of(const struct rt_placement *placement, int rank, int64_t *start, int64_t *end) {
    *end = rt_placement_run(placement, rank, 0, start);
    *end += *start;
}

/* The first rank whose range ends behind `index`: ranges lie in order of the ranks, and none is empty. */
static int first_behind(const struct rt_placement *placement, int ways, int64_t index) {
    int64_t start, end;
    int low = 0;
    BISECT(low, ways, middle, (range_of(placement, middle, &start, &end), end <= index))
    return low;
}

/* Indices of the range of `rank` in `own` that the ranges of other ranks in `other` include, once for each of them. */
static int64_t shared_with_others(const struct rt_placement *own, const struct rt_placement *other, int rank,
                                  int ways) {
    int64_t first, last, start, end, shared = 0;
    range_of(own, rank, &first, &last);
    for (int r = first_behind(other, ways, first); r < ways; r++) {
        range_of(other, r, &start, &end);
        if (start >= last) break;
        if (r != rank) shared += (end < last ? end : last) - (start > first ? start : first);
    }
    return shared;
}

/* Elements that the rank sends to all others and receives from them. Parts are disjoint and cover the dimension, so
 * these are what the rank holds and does not need, and what it needs and does not hold. Windows of several ranks
 * overlap. */
static int64_t exchanged(const struct exchange *exchange, int rank, int ways) {
    const struct rt_placement *held = &exchange->held, *wanted = &exchange->wanted;
    const int64_t has = rt_placement_extent(held, rank), needs = rt_placement_extent(wanted, rank);
    int64_t elements = 0;
    if (!held->span && !wanted->span && exchange->same_dim)
        elements = has + needs - 2 * transferred(exchange, rank, rank);
    else if (!held->span && !wanted->span)
        elements = has * (wanted->extent - needs) + (held->extent - has) * needs;
    else if (exchange->same_dim && held->cut.blocks == 1 && wanted->cut.blocks == 1)
        elements = shared_with_others(held, wanted, rank, ways) + shared_with_others(wanted, held, rank, ways);
    else
        for (int r = 0; r < ways; r++)
            if (r != rank) elements += transferred(exchange, rank, r) + transferred(exchange, r, rank);
    return exchange->others * elements;
}

/* Bytes that a rank of the class sends and receives, the largest of all its ranks. */
static int64_t exchange_bytes(const struct rankplan *plan, const struct rank_class *class, const struct node *node) {
    const struct graph *graph = plan->graph;
    const int axis = (int)attr_int(node, "mesh", 0), ways = graph->mesh.axis[axis].size;
    const struct exchange exchange = exchange_of(graph, class, node, axis);
    int64_t most = 0;
    for (int rank = 0; rank < ways; rank++) {
        if (!rankplan_class_includes(plan, class, axis, rank)) continue;
        const int64_t elements = exchanged(&exchange, rank, ways);
        if (elements > most) most = elements;
    }
    return open_most(graph->open, most) * (int64_t)rt_dtype_bytes(graph->tensors.at[node->outputs[0]].dtype);
}

/* The class with the extents of the largest sizes (ir/open.h). */
static struct rank_class largest(const struct graph *graph, const struct rank_class *class) {
    struct rank_class bound = *class;
    if (!graph->open) return bound;
    bound.dims = arena_alloc(graph->arena, (size_t)graph->tensors.n + 1, sizeof *bound.dims);
    for (int t = 0; t < graph->tensors.n; t++)
        for (int d = 0; d < graph->tensors.at[t].ndim; d++)
            bound.dims[t][d] = open_most(graph->open, class->dims[t][d]);
    return bound;
}

int64_t memplan_scratch(const struct rankplan *plan, const struct rank_class *class, const struct rank_class *bound,
                        const struct node *node) {
    if ((node->op->kind == OP_KERNEL || node->op->kind == OP_PROGRAM) && plan->kernels.of) {
        const struct target_kernel *kernel = &plan->kernels.of[node->op->id];
        return kernel->scratch ? kernel->scratch(plan->graph, bound, node) : 0;
    }
    if (!node->op->call || !strstr(node->op->call, "$scratch") || rankplan_moves_slices(plan->graph, node)) return 0;
    if (strstr(node->op->call, "$held")) return exchange_bytes(plan, class, node);
    int64_t in = rankplan_room(class, plan->graph, node->inputs[0]),
            out = rankplan_room(class, plan->graph, node->outputs[0]);
    return in > out ? in : out;
}

/* Per position in the order: bytes of the blocks that are live there. */
static int64_t *live_bytes(const struct graph *graph, const struct block *blocks, int n) {
    int64_t *bytes = ARENA_ARRAY(graph->arena, int64_t, graph->order.n + 2);
    for (int b = 0; b < n; b++) {
        bytes[blocks[b].first] += blocks[b].bytes;
        bytes[blocks[b].last + 1] -= blocks[b].bytes;
    }
    for (int i = 1; i < graph->order.n; i++) bytes[i] += bytes[i - 1];
    return bytes;
}

static void note_peak(struct rankplan *plan, struct rank_class *class, const struct block *blocks, int n) {
    const int64_t *live = class->live[RT_ACTIVATIONS] = live_bytes(plan->graph, blocks, n);
    int at = 0;
    for (int i = 1; i < plan->graph->order.n; i++)
        if (live[i] > live[at]) at = i;
    for (int b = 0; b < n; b++)
        if (blocks[b].first <= at && at <= blocks[b].last)
            VEC_PUSH(plan->graph->arena, &class->peak_live, blocks[b].tensor);
}

/* Blocks that were merged into one, with their offsets in it. The merged block of row i has tensor -1 - i. */
struct row {
    struct block *parts;
    int n;
    int64_t offset; /* of the merged block */
};

/* Per tensor: 1 + the index of its block. */
static const int *number_blocks(const struct graph *graph, const struct block *blocks, int n) {
    int *number = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int b = 0; b < n; b++) number[blocks[b].tensor] = b + 1;
    return number;
}

/* Merges the blocks of gradients that are reduced along the axis into blocks[at]; sets the bytes of the merged ones to
 * 0. */
static struct row join_sums(const struct rankplan *plan, int axis, struct block *blocks, const int *number, int at) {
    const struct graph *graph = plan->graph;
    struct row row = {ARENA_ARRAY(graph->arena, struct block, at + 1), 0, 0};
    struct block whole = {-1 - axis, graph->order.n, -1, 0, 0};
    GRAPH_EACH(graph, i, const struct node *node) {
        if (!begins_sum(node, axis)) continue;
        const int b = number[plan->root[node->outputs[0]]] - 1;
        if (b < 0 || !blocks[b].bytes) continue;
        if (blocks[b].first < whole.first) whole.first = blocks[b].first;
        if (blocks[b].last > whole.last) whole.last = blocks[b].last;
        blocks[b].offset = whole.bytes;
        whole.bytes += blocks[b].bytes;
        row.parts[row.n++] = blocks[b];
        blocks[b].bytes = 0;
    }
    blocks[at] = whole;
    return row;
}

/* Places the values of COMMUNICATION. The gradients that are reduced along each axis lie contiguously. */
static void place_communication(struct rankplan *plan, struct rank_class *class, const int *first, const int *last) {
    struct arena *arena = plan->graph->arena;
    struct block *blocks = ARENA_ARRAY(arena, struct block, plan->graph->tensors.n + RT_LAYOUT_AXES + 1);
    struct row rows[RT_LAYOUT_AXES] = {{0}};
    const int nrows = mesh_layout_axes(&plan->graph->mesh);
    const int listed = collect(plan, class, true, first, last, blocks);
    const int *number = number_blocks(plan->graph, blocks, listed);
    int n = 0;
    class->live[RT_COMMUNICATION] = live_bytes(plan->graph, blocks, listed);
    for (int r = 0; r < nrows; r++) rows[r] = join_sums(plan, r, blocks, number, listed + r);
    for (int b = 0; b < listed + nrows; b++)
        if (blocks[b].bytes) blocks[n++] = blocks[b];
    class->bytes[RT_COMMUNICATION] = assign(arena, blocks, n, plan->graph->order.n + 1);
    for (int b = 0; b < n; b++)
        if (blocks[b].tensor < 0)
            rows[-1 - blocks[b].tensor].offset = blocks[b].offset;
        else
            class->place[blocks[b].tensor] = (struct plan_place){RT_COMMUNICATION, blocks[b].offset};
    for (int r = 0; r < nrows; r++)
        for (int i = 0; i < rows[r].n; i++)
            class->place[rows[r].parts[i].tensor] =
                (struct plan_place){RT_COMMUNICATION, rows[r].offset + rows[r].parts[i].offset};
}

/* The memory that values occupy in COMMUNICATION over time. In a row of contiguous gradients, each gradient occupies
 * its part only from its own first write on. */
static struct occupied *communication_occupied(const struct rankplan *plan, const struct rank_class *class,
                                               const int *first, const int *last, struct arena *scratch) {
    struct occupied *occupied = occupied_new(scratch, plan->graph->order.n + 1);
    for (int t = 0; t < plan->graph->tensors.n; t++) {
        const struct block block = {t, first[t], last[t], rankplan_memory(plan, class, t), 0};
        if (plan->root[t] == t && plan->shared[t] && plan->graph->tensors.at[t].kind == TENSOR_VALUE && first[t] >= 0 &&
            class->place[t].offset >= 0 && class->place[t].arena == RT_COMMUNICATION && !class->place[t].stride)
            take(occupied, &block, class->place[t].offset);
    }
    return occupied;
}

/* Places the values that no peer reads in ACTIVATIONS; in training also where COMMUNICATION is free while they live, so
 * that activations and gradients share memory. */
static void place_activations(struct rankplan *plan, struct rank_class *class, const int *first, const int *last) {
    struct arena *scratch = arena_scratch(plan->graph->arena);
    struct block *blocks = ARENA_ARRAY(plan->graph->arena, struct block, plan->graph->tensors.n + 1);
    struct occupied *communication = communication_occupied(plan, class, first, last, scratch),
                    *activations = occupied_new(scratch, plan->graph->order.n + 1);
    const int n = collect(plan, class, false, first, last, blocks);
    const int64_t room = plan->graph->train ? class->bytes[RT_COMMUNICATION] : 0;
    int64_t *total = &class->bytes[RT_ACTIVATIONS];
    qsort(blocks, (size_t)n, sizeof *blocks, by_size);
    EACH(blocks, n, i, const struct block *block) {
        struct plan_place place = {RT_COMMUNICATION, lowest(communication, block)};
        if (place.offset + block->bytes > room) place = (struct plan_place){RT_ACTIVATIONS, lowest(activations, block)};
        take(place.arena == RT_COMMUNICATION ? communication : activations, block, place.offset);
        if (place.arena == RT_ACTIVATIONS && place.offset + block->bytes > *total) *total = place.offset + block->bytes;
        class->place[block->tensor] = place;
    }
    note_peak(plan, class, blocks, n);
    arena_release(plan->graph->arena, scratch);
}

/* Leaves inputs and controls in the caller's memory, or places them in ACTIVATIONS after the values, for the whole
 * step. */
static void place_inputs(const struct rankplan *plan, struct rank_class *class, const int *last) {
    const struct graph *graph = plan->graph;
    int64_t *end = &class->bytes[RT_ACTIVATIONS];
    VEC_EACH_VALUE(&graph->inputs, i, int t) {
        if (plan->kernels.holds_inputs && last[t] < 0) continue;
        class->place[t] =
            plan->kernels.holds_inputs ? (struct plan_place){RT_ACTIVATIONS, *end} : (struct plan_place){RT_CALLER, i};
        *end += plan->kernels.holds_inputs ? padded(rankplan_room(class, graph, t)) : 0;
    }
    class->controls = plan->kernels.holds_inputs && graph->controls.n ? *end : -1;
    for (int i = 0; i < graph->controls.n; i++)
        class->place[graph->controls.at[i]] =
            class->controls < 0 ? (struct plan_place){RT_CALLER, graph->inputs.n + i}
                                : (struct plan_place){RT_ACTIVATIONS, *end + i * (int64_t)sizeof(double)};
    if (class->controls >= 0) *end += padded(graph->controls.n * (int64_t)sizeof(double));
}

static struct plan_place place_in_root(const struct rankplan *plan, const struct rank_class *class, int tensor) {
    struct plan_place place = class->place[plan->root[tensor]];
    const int64_t bytes = (int64_t)rt_dtype_bytes(plan->graph->tensors.at[tensor].dtype);
    if (place.offset >= 0) place.offset += views_strides(plan, class, tensor).offset * bytes;
    return place;
}

void memplan_make(struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    int *first = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    int *last = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    EACH(plan->classes, plan->nclasses, c, struct rank_class *const class) {
        lifetimes(plan, class, first, last);
        class->place = ARENA_ARRAY(graph->arena, struct plan_place, graph->tensors.n + 1);
        for (int t = 0; t < graph->tensors.n; t++) class->place[t].offset = -1;
        place_weights(plan, class, last);
        place_states(plan, class, last);
        place_updates(plan, class, last);
        slots_find(plan, class);
        place_communication(plan, class, first, last);
        place_activations(plan, class, first, last);
        for (int a = 0; a < RT_ARENAS; a++) class->held[a] = class->bytes[a];
        slots_place(plan, class);
        place_inputs(plan, class, last);
        for (int a = 0; a < RT_ARENAS; a++) class->held[a] = class->bytes[a] - class->held[a];
        for (int t = 0; t < graph->tensors.n; t++)
            if (plan->root[t] != t) class->place[t] = place_in_root(plan, class, t);
        const struct rank_class bound = largest(graph, class);
        class->live[RT_SCRATCH] = ARENA_ARRAY(graph->arena, int64_t, graph->order.n + 1);
        GRAPH_EACH(graph, i, const struct node *node) {
            int64_t scratch = rankplan_part(class, node) ? memplan_scratch(plan, class, &bound, node) : 0;
            class->live[RT_SCRATCH][i] = scratch;
            if (scratch > class->bytes[RT_SCRATCH]) class->bytes[RT_SCRATCH] = scratch;
        }
        class->bytes[RT_SCRATCH] = class->bytes[RT_SCRATCH] ? padded(class->bytes[RT_SCRATCH]) : 0;
    }
}
