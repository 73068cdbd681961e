/* Shared by comm_mpi.c (job, transfers, membership) and comm_mpi_exchange.c (collectives). */
#ifndef RT_COMM_MPI_PRIVATE_H
#define RT_COMM_MPI_PRIVATE_H

#include "comm/comm_mpi.h"
#include "comm/comm_shared_private.h"

#include <pthread.h>

enum mpi_tag { MPI_TAG_MESSAGE = 1, MPI_TAG_COLLECTIVE, MPI_TAG_ABORT };

/* A transfer that MPI has not completed. request->number is its index among those of the job. */
struct mpi_transfer {
    rt_mpi_handle part[2]; /* the blocks of a long message, and the rest; 0: complete, or none */
    struct rt_request *request;
    bool sends;
};

struct rt_mpi_job {
    struct rt_mpi mpi;
    rt_mpi_handle comm;  /* a duplicate of MPI_COMM_WORLD, or of the caller's communicator */
    rt_mpi_handle block; /* type of MPI_BLOCK bytes, for messages of more bytes than an int counts */
    int rank, size;
    int *host;                      /* by rank: lowest rank of its host */
    struct rt_comm *inside;         /* the ranks of this host */
    struct mpi_transfer *transfers; /* that are not complete, in any order */
    int ntransfers, most_transfers;
    pthread_t thread;    /* the one that calls MPI */
    rt_mpi_handle news;  /* pending receive of an abort; 0: none */
    char word, farewell; /* its buffer; what is sent */
    bool aborted, told;  /* this rank knows; it has told the ranks of other hosts */
    bool callers;        /* MPI is the caller's, who goes on after the job */
    bool accessed;       /* a transfer of the failed job could not be ended: its memory stays allocated */
    unsigned char *scratch;
    size_t room;
};

/* A member's description of the call it enters, for one other member. */
struct mpi_call {
    uint64_t sequence, what, amount; /* equal on all members; `what`: kind, dtype, reduction or root */
    int64_t detail;                  /* color of a split; bytes for that member in an all-to-all */
};

struct mpi_comm {
    struct rt_comm base;
    struct rt_mpi_job *job;
    struct rt_comm *inside; /* the members on the caller's host */
    int *world;             /* by member */
    int hosts; /* hosts if each has as many members as the others, and members are numbered host by host; else 0 */
    uint64_t sequence;
    struct mpi_call mine, *calls; /* by member */
    struct rt_request *work;      /* transfers of a collective: two per member */
    int nwork;
    const void **view; /* a first addend, then by member */
    size_t *counts;    /* by member */
};

static inline struct mpi_comm *mpi_of(struct rt_comm *comm) {
    return (struct mpi_comm *)(void *)comm;
}

int mpi_fail(struct mpi_comm *comm, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Transfers of a collective: begin any number, then settle. */
int mpi_begin_send(struct mpi_comm *comm, const void *src, size_t bytes, int to);
int mpi_begin_receive(struct mpi_comm *comm, void *dst, size_t bytes, int from);
int mpi_settle(struct mpi_comm *comm);

/* Collectives, in comm_mpi_exchange.c. mpi_enter: all members' calls are known and agree; the detail is that of
 * `details` for each member, or `detail` where that is NULL. */
int mpi_enter(struct mpi_comm *comm, enum rt_operation kind, unsigned what, uint64_t amount, int64_t detail,
              const size_t *details);
int mpi_barrier(struct rt_comm *comm);
int mpi_all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                   enum rt_reduce reduce);
int mpi_all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes);
int mpi_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                       enum rt_reduce reduce, bool onto);
int mpi_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send);
int mpi_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root);

/* Memory for a collective, kept for the next one. NULL: none is left. */
unsigned char *mpi_scratch(struct mpi_comm *comm, size_t bytes);

#endif
