/* The state of a rank on a GPU: what device.cu, the transports and the libraries share. Not for programs. */
#ifndef RT_CUDA_RANK_CUH
#define RT_CUDA_RANK_CUH

#include "launch.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RT_GRAPHS = 16, RT_MAIL = 1024 };
enum { RT_LOOKS = 64, RT_SPINS = 20000, RT_NAP_US = 50 }; /* of a wait: how often it looks around, and when it sleeps */

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
};

/* Launches up to a call that the host makes itself, or to the end of the phase. */
struct rt_cuda_piece {
    cudaGraphExec_t exec;
    rt_cuda_call call; /* perform NULL: none, the last */
    rt_cuda_piece *next;
};

/* A phase as graphs, after its first execution; of a phase there is one for each way that sums begin in it. */
struct rt_cuda_graph {
    int (*phase)(struct rt *rt);
    int sums; /* rt_sums_variant */
    rt_cuda_piece *first;
};

/* A small number on its way to the host: through pinned memory, so that nothing waits for it. */
struct rt_cuda_mail {
    void *to;
    size_t bytes;
};

struct rt_cuda_private {
    int number; /* of the GPU */
    rt_cuda_graph graphs[RT_GRAPHS];
    rt_cuda_piece **next; /* where the piece goes that is being captured; NULL: none is */
    double *mailbox;      /* pinned */
    rt_cuda_mail mail[RT_MAIL];
    int nmail;
    cudaStream_t side; /* of sums that go on beside computation, made when it is first needed */
    cudaEvent_t forked, joined;
    bool beside;   /* the side stream has work that the other has not waited for */
    void *library; /* of products */
    void *cudnn;   /* NULL: none is used */
    void *nccl;    /* communicators of this process, NULL: none is needed */
    /* Looks at communication that the stream may be waiting for; a status where that has failed, and is ended. May be
     * NULL. */
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
 * Sums that begin early go on in a stream of their own. It begins behind what its rank's other stream has been told so
 * far, which waits for it where sums end: at the end of a phase at the latest, so that a phase is one graph. */
int rt_cuda_beside(const rt_cuda_call *call, int (*perform)(const rt_cuda_call *call));
int rt_cuda_join(struct rt *rt);

/* Makes a call in which the host meets other ranks: what is captured ends before it, and begins again behind it. */
int rt_cuda_meet(const rt_cuda_call *call);

/* Frees the graphs; no phase is executed any more. */
void rt_cuda_forget_phases(struct rt *rt);

/* Of communicators of arenas, none of which is symmetric. */
static inline void *no_segment(struct rt_comm *, size_t *bytes) {
    *bytes = 0;
    return NULL;
}

/* Communicators for arenas. The ranks of `host` are threads of this process (or one), each with a stream of its own
 * ... */
int rt_cuda_open_loopback(struct rt *rt, struct rt_comm *host, struct rt_comm **out);
/* ... or processes, each with a GPU of its own. */
int rt_cuda_open_nccl(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out);
void rt_cuda_close_nccl(struct rt *rt);

/* Convolutions and attention by a library, where there is one and the program has any. */
int rt_cuda_open_cudnn(struct rt *rt);
void rt_cuda_close_cudnn(struct rt *rt);

/* Products by a library, where there is one. */
int rt_cuda_open_library(struct rt *rt);
void rt_cuda_close_library(struct rt *rt);

#endif
