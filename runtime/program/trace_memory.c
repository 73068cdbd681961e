/* The memory of a rank over the traced steps: what the plan says is live while each instruction is executed, and the
 * slots (Note [Slots] in base/schedule.h) of the micro-batches that are between their phases at that time. */
#include "program/trace.h"

#include <stdlib.h>

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

bool trace_memory_make(struct trace_memory **memory, int64_t *n, const struct trace_part *part,
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
