#include "codegen/step.h"

#include "codegen/text/names.h"
#include "codegen/remarks.h"
#include "ir/schedule.h"

#include <ctype.h>

/* A call of the step's function: a row of the table, or rows that post or wait for `n` transfers of a segment and
 * micro-batch with the same chunk, whose numbers follow each other. */
struct call {
    const struct step_op *op; /* the first one */
    int n;
};

/* The calls of a table, and which of them are its repeated rows. */
struct calls {
    const struct graph *graph;
    const struct schedule *schedule;
    struct transfer_ends ends;
    int repeat_first, repeat_end;
    VEC(struct call) all;
};

/* Calls that follow each other, executed `times` times with micro-batches one higher each time. */
struct stretch {
    int first, calls, times;
    bool open; /* the repeated rows of the table: once more for each further micro-batch */
};

enum { MOST_CALLS = 256, LEAST_SAVED = 3 }; /* the longest loop that is looked for; lines that a loop must save */

const char *step_function(const struct graph *graph, int coordinate) {
    const char *name = graph_trains(graph) ? "train_step" : "infer_step";
    return graph->schedules.n > 1 ? arena_printf(graph->arena, "%s_%d", name, coordinate) : name;
}

const char *step_segment(const struct graph *graph, const struct segment *segment) {
    char *phase = arena_strdup(graph->arena, phase_names[segment->phase]);
    for (char *c = phase; *c; c++) *c = (char)toupper((unsigned char)*c);
    if (segment->phase >= PHASE_REDUCE || !graph->chunks.n) return phase;
    return arena_printf(graph->arena, "%s_%d", phase, schedule_number(graph, segment->chunk));
}

static int other_chunk(const struct graph *graph, const struct transfer_end *end) {
    return (int)attr_int(&graph->nodes.at[end->node], end->sends ? "to" : "from", 0);
}

const char *step_transfer(const struct graph *graph, int n, const struct transfer_end *ends) {
    struct strbuf out = {.arena = graph->arena};
    for (int e = 0; e < n; e++) {
        const char *name = remarks_value_name(graph, graph->nodes.at[ends[e].node].inputs[0]);
        const char *words = names_words(graph->arena, name, name);
        strbuf_printf(&out, "%s%s", e ? ", " : "", *words ? words : "a value");
    }
    strbuf_printf(&out, " %s chunk %d", ends->sends ? "to" : "from", other_chunk(graph, ends));
    return strbuf_text(&out);
}

/* True if the row continues the call. */
static bool continues(const struct calls *calls, const struct call *call, const struct step_op *op) {
    const struct step_op *first = call->op;
    if (op->kind == STEP_RUN || op->kind != first->kind || op->segment != first->segment || op->micro != first->micro)
        return false;
    if (op->transfer != first->transfer + call->n) return false;
    const struct transfer_end *a = &calls->ends.all.at[first->transfer], *b = &calls->ends.all.at[op->transfer];
    return a->sends == b->sends && other_chunk(calls->graph, a) == other_chunk(calls->graph, b);
}

static struct calls find_calls(const struct rankplan *plan, int coordinate) {
    const struct graph *graph = plan->graph;
    const struct schedule *schedule = &graph->schedules.at[coordinate];
    struct calls calls = {.graph = graph, .schedule = schedule, .ends = plan->ends[coordinate]};
    EACH(schedule->ops, schedule->nops, i, const struct step_op *op) {
        if (i == schedule->repeat_first) calls.repeat_first = calls.all.n;
        if (i == schedule->repeat_end) calls.repeat_end = calls.all.n;
        const bool begins = i == 0 || i == schedule->repeat_first || i == schedule->repeat_end;
        if (!begins && continues(&calls, &calls.all.at[calls.all.n - 1], op))
            calls.all.at[calls.all.n - 1].n++;
        else
            VEC_PUSH(graph->arena, &calls.all, (struct call){op, 1});
    }
    if (schedule->repeat_end == schedule->nops) calls.repeat_end = calls.all.n;
    return calls;
}

/* True if b is a for the next micro-batch. */
static bool is_next(const struct graph *graph, const struct call *a, const struct call *b) {
    const struct step_op *x = a->op, *y = b->op;
    return graph->segments.at[x->segment].phase < PHASE_REDUCE && x->segment == y->segment && x->kind == y->kind &&
           x->transfer == y->transfer && a->n == b->n && y->micro == x->micro + 1;
}

/* How many times the `n` calls from `first` on follow each other before `end`. */
static int count_times(const struct calls *calls, int first, int n, int end) {
    int i = first + n;
    while (i < end && is_next(calls->graph, &calls->all.at[i - n], &calls->all.at[i])) i++;
    return (i - first) / n;
}

/* The stretch that begins at the call: the loop that saves most lines, or a single call. */
static struct stretch find_stretch(const struct calls *calls, int first, int end) {
    struct stretch best = {.first = first, .calls = 1, .times = 1};
    int saved = LEAST_SAVED - 1;
    for (int n = 1; n <= MOST_CALLS && first + 2 * n <= end; n++) {
        const int times = count_times(calls, first, n, end);
        if (n * (times - 1) <= saved) continue;
        saved = n * (times - 1);
        best = (struct stretch){.first = first, .calls = n, .times = times};
    }
    return best;
}

/* The stretch that begins at the call. The repeated rows of the table form a stretch by themselves. */
static struct stretch next_stretch(const struct calls *calls, int at) {
    const int first = calls->repeat_first, end = calls->repeat_end;
    if (!calls->schedule->shape.repeats) return find_stretch(calls, at, calls->all.n);
    if (at == first) return (struct stretch){.first = at, .calls = end - first, .times = 1, .open = true};
    return find_stretch(calls, at, at < first ? first : calls->all.n);
}

/* "i + 2": a sum of a name (NULL: none) and a number. */
static const char *sum_text(struct arena *arena, const char *name, int number) {
    if (!name) return arena_printf(arena, "%d", number);
    if (!number) return name;
    return arena_printf(arena, "%s %c %d", name, number < 0 ? '-' : '+', number < 0 ? -number : number);
}

/* The call's micro-batch. Behind the repeated rows it is counted from the number of micro-batches. */
static const char *micro_text(const struct calls *calls, const struct stretch *stretch, const struct step_op *op) {
    struct arena *arena = calls->graph->arena;
    const struct rt_schedule *shape = &calls->schedule->shape;
    const bool behind = shape->repeats && stretch->first >= calls->repeat_end;
    const bool loops = stretch->open || stretch->times > 1;
    if (calls->graph->segments.at[op->segment].phase >= PHASE_REDUCE) return "0";
    if (!behind) return sum_text(arena, loops ? "i" : NULL, op->micro);
    const char *from_end = sum_text(arena, "micro_batches", op->micro - shape->micro_batches);
    return loops ? arena_printf(arena, "%s + i", from_end) : from_end;
}

static const char *times_text(const struct calls *calls, const struct stretch *stretch) {
    return sum_text(calls->graph->arena, stretch->open ? "micro_batches" : NULL,
                    stretch->open ? 1 - calls->schedule->shape.micro_batches : stretch->times);
}

static void bind_call(struct tmpl_env *entry, const struct calls *calls, const struct call *call) {
    const struct graph *graph = calls->graph;
    const struct step_op *op = call->op;
    if (op->kind == STEP_RUN) {
        tmpl_set(entry, "call", "rt_run");
        tmpl_set(entry, "what", step_segment(graph, &graph->segments.at[op->segment]));
        tmpl_set(entry, "remark", "");
        return;
    }
    const char *values = step_transfer(graph, call->n, &calls->ends.all.at[op->transfer]);
    tmpl_set(entry, "call", op->kind == STEP_WAIT ? "rt_wait" : "rt_post");
    tmpl_setf(entry, "what", "%d, %d", op->transfer, call->n);
    tmpl_set(entry, "remark", arena_printf(graph->arena, "  // %s", values));
}

static void bind_stretch(struct tmpl_env *entry, const struct calls *calls, const struct stretch *stretch) {
    tmpl_set(entry, "loops", stretch->open || stretch->times > 1 ? "yes" : "");
    tmpl_set(entry, "times", times_text(calls, stretch));
    tmpl_list(entry, "calls");
    for (int i = 0; i < stretch->calls; i++) {
        const struct call *call = &calls->all.at[stretch->first + i];
        struct tmpl_env *row = tmpl_entry(entry, "calls");
        bind_call(row, calls, call);
        tmpl_set(row, "micro", micro_text(calls, stretch, call->op));
    }
}

void step_bind(struct tmpl_env *env, const struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    const bool several = graph->schedules.n > 1;
    tmpl_list(env, "steps");
    for (int c = 0; c < graph->schedules.n; c++) {
        const struct calls calls = find_calls(plan, c);
        struct tmpl_env *entry = tmpl_entry(env, "steps");
        tmpl_set(entry, "function", step_function(graph, c));
        tmpl_set(entry, "coordinate", several ? arena_printf(graph->arena, " of pipeline rank %d", c) : "");
        tmpl_set(entry, "transfers", calls.ends.all.n ? "yes" : "");
        tmpl_set(entry, "counts", calls.schedule->shape.repeats ? "yes" : "");
        tmpl_list(entry, "stretches");
        for (int at = 0; at < calls.all.n;) {
            const struct stretch stretch = next_stretch(&calls, at);
            bind_stretch(tmpl_entry(entry, "stretches"), &calls, &stretch);
            at += stretch.calls * stretch.times;
        }
    }
}
