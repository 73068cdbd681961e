/* The time of a training step in pipeline stages, from measured times of the stages: the simulator of schedules
 * (ir/timeline.h) over the tables that pass schedule fills.
 *
 *   stage_times gpipe|1f1b MICRO-BATCHES FORWARD:BACKWARD...     a pair of times for each stage, of one micro-batch
 *
 * Prints the time of the step in the unit of the times, and the part of it in which the stages wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/schedule.h"
#include "ir/text.h"
#include "ir/timeline.h"
#include "passes/pipeline.h"
#include "passes/train/training.h"

/* A model with one node per stage and phase. Tensors: the input %0, a control, then one for each node. */
static const char *model_text(struct arena *arena, int stages) {
    struct strbuf text;
    int last = 0, next = 2;
    int *forward = ARENA_ARRAY(arena, int, stages);
    strbuf_init(&text, arena);
    strbuf_printf(&text, "rankc-ir 1\ngraph \"stages\" level=STAGED train\nmesh pipeline=%d\n", stages);
    strbuf_puts(&text, "input %0 \"x\" f32[4]\ncontrol %1 \"lr\" f64[]\n");
    for (int s = 0; s < stages; s++) {
        if (s) {
            strbuf_printf(&text, "%%%d \"t%d\" f32[4] = Transfer(%%%d) mesh=0 from=%d to=%d stage=%d\n", next, next,
                          last, s - 1, s, s);
            last = next++;
        }
        strbuf_printf(&text, "%%%d \"t%d\" f32[4] = Exp(%%%d) stage=%d\n", next, next, last, s);
        forward[s] = last = next++;
    }
    for (int s = stages - 1; s >= 0; s--) {
        if (s + 1 < stages) {
            strbuf_printf(&text, "%%%d \"t%d\" f32[4] = Transfer(%%%d) mesh=0 from=%d to=%d stage=%d phase=backward\n",
                          next, next, last, s + 1, s, s);
            last = next++;
        }
        strbuf_printf(&text, "%%%d \"t%d\" f32[4] = Mul(%%%d, %%%d) stage=%d phase=backward\n", next, next, last,
                      forward[s], s);
        last = next++;
    }
    strbuf_printf(&text, "output %%%d \"y\"\n", forward[stages - 1]);
    return strbuf_text(&text);
}

static struct graph *schedule_model(struct arena *arena, struct diags *diags, int stages, const char *schedule,
                                    int micro_batches) {
    struct graph *graph;
    const char *text = model_text(arena, stages);
    const struct training training = {0};
    const struct pass_context context = {
        .decisions = {.schedule = schedule, .micro_batches = micro_batches}, .training = &training, .diags = diags};
    if (text_parse(arena, diags, "stages", text, strlen(text), &graph) < 0) return NULL;
    return pipeline_run(graph, &context, NULL) < 0 ? NULL : graph;
}

/* The times of the segments; NULL after a message if a word is no pair of times. */
static double *read_seconds(const struct graph *graph, char **words) {
    double *seconds = ARENA_ARRAY(graph->arena, double, graph->segments.n + 1);
    for (int s = 0; s < schedule_chunks(graph); s++) {
        double forward, backward;
        if (sscanf(words[s], "%lf:%lf", &forward, &backward) != 2) {
            fprintf(stderr, "stage_times: '%s' is not FORWARD:BACKWARD\n", words[s]);
            return NULL;
        }
        seconds[schedule_find(graph, s, PHASE_FORWARD)] = forward;
        seconds[schedule_find(graph, s, PHASE_BACKWARD)] = backward;
    }
    return seconds;
}

int main(int argc, char **argv) {
    struct arena arena;
    struct diags diags;
    struct timeline timeline;
    const int stages = argc - 3, micro_batches = argc > 4 ? atoi(argv[2]) : 0;
    if (micro_batches < 1) {
        fputs("usage: stage_times gpipe|1f1b MICRO-BATCHES FORWARD:BACKWARD FORWARD:BACKWARD...\n", stderr);
        return 2;
    }
    arena_init(&arena, 0, NULL);
    diags_init(&diags, &arena);
    const struct graph *graph = schedule_model(&arena, &diags, stages, argv[1], micro_batches);
    const double *seconds = graph ? read_seconds(graph, argv + 3) : NULL;
    const struct timeline_times times = {.seconds = seconds};
    const char *wrong = seconds ? timeline_simulate(graph, micro_batches, &times, &timeline) : NULL;
    diags_print(&diags, stderr, RT_DIAGNOSTIC_PLAIN, RT_SEVERITY_ERROR);
    if (wrong) fprintf(stderr, "stage_times: %s\n", wrong);
    const bool done = seconds && !wrong;
    if (done) printf("%.9g %.6f\n", timeline.end, timeline_bubble(&timeline, stages));
    arena_free(&arena);
    return done ? 0 : 1;
}
