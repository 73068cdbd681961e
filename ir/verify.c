#include "ir/verify.h"

#include <stdio.h>
#include <string.h>

#include "ir/blocks.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "ir/timeline.h"
#include "ir/packing.h"

/* Note [Equivalence]
 * A point of a node is one index of its iteration space: a value for each factor of its annotation. One device visits
 * each point once. The ranks together compute the same if
 *
 *   1. the ranks along each mesh axis partition the points: every value of the split factor has one owner;
 *   2. a rank that owns a point holds every input element that the point reads, at the place where the kernel looks for
 *      it: its part of each operand is exactly the elements with owned values of the split factor, in order;
 *   3. results to which several ranks contribute (the factor is reduced) are combined once, by the reduction of that
 *      factor, before any operator but a linear one reads them;
 *   4. redistributions move elements and do not change them, and their source and destination layouts are those of
 *      their input and output.
 *
 * The check does not rely on the arithmetic of dims.c: it computes the indices of a dimension that each rank owns once
 * from the factor and once from the tensor's layout, and compares the two sets (Note [Runs]). For a window it checks
 * that the window contains all indices that the rank's positions read, at the place where the rank's operator looks for
 * them: that operator counts its own positions from 0 and pads the window by the rank's own begin. */

struct verifier {
    struct graph *graph;
    struct arena *arena; /* released at the end */
    struct diags *diags;
    bool *written;                          /* per tensor: a value exists at this point of the order */
    int node;                               /* the node under check; -1: the graph itself */
    bool any_packed, any_runs, any_gathers; /* nodes that check_packing, check_runs and check_gathers are about */
};

__attribute__((format(printf, 2, 3))) static void fail(struct verifier *v, const char *format, ...) {
    const char *text;
    ARENA_PRINT_TO(text, v->graph->arena, format);
    const char *where = v->node < 0 ? v->graph->name : node_place(v->graph, v->node);
    diag_error(v->diags, 1101, EXIT_MISMATCH, where, "the plan is not equivalent to the model: %s", text);
}

static const struct tensor *tensor_at(const struct verifier *v, int id) {
    return &v->graph->tensors.at[id];
}

/* WHOLE for an input that is left out. */
static enum placement_kind kind_along(const struct verifier *v, int tensor, int axis) {
    return tensor < 0 ? PLACED_WHOLE : layout_along(&tensor_at(v, tensor)->layout, axis).kind;
}

static bool check_ids(struct verifier *v, const struct node *node) {
    EACH_VALUE(node->inputs, node->ninputs, k, int id) {
        if (id < -1 || id >= v->graph->tensors.n) return fail(v, "input %d is not a tensor", k), false;
        if (id >= 0 && !v->written[id])
            return fail(v, "reads '%s' before it is written", tensor_at(v, id)->name), false;
    }
    EACH_VALUE(node->outputs, node->noutputs, k, int id) {
        if (id < 0 || id >= v->graph->tensors.n) return fail(v, "output %d is not a tensor", k), false;
        if (v->written[id]) return fail(v, "writes '%s' a second time", tensor_at(v, id)->name), false;
        v->written[id] = true;
    }
    return true;
}

static bool check_shapes(struct verifier *v, const struct node *node, struct dims *dims) {
    const char *why;
    if (dims_bind(v->arena, v->graph, node, dims, &why) < 0) return fail(v, "%s", why), false;
    for (int k = 0; k < node->noutputs; k++) {
        const struct tensor *out = tensor_at(v, node->outputs[k]);
        if (!dims_fits(dims, dims->ninputs + k, out))
            return fail(v, "'%s' is declared as %s, which is not what the node computes", out->name,
                        tensor_type(v->arena, out)),
                   false;
    }
    return true;
}

/* Note [Runs]
 * The indices that a rank owns form runs at equal distances: the first begins at `start`, each has `length` indices,
 * and the next begins `period` after the start of the one before. Every second run begins `turned` further than that,
 * which is not 0 in mirrored cuts alone (Note [Mirrored cuts] in runtime/base/shape/part.h). Once adjacent runs are
 * joined, two sets are equal if and only if these numbers are. So sets are compared without listing their indices, and
 * the time does not depend on extents. */
struct runs {
    int64_t start, turned, length, period, count;
};

/* Joins adjacent runs to one. The period of a single run is 0, so that equal sets have equal numbers. */
static struct runs joined(struct runs runs) {
    if (runs.length == runs.period && !runs.turned) runs = (struct runs){runs.start, 0, runs.length * runs.count, 0, 1};
    if (runs.count == 1) runs.period = 0;
    return runs;
}

static bool same_runs(struct runs a, struct runs b) {
    a = joined(a), b = joined(b);
    return a.start == b.start && a.turned == b.turned && a.length == b.length && a.period == b.period &&
           a.count == b.count;
}

/* The indices that a rank owns of a compound dimension (before f after), where factor f is cut: `before` and `after`
 * are the products of the extents before and after f. */
static struct runs runs_of(const struct rt_cut *cut, int64_t before, int64_t after, int rank) {
    const int64_t blocks = rt_blocks(cut->blocks);
    return (struct runs){.start = rt_cut_start(cut, rank) * after,
                         .turned = (rt_cut_start_in(cut, rank, 1) - rt_cut_start(cut, rank)) * after,
                         .length = rt_cut_length(cut, rank) * after,
                         .period = cut->extent / blocks * after,
                         .count = before * blocks};
}

/* True if every index of a block has one owner: the parts are adjacent and none is empty. */
static bool parts_cover(const struct rt_cut *cut) {
    int64_t end = 0;
    for (int r = 0; r < cut->ways; r++) {
        if (rt_cut_start(cut, r) != end || rt_cut_length(cut, r) < 1) return false;
        end += rt_cut_length(cut, r);
    }
    return end == cut->extent / rt_blocks(cut->blocks);
}

/* True if the cut of the factor and the layout give the rank the same indices of the dimension. */
static bool owns_alike(const struct rt_cut *by_factor, const struct rt_cut *by_layout, int64_t before, int64_t after,
                       int rank) {
    return before * by_factor->extent * after == by_layout->extent &&
           same_runs(runs_of(by_factor, before, after, rank), runs_of(by_layout, 1, 1, rank));
}

/* Checks that each rank owns the same indices of a split dimension by the factor and by the layout. A part is stored
 * without gaps in the order of its indices, and the kernel's loop counts the values of the factor in the same order, so
 * equal sets mean that each element is where the kernel looks for it. */
static void check_ownership(struct verifier *v, const struct dims *dims, const struct dim_factors *d, int factor,
                            const struct rt_cut *by_factor, const struct rt_cut *by_layout) {
    const char *name = dims->factor[factor].name;
    int64_t before = 1, after = 1;
    int at = 0;
    for (; d->factor[at] != factor; at++) before *= dims->factor[d->factor[at]].extent;
    for (int i = at + 1; i < d->n; i++) after *= dims->factor[d->factor[i]].extent;
    if (!parts_cover(by_factor) || !parts_cover(by_layout))
        return fail(v, "a shard of '%s' is empty or does not begin where the previous one ends", name);
    for (int r = 0; r < by_factor->ways; r++)
        if (!owns_alike(by_factor, by_layout, before, after, r))
            return fail(v, "rank %d of the axis holds other indices than its part of '%s' has", r, name);
}

/* The indices that a rank's positions read, inside a dimension or in its padding: `count` spans of `span` indices,
 * which begin at first, first + stride, first + 2 stride ... */
struct reached {
    int64_t first, stride, span, count;
};

/* True if a position reads an index of [low, high). */
static bool reaches(const struct reached *reached, int64_t low, int64_t high) {
    if (low >= high || reached->count < 1 || reached->span < 1) return false;
    /* The first position that ends behind `low`. */
    const int64_t behind = low - reached->first - reached->span + 1;
    int64_t position = behind <= 0 ? 0 : (behind + reached->stride - 1) / reached->stride;
    return position < reached->count && reached->first + position * reached->stride < high;
}

/* True if the rank's operator reads the same elements from its window as the whole operator reads from the dimension.
 * The rank's operator counts its positions from 0; the first one begins rt_placement_before() indices in front of the
 * window. */
static bool window_serves(const struct reach *reach, int64_t extent, const struct rt_placement *window,
                          const struct rt_cut *positions, int rank) {
    int64_t start, length = rt_placement_run(window, rank, 0, &start), end = start + length;
    const int64_t before = rt_placement_before(window, rank), count = rt_cut_length(positions, rank);
    const struct reached whole = {rt_cut_start(positions, rank) * reach->stride - reach->before, reach->stride,
                                  reach->span, count};
    const struct reached inside = {-before, reach->stride, reach->span, count}; /* as the operator counts */
    if (!reaches(&whole, 0, extent)) return !reaches(&inside, 0, length);
    if (whole.first - inside.first != start) return false;
    /* No position may read an index that only the dimension has, or only the window. */
    return !reaches(&whole, 0, start < extent ? start : extent) && !reaches(&whole, end > 0 ? end : 0, extent) &&
           !reaches(&whole, start, end < 0 ? end : 0) && !reaches(&whole, start > extent ? start : extent, end);
}

/* Checks an operand that is read in windows by the positions of the cut factor. */
static void check_window(struct verifier *v, const struct factor *halo, const struct tensor *tensor, int axis, int dim,
                         const struct rt_cut *by_factor) {
    const struct placement held = layout_along(&tensor->layout, axis);
    if (held.kind != PLACED_WINDOW || held.dim != dim)
        return fail(v, "'%s' is not held in windows of dimension %d", tensor->name, dim);
    const struct rt_placement window = placement_among(tensor, &held, v->graph->mesh.axis[axis].size);
    if (!rt_cut_is_sound(&window.cut) || window.cut.blocks != 1 || by_factor->blocks != 1 || !parts_cover(by_factor))
        return fail(v, "'%s' is split at a position where it cannot be split", tensor->name);
    for (int rank = 0; rank < by_factor->ways; rank++)
        if (!window_serves(&halo->reach, halo->extent, &window, by_factor, rank))
            return fail(v,
                        "positions of rank %d of the axis read indices that its window of '%s' does not contain there",
                        rank, tensor->name);
}

/* The cuts that divide a factor of a node and a dimension of an operand, each along the axis of the same level, from
 * the outermost to the innermost. */
struct nest {
    int levels, ways[RT_MAX_AXES];
    struct node_split by_factor[RT_MAX_AXES];
    struct placement by_layout[RT_MAX_AXES];
};

/* Checks the cuts from `level` on in the part that those before it leave some rank: `factor` values of the factor and
 * `dim` indices of the dimension. Equal parts of equal parts are equal, so one rank of each different extent is enough
 * for the levels inside. */
static void check_nest(struct verifier *v, const struct dims *dims, const struct dim_factors *d,
                       const struct nest *nest, int level, int64_t factor, int64_t dim) {
    const int errors = v->diags->errors;
    if (level == nest->levels) return;
    const struct node_split *split = &nest->by_factor[level];
    const struct placement *part = &nest->by_layout[level];
    const struct rt_cut by_factor = {factor, split->blocks, split->grain, nest->ways[level]},
                        by_layout = {dim, part->blocks, part->grain, nest->ways[level]};
    if (!rt_cut_is_sound(&by_factor) || !rt_cut_is_sound(&by_layout))
        return fail(v, "'%s' is split at a position where it cannot be split", dims->factor[split->factor].name);
    check_ownership(v, dims, d, split->factor, &by_factor, &by_layout);
    for (int r = 0; r < nest->ways[level] && v->diags->errors == errors; r++)
        if (!r || rt_cut_length(&by_factor, r) != rt_cut_length(&by_factor, r - 1))
            check_nest(v, dims, d, nest, level + 1, rt_cut_extent(&by_factor, r), rt_cut_extent(&by_layout, r));
}

/* The cuts of the node's factor and of the operand's dimension; false if they are not along the same axes in the same
 * order. */
static bool find_nest(const struct verifier *v, const struct node *node, const struct layout *layout, int factor,
                      int dim, struct nest *nest) {
    const struct mesh *mesh = &v->graph->mesh;
    int axes[RT_LAYOUT_AXES], next = 0;
    dims_outermost_first(node->split, mesh->naxes, axes);
    *nest = (struct nest){0};
    for (int i = 0; i < mesh->naxes; i++) {
        if (node->split[axes[i]].factor != factor) continue;
        while (next < layout->ncuts && layout->cuts[next].placement.dim != dim) next++;
        if (next == layout->ncuts || layout->cuts[next].axis != axes[i] ||
            layout->cuts[next].placement.kind != PLACED_PART)
            return false;
        nest->ways[nest->levels] = mesh->axis[axes[i]].size;
        nest->by_factor[nest->levels] = node->split[axes[i]];
        nest->by_layout[nest->levels++] = layout->cuts[next++].placement;
    }
    return true;
}

/* Checks an operand whose dimension contains the factor that is split along the axes of its cuts. */
static void check_parts(struct verifier *v, const struct dims *dims, const struct node *node, int o,
                        const struct tensor *tensor, int factor, int dim) {
    struct nest nest;
    if (!find_nest(v, node, &tensor->layout, factor, dim, &nest))
        return fail(v, "'%s' is not split in dimension %d", tensor->name, dim);
    check_nest(v, dims, &dims->operand[o].dim[dim], &nest, 0, dims->factor[factor].extent, tensor->dims[dim]);
}

static int dim_of_factor(const struct operand *operand, int factor) {
    for (int d = 0; d < operand->ndim; d++)
        for (int i = 0; i < operand->dim[d].n; i++)
            if (operand->dim[d].factor[i] == factor) return d;
    return -1;
}

/* Checks one operand of a node that is split along `axis`. */
static void check_operand(struct verifier *v, const struct dims *dims, const struct node *node, int o, int axis) {
    bool is_input = o < dims->ninputs;
    const struct tensor *tensor = tensor_at(v, is_input ? node->inputs[o] : node->outputs[o - dims->ninputs]);
    const struct placement held = layout_along(&tensor->layout, axis);
    const struct node_split *split = &node->split[axis];
    const struct factor *factor = &dims->factor[split->factor];
    int ways = v->graph->mesh.axis[axis].size, dim = dim_of_factor(&dims->operand[o], split->factor);
    enum rt_reduce needs;
    const bool reduced = dims_reduces(dims, is_input ? 0 : o - dims->ninputs, split->factor, &needs);
    struct rt_cut by_factor = {factor->extent, split->blocks, split->grain, ways};
    int window = is_input ? dims_window_dim(dims, o, split->factor) : -1;
    if (window >= 0) {
        const struct factor *halo = &dims->factor[dims->operand[o].dim[window].factor[0]];
        check_window(v, halo, tensor, axis, window, &by_factor);
    } else if (dim >= 0) {
        if (split->depth == 0) check_parts(v, dims, node, o, tensor, split->factor, dim);
    } else if (reduced && (!is_input || (o == 0 && node->op->onto))) {
        if (held.kind != PLACED_PARTIAL || held.reduce != needs)
            fail(v, "'%s' is not marked partial (%s)", tensor->name, reduce_names[needs]);
    } else if (held.kind != PLACED_WHOLE) {
        fail(v, "'%s' is not complete along %s", tensor->name, v->graph->mesh.axis[axis].name);
    }
}

/* Along a replica axis: what is computed from a rank's own values is its own. Fused nodes have results of both
 * kinds. */
static void check_replicas(struct verifier *v, const struct node *node, int axis) {
    bool own = false;
    for (int k = 0; k < node->ninputs; k++) {
        const enum placement_kind kind = kind_along(v, node->inputs[k], axis);
        own = own || kind == PLACED_OWN;
        if (kind != PLACED_OWN && kind != PLACED_WHOLE && v->graph->level >= COMMUNICATING)
            fail(v, "reads '%s', which is not complete along %s", tensor_at(v, node->inputs[k])->name,
                 v->graph->mesh.axis[axis].name);
    }
    for (int k = 0; k < node->noutputs; k++) {
        const enum placement_kind given = kind_along(v, node->outputs[k], axis);
        const bool joined = tensor_at(v, node->outputs[k])->joined && given == PLACED_PARTIAL;
        const bool fits =
            own ? given == PLACED_OWN || (given == PLACED_WHOLE && node->noutputs > 1) : given == PLACED_WHOLE;
        if (!joined && (!fits || (tensor_at(v, node->outputs[k])->joined && v->graph->level < STAGED)))
            fail(v, "its result has the wrong layout along %s", v->graph->mesh.axis[axis].name);
    }
}

/* A node whose ranks compute slices of the elements: operands of one element are whole, the others have the same
 * slices as the result, or give a partial sum of squares. Scales of blocks have the slices of their blocks. */
static void check_flat(struct verifier *v, const struct dims *dims, const struct node *node, int axis) {
    const bool sums = node->op->id == OP_SumSquares || node->op->onto;
    if (!sums && !op_has_blocks(node->op) && node->op->kind != OP_ELEMENTWISE)
        return fail(v, "is cut flat, but is not elementwise");
    for (int k = 0; k < node->noutputs; k++) {
        const enum placement_kind given = kind_along(v, node->outputs[k], axis);
        const bool joined = v->graph->level >= STAGED && given == PLACED_OWN;
        if (sums ? given != PLACED_PARTIAL && !joined : given != PLACED_FLAT)
            fail(v, "its result has the wrong layout along %s", v->graph->mesh.axis[axis].name);
    }
    for (int k = 0; k < node->ninputs && v->graph->level >= COMMUNICATING; k++) {
        if (node->inputs[k] < 0) continue;
        const struct tensor *operand = tensor_at(v, node->inputs[k]), *result = tensor_at(v, node->outputs[0]);
        const struct layout wanted = dims_layout_wanted(v->graph, dims, node, k);
        const bool alike = op_has_blocks(node->op) ? layout_same_part(&operand->layout, &wanted)
                                                   : tensor_same_shape(operand, result) &&
                                                         layout_same_part(&operand->layout, &result->layout);
        const bool one = tensor_elements(operand) == 1;
        const enum placement_kind kind = kind_along(v, node->inputs[k], axis);
        if (k == 0 && node->op->onto) {
            if (kind != kind_along(v, node->outputs[0], axis))
                fail(v, "'%s' is not laid out as the sum", operand->name);
            continue;
        }
        if (one ? kind != PLACED_WHOLE && kind != PLACED_OWN : kind != PLACED_FLAT || (!sums && !alike))
            fail(v, "'%s' is not cut as the result is", operand->name);
    }
}

/* True if one of the two splits divides the parts of the other, as Note [Nested cuts] in runtime/base/shape/part.h
 * has it. */
static bool nests(const struct dims *dims, const struct node_split *a, const struct node_split *b) {
    const struct node_split *outer = a->depth < b->depth ? a : b, *inner = a->depth < b->depth ? b : a;
    return outer->factor == inner->factor && outer->depth != inner->depth && outer->blocks == inner->blocks &&
           outer->grain % inner->grain == 0 && !dims_has_windows(dims, a->factor);
}

static void check_split(struct verifier *v, const struct dims *dims, const struct node *node, int axis) {
    const struct node_split *split = &node->split[axis];
    int ways = v->graph->mesh.axis[axis].size;
    if (split->factor >= dims->nfactors) return fail(v, "splits a factor that it does not have");
    struct rt_cut cut = {dims->factor[split->factor].extent, split->blocks, split->grain, ways};
    if (!rt_cut_is_sound(&cut) || !dims_can_split(dims, split, ways) || !op_can_split(node->op, dims, split))
        return fail(v, "'%s' cannot be split in %d", dims->factor[split->factor].name, ways);
    for (int a = 0; a < v->graph->mesh.naxes; a++)
        if (a != axis && dims_splits_meet(dims, &node->split[a], split) && !nests(dims, &node->split[a], split))
            return fail(v, "two mesh axes split '%s', but the cuts do not nest", dims->factor[split->factor].name);
    bool inputs_too = v->graph->level >= COMMUNICATING;
    for (int o = inputs_too ? 0 : dims->ninputs; o < dims->ninputs + dims->noutputs; o++) {
        int k = o < dims->ninputs ? o : o - dims->ninputs;
        if (o < dims->ninputs ? k < node->ninputs && node->inputs[k] >= 0 : k < node->noutputs)
            check_operand(v, dims, node, o, axis);
    }
}

/* Checks a node that is linear in each input alone: one input is a partial sum, the others are whole. */
static void check_scaled(struct verifier *v, const struct node *node, int axis) {
    int partial = 0;
    for (int k = 0; k < node->ninputs && v->graph->level >= COMMUNICATING; k++) {
        const enum placement_kind kind = kind_along(v, node->inputs[k], axis);
        partial += kind == PLACED_PARTIAL;
        if (kind != PLACED_PARTIAL && kind != PLACED_WHOLE)
            fail(v, "'%s' is neither partial nor whole along %s", tensor_at(v, node->inputs[k])->name,
                 v->graph->mesh.axis[axis].name);
    }
    if (partial != 1 && v->graph->level >= COMMUNICATING) fail(v, "has not one partial operand but %d", partial);
    for (int k = 0; k < node->noutputs; k++)
        if (kind_along(v, node->outputs[k], axis) != PLACED_PARTIAL) fail(v, "its result has the wrong layout");
}

/* Checks a node that is not split along the axis: its inputs and outputs are whole; or, if it is linear, partial sums,
 * except for conditions. */
static void check_unsplit(struct verifier *v, const struct node *node, int axis) {
    bool passes = node->split[axis].factor < -1;
    if (passes && node->op->linear == LINEAR_EACH) return check_scaled(v, node, axis);
    if (passes && !node_is_linear(v->graph, node)) return fail(v, "is not linear, but takes partial values");
    enum placement_kind wants = passes ? PLACED_PARTIAL : PLACED_WHOLE;
    for (int k = 0; k < node->ninputs && v->graph->level >= COMMUNICATING; k++) {
        bool partial = passes && node_sums_input(node, k);
        const enum placement_kind kind = kind_along(v, node->inputs[k], axis);
        if (kind != (partial ? PLACED_PARTIAL : PLACED_WHOLE) && (partial || kind != PLACED_OWN))
            fail(v, "'%s' is not %s along %s", tensor_at(v, node->inputs[k])->name, partial ? "partial" : "whole",
                 v->graph->mesh.axis[axis].name);
    }
    for (int k = 0; k < node->noutputs; k++)
        if (kind_along(v, node->outputs[k], axis) != wants) fail(v, "its result has the wrong layout");
}

static const struct {
    enum op_id op;
    enum placement_kind from, to;
} transitions[] = {{OP_Chunk, PLACED_WHOLE, PLACED_PART},
                   {OP_Chunk, PLACED_WHOLE, PLACED_WINDOW},
                   {OP_AllGather, PLACED_PART, PLACED_WHOLE},
                   {OP_AllToAll, PLACED_PART, PLACED_PART},
                   {OP_Crop, PLACED_PART, PLACED_WINDOW},
                   {OP_HaloExchange, PLACED_PART, PLACED_WINDOW},
                   {OP_Chunk, PLACED_WHOLE, PLACED_FLAT},
                   {OP_AllGather, PLACED_FLAT, PLACED_WHOLE},
                   {OP_AllGatherStart, PLACED_FLAT, PLACED_FLAT},
                   {OP_ReduceScatterOnto, PLACED_PARTIAL, PLACED_FLAT},
                   {OP_AllReduceOnto, PLACED_PARTIAL, PLACED_WHOLE},
                   {OP_ReduceScatter, PLACED_PARTIAL, PLACED_FLAT},
                   {OP_AllReduce, PLACED_PARTIAL, PLACED_WHOLE},
                   {OP_ReduceScatter, PLACED_PARTIAL, PLACED_PART},
                   {OP_AllReduceStart, PLACED_PARTIAL, PLACED_PARTIAL},
                   {OP_ReduceScatterStart, PLACED_PARTIAL, PLACED_PARTIAL}};

/* From pass replicas on, a partial value along a replica axis is the rank's own. */
static enum placement_kind kind_of(const struct verifier *v, const struct placement *placement) {
    return v->graph->level >= STAGED && placement->kind == PLACED_OWN ? PLACED_PARTIAL : placement->kind;
}

static bool moves_between(const struct verifier *v, const struct op *op, const struct placement *from,
                          const struct placement *to) {
    for (int i = 0; i < (int)(sizeof transitions / sizeof *transitions); i++)
        if (transitions[i].op == op->id && transitions[i].from == kind_of(v, from) &&
            transitions[i].to == kind_of(v, to))
            return true;
    return false;
}

/* True if the attributes of the collective name the part that it makes or resolves. An exchange between two parts, or
 * to windows, has no such attributes. */
static bool names_its_part(const struct node *node, const struct placement *from, const struct placement *to) {
    if (to->kind == PLACED_WINDOW || (from->kind == PLACED_PART) == (to->kind == PLACED_PART)) return true;
    const struct placement *part = from->kind == PLACED_PART ? from : to;
    return part->dim == attr_int(node, "dim", -1) && part->blocks == attr_int(node, "blocks", 0) &&
           part->grain == attr_int(node, "grain", 0);
}

/* The pipeline stage of a tensor's producer; STAGE_ALL if no node computes the tensor. A node reads tensors of
 * stages at its own coordinate only, and a transfer between stages keeps the layout. */
static int home_of(const struct verifier *v, int tensor) {
    const struct tensor *t = tensor_at(v, tensor);
    return t->kind == TENSOR_VALUE ? v->graph->nodes.at[t->producer].stage : STAGE_ALL;
}

/* True if the stage has the tensor of stage `home`: in the phases of the whole step, whose nodes are on a coordinate's
 * first stage, also those of its other stages. */
static bool has_tensor(const struct verifier *v, const struct node *node, int64_t stage, int home) {
    if (stage < 0 || stage >= schedule_chunks(v->graph) || home == STAGE_ALL) return false;
    return stage == home ||
           (node->phase >= PHASE_REDUCE && schedule_home(v->graph, (int)stage) == schedule_home(v->graph, home));
}

static void check_crossing(struct verifier *v, const struct node *node) {
    const struct tensor *from = tensor_at(v, node->inputs[0]), *to = tensor_at(v, node->outputs[0]);
    bool transfer = node->op->id == OP_Transfer;
    if (!transfer && !mesh_is_even(&v->graph->mesh) && from->layout.ncuts)
        fail(v, "broadcasts a part of '%s' between unequal stages", from->name);
    if (!layout_equal(&from->layout, &to->layout)) fail(v, "changes the layout of '%s'", from->name);
    if (!has_tensor(v, node, attr_int(node, "from", -1), home_of(v, node->inputs[0])))
        fail(v, "'%s' is not on the pipeline stage that sends it", from->name);
    if (node->stage != (transfer ? attr_int(node, "to", -2) : STAGE_ALL)) fail(v, "arrives on another stage");
    if (attr_int(node, "mesh", -1) != mesh_pipeline_axis(&v->graph->mesh)) fail(v, "is not along the pipeline axis");
}

static void check_stage(struct verifier *v, const struct node *node) {
    const int own = schedule_home(v->graph, node->stage);
    if (node->stage >= schedule_chunks(v->graph)) fail(v, "there is no pipeline stage %d", node->stage);
    for (int k = 0; k < node->ninputs; k++) {
        int home = node->inputs[k] < 0 ? STAGE_ALL : home_of(v, node->inputs[k]);
        if (home != STAGE_ALL && schedule_home(v->graph, home) != own)
            fail(v, "reads '%s' of another pipeline stage", tensor_at(v, node->inputs[k])->name);
    }
}

static bool crosses(const struct node *node) {
    return node->op->id == OP_Transfer || node->op->id == OP_Broadcast;
}

/* True if the rank's window lies in its part. */
static bool lies_in_part(const struct rt_cut *part, const struct rt_placement *window, int rank) {
    int64_t start, length = rt_placement_run(window, rank, 0, &start);
    const struct runs owned = joined(runs_of(part, 1, 1, rank));
    const int64_t run = owned.period && start >= owned.start ? (start - owned.start) / owned.period : 0;
    const int64_t first = owned.start + run * owned.period; /* of the last run that begins at or before the window */
    if (owned.turned) return length <= 0;                   /* from mirrored parts, redistribution exchanges windows */
    return length <= 0 || (start >= first && run < owned.count && start + length <= first + owned.length);
}

/* A Crop does not communicate: checks that the window of every rank lies in its part. */
static void check_crop(struct verifier *v, const struct tensor *from, const struct tensor *to, int axis) {
    const struct placement held = layout_along(&from->layout, axis), wanted = layout_along(&to->layout, axis);
    const int ways = v->graph->mesh.axis[axis].size;
    const struct rt_placement part = placement_among(from, &held, ways), window = placement_among(to, &wanted, ways);
    if (held.dim != wanted.dim) return fail(v, "crops '%s' in another dimension", from->name);
    if (!rt_cut_is_sound(&part.cut) || !parts_cover(&part.cut))
        return fail(v, "'%s' is split at a position where it cannot be split", from->name);
    for (int r = 0; r < window.cut.ways; r++)
        if (!lies_in_part(&part.cut, &window, r))
            return fail(v, "the window that rank %d of the axis crops from '%s' is not within its shard", r,
                        from->name);
}

static void check_move(struct verifier *v, const struct node *node) {
    const struct tensor *from = tensor_at(v, op_moved_input(node)), *to = tensor_at(v, node->outputs[0]);
    int mesh = (int)attr_int(node, "mesh", -1);
    if (mesh < 0 || mesh >= mesh_layout_axes(&v->graph->mesh)) return fail(v, "is not a collective along a mesh axis");
    const struct placement a = layout_along(&from->layout, mesh), b = layout_along(&to->layout, mesh);
    if (node->op->id == OP_Crop && moves_between(v, node->op, &a, &b)) check_crop(v, from, to, mesh);
    if (!placement_equal(&a, &b) && (placement_divides(&a) || placement_divides(&b)) &&
        (layout_flat_axes(&from->layout) || layout_flat_axes(&to->layout)))
        fail(v, "changes the part of '%s', of which the rank has a slice only", from->name);
    if (node->ninputs > 1 && !layout_equal(&tensor_at(v, node->inputs[0])->layout, &to->layout))
        fail(v, "adds to '%s', which is cut in another way", tensor_at(v, node->inputs[0])->name);
    struct layout others[2] = {from->layout, to->layout};
    for (int i = 0; i < 2; i++) layout_place(v->arena, &others[i], mesh, (struct placement){PLACED_WHOLE});
    if (!layout_equal(&others[0], &others[1])) fail(v, "changes the layout along another axis");
    if (layout_inner_axis(&from->layout, mesh) >= 0 || layout_inner_axis(&to->layout, mesh) >= 0)
        fail(v, "moves '%s' along %s, although another axis divides the parts there", from->name,
             v->graph->mesh.axis[mesh].name);
    if (!moves_between(v, node->op, &a, &b) || !names_its_part(node, &a, &b))
        fail(v, "does not convert the layout of '%s' into that of '%s'", from->name, to->name);
    if ((a.kind == PLACED_FLAT || b.kind == PLACED_FLAT) && layout_flat_axes(&from->layout) >> mesh >> 1)
        fail(v, "cuts or gathers '%s' flat along %s, although a later axis cuts what that leaves", from->name,
             v->graph->mesh.axis[mesh].name);
    if (a.kind == PLACED_PARTIAL && strcmp(attr_text(node, "reduce", ""), reduce_names[a.reduce]) != 0)
        fail(v, "reduces by another operation than the value needs");
}

/* True if the inner cut divides the parts of the outer one: of the same dimension, in the same blocks, at places where
 * the outer one could divide too. */
static bool cuts_nest(const struct placement *outer, const struct placement *inner) {
    return outer->kind == PLACED_PART && inner->kind == PLACED_PART && outer->blocks == inner->blocks &&
           outer->grain % inner->grain == 0;
}

static void check_layouts(struct verifier *v, const struct node *node) {
    for (int k = 0; k < node->noutputs; k++) {
        const struct tensor *out = tensor_at(v, node->outputs[k]);
        for (int c = 1; c < out->layout.ncuts; c++) {
            const struct placement *outer = &out->layout.cuts[c - 1].placement, *inner = &out->layout.cuts[c].placement;
            if (placement_divides(outer) && placement_divides(inner) && outer->dim == inner->dim &&
                !cuts_nest(outer, inner))
                fail(v, "two mesh axes split dimension %d of '%s', but the cuts do not nest", inner->dim, out->name);
        }
    }
}

/* Checks that the axis of ring attention, and no other, divides its positions, in one or two runs for each rank. */
static void check_ring(struct verifier *v, const struct dims *dims, const struct node *node) {
    const int positions = dims_find(dims, "t");
    bool alone = true;
    for (int axis = 0; axis < mesh_layout_axes(&v->graph->mesh); axis++) {
        const struct node_split *split = &node->split[axis];
        const bool own = axis == attr_int(node, "mesh", -1);
        alone = alone && (split->factor == positions) == own;
        if (own && split->blocks != 1 && split->blocks != -2) fail(v, "positions are divided in strides");
    }
    if (!alone) fail(v, "positions must be divided along its axis alone");
}

/* What a node's attributes, splits, types and layouts say of it; all of it is part of its kind (ALIKE in blocks.h). */
static void check_node(struct verifier *v, const struct node *node) {
    struct dims dims;
    if (!check_shapes(v, node, &dims) || v->graph->level < PLACED) return;
    check_layouts(v, node);
    if (crosses(node)) return check_crossing(v, node);
    if (v->graph->level >= STAGED) check_stage(v, node);
    if (node->op->kind == OP_COMM) return check_move(v, node);
    if (node->op->ring) check_ring(v, &dims, node);
    for (int axis = 0; axis < mesh_layout_axes(&v->graph->mesh); axis++)
        if (node->split[axis].factor >= 0)
            check_split(v, &dims, node, axis);
        else if (node->split[axis].factor == SPLIT_FLAT)
            check_flat(v, &dims, node, axis);
        else if (axis >= v->graph->mesh.naxes && node->split[axis].factor == SPLIT_NONE)
            check_replicas(v, node, axis);
        else
            check_unsplit(v, node, axis);
}

static bool is_begun_gather(const struct node *node) {
    return node->op->id == OP_AllGatherStart || (node->op->id == OP_AllGather && attr_int(node, "begun", 0));
}

static void note_features(struct verifier *v, const struct node *node) {
    v->any_packed = v->any_packed || attr_int(node, "packed", 0);
    v->any_runs = v->any_runs || attr_int(node, "runs", 1) > 1;
    v->any_gathers = v->any_gathers || is_begun_gather(node);
}

/* Checks the nodes. A node that is alike to one without an error has none: layers that repeat are checked once. */
static void check_nodes(struct verifier *v) {
    const struct graph *graph = v->graph;
    const int *kinds = node_kinds(graph, v->arena, ALIKE);
    bool *sound = ARENA_ARRAY(v->arena, bool, graph->order.n + 1); /* per kind */
    for (int i = 0; i < graph->order.n; i++) {
        const int before = v->diags->errors;
        if (sound[kinds[i]]) continue;
        v->node = graph->order.at[i];
        check_node(v, &graph->nodes.at[v->node]);
        note_features(v, &graph->nodes.at[v->node]);
        sound[kinds[i]] = v->diags->errors == before;
    }
}

/* Checks that a stage divides and moves tensors along axes that it has (Note [Unequal stages] in
 * runtime/base/shape/mesh.h). */
static void check_stage_has(struct verifier *v, const struct node *node, int stage, int tensor) {
    const struct mesh *mesh = &v->graph->mesh;
    const int home = schedule_home(v->graph, stage);
    for (int axis = 0; axis < mesh->naxes && stage != STAGE_ALL; axis++) {
        if (mesh_has(mesh, axis, home)) continue;
        if (node->op->kind == OP_COMM && attr_int(node, "mesh", -1) == axis)
            return fail(v, "communicates along %s, which pipeline stage %d does not have", mesh->axis[axis].name, home);
        if (kind_along(v, tensor, axis) != PLACED_WHOLE)
            return fail(v, "'%s' is divided along %s, which pipeline stage %d does not have",
                        tensor_at(v, tensor)->name, mesh->axis[axis].name, home);
    }
}

static void check_unequal_stages(struct verifier *v) {
    const struct graph *graph = v->graph;
    const int before = v->diags->errors;
    for (int i = 0; i < graph->order.n && graph->level >= STAGED && v->diags->errors == before; i++) {
        const struct node *node = &graph->nodes.at[v->node = graph->order.at[i]];
        const int reads = node->op->id == OP_Transfer ? (int)attr_int(node, "from", 0) : node->stage;
        for (int k = 0; k < node->ninputs + node->noutputs; k++)
            if (node_tensor(node, k) >= 0)
                check_stage_has(v, node, k < node->ninputs ? reads : node->stage, node_tensor(node, k));
    }
}

static bool all_packed(const struct graph *graph, const struct uses *uses, int tensor) {
    for (int u = uses->first[tensor]; u < uses->first[tensor + 1]; u++)
        if (!attr_int(&graph->nodes.at[uses->users[u]], "packed", 0)) return false;
    return true;
}

/* Checks that the operands that a node reads packed can be packed, and that all of their readers read them packed. */
static void check_packing(struct verifier *v) {
    bool *seen = ARENA_ARRAY(v->arena, bool, v->graph->tensors.n + 1);
    const struct uses uses = graph_uses(v->graph, v->arena);
    const bool *excluded = packing_excluded(v->graph, v->arena);
    for (int i = 0; i < v->graph->order.n; i++) {
        const struct node *node = &v->graph->nodes.at[v->node = v->graph->order.at[i]];
        bool any = false;
        if (!attr_int(node, "packed", 0)) continue;
        if (v->graph->level < STAGED) fail(v, "is packed before layouts are assigned");
        EACH_VALUE(node->inputs, node->ninputs, k, const int weight) {
            if (weight < 0 || packing_read(v->graph, node, k) == RT_PLAIN) continue;
            any = true;
            if (seen[weight]) continue; /* checked at its first reader */
            seen[weight] = true;
            if (packing_possible(v->graph, &uses, excluded, weight) == RT_PLAIN)
                fail(v, "reads packed panels of an operand that has none");
            else if (!all_packed(v->graph, &uses, weight))
                fail(v, "'%s' is read both packed and unpacked", tensor_at(v, weight)->name);
        }
        if (!any) fail(v, "reads packed panels of an operand that has none");
    }
}

/* Checks that ranks of the stage wait for the gathers along each axis in the order in which these start, each in the
 * phase in which it starts. gathers[]: the n nodes that start gathers or wait for them, in order. */
static void check_gathers_of(struct verifier *v, int stage, const int *gathers, int n) {
    const struct graph *graph = v->graph;
    VEC(int) started[RT_LAYOUT_AXES] = {{0}};
    int finished[RT_LAYOUT_AXES] = {0};
    for (int i = 0; i < n; i++) {
        const struct node *node = &graph->nodes.at[v->node = gathers[i]];
        const int axis = (int)attr_int(node, "mesh", 0);
        if (node->stage != stage && node->stage != STAGE_ALL) continue;
        if (node->op->id == OP_AllGatherStart) VEC_PUSH(v->arena, &started[axis], node->outputs[0]);
        if (node->op->id != OP_AllGather) continue;
        const int start = tensor_at(v, node->inputs[0])->producer, next = finished[axis]++;
        if (next >= started[axis].n || started[axis].at[next] != node->inputs[0])
            fail(v, "waits for a gather that is not the earliest that has started");
        else if (graph->nodes.at[start].phase != node->phase)
            fail(v, "waits for a gather of another phase");
    }
    for (int axis = 0; axis < RT_LAYOUT_AXES; axis++)
        if (finished[axis] < started[axis].n) fail(v, "a gather that starts is never waited for");
}

static void check_gathers(struct verifier *v) {
    const struct graph *graph = v->graph;
    const int before = v->diags->errors;
    VEC(int) gathers = {0};
    for (int i = 0; i < graph->order.n; i++)
        if (is_begun_gather(&graph->nodes.at[graph->order.at[i]])) VEC_PUSH(v->arena, &gathers, graph->order.at[i]);
    for (int stage = 0; stage < schedule_chunks(graph) && v->diags->errors == before; stage++)
        check_gathers_of(v, stage, gathers.at, gathers.n);
}

/* The collective that is made beside a product in runs of rows; NULL: none that is. */
static const struct node *beside_runs(const struct verifier *v, const struct uses *uses, const int *readers,
                                      const struct node *product) {
    const struct graph *graph = v->graph;
    const bool sums = attr_find(product, "sum_axis") != NULL;
    const int result = product->outputs[0], from = tensor_at(v, product->inputs[0])->producer;
    if (sums && (readers[result] != 1 || uses->first[result + 1] - uses->first[result] != 1)) return NULL;
    if (!sums && from < 0) return NULL;
    const struct node *move = &graph->nodes.at[sums ? uses->users[uses->first[result]] : from];
    const bool scatters = attr_find(product, "run_dim") != NULL;
    const enum op_id op = !sums ? OP_AllGather : scatters ? OP_ReduceScatter : OP_AllReduce;
    const bool begun = !sums || attr_int(move, "begun", 0) == 2;
    return move->op->id == op && begun && attr_int(move, "runs", 1) > 1 && move->phase == product->phase &&
                   move->stage == product->stage &&
                   attr_int(move, "mesh", -2) == attr_int(product, sums ? "sum_axis" : "gather_axis", -1)
               ? move
               : NULL;
}

/* Checks that each product in runs of rows has a collective beside it, and each of these a product; that nothing
 * reads what is gathered, and nothing communicates along its axis, before the product. */
static void check_runs(struct verifier *v) {
    const struct graph *graph = v->graph;
    const int *readers = graph_readers(graph, v->arena);
    int waits = 0, gathered[RT_LAYOUT_AXES];
    const struct uses uses = graph_uses(graph, v->arena);
    for (int axis = 0; axis < RT_LAYOUT_AXES; axis++) gathered[axis] = -1;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[v->node = graph->order.at[i]];
        const bool moves = node->op->kind == OP_COMM, runs = attr_int(node, "runs", 1) > 1;
        const int axis = (int)attr_int(node, "mesh", 0);
        if (moves && gathered[axis] >= 0) fail(v, "communicates beside a gather of a product's operand");
        waits -= moves && runs;
        for (int k = 0; k < node->ninputs; k++)
            for (int a = 0; a < graph->mesh.naxes; a++) {
                if (node->inputs[k] < 0 || gathered[a] != node->inputs[k]) continue;
                if (!runs || k || attr_int(node, "gather_axis", -1) != a)
                    fail(v, "'%s' is read before it is gathered", tensor_at(v, node->inputs[k])->name);
                gathered[a] = -1;
            }
        if (runs && node->op->id == OP_AllGather) gathered[axis] = node->outputs[0];
        if (moves || !runs) continue;
        if (!beside_runs(v, &uses, readers, node)) fail(v, "is computed in runs of rows, with no collective beside it");
        waits++;
    }
    if (waits) fail(v, "a collective waits for runs of rows that no product computes");
}

/* Note [Counted outputs] in ir.h. */
static void check_counted(struct verifier *v, const struct counted_output *counted) {
    const struct graph *graph = v->graph;
    const int n = graph->outputs.n - graph->nmetrics;
    if (counted->count < 0 || counted->count >= n || counted->output >= n || counted->count == counted->output ||
        graph_counted(graph, counted->count)) {
        fail(v, "the count of output %d is not another output", counted->output);
        return;
    }
    const struct tensor *out = tensor_at(v, graph->outputs.at[counted->output]),
                        *count = tensor_at(v, graph->outputs.at[counted->count]);
    if (counted->dim >= out->ndim) fail(v, "output '%s' has no dimension %d", out->name, counted->dim);
    if (count->dtype != RT_I64 || count->ndim) fail(v, "count '%s' is not an i64 without dimensions", count->name);
}

/* What `loss_elements` says of the outputs (struct graph). */
static void check_loss(struct verifier *v) {
    const struct graph *graph = v->graph;
    if (!graph->loss_elements) return;
    for (int i = 0; i < 2 && i < graph->outputs.n - graph->nmetrics; i++)
        if (tensor_at(v, graph->outputs.at[i])->ndim) fail(v, "output %d of a mean over labels has dimensions", i);
    if (graph->outputs.n - graph->nmetrics < 2) fail(v, "a mean over labels has no output with their weights");
}

static void check_ends(struct verifier *v) {
    v->node = -1;
    check_loss(v);
    for (int i = 0; i < v->graph->counted.n; i++) check_counted(v, &v->graph->counted.at[i]);
    for (int i = 0; i < v->graph->outputs.n; i++) {
        const struct tensor *out = tensor_at(v, v->graph->outputs.at[i]);
        if (!v->written[v->graph->outputs.at[i]]) fail(v, "output '%s' is never written", out->name);
        for (int axis = 0; axis < mesh_layout_axes(&v->graph->mesh) && v->graph->level >= COMMUNICATING; axis++)
            if (kind_along(v, v->graph->outputs.at[i], axis) != PLACED_WHOLE &&
                kind_along(v, v->graph->outputs.at[i], axis) != PLACED_OWN)
                fail(v, "output '%s' is not complete", out->name);
    }
    for (int i = 0; i < v->graph->updates.n && v->graph->level >= COMMUNICATING; i++)
        if (!layout_equal(&tensor_at(v, v->graph->updates.at[i].weight)->layout,
                          &tensor_at(v, v->graph->updates.at[i].value)->layout))
            fail(v, "the update of '%s' has another layout", tensor_at(v, v->graph->updates.at[i].weight)->name);
}

int verify_graph(struct graph *graph, struct diags *diags) {
    struct verifier v = {.graph = graph, .arena = arena_scratch(graph->arena), .diags = diags};
    int before = diags->errors;
    v.written = ARENA_ARRAY(v.arena, bool, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) v.written[t] = graph->tensors.at[t].kind != TENSOR_VALUE;
    bool sound = true;
    for (int i = 0; i < graph->order.n; i++) {
        v.node = graph->order.at[i];
        sound = check_ids(&v, &graph->nodes.at[v.node]) && sound;
    }
    if (sound) check_nodes(&v);
    check_ends(&v);
    if (diags->errors == before && !mesh_is_even(&graph->mesh)) check_unequal_stages(&v);
    if (diags->errors == before && v.any_packed) check_packing(&v);
    if (diags->errors == before && v.any_gathers && graph->level >= STAGED) check_gathers(&v);
    if (diags->errors == before && v.any_runs && graph->level >= STAGED) check_runs(&v);
    arena_release(graph->arena, v.arena);
    if (diags->errors == before && schedule_verify(graph, diags) == 0) timeline_verify(graph, diags);
    return diags->errors == before ? 0 : -1;
}
