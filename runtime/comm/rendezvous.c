#include "comm/rendezvous_private.h"

#include "base/thread/clock.h"
#include "base/thread/quiet.h"
#include "comm/comm_shared.h"
#include "comm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MS     30000 /* time limit for a message that is due immediately */
#define FIRST_VERDICT "memory"
#define LAST_VERDICT  "begin"

/* Sends a verdict to all connected ranks: this rank's last error if `status` is not RT_OK, else the place of the
 * memory. */
static int announce(struct rt *rt, const struct rt_meeting *meeting, const struct place *place, const char *what,
                    int status) {
    struct verdict verdict = {
        .magic = MAGIC, .status = status, .code = rt->internal->code, .pid = getpid(), .fd = meeting->memory};
    snprintf(verdict.name, sizeof verdict.name, "%s", meeting->name);
    if (status) snprintf(verdict.text, sizeof verdict.text, "%.*s", (int)sizeof verdict.text - 1, rt->internal->error);
    for (int r = 0; r < meeting->world; r++) {
        if (meeting->link[r] < 0) continue;
        session_code(place, &meeting->session[r], what, &verdict, offsetof(struct verdict, proof), verdict.proof);
        send_all(meeting->link[r], &verdict, sizeof verdict, rt_now_ms() + ANSWER_MS);
    }
    return status;
}

static int make_memory(struct rt *rt, struct rt_meeting *meeting) {
    struct rt_memory memory;
    meeting->memory = rt_memory_make(meeting->world, &memory);
    memcpy(meeting->name, memory.name, sizeof meeting->name);
    if (meeting->memory >= 0) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT, "cannot create shared memory: %s", strerror(errno));
}

/* Waits until all ranks have opened the memory. */
static int hear_answers(struct rt *rt, const struct rt_meeting *meeting) {
    for (int r = 1; r < meeting->world; r++) {
        int32_t shares = 0;
        if (!receive_all(meeting->link[r], &shares, sizeof shares, rt_now_ms() + ANSWER_MS))
            return rt_fail_code(rt, RT_ERROR_PEER, RT_CODE_ABSENT, "rank %d left before the job began", r);
        if (!shares)
            return rt_fail_code(
                rt, RT_ERROR_USAGE, RT_CODE_SEGMENT,
                "rank %d cannot share memory with rank 0: it is on another machine, or of another user or "
                "container",
                r);
    }
    return RT_OK;
}

static int host_meeting(struct rt *rt, struct rt_meeting *meeting, struct place *place, int seconds) {
    int listener = -1, status = make_memory(rt, meeting);
    if (!status) status = place_listen(rt, place, &listener);
    if (!status) status = door_receive(rt, meeting, place, listener, seconds);
    if (listener >= 0) place_leave(place);
    close_link(&listener);
    RT_TRY(announce(rt, meeting, place, FIRST_VERDICT, status));
    return announce(rt, meeting, place, LAST_VERDICT, hear_answers(rt, meeting));
}

/* Receives and authenticates a verdict of rank 0. Rank 0 itself reports a failure in it. */
static int hear_verdict(struct rt *rt, const struct rt_meeting *meeting, const struct place *place, const char *what,
                        struct verdict *verdict, int64_t deadline) {
    if (!receive_all(meeting->link[0], verdict, sizeof *verdict, deadline) ||
        !session_proves(place, &meeting->session[0], what, verdict, offsetof(struct verdict, proof), verdict->proof))
        return rt_fail_code(rt, RT_ERROR_PEER, RT_CODE_ABSENT, "rank 0 left before the job began");
    if (!verdict->status) return RT_OK;
    const int status =
        rt_fail_code(rt, verdict->status, verdict->code, "%.*s", (int)sizeof verdict->text, verdict->text);
    rt->internal->told = true;
    return status;
}

static int find_memory(const struct verdict *verdict) {
    struct rt_memory memory = {.pid = verdict->pid, .fd = verdict->fd};
    memcpy(memory.name, verdict->name, sizeof memory.name);
    return rt_memory_find(&memory);
}

static int join_meeting(struct rt *rt, struct rt_meeting *meeting, struct place *place, int seconds) {
    const int64_t start = rt_now_ms();
    struct verdict verdict;
    RT_TRY(place_ask(rt, place));
    RT_TRY(door_enter(rt, meeting, place, seconds));
    /* Rank 0's time limit may have begun later than this rank's; wait for its report. */
    RT_TRY(hear_verdict(rt, meeting, place, FIRST_VERDICT, &verdict, start + (int64_t)seconds * 2000 + ANSWER_MS));
    meeting->memory = find_memory(&verdict);
    const int32_t shares = meeting->memory >= 0;
    const int64_t deadline = rt_now_ms() + 2 * ANSWER_MS;
    if (!send_all(meeting->link[0], &shares, sizeof shares, deadline))
        return rt_fail_code(rt, RT_ERROR_PEER, RT_CODE_ABSENT, "rank 0 left before the job began");
    return hear_verdict(rt, meeting, place, LAST_VERDICT, &verdict, deadline);
}

int rt_meet(struct rt *rt, const char *text, int seconds, int *segment) {
    struct place place;
    RT_TRY(place_find(rt, text, &place));
    struct rt_meeting *meeting = calloc(1, sizeof *meeting);
    if (meeting) meeting->link = malloc((size_t)rt->world * sizeof *meeting->link);
    if (meeting) meeting->session = calloc((size_t)rt->world, sizeof *meeting->session);
    if (!meeting || !meeting->link || !meeting->session) {
        if (meeting) free(meeting->link), free(meeting->session);
        free(meeting);
        return rt_fail_memory(rt);
    }
    meeting->world = rt->world;
    meeting->memory = meeting->wake = -1;
    for (int r = 0; r < rt->world; r++) meeting->link[r] = -1;
    rt->internal->meeting = meeting;
    RT_TRY(rt->rank == 0 ? host_meeting(rt, meeting, &place, seconds) : join_meeting(rt, meeting, &place, seconds));
    *segment = fcntl(meeting->memory, F_DUPFD_CLOEXEC, 0);
    return *segment >= 0 ? RT_OK : rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT, "%s", strerror(errno));
}

/* Handles input on a link: a farewell, or the end of the connection without one. */
static void look_at(struct rt_meeting *meeting, struct pollfd *link, int rank) {
    char farewell;
    const ssize_t got = recv(link->fd, &farewell, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    link->fd = -1;
    if (got == 1) return;
    int none = 0;
    atomic_compare_exchange_strong(&meeting->lost, &none, rank + 1);
    atomic_store(&rt_shared_header(meeting->segment)->aborted, 1);
}

static void *watch(void *argument) {
    struct rt_meeting *meeting = argument;
    const int n = meeting->world;
    struct pollfd *at = calloc((size_t)n + 1, sizeof *at);
    for (int r = 0; at && r < n; r++) at[r] = (struct pollfd){.fd = meeting->link[r], .events = POLLIN};
    if (at) at[n] = (struct pollfd){.fd = meeting->wake, .events = POLLIN};
    while (at && !at[n].revents && (poll(at, (nfds_t)n + 1, -1) > 0 || errno == EINTR))
        for (int r = 0; r < n; r++)
            if (at[r].fd >= 0 && at[r].revents) look_at(meeting, &at[r], r);
    free(at);
    return NULL;
}

int rt_meeting_watch(struct rt *rt, void *segment) {
    struct rt_meeting *meeting = rt->internal->meeting;
    meeting->wake = eventfd(0, EFD_CLOEXEC);
    int error = meeting->wake < 0 ? errno : 0;
    meeting->segment = segment;
    if (!error) error = rt_thread_start_quiet(&meeting->thread, watch, meeting);
    if (!error) return RT_OK;
    meeting->segment = NULL;
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT, "cannot watch the other ranks: %s", strerror(error));
}

int rt_meeting_lost(const struct rt_meeting *meeting) {
    return meeting ? atomic_load(&meeting->lost) - 1 : -1;
}

void rt_meeting_close(struct rt_meeting *meeting) {
    const uint64_t one = 1;
    if (!meeting) return;
    for (int r = 0; r < meeting->world; r++)
        if (meeting->link[r] >= 0) send_all(meeting->link[r], "", 1, rt_now_ms() + ANSWER_MS);
    if (meeting->segment && write(meeting->wake, &one, sizeof one) == sizeof one) pthread_join(meeting->thread, NULL);
    for (int r = 0; r < meeting->world; r++) close_link(&meeting->link[r]);
    close_link(&meeting->wake);
    close_link(&meeting->memory);
    free(meeting->session);
    free(meeting->link);
    free(meeting);
}
