/* Redistribution of a tensor along one mesh axis: the layouts of rt.h on top of the collectives of comm.h.
 *
 * A part is stored as (outer, blocks, length, inner); the collectives move whole parts one after the other. Where
 * outer and blocks are 1 that is the tensor itself; otherwise parts are packed or unpacked through `scratch`. */
#include "core/private.h"

#include <string.h>

/* A tensor seen as (outer, cut.extent, inner), the middle dimension being the one that is cut. */
struct view {
    struct rt_cut cut;
    int64_t outer;
    size_t row; /* bytes of the `inner` elements at one index of the cut dimension */
};

static struct view view_of(const struct rt *rt, int axis, enum rt_dtype dtype, int64_t outer, int64_t extent,
                           int64_t inner, int64_t blocks, int64_t grain) {
    return (struct view){rt_cut_along(rt, axis, extent, blocks, grain), outer, (size_t)inner * rt_dtype_bytes(dtype)};
}

struct rt_cut rt_cut_along(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t grain) {
    return (struct rt_cut){extent, blocks, grain, rt->program->mesh.axis[axis].size};
}

int64_t rt_part_start(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t grain) {
    struct rt_cut cut = rt_cut_along(rt, axis, extent, blocks, grain);
    return rt_cut_start(&cut, rt->coordinate[axis]);
}

int64_t rt_part_turn(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t grain) {
    const struct rt_cut cut = rt_cut_along(rt, axis, extent, blocks, grain);
    return rt_cut_start_in(&cut, rt->coordinate[axis], 1) - rt_cut_start_in(&cut, rt->coordinate[axis], 0);
}

int64_t rt_window_before(const struct rt *rt, int axis, const struct rt_placement *window) {
    return rt_placement_before(window, rt->coordinate[axis]);
}

int64_t rt_window_behind(const struct rt *rt, int axis, const struct rt_placement *window, int64_t behind) {
    return rt_placement_behind(window, rt->coordinate[axis], behind);
}

static size_t part_bytes(const struct view *view, int index) {
    return (size_t)view->outer * (size_t)rt_cut_extent(&view->cut, index) * view->row;
}

static int copy_rows(struct rt *rt, const struct rt_copies *rows) {
    return rows->bytes ? rt->program->device->copy(rt, rows) : RT_OK;
}

int rt_copy_bytes(struct rt *rt, void *dst, const void *src, size_t bytes) {
    const struct rt_copies rows = {.to = dst, .from = src, .bytes = bytes, .count = {1, 1, 1}};
    return dst == src ? RT_OK : copy_rows(rt, &rows);
}

/* Copies the part of rank `index` out of the complete tensor (PACK) or into it (UNPACK). The part is stored without
 * gaps; in the complete tensor it has a run of rows in each block of the cut dimension. */
enum direction { PACK, UNPACK };

/* The runs of blocks first, first + step, .. */
static int copy_runs(struct rt *rt, const struct view *view, int index, enum direction direction, void *to,
                     const void *from, int64_t first, int64_t step) {
    const int64_t row = (int64_t)view->row, blocks = rt_blocks(view->cut.blocks),
                  block = view->cut.extent / blocks * row, length = rt_cut_length(&view->cut, index) * row;
    const int64_t in_part = first * length, in_whole = first * block + rt_cut_start_in(&view->cut, index, first) * row;
    const int64_t part_stride[3] = {0, blocks * length, step * length},
                  whole_stride[3] = {0, blocks * block, step * block};
    struct rt_copies rows = {.bytes = (size_t)length, .count = {1, view->outer, blocks / step}};
    rows.to = (unsigned char *)to + (direction == PACK ? in_part : in_whole);
    rows.from = (const unsigned char *)from + (direction == PACK ? in_whole : in_part);
    memcpy(rows.to_stride, direction == PACK ? part_stride : whole_stride, sizeof part_stride);
    memcpy(rows.from_stride, direction == PACK ? whole_stride : part_stride, sizeof part_stride);
    return copy_rows(rt, &rows);
}

static int copy_part(struct rt *rt, const struct view *view, int index, enum direction direction, void *to,
                     const void *from) {
    if (view->cut.blocks > 0) return copy_runs(rt, view, index, direction, to, from, 0, 1);
    RT_TRY(copy_runs(rt, view, index, direction, to, from, 0, 2));
    return copy_runs(rt, view, index, direction, to, from, 1, 2);
}

static bool parts_are_the_tensor(const struct view *view) {
    return view->cut.blocks == 1 && (view->outer == 1 || view->cut.ways == 1);
}

int rt_end_collective(struct rt *rt, const struct rt_comm *comm, int status) {
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

int rt_reduce_scatter(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                      int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t grain,
                      enum rt_reduce reduce, int begun) {
    const struct view view = view_of(rt, axis, dtype, outer, extent, inner, blocks, grain);
    struct rt_comm *comm = rt->axis[axis];
    const bool direct = parts_are_the_tensor(&view);
    size_t *counts = rt->internal->counts;
    unsigned char *part = scratch;
    if (begun && rt_runs_beside(rt, comm)) {
        RT_TRY(rt_finish_sums(rt, comm));
        return copy_part(rt, &view, comm->rank, PACK, dst, src);
    }
    for (int r = 0; r < comm->size; r++) {
        const size_t bytes = part_bytes(&view, r);
        if (!direct) RT_TRY(copy_part(rt, &view, r, PACK, part, src));
        part += direct ? 0 : bytes;
        counts[r] = bytes / rt_dtype_bytes(dtype);
    }
    return rt_end_collective(
        rt, comm, comm->driver->reduce_scatter(comm, dst, direct ? src : scratch, counts, dtype, reduce, false));
}

/* Note [Runs of rows]
 * Ranks have equal parts of the divided dimension, in one block each. If there are several items outside of it, a run
 * is an item, of which every rank has a part: one group. Else a run is the parts of a group of ranks whose numbers are
 * adjacent. Either lies in one piece in the complete tensor. */

static bool is_in_group(const struct rt_comm *comm, int rank, int group, int groups) {
    return rank / (comm->size / groups) == group;
}

int rt_reduce_run(struct rt *rt, int axis, void *data, enum rt_dtype dtype, int64_t count, int group, int groups) {
    struct rt_comm *comm = rt->axis[axis];
    size_t *counts = rt->internal->counts;
    if (!rt_runs_beside(rt, comm)) return RT_OK;
    counts[0] = (size_t)count;
    for (int r = 0; r < comm->size && groups; r++)
        counts[r] = is_in_group(comm, r, group, groups) ? (size_t)count / (size_t)(comm->size / groups) : 0;
    return rt_begin_collective(rt, comm,
                               &(struct rt_collective){groups ? RT_SCATTER : RT_SUM_WHOLE, dtype, data, NULL, counts});
}

/* Begins the gathers of rt_all_gather. */
static int gather_runs(struct rt *rt, const struct view *view, struct rt_comm *comm, void *dst, const void *src,
                       int groups) {
    const size_t part = part_bytes(view, comm->rank) / (size_t)view->outer; /* of an item */
    size_t *bytes = rt->internal->counts;
    struct rt_collective what = {.kind = RT_GATHER, .dst = dst, .counts = bytes};
    /* its own part first: src may be written before the gathers end */
    RT_TRY(copy_part(rt, view, comm->rank, UNPACK, dst, src));
    for (int64_t run = 0; run < view->outer * groups; run++) {
        size_t before = 0, all = 0;
        for (int r = 0; r < comm->size; all += bytes[r++]) {
            bytes[r] = is_in_group(comm, r, (int)(run % groups), groups) ? part : 0;
            if (r == comm->rank) before = all;
        }
        what.src = (unsigned char *)what.dst + before;
        RT_TRY(rt_begin_collective(rt, comm, &what));
        what.dst = (unsigned char *)what.dst + all;
    }
    return RT_OK;
}

int rt_all_gather(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                  int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t grain, int groups) {
    const struct view view = view_of(rt, axis, dtype, outer, extent, inner, blocks, grain);
    struct rt_comm *comm = rt->axis[axis];
    const bool direct = parts_are_the_tensor(&view);
    size_t *bytes = rt->internal->counts;
    if (groups && rt_runs_beside(rt, comm)) return gather_runs(rt, &view, comm, dst, src, groups);
    for (int r = 0; r < comm->size; r++) bytes[r] = part_bytes(&view, r);
    int status = comm->driver->all_gather(comm, direct ? dst : scratch, src, bytes);
    const unsigned char *part = scratch;
    RT_TRY(rt_end_collective(rt, comm, status));
    for (int r = 0; r < comm->size && !direct; part += bytes[r], r++)
        RT_TRY(copy_part(rt, &view, r, UNPACK, dst, part));
    return RT_OK;
}

int rt_all_gather_run(struct rt *rt, int axis) {
    struct rt_comm *comm = rt->axis[axis];
    return rt_runs_beside(rt, comm) ? rt_end_collective(rt, comm, comm->driver->finish(comm, RT_GATHER)) : RT_OK;
}

int rt_send(struct rt *rt, int axis, const void *src, int64_t bytes, int distance) {
    struct rt_comm *comm = rt->axis[axis];
    const int stage = rt->coordinate[axis] + distance;
    int status = RT_OK;
    for (int peer = -1; !status && (peer = rt_next_peer(rt, stage, true, peer)) >= 0;)
        status = comm->driver->send(comm, src, (size_t)bytes, peer);
    return rt_end_collective(rt, comm, status);
}

int rt_receive(struct rt *rt, int axis, void *dst, int64_t bytes, int distance) {
    struct rt_comm *comm = rt->axis[axis];
    const int peer = rt_next_peer(rt, rt->coordinate[axis] + distance, false, -1);
    return rt_end_collective(rt, comm, comm->driver->receive(comm, dst, (size_t)bytes, peer));
}

int rt_broadcast(struct rt *rt, int axis, void *dst, const void *src, int64_t bytes, int root) {
    struct rt_comm *comm = rt->axis[axis];
    const int first = rt_first_member(rt, root);
    if (comm->rank == first) RT_TRY(rt_copy_bytes(rt, dst, src, (size_t)bytes));
    return rt_end_collective(rt, comm, comm->driver->broadcast(comm, dst, (size_t)bytes, first));
}
