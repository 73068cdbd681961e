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
#include "frontend/cli/generate_text.h"
#include "frontend/cli/start.h"
#include "ir/base/own.h"
#include "runtime/base/io/file.h"
#include "runtime/base/roles.h"

struct generate {
    struct cli *cli;
    struct compiled_model compiled;
    const struct rt_json *about; /* "generation" of the manifest */
    struct token_rows prompts;
    struct option_files inputs;  /* those that are not the prompts */
    struct option_texts stops;   /* texts of --stop */
    struct option_texts ids;     /* its token ids */
    struct tokenizer *tokenizer; /* NULL: there is none */
    struct texts *texts;         /* NULL: without a tokenizer */
    const char *directory;       /* for the prompts and the socket; NULL: not made yet */
    bool streams;                /* the only row is shown as it comes */
    int64_t shown;               /* tokens of it */
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

/* A member of location.json; NULL: there is none. */
static const struct rt_json *located(const struct generate *generate, const char *member) {
    struct rt_reason why;
    struct rt_json_document *document =
        own_json_below(generate->cli->arena, generate->compiled.directory, "location.json", &why);
    return document ? rt_json_member(rt_json_root(document), member) : NULL;
}

/* The model that the program was compiled from, as a shell reads it. */
static const char *model_path(const struct generate *generate) {
    const struct rt_json *files = located(generate, "files");
    const char *path = files && files->first ? rt_json_text(rt_json_member(files->first, "path")) : NULL;
    struct strbuf word;
    strbuf_init(&word, generate->cli->arena);
    strbuf_shell(&word, path && *path == '/' ? path : "MODEL.onnx");
    return strbuf_text(&word);
}

static int check_state(struct generate *generate) {
    struct cli *cli = generate->cli;
    generate->about = rt_json_member(generate->compiled.root, "generation");
    if (generate->about) return 0;
    diag_error(cli->diags, 807, EXIT_MISMATCH, diag_quote(cli->diags, cli->options->operand),
               "the program keeps no state from step to step, which generate needs");
    diag_help(cli->diags, "'rankc compile %s --state auto' compiles it so", model_path(generate));
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

/* The tokenizer --------------------------------------------------------------------------------------------------- */

/* The file beside the program, or where location.json says; NULL: there is none. */
static const char *find_tokenizer(const struct generate *generate) {
    struct arena *arena = generate->cli->arena;
    const char *directory = generate->compiled.directory;
    const char *copy = arena_printf(arena, "%s/tokenizer.json", directory);
    if (generate->cli->options->tokenizer) return generate->cli->options->tokenizer;
    if (access(copy, F_OK) == 0) return copy;
    const char *path = rt_json_text(located(generate, "tokenizer"));
    return path && access(path, F_OK) == 0 ? path : NULL;
}

static bool is_id(const char *text) {
    return strspn(text, "0123456789") == strlen(text);
}

static void take_stops(struct generate *generate) {
    const struct option_texts *given = &generate->cli->options->stops;
    for (int i = 0; i < given->all.n; i++) {
        const char *stop = given->all.at[i];
        VEC_PUSH(generate->cli->arena, is_id(stop) ? &generate->ids.all : &generate->stops.all, stop);
    }
}

/* Reads it if there is one; where a text is to be understood there must be. */
static int open_tokenizer(struct generate *generate) {
    struct cli *cli = generate->cli;
    const char *path = find_tokenizer(generate);
    take_stops(generate);
    if (path) generate->tokenizer = tokenizer_open(cli->arena, cli->diags, path);
    if (path && !generate->tokenizer) return -1;
    if (path || (!cli->options->prompts.all.n && !generate->stops.all.n)) return 0;
    diag_error(cli->diags, 200, EXIT_USAGE, NULL, "%s needs a tokenizer.json, and there is none beside the model",
               cli->options->prompts.all.n ? "--prompt" : "--stop TEXT");
    diag_help(cli->diags, "name one with --tokenizer FILE.json, or give token ids");
    return -1;
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
    if (ids && cli->options->prompts.all.n)
        return diag_error(cli->diags, 200, EXIT_USAGE, NULL, "--prompt and an --input of token ids exclude each other");
    if (ids) return prompts_of_file(&generate->prompts, ids, mask, cli);
    if (cli->options->prompts.all.n)
        return prompts_of_texts(&generate->prompts, &cli->options->prompts, generate->tokenizer, cli);
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
    if (generate->texts) return texts_step(generate->texts, rows, ids, ends);
    if (!generate->streams || rows != 1 || ids[0] < 0) return;
    printf("%s%" PRId64, generate->shown++ ? " " : "", ids[0]);
    fflush(stdout);
}

static double per_second(int64_t n, double ms) {
    return ms > 0 ? (double)n / ms * 1e3 : 0;
}

static void show_texts(const struct generate *generate) {
    for (int i = 0; i < generate->prompts.all.n; i++) {
        size_t bytes;
        const char *text = texts_row(generate->texts, i, &bytes);
        if (!generate->streams) fwrite(text, 1, bytes, stdout);
        putchar('\n');
    }
}

static void show_summary(const struct reported *reported) {
    fprintf(stderr, "rankc: prompt: %" PRId64 " tokens, %.1f per second; then %" PRId64 " tokens, %.1f per second\n",
            reported->prompt_tokens, per_second(reported->prompt_tokens, reported->prompt_ms), reported->tokens,
            per_second(reported->tokens, reported->ms));
}

static void show_result(const struct generate *generate, const struct reported *reported) {
    const struct cli *cli = generate->cli;
    if (cli->options->json) return;
    if (generate->texts) show_texts(generate);
    for (int i = 0; i < reported->rows.all.n && !generate->texts && !generate->streams; i++)
        show_row(&reported->rows.all.at[i]);
    if (generate->streams && !generate->texts) putchar('\n');
    fflush(stdout);
    if (reported->done && !cli->options->quiet) show_summary(reported);
}

/* OUT/text.jsonl: a JSON string for each row. */
static int write_texts(const struct generate *generate) {
    struct cli *cli = generate->cli;
    struct strbuf lines;
    strbuf_init(&lines, cli->arena);
    for (int i = 0; i < generate->prompts.all.n; i++) {
        struct rt_json_writer *writer = own_json_writer(cli->arena);
        size_t bytes;
        const char *text = texts_row(generate->texts, i, &bytes);
        rt_json_put_bytes(writer, text, bytes);
        const char *line = own_json_end(cli->arena, writer);
        if (!line) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
        strbuf_puts(&lines, line);
    }
    return write_text(cli, arena_printf(cli->arena, "%s/text.jsonl", cli->options->output_dir), strbuf_text(&lines));
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
    for (int i = 0; i < generate->ids.all.n; i++) add(&words, cli, "stop", generate->ids.all.at[i]);
    if (generate->stops.all.n) VEC_PUSH(cli->arena, &words.all, "--ask");
    if (options->output_dir) add(&words, cli, "output-dir", options->output_dir);
    return words;
}

/* After the ranks' end, whose status it returns unless something fails here. */
static int give(struct generate *generate, const struct reported *reported, int status) {
    struct cli *cli = generate->cli;
    const bool known = (!status || status == EXIT_INTERRUPTED) && reported->rows.all.n > 0;
    if (!known) return status;
    if (generate->texts && texts_finish(generate->texts, cli->diags) < 0) return -1;
    show_result(generate, reported);
    if (generate->texts && cli->options->output_dir && write_texts(generate) < 0) return -1;
    return status;
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
        listener_open(&listener, path_of(generate, "report"), take_step, generate->stops.all.n > 0, generate,
                      generate->cli) < 0)
        return -1;
    const int status = start_program(&generate->compiled, &words, &cli);
    listener_close(listener, &reported);
    return give(generate, &reported, status);
}

static int open_texts(struct generate *generate) {
    struct cli *cli = generate->cli;
    const int64_t rows = generate->prompts.all.n;
    generate->streams = rows == 1 && !cli->options->json && isatty(STDOUT_FILENO);
    if (!generate->tokenizer) return 0;
    generate->texts = texts_open(generate->tokenizer, &generate->stops, rows, generate->streams ? stdout : NULL, cli);
    return generate->texts ? 0 : -1;
}

static int generate_compiled(struct generate *generate) {
    if (check_state(generate) < 0 || open_tokenizer(generate) < 0 || read_prompts(generate) < 0 ||
        open_texts(generate) < 0 || make_directory(generate) < 0)
        return -1;
    const int status = start(generate);
    remove_directory(generate);
    texts_close(generate->texts);
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
