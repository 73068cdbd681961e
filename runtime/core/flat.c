/* Flat cuts at run time (Note [Flat cuts] in base/shape/flat.h): the rank's slices, and collectives that gather and
 * scatter them. */
#include "core/private.h"

#include <stdlib.h>

int64_t rt_flat_start(const struct rt *rt, unsigned axes, int64_t elements) {
    return rt_flat_slice(axes, elements, rt->ways, rt->coordinate).start;
}

int64_t rt_flat_count(const struct rt *rt, unsigned axes, int64_t elements) {
    return rt_flat_slice(axes, elements, rt->ways, rt->coordinate).count;
}

int rt_flat_open(struct rt *rt) {
    const struct rt_rank_class *class = rt->rank_class;
    int64_t *offsets = calloc((size_t) class->nflats + 1, sizeof *offsets);
    rt->slice = calloc((size_t) class->nflats + 1, sizeof *rt->slice);
    rt->internal->flat_at = offsets;
    if (!offsets || !rt->slice) return rt_fail_memory(rt);
    for (int a = 0; a < RT_ARENAS; a++) rt->internal->bytes[a] = (int64_t) class->bytes[a];
    rt_flat_place(class->flats, class->nflats, rt->ways, rt->internal->bytes, offsets);
    return RT_OK;
}

void rt_flat_find(struct rt *rt) {
    for (int i = 0; i < rt->rank_class->nflats; i++)
        rt->slice[i] = rt->arena[rt->rank_class->flats[i].arena] + rt->internal->flat_at[i];
}

struct rt_stored rt_stored_part(const struct rt *rt, enum rt_arena arena, size_t place, unsigned slices,
                                int64_t elements) {
    if (!slices) return (struct rt_stored){arena, place, 0, elements};
    const struct rt_rank_class *class = rt->rank_class;
    const struct rt_flat *flat = place < (size_t) class->nflats ? &class->flats[place] : NULL;
    if (!flat || flat->axes != slices || flat->elements != elements) return (struct rt_stored){arena, 0, 0, -1};
    const struct rt_flat_slice slice = rt_flat_slice(slices, elements, rt->ways, rt->coordinate);
    return (struct rt_stored){flat->arena, (size_t)rt->internal->flat_at[place], slice.start, slice.count};
}

/* Elements of every rank along `axis`, of the slice of `elements` that the axes in `outer` have cut already. */
static void count_elements(struct rt *rt, int axis, int64_t elements, unsigned outer, size_t *counts) {
    int coordinate[RT_LAYOUT_AXES];
    for (int a = 0; a < RT_LAYOUT_AXES; a++) coordinate[a] = rt->coordinate[a];
    for (int r = 0; r < rt->axis[axis]->size; r++) {
        coordinate[axis] = r;
        counts[r] = (size_t)rt_flat_slice(outer | 1u << axis, elements, rt->ways, coordinate).count;
    }
}

int rt_complete_part(struct rt *rt, void *part, enum rt_dtype dtype, int64_t elements, unsigned axes) {
    const size_t size = rt_dtype_bytes(dtype);
    unsigned char *bytes = part;
    for (int a = rt_layout_axes(rt) - 1; a >= 0; a--) {
        if (!(axes >> a & 1u)) continue;
        struct rt_comm *comm = rt->internal->split[a];
        const unsigned inner = axes & (((2u << a) - 1) | RT_FLAT_KINDS), outer = inner & ~(1u << a);
        size_t *counts = rt->internal->counts;
        count_elements(rt, a, elements, outer, counts);
        for (int r = 0; r < comm->size; r++) counts[r] *= size;
        const int status = comm->driver->all_gather(comm, bytes + (size_t)rt_flat_start(rt, outer, elements) * size,
                                                    bytes + (size_t)rt_flat_start(rt, inner, elements) * size, counts);
        if (status) return rt_fail_comm(rt, comm, status);
    }
    return RT_OK;
}

/* Bytes of every rank along `axis`. */
static const size_t *count_bytes(struct rt *rt, int axis, enum rt_dtype dtype, int64_t elements, unsigned outer) {
    size_t *bytes = rt->internal->counts;
    count_elements(rt, axis, elements, outer, bytes);
    for (int r = 0; r < rt->axis[axis]->size; r++) bytes[r] *= rt_dtype_bytes(dtype);
    return bytes;
}

int rt_start(struct rt *rt, enum rt_early kind, int axis, void *dst, const void *src, enum rt_dtype dtype,
             int64_t elements, unsigned outer) {
    struct rt_comm *comm = rt->axis[axis];
    struct rt_collective what = {kind, dtype, dst, src, rt->internal->counts};
    const int64_t count = rt_flat_count(rt, outer, elements);
    const bool early = rt_begins_early(rt, axis, kind);
    if (kind == RT_GATHER) {
        const size_t *bytes = count_bytes(rt, axis, dtype, elements, outer);
        if (!early) return rt_copy_bytes(rt, dst, src, bytes[comm->rank]);
        for (int r = 0; r < comm->rank; r++) what.dst = (unsigned char *)what.dst - bytes[r];
        return rt_begin_collective(rt, comm, &what);
    }
    RT_TRY(rt_take_gradient(rt, axis, dst, src, dtype, count));
    if (!rt->internal->last || !early) return RT_OK;
    if (kind == RT_SUM_WHOLE) return rt_put_in_bucket(rt, comm, dst, dtype, count);
    count_elements(rt, axis, elements, outer, rt->internal->counts);
    return rt_begin_collective(rt, comm, &what);
}

int rt_all_gather_flat(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t elements,
                       unsigned outer, int begun) {
    struct rt_comm *comm = rt->axis[axis];
    if (begun && rt_begins_early(rt, axis, RT_GATHER))
        return rt_end_collective(rt, comm, comm->driver->finish(comm, RT_GATHER));
    const size_t *bytes = count_bytes(rt, axis, dtype, elements, outer);
    return rt_end_collective(rt, comm, comm->driver->all_gather(comm, dst, src, bytes));
}

/* Makes the gradient of a dummy micro-batch zero, and counts the elements that each rank along the axis gets. */
static int prepare(struct rt *rt, int axis, void *src, enum rt_dtype dtype, int64_t elements, unsigned outer,
                   int each_micro_batch) {
    const size_t bytes = (size_t)rt_flat_count(rt, outer, elements) * rt_dtype_bytes(dtype);
    count_elements(rt, axis, elements, outer, rt->internal->counts);
    if (!rt_may_be_dummy(rt, axis, each_micro_batch)) return RT_OK;
    return rt->program->device->copy_where(rt, src, src, bytes, RT_REAL);
}

/* The slice of a reduction that has begun, in place. */
static int finish_scatter(struct rt *rt, struct rt_comm *comm, void *dst, const unsigned char *src,
                          enum rt_dtype dtype) {
    const size_t *counts = rt->internal->counts;
    size_t before = 0;
    RT_TRY(rt_finish_sums(rt, comm));
    for (int r = 0; r < comm->rank; r++) before += counts[r];
    return rt_copy_bytes(rt, dst, src + before * rt_dtype_bytes(dtype), counts[comm->rank] * rt_dtype_bytes(dtype));
}

int rt_reduce_scatter_flat(struct rt *rt, int axis, void *dst, void *src, enum rt_dtype dtype, int64_t elements,
                           unsigned outer, enum rt_reduce reduce, int each_micro_batch, int begun) {
    struct rt_comm *comm = rt->axis[axis];
    if (begun && rt_begins_early(rt, axis, RT_SCATTER)) {
        count_elements(rt, axis, elements, outer, rt->internal->counts);
        return finish_scatter(rt, comm, dst, src, dtype);
    }
    RT_TRY(prepare(rt, axis, src, dtype, elements, outer, each_micro_batch));
    return rt_end_collective(rt, comm,
                             comm->driver->reduce_scatter(comm, dst, src, rt->internal->counts, dtype, reduce, false));
}

int rt_reduce_scatter_onto(struct rt *rt, int axis, void *dst, const void *sum, void *src, enum rt_dtype dtype,
                           int64_t elements, unsigned outer, int each_micro_batch) {
    struct rt_comm *comm = rt->axis[axis];
    const size_t *counts = rt->internal->counts;
    size_t before = 0;
    RT_TRY(prepare(rt, axis, src, dtype, elements, outer, each_micro_batch));
    RT_TRY(rt_copy_bytes(rt, dst, sum, counts[comm->rank] * rt_dtype_bytes(dtype)));
    if (comm->driver->sums_onto)
        return rt_end_collective(rt, comm, comm->driver->reduce_scatter(comm, dst, src, counts, dtype, RT_SUM, true));
    for (int r = 0; r < comm->rank; r++) before += counts[r];
    unsigned char *slice = (unsigned char *)src + before * rt_dtype_bytes(dtype);
    RT_TRY(rt_end_collective(rt, comm, comm->driver->reduce_scatter(comm, slice, src, counts, dtype, RT_SUM, false)));
    return rt->program->device->add(rt, dst, slice, (int64_t)counts[comm->rank], dtype);
}

int rt_all_reduce_onto(struct rt *rt, int axis, void *dst, const void *sum, void *src, enum rt_dtype dtype,
                       int64_t elements, int each_micro_batch) {
    struct rt_comm *comm = rt->axis[axis];
    const size_t element = rt_dtype_bytes(dtype);
    size_t *counts = rt->internal->counts, before = 0;
    RT_TRY(prepare(rt, axis, src, dtype, elements, 0, each_micro_batch));
    RT_TRY(rt_copy_bytes(rt, dst, sum, (size_t)elements * element));
    if (!comm->driver->sums_onto) {
        const int status = comm->driver->all_reduce(comm, src, src, (size_t)elements, dtype, RT_SUM);
        RT_TRY(rt_end_collective(rt, comm, status));
        return rt->program->device->add(rt, dst, src, elements, dtype);
    }
    for (int r = 0; r < comm->rank; r++) before += counts[r];
    unsigned char *slice = (unsigned char *)dst + before * element;
    RT_TRY(rt_end_collective(rt, comm, comm->driver->reduce_scatter(comm, slice, src, counts, dtype, RT_SUM, true)));
    for (int r = 0; r < comm->size; r++) counts[r] *= element;
    return rt_end_collective(rt, comm, comm->driver->all_gather(comm, dst, slice, counts));
}
