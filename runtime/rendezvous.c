#define _GNU_SOURCE 1

#include "rendezvous_private.h"

#include "base/clock.h"
#include "base/hash.h"
#include "comm_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC       "rankc-1" /* with its NUL: 8 bytes */
#define AGAIN_MS    20        /* between two tries to reach the first rank */
#define ANSWER_MS   30000     /* for a message that is due at once */
#define LINGER_MS   1000      /* those who are on their way are told how the meeting ended */
#define MOST_SILENT 64        /* connections that have not said who they are; more, and the oldest goes */

/* What a rank says when it comes. */
struct hello {
    char magic[sizeof MAGIC], token[TOKEN_BYTES], key[RT_HASH_HEX];
    int32_t rank, world;
};

/* What the first rank says to it: whether the job is complete, and then where its shared memory is. */
struct verdict {
    char magic[sizeof MAGIC], name[64]; /* of the memory */
    char text[320];
    int32_t status, code, pid, fd;
};

struct rt_meeting {
    int world;
    int *link;        /* by rank: of the first to all others, of these to the first; -1: none */
    int memory;       /* a memfd */
    char name[64];    /* of it: of this job alone */
    void *segment;    /* while it is watched */
    int wake;         /* ends the watch */
    pthread_t thread;
    _Atomic int lost; /* a rank that left without a farewell, plus one; 0: none */
};

/* Messages. A socket does not block; what does not come in time is not coming. */

static bool wait_for(int fd, short events, int64_t deadline) {
    struct pollfd wait = {.fd = fd, .events = events};
    for (;;) {
        const int64_t left = deadline - rt_now_ms();
        const int ready = poll(&wait, 1, left > 0 ? (int)left : 0);
        if (ready > 0) return true;
        if (ready == 0 || errno != EINTR) return false;
    }
}

static bool send_all(int fd, const void *data, size_t bytes, int64_t deadline) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t sent = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            done += (size_t)sent;
        else if ((errno != EAGAIN && errno != EINTR) || !wait_for(fd, POLLOUT, deadline))
            return false;
    }
    return true;
}

/* What is there of a message of which *done bytes have come; false where no more comes. */
static bool receive_some(int fd, void *data, size_t bytes, size_t *done) {
    const ssize_t got = recv(fd, (char *)data + *done, bytes - *done, MSG_DONTWAIT);
    if (got > 0) *done += (size_t)got;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static bool receive_all(int fd, void *data, size_t bytes, int64_t deadline) {
    for (size_t done = 0; done < bytes;)
        if (!wait_for(fd, POLLIN, deadline) || !receive_some(fd, data, bytes, &done)) return false;
    return true;
}

static void hang_up(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* The first rank */

static void sign(struct rt *rt, const struct place *place, struct hello *hello) {
    *hello = (struct hello){.magic = MAGIC, .rank = rt->rank, .world = rt->world};
    memcpy(hello->token, place->token, sizeof hello->token);
    rt_hash_bytes(rt->program->key, strlen(rt->program->key), hello->key);
}

/* Says to all who have come how the meeting ends: the rank's last error, or where the memory is. */
static int announce(struct rt *rt, const struct rt_meeting *meeting, int status) {
    struct verdict verdict = {.magic = MAGIC, .status = status, .code = rt->internal->code, .pid = getpid(), .fd = meeting->memory};
    snprintf(verdict.name, sizeof verdict.name, "%s", meeting->name);
    if (status) snprintf(verdict.text, sizeof verdict.text, "%.*s", (int)sizeof verdict.text - 1, rt->internal->error);
    for (int r = 0; r < meeting->world; r++)
        if (meeting->link[r] >= 0) send_all(meeting->link[r], &verdict, sizeof verdict, rt_now_ms() + ANSWER_MS);
    return status;
}

/* Someone who has connected. */
struct visitor {
    int fd;
    size_t got;
    struct hello hello;
};

struct door {
    int listener, n;
    struct visitor silent[MOST_SILENT];
};

static void forget(struct door *door, int i) {
    memmove(&door->silent[i], &door->silent[i + 1], (size_t)(--door->n - i) * sizeof *door->silent);
}

static void let_in(struct door *door) {
    const int fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (door->n == MOST_SILENT) {
        close(door->silent[0].fd);
        forget(door, 0);
    }
    door->silent[door->n++] = (struct visitor){.fd = fd};
}

/* A rank of the job takes its seat. It gets one even where it ends the job, to be told so. */
static int seat(struct rt *rt, struct rt_meeting *meeting, const struct visitor *visitor, const struct hello *mine) {
    const struct hello *hello = &visitor->hello;
    int *link = &meeting->link[0]; /* nobody else's */
    if (hello->rank > 0 && hello->rank < meeting->world && meeting->link[hello->rank] < 0) link = &meeting->link[hello->rank];
    hang_up(&meeting->link[0]);
    *link = visitor->fd;
    if (hello->world != mine->world)
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_WORLD, "rank %d was started as one of %d ranks, rank 0 as one of %d",
                            hello->rank, hello->world, mine->world);
    if (link == &meeting->link[0])
        return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_WORLD, "rank %d of %d was started twice", hello->rank, hello->world);
    if (memcmp(hello->key, mine->key, sizeof mine->key) != 0)
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_KEY, "rank %d runs another program than rank 0", hello->rank);
    return RT_OK;
}

/* Reads on; whoever is not of this job is shown the door. */
static int hear(struct rt *rt, struct rt_meeting *meeting, struct door *door, int i, const struct hello *mine) {
    struct visitor *visitor = &door->silent[i];
    const bool there = receive_some(visitor->fd, &visitor->hello, sizeof visitor->hello, &visitor->got);
    if (there && visitor->got < sizeof visitor->hello) return RT_OK;
    const struct visitor done = *visitor;
    forget(door, i);
    if (there && memcmp(done.hello.magic, mine->magic, sizeof mine->magic) == 0 &&
        memcmp(done.hello.token, mine->token, sizeof mine->token) == 0)
        return seat(rt, meeting, &done, mine);
    close(done.fd);
    return RT_OK;
}

static int first_absent(const struct rt_meeting *meeting) {
    int r = 1;
    while (r < meeting->world && meeting->link[r] >= 0) r++;
    return r;
}

/* "rank 2", "ranks 1, 3 and 5 more" */
static void absent_text(const struct rt_meeting *meeting, char *text, size_t room) {
    int n = 0, named = 0;
    size_t used;
    for (int r = 1; r < meeting->world; r++) n += meeting->link[r] < 0;
    snprintf(text, room, "rank%s", n > 1 ? "s" : "");
    for (int r = 1; r < meeting->world && named < 8; r++)
        if (meeting->link[r] < 0) used = strlen(text), snprintf(text + used, room - used, "%s%d", named++ ? ", " : " ", r);
    used = strlen(text);
    if (n > named) snprintf(text + used, room - used, " and %d more", n - named);
}

static int report_absent(struct rt *rt, const struct rt_meeting *meeting, const struct place *place, int seconds) {
    char who[128];
    absent_text(meeting, who, sizeof who);
    return rt_fail_code(rt, RT_ERROR_PEER, RT_CODE_ABSENT, "%s of %d did not come to %s within %d s", who, meeting->world,
                        place->label, seconds);
}

static int wait_at_door(struct rt *rt, struct rt_meeting *meeting, struct door *door, const struct hello *mine, int ms) {
    struct pollfd at[MOST_SILENT + 1];
    for (int i = 0; i < door->n; i++) at[i] = (struct pollfd){.fd = door->silent[i].fd, .events = POLLIN};
    at[door->n] = (struct pollfd){.fd = door->listener, .events = POLLIN};
    const int n = door->n;
    if (poll(at, (nfds_t)n + 1, ms) <= 0) return RT_OK;
    for (int i = n - 1; i >= 0; i--)
        if (at[i].revents) RT_TRY(hear(rt, meeting, door, i, mine));
    if (at[n].revents) let_in(door);
    return RT_OK;
}

/* What went wrong is already said. */
static void linger(struct rt *rt, struct rt_meeting *meeting, struct door *door, const struct hello *mine) {
    const int64_t deadline = rt_now_ms() + LINGER_MS;
    const struct rt_private said = *rt->internal;
    for (int64_t left = LINGER_MS; left > 0 && first_absent(meeting) < meeting->world; left = deadline - rt_now_ms())
        wait_at_door(rt, meeting, door, mine, (int)left);
    memcpy(rt->internal->error, said.error, sizeof said.error);
    rt->internal->code = said.code;
}

static int receive_guests(struct rt *rt, struct rt_meeting *meeting, const struct place *place, int listener, int seconds) {
    const int64_t deadline = rt_now_ms() + (int64_t)seconds * 1000;
    struct door door = {.listener = listener};
    struct hello mine;
    int status = RT_OK;
    sign(rt, place, &mine);
    while (!status && first_absent(meeting) < meeting->world) {
        const int64_t left = deadline - rt_now_ms();
        status = left > 0 ? wait_at_door(rt, meeting, &door, &mine, (int)left) : report_absent(rt, meeting, place, seconds);
    }
    if (status && status != RT_ERROR_PEER) linger(rt, meeting, &door, &mine);
    for (int i = 0; i < door.n; i++) close(door.silent[i].fd);
    return status;
}

/* As large as a launcher makes it, and sealed like that (join.c). */
static int make_memory(struct rt *rt, struct rt_meeting *meeting) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(meeting->name, sizeof meeting->name, "rankc-%d-%lld-%ld", (int)getpid(), (long long)now.tv_sec, now.tv_nsec);
    meeting->memory = memfd_create(meeting->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (meeting->memory >= 0 && ftruncate(meeting->memory, (off_t)rt_shared_control_bytes(meeting->world)) == 0 &&
        fcntl(meeting->memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
        return RT_OK;
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT, "cannot make shared memory: %s", strerror(errno));
}

/* All have found the memory. */
static int hear_answers(struct rt *rt, const struct rt_meeting *meeting) {
    for (int r = 1; r < meeting->world; r++) {
        int32_t shares = 0;
        if (!receive_all(meeting->link[r], &shares, sizeof shares, rt_now_ms() + ANSWER_MS))
            return rt_fail_code(rt, RT_ERROR_PEER, RT_CODE_ABSENT, "rank %d left before the job began", r);
        if (!shares)
            return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_SEGMENT,
                                "rank %d cannot share memory with rank 0: it is on another machine, or of another user or "
                                "container", r);
    }
    return RT_OK;
}

static int host_meeting(struct rt *rt, struct rt_meeting *meeting, struct place *place, int seconds) {
    int listener = -1, status = make_memory(rt, meeting);
    if (!status) status = place_listen(rt, place, &listener);
    if (!status) status = receive_guests(rt, meeting, place, listener, seconds);
    if (listener >= 0) place_leave(place);
    hang_up(&listener);
    RT_TRY(announce(rt, meeting, status));
    return announce(rt, meeting, hear_answers(rt, meeting));
}

/* The others */

/* The first rank's last word was of a failure, which it reports itself. */
static int accept_verdict(struct rt *rt, const struct verdict *verdict) {
    if (!verdict->status) return RT_OK;
    const int status = rt_fail_code(rt, verdict->status, verdict->code, "%.*s", (int)sizeof verdict->text, verdict->text);
    rt->internal->told = true;
    return status;
}

static bool ask(int link, const struct hello *mine, struct verdict *verdict, int64_t deadline) {
    return send_all(link, mine, sizeof *mine, deadline) && receive_all(link, verdict, sizeof *verdict, deadline) &&
           memcmp(verdict->magic, MAGIC, sizeof MAGIC) == 0;
}

/* Until the first rank has answered. Its own patience may have begun later than ours: then it is the one that speaks. */
static int find_host(struct rt *rt, struct rt_meeting *meeting, struct place *place, int seconds, struct verdict *verdict) {
    const int64_t start = rt_now_ms(), patience = (int64_t)seconds * 1000;
    const char *what = "nobody listens";
    struct hello mine;
    while (rt_now_ms() - start < patience) {
        meeting->link[0] = place_call(place);
        sign(rt, place, &mine);
        if (meeting->link[0] >= 0 && ask(meeting->link[0], &mine, verdict, start + 2 * patience + ANSWER_MS)) return RT_OK;
        if (meeting->link[0] >= 0) what = "who listens does not know this job";
        hang_up(&meeting->link[0]);
        nanosleep(&(struct timespec){0, AGAIN_MS * 1000000L}, NULL);
    }
    return rt_fail_code(rt, RT_ERROR_PEER, RT_CODE_ABSENT, "rank %d of %d did not find rank 0 at %s within %d s: %s", rt->rank,
                        meeting->world, place->label, seconds, what);
}

/* The first rank's memory, if it is of this machine: nobody else has one of that name. */
static int find_memory(const struct verdict *verdict) {
    char path[64], wanted[96], name[sizeof wanted];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", verdict->pid, verdict->fd);
    snprintf(wanted, sizeof wanted, "/memfd:%.*s (deleted)", (int)sizeof verdict->name, verdict->name);
    const ssize_t length = readlink(path, name, sizeof name);
    if (length != (ssize_t)strlen(wanted) || memcmp(name, wanted, (size_t)length) != 0) return -1;
    return open(path, O_RDWR | O_CLOEXEC);
}

static int join_meeting(struct rt *rt, struct rt_meeting *meeting, struct place *place, int seconds) {
    struct verdict verdict;
    RT_TRY(place_ask(rt, place));
    RT_TRY(find_host(rt, meeting, place, seconds, &verdict));
    RT_TRY(accept_verdict(rt, &verdict));
    meeting->memory = find_memory(&verdict);
    const int32_t shares = meeting->memory >= 0;
    const int64_t deadline = rt_now_ms() + 2 * ANSWER_MS;
    if (!send_all(meeting->link[0], &shares, sizeof shares, deadline) ||
        !receive_all(meeting->link[0], &verdict, sizeof verdict, deadline))
        return rt_fail_code(rt, RT_ERROR_PEER, RT_CODE_ABSENT, "rank 0 left before the job began");
    return accept_verdict(rt, &verdict);
}

int rt_meet(struct rt *rt, const char *text, int seconds, int *segment) {
    struct place place;
    RT_TRY(place_find(rt, text, &place));
    struct rt_meeting *meeting = calloc(1, sizeof *meeting);
    if (meeting) meeting->link = malloc((size_t)rt->world * sizeof *meeting->link);
    if (!meeting || !meeting->link) {
        free(meeting);
        return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory");
    }
    meeting->world = rt->world;
    meeting->memory = meeting->wake = -1;
    for (int r = 0; r < rt->world; r++) meeting->link[r] = -1;
    rt->internal->meeting = meeting;
    RT_TRY(rt->rank == 0 ? host_meeting(rt, meeting, &place, seconds) : join_meeting(rt, meeting, &place, seconds));
    *segment = fcntl(meeting->memory, F_DUPFD_CLOEXEC, 0);
    return *segment >= 0 ? RT_OK : rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT, "%s", strerror(errno));
}

/* Watching */

/* What has come over a link: a farewell, or its end without one. */
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

/* Signals are for the threads that were there before. */
static int start_thread(struct rt_meeting *meeting) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&meeting->thread, NULL, watch, meeting);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int rt_meeting_watch(struct rt *rt, void *segment) {
    struct rt_meeting *meeting = rt->internal->meeting;
    meeting->wake = eventfd(0, EFD_CLOEXEC);
    int error = meeting->wake < 0 ? errno : 0;
    meeting->segment = segment;
    if (!error) error = start_thread(meeting);
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
    for (int r = 0; r < meeting->world; r++) hang_up(&meeting->link[r]);
    hang_up(&meeting->wake);
    hang_up(&meeting->memory);
    free(meeting->link);
    free(meeting);
}
