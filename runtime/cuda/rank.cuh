/* The state of a rank on a GPU, shared by device.cu, the transports and the libraries. Not for programs. */
#ifndef RT_CUDA_RANK_CUH
#define RT_CUDA_RANK_CUH

#include "launch.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RT_MAIL = 1024 };
/* of a wait: polls between checks for failed ranks, polls before sleeping */
enum { RT_LOOKS = 64, RT_SPINS = 20000, RT_NAP_US = 50 };

/* A call of a communicator. */
struct rt_cuda_call {
    int (*perform)(const rt_cuda_call *call);
    struct rt *rt;
    struct rt_comm *comm;
    void *dst;
    const void *src;
    size_t count; /* elements, or bytes where there is no type */
    enum rt_dtype dtype;
    enum rt_reduce reduce;
    int peer;                     /* root, sender or receiver */
    const size_t *receive, *send; /* by rank */
    enum rt_early kind;           /* of a collective that overlaps computation */
};

/* Part of a segment: launches up to a call that the host makes, or to the end of the segment. */
struct rt_cuda_piece {
    cudaGraphExec_t exec;
    rt_cuda_call call; /* perform NULL: none, the last */
    rt_cuda_piece *next;
};

/* A segment as graphs: one for each set of slots, each way in which sums begin, and all sizes that a call chooses; of
 * those that grow, for a bucket (Note [Growing sizes] in grow.cuh), whose largest it has. */
struct rt_cuda_graph {
    const struct rt_segment *segment;
    size_t slot[RT_SLOT_SETS];   /* as in struct rt */
    int sums;                    /* rt_sums_variant */
    int64_t sizes[RT_MAX_SIZES]; /* 0 behind those of the program */
    bool varies;                 /* it holds for no bucket: it is launched */
    bool decodes;                /* it begins with the inputs, and ends with the choice of tokens (decode.cuh) */
    void *block;                 /* of the GPU's memory, for arguments that move; NULL: none do */
    rt_cuda_piece *first;        /* NULL: it was launched, and nothing is recorded yet */
    rt_cuda_graph *next;
};

/* A scalar being copied to the host asynchronously, through pinned memory. */
struct rt_cuda_mail {
    void *to;
    size_t bytes;
};

struct rt_cuda_private {
    int number;                        /* of the GPU */
    rt_cuda_graph *graphs;             /* the last one used first */
    rt_cuda_piece **next;              /* where to append the piece being captured; NULL: not capturing */
    struct rt_growth *growth;          /* while a segment is measured, or captured for a bucket; else NULL */
    struct rt_cuda_decoding *decoding; /* NULL: inputs are the caller's */
    double *mailbox;                   /* pinned */
    rt_cuda_mail mail[RT_MAIL];
    int nmail;
    bool callers_stream;
    const void *callers_comm; /* address of the caller's ncclComm_t, read during rt_open; NULL: none */
    cudaStream_t side;        /* of sums that overlap computation; created when first needed */
    cudaEvent_t forked, joined;
    cudaEvent_t *marks; /* marks.cuh */
    int64_t nmarks;
    uint64_t begun_beside, ended_beside; /* calls in the side stream, and those that the main stream has waited for */
    int nplans;                          /* that libraries keep */
    void *library;                       /* of products */
    void *cudnn;                         /* NULL: none is used */
    void *nccl;                          /* state of NCCL communicators; NULL: not needed */
    /* Checks communication that the stream may be waiting for; if it has failed, aborts it and returns the status. May
     * be NULL. */
    int (*watch)(struct rt *rt);
};

static inline int rt_fail_cuda(struct rt *rt, cudaError_t error, const char *what) {
    return rt_fail(rt, RT_ERROR_DEVICE, "%s: %s", what, cudaGetErrorString(error));
}

#define RT_CUDA_TRY(rt, call)                                                                                          \
    do {                                                                                                               \
        cudaError_t rt_cuda_error = (call);                                                                            \
        if (rt_cuda_error != cudaSuccess) return rt_fail_cuda(rt, rt_cuda_error, #call);                               \
    } while (0)

/* Note [Beside]
 * Collectives that overlap computation run in a side stream. It starts after the work queued so far in the rank's main
 * stream, which waits for it when sums are needed: at the latest at the end of a segment, so that a segment is one
 * graph. Each gather has an event after it in the side stream, for which the main stream waits when that gather is
 * needed. An event that is recorded again before it was waited for stands for more than its gather, never for less. */
enum { RT_GATHERS = 16 };
struct rt_cuda_gathers {
    cudaEvent_t done[RT_GATHERS]; /* of gather number n at n % RT_GATHERS */
    uint64_t place[RT_GATHERS];   /* begun_beside of struct rt_cuda_private after that gather */
    uint64_t begun, finished;
};
/* `performs`: what the communicator does for each kind. finish: as that of comm.h. */
int rt_cuda_begin(const rt_cuda_call *call, int (*const performs[])(const rt_cuda_call *call),
                  rt_cuda_gathers *gathers);
int rt_cuda_finish(struct rt *rt, enum rt_early kind, rt_cuda_gathers *gathers);
void rt_cuda_close_gathers(rt_cuda_gathers *gathers);

static inline rt_cuda_call rt_cuda_call_of(struct rt_comm *comm, const struct rt_collective *what) {
    rt_cuda_call call = {.comm = comm, .dst = what->dst, .src = what->dst, .dtype = what->dtype, .reduce = RT_SUM};
    size_t before = 0;
    call.kind = what->kind;
    if (what->kind == RT_SUM_WHOLE)
        call.count = *what->counts;
    else
        call.receive = what->counts;
    for (int r = 0; r < comm->rank && what->kind == RT_SCATTER; r++) before += what->counts[r];
    call.dst = (unsigned char *)what->dst + before * rt_dtype_bytes(what->dtype);
    if (what->kind == RT_GATHER) call.src = what->src;
    return call;
}

/* cudaStreamSynchronize, except that a failed rank ends the wait if there is a `watch`. */
int rt_cuda_wait(struct rt *rt, cudaStream_t stream);
/* The same for what comes before the event. */
int rt_cuda_wait_event(struct rt *rt, cudaEvent_t event);

/* Makes a call in which the host synchronises with other ranks: capture ends before it and begins again after it. */
int rt_cuda_meet(const rt_cuda_call *call);

/* Frees the graphs; no segment may be executed afterwards. */
void rt_cuda_forget_segments(struct rt *rt);

/* For communicators of arenas, which have no symmetric memory. */
static inline void *no_segment(struct rt_comm *, size_t *bytes) {
    *bytes = 0;
    return NULL;
}

/* Communicators for arenas. The ranks of `host` are threads of this process (or a single one), each with a stream of
 * its own ... */
int rt_cuda_open_loopback(struct rt *rt, struct rt_comm *host, struct rt_comm **out);
/* ... or processes, each with a GPU of its own. */
int rt_cuda_open_nccl(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out);
void rt_cuda_close_nccl(struct rt *rt);

/* Convolutions and attention by a library, if it is available and the program has any. */
int rt_cuda_open_cudnn(struct rt *rt);
void rt_cuda_close_cudnn(struct rt *rt);

/* Plans that libraries keep, each for a shape of its own. With sizes that calls choose there is no end of them: beyond
 * RT_MOST_PLANS they are forgotten between two segments, with the graphs, whose kernels may belong to them. */
#ifndef RT_MOST_PLANS
#define RT_MOST_PLANS 1024
#endif
void rt_cuda_forget_products(struct rt *rt);
void rt_cuda_forget_cudnn(struct rt *rt);

/* Products by a library, if it is available. */
int rt_cuda_open_library(struct rt *rt);
void rt_cuda_close_library(struct rt *rt);

#endif
