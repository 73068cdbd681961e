/* The shared-memory segment through which ranks of one machine communicate, as its launcher sees it.
 *
 * Note [Segment]
 * Layout, in order: a header; the progress record of each rank; a control block per level and rank; a mailbox per
 * ordered pair of ranks; a staging slot per rank; space for staged messages per ordered pair; the symmetric memory of
 * each rank. Only the last part depends on the program, so a launcher can create the rest from the number of ranks.
 * Pages that are never touched use no memory.
 *
 * Each communicator has a level: a number below RT_SHARED_LEVELS. A split gives its new communicators the lowest level
 * that no member of the parent uses. Two communicators of the same level therefore have no rank in common, and the
 * words indexed by (level, rank) belong to one communicator. Staging slots are not per level: a rank is in one call at
 * a time, and no call returns before all other members have read the caller's slot.
 *
 * All words that two ranks access are atomic. All other data is synchronised by the barriers and mailbox counters. */
#ifndef RT_COMM_SHARED_H
#define RT_COMM_SHARED_H

#include "base/thread/wait.h"
#include "comm.h"

#include <stdatomic.h>

#define RT_SHM_FD_VARIABLE "RANKC_SHM_FD"      /* environment variable: the segment's file descriptor */
#define RT_SHARED_LEVELS   32                  /* communicators a rank can be in at once */
#define RT_SHARED_STAGE    ((size_t)128 << 10) /* bytes staged at a time; a slot holds two such pieces */
/* background collectives of a communicator that may be in flight (comm_background.c) */
#define RT_SHARED_BACKGROUND 32
#define RT_SHARED_MESSAGES   16 /* messages of an ordered pair that are announced ahead of the receiver */
#define RT_SHARED_MAIL       ((size_t)32 << 10) /* bytes of a staged piece of a message; a pair has room for two */
#define RT_CACHE_LINE        64

/* The kinds of calls of a communicator. */
enum rt_operation {
    RT_NO_OPERATION,
    RT_BARRIER,
    RT_ALL_REDUCE,
    RT_ALL_GATHER,
    RT_REDUCE_SCATTER,
    RT_ALL_TO_ALL,
    RT_BROADCAST,
    RT_SPLIT,
    RT_SEND,
    RT_RECEIVE,
    RT_BEGIN_SUM,
    RT_FINISH_SUMS,
    RT_BEGIN_GATHER,
    RT_FINISH_GATHER,
    RT_OPERATIONS
};

/* What a rank does, for reports about a stuck or dead rank; only the rank writes it. `moves` counts progress: it stops
 * in a rank that runs but completes nothing. */
struct rt_activity {
    _Alignas(RT_CACHE_LINE) _Atomic int64_t moves; /* instructions, calls and waits completed; 0 until the rank joins */
    _Atomic int64_t step;                          /* steps begun */
    _Atomic int64_t calls;                         /* collectives and messages begun */
    _Atomic uint64_t awaited, value; /* the rank waits until the word at offset `awaited` of the segment is >= value */
    _Atomic uint32_t wait;           /* which rank or communicator writes that word, see publish_wait; 0: no wait */
    _Atomic int operation;           /* of the last call: enum rt_operation */
    _Atomic int instruction;         /* last instruction recorded by rt_at (rt.h); -1: none */
    _Atomic int finished;            /* the rank completed its run */
    _Atomic int core;                /* that it was on when it last began to wait */
    _Alignas(RT_CACHE_LINE) struct rt_bell
        bell;                        /* where the rank sleeps; rung by others after they stored what it may await */
    _Atomic uint32_t opened, closed; /* how often it has opened and closed the communicator of all ranks */
};

/* Segment header: words that the launcher, and ranks before they join, access. */
struct rt_shared_header {
    _Alignas(RT_CACHE_LINE) _Atomic uint32_t aborted;
    _Alignas(RT_CACHE_LINE) _Atomic uint32_t reported; /* set by the process that prints the job's one error */
    _Atomic uint32_t size;                             /* ranks; 0 until the first one joins */
    _Atomic uint64_t symmetric;                        /* bytes per rank, plus one; 0 until the first one joins */
};

static inline struct rt_shared_header *rt_shared_header(void *segment) {
    return segment;
}
struct rt_activity *rt_shared_progress(void *segment, int rank);

/* rt_shared_waits: true if the rank waits for another rank. rt_shared_waits_for: true if `waiter` cannot continue
 * before rank `other` does something. A wait whose condition already holds, such as that of a rank stopped by a signal,
 * does not count. */
bool rt_shared_waits(void *segment, int rank);
bool rt_shared_waits_for(void *segment, int waiter, int other);

/* Such as "all-reduce"; "?" for an invalid number. */
const char *rt_shared_operation_name(int operation);

/* Bytes of a segment without its symmetric part: what a launcher maps. */
size_t rt_shared_control_bytes(int size);

/* True for the first caller in the job only, which then prints the job's error. */
bool rt_shared_claim_report(void *segment);

#endif
