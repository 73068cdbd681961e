#include "frontend/options/options.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/options/response.h"
#include "ir/base/str.h"
#include "runtime/base/path.h"

/* ---- the tables ---- */

#define IN(ID)    (1u << VERB_##ID)
#define ALL_VERBS ((1u << VERBS) - 1)

const struct verb_row verb_rows[VERBS] = {
#define VERB(ID, NAME, OPERAND, HELP, ...)  {#NAME, OPERAND, HELP, false, __VA_ARGS__},
#define VERB_LATER(ID, NAME, OPERAND, HELP) {#NAME, OPERAND, HELP, true},
#include "frontend/options/options.def"
};

const struct action_row action_rows[ACTIONS] = {
    {0},
#define ACTION(VERB, ID, NAME, OPERANDS, HELP) {VERB_##VERB, NAME, OPERANDS, HELP},
#include "frontend/options/options.def"
};

const char *action_names(enum verb verb, const char *between, struct arena *arena) {
    struct strbuf names;
    strbuf_init(&names, arena);
    for (int i = 1; i < ACTIONS; i++)
        if (action_rows[i].verb == verb)
            strbuf_printf(&names, "%s%s", names.length ? between : "", action_rows[i].name);
    return strbuf_text(&names);
}

const struct choice_row choice_rows[CHOICES] = {
    {GROUP_NONE, "", "", "", false},
#define CHOICE(GROUP, ID, WORD, KEYS, HELP)       {GROUP_##GROUP, WORD, KEYS, HELP, false},
#define CHOICE_LATER(GROUP, ID, WORD, KEYS, HELP) {GROUP_##GROUP, WORD, KEYS, HELP, true},
#include "frontend/options/options.def"
};

const struct option option_rows[OPTIONS] = {
#define OPTION(ID, FIELD, NAME, KIND, METAVAR, VERBS, KEY, HELP, ...)                                                  \
    {.name = NAME,                                                                                                     \
     .kind = OPTION_##KIND,                                                                                            \
     .metavar = METAVAR,                                                                                               \
     .verbs = VERBS,                                                                                                   \
     .key = KEY,                                                                                                       \
     .help = HELP,                                                                                                     \
     .offset = offsetof(struct options, FIELD),                                                                        \
     __VA_ARGS__},
#define OPTION_LATER(ID, NAME, KIND, METAVAR, VERBS, KEY, HELP)                                                        \
    {.name = NAME, .kind = OPTION_##KIND, .metavar = METAVAR, .verbs = VERBS, .key = KEY, .help = HELP, .later = true},
#include "frontend/options/options.def"
};

static const char *const group_nouns[GROUPS] = {
    "",
#define GROUP(ID, NOUN) NOUN,
#include "frontend/options/options.def"
};

/* Every field has the type of its row's kind. */
#define OPTION_FLAG_TYPE   bool
#define OPTION_TEXT_TYPE   const char *
#define OPTION_PATH_TYPE   const char *
#define OPTION_COUNT_TYPE  int64_t
#define OPTION_BYTES_TYPE  int64_t
#define OPTION_CHOICE_TYPE enum choice
#define OPTION_SPEC_TYPE   struct option_spec
#define OPTION_SIZES_TYPE  struct option_sizes
#define OPTION_SHAPES_TYPE struct option_shapes
#define OPTION_FILES_TYPE  struct option_files
#define OPTION_TEXTS_TYPE  struct option_texts
#define OPTION(ID, FIELD, NAME, KIND, ...)                                                                             \
    _Static_assert(_Generic(((struct options *)0)->FIELD, OPTION_##KIND##_TYPE : 1, default : 0), "field of --" NAME);
#include "frontend/options/options.def"

/* ---- values ---- */

struct parser {
    struct options *options;
    struct arena *arena;
    struct diags *diags;
};

/* A value to be parsed into a field. `typed` is the option as the user wrote it, "--pas" or "-o". */
struct value {
    const struct option *row;
    const char *typed, *text;
    void *field;
};

static const char *quoted(struct parser *parser, const char *text) {
    return diag_quote(parser->diags, text);
}

static int bad_value(struct parser *parser, const struct value *value, const char *must) {
    return diag_error(parser->diags, value->row->code ? value->row->code : 205, EXIT_USAGE, NULL,
                      "%s must be %s, not %s", value->typed, must, quoted(parser, value->text));
}

static int not_yet(struct parser *parser, const char *what, const char *word) {
    return diag_error(parser->diags, 400, EXIT_UNSUPPORTED, NULL, "not supported yet: %s%s%s", what, *word ? " " : "",
                      word);
}

/* Parses an unsigned decimal number that fits int64_t; *rest is the text behind it. */
static bool parse_digits(const char *text, int64_t *out, const char **rest) {
    int64_t number = 0;
    if (*text < '0' || *text > '9') return false;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *text - '0', &number))
            return false;
    *out = number;
    *rest = text;
    return true;
}

static bool parse_count(const char *text, int64_t min, int64_t max, int64_t *out) {
    const char *rest;
    return parse_digits(text, out, &rest) && !*rest && *out >= min && *out <= max;
}

static bool parse_bytes(const char *text, int64_t *out) {
    static const char suffixes[] = "KMGT";
    const char *rest;
    if (!parse_digits(text, out, &rest)) return false;
    const char *suffix = *rest ? strchr(suffixes, *rest) : NULL;
    if (!suffix) return !*rest;
    return !rest[1] && !__builtin_mul_overflow(*out, INT64_C(1) << 10 * (suffix - suffixes + 1), out);
}

static int set_flag(struct parser *parser, const struct value *value) {
    (void)parser;
    *(bool *)value->field = true;
    return 0;
}

static int set_text(struct parser *parser, const struct value *value) {
    if (!*value->text) return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "%s needs a value", value->typed);
    *(const char **)value->field = arena_strdup(parser->arena, value->text);
    return 0;
}

static int refuse_line_break(struct parser *parser, const struct value *value) {
    if (!strpbrk(value->text, "\r\n")) return 0;
    return diag_error(parser->diags, 203, EXIT_USAGE, NULL, "the value of %s contains a line break: %s", value->typed,
                      quoted(parser, value->text));
}

/* Refuses line breaks, which a Makefile cannot express in a file name. */
static int set_path(struct parser *parser, const struct value *value) {
    return refuse_line_break(parser, value) ? -1 : set_text(parser, value);
}

static int set_texts(struct parser *parser, const struct value *value) {
    struct option_texts *texts = value->field;
    if (refuse_line_break(parser, value)) return -1;
    if (!*value->text) return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "%s needs a value", value->typed);
    VEC_PUSH(parser->arena, &texts->all, arena_strdup(parser->arena, value->text));
    return 0;
}

static int set_count(struct parser *parser, const struct value *value) {
    const struct option *row = value->row;
    if (parse_count(value->text, row->min, row->max, value->field)) return 0;
    return bad_value(
        parser, value,
        arena_printf(parser->arena, "a whole number from %lld to %lld", (long long)row->min, (long long)row->max));
}

static int set_bytes(struct parser *parser, const struct value *value) {
    if (parse_bytes(value->text, value->field)) return 0;
    return bad_value(parser, value, "a number of bytes, such as 512M or 80G");
}

/* The words of a group, NULL-terminated. */
static const char **group_words(struct arena *arena, enum choice_group group) {
    const char **words = ARENA_ARRAY(arena, const char *, CHOICES + 1);
    int n = 0;
    for (int i = 0; i < CHOICES; i++)
        if (choice_rows[i].group == group && *choice_rows[i].word) words[n++] = choice_rows[i].word;
    return words;
}

static const char *joined(struct arena *arena, const char *const *words, const char *separator) {
    struct strbuf text;
    strbuf_init(&text, arena);
    for (int i = 0; words[i]; i++) strbuf_printf(&text, "%s%s", i ? separator : "", words[i]);
    return strbuf_text(&text);
}

static void suggest(struct parser *parser, const char *dashes, const char *word, const char *const *words) {
    const char *near = str_nearest(word, words);
    if (near) diag_help(parser->diags, "did you mean '%s%s'?", dashes, near);
}

static int find_choice(struct parser *parser, const struct value *value, const char *word, enum choice *out) {
    enum choice_group group = value->row->choices;
    for (int i = 1; i < CHOICES; i++) {
        if (choice_rows[i].group != group || strcmp(choice_rows[i].word, word)) continue;
        if (choice_rows[i].later) return not_yet(parser, value->typed, word);
        *out = (enum choice)i;
        return 0;
    }
    const char **words = group_words(parser->arena, group);
    diag_error(parser->diags, 202, EXIT_USAGE, NULL, "unknown %s %s (%s)", group_nouns[group], quoted(parser, word),
               joined(parser->arena, words, " "));
    suggest(parser, "", word, words);
    return -1;
}

static int set_choice(struct parser *parser, const struct value *value) {
    return find_choice(parser, value, value->text, value->field);
}

/* The comma-separated members of `list`, NULL-terminated. */
static const char **split_list(struct arena *arena, const char *list) {
    const char **words = ARENA_ARRAY(arena, const char *, strlen(list) + 2);
    for (int n = 0; n || *list; n++) {
        size_t length = strcspn(list, ",");
        words[n] = arena_copy(arena, list, length);
        if (!list[length]) break;
        list += length + 1;
    }
    return words;
}

static bool is_member(const char *const *words, const char *word) {
    for (; *words; words++)
        if (!strcmp(*words, word)) return true;
    return false;
}

/* The settings of --pas that are no axes of the mesh: a choice of two words, the first of which is the default. */
static const struct preference {
    const char *key, *usual, *other;
    size_t field; /* of struct options, a bool: `other` was chosen */
    enum choice policies[3];
} preferences[] = {
    {"prefer",
     "speed",
     "memory",
     offsetof(struct options, prefer_memory),
     {OPT_POLICY_TP, OPT_POLICY_PP, OPT_POLICY_HYBRID}},
    {"attention",
     "gather",
     "heads",
     offsetof(struct options, attention_heads),
     {OPT_POLICY_CONTEXT, OPT_POLICY_HYBRID}},
};
enum { PREFERENCES = sizeof preferences / sizeof *preferences };

static const struct preference *find_preference(const char *key) {
    for (int i = 0; i < PREFERENCES; i++)
        if (!strcmp(preferences[i].key, key)) return &preferences[i];
    return NULL;
}

/* The setting of --pas that is a number and no axis: the capacity of experts' buffers. */
static bool is_capacity(enum choice word, const char *key) {
    return strcmp(key, "capacity") == 0 && (word == OPT_POLICY_EXPERT || word == OPT_POLICY_HYBRID);
}

static bool takes_preference(enum choice word, const char *key) {
    if (is_capacity(word, key)) return true;
    const struct preference *preference = find_preference(key);
    for (int i = 0; preference && i < 3; i++)
        if (preference->policies[i] == word && word) return true;
    return false;
}

static bool *preference_field(struct options *options, const struct preference *preference) {
    return (bool *)((char *)options + preference->field);
}

static int add_setting(struct parser *parser, const struct value *value, struct option_spec *spec, const char *text) {
    const char *equals = strchr(text, '='), *word = choice_word(spec->word);
    const char **keys = split_list(parser->arena, choice_rows[spec->word].keys);
    char *key = arena_copy(parser->arena, text, equals ? (size_t)(equals - text) : strlen(text));
    if (!is_member(keys, key) && !takes_preference(spec->word, key)) {
        diag_error(parser->diags, 202, EXIT_USAGE, NULL, "%s %s has no setting %s%s%s%s", value->typed, word,
                   quoted(parser, key), *keys ? " (" : "", joined(parser->arena, keys, " "), *keys ? ")" : "");
        suggest(parser, "", key, keys);
        return -1;
    }
    if (!equals || !equals[1])
        return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "setting '%s' of %s %s needs a value", key,
                          value->typed, word);
    for (int i = 0; i < spec->settings.n; i++)
        if (!strcmp(spec->settings.at[i].key, key))
            return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "setting '%s' of %s %s is given twice", key,
                              value->typed, word);
    VEC_PUSH(parser->arena, &spec->settings, (struct option_setting){key, arena_strdup(parser->arena, equals + 1)});
    return 0;
}

static int set_spec(struct parser *parser, const struct value *value) {
    struct option_spec spec = {0};
    size_t length = strcspn(value->text, ":");
    const char *colon = value->text[length] ? value->text + length : NULL;
    if (find_choice(parser, value, arena_copy(parser->arena, value->text, length), &spec.word)) return -1;
    bool file = strcmp(choice_rows[spec.word].keys, "FILE") == 0;
    if (file && (!colon || !colon[1]))
        return diag_error(parser->diags, 202, EXIT_USAGE, NULL, "%s %s needs a file: %s:FILE", value->typed,
                          quoted(parser, value->text), choice_word(spec.word));
    if (file) {
        VEC_PUSH(parser->arena, &spec.settings, (struct option_setting){"FILE", colon + 1});
    } else if (colon) {
        const char **settings = split_list(parser->arena, colon + 1);
        if (!*settings)
            return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "nothing follows the colon of %s %s", value->typed,
                              quoted(parser, value->text));
        for (; *settings; settings++)
            if (add_setting(parser, value, &spec, *settings)) return -1;
    }
    *(struct option_spec *)value->field = spec;
    return 0;
}

static int repeated_name(struct parser *parser, const struct value *value, const char *name) {
    return diag_error(parser->diags, value->row->code ? value->row->code : 200, EXIT_USAGE, NULL,
                      "%s is given twice for %s", value->typed, quoted(parser, name));
}

/* The name may contain '='; the size cannot. */
static int set_sizes(struct parser *parser, const struct value *value) {
    struct option_sizes *sizes = value->field;
    const char *equals = strrchr(value->text, '=');
    struct option_size item;
    if (!equals || equals == value->text || !parse_count(equals + 1, 1, INT64_MAX, &item.size))
        return bad_value(parser, value, "NAME=SIZE, where SIZE is a whole number of at least 1");
    item.name = arena_copy(parser->arena, value->text, (size_t)(equals - value->text));
    for (int i = 0; i < sizes->all.n; i++)
        if (!strcmp(sizes->all.at[i].name, item.name)) return repeated_name(parser, value, item.name);
    VEC_PUSH(parser->arena, &sizes->all, item);
    return 0;
}

const struct option_shape_word option_shape_words[] = {{"scalar", 0}, {"none", -1}, {"empty", -2}, {NULL, 0}};

/* Parses "4,16" or a word behind the equals sign. */
static bool parse_shape(const char *text, struct option_shape *shape) {
    for (const struct option_shape_word *row = option_shape_words; row->word; row++) {
        shape->ndim = row->ndim;
        if (strcmp(text, row->word) == 0) return true;
    }
    for (shape->ndim = 0; shape->ndim < RT_MAX_NDIM; text++) {
        int64_t *size = &shape->sizes[shape->ndim++];
        if (!parse_digits(text, size, &text) || *size < 1) return false;
        if (*text != ',') return !*text;
    }
    return false;
}

static int set_shapes(struct parser *parser, const struct value *value) {
    struct option_shapes *shapes = value->field;
    const char *equals = strrchr(value->text, '=');
    struct option_shape item;
    if (!equals || equals == value->text || !parse_shape(equals + 1, &item))
        return bad_value(parser, value,
                         arena_printf(parser->arena,
                                      "INPUT=SIZE,SIZE,.., where a SIZE is a whole number of at least 1 "
                                      "and there are at most %d; or scalar, none or empty",
                                      RT_MAX_NDIM));
    item.name = arena_copy(parser->arena, value->text, (size_t)(equals - value->text));
    for (int i = 0; i < shapes->all.n; i++)
        if (!strcmp(shapes->all.at[i].name, item.name)) return repeated_name(parser, value, item.name);
    VEC_PUSH(parser->arena, &shapes->all, item);
    return 0;
}

static int set_files(struct parser *parser, const struct value *value) {
    struct option_files *files = value->field;
    const char *equals = strchr(value->text, '=');
    if (!equals || equals == value->text || !equals[1]) return bad_value(parser, value, "NAME=FILE");
    struct option_file item = {arena_copy(parser->arena, value->text, (size_t)(equals - value->text)),
                               arena_strdup(parser->arena, equals + 1)};
    for (int i = 0; i < files->all.n; i++)
        if (!strcmp(files->all.at[i].name, item.name)) return repeated_name(parser, value, item.name);
    VEC_PUSH(parser->arena, &files->all, item);
    return 0;
}

static int (*const setters[])(struct parser *, const struct value *) = {
    [OPTION_FLAG] = set_flag,     [OPTION_TEXT] = set_text,     [OPTION_PATH] = set_path,   [OPTION_COUNT] = set_count,
    [OPTION_BYTES] = set_bytes,   [OPTION_CHOICE] = set_choice, [OPTION_SPEC] = set_spec,   [OPTION_SIZES] = set_sizes,
    [OPTION_SHAPES] = set_shapes, [OPTION_FILES] = set_files,   [OPTION_TEXTS] = set_texts,
};

static int set_field(struct parser *parser, const struct option *row, const char *typed, const char *text) {
    struct value value = {row, typed, text, (char *)parser->options + row->offset};
    return setters[row->kind](parser, &value);
}

static void set_defaults(struct parser *parser) {
    for (int i = 0; i < OPTIONS; i++) {
        const char *fallback = option_rows[i].fallback;
        if (fallback && *fallback != '(' && set_field(parser, &option_rows[i], option_rows[i].name, fallback))
            BUG("default of --%s", option_rows[i].name);
    }
}

/* ---- arguments ---- */

static int usage_error(struct parser *parser, const char *what) {
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
    usage_error(parser, arena_printf(parser->arena, "unknown option %s", quoted(parser, typed)));
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
    if (row->later) return not_yet(parser, typed, "");
    bool *given = &parser->options->given[row - option_rows];
    if (*given && !option_is_repeatable(row))
        return usage_error(parser, arena_printf(parser->arena, "%s is given twice", typed));
    *given = true;
    return set_field(parser, row, typed, text);
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
        if (attached) return usage_error(parser, arena_printf(parser->arena, "%s takes no value", typed));
        return give(parser, row, typed, "");
    }
    if (attached) return give(parser, row, typed, attached);
    if (!is_value(next)) {
        if (row->later) return not_yet(parser, typed, "");
        return usage_error(parser, arena_printf(parser->arena, "%s needs a value: %s %s", typed, typed,
                                                option_argument(row, parser->arena)));
    }
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
static const char *action_operand(enum action action, int index, struct arena *arena) {
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
    return usage_error(parser, arena_printf(parser->arena, "%s has no action %s", verb_rows[options->verb].name,
                                            quoted(parser, word)));
}

static int set_operand(struct parser *parser, const char *argument) {
    struct options *options = parser->options;
    if (!*argument) return usage_error(parser, "an empty argument");
    for (int i = 0; options->action && i < OPERANDS_MAX && action_operand(options->action, i, parser->arena); i++) {
        if (options->operands[i]) continue;
        options->operands[i] = arena_strdup(parser->arena, argument);
        return 0;
    }
    const bool acts = *action_names(options->verb, " ", parser->arena);
    if (acts && options->operand && !options->action) return -1; /* reported: what it is an operand of is unknown */
    if (parser->options->operand || !*verb_rows[parser->options->verb].operand)
        return usage_error(parser, arena_printf(parser->arena, "unexpected argument %s", quoted(parser, argument)));
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
        return verb_rows[i].later ? not_yet(parser, "rankc", word) : 0;
    }
    usage_error(parser, arena_printf(parser->arena, "unknown verb %s", quoted(parser, word)));
    suggest(parser, "", word, names);
    return -1;
}

/* ---- the mesh ---- */

/* True for --pas manual:FILE and the like, where the file determines the mesh. */
static bool takes_file(const struct options *options) {
    return strcmp(choice_rows[options->pas.word].keys, "FILE") == 0;
}

static int take_capacity(struct parser *parser, const char *text) {
    char *end;
    const double factor = strtod(text, &end);
    const bool number = end > text && !*end && factor >= 0.001 && factor <= 1e6;
    if (!number)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "capacity of --pas must be a number from 0.001 to 1000000, not %s", quoted(parser, text));
    parser->options->expert_capacity = (int64_t)(factor * 1000 + 0.5);
    return 0;
}

/* Takes the settings that are no axes out of those of the policy. */
static int take_preferences(struct parser *parser) {
    struct options *options = parser->options;
    struct option_setting *settings = options->pas.settings.at;
    int kept = 0;
    for (int i = 0; i < options->pas.settings.n; i++) {
        const struct preference *preference = find_preference(settings[i].key);
        if (is_capacity(options->pas.word, settings[i].key)) {
            if (take_capacity(parser, settings[i].value)) return -1;
            continue;
        }
        if (!preference) {
            settings[kept++] = settings[i];
            continue;
        }
        const bool other = strcmp(settings[i].value, preference->other) == 0;
        *preference_field(options, preference) = other;
        if (!other && strcmp(settings[i].value, preference->usual))
            return diag_error(parser->diags, 202, EXIT_USAGE, NULL, "unknown setting %s=%s of --pas (%s %s)",
                              preference->key, quoted(parser, settings[i].value), preference->usual, preference->other);
    }
    options->pas.settings.n = kept;
    return 0;
}

static int named_mesh(struct parser *parser, int64_t *product) {
    struct options *options = parser->options;
    *product = 1;
    if (takes_file(options)) return 0;
    for (int i = 0; i < options->pas.settings.n; i++) {
        const struct option_setting *setting = &options->pas.settings.at[i];
        int64_t size;
        if (!parse_count(setting->value, 1, RT_MAX_RANKS, &size))
            return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                              "axis '%s' of --pas must be a whole number from 1 to %d, not %s", setting->key,
                              RT_MAX_RANKS, quoted(parser, setting->value));
        options->mesh[options->naxes++] = (struct mesh_axis){setting->key, (int)size};
        *product *= size; /* at most RT_MAX_RANKS ** RT_MAX_AXES */
    }
    if (*product > RT_MAX_RANKS)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL, "the mesh of --pas %s has %lld devices, more than %d",
                          options_text(options, OPT_PAS, parser->arena), (long long)*product, RT_MAX_RANKS);
    return 0;
}

/* The mesh of a policy with one axis, if none is given: all --plan-ngpus devices on that axis. */
static void default_mesh(struct parser *parser) {
    struct options *options = parser->options;
    const char *axis = choice_rows[options->pas.word].keys;
    if (!*axis || strchr(axis, ',') || takes_file(options)) return;
    options->mesh[options->naxes++] = (struct mesh_axis){axis, (int)options->plan_ngpus};
    const char *size = arena_printf(parser->arena, "%lld", (long long)options->plan_ngpus);
    VEC_PUSH(parser->arena, &options->pas.settings, (struct option_setting){axis, size});
}

static int check_dp(struct parser *parser) {
    if (parser->options->pas.word != OPT_POLICY_DP || parser->options->plan_ngpus == 1) return 0;
    diag_error(parser->diags, 204, EXIT_USAGE, NULL,
               "--pas dp replicates the whole model on every device: --plan-ngpus must be 1, not %lld",
               (long long)parser->options->plan_ngpus);
    diag_help(
        parser->diags,
        "--runtime-ngpus sets the number of data-parallel devices; --pas data splits the batch within a scale unit");
    return -1;
}

static int check_sequence_parallel(struct parser *parser) {
    const struct options *options = parser->options;
    for (int i = 0; i < options->naxes; i++)
        if (!strcmp(options->mesh[i].name, "tensor")) return 0;
    return options->sequence_parallel
               ? diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                            "--sequence-parallel goes with tensor parallelism, and --pas %s has no axis tensor",
                            options_text(options, OPT_PAS, parser->arena))
               : 0;
}

static int finish_mesh(struct parser *parser) {
    struct options *options = parser->options;
    int64_t product;
    if (take_preferences(parser)) return -1;
    if (named_mesh(parser, &product)) return -1;
    if (!options->given[OPT_PLAN_NGPUS])
        options->plan_ngpus = product;
    else if (options->naxes && options->plan_ngpus != product)
        return diag_error(
            parser->diags, 204, EXIT_USAGE, NULL, "the mesh of --pas %s has %lld devices, but --plan-ngpus is %lld",
            options_text(options, OPT_PAS, parser->arena), (long long)product, (long long)options->plan_ngpus);
    if (check_dp(parser)) return -1;
    if (!options->naxes) default_mesh(parser);
    if (check_sequence_parallel(parser)) return -1;
    for (int i = 0; i < PREFERENCES; i++)
        if (*preference_field(options, &preferences[i]))
            VEC_PUSH(parser->arena, &options->pas.settings,
                     ((struct option_setting){preferences[i].key, preferences[i].other}));
    if (options->expert_capacity)
        VEC_PUSH(parser->arena, &options->pas.settings,
                 ((struct option_setting){"capacity",
                                          arena_printf(parser->arena, "%g", (double)options->expert_capacity / 1000)}));
    if (!options->given[OPT_RUNTIME_NGPUS]) options->runtime_ngpus = options->plan_ngpus;
    if (options->runtime_ngpus % options->plan_ngpus == 0) return 0;
    return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                      "--runtime-ngpus must be a multiple of --plan-ngpus: %lld is not a multiple of %lld",
                      (long long)options->runtime_ngpus, (long long)options->plan_ngpus);
}

/* --model-config takes the place of the operand, and of what a model file says. It is for training on GPUs unless the
 * options say otherwise. */
static int take_configuration(struct parser *parser) {
    static const enum option_id of_files[] = {OPT_SHAPE, OPT_BIND, OPT_LOSS, OPT_OPS, OPT_WEIGHTS_FROM, OPT_TRAIN};
    struct options *options = parser->options;
    if (!options->model_config) return usage_error(parser, "--inference needs --model-config");
    if (options->operand) return usage_error(parser, "MODEL.onnx and --model-config exclude each other");
    for (size_t i = 0; i < sizeof of_files / sizeof *of_files; i++)
        if (options->given[of_files[i]])
            return usage_error(parser, arena_printf(parser->arena, "--%s is for a model file, not for --model-config",
                                                    option_rows[of_files[i]].name));
    options->operand = options->model_config;
    options->train = !options->inference;
    if (!options->given[OPT_TARGET]) options->target = OPT_TARGET_CUDA;
    if (!options->given[OPT_ATTENTION] && options->target == OPT_TARGET_CUDA) options->attention = OPT_ATTENTION_FLASH;
    if (options->train && options->attention == OPT_ATTENTION_PRODUCTS)
        return usage_error(parser,
                           "without flash attention, which only target cuda has, --model-config needs --inference");
    return 0;
}

bool options_divide_batch(struct options *options) {
    int64_t sequences = options->runtime_ngpus / options->plan_ngpus;
    if (!options->global_batch) return true;
    for (int i = 0; i < options->dims.all.n; i++)
        if (strcmp(options->dims.all.at[i].name, "batch") == 0) sequences *= options->dims.all.at[i].size;
    options->accumulate = options->global_batch / sequences;
    return options->global_batch % sequences == 0;
}

/* --global-batch. The search of autodist divides it for each of its meshes. */
static int take_batch(struct parser *parser) {
    struct options *options = parser->options;
    if (!options->model_config || options->inference)
        return usage_error(parser, "--global-batch is for training with --model-config");
    if (options->given[OPT_ACCUMULATE])
        return usage_error(parser, "--global-batch determines --accumulate: give one of them");
    if (options->pas.word == OPT_POLICY_AUTODIST || options_divide_batch(options)) return 0;
    return diag_error(parser->diags, 205, EXIT_USAGE, "--global-batch",
                      "%lld sequences are no multiple of those of a micro-batch on all %lld scale units",
                      (long long)options->global_batch, (long long)(options->runtime_ngpus / options->plan_ngpus));
}

/* E0200 for an option of the search with another policy. */
static int check_search(struct parser *parser) {
    static const enum option_id of_search[] = {OPT_SEARCH_TIME, OPT_FORBID, OPT_REQUIRE};
    if (parser->options->pas.word == OPT_POLICY_AUTODIST) return 0;
    for (size_t i = 0; i < sizeof of_search / sizeof *of_search; i++)
        if (parser->options->given[of_search[i]])
            return usage_error(
                parser, arena_printf(parser->arena, "--%s is for --pas autodist", option_rows[of_search[i]].name));
    return 0;
}

static int finish(struct parser *parser) {
    struct options *options = parser->options;
    const char *operand = verb_rows[options->verb].operand;
    if (parser->diags->errors) return -1;
    if (options->verbose && options->quiet) return usage_error(parser, "-v and -q contradict each other");
    if (options->given[OPT_STALL_TIMEOUT] && options->comm == OPT_COMM_LOOPBACK)
        return usage_error(parser, "--stall-timeout needs ranks that are processes; with "
                                   "--comm loopback they are threads of one process");
    if (options->given[OPT_STALL_TIMEOUT] && options->comm == OPT_COMM_MPI)
        return usage_error(parser, "--stall-timeout is for ranks that rankc starts; with --comm mpi mpirun does");
    if (options->restarts && options->comm == OPT_COMM_LOOPBACK)
        return usage_error(parser, "--restarts needs ranks that are processes; with "
                                   "--comm loopback they are threads of one process");
    if (options->restarts && !options->checkpoint_dir) return usage_error(parser, "--restarts needs --checkpoint-dir");
    if (options->restarts && options->reset_optimizer)
        return usage_error(parser, "--restarts resumes optimizer state, and --reset-optimizer drops it");
    if (options->help) return 0;
    if (!strcmp(options->instance_name, ".") || !strcmp(options->instance_name, ".."))
        return diag_error(parser->diags, 205, EXIT_USAGE, NULL,
                          "--instance-name must be usable as the name of a directory, not '%s'",
                          options->instance_name);
    if (options->model_config || options->inference) take_configuration(parser);
    if (parser->diags->errors) return -1;
    if (options->rows && (options->operand || options->model_config))
        return usage_error(parser, "--rows takes the place of MODEL.onnx and --model-config");
    if (options->verb == VERB_PLAN && !options->operand && !options->rows)
        return usage_error(parser, "MODEL.onnx, --model-config or --rows is missing");
    if (*operand && *operand != '[' && !options->operand)
        return usage_error(parser, arena_printf(parser->arena, "%s is missing", operand));
    for (int i = 0; options->action && i < OPERANDS_MAX; i++) {
        const char *wanted = action_operand(options->action, i, parser->arena);
        if (wanted && !options->operands[i])
            return usage_error(parser, arena_printf(parser->arena, "%s is missing", wanted));
    }
    if (finish_mesh(parser) || check_search(parser)) return -1;
    return options->global_batch ? take_batch(parser) : 0;
}

static const char *command_text(const struct arguments *arguments, struct arena *arena) {
    struct strbuf text;
    strbuf_init(&text, arena);
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

int options_parse(struct options *out, int argc, char **argv, struct arena *arena, struct diags *diags) {
    struct parser parser = {out, arena, diags};
    struct arguments arguments = {0};
    *out = (struct options){.verb = VERB_HELP};
    set_defaults(&parser);
    if (response_expand(&arguments, argc, argv, arena, diags)) return give_up(out, argc, (const char *const *)argv);
    if (!arguments.all.n) return usage_error(&parser, "no verb given");
    out->command = command_text(&arguments, arena);
    bool named = arguments.all.at[0][0] != '-';
    if (named && find_verb(&parser, arguments.all.at[0])) return give_up(out, arguments.all.n, arguments.all.at);
    parse_arguments(&parser, arguments.all.at + named, arguments.all.n - named);
    return finish(&parser);
}
