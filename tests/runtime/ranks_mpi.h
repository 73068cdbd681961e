/* The rank of an MPI job that this process is, where mpirun or mpiexec has started it. */
#ifndef RANKS_MPI_H
#define RANKS_MPI_H

#include "comm/comm_mpi.h"

/* Connects the job's ranks. hosts: a letter per rank; ranks of one letter share a host. Returns 0, or 1 after printing
 * why. */
int mpi_ranks_open(const char *hosts, size_t symmetric, struct rt_mpi_job **job, struct rt_comm **comm);

#endif
