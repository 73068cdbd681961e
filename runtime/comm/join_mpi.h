/* Joining by MPI; part of join.c. */
#ifndef RT_JOIN_MPI_H
#define RT_JOIN_MPI_H

#include "core/private.h"

/* Takes the caller's options->mpi_comm: sets the rank and the number of ranks. */
int rt_adopt_mpi(struct rt *rt, const struct rt_options *options);

/* Connects the rt->world ranks, which an MPI launcher has started or the caller's communicator has; sets rt->comm and
 * the rank's number on its host. */
int rt_join_mpi(struct rt *rt);

/* Checks that rt->threads are allowed where the caller has initialised MPI. */
int rt_check_mpi_threads(struct rt *rt);

/* Opens the communicator of `size` ranks in the shared memory `fd`, which the caller may close; in join.c. */
int rt_open_segment(struct rt *rt, int fd, int rank, int size, struct rt_comm **out);

#endif
