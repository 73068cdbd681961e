/* Fuzz target: machine files (--machine), and a plan made and timed by one.
 *
 * A file is refused with diagnostics. Else it is written as it was read, collectives and the step take a finite time,
 * and the plan passes the verifier. */
#include <math.h>
#include <string.h>

#include "codegen/target/target.h"
#include "passes/pipeline.h"
#include "passes/plan/machine/machine_file.h"
#include "passes/rank/estimate.h"
#include "tests/fuzz/fuzz.h"

static void check_written(struct arena *arena, struct diags *diags, const struct machine *machine) {
    struct machine again;
    const char *text = machine_text(arena, machine);
    if (!text) return;
    fuzz_check(machine_read_text(arena, diags, "again", text, &again) == 0);
    fuzz_check(strcmp(text, machine_text(arena, &again)) == 0);
}

static void check_collectives(const struct machine *machine) {
    for (int kind = 0; kind < COLLECTIVES; kind++)
        for (double stride = 1; stride < 1e5; stride *= 7) {
            const struct machine_group group = {machine, 6, stride};
            const double seconds = machine_collective(&group, (enum collective)kind, 1e6, 3);
            fuzz_check(isfinite(seconds) && seconds >= 0);
        }
}

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    struct diags diags;
    struct machine machine;
    diags_init(&diags, arena);
    const char *text = arena_printf(arena, "%.*s", (int)size, (const char *)data);
    bool good = machine_read_text(arena, &diags, "fuzz", text, &machine) == 0;
    fuzz_check(good == (diags.errors == 0));
    fuzz_passed = good;
    if (!good) return;
    check_written(arena, &diags, &machine);
    check_collectives(&machine);
    struct graph *graph = fuzz_graph(arena);
    struct rankplan plan;
    const struct target *target = target_find("c");
    struct pass_context context = target_pass_context(target);
    context.policy = "hybrid", context.machine = &machine, context.diags = &diags;
    graph->mesh = (struct mesh){.naxes = 1, .axis = {{.name = "tensor", .size = 2, .end = 1}}};
    fuzz_check(pipeline_run(graph, &context, NULL) == 0);
    rankplan_make(&plan, graph, &target->kernels);
    fuzz_check(rankplan_verify(&plan, &diags) == 0);
    const struct estimate estimate = estimate_step(&plan, &machine, 2, 1, 1);
    fuzz_check(isfinite(estimate.step) && estimate.step > 0);
}

const struct fuzz_target fuzz_target = {64 << 20, run, NULL};
