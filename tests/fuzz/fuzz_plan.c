/* Fuzz target: plan files (--load-plan), read as the driver does and applied.
 *
 * A file is refused with diagnostics, or the graph that follows it passes the verifier after every pass. */
#include "frontend/driver/files/side_files.h"
#include "passes/pipeline.h"
#include "tests/fuzz/fuzz.h"

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    struct options options = {.load_plan = fuzz_file(data, size)};
    struct side_files files;
    struct diags diags;
    diags_init(&diags, arena);
    bool good = side_files_read(&files, &options, arena, &diags) == 0;
    fuzz_check(good == (diags.errors == 0));
    if (!good) return;
    struct graph *graph = fuzz_graph(arena);
    graph->mesh = files.decisions.mesh;
    struct pass_context context = {.given = files.plan, .diags = &diags};
    bool planned = pipeline_run(graph, &context, NULL) == 0;
    fuzz_check(planned == (diags.errors == 0));
}

const struct fuzz_target fuzz_target = {64 << 20, run, NULL};
