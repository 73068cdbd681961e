/* Redistribution of a tensor along one mesh axis: the layouts of rt.h on top of the collectives of comm.h.
 *
 * A part is stored as (outer, blocks, length, inner); the collectives move whole parts one after the other. Where
 * outer and blocks are 1 that is the tensor itself; otherwise parts are packed or unpacked through `scratch`. */
#include "core/private.h"

/* A tensor seen around the dimension that is cut. */
struct view {
    struct rt_cut cut;
    int64_t outer;
    size_t row; /* bytes of one index of the dimension: inner elements */
};

static struct view view_of(const struct rt *rt, int axis, enum rt_dtype dtype, int64_t outer, int64_t extent,
                           int64_t inner, int64_t blocks, int64_t unit) {
    return (struct view){rt_cut_along(rt, axis, extent, blocks, unit), outer, (size_t)inner * rt_dtype_bytes(dtype)};
}

struct rt_cut rt_cut_along(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t unit) {
    return (struct rt_cut){extent, blocks, unit, rt->program->mesh[axis]};
}

int64_t rt_part_start(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t unit) {
    struct rt_cut cut = rt_cut_along(rt, axis, extent, blocks, unit);
    return rt_cut_start(&cut, rt->coordinate[axis]);
}

int64_t rt_window_before(const struct rt *rt, int axis, const struct rt_holding *window) {
    return rt_holding_before(window, rt->coordinate[axis]);
}

int64_t rt_window_behind(const struct rt *rt, int axis, const struct rt_holding *window, int64_t behind) {
    return rt_holding_behind(window, rt->coordinate[axis], behind);
}

static size_t part_bytes(const struct view *view, int index) {
    return (size_t)view->outer * (size_t)rt_cut_extent(&view->cut, index) * view->row;
}

/* Where the part of rank `index` begins in the complete tensor, and how its blocks lie there; `strides` are also those
 * of the dense part. */
static size_t find_part(const struct view *view, int index, struct rt_copies *rows, int64_t whole[3], int64_t part[3]) {
    const int64_t row = (int64_t)view->row, length = rt_cut_length(&view->cut, index) * row,
                  block = view->cut.extent / view->cut.blocks * row;
    *rows = (struct rt_copies){.bytes = (size_t)length, .count = {1, view->outer, view->cut.blocks}};
    whole[0] = part[0] = 0;
    whole[1] = view->cut.extent * row, whole[2] = block;
    part[1] = view->cut.blocks * length, part[2] = length;
    return (size_t)(rt_cut_start(&view->cut, index) * row);
}

static int copy_rows(struct rt *rt, const struct rt_copies *rows) {
    return rows->bytes ? rt->program->device->copy(rt, rows) : RT_OK;
}

int rt_copy_bytes(struct rt *rt, void *dst, const void *src, size_t bytes) {
    const struct rt_copies rows = {.to = dst, .from = src, .bytes = bytes, .count = {1, 1, 1}};
    return dst == src ? RT_OK : copy_rows(rt, &rows);
}

static int pack_part(struct rt *rt, const struct view *view, int index, void *part, const void *whole) {
    struct rt_copies rows;
    size_t start = find_part(view, index, &rows, rows.from_stride, rows.to_stride);
    rows.to = part;
    rows.from = (const unsigned char *)whole + start;
    return copy_rows(rt, &rows);
}

static int unpack_part(struct rt *rt, const struct view *view, int index, void *whole, const void *part) {
    struct rt_copies rows;
    size_t start = find_part(view, index, &rows, rows.to_stride, rows.from_stride);
    rows.to = (unsigned char *)whole + start;
    rows.from = part;
    return copy_rows(rt, &rows);
}

static bool parts_are_the_tensor(const struct view *view) {
    return view->cut.blocks == 1 && (view->outer == 1 || view->cut.ways == 1);
}

struct rt_comm *rt_enter_site(struct rt *rt, int site, int axis) {
    rt_at(rt, site);
    return rt->axis[axis];
}

int rt_leave_site(struct rt *rt, const struct rt_comm *comm, int status) {
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

int rt_all_gather(struct rt *rt, int site, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                  int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t unit) {
    const struct view view = view_of(rt, axis, dtype, outer, extent, inner, blocks, unit);
    struct rt_comm *comm = rt_enter_site(rt, site, axis);
    const bool direct = parts_are_the_tensor(&view);
    size_t *bytes = rt->internal->counts;
    for (int r = 0; r < comm->size; r++) bytes[r] = part_bytes(&view, r);
    int status = comm->driver->all_gather(comm, direct ? dst : scratch, src, bytes);
    const unsigned char *part = scratch;
    RT_TRY(rt_leave_site(rt, comm, status));
    for (int r = 0; r < comm->size && !direct; part += bytes[r], r++) RT_TRY(unpack_part(rt, &view, r, dst, part));
    return RT_OK;
}

int rt_reduce_scatter(struct rt *rt, int site, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                      int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t unit,
                      enum rt_reduce reduce) {
    const struct view view = view_of(rt, axis, dtype, outer, extent, inner, blocks, unit);
    struct rt_comm *comm = rt_enter_site(rt, site, axis);
    const bool direct = parts_are_the_tensor(&view);
    size_t *counts = rt->internal->counts;
    unsigned char *part = scratch;
    for (int r = 0; r < comm->size; r++) {
        const size_t bytes = part_bytes(&view, r);
        if (!direct) RT_TRY(pack_part(rt, &view, r, part, src));
        part += direct ? 0 : bytes;
        counts[r] = bytes / rt_dtype_bytes(dtype);
    }
    return rt_leave_site(rt, comm,
                         comm->driver->reduce_scatter(comm, dst, direct ? src : scratch, counts, dtype, reduce));
}

int rt_send(struct rt *rt, int site, int axis, const void *src, int64_t bytes, int distance) {
    struct rt_comm *comm = rt_enter_site(rt, site, axis);
    return rt_leave_site(rt, comm, comm->driver->send(comm, src, (size_t)bytes, comm->rank + distance));
}

int rt_receive(struct rt *rt, int site, int axis, void *dst, int64_t bytes, int distance) {
    struct rt_comm *comm = rt_enter_site(rt, site, axis);
    return rt_leave_site(rt, comm, comm->driver->receive(comm, dst, (size_t)bytes, comm->rank + distance));
}

int rt_broadcast(struct rt *rt, int site, int axis, void *dst, const void *src, int64_t bytes, int root) {
    struct rt_comm *comm = rt_enter_site(rt, site, axis);
    if (comm->rank == root) RT_TRY(rt_copy_bytes(rt, dst, src, (size_t)bytes));
    return rt_leave_site(rt, comm, comm->driver->broadcast(comm, dst, (size_t)bytes, root));
}
