/* The command line of a generated program, and printing of its failures. */
#include "program/main.h"

#include "base/text/diagnostic.h"
#include "base/io/progress.h"
#include "comm/mpi_library.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_DIGITS 8 /* of the hash of a file */

int failure_set(struct failure *failure, int exit, int code, const char *format, ...) {
    *failure = (struct failure){.exit = exit, .code = code};
    RT_PRINT_TO(failure->text, format);
    return exit;
}

int failure_where(struct failure *failure, const char *format, ...) {
    RT_PRINT_TO(failure->where, format);
    return failure->exit;
}

int failure_help(struct failure *failure, const char *format, ...) {
    RT_PRINT_TO(failure->help, format);
    return failure->exit;
}

int failure_reason(struct failure *failure, int code, const struct rt_reason *why) {
    const struct rt_report report = rt_reason_report(why, (struct rt_report){code, EXIT_MALFORMED});
    return failure_set(failure, report.exit, report.code, "%s", why->text);
}

void failure_print(const struct failure *failure, bool json) {
    char help[sizeof failure->help + 8];
    const char *const notes[] = {help};
    snprintf(help, sizeof help, "help: %s", failure->help);
    const struct rt_diagnostic item = {.severity = RT_SEVERITY_ERROR,
                                       .code = failure->code,
                                       .text = failure->text,
                                       .where = failure->where[0] ? failure->where : NULL,
                                       .notes = notes,
                                       .nnotes = failure->help[0] != 0};
    if (rt_mpi_launched()) rt_progress_clear(); /* rank 0's, which no launcher removes */
    rt_diagnostic_print(&item, stderr, json ? RT_DIAGNOSTIC_JSON : RT_DIAGNOSTIC_PLAIN);
}

enum option_kind {
    OPTION_WORDS,
    OPTION_TEXT,
    OPTION_COUNT,
    OPTION_RATE,
    OPTION_FLAG,
    OPTION_SEED,  /* a count that may be left out: 0 */
    OPTION_FILE,  /* a text that may be left out: "" */
    OPTION_WINDOW /* A:B */
};

/* What must be the same on all ranks of a job: each row says so, because ranks may be started one by one. */
enum agreement {
    OWN = 1, /* a rank's own: its number, how much it prints, files that rank 0 alone writes */
    SAME,    /* the value */
    GIVEN,   /* whether the option is given: paths may differ between hosts */
    CONTENT, /* whether it is given, and what is in the files, once they are open (options_add_content) */
    MEETING  /* found out where ranks meet: E0901, E0903 */
};

struct option_row {
    const char *name, *argument;
    enum option_kind kind;
    size_t field; /* of struct main_options */
    int least;    /* of a count */
    enum agreement agreement;
    const char *help;
    char letter; /* -q for --quiet; 0: none */
};

#define FIELD(name) offsetof(struct main_options, name)

static const struct option_row rows[] = {
    {"--input", "NAME=FILE", OPTION_WORDS, FIELD(inputs), 0, CONTENT,
     "tensor for an input: .npy, or .pb (ONNX TensorProto); repeatable"},
    {"--dim", "NAME=SIZE", OPTION_WORDS, FIELD(dims), 0, OWN,
     "a size of the inputs that --random-inputs makes; default: the largest, or that of the inputs given; repeatable"},
    {"--data", "NAME=FILE", OPTION_WORDS, FIELD(data), 0, CONTENT,
     "train: samples of an input, X.npy (axis 0 is the sample) or X.bin:u16[:shift=1]; repeatable"},
    {"--steps", "S", OPTION_COUNT, FIELD(steps), 1, SAME, "train: number of the last step"},
    {"--lr", "X", OPTION_RATE, FIELD(lr), 0, SAME, "train: learning rate; default: as compiled"},
    {"--lr-schedule", "NAME[:k=v,..]", OPTION_TEXT, FIELD(lr_schedule), 0, SAME,
     "train: learning-rate schedule, such as cosine:warmup=100,steps=1000; default: as compiled"},
    {"--accumulate", "A", OPTION_COUNT, FIELD(accumulate), 1, SAME,
     "train: micro-batches per scale unit and step; default: as compiled"},
    {"--shuffle", "SEED", OPTION_COUNT, FIELD(shuffle), 0, SAME, "train: shuffle the samples in every epoch"},
    {"--checkpoint-dir", "D", OPTION_TEXT, FIELD(checkpoint_dir), 0, GIVEN,
     "train: directory for checkpoints D/step-K; one is written after the last step"},
    {"--checkpoint-every", "K", OPTION_COUNT, FIELD(checkpoint_every), 1, SAME, "train: also every K steps"},
    {"--keep", "K", OPTION_COUNT, FIELD(keep), 1, SAME, "train: number of checkpoints to keep; default: all"},
    {"--resume", "latest|auto|best|STEP", OPTION_TEXT, FIELD(resume), 0, SAME, "train: resume from a checkpoint in D"},
    {"--keep-best", NULL, OPTION_FLAG, FIELD(keep_best), 0, SAME,
     "train: keep the checkpoint of the evaluation with the lowest loss"},
    {"--early-stop", "N", OPTION_COUNT, FIELD(early_stop), 1, SAME,
     "train: end after N evaluations without a lower loss"},
    {"--eval-only", NULL, OPTION_FLAG, FIELD(eval_only), 0, SAME, "train: only evaluate, with --resume a checkpoint"},
    {"--checkpoint-async", NULL, OPTION_FLAG, FIELD(checkpoint_async), 0, SAME,
     "train: write checkpoints in the background, from a copy"},
    {"--reset-optimizer", NULL, OPTION_FLAG, FIELD(reset_optimizer), 0, SAME,
     "train: resume with the parameters alone; all else begins anew"},
    {"--eval-data", "NAME=FILE", OPTION_WORDS, FIELD(eval_data), 0, CONTENT,
     "train: evaluation samples of an input, used after the last step; repeatable"},
    {"--eval-every", "K", OPTION_COUNT, FIELD(eval_every), 1, SAME, "train: also every K steps"},
    {"--eval-steps", "E", OPTION_COUNT, FIELD(eval_steps), 1, SAME,
     "train: micro-batches per evaluation; default: all samples"},
    {"--log", "FILE", OPTION_TEXT, FIELD(log), 0, OWN, "train: write metrics to FILE, one JSON line per step"},
    {"--output-dir", "OUT", OPTION_TEXT, FIELD(output_dir), 0, OWN,
     "write outputs as OUT/<name>.npy and OUT/outputs.json"},
    {"--comm", "NAME", OPTION_TEXT, FIELD(comm), 0, MEETING,
     "auto, self, loopback (ranks are threads), shm (processes), mpi"},
    {"--adapter", "NAME", OPTION_TEXT, FIELD(adapter), 0, SAME,
     "which of the program's adapters is applied; none: the model without; default: the first"},
    {"--broadcast-weights", NULL, OPTION_FLAG, FIELD(broadcast_weights), 0, SAME,
     "read weights only in the first scale unit, which sends them to the others"},
    {"--threads", "T", OPTION_COUNT, FIELD(threads), 1, OWN,
     "threads per rank, of which no more than the cores are started; default: cores / ranks on this machine"},
    {"--repeat", "N", OPTION_COUNT, FIELD(repeat), 1, SAME, "timed steps; default 1"},
    {"--warmup", "W", OPTION_COUNT, FIELD(warmup), 0, SAME, "steps before the timed ones; default 0"},
    {"--random-inputs", "[=SEED]", OPTION_SEED, FIELD(random_inputs), 0, SAME,
     "random values for inputs without --input: floats in [-1, 1), integers below the rows of the table they index"},
    {"--log-every", "N", OPTION_COUNT, FIELD(log_every), 1, OWN,
     "train: print and log every Nth step and the last; default 1"},
    {"--trace", "FILE", OPTION_TEXT, FIELD(trace), 0, GIVEN,
     "write when each instruction and communication call of each rank was executed, for Perfetto"},
    {"--trace-steps", "A:B", OPTION_WINDOW, FIELD(trace_first), 0, SAME,
     "steps of --trace and --profile; default: the first 10 that are executed"},
    {"--profile", "[=MACHINE]", OPTION_FILE, FIELD(profile), 0, GIVEN,
     "print where the time of the traced steps went, by operator and layer, against the peaks of a machine "
     "file or of the --machine of the compile"},
    {"--dump-tensors", "GLOB", OPTION_TEXT, FIELD(dump_tensors), 0, SAME,
     "write the values of tensors whose name, or whose node's name, matches; in training of all steps"},
    {"--generate", "FILE", OPTION_TEXT, FIELD(generate), 0, GIVEN,
     "generate tokens: rank 0 reads the prompts, a line of token ids with spaces for each"},
    {"--max-new-tokens", "N", OPTION_COUNT, FIELD(max_new_tokens), 1, SAME,
     "generate: tokens of a row; default: 128, or as many as the caches hold"},
    {"--temperature", "X", OPTION_RATE, FIELD(temperature), 0, SAME,
     "generate: draw tokens by probability, logits being divided by X; default 0: take the greatest"},
    {"--top-k", "K", OPTION_COUNT, FIELD(top_k), 0, SAME, "generate: draw among the K most likely; default 0: all"},
    {"--top-p", "P", OPTION_RATE, FIELD(top_p), 0, SAME,
     "generate: draw among the most likely whose probabilities add up to P; default 1"},
    {"--min-p", "P", OPTION_RATE, FIELD(min_p), 0, SAME,
     "generate: draw among those of at least P times the greatest probability; default 0"},
    {"--repetition-penalty", "X", OPTION_RATE, FIELD(repetition_penalty), 0, SAME,
     "generate: make tokens that a row has less likely; default 1"},
    {"--seed", "SEED", OPTION_COUNT, FIELD(seed), 0, SAME, "generate: of the draws; default 0"},
    {"--stop", "ID", OPTION_WORDS, FIELD(stops), 0, SAME, "generate: a token that ends a row; repeatable"},
    {"--role", "INPUT=ROLE", OPTION_WORDS, FIELD(roles), 0, SAME,
     "generate: what an input is for, such as ids, mask or positions; repeatable"},
    {"--save-state", "DIR", OPTION_TEXT, FIELD(save_state), 0, GIVEN,
     "generate: write the state behind the prompts to DIR, a file for each rank"},
    {"--load-state", "DIR", OPTION_TEXT, FIELD(load_state), 0, GIVEN,
     "generate: go on from the state in DIR, with whose prompts these begin"},
    {"--report", "SOCKET", OPTION_TEXT, FIELD(report), 0, OWN, "generate: tell each step's tokens; set by rankc"},
    {"--ask", NULL, OPTION_FLAG, FIELD(ask), 0, OWN, "generate: and wait for the answer which rows end"},
    {"--dump-dir", "DIR", OPTION_TEXT, FIELD(dump_dir), 0, GIVEN, "directory of --dump-tensors; default dump"},
    {"--quiet", NULL, OPTION_FLAG, FIELD(quiet), 0, OWN,
     "print no times and metrics, only errors, warnings and outputs", 'q'},
    {"--verbose", NULL, OPTION_FLAG, FIELD(verbose), 0, OWN, "print times of loading and of every step, and memory",
     'v'},
    {"--json", NULL, OPTION_FLAG, FIELD(json), 0, OWN, "print times and memory as JSON"},
    {"--rank", "R", OPTION_COUNT, FIELD(rank), 0, OWN, "rank of this process; launchers set it"},
    {"--world", "N", OPTION_COUNT, FIELD(world), 1, MEETING,
     "number of ranks, a multiple of plan_ngpus; default: the launcher's, with --comm loopback location.json's"},
    {"--rendezvous", "PLACE", OPTION_TEXT, FIELD(rendezvous), 0, MEETING,
     "rendezvous of ranks that `rankc run` did not start: HOST:PORT, file:PATH or mpi; default: MASTER_ADDR, "
     "MASTER_PORT"},
    {"--join-timeout", "S", OPTION_COUNT, FIELD(join_timeout), 1, OWN,
     "seconds that ranks wait for each other at the rendezvous; default 300"},
    {"--stall-timeout", "SECONDS", OPTION_COUNT, FIELD(stall_timeout), 0, OWN,
     "started by mpirun: seconds without progress after which this rank counts as hanging; 0: never; default 600"},
    {"--kernels", "NAME", OPTION_TEXT, FIELD(kernels), 0, SAME, "auto, reference (without libraries), or on GPUs tf32"},
    {"--directory", "DIR", OPTION_TEXT, FIELD(directory), 0, OWN,
     "directory of manifest.json; default: relative to the program"},
    {"--help", NULL, OPTION_FLAG, FIELD(help), 0, OWN, "print this", 'h'},
};

#define ROWS (sizeof rows / sizeof *rows)
_Static_assert(ROWS <= 8 * sizeof(uint64_t), "a bit of main_options.given for each");

void options_print_help(const char *program) {
    printf("usage: %s [options]\n\n", program);
    for (size_t i = 0; i < ROWS; i++) {
        const char letter[] = {'-', rows[i].letter, ',', ' ', 0};
        char name[32];
        snprintf(name, sizeof name, "%s%s", rows[i].letter ? letter : "", rows[i].name);
        printf("  %-18s %-11s %s\n", name, rows[i].argument ? rows[i].argument : "", rows[i].help);
    }
}

static int unknown_option(const char *word, struct failure *failure) {
    const char *names[ROWS];
    for (size_t i = 0; i < ROWS; i++) names[i] = rows[i].name;
    const char *meant = rt_nearest(word, names, (int)ROWS);
    failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "unknown option '%s'", rt_quote_text(word).text);
    return meant ? failure_help(failure, "did you mean '%s'?", meant) : failure_help(failure, "see --help");
}

static int parse_count(const struct option_row *row, const char *text, int *out, struct failure *failure) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (!errno && end != text && !*end && value >= row->least && value <= INT_MAX) {
        *out = (int)value;
        return EXIT_OK;
    }
    return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s needs a whole number of at least %d, not '%s'",
                       row->name, row->least, rt_quote_text(text).text);
}

static int parse_rate(const struct option_row *row, const char *text, double *out, struct failure *failure) {
    char *end;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= 0 && *out <= FLT_MAX) return EXIT_OK;
    return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s needs a number from 0 to the largest f32, not '%s'",
                       row->name, rt_quote_text(text).text);
}

/* "A:B" into two integers, 1 <= A <= B. */
static int parse_window(const struct option_row *row, const char *text, int64_t out[2], struct failure *failure) {
    int length = 0;
    long long first = 0, last = 0;
    const bool plain = strspn(text, "0123456789:") == strlen(text) && strlen(text) <= 2 * 10 + 1;
    if (plain && sscanf(text, "%lld:%lld%n", &first, &last, &length) == 2 && !text[length] && first >= 1 &&
        first <= last && last <= INT_MAX) {
        out[0] = first, out[1] = last;
        return EXIT_OK;
    }
    return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s needs the first and last step, such as 3:5, not '%s'",
                       row->name, rt_quote_text(text).text);
}

static int set_option(struct main_options *options, const struct option_row *row, const char *text,
                      struct failure *failure) {
    void *field = (char *)options + row->field;
    struct words *words = field;
    switch (row->kind) {
    case OPTION_WORDS: words->at[words->n++] = text; break;
    case OPTION_TEXT: *(const char **)field = text; break;
    case OPTION_FLAG: *(bool *)field = true; break;
    case OPTION_SEED: return parse_count(row, text ? text : "0", field, failure);
    case OPTION_COUNT: return parse_count(row, text, field, failure);
    case OPTION_FILE: *(const char **)field = text ? text : ""; break;
    case OPTION_WINDOW: return parse_window(row, text, field, failure);
    case OPTION_RATE: return parse_rate(row, text, field, failure);
    }
    return EXIT_OK;
}

static const struct option_row *find_row(const char *word, size_t length) {
    for (size_t i = 0; i < ROWS; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, word, length) == 0) return &rows[i];
        if (rows[i].letter && length == 2 && word[0] == '-' && word[1] == rows[i].letter) return &rows[i];
    }
    return NULL;
}

/* Parses one option, "--name value" or "--name=value"; advances *i past it. */
static int parse_option(struct main_options *options, int argc, char **argv, int *i, struct failure *failure) {
    const char *word = argv[*i];
    const size_t length = strcspn(word, "=");
    const struct option_row *row = find_row(word, length);
    if (!row) return unknown_option(word, failure);
    const uint64_t bit = UINT64_C(1) << (row - rows);
    if ((options->given & bit) && row->kind != OPTION_WORDS)
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s is given twice", row->name);
    options->given |= bit;
    const char *text = word[length] == '=' ? word + length + 1 : NULL;
    if (row->kind == OPTION_FLAG && text)
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s takes no value", row->name);
    const bool alone = row->kind == OPTION_FLAG || row->kind == OPTION_SEED || row->kind == OPTION_FILE;
    if (!alone && !text) text = ++*i < argc ? argv[*i] : NULL;
    if (!alone && !text)
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s needs %s", row->name, row->argument);
    return set_option(options, row, text, failure);
}

void options_free(struct main_options *options) {
    free(options->inputs.at);
    free(options->data.at);
    free(options->eval_data.at);
    free(options->dims.at);
    free(options->roles.at);
    free(options->stops.at);
}

static bool allocate_words(struct words *words, int argc) {
    words->at = calloc((size_t)argc + 1, sizeof(*words->at));
    return words->at != NULL;
}

int options_parse(struct main_options *options, int argc, char **argv, struct failure *failure) {
    *options = (struct main_options){.program = argc > 0 ? argv[0] : "run",
                                     .comm = "auto",
                                     .kernels = "auto",
                                     .repeat = 1,
                                     .log_every = 1,
                                     .random_inputs = -1,
                                     .stall_timeout = 600,
                                     .rank = -1,
                                     .shuffle = -1,
                                     .lr = -1,
                                     .top_p = 1,
                                     .repetition_penalty = 1};
    if (!allocate_words(&options->inputs, argc) || !allocate_words(&options->data, argc) ||
        !allocate_words(&options->eval_data, argc) || !allocate_words(&options->dims, argc) ||
        !allocate_words(&options->roles, argc) || !allocate_words(&options->stops, argc))
        return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    for (int i = 1; i < argc; i++) {
        int exit = parse_option(options, argc, argv, &i, failure);
        if (exit) return exit;
    }
    if (!(options->top_p > 0 && options->top_p <= 1) || options->min_p > 1 || !(options->repetition_penalty > 0))
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE,
                           "--top-p is above 0 and at most 1, --min-p at most 1, --repetition-penalty above 0");
    if ((options->rank >= 0) != (options->world > 0))
        if (options->rank >= 0 || strcmp(options->comm, "loopback") != 0)
            return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "--rank and --world go together");
    if (options->rank >= 0 && options->rank >= options->world)
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "--rank %d must be less than --world %d", options->rank,
                           options->world);
    return EXIT_OK;
}

/* The value of an option, as text; of an option that is given several times, the first. */
static void print_value(const struct option_row *row, const void *field, char *text, size_t room) {
    const int64_t *window = field;
    const char *const *word = field;
    const struct words *words = field;
    text[0] = 0;
    switch (row->kind) {
    case OPTION_FLAG: snprintf(text, room, "%d", *(const bool *)field); break;
    case OPTION_SEED:
    case OPTION_COUNT: snprintf(text, room, "%d", *(const int *)field); break;
    case OPTION_RATE: snprintf(text, room, "%.17g", *(const double *)field); break;
    case OPTION_WINDOW: snprintf(text, room, "%lld:%lld", (long long)window[0], (long long)window[1]); break;
    case OPTION_TEXT:
    case OPTION_FILE: snprintf(text, room, "%s", *word ? *word : ""); break;
    case OPTION_WORDS: snprintf(text, room, "%s", words->n ? words->at[0] : ""); break;
    }
}

/* What an error says of an option that was given. */
static const char *show_value(const struct option_row *row, const char *value, char *text, size_t room) {
    const bool words = row->kind == OPTION_TEXT || row->kind == OPTION_FILE || row->kind == OPTION_WORDS;
    if (row->kind == OPTION_FLAG || !value[0]) return "";
    if (row->kind == OPTION_RATE)
        snprintf(text, room, "%g", strtod(value, NULL));
    else
        snprintf(text, room, words ? "'%s'" : "%s", rt_quote_text(value).text);
    return text;
}

void options_add_terms(struct rt_terms *terms, const struct main_options *options) {
    for (size_t i = 0; i < ROWS; i++) {
        const struct option_row *row = &rows[i];
        const bool given = options->given >> i & 1;
        char value[PATH_MAX], shown[RT_QUOTE_BYTES + 8];
        if (row->agreement == OWN || row->agreement == MEETING) continue;
        print_value(row, (const char *)options + row->field, value, sizeof value);
        const char *phrase = given ? show_value(row, value, shown, sizeof shown) : NULL;
        rt_terms_add(terms, row->name, row->agreement == SAME ? value : given ? "1" : "0", phrase);
    }
}

void options_add_content(struct rt_terms *terms, const char *option, const char *name, const char *path,
                         const char *content) {
    char of[RT_QUOTE_BYTES + 32], shown[RT_QUOTE_BYTES + 160];
    const int digits = (int)strlen(content) - (RT_HASH_HEX - 1 - SHOWN_DIGITS);
    snprintf(of, sizeof of, "%s %s", option, rt_quote_text(name).text);
    snprintf(shown, sizeof shown, "'%s' (%.*s)", path ? rt_quote_text(path).text : "random values", digits, content);
    rt_terms_add(terms, of, content, shown);
}
