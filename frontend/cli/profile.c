/* rankc profile: measures the machine that it runs on, by small programs that it compiles and runs, and prints what it
 * found as a machine file (passes/plan/machine.h). All ranks compute at the same time, as they do in a step. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/cli/cli.h"
#include "frontend/cli/temporary.h"
#include "frontend/driver/driver.h"
#include "frontend/driver/subprocess.h"
#include "ir/base/own.h"
#include "passes/plan/machine.h"
#include "runtime/base/cores.h"
#include "runtime/base/file.h"

/* A graph of a chain of equal nodes: y = op(y, b), or op(y), `nodes` times. With `tensor` the ranks divide the columns
 * of the product and gather them, else each of them executes the graph. */
struct probe {
    const char *name, *dtype, *op;
    int m, k, n; /* y has (m, k), and b (k, n) */
    int nodes;
    bool tensor;
};

enum probe_id {
    PRODUCT_F64, /* the large products: their rates */
    PRODUCT_F32,
    PRODUCT_HALF,
    FEW_ROWS, /* f32, one extent small: the extent of half the rate */
    FEW_COLUMNS,
    SHORT_SUMS,
    TRAFFIC, /* bytes read and written */
    LAUNCH,  /* many kernels of little work */
    GATHER_LARGE,
    GATHER_SMALL,
    PROBES
};

static const struct probe probes[PROBES] = {
    [PRODUCT_F64] = {"product of f64", "f64", "MatMul", 768, 768, 768, 1, false},
    [PRODUCT_F32] = {"product of f32", "f32", "MatMul", 1024, 1024, 1024, 1, false},
    [PRODUCT_HALF] = {"product of bf16", "bf16", "MatMul", 1024, 1024, 1024, 1, false},
    [FEW_ROWS] = {"product of few rows", "f32", "MatMul", 16, 1024, 1024, 1, false},
    [FEW_COLUMNS] = {"product of few columns", "f32", "MatMul", 1024, 1024, 16, 1, false},
    [SHORT_SUMS] = {"product of short sums", "f32", "MatMul", 1024, 16, 1024, 1, false},
    [TRAFFIC] = {"memory", "f32", "Neg", 4096, 4096, 0, 1, false},
    [LAUNCH] = {"small kernels", "f32", "MatMul", 4, 4, 4, 256, false},
    [GATHER_LARGE] = {"large all-gather", "f32", "MatMul", 8192, 8, 512, 1, true},
    [GATHER_SMALL] = {"small all-gather", "f32", "MatMul", 8, 8, 64, 1, true},
};

struct profiling {
    struct cli *cli;
    const char *work;
    int64_t ranks, threads;
};

/* The probe's graph. Its operands are constants, which no pass folds from this level on. */
static const char *graph_of(const struct probe *probe, struct arena *arena) {
    const bool binary = probe->n > 0;
    const int columns = binary ? probe->n : probe->k;
    struct strbuf text;
    strbuf_init(&text, arena);
    strbuf_puts(&text, "rankc-ir 1\ngraph \"probe\" level=TYPED\n");
    strbuf_printf(&text, "const %%0 \"y0\" %s[%d,%d] = [0.5*%d]\n", probe->dtype, probe->m, probe->k,
                  probe->m * probe->k);
    if (binary)
        strbuf_printf(&text, "const %%1 \"b\" %s[%d,%d] = [0.25*%d]\n", probe->dtype, probe->k, columns,
                      probe->k * columns);
    for (int i = 0; i < probe->nodes; i++)
        strbuf_printf(&text, "%%%d \"y%d\" %s[%d,%d] = %s(%%%d%s)\n", i + 2, i + 1, probe->dtype, probe->m, columns,
                      probe->op, i ? i + 1 : 0, binary ? ", %1" : "");
    strbuf_printf(&text, "output %%%d \"y%d\"\n", probe->nodes + 1, probe->nodes);
    return strbuf_text(&text);
}

static int compile(const struct profiling *p, const struct probe *probe, const char *path) {
    struct arena *arena = p->cli->arena;
    const char *pas = probe->tensor ? arena_printf(arena, "--pas=tp:tensor=%" PRId64, p->ranks) : "--pas=dp";
    char *words[] = {"compile",
                     arena_strdup(arena, path),
                     "-q",
                     "-o",
                     arena_strdup(arena, p->work),
                     "--reuse=override",
                     arena_strdup(arena, pas),
                     arena_printf(arena, "--runtime-ngpus=%" PRId64, p->ranks)};
    struct driver_result result;
    struct options options;
    if (options_parse(&options, sizeof words / sizeof *words, words, arena, p->cli->diags)) return -1;
    return driver_compile(&options, arena, p->cli->diags, &result);
}

/* The median of a step's milliseconds from the line of JSON that the program printed; negative: it printed none. */
static double median_of(struct arena *arena, const char *said) {
    struct rt_reason why;
    double ms = -1;
    struct rt_json_document *document = own_json_text(arena, said, &why);
    if (!document) return -1;
    rt_json_real(rt_json_member(rt_json_member(rt_json_root(document), "step_ms"), "median"), &ms);
    arena_release(arena, document);
    return ms;
}

/* Compiles and runs the probe: seconds of a step, negative after a diagnostic. */
static double measure(const struct profiling *p, const struct probe *probe) {
    struct arena *arena = p->cli->arena;
    struct rt_reason why;
    struct strbuf said;
    int status = 0;
    const char *text = graph_of(probe, arena), *path = arena_printf(arena, "%s/probe.rir", p->work);
    const struct rt_piece piece = {text, strlen(text)};
    if (!rt_file_write(path, &piece, 1, &why)) return diag_refusal(p->cli->diags, 620, EXIT_SYSTEM, NULL, &why);
    if (compile(p, probe, path)) return -1;
    const char *const words[] = {"/proc/self/exe",
                                 "run",
                                 arena_printf(arena, "%s/probe/_", p->work),
                                 arena_printf(arena, "--threads=%" PRId64, p->threads),
                                 "--warmup=5",
                                 "--repeat=41",
                                 "--json",
                                 NULL};
    strbuf_init(&said, arena);
    const int failed = subprocess_run(words, NULL, &said, &status);
    const double ms = failed || !WIFEXITED(status) || WEXITSTATUS(status) ? -1 : median_of(arena, strbuf_text(&said));
    if (ms < 0)
        return diag_error(p->cli->diags, 620, EXIT_SYSTEM, NULL, "the program that measures '%s' does not run: %s",
                          probe->name, diag_quote(p->cli->diags, strbuf_text(&said)));
    return fmax(ms, 1e-3) * 1e-3; /* steps are timed in microseconds */
}

static double flops_of(const struct probe *probe) {
    return 2.0 * probe->m * probe->k * probe->n * probe->nodes;
}

/* The extent at which half the rate is reached, from the rate of a product in which that extent is `extent`: the part
 * of the rate that is reached is extent / (extent + half). */
static double half_extent(double extent, double slow, double rate) {
    const double reached = slow / rate;
    return reached >= 1 ? 0 : extent * (1 - reached) / reached;
}

/* The machine as the seconds of all probes say. */
static struct machine machine_of(const struct profiling *p, const double seconds[PROBES]) {
    struct machine machine = {.name = "this machine", .traffic = 1, .attention = 0.5, .nlevels = 1};
    double rate[PROBES] = {0};
    for (int i = 0; i <= SHORT_SUMS; i++) rate[i] = flops_of(&probes[i]) / seconds[i];
    machine.memory = floor((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (double)p->ranks);
    machine.rate[MACHINE_F64] = rate[PRODUCT_F64];
    machine.rate[MACHINE_F32] = rate[PRODUCT_F32];
    machine.rate[MACHINE_HALF] = rate[PRODUCT_HALF];
    for (int t = 0; t < MACHINE_TYPES; t++) machine.peak[t] = machine.rate[t];
    machine.half_extents[0] = half_extent(probes[FEW_ROWS].m, rate[FEW_ROWS], rate[PRODUCT_F32]);
    machine.half_extents[1] = half_extent(probes[FEW_COLUMNS].n, rate[FEW_COLUMNS], rate[PRODUCT_F32]);
    machine.half_extents[2] = half_extent(probes[SHORT_SUMS].k, rate[SHORT_SUMS], rate[PRODUCT_F32]);
    machine.bandwidth = 8.0 * probes[TRAFFIC].m * probes[TRAFFIC].k / seconds[TRAFFIC];
    machine.launch = seconds[LAUNCH] / probes[LAUNCH].nodes;
    machine.level[0] = (struct machine_level){.devices = INFINITY, .bandwidth = machine.bandwidth};
    if (p->ranks > 1) {
        const double others = (double)(p->ranks - 1) / (double)p->ranks;
        const double bytes = 4.0 * probes[GATHER_LARGE].m * probes[GATHER_LARGE].n;
        machine.level[0].latency = seconds[GATHER_SMALL];
        machine.level[0].bandwidth = others * bytes / fmax(seconds[GATHER_LARGE] - seconds[GATHER_SMALL], 1e-6);
    }
    return machine;
}

int cli_profile(struct cli *cli) {
    struct profiling p = {.cli = cli, .ranks = cli->options->runtime_ngpus, .threads = cli->options->threads};
    double seconds[PROBES] = {0};
    const int64_t cores = rt_cores();
    if (!cli->options->given[OPT_RUNTIME_NGPUS]) p.ranks = cores;
    if (!p.threads) p.threads = cores > p.ranks ? cores / p.ranks : 1;
    p.work = temporary_make(cli, "profile");
    if (!p.work) return -1;
    int status = 0;
    for (int i = 0; i < PROBES && !status; i++) {
        if (probes[i].tensor && p.ranks == 1) continue;
        seconds[i] = measure(&p, &probes[i]);
        status = seconds[i] < 0 ? -1 : 0;
    }
    temporary_remove(p.work);
    if (status) return -1;
    const struct machine machine = machine_of(&p, seconds);
    const char *text = machine_text(cli->arena, &machine);
    if (!text) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    fputs(text, stdout);
    return 0;
}
