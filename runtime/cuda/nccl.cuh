/* NCCL as this runtime uses it: the library, loaded when needed, the communicator of all ranks, and how its operations
 * are waited for. */
#ifndef RT_CUDA_NCCL_CUH
#define RT_CUDA_NCCL_CUH

#include "rank.cuh"

#if __has_include(<nccl.h>) && !defined(RT_WITHOUT_NCCL)
#define RT_HAS_NCCL 1
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

/* The functions of the library that are used. */
#define RT_NCCL_FUNCTIONS(F)                                                                                           \
    F(GetUniqueId)                                                                                                     \
    F(CommInitRankConfig)                                                                                              \
    F(CommSplit)                                                                                                       \
    F(CommCount)                                                                                                       \
    F(CommUserRank)                                                                                                    \
    F(CommCuDevice)                                                                                                    \
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

struct rt_nccl_comm;

struct rt_nccl {
    void *library;
#define F(name) decltype(&nccl##name) name;
    RT_NCCL_FUNCTIONS(F)
#undef F
    ncclComm_t world;
    rt_nccl_comm *all; /* that were split from it */
    bool aborted;
};

/* A communicator of a rank that sends and one that receives, for messages that are posted (nccl_message.cuh). */
struct rt_nccl_pair {
    ncclComm_t handle;
    cudaStream_t stream;
    int peer; /* in the communicator that it was split from */
    bool sends;
    rt_nccl_pair *next;
};

/* A transfer that was posted; used again after it was waited for. */
struct rt_nccl_posted {
    cudaEvent_t done; /* in the pair's stream */
    rt_nccl_posted *next;
};

struct rt_nccl_comm {
    struct rt_comm comm;
    struct rt *rt;
    rt_nccl *nccl;
    struct rt_comm *host;
    ncclComm_t handle;   /* the world's where it joins all ranks */
    rt_nccl_pair *pairs; /* in the order in which all ranks made them */
    rt_nccl_posted *unused;
    rt_cuda_gathers gathers;
    rt_nccl_comm *next;
};

static rt_nccl *nccl_of(struct rt *rt) {
    return (rt_nccl *)rt_cuda_of(rt)->own->nccl;
}

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

/* Note [Aborts]
 * NCCL kernels wait for other ranks without a time limit, also after one of them has failed. Every wait on the host
 * therefore polls NCCL's asynchronous errors and the host communicator, which a failing rank marks. On failure all
 * communicators of the process are aborted, which ends the kernels on the GPU. */
static void nccl_abort_all(rt_nccl *nccl) {
    if (nccl->aborted) return;
    nccl->aborted = true;
    for (rt_nccl_comm *comm = nccl->all; comm; comm = comm->next) {
        for (rt_nccl_pair *pair = comm->pairs; pair; pair = pair->next)
            if (pair->handle) nccl->CommAbort(pair->handle);
        if (comm->handle && comm->handle != nccl->world) nccl->CommAbort(comm->handle);
    }
    if (nccl->world) nccl->CommAbort(nccl->world);
}

static int nccl_fail(struct rt *rt, ncclResult_t result) {
    rt_nccl *nccl = nccl_of(rt);
    nccl_abort_all(nccl);
    rt->comm->driver->abort(rt->comm);
    return rt_fail(rt, RT_ERROR_DEVICE, "NCCL: %s", nccl->GetErrorString(result));
}

/* True if a rank has failed. */
static int nccl_check_alive(struct rt *rt) {
    const int status = rt->comm->driver->alive(rt->comm);
    if (!status) return RT_OK;
    nccl_abort_all(nccl_of(rt));
    return rt_fail_comm(rt, rt->comm, status);
}

/* Waits until pending operations of a non-blocking communicator are complete. */
static int nccl_settle(struct rt *rt, ncclComm_t handle, ncclResult_t result) {
    while (result == ncclInProgress) {
        const ncclResult_t asked = nccl_of(rt)->CommGetAsyncError(handle, &result);
        if (asked != ncclSuccess) return nccl_fail(rt, asked);
        if (result != ncclInProgress) break;
        RT_TRY(nccl_check_alive(rt));
        usleep(RT_NAP_US);
    }
    return result == ncclSuccess ? RT_OK : nccl_fail(rt, result);
}

static int nccl_look_at(struct rt *rt, ncclComm_t handle) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_of(rt)->CommGetAsyncError(handle, &state);
    if (asked != ncclSuccess) return nccl_fail(rt, asked);
    return state == ncclSuccess || state == ncclInProgress ? RT_OK : nccl_fail(rt, state);
}

static int nccl_watch(struct rt *rt) {
    RT_TRY(nccl_check_alive(rt));
    for (const rt_nccl_comm *comm = nccl_of(rt)->all; comm; comm = comm->next) {
        RT_TRY(nccl_look_at(rt, comm->handle));
        for (const rt_nccl_pair *pair = comm->pairs; pair; pair = pair->next) RT_TRY(nccl_look_at(rt, pair->handle));
    }
    return RT_OK;
}

/* Splits a communicator, like ncclCommSplit; *made stays NULL for NCCL_SPLIT_NOCOLOR. ncclCommSplit returns success
 * while it is still in progress (2.28), so the parent is always asked. The new handle exists once the parent's
 * operation is complete; then its own initialisation completes. */
static int nccl_split_from(struct rt *rt, ncclComm_t parent, int color, int key, ncclConfig_t *config,
                           ncclComm_t *made) {
    config->blocking = 0;
    const ncclResult_t result = nccl_of(rt)->CommSplit(parent, color, key, made, config);
    RT_TRY(nccl_settle(rt, parent, result == ncclSuccess ? ncclInProgress : result));
    return *made ? nccl_settle(rt, *made, ncclInProgress) : RT_OK;
}

/* Rank 0's ncclUniqueId is broadcast by the host communicator. */
static int nccl_init_world(struct rt *rt, rt_nccl *nccl, ncclConfig_t *config) {
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    if (rt->rank == 0) result = nccl->GetUniqueId(&id);
    if (result != ncclSuccess) return nccl_fail(rt, result);
    const int status = rt->comm->driver->broadcast(rt->comm, &id, sizeof id, 0);
    if (status) return rt_fail_comm(rt, rt->comm, status);
    config->blocking = 0;
    result = nccl->CommInitRankConfig(&nccl->world, rt->world, id, rt->rank, config);
    return nccl_settle(rt, nccl->world, result);
}

/* A caller's communicator must have the job's ranks and this rank's GPU. */
static int nccl_check_callers(struct rt *rt, const rt_nccl *nccl, ncclComm_t given) {
    int rank = -1, size = 0, device = -1;
    ncclResult_t result = nccl->CommUserRank(given, &rank);
    if (result == ncclSuccess) result = nccl->CommCount(given, &size);
    if (result == ncclSuccess) result = nccl->CommCuDevice(given, &device);
    if (result != ncclSuccess)
        return rt_fail(rt, RT_ERROR_USAGE, "the caller's NCCL communicator: %s", nccl->GetErrorString(result));
    if (rank != rt->rank || size != rt->world)
        return rt_fail(rt, RT_ERROR_USAGE, "rank %d of %d is rank %d of %d of the caller's NCCL communicator", rt->rank,
                       rt->world, rank, size);
    if (device == rt_cuda_of(rt)->own->number) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "the current device is GPU %d, but the caller's NCCL communicator is of GPU %d",
                   rt_cuda_of(rt)->own->number, device);
}

static int nccl_adopt_world(struct rt *rt, rt_nccl *nccl, ncclComm_t given, ncclConfig_t *config) {
    RT_TRY(nccl_check_callers(rt, nccl, given));
    return nccl_split_from(rt, given, 0, rt->rank, config, &nccl->world);
}

/* Makes the communicator of all ranks, or splits it from the caller's. */
static int nccl_open_world(struct rt *rt, rt_nccl *nccl) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const ncclComm_t *given = (const ncclComm_t *)rt_cuda_of(rt)->own->callers_comm;
    if (nccl->world) return RT_OK;
    RT_TRY(nccl_load(rt, nccl));
    rt_cuda_of(rt)->own->watch = nccl_watch;
    return given ? nccl_adopt_world(rt, nccl, *given, &config) : nccl_init_world(rt, nccl, &config);
}

static rt_nccl_comm *nccl_comm_of(struct rt_comm *comm) {
    return (rt_nccl_comm *)comm;
}

static cudaStream_t nccl_stream(struct rt_comm *comm) {
    return rt_cuda_of(nccl_comm_of(comm)->rt)->stream;
}

/* Called by all of its ranks, or some have failed. */
static void nccl_finalize(struct rt *rt, ncclComm_t handle) {
    rt_nccl *nccl = nccl_of(rt);
    if (!handle || nccl->aborted || nccl_check_alive(rt) || nccl_settle(rt, handle, nccl->CommFinalize(handle))) return;
    nccl->CommDestroy(handle);
}

#endif

#endif
