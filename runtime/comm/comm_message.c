/* Messages between two ranks that share memory.
 *
 * Note [Messages]
 * An ordered pair of ranks has a ring of RT_SHARED_MESSAGES messages that the sender has announced and the receiver has
 * not taken. A message whose source is in symmetric memory is copied from there by the receiver. Others are staged: the
 * sender copies them in pieces to memory of the pair, which holds two pieces.
 *
 * Each rank keeps its incomplete transfers in a queue per peer and direction, in the order of posting. The first ones
 * of a queue are in the ring. Whenever a rank waits, all its queues advance: sends are announced and staged as space
 * permits, and messages that have come are copied to the receives that were posted for them. The limits of the ring
 * therefore never block a program that completes with unlimited buffers. */
#include "comm/comm_shared_private.h"

#include <stdlib.h>
#include <string.h>

static uint64_t load(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_acquire);
}
static void publish(const struct queue *queue, _Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_release);
    rt_bell_ring(queue->bell);
}

struct transfers *shared_new_transfers(int ranks) {
    struct transfers *transfers = calloc(1, sizeof *transfers);
    if (!transfers) return NULL;
    transfers->to = calloc((size_t)ranks, sizeof *transfers->to);
    transfers->from = calloc((size_t)ranks, sizeof *transfers->from);
    if (transfers->to && transfers->from) return transfers;
    shared_leave_transfers(transfers);
    return NULL;
}

void shared_leave_transfers(struct transfers *transfers) {
    if (!transfers || --transfers->users > 0) return;
    free(transfers->to);
    free(transfers->from);
    free(transfers);
}

static void complete_first(struct shared *shared, struct queue *queue) {
    struct rt_request *request = queue->first;
    queue->first = request->next;
    request->complete = true;
    shared->transfers->outstanding--;
    shared_count_move(shared);
}

static unsigned char *mail_piece(const struct queue *queue, uint64_t number) {
    return queue->mail + (number & 1) * RT_SHARED_MAIL;
}

static size_t next_piece(const struct rt_request *request) {
    const size_t left = request->bytes - request->done;
    return left < RT_SHARED_MAIL ? left : RT_SHARED_MAIL;
}

/* Puts a send into the ring; false if the ring is full. */
static bool announce(const struct queue *queue, struct rt_request *request) {
    struct mailbox *box = queue->box;
    const uint64_t posted = load(&box->posted);
    struct message *message = &box->message[posted % RT_SHARED_MESSAGES];
    if (posted - load(&box->taken) >= RT_SHARED_MESSAGES) return false;
    atomic_store_explicit(&message->bytes, request->bytes, memory_order_relaxed);
    atomic_store_explicit(&message->source, request->place, memory_order_relaxed);
    atomic_store_explicit(&message->level, (uint64_t)request->level, memory_order_relaxed);
    request->number = posted + 1;
    publish(queue, &box->posted, posted + 1);
    return true;
}

/* Copies pieces of an announced send to the pair's memory while there is space; true if none is left to copy. */
static bool stage(struct shared *shared, const struct queue *queue, struct rt_request *request) {
    struct mailbox *box = queue->box;
    for (uint64_t staged = load(&box->staged); request->place == NOT_SYMMETRIC && request->done < request->bytes;) {
        const size_t piece = next_piece(request);
        if (staged - load(&box->unstaged) >= 2) return false;
        memcpy(mail_piece(queue, staged), (const unsigned char *)request->data + request->done, piece);
        request->done += piece;
        publish(queue, &box->staged, ++staged);
        shared_count_move(shared);
    }
    return true;
}

static void advance_sends(struct shared *shared, struct queue *queue) {
    bool staged = true; /* all messages before this one */
    for (struct rt_request *request = queue->first; request; request = request->next) {
        if (!request->number && !announce(queue, request)) break;
        staged = staged && stage(shared, queue, request);
    }
    while (queue->first && queue->first->number && load(&queue->box->taken) >= queue->first->number)
        complete_first(shared, queue);
}

static int check_same_message(struct shared *shared, const struct message *message, const struct rt_request *request) {
    const uint64_t bytes = load(&message->bytes);
    if (bytes == request->bytes && load(&message->level) == (uint64_t)request->level) return RT_OK;
    return shared_fail(shared, RT_ERROR_USAGE, "receive of %zu bytes from rank %d meets a send of %llu bytes",
                       request->bytes, request->peer, (unsigned long long)bytes);
}

/* Copies pieces that have been staged; true if the message is complete. */
static bool unstage(struct shared *shared, const struct queue *queue, struct rt_request *request) {
    struct mailbox *box = queue->box;
    for (uint64_t unstaged = load(&box->unstaged); request->done < request->bytes;) {
        const size_t piece = next_piece(request);
        if (load(&box->staged) <= unstaged) return false;
        memcpy((unsigned char *)request->data + request->done, mail_piece(queue, unstaged), piece);
        request->done += piece;
        publish(queue, &box->unstaged, ++unstaged);
        shared_count_move(shared);
    }
    return true;
}

static int advance_receives(struct shared *shared, struct queue *queue) {
    struct mailbox *box = queue->box;
    for (struct rt_request *request = queue->first; request; request = queue->first) {
        const uint64_t taken = load(&box->taken);
        const struct message *message = &box->message[taken % RT_SHARED_MESSAGES];
        if (load(&box->posted) <= taken) return RT_OK;
        RT_TRY(check_same_message(shared, message, request));
        const uint64_t source = load(&message->source);
        if (source == NOT_SYMMETRIC) {
            if (!unstage(shared, queue, request)) return RT_OK;
        } else if (request->bytes > 0) {
            memcpy(request->data, queue->symmetric + source, request->bytes);
        }
        publish(queue, &box->taken, taken + 1);
        complete_first(shared, queue);
    }
    return RT_OK;
}

int shared_advance(struct shared *shared) {
    struct transfers *transfers = shared->transfers;
    if (!transfers->failed && shared_aborted(shared)) transfers->failed = RT_ERROR_PEER;
    for (int r = 0; r < shared->world_size && !transfers->failed && transfers->outstanding > 0; r++) {
        advance_sends(shared, &transfers->to[r]);
        transfers->failed = advance_receives(shared, &transfers->from[r]);
    }
    return transfers->failed;
}

static int post(struct shared *shared, struct queue *queue, int from, int to, struct rt_request *request) {
    queue->box = shared_mailbox(shared, from, to);
    queue->bell = shared_bell(shared, from == shared->base.rank ? to : from);
    queue->mail = shared_mail(shared, from, to);
    queue->symmetric = shared_symmetric(shared, from);
    request->level = shared->level;
    request->handle = queue;
    if (queue->first)
        queue->last->next = request;
    else
        queue->first = request;
    queue->last = request;
    shared->transfers->outstanding++;
    return shared_advance(shared);
}

static bool bad_peer(struct shared *shared, int peer, const char *what) {
    if (peer >= 0 && peer < shared->base.size && peer != shared->base.rank) return false;
    shared_fail(shared, RT_ERROR_USAGE, "invalid peer: %s rank %d of %d by rank %d", what, peer, shared->base.size,
                shared->base.rank);
    return true;
}

int shared_post_send(struct rt_comm *comm, const void *src, size_t bytes, int to, struct rt_request *request) {
    struct shared *shared = shared_of(comm);
    if (bad_peer(shared, to, "send to")) return RT_ERROR_USAGE;
    shared_begin_call(shared, RT_SEND);
    *request = (struct rt_request){.data = (void *)(uintptr_t)src,
                                   .bytes = bytes,
                                   .place = bytes > 0 ? shared_offset(shared, src, bytes) : 0,
                                   .peer = to,
                                   .sends = true};
    return post(shared, &shared->transfers->to[shared->world[to]], comm->rank, to, request);
}

int shared_post_receive(struct rt_comm *comm, void *dst, size_t bytes, int from, struct rt_request *request) {
    struct shared *shared = shared_of(comm);
    if (bad_peer(shared, from, "receive from")) return RT_ERROR_USAGE;
    shared_begin_call(shared, RT_RECEIVE);
    *request = (struct rt_request){.data = dst, .bytes = bytes, .peer = from};
    return post(shared, &shared->transfers->from[shared->world[from]], from, comm->rank, request);
}

/* Waits for what the first transfer of a queue needs of the peer: the next message or piece, space for a piece, or that
 * the message is taken. */
static int wait_for_first(struct shared *shared, const struct queue *queue) {
    struct mailbox *box = queue->box;
    const struct rt_request *first = queue->first;
    const uint64_t taken = load(&box->taken), staged = load(&box->staged), unstaged = load(&box->unstaged);
    if (!first->sends && load(&box->posted) <= taken) return shared_wait(shared, &box->posted, taken + 1, first->peer);
    if (!first->sends && load(&box->message[taken % RT_SHARED_MESSAGES].source) == NOT_SYMMETRIC)
        return shared_wait(shared, &box->staged, unstaged + 1, first->peer);
    if (!first->sends) return RT_OK; /* it came after the queue was looked at, and is complete */
    if (first->place == NOT_SYMMETRIC && first->done < first->bytes)
        return shared_wait(shared, &box->unstaged, staged > 1 ? staged - 1 : 0, first->peer);
    return shared_wait(shared, &box->taken, first->number, first->peer);
}

int shared_wait_request(struct rt_comm *comm, struct rt_request *request) {
    struct shared *shared = shared_of(comm);
    int status = RT_OK;
    atomic_store_explicit(&shared->progress->operation, request->sends ? RT_SEND : RT_RECEIVE, memory_order_relaxed);
    while (!request->complete && !status) {
        status = shared_advance(shared);
        if (!status && !request->complete) status = wait_for_first(shared, request->handle);
    }
    if (status) shared->transfers->failed = status;
    return status;
}

int shared_send(struct rt_comm *comm, const void *src, size_t bytes, int to) {
    struct rt_request request;
    const int status = shared_post_send(comm, src, bytes, to, &request);
    return status ? status : shared_wait_request(comm, &request);
}

int shared_receive(struct rt_comm *comm, void *dst, size_t bytes, int from) {
    struct rt_request request;
    const int status = shared_post_receive(comm, dst, bytes, from, &request);
    return status ? status : shared_wait_request(comm, &request);
}
