/* What device.cu and its transports share. Not for programs. */
#ifndef RT_CUDA_DEVICE_CUH
#define RT_CUDA_DEVICE_CUH

#include "launch.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RT_PHASES = 4, RT_MAIL = 1024 };

/* A phase as a graph, after its first execution. */
struct rt_cuda_graph {
    int (*phase)(struct rt *rt);
    cudaGraphExec_t exec;
};

/* A small number on its way to the host: through pinned memory, so that nothing waits for it. */
struct rt_cuda_mail {
    void *to;
    size_t bytes;
};

struct rt_cuda_private {
    int number; /* of the GPU */
    rt_cuda_graph graphs[RT_PHASES];
    bool meets_host; /* a phase's communication needs the host: it cannot be captured */
    double *mailbox; /* pinned */
    rt_cuda_mail mail[RT_MAIL];
    int nmail;
    void *library; /* of products */
    void *nccl;    /* communicator of all ranks, NULL: none is needed */
};

static inline int rt_fail_cuda(struct rt *rt, cudaError_t error, const char *what) {
    return rt_fail(rt, RT_ERROR_DEVICE, "%s: %s", what, cudaGetErrorString(error));
}

#define RT_CUDA_TRY(rt, call)                                                                                          \
    do {                                                                                                               \
        cudaError_t rt_cuda_error = (call);                                                                            \
        if (rt_cuda_error != cudaSuccess) return rt_fail_cuda(rt, rt_cuda_error, #call);                               \
    } while (0)

/* Communicators for arenas. The ranks of `host` are threads of this process (or one), each with a stream of its own ... */
int rt_cuda_open_loopback(struct rt *rt, struct rt_comm *host, struct rt_comm **out);
/* ... or processes, each with a GPU of its own. */
int rt_cuda_open_nccl(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out);
void rt_cuda_close_nccl(struct rt *rt);

/* Products by a library, where there is one. */
int rt_cuda_open_library(struct rt *rt);
void rt_cuda_close_library(struct rt *rt);

#endif
