/* Sums of gradients over the units.
 *
 * Note [Buckets]
 * A gradient's sum may begin as soon as the rank's own gradient is complete, while the backward phase goes on. Generated code says
 * so, gradient by gradient (rt_unit_sum_start), in the order in which they lie side by side in symmetric memory. What is complete
 * is collected in a bucket; one of at least `bucket_bytes` is handed to the transport as one sum (comm.h). The reduce phase hands
 * over the rest and waits for all. Where buckets end changes no bit: every element is summed in rank order.
 *
 * Nothing begins early where the transport cannot do so, where hooks want to see gradients before they are reduced, and before the
 * backward phase that is known to be the last before the reduction; then rt_unit_sum does all of it. */
#include "private.h"

#include <string.h>

void rt_backward_begins(struct rt *rt, bool last, bool known) {
    const struct rt_reduce_hooks *hooks = &rt->private->hooks;
    const bool in_segment = !rt->private->owned[RT_COMMUNICATION];
    rt->private->last = last;
    rt->private->overlaps = last && known && in_segment && rt->units->driver->sum_begin && !hooks->before &&
                            !hooks->after && rt->program->training->bucket_bytes > 0;
}

/* Hands the bucket over. */
static int close_bucket(struct rt *rt) {
    struct rt_bucket *bucket = &rt->private->bucket;
    const size_t count = bucket->bytes / rt_dtype_bytes(bucket->dtype);
    if (!count) return RT_OK;
    bucket->bytes = 0;
    int status = rt->units->driver->sum_begin(rt->units, bucket->first, count, bucket->dtype);
    return status ? rt_fail_comm(rt, rt->units, status) : RT_OK;
}

/* The gradient goes into the bucket if it lies behind what is there; between the two is padding. */
static int put_in_bucket(struct rt *rt, unsigned char *gradient, enum rt_dtype dtype, size_t bytes) {
    struct rt_bucket *bucket = &rt->private->bucket;
    if (bucket->bytes && (dtype != bucket->dtype || gradient < bucket->first + bucket->bytes)) RT_TRY(close_bucket(rt));
    if (!bucket->bytes) *bucket = (struct rt_bucket){gradient, 0, dtype};
    bucket->bytes = (size_t)(gradient - bucket->first) + bytes;
    return bucket->bytes >= (size_t)rt->program->training->bucket_bytes ? close_bucket(rt) : RT_OK;
}

/* Where gradients of several micro-batches are summed, dummies are left out already. */
static bool is_dummy(const struct rt *rt) {
    const struct rt_training *training = rt->program->training;
    return training && training->accumulate == 1 && !(rt->private->control[RT_REAL] > 0);
}

int rt_unit_sum_start(struct rt *rt, void *dst, const void *src, enum rt_dtype dtype, int64_t count) {
    const size_t bytes = (size_t)count * rt_dtype_bytes(dtype);
    if (!rt->private->last) return RT_OK;
    if (is_dummy(rt))
        memset(dst, 0, bytes);
    else if (dst != src)
        memcpy(dst, src, bytes);
    if (!rt->private->overlaps) return RT_OK;
    RT_TRY(put_in_bucket(rt, dst, dtype, bytes));
    int status = rt->units->driver->sum_progress(rt->units);
    return status ? rt_fail_comm(rt, rt->units, status) : RT_OK;
}

int rt_end_unit_sums(struct rt *rt) {
    if (!rt->private->overlaps) return RT_OK;
    RT_TRY(close_bucket(rt));
    int status = rt->units->driver->sum_finish(rt->units);
    return status ? rt_fail_comm(rt, rt->units, status) : RT_OK;
}

int rt_unit_sum(struct rt *rt, void *dst, const void *src, enum rt_dtype dtype, int64_t count) {
    if (dst != src) memcpy(dst, src, (size_t)count * rt_dtype_bytes(dtype));
    if (rt->private->overlaps) return rt_end_unit_sums(rt);
    int status = rt->units->driver->all_reduce(rt->units, dst, dst, (size_t)count, dtype, RT_SUM);
    return status ? rt_fail_comm(rt, rt->units, status) : RT_OK;
}
