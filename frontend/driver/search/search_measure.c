/* --measure-topk: the best plans of a search are compiled and run on this machine, and the fastest is chosen. */
#include "frontend/driver/search/search.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/driver/driver.h"
#include "frontend/driver/program/random_inputs.h"
#include "frontend/driver/program/step_seconds.h"
#include "frontend/driver/output/temporary.h"
#include "ir/base/own.h"
#include "runtime/base/thread/cores.h"
#include "runtime/base/io/file.h"
#include "runtime/base/io/progress.h"

/* Runs of each plan, in turn, so that a time in which the machine is slow concerns all of them; the fastest counts. */
enum { ROUNDS = 2 };

struct measuring {
    const struct options *given;
    struct arena *arena;
    const char *work; /* a temporary directory */
    bool trains;
    int run, runs; /* how many were begun, and will be */
    struct rt_progress progress;
};

/* A compiled candidate, and the command that times it. */
struct trial {
    struct candidate *candidate;
    double shares; /* samples or micro-batches of a step; candidate->seconds is the time of one */
    VEC(const char *) words;
};

/* Devices of this machine that ranks of that target can have: GPUs of the driver, or cores. */
static int devices_here(bool cuda) {
    if (!cuda) return rt_cores();
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    int (*start)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    int (*count_of)(int *) = driver ? (int (*)(int *))dlsym(driver, "cuDeviceGetCount") : NULL;
    int count = 0;
    if (!start || !count_of || start(0) || count_of(&count)) count = 0;
    if (driver) dlclose(driver);
    return count;
}

int search_can_measure(const struct options *options, struct diags *diags) {
    const bool cuda = options->target == OPT_TARGET_CUDA;
    const int64_t ranks = options->runtime_ngpus;
    const int here = options->measure_topk ? devices_here(cuda) : 0;
    if (!options->measure_topk || ranks <= here) return 0;
    diag_error(diags, 433, EXIT_LIMIT, "--measure-topk",
               "%lld rank%s cannot be measured on this machine, which has %d %s%s", (long long)ranks,
               ranks == 1 ? "" : "s", here, cuda ? "GPU" : "core", here == 1 ? "" : "s");
    return diag_help(diags, "without --measure-topk, the search predicts times for any number of ranks"), -1;
}

/* The command that times the compiled program in `directory`; -1 after a diagnostic. */
static int make_command(const struct measuring *m, struct trial *trial, const char *directory, struct diags *diags) {
    static const char *const of_run[] = {"--json", "--warmup=2", "--repeat=8"}, *const of_train[] = {"--json", "-q",
                                                                                                     "--steps=8"};
    struct random_inputs inputs = {0};
    struct rt_reason why;
    struct rt_json_document *manifest = own_json(m->arena, arena_printf(m->arena, "%s/manifest.json", directory), &why);
    if (!manifest) return diag_refusal(diags, 601, EXIT_SYSTEM, NULL, &why);
    if (random_inputs_write(&inputs, rt_json_root(manifest), directory, RT_DTYPE_NONE, m->arena, diags) < 0) return -1;
    VEC_PUSH(m->arena, &trial->words, "/proc/self/exe");
    VEC_PUSH(m->arena, &trial->words, m->trains ? "train" : "run");
    VEC_PUSH(m->arena, &trial->words, directory);
    for (int i = 0; i < 3; i++) VEC_PUSH(m->arena, &trial->words, m->trains ? of_train[i] : of_run[i]);
    for (int i = 0; i < inputs.all.n; i++)
        VEC_PUSH(m->arena, &trial->words,
                 arena_printf(m->arena, "--%s=%s", m->trains ? "data" : "input", inputs.all.at[i]));
    VEC_PUSH(m->arena, &trial->words, NULL);
    arena_release(m->arena, manifest);
    return 0;
}

/* Compiles the candidate into WORK/<model>/plan<number>: -1 after a diagnostic. */
static int prepare(const struct measuring *m, struct trial *trial, int number, struct diags *diags) {
    struct options *options = ARENA_NEW(m->arena, struct options);
    struct driver_result result;
    *options = search_options(m->given, trial->candidate, m->arena);
    options->verb = VERB_COMPILE;
    options->output = m->work;
    options->instance_name = arena_printf(m->arena, "plan%d", number);
    options->reuse = OPT_REUSE_OVERRIDE;
    options->weights = OPT_WEIGHTS_REFERENCE;
    options->save_plan = NULL;
    options->no_build = false;
    trial->shares =
        (double)(options->decisions.micro_batches ? options->decisions.micro_batches : 1) * trial->candidate->units;
    if (trial->candidate->batch) trial->shares *= trial->candidate->batch;
    if (driver_compile(options, m->arena, diags, &result) < 0) return -1;
    return make_command(m, trial, result.directory, diags);
}

static const char *first_error(const struct diags *diags) {
    for (int i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == RT_SEVERITY_ERROR) return diags->all.at[i].text;
    return "it cannot be compiled";
}

/* "E0382: index 64 is out of range" of the diagnostic, in JSON, that the output of a program begins with. */
static const char *first_said(struct arena *arena, const char *output) {
    struct rt_reason why;
    const char *line = arena_copy(arena, output, strcspn(output, "\n"));
    struct rt_json_document *document = *line == '{' ? own_json_text(arena, line, &why) : NULL;
    const struct rt_json *root = document ? rt_json_root(document) : NULL;
    const char *code = rt_json_text(rt_json_member(root, "code")), *text = rt_json_text(rt_json_member(root, "text"));
    if (code && text) line = arena_printf(arena, "%s: %s", code, text);
    if (document) arena_release(arena, document);
    return line;
}

/* Called while a program is timed. */
static void show_trial(void *of) {
    struct measuring *m = of;
    rt_progress_show(&m->progress, "measuring: run", m->run, m->runs, "");
}

static void time_trial(struct measuring *m, struct trial *trial) {
    const struct subprocess_watch watch = {show_trial, m};
    struct candidate *c = trial->candidate;
    m->run++;
    const char *said;
    if (c->unmeasured) return;
    const double seconds = step_seconds(trial->words.at, &watch, m->arena, &said) / trial->shares;
    if (seconds < 0)
        c->unmeasured = first_said(m->arena, said);
    else if (!c->measured || seconds < c->measured)
        c->measured = seconds;
}

static int by_measured(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    const double x = a->measured ? a->measured : INFINITY, y = b->measured ? b->measured : INFINITY;
    return (x > y) - (x < y);
}

int search_measure(struct search *search, const struct options *options, bool trains, struct arena *arena,
                   struct diags *diags) {
    struct measuring m = {
        .given = options, .arena = arena, .work = temporary_make("measure", arena, diags), .trains = trains};
    struct trial *trials = ARENA_ARRAY(arena, struct trial, search->all.n);
    int n = 0;
    if (!m.work) return -1;
    while (n < search->all.n && n < options->measure_topk && search_fits(search, &search->all.at[n])) {
        struct diags *own = ARENA_NEW(arena, struct diags);
        diags_init(own, arena);
        trials[n].candidate = &search->all.at[n];
        if (prepare(&m, &trials[n], n, own) < 0) trials[n].candidate->unmeasured = first_error(own);
        n++;
    }
    m.runs = ROUNDS * n;
    rt_progress_begin(&m.progress, 0, options->quiet || options->json);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) time_trial(&m, &trials[i]);
    rt_progress_end(&m.progress);
    temporary_remove(m.work);
    qsort(search->all.at, (size_t)n, sizeof *search->all.at, by_measured);
    if (search->all.at[0].measured) return 0;
    return diag_error(diags, 434, EXIT_RANK, "--measure-topk", "none of %d plan(s) could be measured: %s", n,
                      search->all.at[0].unmeasured);
}

int search_save_machine(const struct search *search, const struct options *options, struct arena *arena,
                        struct diags *diags) {
    struct machine machine = search->machine;
    struct rt_reason why;
    double logarithms = 0;
    int n = 0;
    if (!options->save_machine) return 0;
    for (int i = 0; i < search->all.n; i++) {
        const struct candidate *c = &search->all.at[i];
        if (!(c->measured > 0)) continue;
        logarithms += log(c->measured / c->seconds);
        n++;
    }
    if (n) machine.correction = fmin(fmax(machine.correction * exp(logarithms / n), 1e-2), 100);
    const char *text = machine_text(arena, &machine);
    if (!text) return diag_error(diags, 500, EXIT_LIMIT, NULL, "out of memory");
    const struct rt_piece piece = {text, strlen(text)};
    return rt_file_write(options->save_machine, &piece, 1, &why)
               ? 0
               : diag_refusal(diags, 620, EXIT_SYSTEM, "--save-machine", &why);
}
