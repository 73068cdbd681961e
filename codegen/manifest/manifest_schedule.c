#include "codegen/manifest/manifest_parts.h"

#include <string.h>

#include "ir/op.h"
#include "ir/schedule.h"
#include "ir/timeline.h"
#include "passes/plan/schedule/schedules.h"

/* A number, or a list of those of each chunk. */
static void put_slots(struct rt_json_writer *writer, const struct schedule *schedule, enum rt_slot_kind kind) {
    if (schedule->shape.nchunks > 1) rt_json_open(writer, '[', RT_JSON_INLINE);
    for (int c = 0; c < schedule->shape.nchunks; c++)
        rt_json_put_int(writer, schedule->shape.slots[rt_slot_set(kind, c)]);
    if (schedule->shape.nchunks > 1) rt_json_close(writer, ']');
}

/* True if every chunk has as many slots of the kind as for whole micro-batches. */
static bool are_as_many(const struct graph *graph, enum rt_slot_kind kind) {
    for (int c = 0; c < graph->schedules.n; c++) {
        const struct rt_schedule *shape = &graph->schedules.at[c].shape;
        for (int n = 0; n < shape->nchunks; n++)
            if (shape->slots[rt_slot_set(kind, n)] != shape->slots[n]) return false;
    }
    return true;
}

/* A list with an entry for each stage; none if there are no slots of the kind, or as many as for whole
 * micro-batches. */
static void put_all_slots(struct rt_json_writer *writer, const struct graph *graph, enum rt_slot_kind kind) {
    const bool divided = schedule_last_phase(graph) == PHASE_WEIGHT;
    const char *const keys[RT_SLOT_KINDS] = {"slots", "slots_to_backward",
                                             divided ? "slots_to_weight" : "slots_of_gradients"};
    if (!graph->schedules.at[0].shape.slots[rt_slot_set(kind, 0)]) return;
    if (kind != RT_SLOT_WHOLE && !divided && are_as_many(graph, kind)) return;
    rt_json_key_open(writer, keys[kind], '[', RT_JSON_INLINE);
    for (int c = 0; c < graph->schedules.n; c++) put_slots(writer, &graph->schedules.at[c], kind);
    rt_json_close(writer, ']');
}

enum { MOST_DRAWN = 16 }; /* micro-batches of a timeline */

/* What each coordinate executes when, by the cost model: micro-batch, number of the stage among those of the
 * coordinate, phase, begin and end, in seconds of the cost model. */
static void put_runs(struct rt_json_writer *writer, const struct graph *graph, const struct timeline *timeline) {
    rt_json_key_open(writer, "runs", '[', RT_JSON_LINES);
    for (int c = 0; c < graph->schedules.n; c++) {
        rt_json_open(writer, '[', RT_JSON_INLINE);
        VEC_EACH(&timeline->runs, i, const struct timeline_run *run) {
            const struct segment *segment = &graph->segments.at[run->segment];
            if (run->coordinate != c) continue;
            rt_json_open(writer, '[', RT_JSON_INLINE);
            rt_json_put_int(writer, run->micro);
            rt_json_put_int(writer, schedule_number(graph, segment->chunk));
            rt_json_put_text(writer, phase_names[segment->phase]);
            rt_json_put_real(writer, run->begin);
            rt_json_put_real(writer, run->end);
            rt_json_close(writer, ']');
        }
        rt_json_close(writer, ']');
    }
    rt_json_close(writer, ']');
}

void manifest_put_schedule(struct rt_json_writer *writer, const struct rankplan *plan, const struct machine *machine,
                           const struct decisions *decisions) {
    const struct graph *graph = plan->graph;
    const int stages = graph->schedules.n, micro_batches = (int)decisions->micro_batches;
    const struct schedule *first = &graph->schedules.at[0];
    const bool shorter = micro_batches > MOST_DRAWN && first->repeat_first < first->repeat_end;
    const int drawn = shorter ? first->shape.micro_batches : micro_batches;
    const struct timeline_times units = {0};
    struct timeline even, shown, costed;
    if (timeline_simulate(graph, drawn, &units, &even)) BUG("the schedule of a verified graph does not complete");
    estimate_timeline(plan, machine, drawn, &shown);
    estimate_timeline(plan, machine, micro_batches, &costed);
    rt_json_key_open(writer, "schedule", '{', RT_JSON_LINES);
    rt_json_key_text(writer, "name",
                     !graph->train                       ? schedule_of_inference
                     : !decisions->schedule              ? schedule_default
                     : strchr(decisions->schedule, '\n') ? "of a file"
                                                         : decisions->schedule);
    rt_json_key_int(writer, "micro_batches", micro_batches);
    for (int kind = 0; kind < RT_SLOT_KINDS; kind++) put_all_slots(writer, graph, (enum rt_slot_kind)kind);
    rt_json_key_real(writer, "bubble", timeline_bubble(&costed, stages));
    if (schedule_last_phase(graph) == PHASE_WEIGHT) {
        rt_json_key_real(writer, "bubble_overlapped", timeline_bubble_overlapped(&costed, stages));
    }
    rt_json_key_open(writer, "timeline", '[', RT_JSON_LINES);
    for (int c = 0; c < stages; c++) rt_json_put_text(writer, timeline_text(graph->arena, graph, &even, c));
    rt_json_close(writer, ']');
    put_runs(writer, graph, &shown);
    rt_json_close(writer, '}');
}
