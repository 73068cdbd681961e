/* Fuzz target: plan files (--load-plan), read as the driver does and applied.
 *
 * A file is refused with diagnostics, or the graph that follows it passes the verifier after every pass. */
#include <setjmp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frontend/cli/side_files.h"
#include "passes/pipeline.h"
#include "tests/fuzz/fuzz.h"

enum { BUDGET = 64 << 20 };

static void apply(struct arena *arena, const char *path, struct side_files *files) {
    struct options options = {.load_plan = path};
    struct diags diags;
    diags_init(&diags, arena);
    bool good = side_files_read(files, &options, arena, &diags) == 0;
    fuzz_check(good == (diags.errors == 0));
    if (!good) return;
    struct graph *graph = fuzz_graph(arena);
    graph->mesh = files->mesh;
    struct pass_context context = {.plan = rt_json_root(files->plan), .plan_file = "fuzz", .diags = &diags};
    bool planned = pipeline_run(graph, &context, NULL) == 0;
    fuzz_check(planned == (diags.errors == 0));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("plan.json", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    fuzz_check(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    struct arena arena;
    struct side_files files = {0};
    jmp_buf failed;
    arena_init(&arena, BUDGET, &failed);
    if (setjmp(failed) == 0) apply(&arena, path, &files);
    side_files_free(&files);
    arena_free(&arena);
    return 0;
}
