/* Ranks that are processes with a GPU each: NCCL, which is loaded when it is needed. One communicator joins all ranks; those of
 * the mesh axes and of the units are split from it, as the plan needs them. They are made without blocking and watched: when one
 * fails, all of the process' are aborted. */
#ifndef RT_CUDA_COMM_NCCL_CUH
#define RT_CUDA_COMM_NCCL_CUH

#include "device.cuh"

#if __has_include(<nccl.h>) && !defined(RT_WITHOUT_NCCL)
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

/* The functions of the library that are called. */
#define RT_NCCL_FUNCTIONS(F)                                                                                           \
    F(GetUniqueId)                                                                                                     \
    F(CommInitRankConfig)                                                                                              \
    F(CommSplit)                                                                                                       \
    F(CommGetAsyncError)                                                                                               \
    F(CommAbort)                                                                                                       \
    F(CommDestroy)                                                                                                     \
    F(CommFinalize)                                                                                                    \
    F(GetErrorString)                                                                                                  \
    F(GroupStart)                                                                                                      \
    F(GroupEnd)                                                                                                        \
    F(AllReduce)                                                                                                       \
    F(AllGather)                                                                                                       \
    F(ReduceScatter)                                                                                                   \
    F(Broadcast)                                                                                                       \
    F(Reduce)                                                                                                          \
    F(Send)                                                                                                            \
    F(Recv)

struct rt_nccl {
    void *library;
#define F(name) decltype(&nccl##name) name;
    RT_NCCL_FUNCTIONS(F)
#undef F
    ncclComm_t world;
};

struct rt_nccl_comm {
    struct rt_comm comm;
    struct rt *rt;
    const rt_nccl *nccl;
    struct rt_comm *host;
    ncclComm_t handle;
};

static int nccl_load(struct rt *rt, rt_nccl *nccl) {
    nccl->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!nccl->library) return rt_fail(rt, RT_ERROR_DEVICE, "ranks on several GPUs need NCCL: %s", dlerror());
#define F(name)                                                                                                        \
    nccl->name = (decltype(nccl->name))dlsym(nccl->library, "nccl" #name);                                             \
    if (!nccl->name) return rt_fail(rt, RT_ERROR_DEVICE, "libnccl.so.2 has no nccl" #name);
    RT_NCCL_FUNCTIONS(F)
#undef F
    return RT_OK;
}

/* What is under way on a communicator that does not block is done, or has failed. */
static ncclResult_t nccl_settle(const rt_nccl *nccl, ncclComm_t handle, ncclResult_t result) {
    while (result == ncclInProgress) {
        const ncclResult_t asked = nccl->CommGetAsyncError(handle, &result);
        if (asked != ncclSuccess) return asked;
        if (result == ncclInProgress) usleep(100);
    }
    return result;
}

static int nccl_fail_open(struct rt *rt, const rt_nccl *nccl, ncclResult_t result) {
    return rt_fail(rt, RT_ERROR_DEVICE, "NCCL cannot join the ranks: %s", nccl->GetErrorString(result));
}

/* The communicator of all ranks; the first rank's identifier goes by way of the host's. */
static int nccl_open_world(struct rt *rt, rt_nccl *nccl) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    if (nccl->world) return RT_OK;
    RT_TRY(nccl_load(rt, nccl));
    if (rt->rank == 0) result = nccl->GetUniqueId(&id);
    if (result != ncclSuccess) return nccl_fail_open(rt, nccl, result);
    const int status = rt->comm->driver->broadcast(rt->comm, &id, sizeof id, 0);
    if (status) return rt_fail_comm(rt, rt->comm, status);
    config.blocking = 0;
    result = nccl->CommInitRankConfig(&nccl->world, rt->world, id, rt->rank, &config);
    result = nccl_settle(nccl, nccl->world, result);
    return result == ncclSuccess ? RT_OK : nccl_fail_open(rt, nccl, result);
}

/* The vtable: comm.h. */

static rt_nccl_comm *nccl_of(struct rt_comm *comm) {
    return (rt_nccl_comm *)comm;
}

static cudaStream_t nccl_stream(struct rt_comm *comm) {
    return rt_cuda_of(nccl_of(comm)->rt)->stream;
}

static int nccl_check(struct rt_comm *comm, ncclResult_t result) {
    const rt_nccl *nccl = nccl_of(comm)->nccl;
    result = nccl_settle(nccl, nccl_of(comm)->handle, result);
    if (result == ncclSuccess) return RT_OK;
    snprintf(comm->why, sizeof comm->why, "NCCL: %s", nccl->GetErrorString(result));
    return RT_ERROR_SYSTEM;
}

/* How NCCL calls a type, and what stands for a sum of it; bool is "or". */
struct nccl_type {
    ncclDataType_t type;
    bool known;
};
static const nccl_type nccl_types[RT_DTYPE_COUNT] = {
    {ncclFloat32, true}, {ncclFloat64, true}, {ncclFloat16, true}, {ncclBfloat16, true}, {ncclInt64, true},
    {ncclInt32, true},   {ncclInt8, false},   {ncclInt8, true},    {ncclUint64, true},   {ncclUint32, true},
    {ncclUint8, false},  {ncclUint8, true},   {ncclUint8, true}};
static_assert(RT_F32 == 0 && RT_F64 == 1 && RT_F16 == 2 && RT_BF16 == 3 && RT_I64 == 4 && RT_BOOL == 12,
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
    return nccl_of(comm)->host->driver->barrier(nccl_of(comm)->host);
}

static int nccl_all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                           enum rt_reduce reduce) {
    if (!nccl_types[dtype].known) return nccl_refuse(comm, dtype);
    return nccl_check(comm, nccl_of(comm)->nccl->AllReduce(src, dst, count, nccl_types[dtype].type,
                                                           nccl_op(dtype, reduce), nccl_of(comm)->handle,
                                                           nccl_stream(comm)));
}

static bool all_equal(const size_t *sizes, int n) {
    for (int r = 1; r < n; r++)
        if (sizes[r] != sizes[0]) return false;
    return true;
}

static int nccl_all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes) {
    const rt_nccl *nccl = nccl_of(comm)->nccl;
    ncclComm_t handle = nccl_of(comm)->handle;
    unsigned char *to = (unsigned char *)dst;
    if (all_equal(bytes, comm->size))
        return nccl_check(comm, nccl->AllGather(src, dst, bytes[0], ncclInt8, handle, nccl_stream(comm)));
    nccl->GroupStart();
    for (int r = 0; r < comm->size; to += bytes[r], r++)
        nccl->Broadcast(src, to, bytes[r], ncclInt8, r, handle, nccl_stream(comm));
    return nccl_check(comm, nccl->GroupEnd());
}

static int nccl_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts,
                               enum rt_dtype dtype, enum rt_reduce reduce) {
    const rt_nccl *nccl = nccl_of(comm)->nccl;
    ncclComm_t handle = nccl_of(comm)->handle;
    const ncclDataType_t type = nccl_types[dtype].type;
    const ncclRedOp_t op = nccl_op(dtype, reduce);
    const unsigned char *from = (const unsigned char *)src;
    if (!nccl_types[dtype].known) return nccl_refuse(comm, dtype);
    if (all_equal(counts, comm->size))
        return nccl_check(comm, nccl->ReduceScatter(src, dst, counts[0], type, op, handle, nccl_stream(comm)));
    nccl->GroupStart();
    for (int r = 0; r < comm->size; from += counts[r] * rt_dtype_bytes(dtype), r++)
        nccl->Reduce(from, dst, counts[r], type, op, r, handle, nccl_stream(comm));
    return nccl_check(comm, nccl->GroupEnd());
}

static int nccl_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send) {
    const rt_nccl *nccl = nccl_of(comm)->nccl;
    ncclComm_t handle = nccl_of(comm)->handle;
    const unsigned char *from = (const unsigned char *)src;
    unsigned char *to = (unsigned char *)dst;
    nccl->GroupStart();
    for (int r = 0; r < comm->size; from += send[r], to += receive[r], r++) {
        if (send[r]) nccl->Send(from, send[r], ncclInt8, r, handle, nccl_stream(comm));
        if (receive[r]) nccl->Recv(to, receive[r], ncclInt8, r, handle, nccl_stream(comm));
    }
    return nccl_check(comm, nccl->GroupEnd());
}

static int nccl_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root) {
    return nccl_check(comm, nccl_of(comm)->nccl->Broadcast(data, data, bytes, ncclInt8, root, nccl_of(comm)->handle,
                                                           nccl_stream(comm)));
}

static int nccl_send(struct rt_comm *comm, const void *src, size_t bytes, int to) {
    return nccl_check(comm,
                      nccl_of(comm)->nccl->Send(src, bytes, ncclInt8, to, nccl_of(comm)->handle, nccl_stream(comm)));
}

static int nccl_receive(struct rt_comm *comm, void *dst, size_t bytes, int from) {
    return nccl_check(comm,
                      nccl_of(comm)->nccl->Recv(dst, bytes, ncclInt8, from, nccl_of(comm)->handle, nccl_stream(comm)));
}

static int nccl_split(struct rt_comm *, int, struct rt_comm **) {
    return RT_ERROR_USAGE; /* communicators of the host are split, and then connected */
}

static void nccl_abort(struct rt_comm *comm) {
    nccl_of(comm)->nccl->CommAbort(nccl_of(comm)->handle);
    nccl_of(comm)->handle = NULL;
    nccl_of(comm)->host->driver->abort(nccl_of(comm)->host);
}

static void nccl_close(struct rt_comm *comm) {
    if (nccl_of(comm)->handle) nccl_of(comm)->nccl->CommDestroy(nccl_of(comm)->handle);
    free(comm);
}

static void *nccl_segment(struct rt_comm *, size_t *bytes) {
    *bytes = 0;
    return NULL;
}

static const struct rt_comm_driver nccl_driver = {"nccl",
                                                  nccl_barrier,
                                                  nccl_all_reduce,
                                                  NULL, /* sums do not begin early */
                                                  NULL,
                                                  NULL,
                                                  nccl_all_gather,
                                                  nccl_reduce_scatter,
                                                  nccl_all_to_all,
                                                  nccl_broadcast,
                                                  nccl_send,
                                                  nccl_receive,
                                                  nccl_split,
                                                  nccl_abort,
                                                  nccl_close,
                                                  nccl_segment,
                                                  NULL};

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
    *out = &made->comm;
    config.blocking = 0;
    ncclResult_t result = nccl->CommSplit(nccl->world, color, rt->rank, &made->handle, &config);
    result = nccl_settle(nccl, nccl->world, result);
    if (result == ncclSuccess) result = nccl_settle(nccl, made->handle, ncclInProgress);
    return result == ncclSuccess ? RT_OK : nccl_fail_open(rt, nccl, result);
}

int rt_cuda_open_nccl(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out) {
    rt_cuda_private *own = rt_cuda_of(rt)->own;
    if (!own->nccl) own->nccl = calloc(1, sizeof(rt_nccl));
    if (!own->nccl) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    return nccl_open(rt, (rt_nccl *)own->nccl, host, color, out);
}

void rt_cuda_close_nccl(struct rt *rt) {
    rt_nccl *nccl = (rt_nccl *)rt_cuda_of(rt)->own->nccl;
    if (!nccl) return;
    if (nccl->world) nccl->CommDestroy(nccl->world);
    if (nccl->library) dlclose(nccl->library);
    free(nccl);
}

#else

int rt_cuda_open_nccl(struct rt *rt, struct rt_comm *, int, struct rt_comm **) {
    return rt_fail(rt, RT_ERROR_DEVICE, "ranks on several GPUs need NCCL, without which this program was built");
}

void rt_cuda_close_nccl(struct rt *) {
}

#endif

#endif
