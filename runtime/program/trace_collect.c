/* Collecting the events of all ranks on rank 0: Note [Traces] in trace.h. */
#include "program/trace.h"

#include "base/thread/clock.h"

#include <stdlib.h>
#include <string.h>

enum { EXCHANGES = 16 }; /* of messages, to compare two clocks */

static int send(struct rt *rt, const void *data, size_t bytes, int to) {
    return rt_end_collective(rt, rt->comm, bytes ? rt->comm->driver->send(rt->comm, data, bytes, to) : RT_OK);
}

static int receive(struct rt *rt, void *data, size_t bytes, int from) {
    return rt_end_collective(rt, rt->comm, bytes ? rt->comm->driver->receive(rt->comm, data, bytes, from) : RT_OK);
}

/* On the rank: asks rank 0 for its time. */
static int ask_time(struct rt *rt, struct trace_about *about) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < EXCHANGES; i++) {
        const int64_t asked = rt_clock_ns();
        int64_t answer = 0;
        RT_TRY(send(rt, &asked, sizeof asked, 0));
        RT_TRY(receive(rt, &answer, sizeof answer, 0));
        const int64_t took = rt_clock_ns() - asked;
        if (took >= least) continue;
        least = took;
        about->offset = answer - (asked + took / 2);
        about->uncertain = took / 2;
    }
    return RT_OK;
}

/* On rank 0: tells rank `to` its time. */
static int tell_time(struct rt *rt, int to) {
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t asked, answer;
        RT_TRY(receive(rt, &asked, sizeof asked, to));
        answer = rt_clock_ns();
        RT_TRY(send(rt, &answer, sizeof answer, to));
    }
    return RT_OK;
}

static int give_events(struct rt *rt, struct trace_part *mine, const char *host) {
    const int32_t differs = strcmp(mine->about.host, host) != 0;
    RT_TRY(send(rt, &differs, sizeof differs, 0));
    if (differs) RT_TRY(ask_time(rt, &mine->about));
    RT_TRY(send(rt, &mine->about, sizeof mine->about, 0));
    return send(rt, mine->events, (size_t)mine->about.n * sizeof *mine->events, 0);
}

static int take_events(struct rt *rt, struct trace_part *part, int from) {
    int32_t differs;
    RT_TRY(receive(rt, &differs, sizeof differs, from));
    if (differs) RT_TRY(tell_time(rt, from));
    RT_TRY(receive(rt, &part->about, sizeof part->about, from));
    part->events = calloc((size_t)part->about.n + 1, sizeof *part->events);
    if (!part->events) return rt_fail_memory(rt);
    RT_TRY(receive(rt, part->events, (size_t)part->about.n * sizeof *part->events, from));
    for (int64_t i = 0; i < part->about.n; i++) {
        part->events[i].begin += part->about.offset;
        part->events[i].end += part->about.offset;
    }
    return RT_OK;
}

static int take_own(struct rt *rt, struct trace_part *part, const struct trace_part *mine) {
    part->about = mine->about;
    part->events = calloc((size_t)mine->about.n + 1, sizeof *part->events);
    if (!part->events) return rt_fail_memory(rt);
    if (mine->about.n) memcpy(part->events, mine->events, (size_t)mine->about.n * sizeof *part->events);
    return RT_OK;
}

static bool is_collective(const struct trace_event *event, int comm) {
    return event->kind == TRACE_CALL && event->comm == comm && event->call < CALL_COLLECTIVES;
}

/* The next collective of a rank on a communicator from event *at on; NULL: none. */
static struct trace_event *next_collective(struct trace_part *part, int comm, int64_t *at) {
    while (*at < part->about.n && !is_collective(&part->events[*at], comm)) ++*at;
    return *at < part->about.n ? &part->events[(*at)++] : NULL;
}

/* The members of a communicator make the same collectives in the same order: the n-th of one is the n-th of each. Each
 * member waits in it until the last one calls it. */
static void find_waits(struct trace_all *all, int comm, int group, int64_t *at, struct trace_event **calls) {
    for (int r = 0; r < all->world; r++) at[r] = 0;
    for (;;) {
        int64_t latest = INT64_MIN;
        for (int r = 0; r < all->world; r++) {
            calls[r] = NULL;
            if (all->parts[r].about.group[comm] != group) continue;
            if (!(calls[r] = next_collective(&all->parts[r], comm, &at[r]))) return;
            if (calls[r]->begin > latest) latest = calls[r]->begin;
        }
        for (int r = 0; r < all->world; r++) {
            if (!calls[r]) continue;
            const int64_t end = latest < calls[r]->end ? latest : calls[r]->end;
            calls[r]->waited = end - calls[r]->begin;
        }
    }
}

/* Events that were dropped would shift the order. */
static bool is_complete(const struct trace_all *all) {
    for (int r = 0; r < all->world; r++)
        if (all->parts[r].about.dropped) return false;
    return true;
}

/* A rank that waits for a message does nothing else. */
static void find_message_waits(struct trace_all *all) {
    for (int r = 0; r < all->world; r++)
        for (int64_t i = 0; i < all->parts[r].about.n; i++) {
            struct trace_event *event = &all->parts[r].events[i];
            const bool waits = event->call == CALL_WAIT || event->call == CALL_RECEIVE;
            if (event->kind == TRACE_CALL && waits) event->waited = event->end - event->begin;
        }
}

static int find_all_waits(struct rt *rt, struct trace_all *all) {
    int64_t *at = calloc((size_t)all->world, sizeof *at);
    struct trace_event **calls = calloc((size_t)all->world, sizeof(*calls));
    const bool ok = at && calls;
    find_message_waits(all);
    for (int c = 0; c < TRACE_COMMS && ok && is_complete(all); c++)
        for (int r = 0; r < all->world; r++) /* a group is named by its lowest rank */
            if (all->parts[r].about.group[c] == r) find_waits(all, c, r, at, calls);
    free(at);
    free(calls);
    return ok ? RT_OK : rt_fail_memory(rt);
}

int trace_collect(struct rt *rt, const struct trace_part *mine, struct trace_all *all) {
    struct trace_part own = *mine;
    char host[sizeof mine->about.host];
    memcpy(host, mine->about.host, sizeof host);
    *all = (struct trace_all){.world = rt->world};
    RT_TRY(rt_end_collective(rt, rt->comm, rt->comm->driver->broadcast(rt->comm, host, sizeof host, 0)));
    if (rt->rank) return give_events(rt, &own, host);
    all->parts = calloc((size_t)rt->world, sizeof *all->parts);
    if (!all->parts) return rt_fail_memory(rt);
    int status = take_own(rt, &all->parts[0], mine);
    for (int r = 1; r < rt->world && !status; r++) status = take_events(rt, &all->parts[r], r);
    if (!status) status = find_all_waits(rt, all);
    if (status) trace_free(all);
    return status;
}

void trace_free(struct trace_all *all) {
    for (int r = 0; r < all->world && all->parts; r++) free(all->parts[r].events);
    free(all->parts);
    all->parts = NULL;
}
