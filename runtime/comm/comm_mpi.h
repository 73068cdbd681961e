/* Ranks of several hosts, by MPI.
 *
 * Note [Hosts]
 * The ranks of one host share memory (comm_shared.h): their communicators are those of shared memory, and only
 * communicators with ranks of several hosts use MPI. In those, `inside` joins the members on the caller's host.
 * All transfers are point to point; the order of reductions is that of comm.h, so results are those of shared memory,
 * bit for bit, whatever the hosts.
 *
 * MPI is called by one thread per process. A rank that waits, in shared memory too, advances its MPI transfers. */
#ifndef RT_COMM_MPI_H
#define RT_COMM_MPI_H

#include "comm.h"
#include "comm/mpi_library.h"

struct rt_mpi_job;

/* Connects the ranks of MPI_COMM_WORLD; collective. rank, size: the caller's, as MPI counts. */
int rt_mpi_job_open(struct rt_mpi_job **out, int *rank, int *size, char *why, size_t room);

/* all = every rank's `bytes` bytes in rank order. */
int rt_mpi_job_gather(struct rt_mpi_job *job, void *all, const void *mine, int bytes);

/* The communicator of all ranks. host[r]: the lowest rank on rank r's host. inside: communicator in shared memory of
 * the ranks on the caller's host, in rank order; owned by the result, and itself the result where all ranks are on
 * one host. */
int rt_mpi_job_connect(struct rt_mpi_job *job, const int *host, struct rt_comm *inside, struct rt_comm **out);

/* After all communicators were closed. Calls MPI_Finalize unless the job has failed: then MPI's launcher ends the other
 * ranks when this process ends. NULL: nothing. */
void rt_mpi_job_close(struct rt_mpi_job *job, bool failed);

#endif
