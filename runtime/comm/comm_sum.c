/* Background sums of ranks that share memory: all-reduces that overlap computation.
 *
 * Note [Background sums]
 * A member begins a sum by publishing the place of its data. Once all members have begun it, each reduces its slice of
 * the data, from all members into all members' memory, at its next call: when it begins another sum, or calls progress
 * or finish. Only finish waits. So a member may reduce its slice while others compute. All members begin the same sums
 * in the same order; therefore two counters per member suffice: sums begun, and sums whose slice it has reduced. In a
 * reduce-scatter, a member reduces the slice that it needs, into its own memory alone. */
#include "comm/comm_shared_private.h"

#include "comm/reduce.h"

#include <string.h>

static struct sum *sum_of(const struct shared *shared, int member, uint64_t number) {
    return &shared->control[member]->sum[number % RT_SHARED_SUMS];
}

static uint64_t load(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static bool all_have_begun(const struct shared *shared, uint64_t number) {
    for (int r = 0; r < shared->base.size; r++)
        if (atomic_load_explicit(&shared->control[r]->begun, memory_order_acquire) <= number) return false;
    return true;
}

static int check_same_sum(struct shared *shared, uint64_t number) {
    const struct sum *mine = sum_of(shared, shared->base.rank, number);
    for (int r = 0; r < shared->base.size; r++) {
        const struct sum *other = sum_of(shared, r, number);
        if (load(&other->count) != load(&mine->count) || load(&other->dtype) != load(&mine->dtype))
            return shared_fail(shared, RT_ERROR_USAGE,
                               "ranks begin sums of different sizes: rank %d of %llu elements, rank %d of %llu",
                               shared->world[shared->base.rank], (unsigned long long)load(&mine->count),
                               shared->world[r], (unsigned long long)load(&other->count));
    }
    return RT_OK;
}

/* Reduces the caller's slice of the next sum, which all members have begun. */
static int add_up(struct shared *shared) {
    const struct sum *mine = sum_of(shared, shared->base.rank, shared->added);
    const enum rt_dtype dtype = (enum rt_dtype)load(&mine->dtype);
    const size_t element = rt_dtype_bytes(dtype);
    const struct scatter *scatter = &shared->scatter[shared->added % RT_SHARED_SUMS];
    const struct overlap shares = shared_slice(load(&mine->count) * element, shared->base.rank, shared->base.size),
                         slice = scatter->alone ? (struct overlap){scatter->first, scatter->last} : shares;
    int status = check_same_sum(shared, shared->added);
    if (status) return status;
    for (int r = 0; r < shared->base.size; r++)
        shared->view[r] = shared->target[r] =
            shared_symmetric(shared, r) + load(&sum_of(shared, r, shared->added)->offset) + slice.first;
    if (scatter->alone) shared->target[0] = shared->target[shared->base.rank];
    if (slice.first < slice.last)
        rt_reduce_ordered(shared->target, scatter->alone ? 1 : shared->base.size, shared->view, shared->base.size,
                          (slice.last - slice.first) / element, dtype, RT_SUM);
    shared_begin_call(shared, RT_BEGIN_SUM); /* counts as progress */
    atomic_store_explicit(&shared->control[shared->base.rank]->added, ++shared->added, memory_order_release);
    return RT_OK;
}

/* Completes the sums with numbers below `end`. */
static int finish(struct shared *shared, uint64_t end) {
    int status = RT_OK;
    while (shared->added < end && !status) {
        for (int r = 0; r < shared->base.size && !status; r++)
            status = shared_wait(shared, &shared->control[r]->begun, shared->added + 1, r);
        if (!status) status = add_up(shared);
    }
    for (int r = 0; r < shared->base.size && !status; r++)
        status = shared_wait(shared, &shared->control[r]->added, end, r);
    return status;
}

int shared_sum_progress(struct rt_comm *comm) {
    struct shared *shared = shared_of(comm);
    while (shared->added < shared->begun && all_have_begun(shared, shared->added)) {
        int status = add_up(shared);
        if (status) return status;
    }
    return comm->driver->alive(comm);
}

static int begin(struct rt_comm *comm, void *data, size_t count, enum rt_dtype dtype, struct scatter scatter) {
    struct shared *shared = shared_of(comm);
    const uint64_t offset = shared_offset(shared, data, count * rt_dtype_bytes(dtype));
    struct sum *sum = sum_of(shared, comm->rank, shared->begun);
    shared_begin_call(shared, RT_BEGIN_SUM);
    if (offset == NOT_SYMMETRIC)
        return shared_fail(shared, RT_ERROR_USAGE, "a sum's buffer is outside of symmetric memory");
    if (shared->begun >= RT_SHARED_SUMS) { /* others may still read what is said of an earlier one */
        int status = finish(shared, shared->begun - RT_SHARED_SUMS + 1);
        if (status) return status;
    }
    shared->scatter[shared->begun % RT_SHARED_SUMS] = scatter;
    atomic_store_explicit(&sum->offset, offset, memory_order_relaxed);
    atomic_store_explicit(&sum->count, count, memory_order_relaxed);
    atomic_store_explicit(&sum->dtype, dtype, memory_order_relaxed);
    atomic_store_explicit(&shared->control[comm->rank]->begun, ++shared->begun, memory_order_release);
    return shared_sum_progress(comm);
}

int shared_sum_begin(struct rt_comm *comm, void *data, size_t count, enum rt_dtype dtype) {
    return begin(comm, data, count, dtype, (struct scatter){false, 0, 0});
}

int shared_scatter_begin(struct rt_comm *comm, void *data, const size_t *counts, enum rt_dtype dtype) {
    const size_t element = rt_dtype_bytes(dtype);
    struct scatter own = {.alone = true};
    size_t count = 0;
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank) own.first = count * element;
        count += counts[r];
    }
    own.last = own.first + counts[comm->rank] * element;
    return begin(comm, data, count, dtype, own);
}

int shared_sum_finish(struct rt_comm *comm) {
    struct shared *shared = shared_of(comm);
    shared_begin_call(shared, RT_FINISH_SUMS);
    return finish(shared, shared->begun);
}
