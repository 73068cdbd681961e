/* The Trace Event Format, as JSON object: an event of phase "X" (complete) has begin and duration in microseconds, and
 * events of one track (pid, tid) nest. Phase "C" has the values of a counter from its time on. Phase "M" names
 * processes and tracks. */
#include "program/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory of a rank over the traced steps: what the plan says is live while each instruction is executed, and the
 * slots (Note [Slots] in base/schedule.h) of the micro-batches that are between their phases at that time. */

/* The events of a rank that begin a row: its instructions in the order of execution, and behind those of each step the
 * step, which has ended then. */
struct walk {
    const struct trace_names *names;
    int class;
    int64_t n;
    const struct trace_event **events;
    struct trace_memory *memory;
    struct span {
        int64_t first, last; /* rows of a step in which a micro-batch uses a slot; first -1: none */
    } * spans;               /* per micro-batch */
    int micro_batches;
};

static const struct trace_work *work_of(const struct walk *walk, const struct trace_event *event) {
    return &walk->names->work[(int64_t)walk->class * walk->names->ninstructions + event->instruction];
}

static bool is_row(const struct walk *walk, const struct trace_event *event) {
    return event->kind == TRACE_STEP || (event->kind == TRACE_INSTRUCTION && event->instruction >= 0 &&
                                         event->instruction < walk->names->ninstructions && event->micro >= 0);
}

static void list_events(struct walk *walk, const struct trace_part *part) {
    for (int64_t i = 0; i < part->about.n; i++) {
        if (!is_row(walk, &part->events[i])) continue;
        walk->events[walk->n++] = &part->events[i];
        if (part->events[i].micro >= walk->micro_batches) walk->micro_batches = part->events[i].micro + 1;
    }
}

static void add(struct trace_memory *row, const int64_t bytes[RT_ARENAS], int64_t times) {
    for (int a = 0; a < RT_ARENAS; a++) row->bytes[a] += times * bytes[a];
}

/* Stored tensors and copied inputs are there all the time. */
static void fill_row(const struct walk *walk, const struct trace_part *part, int64_t i) {
    const struct trace_event *event = walk->events[i];
    struct trace_memory *row = &walk->memory[i];
    row->at = event->kind == TRACE_STEP ? event->end : event->begin;
    for (int a = RT_WEIGHTS; a <= RT_OPTIMIZER; a++) row->bytes[a] = part->about.bytes[a];
    row->bytes[RT_HOST] = part->about.bytes[RT_HOST];
    row->bytes[RT_ACTIVATIONS] = walk->names->kept[walk->class].inputs;
    if (event->kind == TRACE_INSTRUCTION) add(row, work_of(walk, event)->live, 1);
}

/* True if the instruction may access a slot of that kind and chunk. */
static bool is_used(const struct walk *walk, const struct trace_slot *slot, const struct trace_event *event) {
    if (event->kind != TRACE_INSTRUCTION || event->chunk != slot->chunk) return false;
    const int phase = work_of(walk, event)->phase;
    return phase >= 0 && phase < PHASE_REDUCE && rt_slot_is_used(slot->kind, (enum phase)phase);
}

/* The rows [begin, end) are those of a step. A micro-batch has its slot from the first to the last of its instructions
 * that may access it. */
static void add_slots(struct walk *walk, const struct trace_slot *slot, int64_t begin, int64_t end) {
    int64_t in_use = 0;
    for (int m = 0; m < walk->micro_batches; m++) walk->spans[m].first = -1;
    for (int64_t i = begin; i < end; i++) {
        struct span *span = &walk->spans[walk->events[i]->micro];
        if (!is_used(walk, slot, walk->events[i])) continue;
        if (span->first < 0) span->first = i;
        span->last = i;
    }
    for (int64_t i = begin; i < end; i++) {
        const struct span *span = &walk->spans[walk->events[i]->micro];
        in_use += span->first == i;
        add(&walk->memory[i], slot->bytes, in_use);
        in_use -= span->first >= 0 && span->last == i;
    }
}

static void fill(struct walk *walk, const struct trace_part *part) {
    const struct trace_kept *kept = &walk->names->kept[walk->class];
    int64_t begin = 0;
    for (int64_t i = 0; i < walk->n; i++) {
        fill_row(walk, part, i);
        if (walk->events[i]->kind != TRACE_STEP) continue;
        for (int s = 0; s < kept->nslots; s++) add_slots(walk, &kept->slots[s], begin, i);
        begin = i + 1;
    }
}

/* *memory: a row for each instruction, and one for the end of each step; the caller frees it. False: out of memory. */
static bool trace_memory_make(struct trace_memory **memory, int64_t *n, const struct trace_part *part,
                              const struct trace_names *names) {
    struct walk walk = {.names = names, .class = part->about.class};
    walk.events = calloc((size_t)part->about.n + 1, sizeof(*walk.events));
    if (walk.events) list_events(&walk, part);
    walk.memory = calloc((size_t)walk.n + 1, sizeof *walk.memory);
    walk.spans = calloc((size_t)walk.micro_batches + 1, sizeof *walk.spans);
    const bool ok = walk.events && walk.memory && walk.spans;
    if (ok) fill(&walk, part);
    free(walk.events);
    free(walk.spans);
    if (!ok) free(walk.memory);
    *memory = ok ? walk.memory : NULL;
    *n = ok ? walk.n : 0;
    return ok;
}

enum track { TRACK_STEPS, TRACK_INSTRUCTIONS, TRACK_COMMUNICATION, TRACKS };
static const char *const track_names[TRACKS] = {"steps", "instructions", "communication"};

static const char *const call_names[TRACE_CALLS] = {
    [CALL_BARRIER] = "barrier",
    [CALL_ALL_REDUCE] = "all_reduce",
    [CALL_ALL_GATHER] = "all_gather",
    [CALL_REDUCE_SCATTER] = "reduce_scatter",
    [CALL_ALL_TO_ALL] = "all_to_all",
    [CALL_BROADCAST] = "broadcast",
    [CALL_SUM_BEGIN] = "sum_begin",
    [CALL_SCATTER_BEGIN] = "scatter_begin",
    [CALL_SUM_FINISH] = "sum_finish",
    [CALL_GATHER_BEGIN] = "gather_begin",
    [CALL_GATHER_FINISH] = "gather_finish",
    [CALL_SEND] = "send",
    [CALL_RECEIVE] = "receive",
    [CALL_POST_SEND] = "post_send",
    [CALL_POST_RECEIVE] = "post_receive",
    [CALL_WAIT] = "wait",
};

struct output {
    FILE *file;
    const struct trace_names *names;
    char **shown;  /* per instruction: `"name": .., "cat": .., "args": {"node": ..` */
    int64_t start; /* ns of the first event */
    int rank, class;
    int64_t sizes[RT_MAX_SIZES]; /* of the step */
};

/* Names of nodes are untrusted: the JSON writer escapes them. */
static char *show_instruction(const struct trace_instruction *instruction) {
    struct rt_json_writer w;
    struct rt_reason why;
    char *name = NULL;
    if (asprintf(&name, "%s %s", instruction->op, instruction->node) < 0) return NULL;
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_INLINE);
    rt_json_key_text(&w, "name", name);
    rt_json_key_open(&w, "args", '{', RT_JSON_INLINE);
    rt_json_key_text(&w, "node", instruction->node);
    rt_json_key_text(&w, "operator", instruction->op);
    if (instruction->module) rt_json_key_text(&w, "module", instruction->module);
    if (instruction->from) rt_json_key_text(&w, "from", instruction->from);
    rt_json_key_text(&w, "layer", instruction->layer);
    rt_json_close(&w, '}');
    rt_json_close(&w, '}');
    free(name);
    /* the members, without the braces around them and the last one's */
    char *shown = rt_json_end(&w, &why) && w.bytes > 4 ? strndup(w.text + 1, w.bytes - 4) : NULL;
    rt_json_discard(&w);
    return shown;
}

static void put_time(FILE *file, const char *key, int64_t ns) {
    fprintf(file, ", \"%s\": %" PRId64 ".%03" PRId64, key, ns / 1000, ns % 1000);
}

static void put_head(const struct output *out, const char *phase, enum track track) {
    fprintf(out->file, ",\n{\"ph\": \"%s\", \"pid\": %d, \"tid\": %d", phase, out->rank, (int)track);
}

static void put_span(const struct output *out, enum track track, int64_t begin, int64_t end) {
    put_head(out, "X", track);
    put_time(out->file, "ts", begin - out->start);
    put_time(out->file, "dur", end > begin ? end - begin : 0);
}

static void put_numbers(const struct output *out, const struct trace_event *event) {
    fprintf(out->file, "\"step\": %d, \"instruction\": %d, \"micro_batch\": %d", event->step, event->instruction,
            event->micro);
    if (event->chunk) fprintf(out->file, ", \"chunk\": %d", event->chunk);
}

static bool is_known(const struct output *out, int instruction) {
    return instruction >= 0 && instruction < out->names->ninstructions;
}

static void put_instruction(const struct output *out, const struct trace_event *event) {
    if (!is_known(out, event->instruction)) return;
    const struct trace_work *work =
        &out->names->work[(int64_t)out->class * out->names->ninstructions + event->instruction];
    put_span(out, TRACK_INSTRUCTIONS, event->begin, event->end);
    fprintf(out->file, ", \"cat\": \"%s\", %s, ", work->phase < 0 ? "instruction" : trace_phases[work->phase],
            out->shown[event->instruction]);
    put_numbers(out, event);
    if (work->phase >= 0)
        fprintf(out->file, ", \"phase\": \"%s\", \"bytes\": %" PRId64 ", \"flops\": %" PRId64,
                trace_phases[work->phase], trace_amount(out->names, work->bytes, out->sizes),
                trace_amount(out->names, work->flops, out->sizes));
    fputs("}}", out->file);
}

static void put_call(const struct output *out, const struct trace_event *event) {
    put_span(out, TRACK_COMMUNICATION, event->begin, event->end);
    fprintf(out->file, ", \"cat\": \"communication\", \"name\": \"%s\", \"args\": {\"bytes\": %" PRId64 ", ",
            call_names[event->call], event->bytes);
    put_numbers(out, event);
    if (is_known(out, event->instruction)) fprintf(out->file, ", \"of\": {%s}}", out->shown[event->instruction]);
    fputs("}}", out->file);
    if (event->waited <= 0 || event->call >= CALL_COLLECTIVES) return;
    put_span(out, TRACK_COMMUNICATION, event->begin, event->begin + event->waited);
    fputs(", \"cat\": \"waiting\", \"name\": \"waiting for other ranks\"}", out->file);
}

static void put_step(const struct output *out, const struct trace_event *event) {
    put_span(out, TRACK_STEPS, event->begin, event->end);
    fprintf(out->file, ", \"cat\": \"step\", \"name\": \"step %d\", \"args\": {\"step\": %d}}", event->step,
            event->step);
}

static void put_event(struct output *out, const struct trace_event *event) {
    switch ((enum trace_kind)event->kind) {
    case TRACE_STEP: put_step(out, event); return;
    case TRACE_INSTRUCTION: put_instruction(out, event); return;
    case TRACE_CALL: put_call(out, event); return;
    case TRACE_SIZE: out->sizes[event->call] = event->bytes; return;
    }
}

/* The memory of a rank's arenas stands beside its name. */
static void put_process(const struct output *out, const struct trace_about *about) {
    int64_t bytes = 0;
    for (int a = 0; a < RT_ARENAS; a++) bytes += about->bytes[a];
    put_head(out, "M", TRACK_STEPS);
    fprintf(out->file, ", \"name\": \"process_name\", \"args\": {\"name\": \"rank %d\"}}", out->rank);
    put_head(out, "M", TRACK_STEPS);
    fprintf(out->file, ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %d}}", out->rank);
    put_head(out, "M", TRACK_STEPS);
    fprintf(out->file, ", \"name\": \"process_labels\", \"args\": {\"labels\": \"arenas %.1f MB\"}}",
            (double)bytes / 1e6);
    for (int t = 0; t < TRACKS; t++) {
        put_head(out, "M", (enum track)t);
        fprintf(out->file, ", \"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}}", track_names[t]);
    }
}

/* Memory over time, as a counter with a value for each arena that the rank has. */
static bool put_memory(const struct output *out, const struct trace_part *part) {
    static const char *const arenas[] = {
#define ARENA(ID, name) #name,
#include "base/arenas.def"
#undef ARENA
    };
    struct trace_memory *memory;
    int64_t n;
    bool has[RT_ARENAS] = {false};
    if (!trace_memory_make(&memory, &n, part, out->names)) return false;
    for (int64_t i = 0; i < n; i++)
        for (int a = 0; a < RT_ARENAS; a++) has[a] = has[a] || memory[i].bytes[a];
    for (int64_t i = 0; i < n; i++) {
        const int64_t *bytes = memory[i].bytes;
        if (i && memcmp(bytes, memory[i - 1].bytes, sizeof memory[i].bytes) == 0) continue;
        put_head(out, "C", TRACK_STEPS);
        put_time(out->file, "ts", memory[i].at - out->start);
        fputs(", \"name\": \"memory\", \"args\": {", out->file);
        for (int a = 0, some = 0; a < RT_ARENAS; a++)
            if (has[a]) fprintf(out->file, "%s\"%s\": %" PRId64, some++ ? ", " : "", arenas[a], bytes[a]);
        fputs("}}", out->file);
    }
    free(memory);
    return true;
}

static int64_t first_time(const struct trace_all *all) {
    int64_t first = INT64_MAX;
    for (int r = 0; r < all->world; r++)
        for (int64_t i = 0; i < all->parts[r].about.n; i++)
            if (all->parts[r].events[i].begin < first) first = all->parts[r].events[i].begin;
    return first == INT64_MAX ? 0 : first;
}

/* How far times of ranks on other hosts may be off, in microseconds. */
static double uncertainty(const struct trace_all *all) {
    int64_t most = 0;
    for (int r = 0; r < all->world; r++)
        if (all->parts[r].about.uncertain > most) most = all->parts[r].about.uncertain;
    return (double)most / 1e3;
}

static bool put_all(struct output *out, const struct trace_all *all, const char *title) {
    bool ok = true;
    out->start = first_time(all);
    fprintf(
        out->file,
        "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"program\": \"%s\", \"ranks\": %d, \"clock_error_us\": %.3f}, "
        "\"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 0, \"tid\": 0, \"name\": \"trace_format\", \"args\": "
        "{\"format\": 1}}",
        title, all->world, uncertainty(all));
    for (out->rank = 0; out->rank < all->world; out->rank++) {
        const struct trace_part *part = &all->parts[out->rank];
        out->class = part->about.class;
        put_process(out, &part->about);
        for (int64_t i = 0; i < part->about.n; i++) put_event(out, &part->events[i]);
        ok = ok && put_memory(out, part);
    }
    fputs("\n]}\n", out->file);
    return ok;
}

static bool write_file(struct output *out, const char *path, const struct trace_all *all, const char *title) {
    if (!(out->file = fopen(path, "we"))) return false;
    errno = 0;
    bool ok = put_all(out, all, title);
    if (!ok) errno = ENOMEM;
    ok = fflush(out->file) == 0 && !ferror(out->file) && ok;
    const int error = errno;
    if (fclose(out->file) != 0) return false;
    errno = error;
    return ok;
}

bool trace_write(const char *path, const struct trace_all *all, const struct trace_names *names, const char *title) {
    struct output out = {.names = names};
    bool ok = (out.shown = calloc((size_t)names->ninstructions + 1, sizeof(*out.shown))) != NULL;
    for (int i = 0; ok && i < names->ninstructions; i++)
        ok = (out.shown[i] = show_instruction(&names->instructions[i])) != NULL;
    if (!ok) errno = ENOMEM;
    ok = ok && write_file(&out, path, all, title);
    const int error = errno;
    for (int i = 0; out.shown && i < names->ninstructions; i++) free(out.shown[i]);
    free(out.shown);
    errno = error;
    return ok;
}
