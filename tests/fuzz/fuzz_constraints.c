/* Fuzz target: constraint files (--constraints), and a plan of policy tp under them.
 *
 * A file is refused with diagnostics, as it is if it concerns no node or cannot be met; or the graph that follows it
 * passes the verifier after every pass. */
#include "passes/pipeline.h"
#include "passes/plan/constrain/constraints.h"
#include "tests/fuzz/fuzz.h"

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    struct diags diags;
    struct constraints constraints = {0};
    diags_init(&diags, arena);
    bool good = constraints_parse_file(&constraints, arena, &diags, "fuzz", (const char *)data, size) == 0;
    fuzz_check(good == (diags.errors == 0));
    fuzz_passed = good;
    if (!good) return;
    struct graph *graph = fuzz_graph(arena);
    graph->mesh = (struct mesh){.naxes = 1, .axis = {{.name = "tensor", .size = 2}}};
    struct pass_context context = {.policy = "tp", .constraints = &constraints, .diags = &diags};
    bool planned = pipeline_run(graph, &context, NULL) == 0;
    fuzz_check(planned == (diags.errors == 0));
}

const struct fuzz_target fuzz_target = {64 << 20, run, NULL};
