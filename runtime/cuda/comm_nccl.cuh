/* Transport for ranks that are processes with a GPU each: NCCL, loaded when needed. One communicator joins all ranks.
 * Communicators of the mesh axes with collectives, and of the scale units if gradients are summed, are split from it,
 * unless they join all ranks too. They are non-blocking and polled (Note [Aborts]). */
#ifndef RT_CUDA_COMM_NCCL_CUH
#define RT_CUDA_COMM_NCCL_CUH

#include "nccl.cuh"
#include "nccl_message.cuh"

#ifdef RT_HAS_NCCL
/* The driver of comm.h. */

/* A non-blocking call may return before its work is on the stream. */
static int nccl_check(struct rt_comm *comm, ncclResult_t result) {
    const int status = nccl_settle(nccl_comm_of(comm)->rt, nccl_comm_of(comm)->handle, result);
    if (status) snprintf(comm->why, sizeof comm->why, "%s", rt_error(nccl_comm_of(comm)->rt));
    return status;
}

/* First error in a group of calls. Work begins when the group ends. */
static void nccl_also(ncclResult_t *first, ncclResult_t result) {
    if (*first == ncclSuccess && result != ncclInProgress) *first = result;
}

static int nccl_end_group(struct rt_comm *comm, ncclResult_t called) {
    const ncclResult_t ended = nccl_comm_of(comm)->nccl->GroupEnd();
    return nccl_check(comm, called == ncclSuccess ? ended : called);
}

/* NCCL's type, and its reduction for a sum; a sum of bool is "or". */
struct nccl_type {
    ncclDataType_t type;
    bool known;
};
static const nccl_type nccl_types[RT_DTYPE_COUNT] = {
    {ncclFloat32, true}, {ncclFloat64, true}, {ncclFloat16, true}, {ncclBfloat16, true}, {ncclInt64, true},
    {ncclInt32, true},   {ncclInt8, false},   {ncclInt8, true},    {ncclUint64, true},   {ncclUint32, true},
    {ncclUint8, false},  {ncclUint8, true},   {ncclUint8, true},   {ncclUint8, false},   {ncclUint8, false},
    {ncclUint8, false},  {ncclUint8, false},  {ncclUint8, false},  {ncclUint8, false},   {ncclUint8, false},
    {ncclUint8, false},  {ncclUint8, false},  {ncclUint8, false},  {ncclUint8, false},   {ncclUint8, false}};
static_assert(RT_F32 == 0 && RT_F64 == 1 && RT_F16 == 2 && RT_BF16 == 3 && RT_I64 == 4 && RT_BOOL == 12 &&
                  RT_DTYPE_COUNT == 25,
              "the order of dtype.h");

static int nccl_refuse(struct rt_comm *comm, enum rt_dtype dtype) {
    snprintf(comm->why, sizeof comm->why, "NCCL does not reduce %s", rt_dtypes[dtype].name);
    return RT_ERROR_USAGE;
}

static ncclRedOp_t nccl_op(enum rt_dtype dtype, enum rt_reduce reduce) {
    if (reduce == RT_SUM && dtype == RT_BOOL) return ncclMax;
    return reduce == RT_SUM ? ncclSum : reduce == RT_MAX ? ncclMax : ncclMin;
}

static int nccl_barrier(struct rt_comm *comm) {
    return nccl_comm_of(comm)->host->driver->barrier(nccl_comm_of(comm)->host);
}

static int nccl_reduce_all(const rt_cuda_call *call) {
    rt_nccl_comm *own = nccl_comm_of(call->comm);
    return nccl_check(call->comm,
                      own->nccl->AllReduce(call->src, call->dst, call->count, nccl_types[call->dtype].type,
                                           nccl_op(call->dtype, call->reduce), own->handle, nccl_stream(call->comm)));
}

static int nccl_all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                           enum rt_reduce reduce) {
    const rt_cuda_call call = {.rt = nccl_comm_of(comm)->rt,
                               .comm = comm,
                               .dst = dst,
                               .src = src,
                               .count = count,
                               .dtype = dtype,
                               .reduce = reduce};
    return nccl_types[dtype].known ? nccl_reduce_all(&call) : nccl_refuse(comm, dtype);
}

static bool all_equal(const size_t *sizes, int n) {
    for (int r = 1; r < n; r++)
        if (sizes[r] != sizes[0]) return false;
    return true;
}

static int nccl_all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes) {
    const rt_nccl *nccl = nccl_comm_of(comm)->nccl;
    ncclComm_t handle = nccl_comm_of(comm)->handle;
    unsigned char *to = (unsigned char *)dst;
    if (all_equal(bytes, comm->size))
        return nccl_check(comm, nccl->AllGather(src, dst, bytes[0], ncclInt8, handle, nccl_stream(comm)));
    ncclResult_t called = nccl->GroupStart();
    for (int r = 0; r < comm->size; to += bytes[r], r++)
        nccl_also(&called, nccl->Broadcast(src, to, bytes[r], ncclInt8, r, handle, nccl_stream(comm)));
    return nccl_end_group(comm, called);
}

static int nccl_gather(const rt_cuda_call *call) {
    return nccl_all_gather(call->comm, call->dst, call->src, call->receive);
}

static int nccl_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts,
                               enum rt_dtype dtype, enum rt_reduce reduce, bool) {
    const rt_nccl *nccl = nccl_comm_of(comm)->nccl;
    ncclComm_t handle = nccl_comm_of(comm)->handle;
    const ncclDataType_t type = nccl_types[dtype].type;
    const ncclRedOp_t op = nccl_op(dtype, reduce);
    const unsigned char *from = (const unsigned char *)src;
    if (!nccl_types[dtype].known) return nccl_refuse(comm, dtype);
    if (all_equal(counts, comm->size))
        return nccl_check(comm, nccl->ReduceScatter(src, dst, counts[0], type, op, handle, nccl_stream(comm)));
    ncclResult_t called = nccl->GroupStart();
    for (int r = 0; r < comm->size; from += counts[r] * rt_dtype_bytes(dtype), r++)
        nccl_also(&called, nccl->Reduce(from, dst, counts[r], type, op, r, handle, nccl_stream(comm)));
    return nccl_end_group(comm, called);
}

static int nccl_scatter(const rt_cuda_call *call) {
    return nccl_reduce_scatter(call->comm, call->dst, call->src, call->receive, call->dtype, RT_SUM, false);
}

static int nccl_begin(struct rt_comm *comm, const struct rt_collective *what) {
    static int (*const performs[])(const rt_cuda_call *) = {nccl_reduce_all, nccl_scatter, nccl_gather};
    rt_cuda_call call = rt_cuda_call_of(comm, what);
    call.rt = nccl_comm_of(comm)->rt;
    if (what->kind != RT_GATHER && !nccl_types[what->dtype].known) return nccl_refuse(comm, what->dtype);
    return rt_cuda_begin(&call, performs, &nccl_comm_of(comm)->gathers);
}

static int nccl_finish(struct rt_comm *comm, enum rt_early kind) {
    return rt_cuda_finish(nccl_comm_of(comm)->rt, kind, &nccl_comm_of(comm)->gathers);
}

static int nccl_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src,
                           const size_t *send) {
    const rt_nccl *nccl = nccl_comm_of(comm)->nccl;
    ncclComm_t handle = nccl_comm_of(comm)->handle;
    const unsigned char *from = (const unsigned char *)src;
    unsigned char *to = (unsigned char *)dst;
    ncclResult_t called = nccl->GroupStart();
    for (int r = 0; r < comm->size; from += send[r], to += receive[r], r++) {
        if (send[r]) nccl_also(&called, nccl->Send(from, send[r], ncclInt8, r, handle, nccl_stream(comm)));
        if (receive[r]) nccl_also(&called, nccl->Recv(to, receive[r], ncclInt8, r, handle, nccl_stream(comm)));
    }
    return nccl_end_group(comm, called);
}

static int nccl_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root) {
    return nccl_check(comm, nccl_comm_of(comm)->nccl->Broadcast(data, data, bytes, ncclInt8, root,
                                                                nccl_comm_of(comm)->handle, nccl_stream(comm)));
}

static int nccl_send(struct rt_comm *comm, const void *src, size_t bytes, int to) {
    return nccl_check(
        comm, nccl_comm_of(comm)->nccl->Send(src, bytes, ncclInt8, to, nccl_comm_of(comm)->handle, nccl_stream(comm)));
}

static int nccl_receive(struct rt_comm *comm, void *dst, size_t bytes, int from) {
    return nccl_check(comm, nccl_comm_of(comm)->nccl->Recv(dst, bytes, ncclInt8, from, nccl_comm_of(comm)->handle,
                                                           nccl_stream(comm)));
}

static int nccl_split(struct rt_comm *, int, struct rt_comm **) {
    return RT_ERROR_USAGE; /* communicators of the host are split, and then connected */
}

static void nccl_abort(struct rt_comm *comm) {
    nccl_abort_all(nccl_comm_of(comm)->nccl);
    nccl_comm_of(comm)->host->driver->abort(nccl_comm_of(comm)->host);
}

static int nccl_alive(struct rt_comm *comm) {
    return nccl_comm_of(comm)->host->driver->alive(nccl_comm_of(comm)->host);
}

static void nccl_close(struct rt_comm *comm) {
    rt_nccl_comm *own = nccl_comm_of(comm), **at = &own->nccl->all;
    rt_cuda_forget_segments(own->rt); /* NCCL waits until no captured graph with its operations is left */
    nccl_close_pairs(own);
    rt_cuda_close_gathers(&own->gathers);
    if (own->handle != own->nccl->world) nccl_finalize(own->rt, own->handle);
    while (*at != own) at = &(*at)->next;
    *at = own->next;
    free(own);
}

static const struct rt_comm_driver nccl_driver = {.name = "nccl",
                                                  .barrier = nccl_barrier,
                                                  .all_reduce = nccl_all_reduce,
                                                  .all_gather = nccl_all_gather,
                                                  .reduce_scatter = nccl_reduce_scatter,
                                                  .begin = nccl_begin,
                                                  .progress = nccl_alive,
                                                  .finish = nccl_finish,
                                                  .all_to_all = nccl_all_to_all,
                                                  .broadcast = nccl_broadcast,
                                                  .send = nccl_send,
                                                  .receive = nccl_receive,
                                                  .post_send = nccl_post_send,
                                                  .post_receive = nccl_post_receive,
                                                  .wait = nccl_wait,
                                                  .split = nccl_split,
                                                  .abort = nccl_abort,
                                                  .alive = nccl_alive,
                                                  .close = nccl_close,
                                                  .segment = no_segment};

static int nccl_open(struct rt *rt, rt_nccl *nccl, struct rt_comm *host, int color, struct rt_comm **out) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    RT_TRY(nccl_open_world(rt, nccl));
    rt_nccl_comm *made = (rt_nccl_comm *)calloc(1, sizeof *made);
    if (!made) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    made->comm.driver = &nccl_driver;
    made->comm.rank = host->rank;
    made->comm.size = host->size;
    made->rt = rt;
    made->nccl = nccl;
    made->host = host;
    made->next = nccl->all;
    nccl->all = made;
    *out = &made->comm;
    if (host->size == rt->world)
        made->handle = nccl->world;
    else
        RT_TRY(nccl_split_from(rt, nccl->world, color, rt->rank, &config, &made->handle));
    return nccl_joins_stages(made) ? nccl_open_pairs(made) : RT_OK;
}

int rt_cuda_open_nccl(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out) {
    rt_cuda_private *own = rt_cuda_of(rt)->own;
    if (!own->nccl) own->nccl = calloc(1, sizeof(rt_nccl));
    if (!own->nccl) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    return nccl_open(rt, (rt_nccl *)own->nccl, host, color, out);
}

void rt_cuda_close_nccl(struct rt *rt) {
    rt_nccl *nccl = nccl_of(rt);
    if (!nccl) return;
    rt_cuda_of(rt)->own->watch = NULL;
    nccl_finalize(rt, nccl->world);
    if (nccl->library) dlclose(nccl->library);
    free(nccl);
}

#else

int rt_cuda_open_nccl(struct rt *rt, struct rt_comm *, int, struct rt_comm **) {
    return rt_fail(rt, RT_ERROR_DEVICE, "ranks on several GPUs need NCCL, but this program was built without it");
}

void rt_cuda_close_nccl(struct rt *) {}

#endif

#endif
