#include "runs.h"

#include "part.h"

struct rt_region rt_region_whole(const int64_t *dims, int ndim) {
    struct rt_region region = {.ndim = ndim};
    for (int d = 0; d < ndim; d++) region.dim[d] = (struct rt_runs){1, dims[d], 0, 0, dims[d]};
    return region;
}

int64_t rt_region_extent(const struct rt_region *region, int dim) {
    return region->dim[dim].blocks * region->dim[dim].length;
}

bool rt_region_cut(struct rt_region *region, const struct rt_region_cut *cut) {
    if (cut->dim < 0 || cut->dim >= region->ndim || cut->blocks == INT64_MIN || cut->parts < 1 ||
        cut->parts > INT32_MAX || cut->part < 0 || cut->part >= cut->parts)
        return false;
    struct rt_runs *runs = &region->dim[cut->dim];
    const int64_t extent = runs->blocks * runs->length;
    const bool whole = runs->blocks == 1 && runs->length == runs->block;
    const int64_t blocks = rt_blocks(cut->blocks);
    const struct rt_cut rule = {extent, cut->blocks, cut->grain, (int)cut->parts};
    const int part = (int)cut->part;
    if (!rt_cut_is_sound(&rule) || (!whole && blocks != runs->blocks)) return false;
    *runs =
        (struct rt_runs){blocks, whole ? extent / blocks : runs->block, runs->start + rt_cut_start_in(&rule, part, 0),
                         runs->turned + rt_cut_start_in(&rule, part, 1), rt_cut_length(&rule, part)};
    return true;
}

static int64_t start_of(const struct rt_runs *runs, int64_t run) {
    return run * runs->block + (run % 2 ? runs->turned : runs->start);
}

static bool next_common(struct rt_overlap *walk, const struct rt_runs *a, const struct rt_runs *b) {
    while (walk->a_run < a->blocks && walk->b_run < b->blocks)
        if (rt_overlap_step(walk, start_of(a, walk->a_run), a->length, start_of(b, walk->b_run), b->length))
            return true;
    return false;
}

static bool is_equal(const struct rt_runs *a, const struct rt_runs *b) {
    return a->blocks == b->blocks && a->block == b->block && a->start == b->start && a->turned == b->turned &&
           a->length == b->length;
}

struct walk {
    const struct rt_region *a, *b;
    const struct rt_region_visitor *visitor;
    struct rt_reason *why;
    int last;     /* the last dimension in which the regions differ; -1: none */
    int64_t tail; /* elements of the dimensions behind it */
};

/* `from`, `to`: the rows of dimensions before `dim` in each region. */
static bool visit_dimension(const struct walk *walk, int dim, int64_t from, int64_t to) {
    const struct rt_runs *a = &walk->a->dim[dim], *b = &walk->b->dim[dim];
    struct rt_overlap common = {0};
    while (next_common(&common, a, b)) {
        const int64_t first = from * a->blocks * a->length + common.a_place,
                      second = to * b->blocks * b->length + common.b_place;
        for (int64_t i = 0; dim < walk->last && i < common.length; i++)
            if (!visit_dimension(walk, dim + 1, first + i, second + i)) return false;
        if (dim == walk->last && !walk->visitor->visit(walk->visitor->context, first * walk->tail, second * walk->tail,
                                                       common.length * walk->tail, walk->why))
            return false;
    }
    return true;
}

static bool is_empty(const struct rt_region *region) {
    for (int d = 0; d < region->ndim; d++)
        if (rt_region_extent(region, d) == 0) return true;
    return false;
}

bool rt_region_common(const struct rt_region *a, const struct rt_region *b, const struct rt_region_visitor *visitor,
                      struct rt_reason *why) {
    struct walk walk = {.a = a, .b = b, .visitor = visitor, .why = why, .last = a->ndim - 1, .tail = 1};
    if (is_empty(a) || is_empty(b)) return true;
    for (; walk.last >= 0 && is_equal(&a->dim[walk.last], &b->dim[walk.last]); walk.last--)
        walk.tail *= rt_region_extent(a, walk.last);
    if (walk.last >= 0) return visit_dimension(&walk, 0, 0, 0);
    return visitor->visit(visitor->context, 0, 0, walk.tail, why);
}
