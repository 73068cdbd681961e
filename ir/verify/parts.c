#include "ir/verify/verifier.h"

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
        return verify_fail(v, "a shard of '%s' is empty or does not begin where the previous one ends", name);
    for (int r = 0; r < by_factor->ways; r++)
        if (!owns_alike(by_factor, by_layout, before, after, r))
            return verify_fail(v, "rank %d of the axis holds other indices than its part of '%s' has", r, name);
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

void verify_window(struct verifier *v, const struct factor *halo, const struct tensor *tensor, int axis, int dim,
                   const struct rt_cut *by_factor) {
    const struct placement held = layout_along(&tensor->layout, axis);
    if (held.kind != PLACED_WINDOW || held.dim != dim)
        return verify_fail(v, "'%s' is not held in windows of dimension %d", tensor->name, dim);
    const struct rt_placement window = placement_among(tensor, &held, v->graph->mesh.axis[axis].size);
    if (!rt_cut_is_sound(&window.cut) || window.cut.blocks != 1 || by_factor->blocks != 1 || !parts_cover(by_factor))
        return verify_fail(v, "'%s' is split at a position where it cannot be split", tensor->name);
    for (int rank = 0; rank < by_factor->ways; rank++)
        if (!window_serves(&halo->reach, halo->extent, &window, by_factor, rank))
            return verify_fail(
                v, "positions of rank %d of the axis read indices that its window of '%s' does not contain there", rank,
                tensor->name);
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
        return verify_fail(v, "'%s' is split at a position where it cannot be split", dims->factor[split->factor].name);
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

void verify_parts(struct verifier *v, const struct dims *dims, const struct node *node, int o,
                  const struct tensor *tensor, int factor, int dim) {
    struct nest nest;
    if (!find_nest(v, node, &tensor->layout, factor, dim, &nest))
        return verify_fail(v, "'%s' is not split in dimension %d", tensor->name, dim);
    check_nest(v, dims, &dims->operand[o].dim[dim], &nest, 0, dims->factor[factor].extent, tensor->dims[dim]);
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

void verify_crop(struct verifier *v, const struct tensor *from, const struct tensor *to, int axis) {
    const struct placement held = layout_along(&from->layout, axis), wanted = layout_along(&to->layout, axis);
    const int ways = v->graph->mesh.axis[axis].size;
    const struct rt_placement part = placement_among(from, &held, ways), window = placement_among(to, &wanted, ways);
    if (held.dim != wanted.dim) return verify_fail(v, "crops '%s' in another dimension", from->name);
    if (!rt_cut_is_sound(&part.cut) || !parts_cover(&part.cut))
        return verify_fail(v, "'%s' is split at a position where it cannot be split", from->name);
    for (int r = 0; r < window.cut.ways; r++)
        if (!lies_in_part(&part.cut, &window, r))
            return verify_fail(v, "the window that rank %d of the axis crops from '%s' is not within its shard", r,
                               from->name);
}
