/* Redistribution: inserts the cheapest collectives (passes/plan/machine/moves.h) where a node needs a tensor in another
 * layout than its producer's. */
#include <stdlib.h>

#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/plan/machine/moves.h"
#include "passes/rewrite/rewrite.h"

enum { REPLICAS = 2 /* ranks along a replica axis, for costs: their number is not known here */ };

/* A copy of stored tensor `of`, loaded in another layout. */
struct copy {
    int of, tensor;
};

/* The layout that a node needs of an operand. */
struct want {
    int node, operand;
    int next; /* 1 + the number of an earlier want of the same tensor; 0: none */
    struct layout layout;
};

struct redist {
    struct rewrite rewrite;
    struct graph *graph;
    struct diags *diags;
    const struct machine *machine;
    enum phase phase;       /* of the node for which a tensor is converted */
    int stage;              /* of that node */
    struct map made;        /* "tensor layout" or "tensor layout @stage" -> the tensor in that layout */
    VEC(struct want) wants; /* in the order of the nodes: layouts other than those of the operands */
    int *first_want;        /* per tensor of the graph without moves: 1 + the number of its last want; 0: none */
    bool *wanted_as_is;     /* per such tensor: some reader needs it in the layout that it has */
    VEC(struct copy) copies;
};

static const char *layout_key(struct redist *redist, int tensor, const struct layout *layout) {
    struct strbuf key = {.arena = redist->graph->arena};
    strbuf_put_int(&key, tensor);
    layout_put_key(&key, layout);
    return strbuf_text(&key);
}

/* True if the node for which the tensor is converted belongs to the backward phase and gathers a sequence that the
 * forward phase left divided. Forward keeps the part for backward, not the gathered tensor, so that the memory of
 * activations stays divided: keys and values along axis context, and (batch, positions, features) along axis tensor. */
static bool gathers_again(const struct redist *redist, int tensor, const struct layout *layout) {
    const struct graph *graph = redist->graph;
    const struct tensor *held = &graph->tensors.at[tensor];
    if (redist->phase != PHASE_BACKWARD || graph_phase_of(graph, tensor) != PHASE_FORWARD) return false;
    for (int axis = 0; axis < graph->mesh.naxes; axis++) {
        const struct placement part = layout_along(&held->layout, axis);
        const enum axis_role role = axis_role_of(graph->mesh.axis[axis].name);
        const bool positions = role == AXIS_CONTEXT || (role == AXIS_TENSOR && held->ndim == 3 && part.dim == 1);
        const bool has = mesh_has(&graph->mesh, axis, schedule_home(graph, redist->stage));
        if (has && part.kind == PLACED_PART && positions && layout_along(layout, axis).kind == PLACED_WHOLE)
            return true;
    }
    return false;
}

/* The key in `made`. Inputs and stored tensors are on all stages: each stage converts them by itself, and nothing is
 * sent between stages. What is cut flat is gathered in each phase that needs more of it, and so is not kept. */
static const char *made_key(struct redist *redist, int tensor, const struct layout *layout) {
    const char *key = layout_key(redist, tensor, layout);
    if (gathers_again(redist, tensor, layout))
        return arena_printf(redist->graph->arena, "%s in backward @%d", key, redist->stage);
    if (layout_flat_axes(&redist->graph->tensors.at[tensor].layout) & ~layout_flat_axes(layout))
        key = arena_printf(redist->graph->arena, "%s in %s", key, phase_names[redist->phase]);
    if (redist->graph->tensors.at[tensor].producer >= 0) return key;
    return arena_printf(redist->graph->arena, "%s @%d", key, redist->stage);
}

static int find(struct map *map, const char *key) {
    return map_find(map, key);
}

/* The stored tensor, loaded in another layout. For a window it is loaded whole; flat cuts stay as
 * they are, since only one rank of an axis updates an element. */
static int load_as(struct redist *redist, int id, struct layout layout) {
    struct tensor tensor = redist->graph->tensors.at[id];
    for (int axis = 0; axis < mesh_layout_axes(&redist->graph->mesh); axis++) {
        const struct placement wanted = layout_along(&layout, axis), held = layout_along(&tensor.layout, axis);
        if (wanted.kind == PLACED_FLAT || held.kind == PLACED_FLAT)
            layout_place(redist->graph->arena, &layout, axis, held);
        else if (wanted.kind == PLACED_WINDOW)
            layout_place(redist->graph->arena, &layout, axis, (struct placement){PLACED_WHOLE});
    }
    if (layout_equal(&layout, &tensor.layout)) return id;
    const char *key = layout_key(redist, id, &layout);
    if (find(&redist->made, key) >= 0) return find(&redist->made, key);
    tensor.layout = layout;
    VEC_PUSH(redist->graph->arena, &redist->graph->tensors, tensor);
    VEC_PUSH(redist->graph->arena, &redist->copies, (struct copy){id, redist->graph->tensors.n - 1});
    map_set(&redist->made, key, redist->graph->tensors.n - 1);
    return redist->graph->tensors.n - 1;
}

/* The stage of a move: the producer's, so that a tensor is converted once for all stages. The backward phase sends
 * values to earlier stages alone; if it needs a tensor of an earlier one, such as a result of the forward phase, the
 * move is on the stage that needs it. Of two stages of which one lacks the axis, it is on the other. */
static int stage_of_move(const struct redist *redist, int producer, int axis) {
    const struct graph *graph = redist->graph;
    const int stage = producer < 0 ? redist->stage : graph->nodes.at[producer].stage;
    if (!mesh_has(&graph->mesh, axis, schedule_home(graph, stage))) return redist->stage;
    const bool may_wait = mesh_has(&graph->mesh, axis, schedule_home(graph, redist->stage));
    return redist->phase == PHASE_BACKWARD && redist->stage > stage && may_wait ? redist->stage : stage;
}

/* Adds the node of one move along `axis`; returns the tensor it makes. */
static int add_move(struct redist *redist, int id, int axis, const struct move *move, const struct layout *layout,
                    const char *name) {
    struct graph *graph = redist->graph;
    struct tensor from = graph->tensors.at[id];
    const struct placement held = layout_along(&from.layout, axis), made = layout_along(layout, axis);
    const struct placement *part = move->from == PLACED_PART ? &held : &made;
    struct attr attrs[5] = {attr_of_int("mesh", axis)};
    int n = 1;
    if ((move->from == PLACED_PART) != (move->to == PLACED_PART) && move->to != PLACED_WINDOW) {
        attrs[n++] = attr_of_int("dim", part->dim);
        attrs[n++] = attr_of_int("blocks", part->blocks);
        attrs[n++] = attr_of_int("grain", part->grain);
    }
    if (move->from == PLACED_PARTIAL) attrs[n++] = attr_of_text("reduce", reduce_names[held.reduce]);
    const char *label = arena_printf(graph->arena, "%s.%s", from.name, ops[move->op].name);
    int out = graph_add_tensor(graph, TENSOR_VALUE, label, from.dtype, from.ndim, from.dims);
    graph->tensors.at[out].layout = *layout;
    int node = graph_add_node(graph, &ops[move->op], name, 1, &id, 1, &out, n, attrs);
    const int stage = stage_of_move(redist, from.producer, axis);
    const bool earlier = redist->phase == PHASE_BACKWARD && stage < redist->stage; /* it sends in the forward phase */
    graph->nodes.at[node].stage = stage;
    graph->nodes.at[node].phase = earlier ? graph_phase_of(graph, id) : redist->phase;
    return out;
}

/* The cuts of a dimension outside the one along `axis`; all if none of them is along it. Returns how many. */
static int outer_cuts(const struct layout *layout, int dim, int axis, const struct cut *cuts[RT_LAYOUT_AXES]) {
    int n = 0;
    for (int c = 0; c < layout->ncuts; c++) {
        if (!placement_divides(&layout->cuts[c].placement) || layout->cuts[c].placement.dim != dim) continue;
        if (layout->cuts[c].axis == axis) break;
        cuts[n++] = &layout->cuts[c];
    }
    return n;
}

/* True if the wanted cut along `axis` has the same cuts of its dimension outside it in both layouts. `have` need not
 * have the cut itself. */
static bool same_outer_cuts(const struct layout *have, const struct layout *wanted, int axis) {
    const struct cut *held[RT_LAYOUT_AXES], *needed[RT_LAYOUT_AXES];
    const int dim = layout_along(wanted, axis).dim, n = outer_cuts(have, dim, axis, held);
    bool same = n == outer_cuts(wanted, dim, axis, needed);
    for (int i = 0; i < n && same; i++)
        same = held[i]->axis == needed[i]->axis && placement_equal(&held[i]->placement, &needed[i]->placement);
    return same;
}

/* True if nothing is left to do along the axis. */
static bool is_settled(const struct layout *have, const struct layout *wanted, int axis) {
    const struct placement from = layout_along(have, axis), to = layout_along(wanted, axis);
    return placement_equal(&from, &to) && (!placement_divides(&to) || same_outer_cuts(have, wanted, axis));
}

/* True if the part of the tensor that the other axes leave changes along this axis. A flat cut divides that part, so it
 * is made afterwards. */
static bool changes_part(const struct layout *have, const struct layout *wanted, int axis) {
    const struct placement from = layout_along(have, axis), to = layout_along(wanted, axis);
    if (from.kind == PLACED_FLAT || to.kind == PLACED_FLAT || is_settled(have, wanted, axis)) return false;
    return placement_divides(&from) || placement_divides(&to);
}

/* The innermost flat cut if it divides a part that is to change, or -1. */
static int flat_to_undo(const struct graph *graph, const struct layout *have, const struct layout *wanted) {
    int last = -1;
    bool changes = false;
    for (int a = 0; a < mesh_layout_axes(&graph->mesh); a++) {
        if (layout_along(have, a).kind == PLACED_FLAT) last = a;
        changes = changes || changes_part(have, wanted, a);
    }
    return changes ? last : -1;
}

/* True if a flat cut has to wait: for the part that it divides, or for flat cuts along other axes, which are made from
 * the first axis to the last and undone from the last to the first. */
static bool must_wait_flat(const struct graph *graph, const struct layout *have, const struct layout *wanted,
                           int axis) {
    const unsigned held = layout_flat_axes(have), needed = layout_flat_axes(wanted), before = (1u << axis) - 1;
    for (int a = 0; a < mesh_layout_axes(&graph->mesh) && needed >> axis & 1u; a++)
        if (changes_part(have, wanted, a)) return true;
    if (needed >> axis & 1u && needed & ~held & before) return true;
    return held >> axis & 1u && held & ~needed & ~before & ~(1u << axis);
}

/* True if the cut along the axis cannot be changed yet: another one still divides its parts, the dimension to divide
 * lacks the cuts outside the wanted one or has others, or flat cuts must wait. */
static bool must_wait(const struct graph *graph, const struct layout *have, const struct layout *wanted, int axis) {
    const struct placement want = layout_along(wanted, axis);
    if (must_wait_flat(graph, have, wanted, axis) || layout_inner_axis(have, axis) >= 0) return true;
    return placement_divides(&want) && !same_outer_cuts(have, wanted, axis);
}

/* The axis along which to move next, and the placement to reach there. Reductions come first and slices last, so that
 * no collective transfers more than it must. If axes wait for each other, one becomes whole, of nested cuts the
 * innermost. -1: there is no way. */
static int next_axis(const struct graph *graph, const struct layout *have, const struct layout *wanted,
                     struct placement *target) {
    static const enum placement_kind turn[] = {PLACED_PARTIAL, PLACED_PART, PLACED_FLAT, PLACED_WHOLE};
    const int undone = flat_to_undo(graph, have, wanted);
    if (undone >= 0) {
        *target = (struct placement){PLACED_WHOLE};
        return undone;
    }
    for (int waiting = 0; waiting < 2; waiting++)
        for (int t = 0; t < 4; t++)
            for (int axis = 0; axis < mesh_layout_axes(&graph->mesh); axis++) {
                if (layout_along(have, axis).kind != turn[t] || is_settled(have, wanted, axis) ||
                    must_wait(graph, have, wanted, axis) != waiting ||
                    (waiting && (turn[t] == PLACED_WHOLE || layout_inner_axis(have, axis) >= 0)))
                    continue;
                *target = waiting ? (struct placement){PLACED_WHOLE} : layout_along(wanted, axis);
                return axis;
            }
    return -1;
}

/* Reports that a cut is undone and made again because the cuts outside it change. */
static void report_gather(const struct redist *redist, int id, int axis, const struct layout *have,
                          const struct layout *wanted, const char *name) {
    const struct placement held = layout_along(have, axis), want = layout_along(wanted, axis);
    if (!placement_divides(&held) || !placement_equal(&held, &want) || is_settled(have, wanted, axis)) return;
    diag_remark(redist->diags, name,
                "redistribution: '%s' is gathered along %s and divided again, because the cuts of dimension %d outside "
                "that one change",
                redist->graph->tensors.at[id].name, redist->graph->mesh.axis[axis].name, held.dim);
}

/* True if some reader needs the tensor in the layout. */
static bool is_wanted(const struct redist *redist, int tensor, const struct layout *layout) {
    if (layout_equal(&redist->graph->tensors.at[tensor].layout, layout)) return redist->wanted_as_is[tensor];
    for (int w = redist->first_want[tensor]; w > 0; w = redist->wants.at[w - 1].next)
        if (layout_equal(&redist->wants.at[w - 1].layout, layout)) return true;
    return false;
}

/* The change of the tensor's placement along the axis. */
static struct moving moving_along(const struct redist *redist, int tensor, int axis, const struct placement *target,
                                  bool made_whole) {
    const struct mesh *mesh = &redist->graph->mesh;
    const struct tensor *held = &redist->graph->tensors.at[tensor];
    const bool replicas = axis >= mesh->naxes;
    double bytes = (double)tensor_bytes(held);
    for (int c = 0; c < held->layout.ncuts; c++) {
        const int other = held->layout.cuts[c].axis;
        if (other != axis) bytes /= other < mesh->naxes ? mesh->axis[other].size : REPLICAS;
    }
    return (struct moving){.tensor = held,
                           .bytes = bytes,
                           .from = layout_along(&held->layout, axis),
                           .to = *target,
                           .group = {redist->machine, replicas ? REPLICAS : mesh->axis[axis].size,
                                     replicas ? mesh_size(mesh) : mesh_stride(mesh, axis, mesh->axis[axis].first)},
                           .made_whole = made_whole};
}

/* Adds one move from tensor `now`, which is tensor `id` in some layout, towards the wanted layout. */
static int move_once(struct redist *redist, int id, int now, const struct layout *wanted, const char *name) {
    struct graph *graph = redist->graph;
    struct layout layout = graph->tensors.at[now].layout, whole = layout;
    struct placement target;
    int axis = next_axis(graph, &layout, wanted, &target);
    if (axis < 0) return -1;
    report_gather(redist, id, axis, &layout, wanted, name);
    layout_place(graph->arena, &whole, axis, (struct placement){PLACED_WHOLE});
    const struct moving moving =
        moving_along(redist, now, axis, &target, target.kind != PLACED_WHOLE && is_wanted(redist, id, &whole));
    const struct move *move = moves_first(&moving, NULL);
    if (!move) return -1;
    layout_place(graph->arena, &layout, axis, moves_after(move, &target));
    const char *key = made_key(redist, id, &layout);
    int made = find(&redist->made, key);
    if (made >= 0) return made;
    made = add_move(redist, now, axis, move, &layout, name);
    map_set(&redist->made, key, made);
    return made;
}

/* The tensor in the wanted layout: itself, one converted before, or the result of moves along one axis after
 * another. */
static int convert(struct redist *redist, int id, const struct layout *wanted, const char *name) {
    struct graph *graph = redist->graph;
    if (layout_equal(&graph->tensors.at[id].layout, wanted)) return id;
    int now = find(&redist->made, made_key(redist, id, wanted));
    if (now >= 0) return now;
    now = tensor_is_stored(&graph->tensors.at[id]) ? load_as(redist, id, *wanted) : id;
    while (now >= 0 && !layout_equal(&graph->tensors.at[now].layout, wanted))
        now = move_once(redist, id, now, wanted, name);
    if (now < 0)
        diag_error(redist->diags, 420, EXIT_LIMIT, name,
                   "no sequence of collectives converts '%s' to the layout of its consumer",
                   graph->tensors.at[id].name);
    return now;
}

/* Operand -1: an output of the graph. */
static void note_want(struct redist *redist, int node, int operand, int tensor, const struct layout *layout) {
    if (layout_equal(&redist->graph->tensors.at[tensor].layout, layout)) {
        redist->wanted_as_is[tensor] = true;
        return;
    }
    const struct want want = {node, operand, redist->first_want[tensor], *layout};
    VEC_PUSH(redist->graph->arena, &redist->wants, want);
    redist->first_want[tensor] = redist->wants.n;
}

static void note_wants(struct redist *redist, struct arena *scratch, int id) {
    struct graph *graph = redist->graph;
    const struct node *node = &graph->nodes.at[id];
    struct dims dims;
    dims_bind_checked(scratch, graph, node, &dims);
    for (int k = 0; k < node->ninputs; k++) {
        if (node->inputs[k] < 0) continue;
        const struct layout layout = dims_layout_wanted(graph, &dims, node, k);
        note_want(redist, id, k, node->inputs[k], &layout);
    }
}

/* Converts the operands of one node, whose wants begin at number *next. */
static int serve_inputs(struct redist *redist, int id, int *next) {
    struct graph *graph = redist->graph;
    redist->phase = graph->nodes.at[id].phase;
    redist->stage = graph->nodes.at[id].stage;
    for (; *next < redist->wants.n && redist->wants.at[*next].node == id; ++*next) {
        const struct want *want = &redist->wants.at[*next];
        const struct node *node = &graph->nodes.at[id];
        int tensor = convert(redist, node->inputs[want->operand], &want->layout, node->name);
        if (tensor < 0) return -1;
        graph->nodes.at[id].inputs[want->operand] = tensor;
    }
    return 0;
}

static int add_update(struct redist *redist, int weight, int value) {
    const struct layout layout = redist->graph->tensors.at[weight].layout;
    redist->phase = graph_phase_of(redist->graph, value);
    int tensor = convert(redist, value, &layout, redist->graph->tensors.at[weight].name);
    if (tensor < 0) return -1;
    VEC_PUSH(redist->graph->arena, &redist->graph->updates, (struct update){weight, tensor});
    return 0;
}

static int by_weight(const void *left, const void *right) {
    const struct copy *a = left, *b = right;
    return a->of != b->of ? a->of - b->of : a->tensor - b->tensor;
}

/* The first of the n sorted copies that is of the weight or of one behind it. */
static int first_copy(const struct copy *copies, int n, int weight) {
    int low = 0;
    BISECT(low, n, middle, copies[middle].of < weight)
    return low;
}

/* A weight that is updated may be loaded in several layouts: each of them gets the new value. The weight in its first
 * layout is not updated if only the others are read. */
static int serve_updates(struct redist *redist) {
    struct graph *graph = redist->graph;
    const struct update *updates = graph->updates.at;
    const int *readers = graph_readers(graph, graph->arena);
    const int n = graph->updates.n, ncopies = redist->copies.n;
    struct copy *all = redist->copies.at; /* the memory stays where it is when more are added */
    if (ncopies) qsort(all, (size_t)ncopies, sizeof *all, by_weight);
    graph->updates.at = NULL;
    graph->updates.n = graph->updates.capacity = 0;
    for (int i = 0; i < n; i++) {
        int copies = 0;
        for (int c = first_copy(all, ncopies, updates[i].weight); c < ncopies && all[c].of == updates[i].weight; c++) {
            if (add_update(redist, all[c].tensor, updates[i].value) < 0) return -1;
            copies++;
        }
        if (copies && !readers[updates[i].weight]) continue;
        if (add_update(redist, updates[i].weight, updates[i].value) < 0) return -1;
    }
    return 0;
}

/* The layout of an output: complete on every rank. Along replica axes it may be the rank's own. */
static struct layout complete(const struct graph *graph, int tensor) {
    struct layout layout = {0};
    for (int axis = graph->mesh.naxes; axis < mesh_layout_axes(&graph->mesh); axis++)
        if (layout_along(&graph->tensors.at[tensor].layout, axis).kind == PLACED_OWN)
            layout_place(graph->arena, &layout, axis, (struct placement){PLACED_OWN});
    return layout;
}

int pass_redist(struct graph *graph, const struct pass_context *context) {
    struct redist redist = {.graph = graph, .diags = context->diags, .machine = machine_or_default(context->machine)};
    struct arena *scratch = arena_scratch(graph->arena);
    int next = 0;
    map_init(&redist.made, graph->arena);
    redist.first_want = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    redist.wanted_as_is = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->order.n; i++) note_wants(&redist, scratch, graph->order.at[i]);
    arena_release(graph->arena, scratch);
    for (int i = 0; i < graph->outputs.n; i++) {
        const struct layout layout = complete(graph, graph->outputs.at[i]);
        note_want(&redist, -1, -1, graph->outputs.at[i], &layout);
    }
    rewrite_begin(&redist.rewrite, graph);
    for (int i = 0; i < redist.rewrite.order_n; i++) {
        int id = rewrite_next(&redist.rewrite, i);
        if (serve_inputs(&redist, id, &next) < 0) return -1;
        rewrite_keep(&redist.rewrite, id);
    }
    for (int i = 0; i < graph->outputs.n; i++) {
        const struct layout layout = complete(graph, graph->outputs.at[i]);
        redist.phase = graph_phase_of(graph, graph->outputs.at[i]);
        int tensor = convert(&redist, graph->outputs.at[i], &layout, graph->output_names.at[i]);
        if (tensor < 0) return -1;
        graph->outputs.at[i] = tensor;
    }
    if (serve_updates(&redist) < 0) return -1;
    graph_sort_phases(graph);
    return 0;
}
