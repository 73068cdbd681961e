/* Shared by comm_shared.c (segment, waiting, membership), comm_exchange.c (collectives), comm_message.c (messages) and
 * comm_background.c (collectives that overlap computation). */
#ifndef RT_COMM_SHARED_PRIVATE_H
#define RT_COMM_SHARED_PRIVATE_H

#include "base/text/reason.h"
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

/* A background collective that a member has begun. offset: of its data in its symmetric memory; of a gather, of its own
 * part. amount: elements of a reduction; bytes of the part of a gather. what: the type of a reduction, or GATHERS. */
struct background {
    _Atomic uint64_t offset, amount, what;
};
enum { GATHERS = RT_DTYPE_COUNT };

/* Control block, one per level and rank. The barrier of a communicator is that of its member 0. */
struct control {
    _Alignas(RT_CACHE_LINE) _Atomic uint32_t arrived;
    /* identifies the rank's communicator of this level: world rank of its member 0, plus 1; 0: none */
    _Atomic uint32_t first;
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t generation;
    _Alignas(RT_CACHE_LINE) struct call call;
    /* number of background collectives that this member has begun, and done its share of: Note [Background
     * collectives] in comm_background.c */
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t begun, done;
    struct background background[RT_SHARED_BACKGROUND]; /* the latest: number n is at n % RT_SHARED_BACKGROUND */
};

/* A message that its sender has posted: size, place in the sender's symmetric memory (NOT_SYMMETRIC: it is staged in
 * pieces), level of the communicator. */
struct message {
    _Atomic uint64_t bytes, source, level;
};

/* From one rank to another; Note [Messages] in comm_message.c. The sender counts the messages that it has posted and
 * the pieces that it has staged; the receiver counts the messages and the pieces that it has taken. */
struct mailbox {
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t posted, staged;
    _Atomic uint64_t bytes, source; /* of this pair's part in an all-to-all */
    _Alignas(RT_CACHE_LINE) _Atomic uint64_t taken, unstaged;
    _Alignas(RT_CACHE_LINE) struct message message[RT_SHARED_MESSAGES]; /* number n, from 0, is at n % the length */
};

/* Transfers in one direction between the caller and another rank that are not complete, in the order of posting. */
struct queue {
    struct rt_request *first, *last;
    struct mailbox *box;            /* of the pair and direction; this and the rest are set with the first posting */
    struct rt_bell *bell;           /* of the peer */
    unsigned char *mail;            /* its two staged pieces */
    const unsigned char *symmetric; /* symmetric memory of the sender */
};

/* The transfers that a rank has posted: one for all communicators that were split from one another. */
struct transfers {
    int users;                    /* communicators */
    int outstanding;              /* transfers that are not complete */
    int failed;                   /* status of the first call that failed: from then on no transfer is accessed */
    struct queue *to, *from;      /* by world rank */
    int (*beside)(void *context); /* advances transfers of another transport; NULL: there is none */
    void *context;
};

/* A member's share of a background collective that it has begun. Reduce-scatter: reduces bytes [first, last) of the
 * data, for itself alone. Gather: copies the other members' parts to bytes [first, last) of its symmetric memory. */
struct share {
    enum rt_early kind;
    uint64_t first, last;
};

struct shared {
    struct rt_comm base;
    unsigned char *segment;
    struct rt_activity *progress;
    size_t symmetric; /* bytes per rank, as passed to rt_comm_open_shared */
    int world_size, world_rank, level;
    uint32_t opening; /* rt_activity.opened of this rank */
    uint64_t sequence;
    uint64_t begun, done;                     /* copies of those in the rank's control block */
    struct share share[RT_SHARED_BACKGROUND]; /* as `background` of the control block */
    uint64_t gathers, gathered;               /* gathers that have begun, and that were finished */
    uint64_t gather[RT_SHARED_BACKGROUND];    /* of gather g, at g % RT_SHARED_BACKGROUND: number of the collective */
    struct control **control;                 /* by member */
    int *world;                               /* world rank by member */
    const void **view;                        /* by member: address of the member's data in the current call */
    const void **addends;                     /* a first addend, then that of each member */
    void **target;
    struct transfers *transfers;
};

static inline uint64_t load_relaxed(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}
static inline struct shared *shared_of(struct rt_comm *comm) {
    return (struct shared *)(void *)comm;
}

int shared_fail(struct shared *shared, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Waits until *word, in the segment, is >= value. RT_OK, RT_ERROR_PEER once the job is aborted, or RT_ERROR_SYSTEM if a
 * rank that is waited for has closed its communicator. `whose`: the member that writes the word, or SHARED_ALL. Posted
 * transfers advance meanwhile. */
enum { SHARED_ALL = -1 };
int shared_wait(struct shared *shared, const _Atomic uint64_t *word, uint64_t value, int whose);
/* A wait for something outside of the segment begins or ends. */
void shared_wait_elsewhere(struct shared *shared, bool begins);
int shared_barrier(struct shared *shared);
/* A member's bell is rung after each store to a word that the member may wait for. */
struct rt_bell *shared_bell(const struct shared *shared, int member);
void shared_ring_all(const struct shared *shared); /* of the other members */
void shared_count_move(struct shared *shared);     /* records that the rank has completed something */
bool shared_aborted(const struct shared *shared);

struct mailbox *shared_mailbox(const struct shared *shared, int from, int to); /* from, to: members */
unsigned char *shared_mail(const struct shared *shared, int from, int to);     /* two pieces */
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
int shared_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                          enum rt_reduce reduce, bool onto);
int shared_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send);
int shared_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root);
int shared_barrier_call(struct rt_comm *comm);

/* Messages, in comm_message.c. */
int shared_post_send(struct rt_comm *comm, const void *src, size_t bytes, int to, struct rt_request *request);
int shared_post_receive(struct rt_comm *comm, void *dst, size_t bytes, int from, struct rt_request *request);
int shared_wait_request(struct rt_comm *comm, struct rt_request *request);
int shared_send(struct rt_comm *comm, const void *src, size_t bytes, int to);
int shared_receive(struct rt_comm *comm, void *dst, size_t bytes, int from);
/* Advances the caller's posted transfers without waiting. */
int shared_advance(struct shared *shared);
struct transfers *shared_new_transfers(int ranks);
void shared_leave_transfers(struct transfers *transfers);

/* Collectives that overlap computation, in comm_background.c. */
int shared_begin(struct rt_comm *comm, const struct rt_collective *what);
int shared_progress(struct rt_comm *comm);
int shared_finish(struct rt_comm *comm, enum rt_early kind);

#endif
