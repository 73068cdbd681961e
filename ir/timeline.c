#include "ir/timeline.h"

#include <math.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/schedule.h"

/* A message of a pair of coordinates. */
struct sent {
    int node, micro;
    double time;
};

/* The messages from one coordinate to another. */
struct channel {
    VEC(struct sent) sent;
    VEC(double) received; /* when each receive was posted */
};

/* A coordinate on its walk. */
struct walker {
    const struct schedule *schedule;
    struct schedule_walk walk;
    struct transfer_ends ends;
    int *number; /* [end * most slots + slot]: of the posted message among those of its channel */
    double time;
    bool waits, done; /* walk.op has not been executed; there is no further row */
    double delay;     /* since the last segment: time in which it waited for the end of sends */
    int delayed;      /* their owner */
};

struct simulation {
    const struct graph *graph;
    const struct timeline_times *times;
    enum phase last; /* of a micro-batch */
    struct timeline *timeline;
    int coordinates;
    struct walker *walkers;
    struct channel *channels; /* [from * coordinates + to] */
    double *delays;           /* per chunk: time in which coordinates waited for the end of sends from its slots */
    const char *wrong;
};

static const char *describe(const struct simulation *s, int coordinate, const char *what) {
    const struct step_op *op = &s->walkers[coordinate].walk.op;
    return arena_printf(s->graph->arena, "coordinate %d, micro-batch %d: %s", coordinate, op->micro, what);
}

/* Describes the transfer that the coordinate waits for, by the value that is transferred. */
static const char *describe_wait(const struct simulation *s, int coordinate) {
    const struct walker *w = &s->walkers[coordinate];
    const struct transfer_end *end = &w->ends.all.at[w->walk.op.transfer];
    const struct node *node = &s->graph->nodes.at[end->node];
    const char *what = arena_printf(
        s->graph->arena, "it waits for %s '%s' (%s, from stage %d to stage %d), whose other end is never posted",
        end->sends ? "the receive of" : "the send of", s->graph->tensors.at[node->inputs[0]].name,
        phase_names[node->phase], (int)attr_int(node, "from", 0), (int)attr_int(node, "to", 0));
    return describe(s, coordinate, what);
}

/* The owner of the first value whose send a coordinate waits for; -1: none waits for a send. */
static int find_stuck(const struct simulation *s) {
    EACH(s->walkers, s->coordinates, c, const struct walker *w) {
        const struct transfer_end *end =
            w->done || w->walk.op.kind == STEP_RUN ? NULL : &w->ends.all.at[w->walk.op.transfer];
        if (end && end->sends) return end->owner;
    }
    return -1;
}

static double duration(const struct simulation *s, const struct step_op *op) {
    const enum phase phase = s->graph->segments.at[op->segment].phase;
    if (phase >= PHASE_REDUCE) return 0;
    if (s->times->seconds) return s->times->seconds[op->segment];
    return phase == PHASE_BACKWARD && s->last == PHASE_BACKWARD ? 2 : 1;
}

static void run_row(struct simulation *s, int c, const struct step_op *op) {
    struct walker *w = &s->walkers[c];
    const double begin = w->time;
    w->time += duration(s, op);
    if (s->graph->segments.at[op->segment].phase >= PHASE_REDUCE) return;
    if (w->delay > 0) s->delays[w->delayed] += w->delay;
    w->delay = 0;
    const struct timeline_run run = {c, op->segment, op->micro, begin, w->time};
    VEC_PUSH(s->graph->arena, &s->timeline->runs, run);
    if (s->timeline->busy[c] == 0) s->timeline->first[c] = begin;
    s->timeline->last[c] = w->time;
    s->timeline->busy[c] += w->time - begin;
    if (w->time > s->timeline->end) s->timeline->end = w->time;
}

static struct channel *channel_of(const struct simulation *s, const struct node *node) {
    const int from = schedule_home(s->graph, (int)attr_int(node, "from", 0)),
              to = schedule_home(s->graph, (int)attr_int(node, "to", 0));
    return &s->channels[from * s->coordinates + to];
}

/* Waits for the end of a message whose ends are both posted. */
static void end_message(struct simulation *s, int c, const struct transfer_end *of, const struct sent *sent,
                        double received) {
    const double begin = fmax(sent->time, received),
                 end = begin + (s->times->messages ? s->times->messages[sent->node] : 0);
    struct walker *w = &s->walkers[c];
    if (end <= w->time) return;
    s->timeline->moving[c] += end - fmax(begin, w->time);
    if (of->sends) w->delay += end - w->time, w->delayed = of->owner;
    w->time = end;
}

/* Executes the row; false if it has to wait. */
static bool execute(struct simulation *s, int c, const struct step_op *op) {
    struct walker *w = &s->walkers[c];
    if (op->kind == STEP_RUN) return run_row(s, c, op), true;
    const struct transfer_end *end = &w->ends.all.at[op->transfer];
    struct channel *channel = channel_of(s, &s->graph->nodes.at[end->node]);
    const int slot = rt_schedule_slot(&w->schedule->shape, op->chunk, op->micro);
    int *number = &w->number[op->transfer * rt_schedule_most_slots(&w->schedule->shape) + slot];
    if (op->kind == STEP_POST_SEND) {
        *number = channel->sent.n;
        VEC_PUSH(s->graph->arena, &channel->sent, (struct sent){end->node, op->micro, w->time});
        return true;
    }
    if (op->kind == STEP_POST_RECEIVE) {
        *number = channel->received.n;
        VEC_PUSH(s->graph->arena, &channel->received, w->time);
        return true;
    }
    if (*number >= channel->sent.n || *number >= channel->received.n) return false;
    const struct sent *sent = &channel->sent.at[*number];
    if (!end->sends && (sent->node != end->node || sent->micro != op->micro))
        s->wrong = describe(s, c, "it receives another value than the next one that is sent to it");
    end_message(s, c, end, sent, channel->received.at[*number]);
    return true;
}

/* Advances a coordinate as far as possible. Returns whether it advanced. */
static bool advance(struct simulation *s, int c) {
    struct walker *w = &s->walkers[c];
    bool any = false;
    while (!w->done && !s->wrong) {
        if (!w->waits && !schedule_next(w->schedule, s->timeline->micro_batches, &w->walk)) {
            w->done = true;
            break;
        }
        w->waits = !execute(s, c, &w->walk.op);
        if (w->waits) break;
        any = true;
    }
    return any;
}

const char *timeline_simulate(const struct graph *graph, int micro_batches, const struct timeline_times *times,
                              struct timeline *timeline) {
    const int n = graph->schedules.n;
    struct simulation s = {.graph = graph, .times = times, .timeline = timeline, .coordinates = n};
    s.last = schedule_last_phase(graph);
    s.walkers = ARENA_ARRAY(graph->arena, struct walker, n);
    s.channels = ARENA_ARRAY(graph->arena, struct channel, n * n);
    s.delays = ARENA_ARRAY(graph->arena, double, schedule_chunks(graph));
    const struct transfer_ends *ends = times->ends ? times->ends : schedule_ends(graph);
    *timeline = (struct timeline){.micro_batches = micro_batches, .stuck = -1, .delayed = -1};
    timeline->busy = ARENA_ARRAY(graph->arena, double, n);
    timeline->moving = ARENA_ARRAY(graph->arena, double, n);
    timeline->first = ARENA_ARRAY(graph->arena, double, n);
    timeline->last = ARENA_ARRAY(graph->arena, double, n);
    EACH(s.walkers, n, c, struct walker *const w) {
        *w = (struct walker){.schedule = &graph->schedules.at[c], .ends = ends[c]};
        w->number = ARENA_ARRAY(graph->arena, int, w->ends.all.n *rt_schedule_most_slots(&w->schedule->shape) + 1);
    }
    for (bool any = true; any && !s.wrong;) {
        any = false;
        for (int c = 0; c < n; c++) any = advance(&s, c) || any;
    }
    for (int c = 0; c < n && !s.wrong; c++)
        if (!s.walkers[c].done) s.wrong = describe_wait(&s, c);
    timeline->stuck = find_stuck(&s);
    for (int chunk = 0; chunk < schedule_chunks(graph); chunk++)
        if (s.delays[chunk] > (timeline->delayed < 0 ? 0 : s.delays[timeline->delayed])) timeline->delayed = chunk;
    return s.wrong;
}

int timeline_verify(const struct graph *graph, struct diags *diags) {
    const struct timeline_times times = {.ends = graph->level < SCHEDULED ? NULL : schedule_ends(graph)};
    const int further[] = {0, 1, graph->schedules.n ? rt_schedule_most_slots(&graph->schedules.at[0].shape) + 1 : 0};
    for (int k = 0; k < 3 && graph->level >= SCHEDULED; k++) {
        const int micro_batches = graph->schedules.at[0].shape.micro_batches + further[k];
        struct timeline timeline;
        bool allowed = true;
        for (int c = 0; c < graph->schedules.n; c++)
            allowed = allowed && rt_schedule_allows(&graph->schedules.at[c].shape, micro_batches);
        const char *wrong = allowed ? timeline_simulate(graph, micro_batches, &times, &timeline) : NULL;
        if (wrong) return diag_error(diags, 1101, EXIT_MISMATCH, graph->name, "schedules: %s", wrong);
    }
    return 0;
}

double timeline_bubble(const struct timeline *timeline, int coordinates) {
    double busy = 0;
    for (int c = 0; c < coordinates; c++) busy += timeline->busy[c] + timeline->moving[c];
    return timeline->end > 0 ? 1 - busy / (coordinates * timeline->end) : 0;
}

double timeline_bubble_overlapped(const struct timeline *timeline, int coordinates) {
    double busy = 0, longest = 0;
    for (int c = 0; c < coordinates; c++) {
        const double span = timeline->last[c] - timeline->first[c];
        busy += timeline->busy[c] + timeline->moving[c];
        if (span > longest) longest = span;
    }
    return longest > 0 ? 1 - busy / (coordinates * longest) : 0;
}

const char *timeline_text(struct arena *arena, const struct graph *graph, const struct timeline *timeline,
                          int coordinate) {
    const bool several = graph->schedules.at[coordinate].shape.nchunks > 1;
    const int width = 3 + several + (schedule_last_phase(graph) == PHASE_WEIGHT); /* columns of a unit of time */
    static const char *const marks[] = {[PHASE_FORWARD] = "", [PHASE_BACKWARD] = "'", [PHASE_WEIGHT] = "\""};
    int at = 0;
    struct strbuf out = {.arena = arena};
    VEC_EACH(&timeline->runs, i, const struct timeline_run *run) {
        const struct segment *segment = &graph->segments.at[run->segment];
        const int begin = (int)(run->begin * width);
        if (run->coordinate != coordinate) continue;
        const char letter[] = {several ? (char)('a' + schedule_number(graph, segment->chunk)) : 0, 0};
        const char *name = arena_printf(arena, "%d%s%s", run->micro, letter, marks[segment->phase]);
        for (; at < begin; at++) strbuf_putc(&out, ' ');
        strbuf_puts(&out, name);
        at += (int)strlen(name);
    }
    return strbuf_text(&out);
}
