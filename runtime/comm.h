/* Communication between the ranks of a program: one table of functions (driver), one implementation per transport.
 *
 * A communicator joins `size` ranks; `rank` is the caller's place among them. All members call the same collectives in
 * the same order. Every call blocks until its result is usable and returns RT_OK or a status. No call blocks after the
 * job was aborted: waits then end with RT_ERROR_PEER.
 *
 * Every reduction combines the ranks' values in rank order (0, 1, 2, ...), for each element. Results are therefore the
 * same on all ranks and do not depend on the transport, on timing or on the division of a buffer into pieces. f16 and
 * bf16 are reduced in f32 and rounded once. Integer sums wrap, the sum of bool is "or", and NaN wins a maximum or
 * minimum.
 *
 * Buffers do not overlap unless a function allows it. Buffers in the communicator's symmetric segment (rt_comm_segment)
 * are transferred without a staging copy. */
#ifndef RT_COMM_H
#define RT_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/contract.h"
#include "base/dtype.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rt_comm;

/* A transfer that was posted and not waited for yet. The caller provides the memory and does not access it, or move it,
 * from post_send or post_receive until wait. */
struct rt_request {
    struct rt_request *next; /* all members are the transport's */
    void *data;
    size_t bytes, done; /* done: bytes transferred */
    uint64_t place, number;
    int peer, level;
    bool sends, complete;
    void *handle;
};

/* A collective that overlaps computation. dst lies in symmetric memory where the transport has such; it then has the
 * bits that all_reduce, reduce_scatter or all_gather computes. */
enum rt_early {
    RT_SUM_WHOLE, /* dst, *counts elements, is operand and sum */
    RT_SCATTER,   /* dst is the operand, counts[r] elements for each rank r; the caller's become the sums, the others
                   * are undefined */
    RT_GATHER     /* the caller's src, counts[rank] bytes, may be its own place in dst */
};
struct rt_collective {
    enum rt_early kind;
    enum rt_dtype dtype; /* of a sum */
    void *dst;
    const void *src;
    const size_t *counts;
};

static inline size_t rt_counts_total(const size_t *counts, int n) {
    size_t total = 0;
    for (int r = 0; r < n; r++) total += counts[r];
    return total;
}

/* The functions of a transport. Arrays with an entry per rank have `size` entries and are equal on all ranks; entries
 * may differ and may be 0. */
struct rt_comm_driver {
    const char *name;
    int (*barrier)(struct rt_comm *comm);
    /* dst = reduction of src over the ranks, like ncclAllReduce. In place allowed: dst == src. */
    int (*all_reduce)(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                      enum rt_reduce reduce);
    /* dst = concatenation of all ranks' src in rank order; rank r contributes bytes[r] bytes. In place
     * allowed: src is where the rank's own bytes come to lie. */
    int (*all_gather)(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes);
    /* Rank r's dst = reduction over the ranks of elements [counts[0] + .. + counts[r-1], + counts[r]) of src.
     * In place allowed: dst is where these elements lie in src. onto, of sums: dst is the first addend, dst + the
     * ranks' values, added in rank order; sums_onto is false where the transport does not define the order. */
    int (*reduce_scatter)(struct rt_comm *comm, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                          enum rt_reduce reduce, bool onto);
    bool sums_onto;
    /* A collective that overlaps computation; NULL where the transport has none. All members begin and finish the same
     * ones in the same order. begin: the caller's operand is complete; do not access it, or dst, until finish returns.
     * progress advances what has begun, without waiting. finish(RT_GATHER) completes the earliest gather that has begun
     * and not been finished, finish(RT_SUM_WHOLE or RT_SCATTER) all sums of either kind. */
    int (*begin)(struct rt_comm *comm, const struct rt_collective *what);
    int (*progress)(struct rt_comm *comm);
    int (*finish)(struct rt_comm *comm, enum rt_early kind);
    /* Sends send[r] bytes to rank r, from src in rank order, and receives receive[r] bytes from it, to dst in rank
     * order. Unlike other arrays, send and receive may differ between ranks; send[r] must equal rank r's receive[this
     * rank]. */
    int (*all_to_all)(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send);
    int (*broadcast)(struct rt_comm *comm, void *data, size_t bytes, int root);
    /* Point to point; messages of a pair of ranks match in order. send may block until the matching receive, like
     * MPI_Ssend. */
    int (*send)(struct rt_comm *comm, const void *src, size_t bytes, int to);
    int (*receive)(struct rt_comm *comm, void *dst, size_t bytes, int from);
    /* The same without waiting, like MPI_Isend, MPI_Irecv and MPI_Wait. Do not write to src, or access dst, until wait
     * returns. Any number of transfers may be posted, and waited for in any order, each once. Messages of a pair of
     * ranks match in the order of posting, over all communicators of the pair and together with those of send and
     * receive. A rank's transfers advance in all calls in which it waits, whatever it waits for; so a program that
     * completes with unlimited buffers completes. wait gets the communicator of the posting. */
    int (*post_send)(struct rt_comm *comm, const void *src, size_t bytes, int to, struct rt_request *request);
    int (*post_receive)(struct rt_comm *comm, void *dst, size_t bytes, int from, struct rt_request *request);
    int (*wait)(struct rt_comm *comm, struct rt_request *request);
    /* New communicator of the ranks that pass the same `color`, in rank order, like MPI_Comm_split. Collective over
     * comm. */
    int (*split)(struct rt_comm *comm, int color, struct rt_comm **out);
    /* Marks the job as failed: every wait of every rank returns RT_ERROR_PEER. May be called from any thread. */
    void (*abort)(struct rt_comm *comm);
    /* RT_ERROR_PEER if the job was aborted, else RT_OK. Does not block. */
    int (*alive)(struct rt_comm *comm);
    void (*close)(struct rt_comm *comm);
    /* The caller's symmetric memory and its size; NULL if the transport has none. */
    void *(*segment)(struct rt_comm *comm, size_t *bytes);
    /* Reports progress to the launcher: training or inference steps begun, current instruction. NULL: no launcher
     * observes. */
    void (*report)(struct rt_comm *comm, int64_t step, int instruction);
};

/* Base of every transport's communicator: its first member. */
struct rt_comm {
    const struct rt_comm_driver *driver;
    int rank, size;
    char why[160]; /* text of this rank's last RT_ERROR_USAGE or RT_ERROR_SYSTEM, else empty */
};

/* A communicator of one rank. */
int rt_comm_open_self(struct rt_comm **out);

/* Ranks that share memory. All of them map `segment`: threads use memory of the process, processes a MAP_SHARED mapping
 * of one memfd. It has rt_comm_shared_bytes() bytes, zero-filled before the first rank opens it, `symmetric` bytes per
 * rank of them for communicated tensors, which the ranks place at equal offsets. */
size_t rt_comm_shared_bytes(int size, size_t symmetric);
int rt_comm_open_shared(struct rt_comm **out, void *segment, int rank, int size, size_t symmetric);

/* The caller's symmetric memory, NULL if the transport has none, and its size in bytes. */
void *rt_comm_segment(struct rt_comm *comm);
size_t rt_comm_segment_bytes(struct rt_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
