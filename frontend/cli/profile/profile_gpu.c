/* rankc profile --target cuda: one program has all probes, since nvcc takes long; a trace times its nodes. */
#include "frontend/cli/profile/profile_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/cli/doctor/doctor.h"
#include "frontend/cli/profile/profile.h"
#include "ir/base/own.h"

const struct gpu_probe_row gpu_probe_rows[GPU_PROBES] = {
#define GPU_PROBE(id, ...) {#id, __VA_ARGS__},
#include "frontend/cli/profile/profile_gpu_probes.def"
#undef GPU_PROBE
};
enum { STEPS = 64, OPERANDS = 3 };
static const char program[] = "gpu";

/* The program that make would run: the first word of $NVCC, else nvcc. */
static const char *nvcc_of(struct arena *arena) {
    const char *set = getenv("NVCC");
    return set && *set ? arena_printf(arena, "%.*s", (int)strcspn(set, " "), set) : "nvcc";
}

/* Describes the GPU: 0, or -1 after a diagnostic. */
static int find_gpu(struct cli *cli, struct gpu *gpu) {
    static const char *const missing[] = {
        [GPU_NO_DRIVER] = "there is no driver of a GPU (libcuda.so.1)", [GPU_NONE] = "the driver finds no GPU"};
    const enum gpu_found found = gpu_driver_ask(gpu, cli->arena);
    if (found == GPU_FOUND) return 0;
    diag_error(cli->diags, 620, EXIT_SYSTEM, NULL, "%s: --target cuda measures a GPU", missing[found]);
    return diag_help(cli->diags, "without --target, rankc profile measures the processor");
}

int profile_gpu_refuses(struct cli *cli) {
    static const enum option_id of_processors[] = {OPT_RUNTIME_NGPUS, OPT_THREADS};
    struct gpu gpu;
    for (size_t i = 0; i < sizeof of_processors / sizeof *of_processors; i++)
        if (cli->options->given[of_processors[i]])
            return diag_error(cli->diags, 200, EXIT_USAGE, NULL,
                              "--%s is for processors: --target cuda measures one GPU",
                              option_rows[of_processors[i]].name);
    if (!doctor_find_program(nvcc_of(cli->arena), cli->arena)) {
        diag_error(cli->diags, 620, EXIT_SYSTEM, NULL, "there is no %s, which builds programs of --target cuda",
                   diag_quote(cli->diags, nvcc_of(cli->arena)));
        return diag_help(cli->diags, "install the CUDA toolkit and put its folder bin in PATH, or set NVCC");
    }
    /* architecture native is that of the GPU; with another one, programs are built without a GPU */
    return getenv("GPU_ARCH") ? 0 : find_gpu(cli, &gpu);
}

/* The shape of an operand. */
static const char *shape_of(const struct gpu_probe_row *probe, int operand) {
    return operand ? probe->second : probe->first;
}

/* True if both read the same input at that position. */
static bool is_shared(const struct gpu_probe_row *a, const struct gpu_probe_row *b, int operand) {
    return operand < a->operands && operand < b->operands && strcmp(a->dtype, b->dtype) == 0 &&
           strcmp(shape_of(a, operand), shape_of(b, operand)) == 0;
}

/* The first probe that reads the same input. */
static int owner_of(int probe, int operand) {
    int i = 0;
    while (!is_shared(&gpu_probe_rows[i], &gpu_probe_rows[probe], operand)) i++;
    return i;
}

/* Numbers of values in the graph: inputs, then two results of each probe. */
static int input_number(int probe, int operand) {
    return owner_of(probe, operand) * OPERANDS + operand;
}

static int result_number(int probe, int result) {
    return GPU_PROBES * OPERANDS + 2 * probe + result;
}

static void put_inputs(struct strbuf *text, int i) {
    const struct gpu_probe_row *probe = &gpu_probe_rows[i];
    for (int k = 0; k < probe->operands; k++)
        if (owner_of(i, k) == i)
            strbuf_printf(text, "input %%%d \"%s_%d\" %s[%s]\n", input_number(i, k), probe->name, k, probe->dtype,
                          shape_of(probe, k));
}

static void put_node(struct strbuf *text, int i) {
    const struct gpu_probe_row *probe = &gpu_probe_rows[i];
    strbuf_printf(text, "%%%d \"%s\" %s[%s]", result_number(i, 0), probe->name, probe->dtype, probe->result);
    if (*probe->beside)
        strbuf_printf(text, ", %%%d \"%s beside\" f32[%s]", result_number(i, 1), probe->name, probe->beside);
    strbuf_printf(text, " = %s(", probe->op);
    for (int k = 0; k < probe->operands; k++) strbuf_printf(text, "%s%%%d", k ? ", " : "", input_number(i, k));
    strbuf_printf(text, ") %s node=\"%s\"\n", probe->attributes, probe->name);
}

static const char *graph_of(struct arena *arena) {
    struct strbuf text = {.arena = arena};
    strbuf_puts(&text, "rankc-ir 1\ngraph \"gpu\" level=TYPED\n");
    for (int i = 0; i < GPU_PROBES; i++) put_inputs(&text, i);
    for (int i = 0; i < GPU_PROBES; i++) put_node(&text, i);
    for (int i = 0; i < GPU_PROBES; i++)
        strbuf_printf(&text, "output %%%d \"%s\"\n", result_number(i, 0), gpu_probe_rows[i].name);
    return strbuf_text(&text);
}

/* Microseconds of a probe in the traced steps. */
struct times {
    int n;
    double us[STEPS];
};

static void add_event(const struct rt_json *event, struct times times[GPU_PROBES]) {
    const char *node = rt_json_text(rt_json_member(rt_json_member(event, "args"), "node"));
    double us;
    for (int i = 0; node && i < GPU_PROBES; i++)
        if (strcmp(node, gpu_probe_rows[i].name) == 0 && times[i].n < STEPS &&
            rt_json_real(rt_json_member(event, "dur"), &us))
            times[i].us[times[i].n++] = us;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of each probe: 0, or -1 after a diagnostic. */
static int read_trace(struct cli *cli, const char *path, double seconds[GPU_PROBES]) {
    struct rt_reason why;
    struct times times[GPU_PROBES] = {{0}};
    struct rt_json_document *document = own_json(cli->arena, path, &why);
    if (!document) return diag_refusal(cli->diags, 620, EXIT_SYSTEM, NULL, &why);
    for (const struct rt_json *event = rt_json_items(rt_json_root(document), "traceEvents"); event; event = event->next)
        add_event(event, times);
    arena_release(cli->arena, document);
    for (int i = 0; i < GPU_PROBES; i++) {
        if (!times[i].n)
            return diag_error(cli->diags, 620, EXIT_SYSTEM, NULL, "the trace has no event of probe %s",
                              gpu_probe_rows[i].name);
        qsort(times[i].us, (size_t)times[i].n, sizeof *times[i].us, by_size);
        seconds[i] = 1e-6 * times[i].us[times[i].n / 2];
        cli_tell(cli, "%s: %.3g s", gpu_probe_rows[i].name, seconds[i]);
    }
    return 0;
}

/* Says where the links are from. */
static void remark_links(struct cli *cli, const struct gpu *gpu, const char *known) {
    if (known)
        diag_remark(cli->diags, NULL, "one GPU has no links to measure: peaks and links are those of %s", known);
    else
        diag_remark(cli->diags, NULL,
                    "one GPU has no links to measure, and no known machine has %s: its memory's bandwidth is taken for "
                    "that of links",
                    diag_quote(cli->diags, gpu->name));
}

int profile_gpu(struct profiling *p, struct machine *machine) {
    struct cli *cli = p->cli;
    struct gpu gpu;
    struct machine like;
    double seconds[GPU_PROBES];
    const char *trace = arena_printf(cli->arena, "%s/trace.json", p->work);
    p->ranks = p->threads = p->probes = 1;
    if (profile_compile(p, program, graph_of(cli->arena), NULL, 1) || find_gpu(cli, &gpu) ||
        profile_run(p, program, 1, trace) < 0)
        return -1;
    rt_progress_end(&p->progress);
    if (read_trace(cli, trace, seconds)) return -1;
    const char *known = machine_of_gpu(gpu.name, gpu.memory);
    if (known && machine_read(cli->arena, cli->diags, known, &like)) return -1;
    *machine = profile_gpu_machine(&gpu, seconds, known ? &like : NULL);
    remark_links(cli, &gpu, known);
    return 0;
}
