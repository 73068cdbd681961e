/* Communication between the ranks of a program: one vtable, one implementation per transport.
 *
 * A communicator joins `size` ranks; `rank` is the caller's place among them. All members call the same collectives in
 * the same order. Every call blocks until its result is usable, returns RT_OK or a status, and never hangs for ever:
 * a wait ends with RT_ERROR_PEER as soon as the job is aborted.
 *
 * Sums, maxima and minima are taken in rank order (0, 1, 2, ...) for every element, so results do not depend on the
 * transport, on timing, or on how a buffer is cut into pieces, and all ranks get the same bits. f16 and bf16 are
 * reduced in f32 and rounded once. Integer sums wrap, a sum of bool is "or", and a NaN wins a maximum or minimum.
 *
 * Buffers never overlap unless a function says so. Buffers in the communicator's symmetric segment (rt_comm_segment)
 * are moved without staging.
 */
#ifndef RT_COMM_H
#define RT_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rt_reduce { RT_SUM, RT_MAX, RT_MIN };

enum rt_status {
    RT_OK = 0,
    RT_ERROR_USAGE,    /* a call that its documentation forbids, e.g. a bad option */
    RT_ERROR_INPUT,    /* malformed or wrong-shaped data */
    RT_ERROR_SYSTEM,   /* file, memory or operating system */
    RT_ERROR_MISMATCH, /* belongs to another program, model or world size */
    RT_ERROR_PEER,     /* another rank failed, or the job was aborted */
    RT_ERROR_DEVICE,   /* no GPU, or its driver or a library of it failed */
    RT_ERROR_BUSY,     /* another job has what only one may use at a time */
};

struct rt_comm;

/* One row per transport. Byte counts of single ranks may be 0 and may differ between ranks where an array is given;
 * such arrays have `size` entries and are equal on all ranks. */
struct rt_comm_driver {
    const char *name;
    int (*barrier)(struct rt_comm *comm);
    /* dst = reduction of every rank's src over ranks. In place allowed (dst == src). Equivalent to ncclAllReduce. */
    int (*all_reduce)(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                      enum rt_reduce reduce);
    /* Sums that go on while members do other things, in any way that suits the transport. begin: the caller's `count`
     * elements at `data`, in its symmetric memory where the transport has such, are complete; until finish returns they
     * are nobody's to touch, and then they are the sums of all_reduce, bit for bit. All members begin the same sums in
     * the same order. progress does what can be done without waiting; finish ends all that have begun. All three are
     * NULL where the transport has none. */
    int (*sum_begin)(struct rt_comm *comm, void *data, size_t count, enum rt_dtype dtype);
    int (*sum_progress)(struct rt_comm *comm);
    int (*sum_finish)(struct rt_comm *comm);
    /* dst = the parts of all ranks, one after the other: rank r gives bytes[r] bytes. */
    int (*all_gather)(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes);
    /* Rank r's dst = reduction of everyone's elements [counts[0] + .. + counts[r-1], + counts[r]) of src. */
    int (*reduce_scatter)(struct rt_comm *comm, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                          enum rt_reduce reduce);
    /* Sends send[r] bytes to rank r, taken from src in order of r, and receives receive[r] bytes from it, stored to
     * dst in order of r; send and receive are the caller's own and need not agree with other ranks' arrays beyond
     * what both ends of each pair say. */
    int (*all_to_all)(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send);
    int (*broadcast)(struct rt_comm *comm, void *data, size_t bytes, int root);
    /* Point to point, matched in order per pair of ranks. A send may wait for its receive. */
    int (*send)(struct rt_comm *comm, const void *src, size_t bytes, int to);
    int (*receive)(struct rt_comm *comm, void *dst, size_t bytes, int from);
    /* A communicator of the ranks that give equal `color`, ordered by rank; collective over the parent. */
    int (*split)(struct rt_comm *comm, int color, struct rt_comm **out);
    /* Marks the job as failed: every wait in it, on any rank, returns RT_ERROR_PEER. Callable from any thread. */
    void (*abort)(struct rt_comm *comm);
    /* RT_OK, or RT_ERROR_PEER once the job is marked so; waits for nothing. */
    int (*alive)(struct rt_comm *comm);
    void (*close)(struct rt_comm *comm);
    /* The caller's symmetric memory and its size; NULL where the transport has none. */
    void *(*segment)(struct rt_comm *comm, size_t *bytes);
    /* Tells whoever watches the job what this rank does, and that it does something: steps begun, instruction under
     * way. NULL: nobody watches. */
    void (*report)(struct rt_comm *comm, int64_t step, int site);
};

/* What every transport's communicator begins with. */
struct rt_comm {
    const struct rt_comm_driver *driver;
    int rank, size;
    char why[160]; /* text of this rank's last RT_ERROR_USAGE or RT_ERROR_SYSTEM, else empty */
};

/* One rank alone. */
int rt_comm_open_self(struct rt_comm **out);

/* Ranks that share memory: `segment` is mapped by all of them (threads: any memory of the process; processes: a
 * MAP_SHARED mapping of one memfd), rt_comm_shared_bytes() large and zero-filled before the first rank opens it.
 * The symmetric part holds `symmetric` bytes per rank; the ranks place communicated tensors there at equal offsets. */
size_t rt_comm_shared_bytes(int size, size_t symmetric);
int rt_comm_open_shared(struct rt_comm **out, void *segment, int rank, int size, size_t symmetric);

/* The caller's symmetric memory, NULL where the transport has none; its size. */
void *rt_comm_segment(struct rt_comm *comm);
size_t rt_comm_segment_bytes(struct rt_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
