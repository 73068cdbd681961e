/* Recording: Note [Traces] in trace.h. */
#include "program/trace.h"

#include "base/io/file.h"
#include "base/thread/clock.h"
#include "comm/hosts.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_MOST = 1 << 22, FIRST_STEPS = 10 }; /* events of all ranks together; steps without --trace-steps */

/* A communicator's functions, recorded. The communicator's `driver` is `table` while a step is traced. */
struct traced {
    struct rt_comm_driver table; /* first member */
    const struct rt_comm_driver *real;
    struct rt_comm *comm; /* NULL: none, or a communicator that is traced already */
    struct trace *trace;
    uint8_t number;
};

struct trace {
    struct rt_observer observer; /* first member */
    struct rank *self;
    struct rt *rt;
    struct traced comms[TRACE_COMMS];
    pthread_t thread; /* of the steps; checkpoints may be written by another */
    struct trace_part part;
    int64_t room, most;
    int64_t first, last; /* the window; first 0: it begins with the next step */
    struct trace_event step, current;
    int depth; /* calls of a transport may call others */
    /* Of a device that executes calls later: times of instructions are numbers of marks until the step has ended. */
    int64_t marks;
    int64_t step_at; /* the step's first event */
    int status;      /* of marks */
    bool written;    /* the window has ended */
};

static bool make_room(struct trace *trace) {
    if (trace->part.about.n < trace->room) return true;
    const int64_t room = trace->room ? 2 * trace->room : 4096;
    struct trace_event *grown = room <= trace->most ? realloc(trace->part.events, (size_t)room * sizeof *grown) : NULL;
    if (!grown) return false;
    trace->part.events = grown;
    trace->room = room;
    return true;
}

static void add_event(struct trace *trace, struct trace_event event) {
    if (make_room(trace))
        trace->part.events[trace->part.about.n++] = event;
    else
        trace->part.about.dropped++;
}

static struct trace_event event_of(const struct trace *trace, enum trace_kind kind) {
    return (struct trace_event){.instruction = trace->rt->instruction,
                                .step = trace->step.step,
                                .micro = trace->rt->internal->micro,
                                .kind = (uint8_t)kind,
                                .chunk = (uint8_t)trace->rt->internal->chunk};
}

/* The time, or the number of a mark. */
static int64_t moment(struct trace *trace) {
    const struct rt_device *device = trace->rt->program->device;
    if (!device->mark) return rt_clock_ns();
    if (!trace->status) trace->status = device->mark(trace->rt, trace->marks);
    return trace->marks++;
}

/* Replaces numbers of marks by times: mark 0 was made when the step began. */
static int read_marks(struct trace *trace) {
    struct rt *rt = trace->rt;
    const struct rt_device *device = rt->program->device;
    if (!device->mark || trace->status) return trace->status;
    int64_t *ns = calloc((size_t)trace->marks, sizeof *ns);
    int status = ns ? device->finish(rt) : rt_fail_memory(rt);
    if (!status) status = device->times(rt, trace->marks, ns);
    for (int64_t i = trace->step_at; i < trace->part.about.n && !status; i++) {
        struct trace_event *event = &trace->part.events[i];
        if (event->kind != TRACE_INSTRUCTION) continue;
        event->begin = trace->step.begin + ns[event->begin];
        event->end = trace->step.begin + ns[event->end];
    }
    free(ns);
    return status;
}

static void end_instruction(struct trace *trace, int64_t now) {
    if (trace->current.instruction < 0) return;
    trace->current.end = now;
    add_event(trace, trace->current);
    trace->current.instruction = -1;
}

/* An instruction that is announced several times in a row, for its parts, is one event. */
static void begin_instruction(struct rt_observer *observer, struct rt *rt, int instruction) {
    struct trace *trace = (struct trace *)observer;
    struct trace_event *current = &trace->current;
    if (!pthread_equal(pthread_self(), trace->thread)) return;
    const bool same = instruction == current->instruction && rt->internal->micro == current->micro &&
                      rt->internal->chunk == current->chunk;
    if (same) return;
    struct trace_event next = event_of(trace, TRACE_INSTRUCTION);
    next.instruction = instruction; /* -1 after a segment, where rt->instruction is still its last */
    next.begin = moment(trace);
    end_instruction(trace, next.begin);
    *current = next;
}

struct call {
    struct traced *traced;
    struct trace_event event;
};

static struct call begin_call(struct rt_comm *comm, enum trace_call what, size_t bytes) {
    struct call call = {.traced = (struct traced *)(uintptr_t)comm->driver};
    call.traced->trace->depth++;
    call.event = event_of(call.traced->trace, TRACE_CALL);
    call.event.begin = rt_clock_ns();
    call.event.call = (uint8_t)what;
    call.event.comm = call.traced->number;
    call.event.bytes = (int64_t)bytes;
    return call;
}

static int end_call(struct call *call, int status) {
    struct trace *trace = call->traced->trace;
    call->event.end = rt_clock_ns();
    if (--trace->depth == 0) add_event(trace, call->event);
    return status;
}

/* Calls the communicator's own function, recorded. */
#define RECORD(what, bytes, function, ...)                                                                             \
    struct call call = begin_call(comm, what, bytes);                                                                  \
    return end_call(&call, call.traced->real->function(__VA_ARGS__))

static int barrier(struct rt_comm *comm) {
    RECORD(CALL_BARRIER, 0, barrier, comm);
}

static int all_reduce(struct rt_comm *comm, void *dst, const void *src, size_t count, enum rt_dtype dtype,
                      enum rt_reduce reduce) {
    RECORD(CALL_ALL_REDUCE, count * rt_dtype_bytes(dtype), all_reduce, comm, dst, src, count, dtype, reduce);
}

static int begin(struct rt_comm *comm, const struct rt_collective *what) {
    const size_t n = rt_counts_total(what->counts, what->kind == RT_SUM_WHOLE ? 1 : comm->size);
    RECORD((enum trace_call)(CALL_SUM_BEGIN + what->kind),
           what->kind == RT_GATHER ? n : n * rt_dtype_bytes(what->dtype), begin, comm, what);
}

static int finish(struct rt_comm *comm, enum rt_early kind) {
    RECORD(kind == RT_GATHER ? CALL_GATHER_FINISH : CALL_SUM_FINISH, 0, finish, comm, kind);
}

static int all_gather(struct rt_comm *comm, void *dst, const void *src, const size_t *bytes) {
    RECORD(CALL_ALL_GATHER, rt_counts_total(bytes, comm->size), all_gather, comm, dst, src, bytes);
}

static int reduce_scatter(struct rt_comm *comm, void *dst, const void *src, const size_t *counts, enum rt_dtype dtype,
                          enum rt_reduce reduce, bool onto) {
    RECORD(CALL_REDUCE_SCATTER, rt_counts_total(counts, comm->size) * rt_dtype_bytes(dtype), reduce_scatter, comm, dst,
           src, counts, dtype, reduce, onto);
}

static int all_to_all(struct rt_comm *comm, void *dst, const size_t *receive, const void *src, const size_t *send) {
    RECORD(CALL_ALL_TO_ALL, rt_counts_total(send, comm->size), all_to_all, comm, dst, receive, src, send);
}

static int broadcast(struct rt_comm *comm, void *data, size_t bytes, int root) {
    RECORD(CALL_BROADCAST, bytes, broadcast, comm, data, bytes, root);
}

static int send(struct rt_comm *comm, const void *src, size_t bytes, int to) {
    RECORD(CALL_SEND, bytes, send, comm, src, bytes, to);
}

static int receive(struct rt_comm *comm, void *dst, size_t bytes, int from) {
    RECORD(CALL_RECEIVE, bytes, receive, comm, dst, bytes, from);
}

static int post_send(struct rt_comm *comm, const void *src, size_t bytes, int to, struct rt_request *request) {
    RECORD(CALL_POST_SEND, bytes, post_send, comm, src, bytes, to, request);
}

static int post_receive(struct rt_comm *comm, void *dst, size_t bytes, int from, struct rt_request *request) {
    RECORD(CALL_POST_RECEIVE, bytes, post_receive, comm, dst, bytes, from, request);
}

static int wait(struct rt_comm *comm, struct rt_request *request) {
    RECORD(CALL_WAIT, request->bytes, wait, comm, request);
}

/* Functions that a transport lacks, and those that are not recorded, stay what they are. */
static void fill_table(struct traced *traced, const struct rt_comm_driver *real) {
    struct rt_comm_driver *table = &traced->table;
    traced->real = real;
    *table = *real;
#define REPLACE(function)                                                                                              \
    if (real->function) table->function = function
    REPLACE(barrier);
    REPLACE(all_reduce);
    REPLACE(begin);
    REPLACE(finish);
    REPLACE(all_gather);
    REPLACE(reduce_scatter);
    REPLACE(all_to_all);
    REPLACE(broadcast);
    REPLACE(send);
    REPLACE(receive);
    REPLACE(post_send);
    REPLACE(post_receive);
    REPLACE(wait);
#undef REPLACE
}

/* Lists the communicators of the step, each once. Finds the lowest rank of each. */
static int list_comms(struct trace *trace) {
    struct rt *rt = trace->rt;
    for (int c = 0; c < TRACE_COMMS; c++) {
        struct rt_comm *comm = c == TRACE_COMMS - 1 ? rt->units : c < rt_layout_axes(rt) ? rt->axis[c] : NULL;
        /* a device's communicators begin calls, which end later */
        bool listed = !comm || comm->size == 1 || comm == rt->comm || rt->program->device->remote;
        for (int b = 0; b < c && !listed; b++) listed = trace->comms[b].comm == comm;
        trace->part.about.group[c] = -1;
        if (listed) continue;
        int32_t lowest = rt->rank;
        RT_TRY(check_comm(trace->self, rt, comm, comm->driver->all_reduce(comm, &lowest, &lowest, 1, RT_I32, RT_MIN)));
        trace->part.about.group[c] = lowest;
        trace->comms[c] = (struct traced){.comm = comm, .trace = trace, .number = (uint8_t)c};
        fill_table(&trace->comms[c], comm->driver);
    }
    return RT_OK;
}

/* A file that cannot be written is an error before the first step, not after the last. */
static int check_file(struct trace *trace) {
    const char *path = trace->self->job->options.trace;
    FILE *file = path && trace->self->first && rt_make_parents(path) ? fopen(path, "ae") : NULL;
    if (!path || !trace->self->first) return RT_OK;
    if (file && fclose(file) == 0) return RT_OK;
    return fail_with(trace->self, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write '%s': %s", rt_quote_text(path).text,
                     strerror(errno));
}

int trace_open(struct trace **out, struct rank *self, struct rt *rt) {
    const struct main_options *options = &self->job->options;
    *out = NULL;
    if (!options->trace && !options->profile) return RT_OK;
    struct trace *trace = *out = calloc(1, sizeof *trace);
    if (!trace) return fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    *trace = (struct trace){.observer.begins = begin_instruction,
                            .self = self,
                            .rt = rt,
                            .thread = pthread_self(),
                            .most = EVENTS_MOST / rt->world,
                            .first = options->trace_steps[0],
                            .last = options->trace_steps[1],
                            .current.instruction = -1};
    trace->part.about.class = (int32_t)(rt->rank_class - rt->program->classes);
    memcpy(trace->part.about.bytes, rt->internal->bytes, sizeof trace->part.about.bytes);
    rt_host_name(trace->part.about.host);
    int status = check_file(trace);
    if (!status) status = list_comms(trace);
    if (status) free(trace), *out = NULL;
    return status;
}

void trace_begin_step(struct trace *trace, int64_t step) {
    if (!trace || trace->written) return;
    if (!trace->first) trace->first = step, trace->last = step + FIRST_STEPS - 1;
    if (step < trace->first || step > trace->last) return;
    for (int c = 0; c < TRACE_COMMS; c++)
        if (trace->comms[c].comm) trace->comms[c].comm->driver = &trace->comms[c].table;
    rt_observe(trace->rt, &trace->observer);
    trace->step.step = (int32_t)step;
    trace->step = event_of(trace, TRACE_STEP);
    trace->step.instruction = -1;
    trace->step_at = trace->part.about.n;
    trace->marks = trace->status = 0;
    if (trace->rt->program->device->mark) moment(trace);
    trace->step.begin = rt_clock_ns();
    for (int size = 0; size < trace->rt->program->nsizes; size++) {
        struct trace_event event = event_of(trace, TRACE_SIZE);
        event.begin = event.end = trace->step.begin;
        event.instruction = -1;
        event.call = (uint8_t)size;
        event.bytes = trace->rt->internal->sizes[size];
        add_event(trace, event);
    }
}

static bool is_recording(const struct trace *trace) {
    return trace && trace->step.begin;
}

/* `ended`: the step was executed. */
static int stop_recording(struct trace *trace, bool ended) {
    end_instruction(trace, moment(trace));
    const int status = ended ? read_marks(trace) : RT_OK;
    const int64_t now = rt_clock_ns();
    rt_observe_end(trace->rt, &trace->observer);
    for (int c = 0; c < TRACE_COMMS; c++)
        if (trace->comms[c].comm) trace->comms[c].comm->driver = trace->comms[c].real;
    trace->step.end = now;
    add_event(trace, trace->step);
    trace->step.begin = 0;
    return check_rank(trace->self, trace->rt, status);
}

static int give_profile(struct trace *trace, const struct trace_all *all, const struct trace_names *names) {
    struct job *job = trace->self->job;
    const struct rt_program *program = job->program;
    const char *machine = job->options.profile;
    const enum rt_dtype dtype = program->nweights ? program->weights[program->nweights - 1].dtype : RT_F32;
    struct rt_reason why;
    job->profile = profile_make(all, names);
    if (!job->profile) return fail_with(trace->self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    if (!*machine) profile_compare_compiled(job->profile, &job->manifest, dtype);
    if (!*machine || profile_compare(job->profile, machine, dtype, &why)) return RT_OK;
    return fail_reason(trace->self, RT_CODE_MACHINE, &why);
}

/* Writes the events that rank 0 has collected. */
static int give(struct trace *trace, const struct trace_all *all) {
    struct job *job = trace->self->job;
    struct trace_names names;
    const char *path = job->options.trace;
    int status = RT_OK;
    if (!trace_names_read(&names, &job->manifest, trace->rt->program->nclasses))
        return fail_with(trace->self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    if (path && !trace_write(path, all, &names, trace->rt->program->name))
        status = fail_with(trace->self, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write '%s': %s", rt_quote_text(path).text,
                           strerror(errno));
    if (!status && job->options.profile) status = give_profile(trace, all, &names);
    trace_names_free(&names);
    return status;
}

static void warn_dropped(const struct trace *trace, const struct trace_all *all) {
    int64_t dropped = 0;
    for (int r = 0; r < all->world; r++) dropped += all->parts[r].about.dropped;
    if (dropped)
        rt_warn(trace->rt, RT_CODE_TRACE,
                "%lld event(s) of the traced steps did not fit into memory: trace fewer steps with --trace-steps A:B",
                (long long)dropped);
}

/* Collective. */
static int end_window(struct trace *trace) {
    struct trace_all all;
    int status = RT_OK;
    trace->written = true;
    RT_TRY(check_rank(trace->self, trace->rt, trace_collect(trace->rt, &trace->part, &all)));
    if (trace->self->first) {
        warn_dropped(trace, &all);
        status = give(trace, &all);
    }
    trace_free(&all);
    free(trace->part.events);
    trace->part.events = NULL;
    trace->part.about.n = trace->room = 0;
    return status;
}

int trace_end_step(struct trace *trace) {
    if (!is_recording(trace)) return RT_OK;
    const bool last = trace->step.step == trace->last;
    RT_TRY(stop_recording(trace, true));
    return last ? end_window(trace) : RT_OK;
}

int trace_close(struct trace *trace, int status) {
    if (!trace) return status;
    if (is_recording(trace)) stop_recording(trace, false);
    if (!status && !trace->written && trace->part.about.n)
        status = end_window(trace);
    else if (!status && !trace->written && trace->self->first)
        rt_warn(trace->rt, RT_CODE_TRACE, "no step of --trace-steps %lld:%lld was executed, and nothing was traced",
                (long long)trace->first, (long long)trace->last);
    free(trace->part.events);
    free(trace);
    return status;
}
