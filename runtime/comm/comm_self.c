/* Transport of a single rank: every collective is a copy. */
#include "comm.h"
#include "comm/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one table have the parameters of all */

static void copy(void *dst, const void *src, size_t bytes) {
    if (bytes > 0 && dst != src) memcpy(dst, src, bytes);
}

static int self_barrier(struct rt_comm *comm) {
    return RT_OK;
}

static int self_all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                           enum rt_reduce reduce) {
    copy(dst, src, count * rt_dtype_bytes(dtype));
    return RT_OK;
}

static int self_all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes) {
    copy(dst, src, bytes[0]);
    return RT_OK;
}

static int self_reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts,
                               enum rt_dtype dtype, enum rt_reduce reduce, bool onto) {
    if (!onto) return self_all_reduce(comm, dst, src, counts[0], dtype, reduce);
    rt_reduce_ordered(&dst, 1, (const void *const[]){dst, src}, 2, counts[0], dtype, RT_SUM);
    return RT_OK;
}

static int self_all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src,
                           const size_t *send) {
    if (receive[0] != send[0]) {
        snprintf(comm->why, sizeof comm->why, "all-to-all of %zu bytes with itself expects %zu", send[0], receive[0]);
        return RT_ERROR_USAGE;
    }
    copy(dst, src, send[0]);
    return RT_OK;
}

static int self_broadcast(struct rt_comm *comm, void *data, size_t bytes, int root) {
    return root == 0 ? RT_OK : RT_ERROR_USAGE;
}

static int self_send(struct rt_comm *comm, const void *src, size_t bytes, int to) {
    snprintf(comm->why, sizeof comm->why, "a single rank has no rank %d to send to", to);
    return RT_ERROR_USAGE;
}

static int self_receive(struct rt_comm *comm, void *dst, size_t bytes, int from) {
    snprintf(comm->why, sizeof comm->why, "a single rank has no rank %d to receive from", from);
    return RT_ERROR_USAGE;
}

static int self_post_send(struct rt_comm *comm, const void *src, size_t bytes, int to, struct rt_request *request) {
    return self_send(comm, src, bytes, to);
}

static int self_post_receive(struct rt_comm *comm, void *dst, size_t bytes, int from, struct rt_request *request) {
    return self_receive(comm, dst, bytes, from);
}

static int self_wait(struct rt_comm *comm, struct rt_request *request) {
    return RT_OK;
}

static int self_split(struct rt_comm *comm, int color, struct rt_comm **out) {
    return rt_comm_open_self(out);
}

static void self_abort(struct rt_comm *comm) {}
static int self_alive(struct rt_comm *comm) {
    return RT_OK;
}
static void self_close(struct rt_comm *comm) {
    free(comm);
}

static void *self_segment(struct rt_comm *comm, size_t *bytes) {
    *bytes = 0;
    return NULL;
}

static const struct rt_comm_driver self_driver = {
    .name = "self",
    .barrier = self_barrier,
    .all_reduce = self_all_reduce,
    .all_gather = self_all_gather,
    .reduce_scatter = self_reduce_scatter,
    .sums_onto = true,
    .all_to_all = self_all_to_all,
    .broadcast = self_broadcast,
    .send = self_send,
    .receive = self_receive,
    .post_send = self_post_send,
    .post_receive = self_post_receive,
    .wait = self_wait,
    .split = self_split,
    .abort = self_abort,
    .alive = self_alive,
    .close = self_close,
    .segment = self_segment,
};

int rt_comm_open_self(struct rt_comm **out) {
    struct rt_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return RT_ERROR_SYSTEM;
    comm->driver = &self_driver;
    comm->size = 1;
    *out = comm;
    return RT_OK;
}

void *rt_comm_segment(struct rt_comm *comm) {
    size_t bytes;
    void *memory = comm->driver->segment(comm, &bytes);
    return memory;
}

size_t rt_comm_segment_bytes(struct rt_comm *comm) {
    size_t bytes;
    comm->driver->segment(comm, &bytes);
    return bytes;
}
