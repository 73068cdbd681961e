/* Joining by MPI; part of join.c. */
#ifndef RT_JOIN_MPI_H
#define RT_JOIN_MPI_H

#include "core/private.h"

/* Connects the rt->world ranks, which an MPI launcher has started; sets rt->comm and the rank's number on its host. */
int rt_join_mpi(struct rt *rt);

/* Opens the communicator of `size` ranks in the shared memory `fd`, which the caller may close; in join.c. */
int rt_open_segment(struct rt *rt, int fd, int rank, int size, struct rt_comm **out);

#endif
