/* How ranks that were started one by one - by torchrun, mpirun, srun or by hand - find each other.
 *
 * Note [Meeting]
 * The first rank listens, the others connect to it and say who they are: rank, number of ranks, program. It waits
 * for all of them, and says whether the job is complete; what is wrong it says to all, and one diagnostic is
 * printed, by it. Then the others map the shared memory that it has made (comm_shared.h), as they would get it from
 * a launcher.
 *
 * Their links stay open: a rank that goes without a farewell is noticed at once, and ends the waits of the others.
 */
#ifndef RT_RENDEZVOUS_H
#define RT_RENDEZVOUS_H

#include "core/private.h"

/* Joins rt->rank to the rt->world - 1 others at a place:
 *
 *     HOST:PORT   where the first rank listens
 *     file:PATH   the first rank writes to a file that all see where it listens
 *     mpi         it tells them by a broadcast of the MPI that started them
 *     NULL        MASTER_ADDR and MASTER_PORT, else the MPI whose launcher's variables are there
 *
 * RT_OK gives a descriptor of shared memory, which is the caller's. Ranks that have not come after `seconds` are
 * RT_ERROR_PEER; RT_ERROR_MISMATCH: another number of ranks or another program. */
int rt_meet(struct rt *rt, const char *place, int seconds, int *segment);

/* From here on a rank that is lost ends all waits in the mapped segment. */
int rt_meeting_watch(struct rt *rt, void *segment);

/* The rank that was lost, as far as this one knows; -1: none. meeting may be NULL. */
int rt_meeting_lost(const struct rt_meeting *meeting);

/* Takes leave of the others. The segment is still mapped. */
void rt_meeting_close(struct rt_meeting *meeting);

#endif
