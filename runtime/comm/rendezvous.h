/* Rendezvous: how ranks that were started one by one - by torchrun, mpirun, srun or by hand - find each other.
 *
 * Note [Meeting]
 * Rank 0 listens; the other ranks connect and send their rank, number of ranks and program hash. Rank 0 waits for all
 * of them and tells them whether the job is complete. It sends every error to all ranks and alone prints it. Then the
 * other ranks map the shared memory that rank 0 has made (comm_shared.h), as they would inherit it from a launcher.
 *
 * The connections stay open: when one closes without a farewell, that rank has died, and the waits of the others are
 * ended. */
#ifndef RT_RENDEZVOUS_H
#define RT_RENDEZVOUS_H

#include "core/private.h"

/* Joins this rank and the rt->world - 1 others at a place:
 *
 *     HOST:PORT   rank 0 listens there
 *     file:PATH   rank 0 writes its address to a file that all ranks can read
 *     mpi         rank 0 broadcasts its address with the MPI that started the ranks
 *     NULL        MASTER_ADDR and MASTER_PORT if set, else mpi if an MPI launcher's variables are set
 *
 * RT_OK: *segment is a descriptor of the shared memory, owned by the caller. RT_ERROR_PEER: not all ranks came within
 * `seconds`. RT_ERROR_MISMATCH: ranks differ in the number of ranks or in the program. */
int rt_meet(struct rt *rt, const char *place, int seconds, int *segment);

/* Starts a thread that aborts the job in the mapped segment when a rank is lost. */
int rt_meeting_watch(struct rt *rt, void *segment);

/* The rank that was lost, if this rank has noticed; -1: none. meeting may be NULL. */
int rt_meeting_lost(const struct rt_meeting *meeting);

/* Sends the farewell and closes the connections. Call it while the segment is still mapped. */
void rt_meeting_close(struct rt_meeting *meeting);

#endif
