/* What comm_shared.c (segment, waiting, membership) and comm_exchange.c (moving data) share. */
#ifndef RT_COMM_SHARED_PRIVATE_H
#define RT_COMM_SHARED_PRIVATE_H

#include "comm/comm_shared.h"

/* What a member says about the call it enters, read by the others between the barriers around the call's body. */
struct call {
    _Atomic uint64_t sequence;       /* calls so far on this communicator: equal on all members */
    _Atomic uint64_t what;           /* kind, dtype, reduction, root: equal on all members */
    _Atomic uint64_t amount;         /* bytes or elements where these must be equal too */
    _Atomic uint64_t bytes;          /* of its source */
    _Atomic uint64_t source, target; /* offsets in its symmetric memory, or NOT_SYMMETRIC */
};

#define NOT_SYMMETRIC UINT64_MAX

/* A sum that a member has begun: where its data lies in its symmetric memory. */
struct sum {
    _Atomic uint64_t offset, count, dtype;
};

/* One per level and rank. A communicator's barrier lies in the block of its member 0. */
struct control {
    _Alignas(RT_CACHE_LINE) _Atomic uint32_t arrived;
    _Atomic uint32_t first; /* of the rank's own communicator of that level: member 0, as world rank + 1; 0: none */
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t generation;
    _Alignas(RT_CACHE_LINE) struct call call;
    /* sums, by this member: Note [Sums meanwhile] in comm_sum.c */
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t begun, added;
    struct sum sum[RT_SHARED_SUMS]; /* the latest ones, number n at n % RT_SHARED_SUMS */
};

/* From one rank to another. Only the sender writes `posted`, only the receiver `taken`: pieces so far. */
struct mailbox {
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t posted, taken;
    _Atomic uint64_t bytes, source; /* of the message, or of this pair's part of an all-to-all */
    _Atomic uint32_t level;
};

struct shared {
    struct rt_comm base;
    unsigned char *segment;
    struct rt_progress *progress;
    size_t symmetric; /* bytes per rank, as asked for */
    int world_size, world_rank, level, spins;
    uint64_t sequence;
    uint64_t begun, added;    /* as the rank's own control block says */
    struct control **control; /* by member */
    int *world;               /* world rank by member */
    const void **view;        /* by member: where this call finds the member's data */
    void **target;
};

static inline struct shared *shared_of(struct rt_comm *comm) {
    return (struct shared *)(void *)comm;
}

int shared_fail(struct shared *c, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Waits until *word, of the segment, is >= value: RT_OK, or RT_ERROR_PEER once the job is aborted. `whose` says who
 * moves the word: a member of the communicator, or all of them. */
enum { SHARED_ALL = -1 };
int shared_wait(struct shared *c, const _Atomic uint64_t *word, uint64_t value, int whose);
int shared_barrier(struct shared *c);
bool shared_aborted(const struct shared *c);

struct mailbox *shared_mailbox(const struct shared *c, int from, int to); /* members */
unsigned char *shared_slot(const struct shared *c, int member, uint64_t piece);
unsigned char *shared_symmetric(const struct shared *c, int member);

/* Offset of a buffer in the caller's symmetric memory, or NOT_SYMMETRIC. */
uint64_t shared_offset(const struct shared *c, const void *buffer, size_t bytes);

/* Bytes [first, last) of `bytes` that a member reduces for all: whole cache lines, so that members do not write to the
 * same one. */
struct overlap {
    uint64_t first, last;
};
struct overlap shared_slice(uint64_t bytes, int member, int size);

/* Records that a call begins. */
void shared_begin_call(struct shared *c, enum rt_operation operation);

/* Collectives, in comm_exchange.c. */
int shared_enter_split(struct shared *c, int color);
int shared_all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                      enum rt_reduce reduce);
int shared_all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes);
int shared_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                          enum rt_reduce reduce);
int shared_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send);
int shared_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root);
int shared_send(struct rt_comm *comm, const void *src, size_t bytes, int to);
int shared_receive(struct rt_comm *comm, void *dst, size_t bytes, int from);
int shared_barrier_call(struct rt_comm *comm);

/* Sums in the background, in comm_sum.c. */
int shared_sum_begin(struct rt_comm *comm, void *data, size_t count, enum rt_dtype dtype);
int shared_sum_progress(struct rt_comm *comm);
int shared_sum_finish(struct rt_comm *comm);

#endif
