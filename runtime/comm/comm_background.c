/* Collectives of ranks that share memory that overlap computation: sums, reduce-scatters and gathers.
 *
 * Note [Background collectives]
 * A member begins a collective by publishing the place of its data. Once all members have begun it, each does its share
 * at its next call: when it begins another collective, or calls progress or finish. Only finish waits. So a member may
 * do its share while others compute. All members begin the same collectives in the same order; therefore two counters
 * per member suffice: collectives begun, and those whose share it has done.
 *
 *   sum              reduces a slice of the data, from all members into all members' memory
 *   reduce-scatter   reduces the slice that it needs, into its own memory
 *   gather           copies the other members' parts from their results, where each has put its own, to its own result
 *
 * A collective is finished once all members have done their shares of it: nobody reads the data afterwards. */
#include "comm/comm_shared_private.h"

#include "comm/reduce.h"

#include <string.h>

static struct background *background_of(const struct shared *shared, int member, uint64_t number) {
    return &shared->control[member]->background[number % RT_SHARED_BACKGROUND];
}

static bool all_have_begun(const struct shared *shared, uint64_t number) {
    for (int r = 0; r < shared->base.size; r++)
        if (atomic_load_explicit(&shared->control[r]->begun, memory_order_acquire) <= number) return false;
    return true;
}

static const unsigned char *data_of(const struct shared *shared, int member, uint64_t number) {
    return shared_symmetric(shared, member) + load_relaxed(&background_of(shared, member, number)->offset);
}

/* Checks that all members have begun the same collective. The parts of a gather may differ, not their sum. */
static int check_same(struct shared *shared, uint64_t number) {
    const struct background *mine = background_of(shared, shared->base.rank, number);
    const struct share *share = &shared->share[number % RT_SHARED_BACKGROUND];
    const bool gathers = share->kind == RT_GATHER;
    uint64_t total = 0;
    for (int r = 0; r < shared->base.size; r++) {
        const struct background *other = background_of(shared, r, number);
        total += load_relaxed(&other->amount);
        if (load_relaxed(&other->what) != load_relaxed(&mine->what) ||
            (!gathers && load_relaxed(&other->amount) != load_relaxed(&mine->amount)))
            return shared_fail(shared, RT_ERROR_USAGE,
                               "ranks begin collectives of different sizes: rank %d of %llu elements, rank %d of %llu",
                               shared->world[shared->base.rank], (unsigned long long)load_relaxed(&mine->amount),
                               shared->world[r], (unsigned long long)load_relaxed(&other->amount));
    }
    if (gathers && total != share->last - share->first)
        return shared_fail(shared, RT_ERROR_USAGE, "ranks gather %llu bytes in all, rank %d expects %llu",
                           (unsigned long long)total, shared->world[shared->base.rank],
                           (unsigned long long)(share->last - share->first));
    return RT_OK;
}

static void add_up(const struct shared *shared, uint64_t number, const struct share *share) {
    const struct background *mine = background_of(shared, shared->base.rank, number);
    const enum rt_dtype dtype = (enum rt_dtype)load_relaxed(&mine->what);
    const size_t element = rt_dtype_bytes(dtype);
    const bool alone = share->kind == RT_SCATTER;
    const struct overlap of_all =
                             shared_slice(load_relaxed(&mine->amount) * element, shared->base.rank, shared->base.size),
                         slice = alone ? (struct overlap){share->first, share->last} : of_all;
    for (int r = 0; r < shared->base.size; r++)
        shared->view[r] = shared->target[r] =
            shared_symmetric(shared, r) + load_relaxed(&background_of(shared, r, number)->offset) + slice.first;
    if (alone) shared->target[0] = shared->target[shared->base.rank];
    if (slice.first < slice.last)
        rt_reduce_ordered(shared->target, alone ? 1 : shared->base.size, shared->view, shared->base.size,
                          (slice.last - slice.first) / element, dtype, RT_SUM);
}

static void gather_parts(const struct shared *shared, uint64_t number, const struct share *share) {
    unsigned char *to = shared_symmetric(shared, shared->base.rank) + share->first;
    for (int r = 0; r < shared->base.size; r++) {
        const size_t bytes = load_relaxed(&background_of(shared, r, number)->amount);
        if (r != shared->base.rank && bytes) memcpy(to, data_of(shared, r, number), bytes);
        to += bytes;
    }
}

/* Does the caller's share of the next collective, which all members have begun. */
static int do_share(struct shared *shared) {
    const uint64_t number = shared->done;
    const struct share *share = &shared->share[number % RT_SHARED_BACKGROUND];
    const bool gathers = share->kind == RT_GATHER;
    RT_TRY(check_same(shared, number));
    if (gathers)
        gather_parts(shared, number, share);
    else
        add_up(shared, number, share);
    shared_begin_call(shared, gathers ? RT_BEGIN_GATHER : RT_BEGIN_SUM); /* counts as progress */
    atomic_store_explicit(&shared->control[shared->base.rank]->done, ++shared->done, memory_order_release);
    shared_ring_all(shared);
    return RT_OK;
}

/* Completes the collectives with numbers below `end`. */
static int finish(struct shared *shared, uint64_t end) {
    int status = RT_OK;
    while (shared->done < end && !status) {
        for (int r = 0; r < shared->base.size && !status; r++)
            status = shared_wait(shared, &shared->control[r]->begun, shared->done + 1, r);
        if (!status) status = do_share(shared);
    }
    for (int r = 0; r < shared->base.size && !status; r++)
        status = shared_wait(shared, &shared->control[r]->done, end, r);
    return status;
}

int shared_progress(struct rt_comm *comm) {
    struct shared *shared = shared_of(comm);
    while (shared->done < shared->begun && all_have_begun(shared, shared->done)) {
        RT_TRY(do_share(shared));
    }
    return comm->driver->alive(comm);
}

static int begin(struct shared *shared, uint64_t offset, uint64_t amount, uint64_t what, struct share share) {
    if (shared->begun >= RT_SHARED_BACKGROUND) { /* others may still read what is said of an earlier one */
        RT_TRY(finish(shared, shared->begun - RT_SHARED_BACKGROUND + 1));
    }
    struct background *background = background_of(shared, shared->base.rank, shared->begun);
    shared->share[shared->begun % RT_SHARED_BACKGROUND] = share;
    atomic_store_explicit(&background->offset, offset, memory_order_relaxed);
    atomic_store_explicit(&background->amount, amount, memory_order_relaxed);
    atomic_store_explicit(&background->what, what, memory_order_relaxed);
    atomic_store_explicit(&shared->control[shared->base.rank]->begun, ++shared->begun, memory_order_release);
    shared_ring_all(shared);
    return shared_progress(&shared->base);
}

int shared_begin(struct rt_comm *comm, const struct rt_collective *what) {
    struct shared *shared = shared_of(comm);
    const bool gathers = what->kind == RT_GATHER;
    const size_t unit = gathers ? 1 : rt_dtype_bytes(what->dtype);
    uint64_t total = 0, before = 0;
    for (int r = 0; r < (what->kind == RT_SUM_WHOLE ? 1 : comm->size); r++) {
        if (r == comm->rank) before = total;
        total += what->counts[r];
    }
    const uint64_t offset = shared_offset(shared, what->dst, total * unit);
    shared_begin_call(shared, gathers ? RT_BEGIN_GATHER : RT_BEGIN_SUM);
    if (offset == NOT_SYMMETRIC)
        return shared_fail(shared, RT_ERROR_USAGE, "the %s is outside of symmetric memory",
                           gathers ? "result of a gather" : "buffer of a sum");
    if (what->kind == RT_SUM_WHOLE)
        return begin(shared, offset, total, what->dtype, (struct share){RT_SUM_WHOLE, 0, 0});
    const size_t own = what->counts[comm->rank];
    if (!gathers)
        return begin(shared, offset, total, what->dtype,
                     (struct share){RT_SCATTER, before * unit, (before + own) * unit});
    unsigned char *part = (unsigned char *)what->dst + before;
    if (part != what->src && own) memcpy(part, what->src, own);
    shared->gather[shared->gathers++ % RT_SHARED_BACKGROUND] = shared->begun;
    return begin(shared, offset + before, own, GATHERS, (struct share){RT_GATHER, offset, offset + total});
}

int shared_finish(struct rt_comm *comm, enum rt_early kind) {
    struct shared *shared = shared_of(comm);
    shared_begin_call(shared, kind == RT_GATHER ? RT_FINISH_GATHER : RT_FINISH_SUMS);
    if (kind != RT_GATHER) return finish(shared, shared->begun);
    const uint64_t gather = shared->gathered++;
    if (shared->gathers - gather > RT_SHARED_BACKGROUND) return RT_OK; /* was finished to make room for another */
    return finish(shared, shared->gather[gather % RT_SHARED_BACKGROUND] + 1);
}
