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
    OPTION_TEXTS,
    OPTION_TEXT,
    OPTION_COUNT,
    OPTION_RATE,
    OPTION_FLAG,
    OPTION_WINDOW,
    OPTION_FILES = OPTION_TEXTS,
    OPTION_PATH = OPTION_TEXT
};

/* program_options.def documents these. MEETING: checked at the rendezvous (E0901, E0903). */
enum agreement { OWN = 1, SAME, GIVEN, CONTENT, MEETING };

/* Verbs of rankc. Help names the verb of an option that one of them alone takes. */
enum {
    VERB_RUN = 1,
    VERB_GENERATE = 2,
    VERB_TRAIN = 4,
    VERB_PROFILE = 8,
    STARTING_VERBS = VERB_RUN | VERB_GENERATE | VERB_TRAIN,
    ALL_VERBS = 15
};
#define IN(ID) VERB_##ID

struct option_row {
    const char *name, *argument;
    enum option_kind kind;
    size_t field; /* of struct main_options */
    unsigned verbs;
    enum agreement agreement;
    const char *help;
    char letter;          /* -q for --quiet; 0: none */
    int min, max;         /* of a count; max 0: none */
    const char *bare;     /* the value of an option that is given without one; NULL: it needs one */
    const char *fallback; /* the default; in parentheses: what an unset option means; NULL: nothing to say */
};

#define FIELD(name) offsetof(struct main_options, name)

static const struct option_row rows[] = {
#define PROGRAM_OPTION(ID, FIELD_NAME, NAME, KIND, METAVAR, VERBS, AGREEMENT, HELP, ...)                               \
    {"--" NAME, METAVAR, OPTION_##KIND, FIELD(FIELD_NAME), VERBS, AGREEMENT, HELP, __VA_ARGS__},
#include "base/program_options.def"
    {"--input", "NAME=FILE", OPTION_FILES, FIELD(inputs), STARTING_VERBS, CONTENT,
     "tensor for an input: .npy, or .pb (ONNX TensorProto); repeatable"},
    {"--dim", "NAME=SIZE", OPTION_TEXTS, FIELD(dims), STARTING_VERBS, OWN,
     "a size of the inputs that --random-inputs makes; repeatable",
     .fallback = "(the largest, or that of the inputs given)"},
    {"--adapter", "NAME", OPTION_TEXT, FIELD(adapter), STARTING_VERBS, SAME,
     "which of the program's adapters is applied; none: the model without", .fallback = "(the first)"},
    {"--lr-schedule", "NAME[:k=v,..]", OPTION_TEXT, FIELD(lr_schedule), VERB_TRAIN, SAME,
     "learning-rate schedule, such as cosine:warmup=100,steps=1000", .fallback = "(as compiled)"},
    {"--accumulate", "A", OPTION_COUNT, FIELD(accumulate), VERB_TRAIN, SAME, "micro-batches per scale unit and step",
     .min = 1, .fallback = "(as compiled)"},
    {"--profile", "MACHINE", OPTION_TEXT, FIELD(profile), STARTING_VERBS, GIVEN,
     "print where the time of the traced steps went, by operator and layer, against the peaks of a machine "
     "file or of the --machine of the compile",
     .bare = ""},
    {"--generate", "FILE", OPTION_TEXT, FIELD(generate), VERB_GENERATE, GIVEN,
     "generate tokens: rank 0 reads the prompts, a line of token ids with spaces for each"},
    {"--stop", "ID", OPTION_TEXTS, FIELD(stops), VERB_GENERATE, SAME, "a token that ends a row; repeatable"},
    {"--report", "SOCKET", OPTION_TEXT, FIELD(report), VERB_GENERATE, OWN, "tell each step's tokens; set by rankc"},
    {"--ask", "", OPTION_FLAG, FIELD(ask), VERB_GENERATE, OWN, "and wait for the answer which rows end"},
    {"--comm", "NAME", OPTION_TEXT, FIELD(comm), STARTING_VERBS, MEETING,
     "self, loopback (ranks are threads), shm (processes) or mpi", .fallback = "auto"},
    {"--kernels", "NAME", OPTION_TEXT, FIELD(kernels), STARTING_VERBS, SAME,
     "auto, reference (without libraries), or on GPUs tf32", .fallback = "auto"},
    {"--rank", "R", OPTION_COUNT, FIELD(rank), STARTING_VERBS, OWN, "rank of this process; launchers set it"},
    {"--world", "N", OPTION_COUNT, FIELD(world), STARTING_VERBS, MEETING, "number of ranks, a multiple of plan_ngpus",
     .min = 1, .fallback = "(the launcher's, with --comm loopback location.json's)"},
    {"--rendezvous", "PLACE", OPTION_TEXT, FIELD(rendezvous), STARTING_VERBS, MEETING,
     "rendezvous of ranks that `rankc run` did not start: HOST:PORT, file:PATH or mpi",
     .fallback = "(MASTER_ADDR, MASTER_PORT)"},
    {"--join-timeout", "S", OPTION_COUNT, FIELD(join_timeout), STARTING_VERBS, OWN,
     "seconds that ranks wait for each other at the rendezvous", .min = 1, .fallback = "(300)"},
    {"--directory", "DIR", OPTION_TEXT, FIELD(directory), STARTING_VERBS, OWN, "directory of manifest.json",
     .fallback = "(relative to the program)"},
};

#define ROWS (sizeof rows / sizeof *rows)
_Static_assert(ROWS <= 8 * sizeof(uint64_t), "a bit of main_options.given for each");

void options_print_help(const char *program) {
    printf("usage: %s [options]\n\n", program);
    for (size_t i = 0; i < ROWS; i++) {
        const struct option_row *row = &rows[i];
        const char letter[] = {'-', row->letter, ',', ' ', 0};
        const char *of = row->verbs == VERB_TRAIN ? "train: " : row->verbs == VERB_GENERATE ? "generate: " : "";
        const char *unset = row->fallback ? row->fallback : "";
        const int inside = *unset == '(';
        char name[32], argument[32];
        snprintf(name, sizeof name, "%s%s", row->letter ? letter : "", row->name);
        snprintf(argument, sizeof argument, row->bare ? "[=%s]" : "%s", row->argument);
        printf("  %-20s %-11s %s%s%s%.*s%s\n", name, argument, of, row->help, *unset ? " [" : "",
               (int)strlen(unset) - 2 * inside, unset + inside, *unset ? "]" : "");
    }
}

static int unknown_option(const char *word, struct failure *failure) {
    const char *names[ROWS]; /* without --, which all of them have */
    for (size_t i = 0; i < ROWS; i++) names[i] = rows[i].name + 2;
    const char *meant = rt_nearest(word + strspn(word, "-"), names, (int)ROWS);
    failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "unknown option '%s'", rt_quote_text(word).text);
    return meant ? failure_help(failure, "did you mean '--%s'?", meant) : failure_help(failure, "see --help");
}

static int parse_count(const struct option_row *row, const char *text, int *out, struct failure *failure) {
    const int max = row->max ? row->max : INT_MAX;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (!errno && end != text && !*end && value >= row->min && value <= max) {
        *out = (int)value;
        return EXIT_OK;
    }
    return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s needs a whole number from %d to %d, not '%s'", row->name,
                       row->min, max, rt_quote_text(text).text);
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
    case OPTION_TEXTS: words->at[words->n++] = text; break;
    case OPTION_TEXT: *(const char **)field = text; break;
    case OPTION_FLAG: *(bool *)field = true; break;
    case OPTION_COUNT: return parse_count(row, text, field, failure);
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
    if ((options->given & bit) && row->kind != OPTION_TEXTS)
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s is given twice", row->name);
    options->given |= bit;
    const char *text = word[length] == '=' ? word + length + 1 : NULL;
    if (row->kind == OPTION_FLAG && text)
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s takes no value", row->name);
    if (!text) text = row->bare;
    if (!text && row->kind != OPTION_FLAG && !(text = ++*i < argc ? argv[*i] : NULL))
        return failure_set(failure, EXIT_USAGE, RT_CODE_USAGE, "%s needs %s", row->name, row->argument);
    return set_option(options, row, text, failure);
}

void options_free(struct main_options *options) {
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind == OPTION_TEXTS) free(((struct words *)((char *)options + rows[i].field))->at);
}

static bool allocate_words(struct words *words, int argc) {
    words->at = calloc((size_t)argc + 1, sizeof(*words->at));
    return words->at != NULL;
}

int options_parse(struct main_options *options, int argc, char **argv, struct failure *failure) {
    *options = (struct main_options){
        .program = argc > 0 ? argv[0] : "run", .random_inputs = -1, .rank = -1, .shuffle = -1, .lr = -1};
    for (size_t i = 0; i < ROWS; i++) {
        void *field = (char *)options + rows[i].field;
        if (rows[i].kind == OPTION_TEXTS && !allocate_words(field, argc))
            return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
        if (rows[i].fallback && *rows[i].fallback != '(')
            set_option(options, &rows[i], rows[i].fallback, failure); /* which it takes */
    }
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
    case OPTION_COUNT: snprintf(text, room, "%d", *(const int *)field); break;
    case OPTION_RATE: snprintf(text, room, "%.17g", *(const double *)field); break;
    case OPTION_WINDOW: snprintf(text, room, "%lld:%lld", (long long)window[0], (long long)window[1]); break;
    case OPTION_TEXT: snprintf(text, room, "%s", *word ? *word : ""); break;
    case OPTION_TEXTS: snprintf(text, room, "%s", words->n ? words->at[0] : ""); break;
    }
}

/* What an error says of an option that was given. */
static const char *show_value(const struct option_row *row, const char *value, char *text, size_t room) {
    const bool words = row->kind == OPTION_TEXT || row->kind == OPTION_TEXTS;
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
