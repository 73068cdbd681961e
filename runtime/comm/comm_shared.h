/* The segment that ranks sharing memory communicate through, and what the launcher does with it.
 *
 * Note [Segment]
 * In order: a header; the progress of each rank; a control block per level and rank; a mailbox per ordered pair of
 * ranks; a staging slot per rank; the symmetric memory of each rank. Only the last depends on the program, so a
 * launcher that knows the number of ranks alone can make the rest. Untouched pages cost nothing.
 *
 * A communicator is a level and its members. Splitting takes, for all members of the parent alike, the lowest level
 * that none of them uses, so two communicators of one level have no rank in common, and words indexed by (level,
 * rank) are each communicator's own. The staging slots need no level: a rank is in one call at a time, and no call
 * returns before all others have read what the caller staged.
 *
 * Every word that two ranks touch is atomic; all else is ordered by the barriers and mailbox counters. */
#ifndef RT_COMM_SHARED_H
#define RT_COMM_SHARED_H

#include "comm.h"

#include <stdatomic.h>

#define RT_SHM_FD_VARIABLE "RANKC_SHM_FD"      /* environment: file descriptor of the segment, from the launcher */
#define RT_SHARED_LEVELS   32                  /* communicators a rank can be in at once */
#define RT_SHARED_STAGE    ((size_t)128 << 10) /* bytes staged at a time; a slot holds two such pieces */
#define RT_SHARED_MAX      4096                /* ranks */
#define RT_SHARED_SUMS     32                  /* of a communicator, begun and not added up (comm_sum.c) */
#define RT_CACHE_LINE      64

/* What a call of a communicator is. */
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
    RT_OPERATIONS
};

/* What a rank does, for whoever finds it stuck or dead; only the rank writes it. A rank that lives but gets nothing
 * done does not move: neither time nor signs of life are progress. */
struct rt_progress {
    _Alignas(RT_CACHE_LINE) _Atomic int64_t moves; /* instructions, calls and waits done; 0 until the rank joins */
    _Atomic int64_t step;                          /* steps begun */
    _Atomic int64_t calls;                         /* collectives and messages begun */
    _Atomic uint64_t awaited, value; /* offset of the word it waits for in the segment, until that is >= value */
    _Atomic uint32_t wait;           /* whose word that is, see shared_wait; 0: it does not wait */
    _Atomic int operation;           /* the last call: enum rt_operation */
    _Atomic int site;                /* the last instruction that said so, see rt_at in rt.h; -1: none of them */
    _Atomic int finished;            /* the rank has done all it was started for */
};

/* Words of a segment that outsiders use: its launcher, and ranks before they join. */
struct rt_shared_header {
    _Alignas(RT_CACHE_LINE) _Atomic uint32_t aborted;
    _Alignas(RT_CACHE_LINE) _Atomic uint32_t reported; /* the job's one error was printed, by whoever set this */
    _Atomic uint32_t size;                             /* ranks; 0 until the first one joins */
    _Atomic uint64_t symmetric;                        /* bytes per rank, plus one; 0 until the first one joins */
};

static inline struct rt_shared_header *rt_shared_header(void *segment) {
    return segment;
}
struct rt_progress *rt_shared_progress(void *segment, int rank);

/* True if the rank is in a call that cannot return before another rank does something; then, before rank `other` does.
 * A rank that was stopped in a wait that is over meanwhile does not wait. */
bool rt_shared_waits(void *segment, int rank);
bool rt_shared_waits_for(void *segment, int waiter, int other);

/* "all-reduce"; "?" for what is none. */
const char *rt_shared_operation_name(int operation);

/* Bytes of a segment before its symmetric part; a launcher maps these. */
size_t rt_shared_control_bytes(int size);

/* True for the first caller of the job only. */
bool rt_shared_claim_report(void *segment);

#endif
