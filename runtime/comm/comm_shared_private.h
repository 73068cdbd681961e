/* Shared by comm_shared.c (segment, waiting, membership), comm_exchange.c (collectives) and comm_sum.c (background
 * sums). */
#ifndef RT_COMM_SHARED_PRIVATE_H
#define RT_COMM_SHARED_PRIVATE_H

#include "comm/comm_shared.h"

/* A member's description of the call it enters. The other members read it between the barriers that enclose the
 * call. */
struct call {
    _Atomic uint64_t sequence;       /* calls so far on this communicator: equal on all members */
    _Atomic uint64_t what;           /* kind, dtype, reduction, root: equal on all members */
    _Atomic uint64_t amount;         /* bytes or elements where these must be equal too */
    _Atomic uint64_t bytes;          /* bytes of its source */
    _Atomic uint64_t source, target; /* offsets in its symmetric memory, or NOT_SYMMETRIC */
};

#define NOT_SYMMETRIC UINT64_MAX

/* A background sum that a member has begun: place of its data in its symmetric memory, number of elements, type. */
struct sum {
    _Atomic uint64_t offset, count, dtype;
};

/* Control block, one per level and rank. The barrier of a communicator is that of its member 0. */
struct control {
    _Alignas(RT_CACHE_LINE) _Atomic uint32_t arrived;
    /* identifies the rank's communicator of this level: world rank of its member 0, plus 1; 0: none */
    _Atomic uint32_t first;
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t generation;
    _Alignas(RT_CACHE_LINE) struct call call;
    /* number of background sums that this member has begun, and reduced its slice of: Note [Background sums] in
     * comm_sum.c */
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t begun, added;
    struct sum sum[RT_SHARED_SUMS]; /* the latest sums: number n is at n % RT_SHARED_SUMS */
};

/* Messages from one rank to another. `posted` counts the pieces sent, written by the sender only; `taken` those
 * received, written by the receiver only. */
struct mailbox {
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t posted, taken;
    _Atomic uint64_t bytes, source; /* of the message, or of this pair's part in an all-to-all */
    _Atomic uint32_t level;
};

/* Of a background reduce-scatter: the bytes [first, last) of the data that the member reduces, for itself alone. */
struct scatter {
    bool alone;
    uint64_t first, last;
};

struct shared {
    struct rt_comm base;
    unsigned char *segment;
    struct rt_progress *progress;
    size_t symmetric; /* bytes per rank, as passed to rt_comm_open_shared */
    int world_size, world_rank, level, spins;
    uint64_t sequence;
    uint64_t begun, added;                  /* copies of those in the rank's control block */
    struct scatter scatter[RT_SHARED_SUMS]; /* as `sum` of the control block */
    struct control **control;               /* by member */
    int *world;                             /* world rank by member */
    const void **view;                      /* by member: address of the member's data in the current call */
    const void **addends;                   /* a first addend, then that of each member */
    void **target;
};

static inline struct shared *shared_of(struct rt_comm *comm) {
    return (struct shared *)(void *)comm;
}

int shared_fail(struct shared *shared, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Waits until *word, in the segment, is >= value. RT_OK, or RT_ERROR_PEER once the job is aborted. `whose`: the member
 * that writes the word, or SHARED_ALL. */
enum { SHARED_ALL = -1 };
int shared_wait(struct shared *shared, const _Atomic uint64_t *word, uint64_t value, int whose);
int shared_barrier(struct shared *shared);
bool shared_aborted(const struct shared *shared);

struct mailbox *shared_mailbox(const struct shared *shared, int from, int to); /* from, to: members */
unsigned char *shared_slot(const struct shared *shared, int member, uint64_t piece);
unsigned char *shared_symmetric(const struct shared *shared, int member);

/* Offset of a buffer in the caller's symmetric memory, or NOT_SYMMETRIC. */
uint64_t shared_offset(const struct shared *shared, const void *buffer, size_t bytes);

/* The byte range [first, last) of `bytes` that a member reduces for all: whole cache lines, so that no two members
 * write to the same line. */
struct overlap {
    uint64_t first, last;
};
struct overlap shared_slice(uint64_t bytes, int member, int size);

/* Records the beginning of a call in the rank's progress. */
void shared_begin_call(struct shared *shared, enum rt_operation operation);

/* Collectives, in comm_exchange.c. */
int shared_enter_split(struct shared *shared, int color);
int shared_all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                      enum rt_reduce reduce);
int shared_all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes);
int shared_reduce_scatter_onto(struct rt_comm *comm, void *dst, const void *src, const size_t *counts,
                               enum rt_dtype dtype);
int shared_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                          enum rt_reduce reduce);
int shared_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send);
int shared_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root);
int shared_send(struct rt_comm *comm, const void *src, size_t bytes, int to);
int shared_receive(struct rt_comm *comm, void *dst, size_t bytes, int from);
int shared_barrier_call(struct rt_comm *comm);

/* Background sums, in comm_sum.c. */
int shared_sum_begin(struct rt_comm *comm, void *data, size_t count, enum rt_dtype dtype);
int shared_scatter_begin(struct rt_comm *comm, void *data, const size_t *counts, enum rt_dtype dtype);
int shared_sum_progress(struct rt_comm *comm);
int shared_sum_finish(struct rt_comm *comm);

#endif
