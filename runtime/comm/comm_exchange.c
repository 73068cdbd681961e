/* Collectives over a shared segment.
 *
 * Note [Staging windows]
 * All collectives use one mechanism: each member has a source, a stream of bytes, and copies or reduces the ranges it
 * needs of all members' streams. The call begins with a barrier, after which each member knows the place of every
 * source. If all sources lie in symmetric memory, members read them in place, as one window. Otherwise streams are
 * staged in windows of RT_SHARED_STAGE bytes: each member copies window k of its source to half k % 2 of its slot, a
 * barrier follows, and members read the slots. Half k % 2 is written again after the barrier of window k + 1, when all
 * members have finished reading window k. A barrier at the end releases sources and slots.
 *
 * A source outside symmetric memory is staged in any case, so its first window is copied before the first barrier,
 * which saves a barrier.
 *
 * All members choose between these ways from the same published data, and so choose alike. */
#include "comm/comm_shared_private.h"

#include "comm/reduce.h"

#include <string.h>

/* bytes; up to this size it is faster if each member reduces everything than if slices are exchanged after another
 * barrier */
#define SMALL_REDUCTION ((size_t)16 << 10)

/* The caller's description of its call, published as struct call. */
struct entry {
    enum rt_operation kind;
    unsigned dtype, detail; /* detail: reduction or root */
    uint64_t amount, bytes;
    const void *source;
    const void *target; /* NULL unless peers may write to it */
    size_t target_bytes;
};

/* How the call is executed: derived from the descriptions of all members, equal on all of them. */
struct exchange {
    uint64_t longest; /* of the longest stream, bytes */
    bool symmetric, symmetric_targets;
    bool begun; /* all members have staged their first window */
};

static void store(_Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static const char *kind_name(uint64_t what) {
    return rt_shared_operation_name((int)(what & 0xff));
}

static int check_same_call(struct shared *shared) {
    const struct call *first = &shared->control[0]->call;
    for (int r = 1; r < shared->base.size; r++) {
        const struct call *other = &shared->control[r]->call;
        if (load_relaxed(&other->sequence) == load_relaxed(&first->sequence) &&
            load_relaxed(&other->what) == load_relaxed(&first->what) &&
            load_relaxed(&other->amount) == load_relaxed(&first->amount))
            continue;
        return shared_fail(
            shared, RT_ERROR_USAGE,
            "ranks call different collectives: rank %d %s of %llu (call %llu), rank %d %s of %llu (call %llu)",
            shared->world[0], kind_name(load_relaxed(&first->what)), (unsigned long long)load_relaxed(&first->amount),
            (unsigned long long)load_relaxed(&first->sequence), shared->world[r], kind_name(load_relaxed(&other->what)),
            (unsigned long long)load_relaxed(&other->amount), (unsigned long long)load_relaxed(&other->sequence));
    }
    return RT_OK;
}

/* The part of the bytes [first, last) of a stream that lies in the window [start, end). */
static struct overlap overlap_of(uint64_t first, uint64_t last, uint64_t start, uint64_t end) {
    return (struct overlap){first > start ? first : start, last < end ? last : end};
}

struct overlap shared_slice(uint64_t bytes, int member, int size) {
    uint64_t lines = (bytes + RT_CACHE_LINE - 1) / RT_CACHE_LINE, share = (lines + (unsigned)size - 1) / (unsigned)size;
    uint64_t first = share * (unsigned)member * RT_CACHE_LINE, last = first + share * RT_CACHE_LINE;
    return (struct overlap){first < bytes ? first : bytes, last < bytes ? last : bytes};
}

/* Copies window `piece` of the caller's stream into its slot. In an all-reduce, omits the slice that the caller itself
 * reduces. */
static void stage(const struct shared *shared, const struct entry *entry, uint64_t piece) {
    const uint64_t start = piece * RT_SHARED_STAGE;
    if (start >= entry->bytes) return;
    const uint64_t left = entry->bytes - start, bytes = left < RT_SHARED_STAGE ? left : RT_SHARED_STAGE;
    const unsigned char *source = (const unsigned char *)entry->source + start;
    unsigned char *slot = shared_slot(shared, shared->base.rank, piece);
    struct overlap own = {bytes, bytes};
    if (entry->kind == RT_ALL_REDUCE && bytes > SMALL_REDUCTION)
        own = shared_slice(bytes, shared->base.rank, shared->base.size);
    memcpy(slot, source, own.first);
    memcpy(slot + own.last, source + own.last, bytes - own.last);
}

static int enter(struct shared *shared, const struct entry *entry, struct exchange *out) {
    struct call *mine = &shared->control[shared->base.rank]->call;
    if (shared_aborted(shared)) return RT_ERROR_PEER; /* others may still compare the call before */
    shared_begin_call(shared, entry->kind);
    store(&mine->sequence, ++shared->sequence);
    store(&mine->what, (uint64_t)entry->kind | (uint64_t)entry->dtype << 8 | (uint64_t)entry->detail << 16);
    store(&mine->amount, entry->amount);
    store(&mine->bytes, entry->bytes);
    store(&mine->source, shared_offset(shared, entry->source, entry->bytes));
    store(&mine->target, shared_offset(shared, entry->target, entry->target_bytes));
    if (entry->source && load_relaxed(&mine->source) == NOT_SYMMETRIC) stage(shared, entry, 0);
    int status = shared_barrier(shared);
    if (!status) status = check_same_call(shared);
    if (status) return status;

    *out = (struct exchange){0, true, true, true};
    for (int r = 0; r < shared->base.size; r++) {
        const struct call *call = &shared->control[r]->call;
        const uint64_t bytes = load_relaxed(&call->bytes);
        if (bytes > out->longest) out->longest = bytes;
        const bool symmetric = load_relaxed(&call->source) != NOT_SYMMETRIC;
        if (bytes > 0 && !symmetric) out->symmetric = false;
        if (bytes > 0 && symmetric) out->begun = false;
        if (load_relaxed(&call->target) == NOT_SYMMETRIC) out->symmetric_targets = false;
    }
    return RT_OK;
}

int shared_enter_split(struct shared *shared, int color) {
    struct exchange exchange;
    struct entry entry = {.kind = RT_SPLIT, .bytes = (unsigned)color};
    return enter(shared, &entry, &exchange);
}

int shared_barrier_call(struct rt_comm *comm) {
    struct shared *shared = shared_of(comm);
    shared_begin_call(shared, RT_BARRIER);
    shared->sequence++;
    return shared_barrier(shared);
}

/* Callback of exchange_windows: takes what the caller needs of bytes [start, end) of the streams. view[r] is the
 * address of byte `start` of member r's stream. */
typedef int take_fn(struct shared *shared, void *context, uint64_t start, uint64_t end);

static void view_sources(struct shared *shared) {
    for (int r = 0; r < shared->base.size; r++) {
        uint64_t offset = load_relaxed(&shared->control[r]->call.source);
        shared->view[r] =
            offset == NOT_SYMMETRIC ? NULL : shared_symmetric(shared, r) + offset; /* NULL: the stream is empty */
    }
}

static int stage_window(struct shared *shared, const struct exchange *exchange, const struct entry *entry,
                        uint64_t piece) {
    int status = RT_OK;
    if (piece > 0 || !exchange->begun) {
        stage(shared, entry, piece);
        status = shared_barrier(shared);
    }
    for (int r = 0; r < shared->base.size; r++) shared->view[r] = shared_slot(shared, r, piece);
    return status;
}

static int exchange_windows(struct shared *shared, const struct exchange *exchange, const struct entry *entry,
                            take_fn *take, void *context) {
    int status = RT_OK;
    if (exchange->symmetric) {
        view_sources(shared);
        status = take(shared, context, 0, exchange->longest);
    }
    for (uint64_t start = 0, piece = 0; !exchange->symmetric && start < exchange->longest && !status; piece++) {
        uint64_t left = exchange->longest - start, end = start + (left < RT_SHARED_STAGE ? left : RT_SHARED_STAGE);
        status = stage_window(shared, exchange, entry, piece);
        if (!status) status = take(shared, context, start, end);
        start = end;
    }
    return status ? status : shared_barrier(shared);
}

/* Copies the bytes [first, last) of member r's stream that lie in the window [start, end) to their place in dst. */
static void take_range(struct shared *shared, int r, unsigned char *dst, uint64_t first, uint64_t last, uint64_t start,
                       uint64_t end) {
    struct overlap part = overlap_of(first, last, start, end);
    if (part.first >= part.last) return;
    const unsigned char *from = (const unsigned char *)shared->view[r] + (part.first - start);
    if (dst + (part.first - first) != from) memcpy(dst + (part.first - first), from, part.last - part.first);
}

struct gather {
    unsigned char *dst;
    const size_t *bytes;
};

static int take_gather(struct shared *shared, void *context, uint64_t start, uint64_t end) {
    const struct gather *gather = context;
    unsigned char *dst = gather->dst;
    for (int r = 0; r < shared->base.size; r++) {
        take_range(shared, r, dst, 0, gather->bytes[r], start, end);
        dst += gather->bytes[r];
    }
    return RT_OK;
}

int shared_all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes) {
    struct shared *shared = shared_of(comm);
    struct gather gather = {dst, bytes};
    struct exchange exchange;
    struct entry entry = {
        .kind = RT_ALL_GATHER, .amount = rt_counts_total(bytes, comm->size), .bytes = bytes[comm->rank], .source = src};
    int status = enter(shared, &entry, &exchange);
    return status ? status : exchange_windows(shared, &exchange, &entry, take_gather, &gather);
}

/* A reduction of the bytes [first, last) of all streams into dst; src is the caller's own stream. */
struct reduction {
    unsigned char *dst;
    const unsigned char *src;
    uint64_t first, last;
    enum rt_dtype dtype;
    enum rt_reduce reduce;
    bool onto; /* dst is the first operand */
};

static void reduce_views(struct shared *shared, size_t skip, void *const *dst, int ndst, size_t bytes,
                         const struct reduction *what) {
    for (int r = 0; r < shared->base.size; r++) shared->view[r] = (const unsigned char *)shared->view[r] + skip;
    rt_reduce_ordered(dst, ndst, shared->view, shared->base.size, bytes / rt_dtype_bytes(what->dtype), what->dtype,
                      what->reduce);
    for (int r = 0; r < shared->base.size; r++) shared->view[r] = (const unsigned char *)shared->view[r] - skip;
}

/* dst becomes dst + the views' values. */
static void add_views(struct shared *shared, size_t skip, void *dst, size_t bytes, const struct reduction *what) {
    shared->addends[0] = dst;
    for (int r = 0; r < shared->base.size; r++) shared->addends[r + 1] = (const unsigned char *)shared->view[r] + skip;
    rt_reduce_ordered(&dst, 1, shared->addends, shared->base.size + 1, bytes / rt_dtype_bytes(what->dtype), what->dtype,
                      RT_SUM);
}

static int take_reduction(struct shared *shared, void *context, uint64_t start, uint64_t end) {
    const struct reduction *what = context;
    struct overlap part = overlap_of(what->first, what->last, start, end);
    if (part.first >= part.last) return RT_OK;
    void *dst = what->dst + (part.first - what->first);
    if (what->onto)
        add_views(shared, part.first - start, dst, part.last - part.first, what);
    else
        reduce_views(shared, part.first - start, &dst, 1, part.last - part.first, what);
    return RT_OK;
}

int shared_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                          enum rt_reduce reduce, bool onto) {
    struct shared *shared = shared_of(comm);
    const size_t element = rt_dtype_bytes(dtype);
    const uint64_t first = rt_counts_total(counts, comm->rank) * element,
                   bytes = rt_counts_total(counts, comm->size) * element;
    struct reduction what = {dst, src, first, first + counts[comm->rank] * element, dtype, reduce, onto};
    struct exchange exchange;
    struct entry entry = {
        .kind = RT_REDUCE_SCATTER, .dtype = dtype, .detail = reduce, .amount = bytes, .bytes = bytes, .source = src};
    int status = enter(shared, &entry, &exchange);
    return status ? status : exchange_windows(shared, &exchange, &entry, take_reduction, &what);
}

/* All-reduce with all buffers in symmetric memory: each member reduces its slice from all sources and stores it to all
 * targets. In-place calls are safe, because each slice of a buffer is read and written by one member only. */
static int all_reduce_in_place(struct shared *shared, uint64_t bytes, const struct reduction *what) {
    struct overlap slice = shared_slice(bytes, shared->base.rank, shared->base.size);
    view_sources(shared);
    for (int r = 0; r < shared->base.size; r++)
        shared->target[r] = shared_symmetric(shared, r) + load_relaxed(&shared->control[r]->call.target) + slice.first;
    if (slice.first < slice.last)
        reduce_views(shared, slice.first, shared->target, shared->base.size, slice.last - slice.first, what);
    return shared_barrier(shared);
}

/* Staged all-reduce. Small windows: each member reduces the whole window. Others: each member reduces its slice,
 * reading its own part from its source, and stores it to its target and its slot; after a barrier it copies the other
 * members' slices from their slots. */
static int take_all_reduce(struct shared *shared, void *context, uint64_t start, uint64_t end) {
    const struct reduction *what = context;
    unsigned char *dst = what->dst + start, *slot = shared_slot(shared, shared->base.rank, start / RT_SHARED_STAGE);
    if (end - start <= SMALL_REDUCTION) return take_reduction(shared, context, start, end);

    struct overlap slice = shared_slice(end - start, shared->base.rank, shared->base.size);
    void *const targets[] = {dst + slice.first, slot + slice.first};
    shared->view[shared->base.rank] = what->src + start;
    if (slice.first < slice.last) reduce_views(shared, slice.first, targets, 2, slice.last - slice.first, what);
    int status = shared_barrier(shared);
    for (int r = 0; r < shared->base.size && !status; r++) {
        struct overlap part = shared_slice(end - start, r, shared->base.size);
        if (r != shared->base.rank && part.first < part.last)
            memcpy(dst + part.first, (const unsigned char *)shared->view[r] + part.first, part.last - part.first);
    }
    return status;
}

int shared_all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                      enum rt_reduce reduce) {
    struct shared *shared = shared_of(comm);
    const uint64_t bytes = count * rt_dtype_bytes(dtype);
    struct reduction what = {dst, src, 0, bytes, dtype, reduce, false};
    struct exchange exchange;
    struct entry entry = {.kind = RT_ALL_REDUCE,
                          .dtype = dtype,
                          .detail = reduce,
                          .amount = bytes,
                          .bytes = bytes,
                          .source = src,
                          .target = dst,
                          .target_bytes = bytes};
    RT_TRY(enter(shared, &entry, &exchange));
    if (exchange.symmetric && exchange.symmetric_targets) return all_reduce_in_place(shared, bytes, &what);
    exchange.symmetric = false;
    return exchange_windows(shared, &exchange, &entry, take_all_reduce, &what);
}

struct trade {
    unsigned char *dst;
    const size_t *receive;
    bool mismatch;
};

static int take_trade(struct shared *shared, void *context, uint64_t start, uint64_t end) {
    struct trade *trade = context;
    unsigned char *dst = trade->dst;
    for (int r = 0; r < shared->base.size; r++) {
        const struct mailbox *box = shared_mailbox(shared, r, shared->base.rank);
        const uint64_t first = load_relaxed(&box->source), bytes = load_relaxed(&box->bytes);
        if (bytes == trade->receive[r])
            take_range(shared, r, dst, first, first + bytes, start, end);
        else
            trade->mismatch = true;
        dst += trade->receive[r];
    }
    return RT_OK;
}

int shared_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send) {
    struct shared *shared = shared_of(comm);
    struct trade trade = {dst, receive, false};
    struct exchange exchange;
    uint64_t bytes = 0;
    for (int r = 0; r < comm->size; r++) {
        struct mailbox *box = shared_mailbox(shared, comm->rank, r);
        store(&box->source, bytes);
        store(&box->bytes, send[r]);
        bytes += send[r];
    }
    struct entry entry = {.kind = RT_ALL_TO_ALL, .bytes = bytes, .source = src};
    int status = enter(shared, &entry, &exchange);
    if (!status) status = exchange_windows(shared, &exchange, &entry, take_trade, &trade);
    if (status || !trade.mismatch) return status;
    return shared_fail(shared, RT_ERROR_USAGE,
                       "all-to-all: the number of bytes that a rank sends differs from the number that is received");
}

struct cast {
    unsigned char *dst;
    uint64_t bytes;
    int root;
};

static int take_broadcast(struct shared *shared, void *context, uint64_t start, uint64_t end) {
    const struct cast *cast = context;
    if (shared->base.rank != cast->root) take_range(shared, cast->root, cast->dst, 0, cast->bytes, start, end);
    return RT_OK;
}

int shared_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root) {
    struct shared *shared = shared_of(comm);
    struct cast cast = {data, bytes, root};
    struct exchange exchange;
    if (root < 0 || root >= comm->size)
        return shared_fail(shared, RT_ERROR_USAGE, "broadcast from the invalid rank %d", root);
    struct entry entry = {.kind = RT_BROADCAST,
                          .detail = (unsigned)root,
                          .amount = bytes,
                          .bytes = comm->rank == root ? bytes : 0,
                          .source = data};
    int status = enter(shared, &entry, &exchange);
    return status ? status : exchange_windows(shared, &exchange, &entry, take_broadcast, &cast);
}
