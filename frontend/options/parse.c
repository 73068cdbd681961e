/* Verbs and arguments. */
#include "frontend/options/parser.h"
#include "ir/base/own.h"

#include <stdlib.h>
#include <string.h>

/* Response files: an argument @file is replaced by the arguments in that file.
 *
 * Arguments are separated by white space. '...' and "..." quote; a backslash quotes the next byte, except inside '...'.
 * A # where an argument could begin is a comment up to the end of the line; '#x' and \#x are arguments. A file may name
 * further files. Depth, number of files, bytes and arguments are bounded, since a file may come from anywhere. "@"
 * alone and arguments after "--" are not replaced; write ./@x for a file called @x. */
struct arguments {
    VEC(const char *) all;
};

enum {
    RESPONSE_DEPTH = 8,
    RESPONSE_FILES = 64,
    RESPONSE_BYTES = 1 << 20, /* of one file */
    RESPONSE_ARGUMENTS = 1 << 16
};

struct expansion {
    struct arguments *out;
    struct arena *arena;
    struct diags *diags;
    int files;
    bool verbatim; /* "--" was seen */
};

/* A file being read. */
struct source {
    const char *path, *at, *end, *line_start;
    int line, depth;
};

static int add_argument(struct expansion *expansion, const char *text, int depth);

static int refuse(struct expansion *expansion, const struct source *source, const char *what) {
    return diag_error(
        expansion->diags, 206, EXIT_USAGE,
        diag_place(expansion->diags, source->path, source->line, (int)(source->at - source->line_start) + 1), "%s",
        what);
}

static void step(struct source *source) {
    if (*source->at++ != '\n') return;
    source->line++;
    source->line_start = source->at;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* One argument, starting at a byte that is not a space. */
static int read_argument(struct expansion *expansion, struct source *source, struct strbuf *word) {
    char quote = 0;
    struct source opened = *source;
    while (source->at < source->end && (quote || !is_space(*source->at))) {
        char c = *source->at;
        if (!c) return refuse(expansion, source, "a response file contains a NUL byte");
        if (c == quote)
            quote = 0;
        else if (!quote && (c == '\'' || c == '"'))
            quote = c, opened = *source;
        else if (c == '\\' && quote != '\'') {
            step(source);
            if (source->at == source->end) return refuse(expansion, source, "nothing follows the backslash");
            if (!*source->at) return refuse(expansion, source, "a response file contains a NUL byte");
            strbuf_putc(word, *source->at);
        } else
            strbuf_putc(word, c);
        step(source);
    }
    return quote ? refuse(expansion, &opened, "unclosed quote") : 0;
}

/* Skips white space and comments: a # where an argument could begin, and the rest of its line. */
static void skip_space(struct source *source) {
    for (bool comment = false; source->at < source->end; step(source)) {
        if (*source->at == '#') comment = true;
        if (*source->at == '\n') comment = false;
        if (!comment && !is_space(*source->at)) return;
    }
}

static int read_arguments(struct expansion *expansion, struct source *source) {
    for (;;) {
        skip_space(source);
        if (source->at == source->end) return 0;
        struct strbuf word = {.arena = expansion->arena};
        if (read_argument(expansion, source, &word)) return -1;
        if (add_argument(expansion, strbuf_text(&word), source->depth)) return -1;
    }
}

static int expand_file(struct expansion *expansion, const char *path, int depth) {
    if (depth > RESPONSE_DEPTH || ++expansion->files > RESPONSE_FILES)
        return diag_error(expansion->diags, 206, EXIT_USAGE, str_name(expansion->arena, path),
                          depth > RESPONSE_DEPTH ? "response files nest deeper than %d" : "more than %d response files",
                          depth > RESPONSE_DEPTH ? RESPONSE_DEPTH : RESPONSE_FILES);
    void *bytes;
    size_t count;
    struct rt_reason why;
    if (!own_file(expansion->arena, path, RESPONSE_BYTES, &bytes, &count, &why))
        return diag_refusal(expansion->diags, 206, EXIT_USAGE, NULL, &why);
    const char *text = arena_copy(expansion->arena, bytes, count);
    arena_release(expansion->arena, bytes);
    struct source source = {
        .path = path, .at = text, .end = text + count, .line_start = text, .line = 1, .depth = depth};
    return read_arguments(expansion, &source);
}

static int add_argument(struct expansion *expansion, const char *text, int depth) {
    if (!expansion->verbatim && text[0] == '@' && text[1]) return expand_file(expansion, text + 1, depth + 1);
    if (expansion->out->all.n == RESPONSE_ARGUMENTS)
        return diag_error(expansion->diags, 206, EXIT_USAGE, NULL, "more than %d arguments", RESPONSE_ARGUMENTS);
    if (!strcmp(text, "--")) expansion->verbatim = true;
    VEC_PUSH(expansion->arena, &expansion->out->all, text);
    return 0;
}

/* Appends argv with every @file replaced: 0, or -1 after E0206 with file, line and column, or E0601. */
static int response_expand(struct arguments *out, int argc, char **argv, struct arena *arena, struct diags *diags) {
    struct expansion expansion = {.out = out, .arena = arena, .diags = diags};
    for (int i = 0; i < argc; i++)
        if (add_argument(&expansion, argv[i], 0)) return -1;
    return 0;
}

int parser_usage_error(struct parser *parser, const char *what) {
    const struct verb_row *verb = &verb_rows[parser->options->verb];
    const struct action_row *action = &action_rows[parser->options->action];
    diag_error(parser->diags, 200, EXIT_USAGE, NULL, "%s", what);
    if (action->name)
        diag_help(parser->diags, "usage: rankc %s %s %s [options]; see 'rankc %s --help'", verb->name, action->name,
                  action->operands, verb->name);
    else if (parser->options->verb == VERB_HELP)
        diag_help(parser->diags, "usage: rankc VERB ...; 'rankc help' lists the verbs");
    else
        diag_help(parser->diags, "usage: rankc %s%s%s [options]; see 'rankc %s --help'", verb->name,
                  *verb->operand ? " " : "", verb->operand, verb->name);
    return -1;
}

static int unknown_option(struct parser *parser, const char *typed) {
    const char *names[OPTIONS + 1];
    int n = 0;
    for (int i = 0; i < OPTIONS; i++)
        if (option_of_verb(&option_rows[i], parser->options->verb)) names[n++] = option_rows[i].name;
    names[n] = NULL;
    const char *near = strlen(typed) > 3 ? str_nearest(typed + 2, names) : NULL;
    parser_usage_error(parser, arena_printf(parser->arena, "unknown option %s", parser_quote(parser, typed)));
    if (near) diag_help(parser->diags, "did you mean '--%s'?", near);
    return -1;
}

static const struct option *find_long(enum verb verb, const char *name, size_t length) {
    for (int i = 0; i < OPTIONS; i++)
        if (option_of_verb(&option_rows[i], verb) && !strncmp(option_rows[i].name, name, length) &&
            !option_rows[i].name[length])
            return &option_rows[i];
    return NULL;
}

static const struct option *find_letter(enum verb verb, char letter) {
    for (int i = 0; i < OPTIONS; i++)
        if (option_of_verb(&option_rows[i], verb) && option_rows[i].letter == letter) return &option_rows[i];
    return NULL;
}

/* Sets an option that the user gave. */
static int give(struct parser *parser, const struct option *row, const char *typed, const char *text) {
    bool *given = &parser->options->given[row - option_rows];
    if (*given && !option_is_repeatable(row))
        return parser_usage_error(parser, arena_printf(parser->arena, "%s is given twice", typed));
    *given = true;
    return parser_set(parser, row, typed, text);
}

/* True if `text` may be the value of the option before it, rather than an option. A negative number counts as a value,
 * so that the error is "out of range" rather than "missing". */
static bool is_value(const char *text) {
    return text && (*text != '-' || !text[1] || (text[1] >= '0' && text[1] <= '9'));
}

/* Sets an option to `attached` (--name=value) or, if that is NULL, to the following argument `next`; *used is set if
 * `next` was its value. */
static int give_with(struct parser *parser, const struct option *row, const char *typed, const char *attached,
                     const char *next, bool *used) {
    if (row->kind == OPTION_FLAG) {
        if (attached) return parser_usage_error(parser, arena_printf(parser->arena, "%s takes no value", typed));
        return give(parser, row, typed, "");
    }
    if (attached) return give(parser, row, typed, attached);
    if (row->bare) return give(parser, row, typed, row->bare);
    if (!is_value(next))
        return parser_usage_error(parser, arena_printf(parser->arena, "%s needs a value: %s %s", typed, typed,
                                                       option_argument(row, parser->arena)));
    *used = true;
    return give(parser, row, typed, next);
}

static int parse_long(struct parser *parser, const char *argument, const char *next, bool *used) {
    size_t length = strcspn(argument, "=");
    const char *attached = argument[length] ? argument + length + 1 : NULL;
    const char *typed = arena_copy(parser->arena, argument, length);
    const struct option *row = find_long(parser->options->verb, argument + 2, length - 2);
    return row ? give_with(parser, row, typed, attached, next, used) : unknown_option(parser, typed);
}

/* Parses an argument of short options: -oDIR, -o DIR, -vq. */
static int parse_short(struct parser *parser, const char *argument, const char *next, bool *used) {
    for (const char *at = argument + 1; *at; at++) {
        const char *typed = arena_printf(parser->arena, "-%c", *at);
        const struct option *row = find_letter(parser->options->verb, *at);
        if (!row) return unknown_option(parser, typed);
        if (row->kind != OPTION_FLAG) return give_with(parser, row, typed, at[1] ? at + 1 : NULL, next, used);
        if (give(parser, row, typed, "")) return -1;
    }
    return 0;
}

/* The word at `index` of an action's operands; NULL: it has fewer. */
const char *parser_operand_name(enum action action, int index, struct arena *arena) {
    const char *word = action_rows[action].operands;
    for (; index > 0 && word; index--)
        if ((word = strchr(word, ' '))) word++;
    return word ? arena_printf(arena, "%.*s", (int)strcspn(word, " "), word) : NULL;
}

static int find_action(struct parser *parser, const char *word) {
    struct options *options = parser->options;
    for (int i = 1; i < ACTIONS && !options->action; i++)
        if (action_rows[i].verb == options->verb && !strcmp(action_rows[i].name, word))
            options->action = (enum action)i;
    if (options->action) return 0;
    return parser_usage_error(parser, arena_printf(parser->arena, "%s has no action %s", verb_rows[options->verb].name,
                                                   parser_quote(parser, word)));
}

static int set_operand(struct parser *parser, const char *argument) {
    struct options *options = parser->options;
    if (!*argument) return parser_usage_error(parser, "an empty argument");
    for (int i = 0; options->action && i < OPERANDS_MAX && parser_operand_name(options->action, i, parser->arena);
         i++) {
        if (options->operands[i]) continue;
        options->operands[i] = arena_strdup(parser->arena, argument);
        return 0;
    }
    if (options->operand && verb_rows[options->verb].many) {
        VEC_PUSH(parser->arena, &options->more.all, arena_strdup(parser->arena, argument));
        return 0;
    }
    const bool acts = *action_names(options->verb, " ", parser->arena);
    if (acts && options->operand && !options->action) return -1; /* reported: what it is an operand of is unknown */
    if (parser->options->operand || !*verb_rows[parser->options->verb].operand)
        return parser_usage_error(
            parser, arena_printf(parser->arena, "unexpected argument %s", parser_quote(parser, argument)));
    options->operand = arena_strdup(parser->arena, argument);
    return acts ? find_action(parser, argument) : 0;
}

static void parse_arguments(struct parser *parser, const char *const *arguments, int n) {
    bool only_operands = false;
    for (int i = 0; i < n; i++) {
        const char *argument = arguments[i], *next = i + 1 < n ? arguments[i + 1] : NULL;
        bool used = false;
        if (only_operands || *argument != '-' || !argument[1])
            set_operand(parser, argument);
        else if (!strcmp(argument, "--"))
            only_operands = true;
        else if (argument[1] == '-')
            parse_long(parser, argument, next, &used);
        else
            parse_short(parser, argument, next, &used);
        i += used;
    }
}

static int find_verb(struct parser *parser, const char *word) {
    const char *names[VERBS + 1] = {NULL};
    for (int i = 0; i < VERBS; i++) {
        names[i] = verb_rows[i].name;
        if (strcmp(word, names[i])) continue;
        parser->options->verb = (enum verb)i;
        return 0;
    }
    parser_usage_error(parser, arena_printf(parser->arena, "unknown verb %s", parser_quote(parser, word)));
    parser_suggest(parser, "", word, names);
    return -1;
}

static const char *command_text(const struct arguments *arguments, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    strbuf_puts(&text, "rankc");
    for (int i = 0; i < arguments->all.n; i++) {
        strbuf_putc(&text, ' ');
        strbuf_shell(&text, arguments->all.at[i]);
    }
    return strbuf_text(&text);
}

/* After an error, looks for --json in the arguments not parsed yet, since it determines how the error is printed. */
static int give_up(struct options *out, int n, const char *const *arguments) {
    for (int i = 0; i < n && strcmp(arguments[i], "--") != 0; i++)
        if (!strcmp(arguments[i], "--json")) out->json = true;
    return -1;
}

void options_start(struct options *out, enum verb verb, const char *operand, struct arena *arena, struct diags *diags) {
    *out = (struct options){.verb = verb, .operand = operand};
    parser_set_defaults(&(struct parser){.options = out, .arena = arena, .diags = diags});
}

int options_parse(struct options *out, int argc, char **argv, struct arena *arena, struct diags *diags) {
    struct parser parser = {.options = out, .arena = arena, .diags = diags};
    struct arguments arguments = {0};
    options_start(out, VERB_HELP, NULL, arena, diags);
    if (response_expand(&arguments, argc, argv, arena, diags)) return give_up(out, argc, (const char *const *)argv);
    if (!arguments.all.n) return parser_usage_error(&parser, "no verb given");
    out->command = command_text(&arguments, arena);
    bool named = arguments.all.at[0][0] != '-';
    if (named && find_verb(&parser, arguments.all.at[0])) return give_up(out, arguments.all.n, arguments.all.at);
    parse_arguments(&parser, arguments.all.at + named, arguments.all.n - named);
    return parser_finish(&parser);
}
