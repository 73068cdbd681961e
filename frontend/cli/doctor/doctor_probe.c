#include <string.h>

#include "frontend/cli/doctor/doctor.h"
#include "frontend/driver/driver.h"
#include "frontend/driver/output/temporary.h"
#include "runtime/base/thread/clock.h"
#include "runtime/base/io/file.h"
#include "runtime/base/npy.h"
#include "runtime/launch.h"

/* y = x w, where each of two ranks computes one column of y. */
static const char probe[] = "rankc-ir 1\n"
                            "graph \"probe\" level=IMPORTED\n"
                            "input %0 \"x\" f32[2,3]\n"
                            "const %1 \"w\" f32[3,2] = [1, 2, 4, 8, 16, 32]\n"
                            "%2 \"y\" = MatMul(%0, %1) node=\"product\"\n"
                            "output %2 \"y\"\n";
static const float probe_x[] = {1, 1, 1, 1, 0, -1}, probe_y[] = {21, 42, -15, -30};

static int fail(struct cli *cli, const char *text) {
    return diag_error(cli->diags, 620, EXIT_SYSTEM, NULL, "%s", text);
}

static int write_probe(struct cli *cli, const char *work) {
    const struct rt_piece piece = {probe, strlen(probe)};
    struct rt_reason why;
    if (rt_file_write(arena_printf(cli->arena, "%s/probe.rir", work), &piece, 1, &why) &&
        rt_npy_write(arena_printf(cli->arena, "%s/x.npy", work), RT_F32, 2, (int64_t[]){2, 3}, probe_x, &why))
        return 0;
    return fail(cli, why.text);
}

static int compile_probe(struct cli *cli, const char *work) {
    struct driver_result result;
    struct options options;
    options_start(&options, VERB_COMPILE, arena_printf(cli->arena, "%s/probe.rir", work), cli->arena, cli->diags);
    options.output = work;
    options.pas.word = OPT_POLICY_TP;
    mesh_add_axis(&options.decisions.mesh, "tensor", &(struct rt_mesh_axis){.size = 2});
    if (options_finish(&options, cli->arena, cli->diags)) return -1;
    return driver_compile(&options, cli->arena, cli->diags, &result);
}

static int run_probe(struct cli *cli, const char *work) {
    const bool json = cli->options->json;
    const char *words[] = {
        "--input", arena_printf(cli->arena, "x=%s/x.npy", work), "--output-dir", work, json ? "--json" : NULL, NULL};
    const struct rt_launch launch = {.program = arena_printf(cli->arena, "%s/probe/_/build/run", work),
                                     .arguments = words,
                                     .ranks = 2,
                                     .json = json,
                                     .no_results = true};
    return rt_launch(&launch) ? fail(cli, "a compiled program does not run") : 0;
}

static int check_probe(struct cli *cli, const char *work) {
    struct rt_tensor y = {0};
    struct rt_reason why;
    if (!rt_npy_read(&y, arena_printf(cli->arena, "%s/y.npy", work), &why)) return fail(cli, why.text);
    bool right = y.dtype == RT_F32 && y.count == 4 && !memcmp(y.data, probe_y, sizeof probe_y);
    rt_tensor_free(&y);
    return right ? 0 : fail(cli, "a compiled program computes a wrong matrix product");
}

struct finding doctor_probe(struct cli *cli) {
    const char *work = temporary_make("doctor", cli->arena, cli->diags);
    const int64_t start = rt_now_ms();
    bool works = work && !write_probe(cli, work) && !compile_probe(cli, work) && !run_probe(cli, work) &&
                 !check_probe(cli, work);
    if (work) temporary_remove(work);
    cli_tell(cli, "a product on two ranks was compiled and run in %s, in %.1f s", work ? work : "no directory",
             (double)(rt_now_ms() - start) / 1000);
    if (works) return (struct finding){FOUND, "compiled program", "built, two ranks ran", NULL};
    return (struct finding){FAILED, "compiled program", NULL, "see the errors below"};
}
