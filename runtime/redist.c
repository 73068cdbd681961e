/* Redistribution of a tensor along one mesh axis: the layouts of rt.h on top of the collectives of comm.h.
 *
 * A part is stored as (outer, blocks, length, inner); the collectives move whole parts one after the other. Where
 * outer and blocks are 1 that is the tensor itself; otherwise parts are packed or unpacked through `scratch`. */
#include "private.h"

#include <string.h>

/* A tensor seen around the dimension that is cut. */
struct view {
    struct rt_cut cut;
    int64_t outer;
    size_t row; /* bytes of one index of the dimension: inner elements */
};

static struct view view_of(const struct rt *rt, int axis, enum rt_dtype dtype, int64_t outer, int64_t extent,
                           int64_t inner, int64_t blocks, int64_t unit) {
    return (struct view){rt_cut_along(rt, axis, extent, blocks, unit), outer,
                         (size_t)inner * rt_dtype_bytes(dtype)};
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

/* Copies the part of rank `index` between the complete tensor `whole` and the dense `part`. */
static void copy_part(const struct view *view, int index, unsigned char *whole, unsigned char *part,
                      bool out_of_whole) {
    const int64_t block = view->cut.extent / view->cut.blocks, start = rt_cut_start(&view->cut, index);
    const size_t bytes = (size_t)rt_cut_length(&view->cut, index) * view->row;
    for (int64_t o = 0; o < view->outer && bytes > 0; o++)
        for (int64_t b = 0; b < view->cut.blocks; b++, part += bytes) {
            unsigned char *at = whole + (size_t)(o * view->cut.extent + b * block + start) * view->row;
            if (out_of_whole)
                memcpy(part, at, bytes);
            else
                memcpy(at, part, bytes);
        }
}

static void pack_part(const struct view *view, int index, void *part, const void *whole) {
    copy_part(view, index, (unsigned char *)(uintptr_t)whole, part, true);
}

static void unpack_part(const struct view *view, int index, void *whole, const void *part) {
    copy_part(view, index, whole, (unsigned char *)(uintptr_t)part, false);
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
    size_t *bytes = rt->private->counts;
    for (int r = 0; r < comm->size; r++) bytes[r] = part_bytes(&view, r);
    int status = comm->driver->all_gather(comm, direct ? dst : scratch, src, bytes);
    const unsigned char *part = scratch;
    for (int r = 0; r < comm->size && !direct && !status; part += bytes[r], r++) unpack_part(&view, r, dst, part);
    return rt_leave_site(rt, comm, status);
}

int rt_reduce_scatter(struct rt *rt, int site, int axis, void *dst, const void *src, void *scratch,
                      enum rt_dtype dtype, int64_t outer, int64_t extent, int64_t inner, int64_t blocks,
                      int64_t unit, enum rt_reduce reduce) {
    const struct view view = view_of(rt, axis, dtype, outer, extent, inner, blocks, unit);
    struct rt_comm *comm = rt_enter_site(rt, site, axis);
    const bool direct = parts_are_the_tensor(&view);
    size_t *counts = rt->private->counts;
    unsigned char *part = scratch;
    for (int r = 0; r < comm->size; r++) {
        const size_t bytes = part_bytes(&view, r);
        if (!direct) pack_part(&view, r, part, src);
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
    if (comm->rank == root) memcpy(dst, src, (size_t)bytes);
    return rt_leave_site(rt, comm, comm->driver->broadcast(comm, dst, (size_t)bytes, root));
}
