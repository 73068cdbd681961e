/* Transport for ranks that are threads of one process on one GPU, which can so run any plan. Ranks read each other's
 * arenas, in rank order.
 *
 * Each call synchronises twice. First each rank publishes the buffers that others read and an event recorded after the
 * work that produces them; all streams wait for these events. Then each rank publishes an event recorded after its
 * reads; streams wait for those too before buffers are overwritten. Only host threads block; the GPU waits for events.
 *
 * A rank that closes keeps its events until the other ranks' streams have been told to wait for them. Messages of two
 * ranks synchronise these two only (loopback_message.cuh). */
#ifndef RT_CUDA_COMM_LOOPBACK_CUH
#define RT_CUDA_COMM_LOOPBACK_CUH

#include <atomic>

#include "loopback_message.cuh"
#include "rank.cuh"

enum { RT_LOOPBACK_RANKS = 64 };

/* What a rank publishes during a call. */
struct rt_offer {
    const void *src;
    void *dst;           /* of an all-reduce */
    const size_t *sizes; /* of an all-to-all: bytes for each rank */
    cudaEvent_t ready, done;
    std::atomic<int> *behind; /* ranks that have yet to wait for done */
};

struct rt_loopback {
    struct rt_comm comm;
    struct rt *rt;
    struct rt_comm *host;
    cudaEvent_t ready, done;
    std::atomic<int> behind;
    rt_meeting_place *place; /* of messages; NULL: a single rank */
    rt_cuda_gathers gathers;
    size_t bytes[RT_LOOPBACK_RANKS]; /* sizeof(rt_offer), by rank */
    rt_offer offers[RT_LOOPBACK_RANKS];
};

static cudaStream_t loopback_stream(const rt_loopback *loop) {
    return rt_cuda_of(loop->rt)->stream;
}

static int loopback_wait(rt_loopback *loop, cudaError_t error) {
    if (error == cudaSuccess) return RT_OK;
    snprintf(loop->comm.why, sizeof loop->comm.why, "%s", cudaGetErrorString(error));
    return RT_ERROR_SYSTEM;
}

static rt_offer loopback_offer(rt_loopback *loop, const void *src, void *dst, const size_t *sizes) {
    return {src, dst, sizes, loop->ready, loop->done, &loop->behind};
}

/* Makes the stream wait until another rank has finished reading; that rank may then destroy the event. */
static int loopback_wait_done(rt_loopback *loop, const rt_offer &other) {
    const cudaError_t error = cudaStreamWaitEvent(loopback_stream(loop), other.done, 0);
    other.behind->fetch_sub(1);
    return loopback_wait(loop, error);
}

/* Publishes the event after this rank's reads. */
static int loopback_done(rt_loopback *loop) {
    RT_TRY(loopback_wait(loop, cudaEventRecord(loop->done, loopback_stream(loop))));
    loop->behind = loop->comm.size;
    const int status = loop->host->driver->barrier(loop->host);
    if (status) loop->behind = 0;
    return status;
}

/* Waits for all ranks' published buffers; the stream's next work sees their contents. */
static int loopback_begin(rt_loopback *loop, const void *src, void *dst, const size_t *sizes) {
    const rt_offer mine = loopback_offer(loop, src, dst, sizes);
    loop->offers[0] = mine;
    if (loop->comm.size == 1) return RT_OK;
    RT_TRY(loopback_wait(loop, cudaEventRecord(loop->ready, loopback_stream(loop))));
    RT_TRY(loop->host->driver->all_gather(loop->host, loop->offers, &mine, loop->bytes));
    for (int r = 0; r < loop->comm.size; r++)
        RT_TRY(loopback_wait(loop, cudaStreamWaitEvent(loopback_stream(loop), loop->offers[r].ready, 0)));
    return RT_OK;
}

static int loopback_end(rt_loopback *loop) {
    int failed = RT_OK;
    if (loop->comm.size == 1) return RT_OK;
    RT_TRY(loopback_done(loop));
    for (int r = 0; r < loop->comm.size; r++) {
        const int status = loopback_wait_done(loop, loop->offers[r]);
        failed = failed ? failed : status;
    }
    return failed;
}

static int loopback_copy(rt_loopback *loop, void *dst, const void *src, size_t bytes) {
    if (!bytes || dst == src) return RT_OK;
    return loopback_wait(loop, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, loopback_stream(loop)));
}

struct rt_sources {
    const void *at[RT_LOOPBACK_RANKS];
    int n;
};

/* Where a result goes. */
struct rt_results {
    void *at[RT_LOOPBACK_RANKS];
    int n;
};

/* Element reduction, as in comm/reduce.c. */
template <class E> struct rt_fold_float : E {
    static __device__ typename E::sum add(typename E::sum a, typename E::sum b) { return a + b; }
};
template <class T> struct rt_fold_whole {
    using type = T;
    using sum = T;
    static __device__ T load(T x) { return x; }
    static __device__ T store(T x) { return x; }
    static __device__ T add(T a, T b) { return (T)((uint64_t)a + (uint64_t)b); }
};
struct rt_fold_truth : rt_fold_whole<uint8_t> {
    static __device__ uint8_t add(uint8_t a, uint8_t b) { return a || b; }
};

template <class E>
static int loopback_fold(struct rt *rt, const rt_results &to, const rt_sources &from, int64_t start, int64_t count,
                         enum rt_reduce reduce) {
    using T = typename E::type;
    using A = typename E::sum;
    const rt_sources sources = from;
    const rt_results results = to;
    return rt_points(rt, count, [=] __device__(int64_t p) {
        A a = E::load(((const T *)sources.at[0])[start + p]);
        for (int r = 1; r < sources.n; r++) {
            const A b = E::load(((const T *)sources.at[r])[start + p]);
            if (reduce == RT_SUM)
                a = E::add(a, b);
            else
                a = (reduce == RT_MAX ? b > a : b < a) || b != b ? b : a;
        }
        for (int r = 0; r < results.n; r++) ((T *)results.at[r])[p] = E::store(a);
    });
}

typedef int rt_fold_function(struct rt *, const rt_results &, const rt_sources &, int64_t, int64_t, enum rt_reduce);
static rt_fold_function *const loopback_folds[RT_DTYPE_COUNT] = {
#define RT_FOLD_FLOAT(id, T)                            rt_fold_float<rt_plain<T>>
#define RT_FOLD_INT(id, T)                              rt_fold_whole<T>
#define RT_FOLD_UINT(id, T)                             rt_fold_whole<T>
#define RT_FOLD_BOOL(id, T)                             rt_fold_truth
#define RT_FOLD_HALF(id, T)                             RT_FOLD_##id
#define RT_FOLD_CODE_FLOAT(id, T)                       rt_fold_whole<T> /* never called */
#define RT_FOLD_CODE_INT(id, T)                         rt_fold_whole<T>
#define RT_FOLD_CODE_UINT(id, T)                        rt_fold_whole<T>
#define RT_FOLD_F16                                     rt_fold_float<rt_fp16>
#define RT_FOLD_BF16                                    rt_fold_float<rt_bf16>
#define DTYPE(id, name, onnx, bytes, kind, T, npy, eps) loopback_fold<RT_FOLD_##kind(id, T)>,
    RT_DTYPES(DTYPE)
#undef DTYPE
};

/* Reduces elements [start, start + count) of all ranks' sources. */
static int loopback_reduce(rt_loopback *loop, const rt_results &results, int64_t start, int64_t count,
                           enum rt_dtype dtype, enum rt_reduce reduce) {
    rt_sources sources = {};
    sources.n = loop->comm.size;
    for (int r = 0; r < sources.n; r++) sources.at[r] = loop->offers[r].src;
    return loopback_folds[dtype](loop->rt, results, sources, start, count, reduce);
}

/* Calls: executed first while a segment is captured, then again at each replay. */

static rt_loopback *loopback_of(struct rt_comm *comm) {
    return (rt_loopback *)comm;
}

static int meet_all(const rt_cuda_call *call) {
    RT_TRY(loopback_begin(loopback_of(call->comm), NULL, NULL, NULL));
    return loopback_end(loopback_of(call->comm));
}

/* Each rank reduces a share of the elements and stores it to all ranks: a dst may be its rank's src. */
static int reduce_all(const rt_cuda_call *call) {
    rt_loopback *loop = loopback_of(call->comm);
    const int64_t n = (int64_t)call->count, start = n * call->comm->rank / call->comm->size,
                  end = n * (call->comm->rank + 1) / call->comm->size;
    rt_results results = {};
    if (call->comm->size == 1)
        return loopback_copy(loop, call->dst, call->src, call->count * rt_dtype_bytes(call->dtype));
    RT_TRY(loopback_begin(loop, call->src, call->dst, NULL));
    results.n = call->comm->size;
    for (int r = 0; r < results.n; r++)
        results.at[r] = (unsigned char *)loop->offers[r].dst + (size_t)start * rt_dtype_bytes(call->dtype);
    RT_TRY(loopback_reduce(loop, results, start, end - start, call->dtype, call->reduce));
    return loopback_end(loop);
}

static int gather_all(const rt_cuda_call *call) {
    rt_loopback *loop = loopback_of(call->comm);
    unsigned char *to = (unsigned char *)call->dst;
    RT_TRY(loopback_begin(loop, call->src, NULL, NULL));
    for (int r = 0; r < call->comm->size; to += call->receive[r], r++)
        RT_TRY(loopback_copy(loop, to, loop->offers[r].src, call->receive[r]));
    return loopback_end(loop);
}

static int reduce_parts(const rt_cuda_call *call) {
    rt_loopback *loop = loopback_of(call->comm);
    int64_t start = 0;
    for (int r = 0; r < call->comm->rank; r++) start += (int64_t)call->receive[r];
    rt_results results = {};
    results.n = 1;
    results.at[0] = call->dst;
    RT_TRY(loopback_begin(loop, call->src, NULL, NULL));
    RT_TRY(loopback_reduce(loop, results, start, (int64_t)call->receive[call->comm->rank], call->dtype, call->reduce));
    return loopback_end(loop);
}

static int begin_early(const rt_cuda_call *call) {
    static int (*const performs[])(const rt_cuda_call *) = {reduce_all, reduce_parts, gather_all};
    return rt_cuda_begin(call, performs, &loopback_of(call->comm)->gathers);
}

static int finish_early(const rt_cuda_call *call) {
    return rt_cuda_finish(call->rt, call->kind, &loopback_of(call->comm)->gathers);
}

static int exchange_all(const rt_cuda_call *call) {
    rt_loopback *loop = loopback_of(call->comm);
    unsigned char *to = (unsigned char *)call->dst;
    RT_TRY(loopback_begin(loop, call->src, NULL, call->send));
    for (int r = 0; r < call->comm->size; to += call->receive[r], r++) {
        size_t start = 0;
        for (int before = 0; before < call->comm->rank; before++) start += loop->offers[r].sizes[before];
        RT_TRY(loopback_copy(loop, to, (const unsigned char *)loop->offers[r].src + start, call->receive[r]));
    }
    return loopback_end(loop);
}

static int give_all(const rt_cuda_call *call) {
    rt_loopback *loop = loopback_of(call->comm);
    RT_TRY(loopback_begin(loop, call->dst, NULL, NULL));
    RT_TRY(loopback_copy(loop, call->dst, loop->offers[call->peer].src, call->count));
    return loopback_end(loop);
}

/* Messages (Note [Meeting in loopback]) */

static int post_end(struct rt_comm *comm, enum rt_end end, void *data, size_t bytes, int peer,
                    struct rt_request *request) {
    rt_loopback *loop = loopback_of(comm);
    const int from = end == RT_SENDING ? comm->rank : peer, to = end == RT_SENDING ? peer : comm->rank;
    if (peer < 0 || peer >= comm->size || from == to) {
        snprintf(comm->why, sizeof comm->why, "rank %d cannot exchange messages with rank %d", comm->rank, peer);
        return RT_ERROR_USAGE;
    }
    rt_message *message = NULL;
    const cudaError_t error = message_post(loop->place, &loop->place->pairs[from * comm->size + to], end, data, bytes,
                                           loopback_stream(loop), &message);
    *request = {};
    request->handle = message;
    return loopback_wait(loop, error);
}

static int loopback_post_send(struct rt_comm *comm, const void *src, size_t bytes, int to, struct rt_request *request) {
    return post_end(comm, RT_SENDING, (void *)src, bytes, to, request);
}

static int loopback_post_receive(struct rt_comm *comm, void *dst, size_t bytes, int from, struct rt_request *request) {
    return post_end(comm, RT_RECEIVING, dst, bytes, from, request);
}

static int loopback_wait_request(struct rt_comm *comm, struct rt_request *request) {
    rt_loopback *loop = loopback_of(comm);
    rt_message *message = (rt_message *)request->handle;
    RT_TRY(message_meet(loop->place, message, [&] { return loop->host->driver->alive(loop->host); }));
    const size_t sent = message->end[RT_SENDING].bytes, received = message->end[RT_RECEIVING].bytes;
    if (sent != received) {
        snprintf(comm->why, sizeof comm->why, "a receive of %zu bytes meets a send of %zu bytes", received, sent);
        return RT_ERROR_USAGE;
    }
    RT_TRY(loopback_wait(loop, message->error));
    RT_TRY(loopback_wait(loop, cudaStreamWaitEvent(loopback_stream(loop), message->copied, 0)));
    message_leave(loop->place, message);
    return RT_OK;
}

static int send_one(const rt_cuda_call *call) {
    struct rt_request request;
    RT_TRY(loopback_post_send(call->comm, call->src, call->count, call->peer, &request));
    return loopback_wait_request(call->comm, &request);
}

static int receive_one(const rt_cuda_call *call) {
    struct rt_request request;
    RT_TRY(loopback_post_receive(call->comm, call->dst, call->count, call->peer, &request));
    return loopback_wait_request(call->comm, &request);
}

/* The driver of comm.h. A single rank does not synchronise, so its calls may be captured. */

static int loopback_call(struct rt_comm *comm, rt_cuda_call call) {
    call.comm = comm;
    call.rt = loopback_of(comm)->rt;
    return comm->size == 1 ? call.perform(&call) : rt_cuda_meet(&call);
}

static int loopback_barrier(struct rt_comm *comm) {
    return loopback_call(comm, {.perform = meet_all});
}

static int loopback_all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                               enum rt_reduce reduce) {
    return loopback_call(
        comm, {.perform = reduce_all, .dst = dst, .src = src, .count = count, .dtype = dtype, .reduce = reduce});
}

static int loopback_all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes) {
    return loopback_call(comm, {.perform = gather_all, .dst = dst, .src = src, .receive = bytes});
}

static int loopback_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts,
                                   enum rt_dtype dtype, enum rt_reduce reduce, bool) {
    return loopback_call(
        comm, {.perform = reduce_parts, .dst = dst, .src = src, .dtype = dtype, .reduce = reduce, .receive = counts});
}

static int loopback_early(struct rt_comm *comm, const struct rt_collective *what) {
    rt_cuda_call call = rt_cuda_call_of(comm, what);
    call.perform = begin_early;
    return loopback_call(comm, call);
}

static int loopback_finish(struct rt_comm *comm, enum rt_early kind) {
    return loopback_call(comm, {.perform = finish_early, .kind = kind});
}

static int loopback_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src,
                               const size_t *send) {
    return loopback_call(comm, {.perform = exchange_all, .dst = dst, .src = src, .receive = receive, .send = send});
}

static int loopback_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root) {
    return loopback_call(comm, {.perform = give_all, .dst = data, .count = bytes, .peer = root});
}

static int loopback_send(struct rt_comm *comm, const void *src, size_t bytes, int to) {
    return loopback_call(comm, {.perform = send_one, .src = src, .count = bytes, .peer = to});
}

static int loopback_receive(struct rt_comm *comm, void *dst, size_t bytes, int from) {
    return loopback_call(comm, {.perform = receive_one, .dst = dst, .count = bytes, .peer = from});
}

static int loopback_split(struct rt_comm *, int, struct rt_comm **) {
    return RT_ERROR_USAGE; /* split the host communicator, then connect */
}

static void loopback_abort(struct rt_comm *comm) {
    loopback_of(comm)->host->driver->abort(loopback_of(comm)->host);
}

static int loopback_alive(struct rt_comm *comm) {
    return loopback_of(comm)->host->driver->alive(loopback_of(comm)->host);
}

static void loopback_close(struct rt_comm *comm) {
    rt_loopback *loop = loopback_of(comm);
    while (loop->behind > 0 && !loopback_alive(comm)) usleep(RT_NAP_US);
    if (loop->ready) cudaEventDestroy(loop->ready);
    if (loop->done) cudaEventDestroy(loop->done);
    rt_cuda_close_gathers(&loop->gathers);
    if (loop->place) meeting_place_leave(loop->place);
    free(loop);
}

static const struct rt_comm_driver loopback_driver = {.name = "cuda loopback",
                                                      .barrier = loopback_barrier,
                                                      .all_reduce = loopback_all_reduce,
                                                      .all_gather = loopback_all_gather,
                                                      .reduce_scatter = loopback_reduce_scatter,
                                                      .begin = loopback_early,
                                                      .progress = loopback_alive,
                                                      .finish = loopback_finish,
                                                      .all_to_all = loopback_all_to_all,
                                                      .broadcast = loopback_broadcast,
                                                      .send = loopback_send,
                                                      .receive = loopback_receive,
                                                      .post_send = loopback_post_send,
                                                      .post_receive = loopback_post_receive,
                                                      .wait = loopback_wait_request,
                                                      .split = loopback_split,
                                                      .abort = loopback_abort,
                                                      .alive = loopback_alive,
                                                      .close = loopback_close,
                                                      .segment = no_segment};

/* The first rank makes what all share. */
static int loopback_open_place(struct rt *rt, rt_loopback *loop) {
    rt_meeting_place *place = loop->comm.rank == 0 ? meeting_place_open(loop->comm.size) : NULL;
    const int status = loop->host->driver->broadcast(loop->host, &place, sizeof place, 0);
    if (status) return rt_fail_comm(rt, loop->host, status);
    loop->place = place;
    return place ? RT_OK : rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
}

int rt_cuda_open_loopback(struct rt *rt, struct rt_comm *host, struct rt_comm **out) {
    if (host->size > RT_LOOPBACK_RANKS)
        return rt_fail(rt, RT_ERROR_USAGE, "loopback supports at most %d ranks along one axis", RT_LOOPBACK_RANKS);
    rt_loopback *loop = (rt_loopback *)calloc(1, sizeof *loop);
    if (!loop) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    loop->comm.driver = &loopback_driver;
    loop->comm.rank = host->rank;
    loop->comm.size = host->size;
    loop->rt = rt;
    loop->host = host;
    for (int r = 0; r < host->size; r++) loop->bytes[r] = sizeof(rt_offer);
    *out = &loop->comm;
    RT_CUDA_TRY(rt, cudaEventCreateWithFlags(&loop->ready, cudaEventDisableTiming));
    RT_CUDA_TRY(rt, cudaEventCreateWithFlags(&loop->done, cudaEventDisableTiming));
    return host->size > 1 ? loopback_open_place(rt, loop) : RT_OK;
}

#endif
