/* rankc generate DIR|MODEL.onnx: a decoder that was compiled with --state writes tokens. The ranks do that by
 * themselves (runtime/program/main_generate.c); this process gives them the prompts as ids, and shows what rank 0
 * reports. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/cli/cache.h"
#include "frontend/cli/generate_encoders.h"
#include "frontend/cli/generate_listen.h"
#include "frontend/cli/generate_text.h"
#include "frontend/cli/start.h"
#include "frontend/config/generation.h"
#include "frontend/driver/output/temporary.h"
#include "ir/base/own.h"
#include "runtime/base/io/file.h"
#include "runtime/base/npy.h"
#include "runtime/base/roles.h"

struct generate {
    struct cli *cli;
    struct compiled_model compiled;
    const struct rt_json *about; /* "generation" of the manifest */
    struct encoders *encoders;   /* NULL: there are none */
    struct token_rows source;    /* token ids of the encoder */
    struct token_rows prompts;   /* and of the decoder */
    struct option_files inputs;  /* those that are not the prompts */
    struct option_texts stops;   /* texts of --stop */
    struct option_texts ids;     /* its token ids */
    struct tokenizer *tokenizer; /* NULL: there is none */
    struct texts *texts;         /* NULL: without a tokenizer */
    const char *directory;       /* for the prompts and the socket; NULL: not made yet */
    bool streams;                /* the only row is shown as it comes */
    int64_t shown;               /* tokens of it */
};

/* The ranges of numbers that the program gets as texts. */
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

static int check_numbers(struct cli *cli) {
    for (int i = 0; i < NUMBER_ROWS; i++) {
        const char *text = *(const char *const *)((const char *)cli->options + number_rows[i].field);
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
    struct strbuf word = {.arena = generate->cli->arena};
    strbuf_shell(&word, path && *path == '/' ? path : "MODEL.onnx");
    return strbuf_text(&word);
}

static int check_state(struct generate *generate) {
    struct cli *cli = generate->cli;
    generate->about = rt_json_member(generate->compiled.root, "generation");
    if (generate->about) return 0;
    diag_error(cli->diags, 807, EXIT_MISMATCH, diag_quote(cli->diags, cli->options->operand),
               "the program keeps no state from step to step, which generate needs");
    return diag_help(cli->diags,
                     "'rankc generate %s ..' compiles a decoder with its caches as state; so does --state auto",
                     model_path(generate));
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
    VEC_EACH_VALUE(&given->all, i, const char *stop)
        VEC_PUSH(generate->cli->arena, is_id(stop) ? &generate->ids.all : &generate->stops.all, stop);
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
    return diag_help(cli->diags, "name one with --tokenizer FILE.json, or give token ids");
}

/* Files of token ids and of their mask; NULL: none. */
struct prompt_files {
    const char *ids, *mask;
};

/* Gives each --input to what takes it. The decoder's prompts may have the names that they have beside an encoder. */
static struct prompt_files sort_inputs(struct generate *generate) {
    const struct option_files *inputs = &generate->cli->options->inputs;
    const bool encoded = generate->encoders != NULL;
    struct prompt_files files = {0};
    VEC_EACH(&inputs->all, i, const struct option_file *input) {
        if (encoded && encoders_take(generate->encoders, input)) continue;
        if (has_role(generate, input->name, RT_ROLE_IDS, encoded ? "decoder_input_ids" : "input_ids"))
            files.ids = input->path;
        else if (has_role(generate, input->name, RT_ROLE_MASK, encoded ? "decoder_attention_mask" : "attention_mask"))
            files.mask = input->path;
        else
            VEC_PUSH(generate->cli->arena, &generate->inputs.all, *input);
    }
    return files;
}

/* Prompts of an encoder or a decoder: of a file, else of --prompt; none is an error unless `optional`. */
static int read_rows(struct generate *generate, struct prompt_files files, bool optional, struct token_rows *rows) {
    struct cli *cli = generate->cli;
    if (files.ids && cli->options->prompts.all.n)
        return diag_error(cli->diags, 200, EXIT_USAGE, NULL, "--prompt and an --input of token ids exclude each other");
    if (files.ids) return prompts_of_file(rows, files.ids, files.mask, cli);
    if (cli->options->prompts.all.n) return prompts_of_texts(rows, &cli->options->prompts, generate->tokenizer, cli);
    if (optional) return 0;
    diag_error(cli->diags, 200, EXIT_USAGE, NULL, "there is no prompt");
    return diag_help(cli->diags, "--prompt TEXT, or --input input_ids=FILE.npy");
}

/* The decoder's prompts beside an encoder: each row is that of the model's configuration. */
static int begin_rows(struct generate *generate) {
    struct cli *cli = generate->cli;
    const struct rt_json *start = rt_json_member(generate->about, "start");
    const int64_t rows = encoders_rows(generate->encoders, &generate->source);
    struct token_row row = {0};
    for (const struct rt_json *id = start ? start->first : NULL; id; id = id->next) {
        int64_t number;
        if (rt_json_int(id, &number)) VEC_PUSH(cli->arena, &row.ids, number);
    }
    if (!row.ids.n) {
        diag_error(cli->diags, 200, EXIT_USAGE, NULL,
                   "no configuration beside the model gives the decoder's first token (decoder_start_token_id)");
        return diag_help(cli->diags, "--input decoder_input_ids=FILE.npy gives it");
    }
    for (int64_t i = 0; i < (rows > 0 ? rows : 1); i++) VEC_PUSH(cli->arena, &generate->prompts.all, row);
    return 0;
}

/* The decoder's first tokens from a file: a row for each of the encoder's. */
static int read_begin(struct generate *generate, struct prompt_files files) {
    struct cli *cli = generate->cli;
    const int64_t rows = encoders_rows(generate->encoders, &generate->source);
    if (prompts_of_file(&generate->prompts, files.ids, files.mask, cli) < 0) return -1;
    if (rows < 0 || rows == generate->prompts.all.n) return 0;
    return diag_error(cli->diags, 915, EXIT_MALFORMED, diag_quote(cli->diags, files.ids),
                      "there are %d row(s) of the decoder's first tokens, but %" PRId64 " for the encoder",
                      generate->prompts.all.n, rows);
}

/* The role of an input of the decoder, for encoders_link. */
static enum rt_role decoder_role(const void *context, const char *name) {
    const struct generate *generate = context;
    const char *word = role_of(generate, name);
    for (int i = 0; i < generate->inputs.all.n; i++)
        if (strcmp(generate->inputs.all.at[i].name, name) == 0) return RT_ROLE_GIVEN;
    return word ? rt_role_by_word(word) : RT_ROLE_NONE;
}

/* The encoder has the prompts, the decoder begins with tokens of its own. */
static int read_encoded(struct generate *generate, struct prompt_files files) {
    struct cli *cli = generate->cli;
    const struct prompt_files source = {encoders_ids(generate->encoders), encoders_mask(generate->encoders)};
    int64_t pad = 0;
    if (cli->options->prompts.all.n && !encoders_read_ids(generate->encoders)) {
        diag_error(cli->diags, 200, EXIT_USAGE, NULL, "--prompt is the encoder's, which takes no token ids");
        return diag_help(cli->diags, "--input decoder_input_ids=FILE.npy gives the first tokens of the decoder");
    }
    if (read_rows(generate, source, !encoders_read_ids(generate->encoders), &generate->source) < 0) return -1;
    if (files.ids ? read_begin(generate, files) < 0 : begin_rows(generate) < 0) return -1;
    rt_json_int(rt_json_member(generate->about, "pad"), &pad);
    const struct encoded encoded = {&generate->source, &generate->prompts, pad, generate->directory};
    if (encoders_prepare(generate->encoders, &encoded) < 0) return -1;
    return encoders_link(generate->encoders, &generate->compiled, decoder_role, generate);
}

/* Without --encoder, what an encoder computes must be given. */
static int check_alone(struct generate *generate) {
    struct cli *cli = generate->cli;
    const struct rt_json *roles = rt_json_member(generate->about, "roles");
    for (const struct rt_json *of = roles ? roles->first : NULL; of && !generate->encoders; of = of->next) {
        const char *name = arena_printf(cli->arena, "%.*s", (int)of->key_bytes, of->key);
        const enum rt_role role = decoder_role(generate, name);
        if (role != RT_ROLE_ENCODER_STATES && role != RT_ROLE_ENCODER_MASK) continue;
        diag_error(cli->diags, 200, EXIT_USAGE, NULL, "input %s is an encoder's, and there is no --encoder",
                   diag_quote(cli->diags, name));
        return diag_help(cli->diags, "--encoder DIR names the compiled encoder");
    }
    return 0;
}

static int read_prompts(struct generate *generate) {
    const struct prompt_files files = sort_inputs(generate);
    if (check_alone(generate) < 0) return -1;
    return generate->encoders ? read_encoded(generate, files) : read_rows(generate, files, false, &generate->prompts);
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
    if (generate->directory) temporary_remove(generate->directory);
}

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
    struct strbuf lines = {.arena = cli->arena};
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

static void add(struct option_texts *words, struct cli *cli, const char *name, const char *value) {
    VEC_PUSH(cli->arena, &words->all, arena_printf(cli->arena, "--%s=%s", name, value));
}

static struct option_texts program_words(const struct generate *generate) {
    struct cli *cli = generate->cli;
    struct option_texts words = {0};
    add(&words, cli, "generate", path_of(generate, "prompts"));
    add(&words, cli, "report", path_of(generate, "report"));
    for (int i = 0; i < generate->ids.all.n; i++) add(&words, cli, "stop", generate->ids.all.at[i]);
    if (generate->stops.all.n) VEC_PUSH(cli->arena, &words.all, "--ask");
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
    int status = -1;
    if (check_state(generate) < 0 || open_tokenizer(generate) < 0 || make_directory(generate) < 0) return -1;
    if (!encoders_open(&generate->encoders, &generate->cli->options->encoders, generate->cli) &&
        !read_prompts(generate) && !open_texts(generate))
        status = generate->encoders ? encoders_run(generate->encoders, &generate->inputs) : 0;
    if (!status) status = start(generate);
    remove_directory(generate);
    encoders_close(generate->encoders);
    texts_close(generate->texts);
    return status;
}

/* MODEL.onnx */

/* What the prompts need: rows of the batch, and tokens of the longest with those that are to be written. A text has no
 * more tokens than bytes and a few around it. */
struct need {
    int64_t rows, tokens;
};

static int64_t to_power_of_two(int64_t number) {
    int64_t power = 1;
    while (power < number && power < 1 << 30) power *= 2;
    return power;
}

/* The rows of the first input of an encoder that has any; 0: none. */
static int64_t encoder_rows(const struct options *options) {
    int64_t rows = 0;
    for (int i = 0; options->encoders.all.n && i < options->inputs.all.n && !rows; i++) {
        struct rt_tensor tensor;
        struct rt_reason why;
        if (!rt_npy_read(&tensor, options->inputs.all.at[i].path, &why)) continue;
        rows = tensor.ndim > 1 ? tensor.dims[0] : 0;
        rt_tensor_free(&tensor);
    }
    return rows;
}

static struct need need_of(const struct options *options, struct cli *cli) {
    enum { NEW_BY_DEFAULT = 128, AROUND = 8 };
    struct need need = {options->prompts.all.n, 0};
    struct diags ignored; /* errors are found when the prompts are read */
    struct cli silent = *cli;
    struct token_rows read = {0};
    diags_init(&ignored, cli->arena);
    silent.diags = &ignored;
    for (int i = 0; i < options->prompts.all.n; i++) {
        const int64_t bytes = (int64_t)strlen(options->prompts.all.at[i]) + AROUND;
        if (bytes > need.tokens) need.tokens = bytes;
    }
    for (int i = 0; i < options->inputs.all.n; i++)
        if (generation_role(options->inputs.all.at[i].name, false) == RT_ROLE_IDS &&
            prompts_of_file(&read, options->inputs.all.at[i].path, NULL, &silent) == 0)
            need.rows = read.all.n;
    for (int i = 0; i < read.all.n; i++)
        if (read.all.at[i].ids.n > need.tokens) need.tokens = read.all.at[i].ids.n;
    if (!need.rows) need.rows = encoder_rows(options);
    need.tokens += options->max_new_tokens ? options->max_new_tokens : NEW_BY_DEFAULT;
    return (struct need){to_power_of_two(need.rows), to_power_of_two(need.tokens)};
}

/* Compiles the model with bounds from its configuration, and says which. */
static int compile_within(const struct options *given, bool within, struct diags *diags, struct cli *cli,
                          struct driver_result *result) {
    struct options options = *given;
    struct option_sizes sizes;
    const struct need need = need_of(given, cli);
    struct strbuf said = {.arena = cli->arena};
    if (!given->given[OPT_LOGITS] && need.rows == 1) options.logits = OPT_LOGITS_LAST;
    if (driver_sizes_of_decoder(given, need.rows, need.tokens, within, cli->arena, &sizes) < 0) sizes.all.n = 0;
    VEC_UNSHARE(cli->arena, &options.dims.all);
    for (int i = 0; i < sizes.all.n; i++) {
        VEC_PUSH(cli->arena, &options.dims.all, sizes.all.at[i]);
        strbuf_printf(&said, "%s%s=%s", i ? ", " : "", str_name(cli->arena, sizes.all.at[i].name),
                      open_range_text(cli->arena, &sizes.all.at[i].range));
    }
    const int status = driver_compile(&options, cli->arena, diags, result);
    if (!status && result->made != MADE_NOTHING && said.length)
        diag_remark(diags, given->operand, "compiled for %s; --dim gives other bounds", strbuf_text(&said));
    return status;
}

/* Compiles the model with state. A model with a table of positions may refuse a step behind full caches: it is then
 * compiled for steps that end within the table. */
static int compile_with_state(const struct options *given, const char *directory, struct cli *cli,
                              struct driver_result *result) {
    struct cli now = *cli;
    (void)directory;
    struct diags diags = {.arena = cli->arena}, within = {.arena = cli->arena};
    int status = compile_within(given, false, &diags, cli, result);
    const enum exit_code exit = diags_exit(&diags);
    if (status && (exit == EXIT_UNSUPPORTED || exit == EXIT_MALFORMED) &&
        !compile_within(given, true, &within, cli, result)) {
        diags = within;
        status = 0;
    }
    now.diags = &diags;
    if (!status) cli_report(&now); /* before the tokens */
    if (status) diags_append(cli->diags, &diags);
    return status;
}

int cli_generate(struct cli *all) {
    struct options options = *all->options;
    struct cli here = *all, *cli = &here;
    struct generate generate = {.cli = cli};
    const bool is_compiled = is_directory(options.operand);
    here.options = &options;
    if (check_numbers(cli) < 0 || (is_compiled && compiled_refuses_options(cli))) return -1;
    if (!options.given[OPT_STATE]) options.state = "auto";
    if (is_compiled ? compiled_open(&generate.compiled, options.operand, cli)
                    : cache_open(&generate.compiled, compile_with_state, cli))
        return -1;
    const int status = generate_compiled(&generate);
    compiled_close(&generate.compiled);
    return status;
}
