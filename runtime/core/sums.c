/* Gradient sums along mesh and replica axes that overlap the backward phase.
 *
 * Note [Buckets]
 * A gradient's all-reduce may begin as soon as the rank's own gradient is complete. Generated code announces each
 * gradient (rt_start) in the order in which gradients lie in symmetric memory. Adjacent
 * gradients are collected in a bucket, as in PyTorch's DDP; a bucket of at least `bucket_bytes` is handed to the
 * transport as one sum (begin in comm.h). The call that needs the sums hands over the last bucket and waits for all
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

/* True if collectives of communicated tensors can begin before they are needed. */
static bool begins(const struct rt *rt, const struct rt_comm *comm) {
    return comm->size > 1 && comm->driver->begin && is_in_reach(rt, RT_COMMUNICATION);
}

/* True if a single rank's gather, which is a copy, begins early: what it copies may lie in the host's memory. */
static bool copies_early(const struct rt *rt, const struct rt_comm *comm) {
    return comm->size == 1 && comm->driver->begin && rt->internal->bytes[RT_HOST];
}

static bool can_begin(const struct rt *rt, const struct rt_comm *comm) {
    const struct rt_training *training = rt->program->training;
    return begins(rt, comm) && is_in_reach(rt, RT_GRADIENTS) && training && training->bucket_bytes > 0;
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

int rt_begin_collective(struct rt *rt, struct rt_comm *comm, const struct rt_collective *what) {
    struct rt_sum *sum = sum_of(rt, comm);
    sum->begun = sum->begun || what->kind != RT_GATHER;
    return rt_end_collective(rt, comm, comm->driver->begin(comm, what));
}

/* Hands the bucket to the transport. */
static int close_bucket(struct rt *rt, struct rt_comm *comm) {
    struct rt_bucket *bucket = &sum_of(rt, comm)->bucket;
    const size_t count = (size_t)bucket->bytes / rt_dtype_bytes(bucket->dtype);
    void *first = (void *)(intptr_t)bucket->first;
    if (!count) return RT_OK;
    bucket->bytes = 0;
    return rt_begin_collective(rt, comm, &(struct rt_collective){RT_SUM_WHOLE, bucket->dtype, first, NULL, &count});
}

/* By the rule of base/shape/bucket.h. */
int rt_put_in_bucket(struct rt *rt, struct rt_comm *comm, const void *gradient, enum rt_dtype dtype, int64_t count) {
    struct rt_bucket *bucket = &sum_of(rt, comm)->bucket;
    const int64_t at = (int64_t)(intptr_t)gradient, limit = rt->program->training->bucket_bytes;
    if (rt_bucket_ends_before(bucket, at, dtype)) RT_TRY(close_bucket(rt, comm));
    if (rt_bucket_add(bucket, at, dtype, count * (int64_t)rt_dtype_bytes(dtype), limit)) RT_TRY(close_bucket(rt, comm));
    return rt_end_collective(rt, comm, comm->driver->progress(comm));
}

/* Hands over the last bucket and waits for all sums of the communicator. */
int rt_finish_sums(struct rt *rt, struct rt_comm *comm) {
    struct rt_sum *sum = sum_of(rt, comm);
    RT_TRY(close_bucket(rt, comm));
    if (!sum->begun) return RT_OK;
    sum->begun = false;
    return rt_end_collective(rt, comm, comm->driver->finish(comm, RT_SUM_WHOLE));
}

int rt_sums_variant(const struct rt *rt) {
    return rt->internal->last + 2 * rt->internal->overlaps + 4 * rt->internal->known;
}

int rt_end_sums(struct rt *rt) {
    for (int axis = 0; axis < rt_layout_axes(rt); axis++) RT_TRY(rt_finish_sums(rt, rt->axis[axis]));
    return RT_OK;
}

static bool is_replica_axis(const struct rt *rt, int axis) {
    return axis >= rt->program->mesh.naxes;
}

bool rt_begins_early(const struct rt *rt, int axis, enum rt_early kind) {
    if (kind == RT_GATHER) return begins(rt, rt->axis[axis]) || copies_early(rt, rt->axis[axis]);
    return (is_replica_axis(rt, axis) ? rt->internal->overlaps : rt->internal->known) && can_begin(rt, rt->axis[axis]);
}

bool rt_runs_beside(const struct rt *rt, const struct rt_comm *comm) {
    return begins(rt, comm) && !rt_values_are_read(rt);
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

int rt_all_reduce(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t count,
                  enum rt_reduce reduce, int begun) {
    struct rt_comm *comm = rt->axis[axis];
    const bool early = begun == 2 ? rt_runs_beside(rt, comm) : rt_begins_early(rt, axis, RT_SUM_WHOLE);
    if (!begun || !early)
        return rt_end_collective(rt, comm, comm->driver->all_reduce(comm, dst, src, (size_t)count, dtype, reduce));
    RT_TRY(rt_finish_sums(rt, comm));
    return rt_copy_bytes(rt, dst, src, (size_t)count * rt_dtype_bytes(dtype));
}
