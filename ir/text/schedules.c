#include <string.h>

#include "ir/text/reader.h"
#include "ir/schedule.h"

enum { MAX_ROWS = 1 << 24 }; /* positions, micro-batches and slots of a schedule */

bool read_phase(struct reader *r, enum phase *phase) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "a phase", word)) return false;
    for (int p = 0; p < PHASES; p++)
        if (strcmp(word, phase_names[p]) == 0) return *phase = (enum phase)p, true;
    return fail_at(r, start, "unknown phase '%s'", word);
}

static bool read_count(struct reader *r, int least, const char *what, int *count) {
    int64_t value;
    if (!read_int(r, least, MAX_ROWS, what, &value)) return false;
    *count = (int)value;
    return true;
}

/* 2..5 */
static bool read_range(struct reader *r, const char *what, int *first, int *end) {
    return read_count(r, 0, what, first) && expect(r, "..") && read_count(r, *first, what, end);
}

/* The phase and the chunk of a segment. */
static bool read_segment_name(struct reader *r, enum phase *phase, int *chunk) {
    return read_phase(r, phase) && read_count(r, 0, "the chunk", chunk);
}

static bool read_tensors(struct reader *r, struct segment *segment, bool in) {
    int tensor;
    if (!expect(r, in ? "in=" : "out=") || !expect(r, "[")) return false;
    for (bool more = !take(r, "]"), first = true; more; more = !take(r, "]"), first = false) {
        const char *start = place(r);
        if ((!first && !expect(r, ",")) || !read_use(r, &tensor)) return false;
        if (r->graph->tensors.at[tensor].kind != TENSOR_VALUE) return fail_at(r, start, "no node computes this tensor");
        if (in)
            VEC_PUSH(r->arena, &segment->in, tensor);
        else
            VEC_PUSH(r->arena, &segment->out, tensor);
    }
    return true;
}

bool read_segment(struct reader *r) {
    struct segment segment = {0};
    if (!read_segment_name(r, &segment.phase, &segment.chunk) || !expect(r, "order=")) return false;
    if (!read_range(r, "the position", &segment.first, &segment.end)) return false;
    if (!read_tensors(r, &segment, true) || !read_tensors(r, &segment, false)) return false;
    VEC_PUSH(r->arena, &r->graph->segments, segment);
    return true;
}

/* 2,1 and, after "/", the numbers of slots of the other kinds */
static bool read_slots(struct reader *r, const char *start, struct schedule *schedule) {
    for (int kind = 0; kind < RT_SLOT_KINDS && (!kind || take(r, "/")); kind++) {
        int chunks = 0;
        do {
            if (chunks == RT_MAX_CHUNKS) return fail_at(r, start, "more than %d chunks", RT_MAX_CHUNKS);
            if (!read_count(r, 1, "slots", &schedule->shape.slots[rt_slot_set((enum rt_slot_kind)kind, chunks++)]))
                return false;
        } while (take(r, ","));
        if (kind && chunks != schedule->shape.nchunks) return fail_at(r, start, "slots of every chunk are expected");
        schedule->shape.nchunks = chunks;
    }
    return true;
}

bool read_schedule(struct reader *r) {
    struct schedule schedule = {0};
    int coordinate;
    const char *start = place(r);
    if (!read_count(r, 0, "the coordinate", &coordinate)) return false;
    if (coordinate != r->graph->schedules.n)
        return fail_at(r, start, "schedule %d must come next", r->graph->schedules.n);
    if (coordinate >= schedule_coordinates(r->graph))
        return fail_at(r, start, "there are only %d pipeline coordinates", coordinate);
    if (!r->ends) r->ends = schedule_ends(r->graph);
    if (!expect(r, "micro_batches=") || !read_count(r, 1, "micro_batches", &schedule.shape.micro_batches)) return false;
    if (!expect(r, "slots=")) return false;
    if (!read_slots(r, start, &schedule)) return false;
    if (take(r, "repeat=") && !read_range(r, "the row", &schedule.repeat_first, &schedule.repeat_end)) return false;
    schedule.shape.repeats = schedule.repeat_first < schedule.repeat_end;
    r->rows.at = NULL;
    r->rows.n = r->rows.capacity = 0;
    VEC_PUSH(r->arena, &r->graph->schedules, schedule);
    return true;
}

/* The coordinate's end of the transfer that computes the tensor; -1: it has none. */
static int find_end(const struct graph *graph, const struct transfer_ends *ends, int tensor, bool sends) {
    for (int e = 0; e < ends->all.n; e++)
        if (ends->all.at[e].node == graph->tensors.at[tensor].producer && ends->all.at[e].sends == sends) return e;
    return -1;
}

static bool read_place(struct reader *r, struct step_op *op) {
    return expect(r, "micro=") && read_count(r, 0, "micro", &op->micro);
}

static bool add_row(struct reader *r, const char *start, struct step_op op, int chunk) {
    struct schedule *schedule = r->graph->schedules.at + r->graph->schedules.n - 1;
    op.chunk = schedule_number(r->graph, chunk);
    if (op.chunk >= schedule->shape.nchunks) return fail_at(r, start, "the schedule has no slots for this chunk");
    VEC_PUSH(r->arena, &r->rows, op);
    schedule->ops = r->rows.at;
    schedule->nops = r->rows.n;
    return true;
}

/* send %5 micro=0 */
static bool read_transfer(struct reader *r, bool waits) {
    const bool sends = take(r, "send");
    struct step_op op = {.kind = waits ? STEP_WAIT : sends ? STEP_POST_SEND : STEP_POST_RECEIVE};
    int tensor;
    if (!sends && !expect(r, "receive")) return false;
    const char *start = place(r);
    if (r->graph->schedules.n == 0) return fail_at(r, start, "a row belongs to the schedule before it");
    if (!read_use(r, &tensor)) return false;
    const struct transfer_ends *ends = &r->ends[r->graph->schedules.n - 1];
    op.transfer = find_end(r->graph, ends, tensor, sends);
    if (op.transfer < 0) return fail_at(r, start, "the coordinate does not take part in such a transfer");
    const struct node *node = &r->graph->nodes.at[r->graph->tensors.at[tensor].producer];
    op.segment = schedule_find(r->graph, (int)attr_int(node, sends ? "from" : "to", 0), node->phase);
    if (op.segment < 0) return fail_at(r, start, "there is no such segment");
    if (!read_place(r, &op)) return false;
    return add_row(r, start, op, ends->all.at[op.transfer].owner);
}

bool read_post(struct reader *r) {
    return read_transfer(r, false);
}

bool read_wait(struct reader *r) {
    return read_transfer(r, true);
}

bool read_run(struct reader *r) {
    struct step_op op = {0};
    enum phase phase = PHASE_FORWARD;
    int chunk = 0;
    const char *start = place(r);
    if (r->graph->schedules.n == 0) return fail_at(r, start, "a row belongs to the schedule before it");
    if (!read_segment_name(r, &phase, &chunk)) return false;
    op.segment = schedule_find(r->graph, chunk, phase);
    if (op.segment < 0) return fail_at(r, start, "there is no such segment");
    if (phase < PHASE_REDUCE && !read_place(r, &op)) return false;
    return add_row(r, start, op, chunk);
}
