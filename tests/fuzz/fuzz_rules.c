/* Fuzz target: rule files (--pas manual:FILE), and a plan made by them.
 *
 * A file is refused with diagnostics, or the graph that follows it passes the verifier after every pass. */
#include "passes/pipeline.h"
#include "passes/plan/policy/rules.h"
#include "tests/fuzz/fuzz.h"

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    struct diags diags;
    struct constraints *rules;
    diags_init(&diags, arena);
    bool good = rules_parse(arena, &diags, "fuzz", (const char *)data, size, &rules) == 0;
    fuzz_check(good == (diags.errors == 0));
    if (!good) return;
    struct graph *graph = fuzz_graph(arena);
    graph->mesh = rules->mesh;
    struct pass_context context = {.policy = "manual", .rules = rules, .diags = &diags};
    bool planned = pipeline_run(graph, &context, NULL) == 0;
    fuzz_check(planned == (diags.errors == 0));
}

const struct fuzz_target fuzz_target = {64 << 20, run, NULL};
