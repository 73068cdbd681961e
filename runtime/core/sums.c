/* Sums of gradients, over the units and along mesh axes, that go on during the backward phase.
 *
 * Note [Buckets]
 * A gradient's sum may begin as soon as the rank's own gradient is complete. Generated code says so, gradient by
 * gradient, in the order in which they lie side by side in symmetric memory. What is complete is collected in a bucket;
 * one of at least `bucket_bytes` is handed to the transport as one sum (comm.h). Where a sum is wanted, the rest is
 * handed over, and all are waited for. Where buckets end changes no bit: every element is summed in rank order.
 *
 * Nothing begins early where the transport cannot do so, nor before the backward phase that is known to be the last
 * before the reduction. Nor do sums over units where hooks want to see gradients before they are reduced. Then
 * rt_unit_sum and rt_all_reduce do all of it. */
#include "core/private.h"

static bool can_begin(const struct rt *rt, const struct rt_comm *comm) {
    const struct rt_training *training = rt->program->training;
    const bool in_reach = rt->program->device->remote || !rt->internal->owned[RT_COMMUNICATION];
    return comm->size > 1 && in_reach && comm->driver->sum_begin && training && training->bucket_bytes > 0;
}

void rt_backward_begins(struct rt *rt, bool last, bool known) {
    const struct rt_reduce_hooks *hooks = &rt->internal->hooks;
    rt->internal->last = last;
    rt->internal->known = last && known;
    rt->internal->overlaps = last && known && can_begin(rt, rt->unit_arenas) && !hooks->before && !hooks->after;
}

/* The bucket of a communicator: the units' is the last. */
static struct rt_bucket *bucket_of(struct rt *rt, const struct rt_comm *comm) {
    int axis = 0;
    while (axis < RT_MAX_AXES && rt->axis[axis] != comm) axis++;
    return &rt->internal->bucket[axis];
}

/* Hands the bucket over. */
static int close_bucket(struct rt *rt, struct rt_comm *comm) {
    struct rt_bucket *bucket = bucket_of(rt, comm);
    const size_t count = bucket->bytes / rt_dtype_bytes(bucket->dtype);
    if (!count) return RT_OK;
    bucket->bytes = 0;
    bucket->begun = true;
    int status = comm->driver->sum_begin(comm, bucket->first, count, bucket->dtype);
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

/* Right behind what is in the bucket, but for padding. */
static bool follows(const struct rt_bucket *bucket, const unsigned char *gradient, enum rt_dtype dtype) {
    const unsigned char *end = bucket->first + bucket->bytes;
    return dtype == bucket->dtype && gradient >= end && gradient < end + RT_ALIGNMENT;
}

static int put_in_bucket(struct rt *rt, struct rt_comm *comm, unsigned char *gradient, enum rt_dtype dtype,
                         size_t bytes) {
    struct rt_bucket *bucket = bucket_of(rt, comm);
    if (bucket->bytes && !follows(bucket, gradient, dtype)) RT_TRY(close_bucket(rt, comm));
    if (!bucket->bytes) bucket->first = gradient, bucket->dtype = dtype;
    bucket->bytes = (size_t)(gradient - bucket->first) + bytes;
    if (bucket->bytes >= (size_t)rt->program->training->bucket_bytes) RT_TRY(close_bucket(rt, comm));
    int status = comm->driver->sum_progress(comm);
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

static int finish(struct rt *rt, struct rt_comm *comm) {
    struct rt_bucket *bucket = bucket_of(rt, comm);
    RT_TRY(close_bucket(rt, comm));
    if (!bucket->begun) return RT_OK;
    bucket->begun = false;
    int status = comm->driver->sum_finish(comm);
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

int rt_sums_variant(const struct rt *rt) {
    return rt->internal->last + 2 * rt->internal->overlaps + 4 * rt->internal->known;
}

int rt_end_sums(struct rt *rt) {
    for (int axis = 0; axis < rt->program->naxes; axis++) RT_TRY(finish(rt, rt->axis[axis]));
    return finish(rt, rt->unit_arenas);
}

/* Over the units -------------------------------------------------------------------------------------------------- */

/* Where gradients of several micro-batches are summed, dummies are left out already. */
static bool may_be_dummy(const struct rt *rt) {
    return rt->program->training && rt->program->training->accumulate == 1;
}

int rt_unit_sum_start(struct rt *rt, void *dst, const void *src, enum rt_dtype dtype, int64_t count) {
    const size_t bytes = (size_t)count * rt_dtype_bytes(dtype);
    if (!rt->internal->last) return RT_OK;
    RT_TRY(may_be_dummy(rt) ? rt->program->device->copy_where(rt, dst, src, bytes, RT_REAL)
                            : rt_copy_bytes(rt, dst, src, bytes));
    return rt->internal->overlaps ? put_in_bucket(rt, rt->unit_arenas, dst, dtype, bytes) : RT_OK;
}

static int reduce_over_units(struct rt *rt, void *data, enum rt_dtype dtype, int64_t count, enum rt_reduce reduce) {
    int status = rt->unit_arenas->driver->all_reduce(rt->unit_arenas, data, data, (size_t)count, dtype, reduce);
    return status ? rt_fail_comm(rt, rt->unit_arenas, status) : RT_OK;
}

int rt_unit_sum(struct rt *rt, void *dst, const void *src, enum rt_dtype dtype, int64_t count, int begun) {
    const bool early = begun && rt->internal->overlaps;
    if (early) RT_TRY(finish(rt, rt->unit_arenas));
    RT_TRY(rt_copy_bytes(rt, dst, src, (size_t)count * rt_dtype_bytes(dtype)));
    return early ? RT_OK : reduce_over_units(rt, dst, dtype, count, RT_SUM);
}

int rt_unit_max(struct rt *rt, void *dst, const void *src, enum rt_dtype dtype, int64_t count) {
    RT_TRY(rt_copy_bytes(rt, dst, src, (size_t)count * rt_dtype_bytes(dtype)));
    return reduce_over_units(rt, dst, dtype, count, RT_MAX);
}

/* Along an axis --------------------------------------------------------------------------------------------------- */

int rt_all_reduce_start(struct rt *rt, int site, int axis, void *dst, const void *src, enum rt_dtype dtype,
                        int64_t count) {
    struct rt_comm *comm = rt_enter_site(rt, site, axis);
    const size_t bytes = (size_t)count * rt_dtype_bytes(dtype);
    if (!rt->internal->last) return RT_OK;
    RT_TRY(rt_copy_bytes(rt, dst, src, bytes));
    return rt->internal->known && can_begin(rt, comm) ? put_in_bucket(rt, comm, dst, dtype, bytes) : RT_OK;
}

int rt_all_reduce(struct rt *rt, int site, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t count,
                  enum rt_reduce reduce, int begun) {
    struct rt_comm *comm = rt_enter_site(rt, site, axis);
    if (!begun || !rt->internal->known || !can_begin(rt, comm))
        return rt_leave_site(rt, comm, comm->driver->all_reduce(comm, dst, src, (size_t)count, dtype, reduce));
    RT_TRY(finish(rt, comm));
    return rt_copy_bytes(rt, dst, src, (size_t)count * rt_dtype_bytes(dtype));
}
