/* rankc verify DIR. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cli.h"
#include "frontend/cli/compiled_model.h"
#include "frontend/driver/driver.h"
#include "frontend/driver/output/temporary.h"
#include "frontend/driver/program/random_inputs.h"
#include "frontend/driver/sizes_at.h"
#include "ir/base/str.h"
#include "passes/train/lora.h"
#include "runtime/base/io/progress.h"
#include "runtime/base/npy.h"
#include "runtime/base/thread/clock.h"
#include "runtime/launch.h"

/* The runs whose outputs are compared: the plan, one rank, one rank in f64, and, if the program computes in f64, one
 * rank in f32. FULL: one rank with weights and caches of the model's types, if the compiled model has smaller ones.
 * MOVED and on, if the plan is farther from one rank in f64 than those allow: one rank with inputs that differ by their
 * rounding. They show how large errors of rounding are where one rank was close to the exact result by chance. */
enum { ALL, ONE, EXACT, ROUNDED, FULL, MOVED, RUNS = MOVED + 4 };
static const char *const run_names[RUNS] = {
    [ALL] = "all", [ONE] = "one",  [EXACT] = "exact", [ROUNDED] = "rounded", [FULL] = "full",
    "moved",       "moved by two", "moved by three",  "moved by four"};

struct comparison {
    const struct compiled_model *compiled;
    struct cli *cli;
    const char *work;         /* a temporary directory */
    bool has[RUNS];           /* the runs that were made with these inputs, of those that are not always made */
    int moved;                /* the run, if it is one of MOVED and on */
    double rounding;          /* of inputs */
    const int64_t *sizes;     /* of the inputs; NULL: none are open, or the typical ones */
    const char *weight_dtype; /* of the compiled model; NULL: none */
    bool copied;              /* --weights copy */
    enum choice cache_dtype;  /* likewise; CHOICE_NONE: none */
    const char *adapter;      /* of --adapter; NULL: the first, if there are some */
    int number;               /* of it; -1: none */
    const char *running;      /* what is run now */
    struct rt_progress progress;
};

struct words {
    VEC(const char *) all;
};

static void add_word(const struct comparison *comparison, struct words *words, const char *word) {
    VEC_PUSH(comparison->cli->arena, &words->all, word);
}

static int write_inputs(const struct comparison *comparison, const char *name, enum rt_dtype type,
                        struct words *words) {
    struct random_inputs inputs = {.sizes = comparison->sizes,
                                   .given = &comparison->cli->options->inputs,
                                   .moved = comparison->rounding,
                                   .turn = comparison->moved ? comparison->moved - MOVED + 1 : 0};
    const char *prefix = arena_printf(comparison->cli->arena, "%s/%s", comparison->work, name);
    if (random_inputs_write(&inputs, comparison->compiled->root, prefix, type, comparison->cli->arena,
                            comparison->cli->diags) < 0)
        return -1;
    for (int i = 0; i < inputs.all.n; i++) {
        add_word(comparison, words, "--input");
        add_word(comparison, words, inputs.all.at[i]);
    }
    return 0;
}

/* Called while a program runs. */
static void show_run(void *of) {
    struct comparison *comparison = of;
    char text[80];
    snprintf(text, sizeof text, "running: %s", comparison->running);
    rt_progress_say(&comparison->progress, text, -1, "");
}

/* Runs the program in `dir` with the inputs; its outputs go to work/<name>. Those that are compiled for the comparison
 * have one adapter. */
static int run(struct comparison *comparison, const char *dir, const char *name, enum rt_dtype type, int64_t ranks) {
    struct words words = {0};
    if (write_inputs(comparison, name, type, &words) < 0) return -1;
    if (comparison->adapter && dir == comparison->compiled->directory) {
        add_word(comparison, &words, "--adapter");
        add_word(comparison, &words, comparison->adapter);
    }
    add_word(comparison, &words, "--output-dir");
    add_word(comparison, &words, arena_printf(comparison->cli->arena, "%s/%s", comparison->work, name));
    if (comparison->cli->options->json) add_word(comparison, &words, "--json");
    add_word(comparison, &words, "--quiet"); /* the progress shown is that of all runs */
    add_word(comparison, &words, NULL);
    const struct rt_launch launch = {.program = arena_printf(comparison->cli->arena, "%s/build/run", dir),
                                     .arguments = (const char *const *)words.all.at,
                                     .ranks = (int)ranks,
                                     .json = comparison->cli->options->json,
                                     .no_results = true,
                                     .watch = show_run,
                                     .watched = comparison};
    const int status = rt_launch(&launch);
    rt_progress_end(&comparison->progress);
    return status;
}

/* Compiles and runs the model on one rank; `type`: computing in that type, RT_DTYPE_NONE: in the model's. full: caches
 * are the model's, not of --cache-dtype, and so are weights, unless they are stored as --weight-dtype has them. */
static int run_whole(struct comparison *comparison, const char *name, enum rt_dtype type, bool full) {
    struct cli *cli = comparison->cli;
    const enum choice dtype = type == RT_F64 ? OPT_DTYPE_F64 : type == RT_F32 ? OPT_DTYPE_F32 : CHOICE_NONE;
    if (driver_compile_whole(comparison->compiled->directory, comparison->work, name, dtype,
                             full && !comparison->copied ? NULL : comparison->weight_dtype,
                             full ? CHOICE_NONE : comparison->cache_dtype,
                             (int)random_inputs_micro_batches(comparison->compiled->root), comparison->number,
                             cli->options->quiet || cli->options->json, cli->arena, cli->diags) < 0)
        return -1;
    return run(comparison, arena_printf(cli->arena, "%s/graph/%s", comparison->work, name), name, type, 1);
}

/* The largest finite difference of a run from one rank in f64. */
static double distance_of(const struct rt_tensor *run, const struct rt_tensor *exact) {
    double distance = 0;
    for (int64_t i = 0; i < exact->count; i++) {
        const double away = fabs(rt_tensor_element(run, i) - rt_tensor_element(exact, i));
        if (isfinite(away)) distance = fmax(distance, away);
    }
    return distance;
}

/* The largest difference allowed between the plan and the result in f64. If one rank overflows, the plan may too. The
 * rounding error of an f64 program is estimated by that of f32 times the quotient of their epsilons. */
static double allowed(const struct rt_tensor run[RUNS]) {
    double largest = 0;
    const enum rt_dtype type = run[ONE].dtype;
    const struct rt_tensor *one = type == RT_F64 ? &run[ROUNDED] : &run[ONE];
    if (!rt_dtype_is_float(type)) return 0;
    const double scale = rt_dtypes[type].epsilon / rt_dtypes[one->dtype].epsilon;
    for (int64_t i = 0; i < one->count; i++)
        if (isfinite(rt_tensor_element(&run[EXACT], i)))
            largest = fmax(largest, fabs(rt_tensor_element(&run[EXACT], i)));
    double distance = distance_of(one, &run[EXACT]);
    for (int i = MOVED; i < RUNS && run[i].count == one->count; i++)
        distance = fmax(distance, distance_of(&run[i], &run[EXACT]));
    return 2 * scale * distance + 8 * rt_dtypes[type].epsilon * largest;
}

/* The first element of the plan that is farther from one rank in f64 than `bound`; -1: none. */
static int64_t first_beyond(const struct rt_tensor run[RUNS], double bound) {
    for (int64_t i = 0; i < run[ONE].count; i++) {
        const double all = rt_tensor_element(&run[ALL], i), one = rt_tensor_element(&run[ONE], i),
                     exact = rt_tensor_element(&run[EXACT], i);
        if (all != one && !(isnan(all) && isnan(one)) && !(fabs(all - exact) <= bound)) return i;
    }
    return -1;
}

static int compare_tensors(const struct comparison *comparison, const char *name, const struct rt_tensor run[RUNS]) {
    const double bound = allowed(run);
    const int64_t at = first_beyond(run, bound);
    const char *output = diag_quote(comparison->cli->diags, name);
    if (at >= 0)
        return diag_error(comparison->cli->diags, 1104, EXIT_MISMATCH, NULL,
                          "output %s, element %lld: the plan gives %.9g, one rank %.9g, the f64 reference %.9g "
                          "(allowed difference %.3g)",
                          output, (long long)at, rt_tensor_element(&run[ALL], at), rt_tensor_element(&run[ONE], at),
                          rt_tensor_element(&run[EXACT], at), bound);
    cli_tell(comparison->cli, "output %s: at most %.3g from the f64 reference, allowed are %.3g", output,
             distance_of(&run[ALL], &run[EXACT]), bound);
    return 0;
}

static int read_output(const struct comparison *comparison, int run, const char *file, struct rt_tensor *tensor) {
    struct rt_reason why;
    const char *path = arena_printf(comparison->cli->arena, "%s/%s/%s", comparison->work, run_names[run], file);
    return rt_npy_read(tensor, path, &why) ? 0 : diag_refusal(comparison->cli->diags, 601, EXIT_SYSTEM, NULL, &why);
}

static int read_rounded(struct comparison *comparison, const char *file, struct rt_tensor *tensor) {
    comparison->running = "again, the model on one rank in f32";
    const int status = comparison->has[ROUNDED] ? 0 : run_whole(comparison, run_names[ROUNDED], RT_F32, false);
    comparison->has[ROUNDED] = !status;
    return status ? status : read_output(comparison, ROUNDED, file, tensor);
}

/* Runs the program of run `of`, one rank that computes in `type`, again with moved inputs, and reads the outputs. */
static int read_moved(struct comparison *comparison, int of, enum rt_dtype type, const char *file,
                      struct rt_tensor outputs[RUNS]) {
    const char *program = arena_printf(comparison->cli->arena, "%s/graph/%s", comparison->work, run_names[of]);
    int status = 0;
    comparison->running = "again, one rank with inputs that are rounded otherwise";
    comparison->rounding = rt_dtypes[type].epsilon;
    for (int i = MOVED; i < RUNS && !status; i++) {
        comparison->moved = i;
        if (!comparison->has[i])
            status = run(comparison, program, run_names[i], of == ROUNDED ? RT_F32 : RT_DTYPE_NONE, 1);
        comparison->has[i] = !status;
        if (!status) status = read_output(comparison, i, file, &outputs[i]);
    }
    comparison->moved = 0;
    return status;
}

static bool same_shapes(const struct rt_tensor run[RUNS]) {
    return run[ALL].dtype == run[ONE].dtype && run[ALL].count == run[ONE].count && run[EXACT].count == run[ONE].count &&
           (run[ONE].dtype != RT_F64 || run[ROUNDED].count == run[ONE].count);
}

static int compare_file(struct comparison *comparison, const char *name, const char *file) {
    struct rt_tensor run[RUNS] = {0};
    int status = 0;
    for (int i = 0; i < ROUNDED && !status; i++) status = read_output(comparison, i, file, &run[i]);
    const enum rt_dtype type = run[ONE].dtype;
    if (!status && type == RT_F64) status = read_rounded(comparison, file, &run[ROUNDED]);
    if (!status && !same_shapes(run))
        status = diag_error(comparison->cli->diags, 1104, EXIT_MISMATCH, NULL,
                            "output %s has another data type or shape than on one rank",
                            diag_quote(comparison->cli->diags, name));
    if (!status && rt_dtype_is_float(type) && first_beyond(run, allowed(run)) >= 0)
        status = read_moved(comparison, type == RT_F64 ? ROUNDED : ONE, type == RT_F64 ? RT_F32 : type, file, run);
    if (!status) status = compare_tensors(comparison, name, run);
    for (int i = 0; i < RUNS; i++) rt_tensor_free(&run[i]);
    return status;
}

/* Calls `each` for the outputs. */
static int for_outputs(struct comparison *comparison,
                       int (*each)(struct comparison *comparison, const char *name, const char *file)) {
    struct rt_reason why;
    struct rt_json_document *document = own_json(
        comparison->cli->arena, arena_printf(comparison->cli->arena, "%s/one/outputs.json", comparison->work), &why);
    if (!document) return diag_refusal(comparison->cli->diags, 601, EXIT_SYSTEM, NULL, &why);
    const struct rt_json *outputs = rt_json_member(rt_json_root(document), "outputs");
    int status = 0;
    for (const struct rt_json *o = rt_json_first(outputs); o; o = o->next) {
        const char *name = rt_json_text(rt_json_member(o, "name")), *file = rt_json_text(rt_json_member(o, "file"));
        if (!name || !file || each(comparison, name, file) < 0) status = -1;
    }
    arena_release(comparison->cli->arena, document);
    return status;
}

/* The index of the largest of n elements from `first` on. */
static int64_t largest_at(const struct rt_tensor *t, int64_t first, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (rt_tensor_element(t, first + i) > rt_tensor_element(t, first + at)) at = i;
    return at;
}

/* Differences from the result with the model's own types, of elements that are finite in both, and in how many rows -
 * of logits, those of a token - the largest element is the same. */
static void tell_differences(const struct comparison *comparison, const char *name, const struct rt_tensor *small,
                             const struct rt_tensor *full) {
    const int64_t n = full->ndim ? full->dims[full->ndim - 1] : 1, rows = n ? full->count / n : 0;
    double sum = 0, square = 0, all = 0, most = 0;
    int64_t same = 0, finite = 0;
    for (int64_t i = 0; i < full->count; i++) {
        const double exact = rt_tensor_element(full, i), away = fabs(rt_tensor_element(small, i) - exact);
        if (!isfinite(away)) continue; /* neither is the difference of infinities */
        sum += away, square += away * away, all += exact * exact, most = fmax(most, away);
        finite++;
    }
    for (int64_t r = 0; r < rows; r++) same += largest_at(small, r * n, n) == largest_at(full, r * n, n);
    if (comparison->cli->options->quiet || comparison->cli->options->json || !full->count) return;
    printf("output %s: small weights and caches change elements by %.3g on average and %.3g at most, %.3g %% of their "
           "root mean square",
           diag_quote(comparison->cli->diags, name), finite ? sum / (double)finite : 0, most,
           all > 0 ? 100 * sqrt(square / all) : 0);
    if (finite < full->count)
        printf("; of %lld elements %lld are not finite, with these or without", (long long)full->count,
               (long long)(full->count - finite));
    if (n > 1)
        printf("; the largest of %lld is the same in %lld of %lld rows", (long long)n, (long long)same,
               (long long)rows);
    putchar('\n');
}

static int tell_loss(struct comparison *comparison, const char *name, const char *file) {
    struct rt_tensor small = {0}, full = {0};
    int status = read_output(comparison, ONE, file, &small);
    if (!status) status = read_output(comparison, FULL, file, &full);
    if (!status && rt_dtype_is_float(full.dtype) && small.count == full.count)
        tell_differences(comparison, name, &small, &full);
    rt_tensor_free(&small);
    rt_tensor_free(&full);
    return status;
}

static int compare(struct comparison *comparison) {
    comparison->running = "1 of 3, the model on one rank";
    int status = run_whole(comparison, run_names[ONE], RT_DTYPE_NONE, false);
    comparison->running = "2 of 3, the model on one rank in f64";
    if (!status) status = run_whole(comparison, run_names[EXACT], RT_F64, false);
    comparison->running = "3 of 3, the plan";
    if (!status)
        status = run(comparison, comparison->compiled->directory, run_names[ALL], RT_DTYPE_NONE,
                     comparison->compiled->runtime_ngpus);
    if (!status) status = for_outputs(comparison, compare_file);
    const bool weights = comparison->weight_dtype && !comparison->copied, quiet = comparison->cli->options->quiet;
    if (!status && comparison->weight_dtype && comparison->copied && !quiet && !comparison->cli->options->json)
        puts("what smaller weights change is not known: --weights copy has stored these alone");
    if (status || (!weights && comparison->cache_dtype == CHOICE_NONE)) return status;
    comparison->running = "the model with weights and caches of its own types";
    status = run_whole(comparison, run_names[FULL], RT_DTYPE_NONE, true);
    return status ? status : for_outputs(comparison, tell_loss);
}

/* The open sizes of the manifest. Those that the program keeps are 0: states are empty. */
static struct open_sizes *read_sizes(const struct compiled_model *compiled, struct arena *arena) {
    const struct rt_json *sizes = rt_json_member(compiled->root, "sizes");
    struct open_sizes *open = open_new(arena, 0);
    for (const struct rt_json *s = rt_json_first(sizes); s && open->all.n < OPEN_SIZES; s = s->next) {
        struct open_range range = {0};
        const char *name = rt_json_text(rt_json_member(s, "name"));
        if (!name || !rt_json_int(rt_json_member(s, "least"), &range.least) ||
            !rt_json_int(rt_json_member(s, "most"), &range.most) ||
            !rt_json_int(rt_json_member(s, "step"), &range.step) || range.step < 1 ||
            !rt_json_int(rt_json_member(s, "typical"), &range.typical))
            continue;
        if (rt_json_member(s, "next")) range = open_fixed(0);
        VEC_PUSH(arena, &open->all, ((struct open_size){name, range, 0}));
    }
    return open;
}

/* The value that --dim gives the name in set number `set`: of several the one of that number, else the last. False: it
 * gives none. */
static bool size_in_set(const struct option_sizes *dims, const char *name, int set, struct option_size *out) {
    int n = 0;
    for (int i = 0; i < dims->all.n + dims->more.n; i++) {
        const struct option_size *given = i < dims->all.n ? &dims->all.at[i] : &dims->more.at[i - dims->all.n];
        if (strcmp(given->name, name) == 0 && n++ <= set) *out = *given;
    }
    return n > 0;
}

/* Sets of sizes: as many as the name has values that --dim gives most often. */
static int count_sets(const struct option_sizes *dims) {
    int most = 1;
    for (int i = 0; i < dims->all.n; i++) {
        int n = 1;
        for (int k = 0; k < dims->more.n; k++) n += strcmp(dims->more.at[k].name, dims->all.at[i].name) == 0;
        if (n > most) most = n;
    }
    return most;
}

/* Compares with inputs of each set of sizes that --dim gives; sizes that it does not give are the typical ones. */
static int compare_sets(struct comparison *comparison) {
    struct cli *cli = comparison->cli;
    const struct option_sizes *dims = &cli->options->dims;
    struct open_sizes *open = read_sizes(comparison->compiled, cli->arena);
    int status = 0;
    for (int set = 0; set < count_sets(dims) && !status; set++) {
        int64_t sizes[OPEN_SIZES];
        struct option_size given;
        const char *said = "";
        for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].range.typical;
        for (int i = 0; i < dims->all.n && !status; i++)
            if (size_in_set(dims, dims->all.at[i].name, set, &given))
                status = sizes_at(open, &given, 1, cli->diags, sizes);
        if (status) return status;
        for (int i = 0; i < open->all.n; i++)
            said = arena_printf(cli->arena, "%s%s%s=%lld", said, i ? ", " : "",
                                diag_quote(cli->diags, open->all.at[i].name), (long long)sizes[i]);
        if (*said) cli_tell(cli, "sizes %s:", said);
        comparison->sizes = open->all.n ? sizes : NULL;
        memset(comparison->has, 0, sizeof comparison->has);
        status = compare(comparison);
    }
    return status;
}

static enum choice cache_dtype_of(const struct compiled_model *compiled) {
    static const enum choice choices[] = {OPT_CACHE_DTYPE_BF16, OPT_CACHE_DTYPE_FP16, OPT_CACHE_DTYPE_INT8};
    const char *word = rt_json_text(rt_json_member(compiled->root, "cache_dtype"));
    for (size_t i = 0; word && i < sizeof choices / sizeof *choices; i++)
        if (strcmp(choice_word(choices[i]), word) == 0) return choices[i];
    return CHOICE_NONE;
}

/* Sets comparison->number; E0205 if the program has no such adapter. */
static int find_adapter(struct comparison *comparison) {
    struct diags *diags = comparison->cli->diags;
    VEC(const char *) names = {0};
    comparison->number = comparison->adapter && strcmp(comparison->adapter, LORA_NO_SET) == 0 ? -1 : 0;
    for (const struct rt_json *a = rt_json_items(comparison->compiled->root, "adapters"); a; a = a->next) {
        VEC_PUSH(comparison->cli->arena, &names, rt_json_text(a) ? rt_json_text(a) : "");
        if (comparison->adapter && strcmp(names.at[names.n - 1], comparison->adapter) == 0)
            return comparison->number = names.n - 1, 0;
    }
    if (!comparison->adapter || (comparison->number < 0 && names.n)) return 0;
    VEC_PUSH(comparison->cli->arena, &names, NULL);
    diag_error(diags, 205, EXIT_USAGE, "--adapter", "the program has no adapter %s",
               diag_quote(diags, comparison->adapter));
    const char *near = str_nearest(comparison->adapter, names.at);
    return near ? diag_help(diags, "did you mean '%s'?", near) : -1;
}

/* --numeric: runs the compiled model and the same graph on one rank with the same random inputs, and compares their
 * outputs (allowed). With small weights or caches, one rank has the same, and it is told what they change. 0, -1 with
 * E1104 or another diagnostic, or the exit code of a program that failed. */
static int numeric_compare(const struct compiled_model *compiled, struct cli *cli) {
    const struct option_texts *adapters = &cli->options->adapters;
    struct comparison comparison = {.compiled = compiled,
                                    .adapter = adapters->all.n ? adapters->all.at[adapters->all.n - 1] : NULL,
                                    .cache_dtype = cache_dtype_of(compiled),
                                    .cli = cli,
                                    .copied = rt_json_member(compiled->root, "weights") != NULL,
                                    .weight_dtype = rt_json_text(rt_json_member(compiled->root, "weight_dtype"))};
    if (find_adapter(&comparison) < 0) return -1;
    comparison.work = temporary_make("verify", cli->arena, cli->diags);
    if (!comparison.work) return -1;
    rt_progress_begin(&comparison.progress, 0, cli->options->quiet || cli->options->json);
    int status = compare_sets(&comparison);
    temporary_remove(comparison.work);
    return status;
}

/* Options of --numeric, and for which of their values the proof holds. */
static const struct {
    enum option_id option;
    const char *all;
} of_numeric[] = {{OPT_RUNTIME_NGPUS, "any number of scale units"},
                  {OPT_INPUT, "all values"},
                  {OPT_DIM, "all sizes"},
                  {OPT_ADAPTER, "all adapters"}};

int cli_verify(struct cli *cli) {
    struct compiled_model compiled;
    for (size_t i = 0; i < sizeof of_numeric / sizeof *of_numeric && !cli->options->numeric; i++)
        if (cli->options->given[of_numeric[i].option])
            return diag_error(cli->diags, 200, EXIT_USAGE, NULL, "--%s needs --numeric: the proof holds for %s",
                              option_rows[of_numeric[i].option].name, of_numeric[i].all);
    if (compiled_open(&compiled, cli->options->operand, cli)) return -1;
    const int64_t started = rt_now_ms();
    int status = driver_verify(compiled.directory, cli->options, cli->arena, cli->diags);
    if (!status)
        cli_tell(cli,
                 "graph.rir with plan.json gives these files again, and every level of it is equivalent to the model: "
                 "%.1f s",
                 (double)(rt_now_ms() - started) / 1000);
    if (!status && cli->options->numeric) status = numeric_compare(&compiled, cli);
    const char *name = diag_quote(cli->diags, compiled.directory);
    if (!status && cli->options->json)
        puts("{\"format\":1,\"verified\":true}");
    else if (!status && !cli->options->quiet)
        printf("%s computes the same as the model on one device\n", name);
    compiled_close(&compiled);
    return status;
}
