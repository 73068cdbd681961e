/* Gradient sums along mesh and replica axes that overlap the backward phase.
 *
 * Note [Buckets]
 * A gradient's all-reduce may begin as soon as the rank's own gradient is complete. Generated code announces each
 * gradient (rt_all_reduce_start) in the order in which gradients lie in symmetric memory. Adjacent
 * gradients are collected in a bucket, as in PyTorch's DDP; a bucket of at least `bucket_bytes` is handed to the
 * transport as one sum (sum_begin in comm.h). The call that needs the sums hands over the last bucket and waits for all
 * of them. Bucket boundaries do not affect results: each element is summed in rank order.
 *
 * Sums do not begin early where the transport does not support it, in a backward phase that is not known to be the last
 * before the reduction, or, along replica axes, where hooks must see the gradients before they are reduced.
 * rt_all_reduce then does the complete sum. */
#include "core/private.h"

/* True if the transport reaches the arena. */
static bool is_in_reach(const struct rt *rt, enum rt_arena arena) {
    return rt->program->device->remote || !rt->internal->owned[arena];
}

static bool can_begin(const struct rt *rt, const struct rt_comm *comm) {
    const struct rt_training *training = rt->program->training;
    return comm->size > 1 && is_in_reach(rt, RT_COMMUNICATION) && is_in_reach(rt, RT_GRADIENTS) &&
           comm->driver->sum_begin && training && training->bucket_bytes > 0;
}

static bool replicas_can_begin(const struct rt *rt) {
    for (int a = rt->program->mesh.naxes; a < rt_layout_axes(rt); a++)
        if (can_begin(rt, rt->axis[a])) return true;
    return false;
}

void rt_backward_begins(struct rt *rt, bool last, bool known) {
    const struct rt_reduce_hooks *hooks = &rt->internal->hooks;
    rt->internal->last = last;
    rt->internal->known = last && known;
    rt->internal->overlaps = last && known && replicas_can_begin(rt) && !hooks->before && !hooks->after;
}

/* The sum of a communicator. */
static struct rt_sum *sum_of(struct rt *rt, const struct rt_comm *comm) {
    int axis = 0;
    while (rt->axis[axis] != comm) axis++;
    return &rt->internal->sum[axis];
}

/* Hands the bucket to the transport. */
static int close_bucket(struct rt *rt, struct rt_comm *comm) {
    struct rt_sum *sum = sum_of(rt, comm);
    struct rt_bucket *bucket = &sum->bucket;
    const size_t count = (size_t)bucket->bytes / rt_dtype_bytes(bucket->dtype);
    if (!count) return RT_OK;
    bucket->bytes = 0;
    sum->begun = true;
    int status = comm->driver->sum_begin(comm, (void *)(intptr_t)bucket->first, count, bucket->dtype);
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

/* Adds a complete gradient to the bucket, by the rule of base/shape/bucket.h. */
static int put_in_bucket(struct rt *rt, struct rt_comm *comm, const void *gradient, enum rt_dtype dtype, size_t bytes) {
    struct rt_bucket *bucket = &sum_of(rt, comm)->bucket;
    const int64_t at = (int64_t)(intptr_t)gradient, limit = rt->program->training->bucket_bytes;
    if (rt_bucket_ends_before(bucket, at, dtype)) RT_TRY(close_bucket(rt, comm));
    if (rt_bucket_add(bucket, at, dtype, (int64_t)bytes, limit)) RT_TRY(close_bucket(rt, comm));
    int status = comm->driver->sum_progress(comm);
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

/* Hands over the last bucket and waits for all sums of the communicator. */
int rt_finish_sums(struct rt *rt, struct rt_comm *comm) {
    struct rt_sum *sum = sum_of(rt, comm);
    RT_TRY(close_bucket(rt, comm));
    if (!sum->begun) return RT_OK;
    sum->begun = false;
    int status = comm->driver->sum_finish(comm);
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

int rt_sums_variant(const struct rt *rt) {
    return rt->internal->last + 2 * rt->internal->overlaps + 4 * rt->internal->known;
}

int rt_end_sums(struct rt *rt) {
    for (int axis = 0; axis < rt_layout_axes(rt); axis++) RT_TRY(rt_finish_sums(rt, rt->axis[axis]));
    return RT_OK;
}

/* Sums along an axis ---------------------------------------------------------------------------------------------- */

static bool is_replica_axis(const struct rt *rt, int axis) {
    return axis >= rt->program->mesh.naxes;
}

bool rt_begins_early(const struct rt *rt, int axis, enum rt_early what) {
    const struct rt_comm *comm = rt->axis[axis];
    if (what == RT_GATHER) return comm->size > 1 && comm->driver->gather_begin && is_in_reach(rt, RT_COMMUNICATION);
    if (what == RT_SCATTER && !comm->driver->scatter_begin) return false;
    return (is_replica_axis(rt, axis) ? rt->internal->overlaps : rt->internal->known) && can_begin(rt, comm);
}

bool rt_may_be_dummy(const struct rt *rt, int axis, bool each_micro_batch) {
    const struct rt_training *training = rt->program->training;
    return axis == rt->program->mesh.naxes && training && (each_micro_batch || training->accumulate == 1);
}

int rt_take_gradient(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t count) {
    const size_t bytes = (size_t)count * rt_dtype_bytes(dtype);
    if (!rt->internal->last) return RT_OK;
    return rt->units->size > 1 && rt_may_be_dummy(rt, axis, false)
               ? rt->program->device->copy_where(rt, dst, src, bytes, RT_REAL)
               : rt_copy_bytes(rt, dst, src, bytes);
}

int rt_all_reduce_start(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t count) {
    struct rt_comm *comm = rt->axis[axis];
    RT_TRY(rt_take_gradient(rt, axis, dst, src, dtype, count));
    return rt->internal->last && rt_begins_early(rt, axis, RT_SUM_WHOLE)
               ? put_in_bucket(rt, comm, dst, dtype, (size_t)count * rt_dtype_bytes(dtype))
               : RT_OK;
}

int rt_begin_scatter(struct rt *rt, struct rt_comm *comm, void *data, const size_t *counts, enum rt_dtype dtype) {
    sum_of(rt, comm)->begun = true;
    int status = comm->driver->scatter_begin(comm, data, counts, dtype);
    return status ? rt_fail_comm(rt, comm, status) : RT_OK;
}

bool rt_runs_beside(const struct rt *rt, const struct rt_comm *comm, enum rt_early what) {
    const struct rt_comm_driver *driver = comm->driver;
    const bool begins = what == RT_GATHER    ? driver->gather_begin != NULL
                        : what == RT_SCATTER ? driver->scatter_begin != NULL
                                             : driver->sum_begin != NULL;
    return comm->size > 1 && begins && is_in_reach(rt, RT_COMMUNICATION) && !rt_values_are_read(rt);
}

int rt_all_reduce_run(struct rt *rt, int axis, void *data, enum rt_dtype dtype, int64_t count) {
    struct rt_comm *comm = rt->axis[axis];
    if (!rt_runs_beside(rt, comm, RT_SUM_WHOLE)) return RT_OK;
    sum_of(rt, comm)->begun = true;
    return rt_end_collective(rt, comm, comm->driver->sum_begin(comm, data, (size_t)count, dtype));
}

int rt_all_reduce(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t count,
                  enum rt_reduce reduce, int begun) {
    struct rt_comm *comm = rt->axis[axis];
    const bool early = begun == 2 ? rt_runs_beside(rt, comm, RT_SUM_WHOLE) : rt_begins_early(rt, axis, RT_SUM_WHOLE);
    if (!begun || !early)
        return rt_end_collective(rt, comm, comm->driver->all_reduce(comm, dst, src, (size_t)count, dtype, reduce));
    RT_TRY(rt_finish_sums(rt, comm));
    return rt_copy_bytes(rt, dst, src, (size_t)count * rt_dtype_bytes(dtype));
}
