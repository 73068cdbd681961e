/* rankc generate DIR|MODEL.onnx: a decoder that was compiled with --state writes tokens. The ranks do that by
 * themselves (runtime/program/main_generate.c); this process gives them the prompts as ids, and shows what rank 0
 * reports. */
#include "frontend/cli/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/cli/cache.h"
#include "frontend/cli/start.h"
#include "runtime/base/io/file.h"
#include "runtime/base/roles.h"

struct generate {
    struct cli *cli;
    struct compiled_model compiled;
    const struct rt_json *about; /* "generation" of the manifest */
    struct token_rows prompts;
    struct option_files inputs; /* those that are not the prompts */
    const char *directory;      /* for the prompts and the socket; NULL: not made yet */
    bool streams;               /* the only row is shown as it comes */
    int64_t shown;              /* tokens of it */
};

/* Numbers that the program gets as they are. */
static const struct number_row {
    enum option_id id;
    size_t field; /* a text of struct options */
    double least, most;
    bool above; /* `least` itself is too small */
    const char *must;
} number_rows[] = {
    {OPT_TEMPERATURE, offsetof(struct options, temperature), 0, 1e6, false, "a number from 0 to 1e6"},
    {OPT_TOP_P, offsetof(struct options, top_p), 0, 1, true, "a number above 0 and up to 1"},
    {OPT_MIN_P, offsetof(struct options, min_p), 0, 1, false, "a number from 0 to 1"},
    {OPT_REPETITION_PENALTY, offsetof(struct options, repetition_penalty), 0, 1e6, true,
     "a number above 0 and up to 1e6"},
};
enum { NUMBER_ROWS = sizeof number_rows / sizeof *number_rows };

static const char *number_text(const struct options *options, const struct number_row *row) {
    return *(const char *const *)((const char *)options + row->field);
}

static int check_numbers(struct cli *cli) {
    for (int i = 0; i < NUMBER_ROWS; i++) {
        const char *text = number_text(cli->options, &number_rows[i]);
        char *end;
        if (!text) continue;
        const double value = strtod(text, &end);
        if (end != text && !*end && value <= number_rows[i].most &&
            (number_rows[i].above ? value > number_rows[i].least : value >= number_rows[i].least))
            continue;
        return diag_error(cli->diags, 205, EXIT_USAGE, NULL, "--%s must be %s, not %s",
                          option_rows[number_rows[i].id].name, number_rows[i].must, diag_quote(cli->diags, text));
    }
    return 0;
}

/* The program --------------------------------------------------------------------------------------------------- */

static int check_state(struct generate *generate) {
    struct cli *cli = generate->cli;
    generate->about = rt_json_member(generate->compiled.root, "generation");
    if (generate->about) return 0;
    diag_error(cli->diags, 807, EXIT_MISMATCH, diag_quote(cli->diags, cli->options->operand),
               "the program keeps no state from step to step, which generate needs");
    diag_help(cli->diags, "'rankc compile MODEL.onnx --state auto' compiles it so");
    return -1;
}

/* The word after INPUT= of the last --role for the input, else the manifest's; NULL: none. */
static const char *role_of(const struct generate *generate, const char *input) {
    const struct option_texts *roles = &generate->cli->options->roles;
    const size_t length = strlen(input);
    for (int i = roles->all.n - 1; i >= 0; i--)
        if (strncmp(roles->all.at[i], input, length) == 0 && roles->all.at[i][length] == '=')
            return roles->all.at[i] + length + 1;
    return rt_json_text(rt_json_member(rt_json_member(generate->about, "roles"), input));
}

/* True if --input of this name has the prompts: the input with the role, or the name that most models give it. */
static bool has_role(const struct generate *generate, const char *input, enum rt_role role, const char *usual) {
    const char *word = role_of(generate, input);
    return word ? strcmp(word, rt_role_row(role)->word) == 0 : strcmp(input, usual) == 0;
}

/* Prompts --------------------------------------------------------------------------------------------------------- */

static int read_prompts(struct generate *generate) {
    struct cli *cli = generate->cli;
    const char *ids = NULL, *mask = NULL;
    for (int i = 0; i < cli->options->inputs.all.n; i++) {
        const struct option_file *input = &cli->options->inputs.all.at[i];
        if (has_role(generate, input->name, RT_ROLE_IDS, "input_ids"))
            ids = input->path;
        else if (has_role(generate, input->name, RT_ROLE_MASK, "attention_mask"))
            mask = input->path;
        else
            VEC_PUSH(cli->arena, &generate->inputs.all, *input);
    }
    if (ids) return prompts_of_file(&generate->prompts, ids, mask, cli);
    diag_error(cli->diags, 200, EXIT_USAGE, NULL, "there is no prompt");
    diag_help(cli->diags, "--prompt TEXT, or --input input_ids=FILE.npy");
    return -1;
}

/* A directory of this user alone, whose name is short enough for a socket. */
static int make_directory(struct generate *generate) {
    struct cli *cli = generate->cli;
    const char *place = getenv("TMPDIR");
    if (!place || *place != '/' || strlen(place) > 64) place = "/tmp";
    char *path = arena_printf(cli->arena, "%s/rankc-generate-XXXXXX", place);
    if (!mkdtemp(path)) return diag_errno(cli->diags, 611, NULL, "create", path);
    generate->directory = path;
    return 0;
}

static const char *path_of(const struct generate *generate, const char *name) {
    return arena_printf(generate->cli->arena, "%s/%s", generate->directory, name);
}

static int write_text(struct cli *cli, const char *path, const char *text) {
    struct rt_reason why;
    if (rt_file_write(path, &(struct rt_piece){text, strlen(text)}, 1, &why)) return 0;
    return diag_refusal(cli->diags, 611, EXIT_SYSTEM, diag_quote(cli->diags, path), &why);
}

static void remove_directory(const struct generate *generate) {
    if (!generate->directory) return;
    unlink(path_of(generate, "prompts"));
    unlink(path_of(generate, "report"));
    rmdir(generate->directory);
}

/* What is shown -------------------------------------------------------------------------------------------------- */

static void show_row(const struct token_row *row) {
    for (int i = 0; i < row->ids.n; i++) printf("%s%" PRId64, i ? " " : "", row->ids.at[i]);
    putchar('\n');
}

static void take_step(void *context, int64_t rows, const int64_t *ids, bool *ends) {
    struct generate *generate = context;
    (void)ends;
    if (!generate->streams || rows != 1 || ids[0] < 0) return;
    printf("%s%" PRId64, generate->shown++ ? " " : "", ids[0]);
    fflush(stdout);
}

static double per_second(int64_t n, double ms) {
    return ms > 0 ? (double)n / ms * 1e3 : 0;
}

static void show_result(const struct generate *generate, const struct reported *reported) {
    const struct cli *cli = generate->cli;
    if (cli->options->json) return;
    if (generate->streams && generate->shown) putchar('\n');
    for (int i = 0; i < reported->rows.all.n && !generate->streams; i++) show_row(&reported->rows.all.at[i]);
    fflush(stdout);
    if (!reported->done || cli->options->quiet) return;
    fprintf(stderr,
            "rankc: prompt of %" PRId64 " tokens, %.1f per second; %" PRId64 " steps' tokens, %.1f per second\n",
            reported->prompt_tokens, per_second(reported->prompt_tokens, reported->prompt_ms), reported->tokens,
            per_second(reported->tokens, reported->ms));
}

/* Starting -------------------------------------------------------------------------------------------------------- */

static void add(struct option_texts *words, struct cli *cli, const char *name, const char *value) {
    VEC_PUSH(cli->arena, &words->all, arena_printf(cli->arena, "--%s=%s", name, value));
}

static struct option_texts program_words(const struct generate *generate) {
    static const enum option_id counts[] = {OPT_MAX_NEW_TOKENS, OPT_TOP_K, OPT_SEED};
    struct cli *cli = generate->cli;
    const struct options *options = cli->options;
    struct option_texts words = {0};
    add(&words, cli, "generate", path_of(generate, "prompts"));
    add(&words, cli, "report", path_of(generate, "report"));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (options->given[counts[i]])
            add(&words, cli, option_rows[counts[i]].name, options_text(options, counts[i], cli->arena));
    for (int i = 0; i < NUMBER_ROWS; i++)
        if (number_text(options, &number_rows[i]))
            add(&words, cli, option_rows[number_rows[i].id].name, number_text(options, &number_rows[i]));
    for (int i = 0; i < options->roles.all.n; i++) add(&words, cli, "role", options->roles.all.at[i]);
    for (int i = 0; i < options->stops.all.n; i++) add(&words, cli, "stop", options->stops.all.at[i]);
    if (options->output_dir) add(&words, cli, "output-dir", options->output_dir);
    return words;
}

static int start(struct generate *generate) {
    struct cli cli = *generate->cli;
    struct options options = *cli.options;
    struct listener *listener;
    struct reported reported = {0};
    const struct option_texts words = program_words(generate);
    options.inputs = generate->inputs;
    cli.options = &options;
    if (write_text(&cli, path_of(generate, "prompts"), prompts_text(&generate->prompts, &cli)) < 0 ||
        listener_open(&listener, path_of(generate, "report"), take_step, false, generate, generate->cli) < 0)
        return -1;
    const int status = start_program(&generate->compiled, &words, &cli);
    listener_close(listener, &reported);
    show_result(generate, &reported);
    return status;
}

static int generate_compiled(struct generate *generate) {
    struct cli *cli = generate->cli;
    if (check_state(generate) < 0 || read_prompts(generate) < 0 || make_directory(generate) < 0) return -1;
    generate->streams = generate->prompts.all.n == 1 && !cli->options->json && isatty(STDOUT_FILENO);
    const int status = start(generate);
    remove_directory(generate);
    return status;
}

/* Compiles the model with state, and bounds from the configuration beside it. */
static int compile_with_state(const struct options *given, const char *directory, struct cli *cli,
                              struct driver_result *result) {
    (void)directory;
    return driver_compile(given, cli->arena, cli->diags, result);
}

int cli_generate(struct cli *cli) {
    struct generate generate = {.cli = cli};
    const bool is_compiled = is_directory(cli->options->operand);
    if (check_numbers(cli) < 0 || (is_compiled && compiled_refuses_options(cli))) return -1;
    if (is_compiled ? compiled_open(&generate.compiled, cli->options->operand, cli)
                    : cache_open(&generate.compiled, compile_with_state, cli))
        return -1;
    const int status = generate_compiled(&generate);
    compiled_close(&generate.compiled);
    return status;
}
