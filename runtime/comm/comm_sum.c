/* Sums in the background of what ranks that share memory do.
 *
 * Note [Sums meanwhile]
 * A member begins a sum by saying where its data lies. Once all have, each adds up its slice of the data, from all into
 * all, when it next comes by: as it begins another sum, or looks, or waits for the end. So nobody waits before the end,
 * and a rank adds up while others compute. Two counters per member say all there is to know, how many sums it has begun
 * and of how many its slice is added up, since all begin the same sums in the same order. */
#include "comm/comm_shared_private.h"

#include "comm/reduce.h"

#include <string.h>

static struct sum *sum_of(const struct shared *c, int member, uint64_t number) {
    return &c->control[member]->sum[number % RT_SHARED_SUMS];
}

static uint64_t load(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static bool all_have_begun(const struct shared *c, uint64_t number) {
    for (int r = 0; r < c->base.size; r++)
        if (atomic_load_explicit(&c->control[r]->begun, memory_order_acquire) <= number) return false;
    return true;
}

static int check_same_sum(struct shared *c, uint64_t number) {
    const struct sum *mine = sum_of(c, c->base.rank, number);
    for (int r = 0; r < c->base.size; r++) {
        const struct sum *other = sum_of(c, r, number);
        if (load(&other->count) != load(&mine->count) || load(&other->dtype) != load(&mine->dtype))
            return shared_fail(c, RT_ERROR_USAGE,
                               "ranks begin different sums: rank %d of %llu elements, rank %d of %llu",
                               c->world[c->base.rank], (unsigned long long)load(&mine->count), c->world[r],
                               (unsigned long long)load(&other->count));
    }
    return RT_OK;
}

/* The caller's slice of the next sum, which all have begun. */
static int add_up(struct shared *c) {
    const struct sum *mine = sum_of(c, c->base.rank, c->added);
    const enum rt_dtype dtype = (enum rt_dtype)load(&mine->dtype);
    const size_t element = rt_dtype_bytes(dtype);
    const struct overlap slice = shared_slice(load(&mine->count) * element, c->base.rank, c->base.size);
    int status = check_same_sum(c, c->added);
    if (status) return status;
    for (int r = 0; r < c->base.size; r++)
        c->view[r] = c->target[r] = shared_symmetric(c, r) + load(&sum_of(c, r, c->added)->offset) + slice.first;
    if (slice.first < slice.last)
        rt_reduce_ordered(c->target, c->base.size, c->view, c->base.size, (slice.last - slice.first) / element, dtype,
                          RT_SUM);
    shared_begin_call(c, RT_BEGIN_SUM); /* whoever watches sees something done */
    atomic_store_explicit(&c->control[c->base.rank]->added, ++c->added, memory_order_release);
    return RT_OK;
}

/* Ends the sums before number `end`. */
static int finish(struct shared *c, uint64_t end) {
    int status = RT_OK;
    while (c->added < end && !status) {
        for (int r = 0; r < c->base.size && !status; r++)
            status = shared_wait(c, &c->control[r]->begun, c->added + 1, r);
        if (!status) status = add_up(c);
    }
    for (int r = 0; r < c->base.size && !status; r++) status = shared_wait(c, &c->control[r]->added, end, r);
    return status;
}

int shared_sum_progress(struct rt_comm *comm) {
    struct shared *c = shared_of(comm);
    while (c->added < c->begun && all_have_begun(c, c->added)) {
        int status = add_up(c);
        if (status) return status;
    }
    return comm->driver->alive(comm);
}

int shared_sum_begin(struct rt_comm *comm, void *data, size_t count, enum rt_dtype dtype) {
    struct shared *c = shared_of(comm);
    const uint64_t offset = shared_offset(c, data, count * rt_dtype_bytes(dtype));
    struct sum *sum = sum_of(c, comm->rank, c->begun);
    shared_begin_call(c, RT_BEGIN_SUM);
    if (offset == NOT_SYMMETRIC) return shared_fail(c, RT_ERROR_USAGE, "a sum begins outside of symmetric memory");
    if (c->begun >= RT_SHARED_SUMS) { /* others may still read what is said of an earlier one */
        int status = finish(c, c->begun - RT_SHARED_SUMS + 1);
        if (status) return status;
    }
    atomic_store_explicit(&sum->offset, offset, memory_order_relaxed);
    atomic_store_explicit(&sum->count, count, memory_order_relaxed);
    atomic_store_explicit(&sum->dtype, dtype, memory_order_relaxed);
    atomic_store_explicit(&c->control[comm->rank]->begun, ++c->begun, memory_order_release);
    return shared_sum_progress(comm);
}

int shared_sum_finish(struct rt_comm *comm) {
    struct shared *c = shared_of(comm);
    shared_begin_call(c, RT_FINISH_SUMS);
    return finish(c, c->begun);
}
