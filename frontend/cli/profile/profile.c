/* rankc profile: measures the machine that it runs on, by small programs that it compiles and runs, and prints what it
 * found as a machine file (passes/plan/machine/machine.h). All ranks compute at the same time, as they do in a step. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frontend/cli/profile/profile.h"
#include "frontend/driver/driver.h"
#include "frontend/driver/output/temporary.h"
#include "frontend/driver/program/step_seconds.h"
#include "ir/op.h"
#include "runtime/base/thread/cores.h"
#include "runtime/base/io/file.h"

/* A graph of a chain of equal nodes (profile_probes.def). */
struct probe {
    const char *name, *dtype;
    enum op_id op;
    int operands;
    const char *attributes, *first, *second, *result;
    int nodes;
};
enum probe_id {
#define PROBE(id, ...) id,
#include "frontend/cli/profile/profile_probes.def"
#undef PROBE
    PROBES
};
static const struct probe probes[PROBES] = {
#define PROBE(id, dtype, op, ...) [id] = {#id, dtype, OP_##op, __VA_ARGS__},
#include "frontend/cli/profile/profile_probes.def"
#undef PROBE
};
static const double QUIET = 0.3; /* processors that other programs may use during a run */
enum { RETRIES = 6, MOVES = MOVE_6 - MOVE_0 + 1, SUMS = SUM_3 - SUM_0 + 1 };

static bool adds_ranks(int probe) {
    return probe >= SUM_0 && probe <= SUM_3;
}

/* The probe's graph. Its operands are constants, which no pass folds from this level on. */
static const char *graph_of(const struct probe *probe, struct arena *arena) {
    static const char *const others[] = {"", ", %1", ", %1, %1"};
    const bool binary = probe->operands > 1;
    struct strbuf text = {.arena = arena};
    strbuf_puts(&text, "rankc-ir 1\ngraph \"probe\" level=TYPED\n");
    strbuf_printf(&text, "const %%0 \"y0\" %s[%s] = [0.5*%d]\n", probe->dtype, probe->first,
                  shape_elements(probe->first));
    if (binary)
        strbuf_printf(&text, "const %%1 \"b\" %s[%s] = [0.25*%d]\n", probe->dtype, probe->second,
                      shape_elements(probe->second));
    for (int i = 0; i < probe->nodes; i++)
        strbuf_printf(&text, "%%%d \"y%d\" %s[%s] = %s(%%%d%s) %s node=\"probe%d\"\n", i + 2, i + 1, probe->dtype,
                      probe->result, ops[probe->op].name, i ? i + 1 : 0, others[probe->operands - 1], probe->attributes,
                      i);
    strbuf_printf(&text, "output %%%d \"y%d\"\n", probe->nodes + 1, probe->nodes);
    return strbuf_text(&text);
}

/* Writes a file into the working directory: its path, or NULL after a diagnostic. */
static const char *write_text(const struct profiling *p, const char *name, const char *text) {
    struct rt_reason why;
    const char *path = arena_printf(p->cli->arena, "%s/%s", p->work, name);
    const struct rt_piece piece = {text, strlen(text)};
    if (rt_file_write(path, &piece, 1, &why)) return path;
    diag_refusal(p->cli->diags, 620, EXIT_SYSTEM, NULL, &why);
    return NULL;
}

int profile_compile(const struct profiling *p, const char *name, const char *graph, const char *rules, int64_t ranks) {
    struct arena *arena = p->cli->arena;
    const char *path = write_text(p, arena_printf(arena, "%s.rir", name), graph);
    const char *file = rules ? write_text(p, "probe.rules", rules) : NULL;
    struct driver_result result;
    struct options options;
    if (!path || (rules && !file)) return -1;
    struct arena *scratch = arena_scratch(arena); /* a compile takes several times what its constants take */
    options_start(&options, VERB_COMPILE, path, scratch, p->cli->diags);
    options.quiet = true;
    options.output = p->work;
    options.reuse = OPT_REUSE_OVERRIDE;
    if (rules) options.pas = (struct option_policy){OPT_POLICY_MANUAL, file};
    options.runtime_ngpus = ranks, options.given[OPT_RUNTIME_NGPUS] = true;
    if (p->gpu) options.target = OPT_TARGET_CUDA, options.arch = "native", options.given[OPT_ARCH] = true;
    int failed = options_finish(&options, scratch, p->cli->diags);
    if (!failed) failed = driver_compile(&options, scratch, p->cli->diags, &result);
    arena_release(arena, scratch);
    return failed;
}

static int compile(const struct profiling *p, int number) {
    struct arena *arena = p->cli->arena;
    const struct probe *probe = &probes[number];
    const char *rules = arena_printf(arena, "mesh tensor=%" PRId64 "\nmatch \"probe*\" split in0.1\n", p->ranks);
    return profile_compile(p, probe->name, graph_of(probe, arena), adds_ranks(number) ? rules : NULL, p->ranks);
}

/* Called while a probe runs. */
static void show(void *of) {
    struct profiling *p = of;
    rt_progress_show(&p->progress, "measuring: probe", p->measured + 1, p->probes, "");
}

/* Runs a compiled probe on that many ranks: seconds of a step, negative after a diagnostic. */
static double run(struct profiling *p, const char *name, int64_t ranks, const char *trace) {
    struct arena *arena = p->cli->arena;
    const char *said;
    const char *const words[] = {"/proc/self/exe",
                                 "run",
                                 arena_printf(arena, "%s/%s/_", p->work, name),
                                 arena_printf(arena, "--threads=%" PRId64, p->threads),
                                 arena_printf(arena, "--runtime-ngpus=%" PRId64, ranks),
                                 "--warmup=2",
                                 "--repeat=11",
                                 "--json",
                                 trace ? arena_printf(arena, "--trace=%s", trace) : NULL,
                                 p->gpu ? "--random-inputs" : NULL,
                                 NULL};
    const struct subprocess_watch watch = {show, p};
    const double seconds = step_seconds(words, &watch, arena, &said);
    if (seconds < 0)
        return diag_error(p->cli->diags, 620, EXIT_SYSTEM, NULL, "the program that measures %s does not run: %s", name,
                          diag_quote(p->cli->diags, said));
    return seconds;
}

/* Seconds of a step of each probe: on all ranks at the same time, and on one; 0: not measured. */
struct seconds {
    double all[PROBES], alone[PROBES];
};

/* Processor seconds that the whole machine has used, and this process with all its ended children; 0 where the kernel
 * does not say. */
static double used_by_all(void) {
    unsigned long long user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0, steal = 0;
    FILE *stat = fopen("/proc/stat", "r");
    if (!stat) return 0;
    const int read = fscanf(stat, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &waiting,
                            &irq, &softirq, &steal);
    fclose(stat);
    return read < 8 ? 0 : (double)(user + nice + system + irq + softirq + steal) / (double)sysconf(_SC_CLK_TCK);
}

static double used_by_this(void) {
    double sum = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage usage;
        if (getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &usage)) continue;
        sum += (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    }
    return sum;
}

double profile_run(struct profiling *p, const char *name, int64_t ranks, const char *trace) {
    /* the kernel counts the time of all programs by ticks of each processor */
    const double unsure = (double)rt_cores() / (double)sysconf(_SC_CLK_TCK);
    double fastest = INFINITY;
    for (bool again = true; again;) {
        struct timespec from, to;
        const double others = used_by_all() - used_by_this();
        clock_gettime(CLOCK_MONOTONIC, &from);
        const double seconds = run(p, name, ranks, trace);
        clock_gettime(CLOCK_MONOTONIC, &to);
        if (seconds < 0) return -1;
        fastest = fmin(fastest, seconds);
        const double wall = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        const double load = (used_by_all() - used_by_this() - others - unsure) / wall;
        again = load > QUIET && p->retries > 0;
        p->retries -= again;
        if (!again) p->load = fmax(p->load, load);
    }
    return fastest;
}

void profile_tell(struct profiling *p, int round, const char *name, double seconds) {
    p->measured++;
    rt_progress_end(&p->progress);
    cli_tell(p->cli, "round %d of %d, %s: %.3g s", round + 1, PROFILE_ROUNDS, name, seconds);
}

/* Other work on the machine makes steps longer and never shorter, so the least of several rounds counts. */
static int measure(struct profiling *p, struct seconds *seconds) {
    for (int i = 0; i < PROBES; i++)
        if (!(adds_ranks(i) && p->ranks == 1) && compile(p, i)) return -1;
    for (int round = 0; round < PROFILE_ROUNDS; round++)
        for (int i = 0; i < PROBES; i++) {
            const bool also_alone = p->ranks > 1 && (i == PRODUCT_F32 || (i >= MOVE_0 && i <= MOVE_6));
            if (adds_ranks(i) && p->ranks == 1) continue;
            const double all = profile_run(p, probes[i].name, p->ranks, NULL);
            const double alone = also_alone ? profile_run(p, probes[i].name, 1, NULL) : all;
            if (all < 0 || alone < 0) return -1;
            profile_tell(p, round, probes[i].name, all);
            seconds->all[i] = round ? fmin(seconds->all[i], all) : all;
            seconds->alone[i] = round ? fmin(seconds->alone[i], alone) : alone;
        }
    return 0;
}

static bool is_reduction(const struct probe *probe) {
    return probe->op == OP_ReduceSum;
}

/* Operands of a convolution's probe, or of one of its gradients. */
static const char *weights_of(const struct probe *probe) {
    return probe->op == OP_ConvWeightGrad ? probe->result : probe->second;
}

/* The tensor that has an element for each window. */
static const char *windows_of(const struct probe *probe) {
    return probe->op == OP_Conv ? probe->result : probe->op == OP_ConvWeightGrad ? probe->second : probe->first;
}

/* Products that a convolution sums for an output element. */
static double sums_of(const struct probe *probe) {
    const char *weights = weights_of(probe);
    return shape_extent(weights, 1) * shape_extent(weights, 2) * shape_extent(weights, 3);
}

/* Operations of a product, a convolution or a reduction. */
static double flops_of(const struct probe *probe) {
    if (is_reduction(probe)) return shape_elements(probe->first);
    if (probe->op == OP_MatMul)
        return 2.0 * shape_elements(probe->result) * shape_extent(probe->first, 1) * probe->nodes;
    return 2.0 * shape_elements(windows_of(probe)) * sums_of(probe);
}

/* What the rate of its kind of kernel depends on. */
static double extent_of(const struct probe *probe, enum machine_extent which) {
    if (is_reduction(probe)) return (double)shape_elements(probe->first) / shape_elements(probe->result);
    const int first = strstr(probe->attributes, "channels_last=1") ? 1 : 2; /* spatial dimension */
    if (which == MACHINE_POSITIONS)
        return shape_extent(windows_of(probe), first) * shape_extent(windows_of(probe), first + 1);
    return which == MACHINE_OUTPUTS ? shape_extent(weights_of(probe), 0) : sums_of(probe);
}

/* The extent at which half the rate is reached, from the rate of a product in which that extent is `extent`: the part
 * of the rate that is reached is extent / (extent + half). */
static double half_extent(double extent, double slow, double rate) {
    const double reached = slow / rate;
    return reached >= 1 ? 0 : extent * (1 - reached) / reached;
}

/* Bytes of a probe's operands that are read, and of its result. */
static double read_by(enum probe_id id) {
    const struct probe *probe = &probes[id];
    return 4.0 * (shape_elements(probe->first) + (probe->operands > 1 ? shape_elements(probe->second) : 0));
}

static double written_by(enum probe_id id) {
    return 4.0 * shape_elements(probes[id].result);
}

/* Seconds in which a kernel with that struct machine_kernel_rate.distant moves them. */
static double moving_seconds(const struct machine *machine, enum probe_id id, double distant) {
    const double moved = read_by(id) + machine->writes * written_by(id);
    return moved * machine_byte_seconds(machine, read_by(id) + written_by(id), false, distant);
}

/* Probes of a batch that fits into a cache and of one that does not: only memory accesses take longer per sample. */
struct batches {
    enum probe_id near, far;
};
enum { MOST_BATCHES = 2 };

/* struct machine_kernel_rate.distant: the mean over some shapes. */
static double distant_of(const struct machine *machine, const struct seconds *seconds, const struct batches *batches,
                         int n) {
    double longer = 0, expected = 0;
    for (int i = 0; i < n; i++) {
        const enum probe_id near = batches[i].near, far = batches[i].far;
        const double samples = flops_of(&probes[far]) / flops_of(&probes[near]);
        longer += seconds->all[far] - samples * seconds->all[near];
        expected += moving_seconds(machine, far, 1) - samples * moving_seconds(machine, near, 1);
    }
    return expected > 0 ? fmin(fmax(longer / expected, 1), 10) : 1;
}

/* Seconds of a probe without those in which its operands are moved, which passes/plan/machine/kernel_time.h adds. */
static double arithmetic_seconds(const struct machine *machine, const struct seconds *seconds, enum probe_id id,
                                 double distant) {
    return fmax(seconds->all[id] - moving_seconds(machine, id, distant), 0.1 * seconds->all[id]);
}

/* The rate of a kind of convolution or reduction, the product of extent / (extent + half) over the extents that it
 * depends on: from a large probe, and for each extent one in which only that is less. */
static struct machine_kernel_rate kernel_rate(const struct machine *machine, const struct seconds *seconds,
                                              enum probe_id large, const enum probe_id less[MACHINE_EXTENTS],
                                              int extents, double distant) {
    const double rate = flops_of(&probes[large]) / arithmetic_seconds(machine, seconds, large, distant);
    struct machine_kernel_rate found = {.rate = rate, .distant = distant};
    for (int e = 0; e < extents; e++) {
        const double most = extent_of(&probes[large], (enum machine_extent)e);
        const double least = extent_of(&probes[less[e]], (enum machine_extent)e);
        const double slow = flops_of(&probes[less[e]]) / arithmetic_seconds(machine, seconds, less[e], distant);
        found.half[e] = shape_half(most, rate, least, slow);
        found.rate *= (most + found.half[e]) / most;
    }
    return found;
}

static void find_kernels(struct machine *machine, const struct seconds *seconds) {
    static const struct {
        enum machine_kernel kernel;
        enum probe_id large, less[MACHINE_EXTENTS];
        int extents;
        struct batches batches[MOST_BATCHES];
        int nbatches; /* 0: moving takes a small part of the time */
    } found[] = {
#define WINDOWED_ROW(kernel, id)                                                                                       \
    {MACHINE_##kernel, id##_LARGE, {id##_SMALL, id##_FEW_OUTPUTS, id##_FEW_INPUTS}, 3, {{0}}, 0}
#define POINT_ROW(kernel, id)                                                                                          \
    {                                                                                                                  \
        MACHINE_##kernel, id##_LARGE, {id##_SMALL, id##_FEW_OUTPUTS, id##_FEW_INPUTS}, 3,                              \
            {{id##_FEW_OUTPUTS, id##_FAR_FEW_OUTPUTS}, {id##_FEW_INPUTS, id##_FAR_FEW_INPUTS}}, 2                      \
    }
#define DEPTH_ROW(kernel, id)                                                                                          \
    { MACHINE_##kernel, id##_LARGE, {id##_SMALL}, 1, {{id##_LARGE, id##_FAR}}, 1 }
        WINDOWED_ROW(WINOGRAD, WINOGRAD),
        {MACHINE_DEPTHWISE_LAST, DEPTH_LAST_LARGE, {0}, 0, {{DEPTH_LAST_LARGE, DEPTH_LAST_FAR}}, 1},
        WINDOWED_ROW(CONVOLUTION, WINDOWED),
        WINDOWED_ROW(CONVOLUTION_INPUT, WINDOWED_INPUT),
        WINDOWED_ROW(CONVOLUTION_WEIGHT, WINDOWED_WEIGHT),
        POINT_ROW(POINTWISE, POINT),
        POINT_ROW(POINTWISE_INPUT, POINT_INPUT),
        POINT_ROW(POINTWISE_WEIGHT, POINT_WEIGHT),
        DEPTH_ROW(DEPTHWISE, DEPTH),
        DEPTH_ROW(DEPTHWISE_INPUT, DEPTH_INPUT),
        DEPTH_ROW(DEPTHWISE_WEIGHT, DEPTH_WEIGHT),
        DEPTH_ROW(STRIDED, STRIDED),
        DEPTH_ROW(STRIDED_INPUT, STRIDED_INPUT),
        DEPTH_ROW(STRIDED_WEIGHT, STRIDED_WEIGHT),
#undef WINDOWED_ROW
#undef POINT_ROW
#undef DEPTH_ROW
        {MACHINE_REDUCTION_ROWS, ROWS_LARGE, {ROWS_SMALL}, 1, {{0}}, 0},
        {MACHINE_REDUCTION_COLUMNS, COLUMNS_LARGE, {COLUMNS_SMALL}, 1, {{0}}, 0},
    };
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        machine->kernel[found[i].kernel] =
            kernel_rate(machine, seconds, found[i].large, found[i].less, found[i].extents,
                        distant_of(machine, seconds, found[i].batches, found[i].nbatches));
    const double windows = 9.0 * shape_elements(probes[POOL].result);
    machine->kernel[MACHINE_POOLING].rate = windows / arithmetic_seconds(machine, seconds, POOL, 1);
    machine->kernel[MACHINE_POOLING_GRADIENT].rate = windows / arithmetic_seconds(machine, seconds, POOL_GRADIENT, 1);
}

/* The part of the rate that attention reaches: both of its products, by half. Of heads of s elements that is
 * proportional to s / (s + half). */
static double attention_reached(const struct seconds *seconds, enum probe_id id, double rate) {
    return 2.0 * shape_elements(probes[id].first) * shape_extent(probes[id].second, 2) / seconds->all[id] / rate;
}

static void find_attention(struct machine *machine, const struct seconds *seconds, double rate) {
    const double wide = shape_extent(probes[ATTENTION].first, 3),
                 narrow = shape_extent(probes[ATTENTION_NARROW].first, 3);
    const double most = attention_reached(seconds, ATTENTION, rate),
                 least = attention_reached(seconds, ATTENTION_NARROW, rate);
    machine->half_head = shape_half(wide, most, narrow, least);
    machine->attention = fmin(most * (wide + machine->half_head) / wide * 128 / (128 + machine->half_head), 1);
}

/* A MOVE probe reads its operand, and writes its result to another place. */
static void find_memory(struct machine *machine, const struct seconds *seconds) {
    machine->by_size.n = machine->by_size_alone.n = MOVES;
    for (int i = 0; i < MOVES; i++) {
        const double tensor = 4.0 * shape_elements(probes[MOVE_0 + i].result), moved = tensor * (1 + machine->writes);
        const double *all = seconds->all, *alone = seconds->alone;
        machine->by_size.bytes[i] = machine->by_size_alone.bytes[i] = 2 * tensor;
        machine->by_size.bandwidth[i] = moved / fmax(all[MOVE_0 + i] - machine->launch, 1e-7);
        machine->by_size_alone.bandwidth[i] = moved / fmax(alone[MOVE_0 + i] - machine->launch, 1e-7);
    }
    machine->bandwidth = machine->by_size.bandwidth[MOVES - 1];
}

/* Links: the time of a sum over ranks beside the product whose parts it adds. */
static void find_links(struct machine *machine, const struct seconds *seconds, double ranks) {
    struct machine_link *level = &machine->level[0].link;
    machine->level[0] = (struct machine_level){.devices = INFINITY, .link = {.bandwidth = machine->bandwidth}};
    if (ranks < 2) return;
    level->latency = fmax(seconds->all[SUM_0] - seconds->all[PART_0], 1e-7);
    level->by_size.n = SUMS - 1;
    for (int i = 1; i < SUMS; i++) {
        const double bytes = 4.0 * shape_elements(probes[SUM_0 + i].result);
        const double sum = seconds->all[SUM_0 + i] - seconds->all[PART_0 + i] - level->latency;
        level->by_size.bytes[i - 1] = bytes;
        level->by_size.bandwidth[i - 1] = 2 * (ranks - 1) / ranks * bytes / fmax(sum, 1e-7);
    }
    level->bandwidth = level->by_size.bandwidth[SUMS - 2];
}

/* The machine as the seconds of all probes say. */
static struct machine machine_of(const struct profiling *p, const struct seconds *seconds) {
    struct machine machine = {.name = "this machine",
                              .host_bandwidth = machine_default.host_bandwidth,
                              .traffic = 1,
                              .nlevels = 1,
                              .writes = 2,
                              .correction = 1,
                              .slowdown = 1};
    double rate[SHORT_SUMS + 1];
    for (int i = 0; i <= SHORT_SUMS; i++) rate[i] = flops_of(&probes[i]) / seconds->all[i];
    machine.memory = floor((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (double)p->ranks);
    machine.rate[MACHINE_F64] = rate[PRODUCT_F64];
    machine.rate[MACHINE_F32] = rate[PRODUCT_F32];
    machine.rate[MACHINE_HALF] = rate[PRODUCT_HALF];
    machine.alone = fmax(seconds->all[PRODUCT_F32] / seconds->alone[PRODUCT_F32], 1);
    for (int t = 0; t < MACHINE_TYPES; t++) machine.peak[t] = machine.rate[t];
    machine.half_extents[0] = half_extent(shape_extent(probes[FEW_ROWS].first, 0), rate[FEW_ROWS], rate[PRODUCT_F32]);
    machine.half_extents[1] =
        half_extent(shape_extent(probes[FEW_COLUMNS].second, 1), rate[FEW_COLUMNS], rate[PRODUCT_F32]);
    machine.half_extents[2] =
        half_extent(shape_extent(probes[SHORT_SUMS].first, 1), rate[SHORT_SUMS], rate[PRODUCT_F32]);
    machine.launch = seconds->all[LAUNCH] / probes[LAUNCH].nodes;
    find_attention(&machine, seconds, rate[PRODUCT_F32]);
    machine.elementwise =
        14.0 * shape_elements(probes[ELEMENTWISE].result) / seconds->all[ELEMENTWISE]; /* ir/ops.def */
    find_memory(&machine, seconds);
    find_kernels(&machine, seconds);
    find_links(&machine, seconds, (double)p->ranks);
    return machine;
}

static int profile_processor(struct profiling *p, struct machine *machine) {
    struct seconds seconds = {0};
    const int64_t cores = rt_cores();
    if (!p->cli->options->given[OPT_RUNTIME_NGPUS]) p->ranks = cores;
    if (!p->threads) p->threads = cores > p->ranks ? cores / p->ranks : 1;
    p->retries = RETRIES;
    p->probes = profile_exchanges_count(p);
    for (int i = 0; i < PROBES; i++) p->probes += !adds_ranks(i) || p->ranks > 1;
    p->probes *= PROFILE_ROUNDS;
    if (measure(p, &seconds)) return -1;
    *machine = machine_of(p, &seconds);
    return profile_exchanges(p, machine);
}

int cli_profile(struct cli *cli) {
    const struct options *options = cli->options;
    struct machine machine;
    struct profiling p = {.cli = cli,
                          .ranks = options->runtime_ngpus,
                          .threads = options->threads,
                          .gpu = options->target == OPT_TARGET_CUDA};
    if (p.gpu && profile_gpu_refuses(cli)) return -1;
    p.work = temporary_make("profile", cli->arena, cli->diags);
    if (!p.work) return -1;
    rt_progress_begin(&p.progress, 0, options->quiet || options->json);
    const int status = p.gpu ? profile_gpu(&p, &machine) : profile_processor(&p, &machine);
    rt_progress_end(&p.progress);
    temporary_remove(p.work);
    if (status) return -1;
    if (p.load > QUIET && !p.gpu)
        diag_warning(
            cli->diags, 620, NULL,
            "other programs used up to %.1f processors meanwhile: what was measured is slower than the machine",
            p.load);
    const char *text = machine_text(cli->arena, &machine);
    if (!text) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    fputs(text, stdout);
    return 0;
}
