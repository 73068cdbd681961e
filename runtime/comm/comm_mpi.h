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

/* Connects the ranks of MPI_COMM_WORLD, or of the communicator in the caller's variable `callers`, an MPI_Comm;
 * collective. Fails like rt_mpi_open and rt_mpi_adopt. */
int rt_mpi_job_open(struct rt_mpi_job **out, const void *callers, char *why, size_t room);

/* As MPI counts. single: the caller promised MPI that this process has one thread. */
int rt_mpi_job_rank(const struct rt_mpi_job *job);
int rt_mpi_job_size(const struct rt_mpi_job *job);
bool rt_mpi_job_single(const struct rt_mpi_job *job);

/* all = every rank's `bytes` bytes in rank order. */
int rt_mpi_job_gather(struct rt_mpi_job *job, void *all, const void *mine, int bytes);

/* The communicator of all ranks. host[r]: the lowest rank on rank r's host. inside: communicator in shared memory of
 * the ranks on the caller's host, in rank order; owned by the result, and itself the result where all ranks are on
 * one host. */
int rt_mpi_job_connect(struct rt_mpi_job *job, const int *host, struct rt_comm *inside, struct rt_comm **out);

/* After a failure, before memory that was communicated is released: ends all transfers. True if MPI may access memory
 * of one that could not be ended; such memory must stay allocated. */
bool rt_mpi_job_accesses(struct rt_mpi_job *job);

/* After all communicators were closed. MPI is finalised when the process exits, unless the caller has initialised it or
 * the job has failed (rt_mpi_close). A failed job's communicator stays allocated. NULL: nothing. */
void rt_mpi_job_close(struct rt_mpi_job *job, bool failed);

#endif
