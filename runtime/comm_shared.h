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
#define RT_CACHE_LINE      64

/* What a rank does, for whoever finds it stuck or dead. */
struct rt_progress {
    _Alignas(RT_CACHE_LINE) _Atomic int64_t step; /* steps begun */
    _Atomic int64_t calls;                        /* collectives and messages begun */
    _Atomic int site;                             /* instruction under way, see rt.h */
    _Atomic int finished;                         /* the rank has done all it was started for */
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

/* Bytes of a segment before its symmetric part; a launcher maps these. */
size_t rt_shared_control_bytes(int size);

/* True for the first caller of the job only. */
bool rt_shared_claim_report(void *segment);

#endif
