/* How rank 0 accepts callers and ranks authenticate each other; Note [Who belongs to a meeting].
 *
 * Rank 0 serves all callers concurrently, so that no caller can block it. A caller that sends too little in time, sends
 * something else, or has another token is dropped. At most one dropped caller per second is named in a warning; the
 * others are counted. If MOST_SILENT callers have not authenticated yet, a new caller replaces the oldest of them. */
#include "comm/rendezvous_private.h"

#include "base/thread/clock.h"
#include "core/handshake.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_MS     20   /* between attempts to connect to rank 0 */
#define LINGER_MS    1000 /* after a failure, how long ranks that still arrive are told of it */
#define SAY_MS       1000 /* between two callers named in warnings */
#define MOST_SILENT  128  /* callers that have not authenticated yet */
#define MOST_AT_ONCE 64   /* callers accepted before those already connected are served again */

/* A caller that has connected and not authenticated yet. */
struct visitor {
    int fd;
    int64_t deadline;
    size_t got;
    unsigned char nonce[NONCE_BYTES]; /* nonce sent to it */
    struct hello hello;
    char from[80];
};

struct door {
    struct rt *rt;
    struct rt_meeting *meeting;
    const struct place *place;
    int listener, n;
    int64_t named; /* time when a caller was last named, ms; 0: never */
    int unnamed;   /* callers dropped since then */
    struct visitor silent[MOST_SILENT];
};

/* "127.0.0.1:4242" */
static void address_text(const struct sockaddr *address, socklen_t length, char *text, size_t room) {
    char host[64] = "?", port[16] = "?";
    getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(text, room, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static void name_dropped(struct door *door, const char *from, const char *why) {
    char others[48] = "";
    if (door->named && rt_now_ms() - door->named < SAY_MS) {
        door->unnamed++;
        return;
    }
    if (door->unnamed) snprintf(others, sizeof others, "; %d more since the last report", door->unnamed);
    rt_warn(door->rt, RT_CODE_TOKEN, "closed the connection from %s at the rendezvous: %s%s", from, why, others);
    door->named = rt_now_ms();
    door->unnamed = 0;
}

static void forget(struct door *door, int i) {
    memmove(&door->silent[i], &door->silent[i + 1], (size_t)(--door->n - i) * sizeof *door->silent);
}

static void drop(struct door *door, int i, const char *why) {
    close(door->silent[i].fd);
    name_dropped(door, door->silent[i].from, why);
    forget(door, i);
}

static void drop_silent(struct door *door, int i, const char *when) {
    char why[96];
    snprintf(why, sizeof why, "it sent %zu of %zu bytes %s", door->silent[i].got, sizeof(struct hello), when);
    drop(door, i, why);
}

/* Accepts one caller and sends it a nonce; false: no caller is waiting. */
static bool let_in(struct door *door) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    const int fd = accept4(door->listener, (struct sockaddr *)&address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && door->n > 0)
        return drop_silent(door, 0, "until other connections came"), true;
    if (fd < 0) return false;
    if (door->n == MOST_SILENT) drop_silent(door, 0, "until other connections came");
    struct visitor *visitor = &door->silent[door->n++];
    *visitor = (struct visitor){.fd = fd, .deadline = rt_now_ms() + PROMPT_MS};
    struct challenge challenge = {.magic = MAGIC};
    address_text((const struct sockaddr *)&address, length, visitor->from, sizeof visitor->from);
    if (session_nonce(challenge.nonce) != 0 || !send_all(fd, &challenge, sizeof challenge, rt_now_ms()))
        drop(door, door->n - 1, "cannot send to it");
    else
        memcpy(visitor->nonce, challenge.nonce, sizeof visitor->nonce);
    return true;
}

static void describe_rank(struct rt *rt, struct hello *hello) {
    char key[RT_HASH_HEX];
    *hello = (struct hello){.magic = MAGIC, .rank = rt->rank, .world = rt->world};
    rt_identify(rt->program, key);
    memcpy(hello->key, key, sizeof hello->key);
}

/* Records the connection of an authenticated rank. A rank that makes the job fail is recorded too, so that it receives
 * the verdict. */
static int seat(struct door *door, const struct visitor *visitor, const struct session *session) {
    struct rt_meeting *meeting = door->meeting;
    const struct hello *hello = &visitor->hello;
    struct hello mine;
    const bool free_seat = hello->rank > 0 && hello->rank < meeting->world && meeting->link[hello->rank] < 0;
    const int at = free_seat ? hello->rank : 0; /* link[0] of rank 0 is free for a rank without a valid number */
    describe_rank(door->rt, &mine);
    close_link(&meeting->link[0]);
    meeting->link[at] = visitor->fd;
    meeting->session[at] = *session;
    if (hello->world != mine.world)
        return rt_fail_code(door->rt, RT_ERROR_MISMATCH, RT_CODE_WORLD,
                            "rank %d was started as one of %d rank(s), rank 0 as one of %d", hello->rank, hello->world,
                            mine.world);
    if (at == 0)
        return rt_fail_code(door->rt, RT_ERROR_USAGE, RT_CODE_WORLD, "rank %d of %d was started twice", hello->rank,
                            hello->world);
    return rt_compare_identities(door->rt, hello->rank, mine.key, hello->key);
}

/* Checks a complete hello: returns what is wrong, or NULL if the caller is a rank of this job. */
static const char *judge(const struct place *place, const struct visitor *visitor, struct session *session) {
    const struct hello *hello = &visitor->hello;
    memcpy(session->nonce[0], visitor->nonce, NONCE_BYTES);
    memcpy(session->nonce[1], hello->nonce, NONCE_BYTES);
    if (memcmp(hello->magic, MAGIC, sizeof MAGIC) != 0) return "it is not a rank of a compiled program of this version";
    if (!session_proves(place, session, "hello", hello, offsetof(struct hello, code), hello->code))
        return "it does not know this job's token";
    return NULL;
}

/* Reads from a caller; when its hello is complete, answers it. */
static int hear(struct door *door, int i) {
    struct visitor *visitor = &door->silent[i];
    struct session session;
    const bool more = receive_some(visitor->fd, &visitor->hello, sizeof visitor->hello, &visitor->got);
    if (visitor->got < sizeof visitor->hello) return more ? RT_OK : (drop_silent(door, i, "and hung up"), RT_OK);
    const char *wrong = judge(door->place, visitor, &session);
    struct proof proof = {.magic = MAGIC};
    if (wrong) return drop(door, i, wrong), RT_OK;
    session_code(door->place, &session, "proof", NULL, 0, proof.code);
    if (!send_all(visitor->fd, &proof, sizeof proof, rt_now_ms())) return drop(door, i, "cannot send to it"), RT_OK;
    const struct visitor rank = *visitor;
    forget(door, i);
    return seat(door, &rank, &session);
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
        if (meeting->link[r] < 0)
            used = strlen(text), snprintf(text + used, room - used, "%s%d", named++ ? ", " : " ", r);
    used = strlen(text);
    if (n > named) snprintf(text + used, room - used, " and %d more", n - named);
}

static int report_absent(const struct door *door, int seconds) {
    char who[128];
    absent_text(door->meeting, who, sizeof who);
    return rt_fail_code(door->rt, RT_ERROR_PEER, RT_CODE_ABSENT, "%s of %d did not join at %s within %d s", who,
                        door->meeting->world, door->place->label, seconds);
}

/* Waits at most `ms` for input, serves all callers, and drops those whose time is over. */
static int wait_at_door(struct door *door, int64_t ms) {
    struct pollfd at[MOST_SILENT + 1];
    const int n = door->n;
    for (int i = 0; i < n; i++) at[i] = (struct pollfd){.fd = door->silent[i].fd, .events = POLLIN};
    at[n] = (struct pollfd){.fd = door->listener, .events = POLLIN};
    const int64_t now = rt_now_ms();
    if (n > 0 && door->silent[0].deadline - now < ms)
        ms = door->silent[0].deadline > now ? door->silent[0].deadline - now : 0;
    const int ready = poll(at, (nfds_t)n + 1, (int)ms);
    for (int i = n - 1; i >= 0 && ready > 0; i--)
        if (at[i].revents) RT_TRY(hear(door, i));
    while (door->n > 0 && door->silent[0].deadline <= rt_now_ms()) {
        char when[32];
        snprintf(when, sizeof when, "within %d s", PROMPT_MS / 1000);
        drop_silent(door, 0, when);
    }
    if (ready > 0 && at[n].revents)
        for (int i = 0; i < MOST_AT_ONCE && let_in(door); i++) {
        }
    return RT_OK;
}

/* Keeps this rank's first error: serving late ranks records others. */
static void linger(struct door *door) {
    const int64_t deadline = rt_now_ms() + LINGER_MS;
    const struct rt_private said = *door->rt->internal;
    for (int64_t left = LINGER_MS; left > 0 && first_absent(door->meeting) < door->meeting->world;
         left = deadline - rt_now_ms())
        wait_at_door(door, left);
    memcpy(door->rt->internal->error, said.error, sizeof said.error);
    door->rt->internal->code = said.code;
}

static void close_door(struct door *door) {
    for (int i = 0; i < door->n; i++) close(door->silent[i].fd);
    if (door->unnamed) rt_warn(door->rt, RT_CODE_TOKEN, "closed %d more connections at the rendezvous", door->unnamed);
    free(door);
}

int door_receive(struct rt *rt, struct rt_meeting *meeting, const struct place *place, int listener, int seconds) {
    const int64_t deadline = rt_now_ms() + (int64_t)seconds * 1000;
    struct door *door = calloc(1, sizeof *door);
    int status = RT_OK;
    if (!door) return rt_fail_memory(rt);
    door->rt = rt;
    door->meeting = meeting;
    door->place = place;
    door->listener = listener;
    while (!status && first_absent(meeting) < meeting->world) {
        const int64_t left = deadline - rt_now_ms();
        status = left > 0 ? wait_at_door(door, left) : report_absent(door, seconds);
    }
    if (status && status != RT_ERROR_PEER) linger(door);
    close_door(door);
    return status;
}

/* Authenticates the process that listens at the place as rank 0: NULL, or what is wrong. */
static const char *recognise(struct rt *rt, const struct place *place, int link, struct session *session) {
    const int64_t deadline = rt_now_ms() + PROMPT_MS;
    struct challenge challenge;
    struct hello hello;
    struct proof proof;
    describe_rank(rt, &hello);
    if (session_nonce(hello.nonce) != 0) return "cannot read random numbers";
    if (!receive_all(link, &challenge, sizeof challenge, deadline)) return "it does not send a handshake";
    if (memcmp(challenge.magic, MAGIC, sizeof MAGIC) != 0)
        return "it is not a rank of a compiled program of this version";
    memcpy(session->nonce[0], challenge.nonce, NONCE_BYTES);
    memcpy(session->nonce[1], hello.nonce, NONCE_BYTES);
    session_code(place, session, "hello", &hello, offsetof(struct hello, code), hello.code);
    if (!send_all(link, &hello, sizeof hello, deadline) || !receive_all(link, &proof, sizeof proof, deadline))
        return "it does not belong to this job";
    if (!session_proves(place, session, "proof", NULL, 0, proof.code)) return "it does not know this job's token";
    return NULL;
}

/* Names a process that is not rank 0 once. One that has disconnected is not named: this is usual while ranks start. */
static void name_stranger(struct rt *rt, const struct place *place, int link, const char *why, const char **named) {
    char none;
    const bool left = recv(link, &none, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
    if (!left && *named != why)
        rt_warn(rt, RT_CODE_TOKEN, "the process that listens at %s is not rank 0: %s", place->label, why);
    if (!left) *named = why;
}

static int report_unfound(struct rt *rt, struct place *place, int seconds, const char *stranger) {
    const char *because = stranger ? stranger : place_absence(place);
    return rt_fail_code(rt, RT_ERROR_PEER, RT_CODE_ABSENT, "rank %d of %d did not find rank 0 at %s within %d s: %s",
                        rt->rank, rt->world, place->label, seconds, because);
}

int door_enter(struct rt *rt, struct rt_meeting *meeting, struct place *place, int seconds) {
    const int64_t deadline = rt_now_ms() + (int64_t)seconds * 1000;
    const char *stranger = NULL, *named = NULL;
    while (rt_now_ms() < deadline) {
        meeting->link[0] = place_call(place);
        const bool there = meeting->link[0] >= 0;
        const char *wrong = there ? recognise(rt, place, meeting->link[0], &meeting->session[0]) : NULL;
        if (there && !wrong) return RT_OK;
        if (there) name_stranger(rt, place, meeting->link[0], wrong, &named);
        if (there) stranger = "the process that listens there does not belong to this job";
        close_link(&meeting->link[0]);
        nanosleep(&(struct timespec){0, AGAIN_MS * 1000000L}, NULL);
    }
    return report_unfound(rt, place, seconds, stranger);
}
