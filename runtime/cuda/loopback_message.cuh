/* Messages between ranks that are threads of one process on one GPU.
 *
 * Note [Meeting in loopback]
 * An ordered pair of ranks has a list of messages that one end has posted and the other has not, in the order of
 * posting. The end that is posted second takes the first message of the list and enqueues its copy, on a stream of the
 * pair: after the work that the two ranks' streams had at their posting, which produces the source and uses the
 * destination. A wait for either end waits on the host until the copy is enqueued, and makes the rank's stream wait for
 * it. No rank has to advance the messages of another. */
#ifndef RT_CUDA_LOOPBACK_MESSAGE_CUH
#define RT_CUDA_LOOPBACK_MESSAGE_CUH

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>

#include "rank.cuh"

enum rt_end { RT_SENDING, RT_RECEIVING, RT_ENDS };

/* Its events are created once; it is used again after both ends were waited for. */
struct rt_message {
    struct {
        void *data;
        size_t bytes;
        cudaEvent_t posted; /* in the rank's stream */
    } end[RT_ENDS];
    cudaEvent_t copied; /* in the pair's stream */
    bool met;           /* both ends are posted */
    cudaError_t error;  /* of enqueueing the copy */
    int waited;         /* ends that were waited for */
    rt_message *next;
};

/* Of an ordered pair of ranks. */
struct rt_pair {
    cudaStream_t stream; /* NULL: no message yet */
    enum rt_end posted;  /* which end of the messages in the list */
    rt_message *first, *last;
};

/* What the ranks of a communicator share; the last one to leave frees it. */
struct rt_meeting_place {
    std::mutex lock; /* of all else */
    std::condition_variable met;
    int size, users;
    rt_pair *pairs; /* [sender * size + receiver] */
    rt_message *unused;
};

static void message_free(rt_message *message) {
    for (auto &end : message->end)
        if (end.posted) cudaEventDestroy(end.posted);
    if (message->copied) cudaEventDestroy(message->copied);
    free(message);
}

static void messages_free(rt_message *first) {
    for (rt_message *next; first; first = next) {
        next = first->next;
        message_free(first);
    }
}

static rt_meeting_place *meeting_place_open(int size) {
    rt_meeting_place *place = new (std::nothrow) rt_meeting_place();
    if (!place) return NULL;
    place->size = place->users = size;
    place->pairs = (rt_pair *)calloc((size_t)(size * size), sizeof *place->pairs);
    if (place->pairs) return place;
    delete place;
    return NULL;
}

static void meeting_place_leave(rt_meeting_place *place) {
    {
        std::lock_guard<std::mutex> hold(place->lock);
        if (--place->users > 0) return;
    }
    for (int i = 0; i < place->size * place->size; i++) {
        if (place->pairs[i].stream) cudaStreamDestroy(place->pairs[i].stream);
        messages_free(place->pairs[i].first);
    }
    messages_free(place->unused);
    free(place->pairs);
    delete place;
}

/* A message with events; NULL: out of memory, or the driver failed. */
static rt_message *message_new(rt_meeting_place *place) {
    rt_message *message = place->unused;
    if (message) {
        place->unused = message->next;
        message->next = NULL;
        message->met = false;
        message->waited = 0;
        return message;
    }
    message = (rt_message *)calloc(1, sizeof *message);
    if (!message) return NULL;
    bool ok = cudaEventCreateWithFlags(&message->copied, cudaEventDisableTiming) == cudaSuccess;
    for (auto &end : message->end)
        ok = ok && cudaEventCreateWithFlags(&end.posted, cudaEventDisableTiming) == cudaSuccess;
    if (ok) return message;
    message_free(message);
    return NULL;
}

/* The message of the pair whose end `end` is posted next. */
static rt_message *message_next(rt_meeting_place *place, rt_pair *pair, enum rt_end end) {
    rt_message *message = pair->first;
    if (message && pair->posted != end) {
        pair->first = message->next;
        message->next = NULL;
        message->met = true;
        return message;
    }
    message = message_new(place);
    if (!message) return NULL;
    pair->posted = end;
    if (pair->first)
        pair->last->next = message;
    else
        pair->first = message;
    return pair->last = message;
}

static cudaError_t message_copy(rt_pair *pair, const rt_message *message) {
    const size_t bytes = message->end[RT_SENDING].bytes;
    cudaError_t error = cudaSuccess;
    if (!pair->stream) error = cudaStreamCreateWithFlags(&pair->stream, cudaStreamNonBlocking);
    for (const auto &end : message->end)
        if (error == cudaSuccess) error = cudaStreamWaitEvent(pair->stream, end.posted, 0);
    if (error == cudaSuccess && bytes > 0)
        error = cudaMemcpyAsync(message->end[RT_RECEIVING].data, message->end[RT_SENDING].data, bytes,
                                cudaMemcpyDeviceToDevice, pair->stream);
    return error == cudaSuccess ? cudaEventRecord(message->copied, pair->stream) : error;
}

/* Posts an end; `data` is complete, or free to be overwritten, after the work that `stream` has now. What is wrong with
 * the copy is told to both ends when they wait. */
static cudaError_t message_post(rt_meeting_place *place, rt_pair *pair, enum rt_end end, void *data, size_t bytes,
                                cudaStream_t stream, rt_message **out) {
    std::lock_guard<std::mutex> hold(place->lock);
    rt_message *message = *out = message_next(place, pair, end);
    if (!message) return cudaErrorMemoryAllocation;
    message->end[end].data = data;
    message->end[end].bytes = bytes;
    const cudaError_t error = cudaEventRecord(message->end[end].posted, stream);
    if (!message->met) return error;
    message->error = error;
    if (error == cudaSuccess && message->end[RT_SENDING].bytes == message->end[RT_RECEIVING].bytes)
        message->error = message_copy(pair, message);
    place->met.notify_all();
    return error;
}

/* Waits on the host until both ends are posted. alive() is not RT_OK once the job was aborted. */
template <class F> static int message_meet(rt_meeting_place *place, const rt_message *message, F alive) {
    std::unique_lock<std::mutex> hold(place->lock);
    while (!message->met) {
        RT_TRY(alive());
        place->met.wait_for(hold, std::chrono::milliseconds(1));
    }
    return RT_OK;
}

/* An end was waited for; the second one gives the message back. */
static void message_leave(rt_meeting_place *place, rt_message *message) {
    std::lock_guard<std::mutex> hold(place->lock);
    if (++message->waited < RT_ENDS) return;
    message->next = place->unused;
    place->unused = message;
}

#endif
