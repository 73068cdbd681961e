/* Messages between pipeline stages through NCCL, posted and waited for.
 *
 * Note [Pairs of NCCL]
 * NCCL executes the operations of a communicator one after the other, and a send does not end before the receive runs.
 * If two ranks each post a send and then a receive, both would wait for ever in one communicator. Therefore each
 * ordered pair of ranks that exchanges messages has a communicator of two ranks, with a stream of its own on both: its
 * operations are sends on the one, receives on the other, in the same order. The main stream waits for the event after
 * an operation only when the transfer is waited for.
 *
 * Operations of several communicators must be able to run at the same time on a GPU, or they wait for each other
 * (NCCL's user guide, "Using multiple NCCL communicators concurrently"). A pair takes at most RT_PAIR_BLOCKS thread
 * blocks. A stage with two neighbours has the main stream, the side stream and four pairs, which fit the 8 queues that
 * CUDA has by default (CUDA_DEVICE_MAX_CONNECTIONS). NCCL connects two ranks at their first exchange, in which the host
 * waits for the other rank and memory is allocated; so a byte is exchanged when the pair is made. */
#ifndef RT_CUDA_NCCL_MESSAGE_CUH
#define RT_CUDA_NCCL_MESSAGE_CUH

#include "nccl.cuh"

#ifdef RT_HAS_NCCL

enum { RT_PAIR_BLOCKS = 8 };

/* True for the communicator of the axis of pipeline stages that execute several micro-batches, the only one whose
 * messages are posted. */
static bool nccl_joins_stages(const rt_nccl_comm *own) {
    const int stages = own->rt->program->stages;
    return stages > 0 && own->rt->axis[stages - 1] == &own->comm && own->comm.size > 1;
}

static int nccl_pair_check(const rt_nccl_comm *own, const rt_nccl_pair *pair, ncclResult_t result) {
    return nccl_settle(own->rt, pair->handle, result);
}

/* Enqueues one end of a message on the pair's stream. */
static int nccl_transfer(const rt_nccl_comm *own, const rt_nccl_pair *pair, void *data, size_t bytes) {
    const rt_nccl *nccl = own->nccl;
    return nccl_pair_check(own, pair,
                           pair->sends ? nccl->Send(data, bytes, ncclInt8, 1, pair->handle, pair->stream)
                                       : nccl->Recv(data, bytes, ncclInt8, 0, pair->handle, pair->stream));
}

static int nccl_connect_pair(const rt_nccl_comm *own, const rt_nccl_pair *pair) {
    void *byte = NULL;
    RT_CUDA_TRY(own->rt, cudaMalloc(&byte, 1));
    int status = nccl_transfer(own, pair, byte, 1);
    if (!status) status = rt_cuda_wait(own->rt, pair->stream);
    if (!status) cudaFree(byte);
    return status;
}

/* Makes the pairs of one color of Note [Colors of pairs]: the caller sends to, or receives from, `peer`, or, with peer
 * -1, is in none of them. */
static int nccl_open_pair(rt_nccl_comm *own, int peer, bool sends) {
    const int least = peer < own->comm.rank ? peer : own->comm.rank;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t handle = NULL;
    config.maxCTAs = RT_PAIR_BLOCKS;
    RT_TRY(
        nccl_split_from(own->rt, own->handle, peer < 0 ? NCCL_SPLIT_NOCOLOR : least, sends ? 0 : 1, &config, &handle));
    if (peer < 0) return RT_OK;
    rt_nccl_pair *pair = (rt_nccl_pair *)calloc(1, sizeof *pair), **end = &own->pairs;
    if (!pair) return rt_fail(own->rt, RT_ERROR_SYSTEM, "out of memory");
    while (*end) end = &(*end)->next;
    *end = pair;
    pair->handle = handle;
    pair->peer = peer;
    pair->sends = sends;
    RT_CUDA_TRY(own->rt, cudaStreamCreateWithFlags(&pair->stream, cudaStreamNonBlocking));
    return nccl_connect_pair(own, pair);
}

/* Note [Colors of pairs]
 * All ranks of a communicator take part in a split, so pairs that have no rank in common are made in the same one. The
 * pairs (r, r + d) of one distance d are divided into those with even and with odd r / d; each half has no rank in
 * two pairs. A split is made for each distance, direction and half in which some rank sends. */
struct rt_pair_color {
    int distance; /* from sender to receiver */
    int half;
};

static int color_index(int size, struct rt_pair_color color) {
    return 2 * (color.distance + size - 1) + color.half;
}

static int half_of(int a, int b) {
    const int least = a < b ? a : b;
    return least / abs(a - b) % 2;
}

/* Marks the colors of the pairs to which this rank sends in a step. */
static void mark_sends(const rt_nccl_comm *own, unsigned char *colors) {
    const struct rt_rank_class *rank_class = own->rt->rank_class;
    for (int i = 0; i < rank_class->ntransfers; i++) {
        if (!rank_class->transfers[i].sends) continue;
        const int me = own->comm.rank, peer = rank_class->transfers[i].peer;
        colors[color_index(own->comm.size, {peer - me, half_of(me, peer)})] = 1;
    }
}

static int open_color(rt_nccl_comm *own, struct rt_pair_color color) {
    const int me = own->comm.rank, size = own->comm.size, to = me + color.distance, from = me - color.distance;
    if (to >= 0 && to < size && half_of(me, to) == color.half) return nccl_open_pair(own, to, true);
    if (from >= 0 && from < size && half_of(me, from) == color.half) return nccl_open_pair(own, from, false);
    return nccl_open_pair(own, -1, false);
}

/* Collective over the ranks of the communicator. */
static int nccl_open_pairs(rt_nccl_comm *own) {
    const int size = own->comm.size, ncolors = 2 * (2 * size - 1);
    unsigned char *colors = (unsigned char *)calloc((size_t)ncolors, 1);
    if (!colors) return rt_fail(own->rt, RT_ERROR_SYSTEM, "out of memory");
    mark_sends(own, colors);
    int status = own->host->driver->all_reduce(own->host, colors, colors, (size_t)ncolors, RT_U8, RT_MAX);
    if (status) rt_fail_comm(own->rt, own->host, status);
    for (int i = 0; i < ncolors && !status; i++)
        if (colors[i]) status = open_color(own, {i / 2 - (size - 1), i % 2});
    free(colors);
    return status;
}

static void nccl_close_pairs(rt_nccl_comm *own) {
    for (rt_nccl_pair *pair = own->pairs, *next; pair; pair = next) {
        next = pair->next;
        nccl_finalize(own->rt, pair->handle);
        if (pair->stream) cudaStreamDestroy(pair->stream);
        free(pair);
    }
    for (rt_nccl_posted *posted = own->unused, *next; posted; posted = next) {
        next = posted->next;
        cudaEventDestroy(posted->done);
        free(posted);
    }
    own->pairs = NULL;
}

static int nccl_new_posted(rt_nccl_comm *own, rt_nccl_posted **out) {
    rt_nccl_posted *posted = *out = own->unused;
    if (posted) {
        own->unused = posted->next;
        return RT_OK;
    }
    posted = *out = (rt_nccl_posted *)calloc(1, sizeof *posted);
    if (!posted) return rt_fail(own->rt, RT_ERROR_SYSTEM, "out of memory");
    RT_CUDA_TRY(own->rt, cudaEventCreateWithFlags(&posted->done, cudaEventDisableTiming));
    return RT_OK;
}

/* The event first marks the work of the main stream that produces the source, or still uses the destination. */
static int nccl_post_to(rt_nccl_comm *own, const rt_nccl_pair *pair, void *data, size_t bytes,
                        struct rt_request *request) {
    rt_nccl_posted *posted = NULL;
    RT_TRY(nccl_new_posted(own, &posted));
    *request = {};
    request->handle = posted;
    RT_CUDA_TRY(own->rt, cudaEventRecord(posted->done, rt_cuda_of(own->rt)->stream));
    RT_CUDA_TRY(own->rt, cudaStreamWaitEvent(pair->stream, posted->done, 0));
    if (bytes > 0) RT_TRY(nccl_transfer(own, pair, data, bytes));
    RT_CUDA_TRY(own->rt, cudaEventRecord(posted->done, pair->stream));
    return RT_OK;
}

static int nccl_post(struct rt_comm *comm, void *data, size_t bytes, int peer, bool sends, struct rt_request *request) {
    rt_nccl_comm *own = nccl_comm_of(comm);
    const rt_nccl_pair *pair = own->pairs;
    while (pair && (pair->peer != peer || pair->sends != sends)) pair = pair->next;
    if (!pair) {
        snprintf(comm->why, sizeof comm->why, "rank %d has no messages with rank %d in its schedule", comm->rank, peer);
        return RT_ERROR_USAGE;
    }
    const int status = nccl_post_to(own, pair, data, bytes, request);
    if (status) snprintf(comm->why, sizeof comm->why, "%s", rt_error(own->rt));
    return status;
}

static int nccl_post_send(struct rt_comm *comm, const void *src, size_t bytes, int to, struct rt_request *request) {
    return nccl_post(comm, (void *)src, bytes, to, true, request);
}

static int nccl_post_receive(struct rt_comm *comm, void *dst, size_t bytes, int from, struct rt_request *request) {
    return nccl_post(comm, dst, bytes, from, false, request);
}

static int nccl_wait(struct rt_comm *comm, struct rt_request *request) {
    rt_nccl_comm *own = nccl_comm_of(comm);
    rt_nccl_posted *posted = (rt_nccl_posted *)request->handle;
    RT_CUDA_TRY(own->rt, cudaStreamWaitEvent(rt_cuda_of(own->rt)->stream, posted->done, 0));
    posted->next = own->unused;
    own->unused = posted;
    return RT_OK;
}

#endif

#endif
