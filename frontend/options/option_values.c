/* The values of options, parsed into their fields: a setter for each kind. */
#include "frontend/options/parser.h"

#include <stdlib.h>
#include <string.h>

static const char *const group_nouns[GROUPS] = {
    "",
#define GROUP(ID, NOUN) NOUN,
#include "frontend/options/options.def"
};

/* A value to be parsed into a field. `typed` is the option as the user wrote it, "--pas" or "-o". */
struct value {
    const struct option *row;
    const char *typed, *text;
    void *field;
};

const char *parser_quote(struct parser *parser, const char *text) {
    return diag_quote(parser->diags, text);
}

static int bad_value(struct parser *parser, const struct value *value, const char *must) {
    return diag_error(parser->diags, value->row->code ? value->row->code : 205, EXIT_USAGE, NULL,
                      "%s must be %s, not %s", value->typed, must, parser_quote(parser, value->text));
}

/* E0400: a word of an option of a later version. */
static int parser_not_yet(struct parser *parser, const char *what, const char *word) {
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

bool parser_count(const char *text, int64_t min, int64_t max, int64_t *out) {
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
    if (!*value->text && !value->row->bare)
        return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "%s needs a value", value->typed);
    *(const char **)value->field = arena_strdup(parser->arena, value->text);
    return 0;
}

static int refuse_line_break(struct parser *parser, const struct value *value) {
    if (!strpbrk(value->text, "\r\n")) return 0;
    return diag_error(parser->diags, 203, EXIT_USAGE, NULL, "the value of %s contains a line break: %s", value->typed,
                      parser_quote(parser, value->text));
}

/* Refuses line breaks, which a Makefile cannot express in a file name. */
static int set_path(struct parser *parser, const struct value *value) {
    return refuse_line_break(parser, value) ? -1 : set_text(parser, value);
}

static int set_texts(struct parser *parser, const struct value *value) {
    struct option_texts *texts = value->field;
    if (!value->row->lines && refuse_line_break(parser, value)) return -1;
    if (!*value->text) return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "%s needs a value", value->typed);
    VEC_PUSH(parser->arena, &texts->all, arena_strdup(parser->arena, value->text));
    return 0;
}

static int set_count(struct parser *parser, const struct value *value) {
    const struct option *row = value->row;
    if (row->word && strcmp(value->text, row->word) == 0) return *(int64_t *)value->field = -1, 0;
    if (parser_count(value->text, row->min, row->max, value->field)) return 0;
    return bad_value(parser, value,
                     arena_printf(parser->arena, "%s%sa whole number from %lld to %lld", row->word ? row->word : "",
                                  row->word ? " or " : "", (long long)row->min, (long long)row->max));
}

static int set_bytes(struct parser *parser, const struct value *value) {
    if (parse_bytes(value->text, value->field) && *(const int64_t *)value->field > 0) return 0;
    return bad_value(parser, value, "a number of bytes above 0, such as 512M or 80G");
}

/* The words of a group, NULL-terminated. */
static const char **group_words(struct arena *arena, enum choice_group group) {
    const char **words = ARENA_ARRAY(arena, const char *, CHOICES + 1);
    int n = 0;
    for (int i = 0; i < CHOICES; i++)
        if (choice_rows[i].group == group && *choice_rows[i].word) words[n++] = choice_rows[i].word;
    return words;
}

const char *parser_joined(struct arena *arena, const char *const *words) {
    struct strbuf text = {.arena = arena};
    for (int i = 0; words[i]; i++) strbuf_printf(&text, "%s%s", i ? " " : "", words[i]);
    return strbuf_text(&text);
}

void parser_suggest(struct parser *parser, const char *dashes, const char *word, const char *const *words) {
    const char *near = str_nearest(word, words);
    if (near) diag_help(parser->diags, "did you mean '%s%s'?", dashes, near);
}

static int find_choice(struct parser *parser, const struct value *value, const char *word, enum choice *out) {
    enum choice_group group = value->row->choices;
    for (int i = 1; i < CHOICES; i++) {
        if (choice_rows[i].group != group || strcmp(choice_rows[i].word, word)) continue;
        if (choice_rows[i].later) return parser_not_yet(parser, value->typed, word);
        *out = (enum choice)i;
        return 0;
    }
    const char **words = group_words(parser->arena, group);
    diag_error(parser->diags, 202, EXIT_USAGE, NULL, "unknown %s %s (%s)", group_nouns[group],
               parser_quote(parser, word), parser_joined(parser->arena, words));
    parser_suggest(parser, "", word, words);
    return -1;
}

static int set_choice(struct parser *parser, const struct value *value) {
    return find_choice(parser, value, value->text, value->field);
}

const char **parser_split_list(struct arena *arena, const char *list) {
    const char **words = ARENA_ARRAY(arena, const char *, strlen(list) + 2);
    for (int n = 0; n || *list; n++) {
        size_t length = strcspn(list, ",");
        words[n] = arena_copy(arena, list, length);
        if (!list[length]) break;
        list += length + 1;
    }
    return words;
}

static int set_policy(struct parser *parser, const struct value *value) {
    struct option_policy policy = {0};
    const size_t length = strcspn(value->text, ":");
    const char *behind = value->text[length] ? value->text + length + 1 : NULL;
    if (find_choice(parser, value, arena_copy(parser->arena, value->text, length), &policy.word)) return -1;
    const bool file = strcmp(choice_rows[policy.word].keys, "FILE") == 0;
    if (file && (!behind || !*behind))
        return diag_error(parser->diags, 202, EXIT_USAGE, NULL, "%s %s needs a file: %s:FILE", value->typed,
                          parser_quote(parser, value->text), choice_word(policy.word));
    if (file) policy.file = arena_strdup(parser->arena, behind);
    *(struct option_policy *)value->field = policy;
    if (file || !behind) return 0;
    if (!*behind)
        return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "nothing follows the colon of %s %s", value->typed,
                          parser_quote(parser, value->text));
    for (const char **settings = parser_split_list(parser->arena, behind); *settings; settings++)
        if (parser_add_setting(parser, *settings)) return -1;
    return 0;
}

static int repeated_name(struct parser *parser, const struct value *value, const char *name) {
    return diag_error(parser->diags, value->row->code ? value->row->code : 200, EXIT_USAGE, NULL,
                      "%s is given twice for %s", value->typed, parser_quote(parser, name));
}

/* E0205, with what ranges are where one is given. */
static int bad_sizes(struct parser *parser, const struct value *value, const char *form, const char *behind) {
    const char *must = arena_printf(
        parser->arena, "%s, where SIZE is a whole number or a range LO..HI[:STEP][@TYPICAL]%s", form, behind);
    bad_value(parser, value, must);
    if (strstr(value->text, ".."))
        diag_help(parser->diags, "a size of the range is chosen at run time: LO, LO + STEP .. HI; HI and TYPICAL, at "
                                 "which plans are decided, are such sizes");
    return -1;
}

bool option_has_size(const struct option_sizes *sizes, const char *name) {
    for (int i = 0; i < sizes->all.n; i++)
        if (strcmp(sizes->all.at[i].name, name) == 0) return true;
    return false;
}

/* The name may contain '='; the size cannot. */
static int set_sizes(struct parser *parser, const struct value *value) {
    struct option_sizes *sizes = value->field;
    const char *equals = strrchr(value->text, '=');
    const char *rest;
    struct option_size item;
    if (!equals || equals == value->text || !open_range_parse(equals + 1, &item.range, &rest) || *rest)
        return bad_sizes(parser, value, "NAME=SIZE", "");
    item.name = arena_copy(parser->arena, value->text, (size_t)(equals - value->text));
    for (int i = 0; i < sizes->all.n; i++) {
        if (strcmp(sizes->all.at[i].name, item.name) != 0) continue;
        if (parser->options->verb != VERB_SHOW && parser->options->verb != VERB_VERIFY)
            return repeated_name(parser, value, item.name);
        VEC_PUSH(parser->arena, &sizes->more, item);
        return 0;
    }
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
        if (!open_range_parse(text, &shape->sizes[shape->ndim++], &text)) return false;
        if (*text != ',') return !*text;
    }
    return false;
}

static int set_shapes(struct parser *parser, const struct value *value) {
    struct option_shapes *shapes = value->field;
    const char *equals = strrchr(value->text, '=');
    struct option_shape item;
    if (!equals || equals == value->text || !parse_shape(equals + 1, &item))
        return bad_sizes(parser, value, "INPUT=SIZE,SIZE,..",
                         arena_printf(parser->arena, "; at most %d of them, or scalar, none or empty", RT_MAX_NDIM));
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
    [OPTION_FLAG] = set_flag,     [OPTION_TEXT] = set_text,   [OPTION_PATH] = set_path,
    [OPTION_COUNT] = set_count,   [OPTION_BYTES] = set_bytes, [OPTION_CHOICE] = set_choice,
    [OPTION_POLICY] = set_policy, [OPTION_SIZES] = set_sizes, [OPTION_SHAPES] = set_shapes,
    [OPTION_FILES] = set_files,   [OPTION_TEXTS] = set_texts,
};

int parser_set(struct parser *parser, const struct option *row, const char *typed, const char *text) {
    struct value value = {row, typed, text, (char *)parser->options + row->offset};
    return setters[row->kind](parser, &value);
}

void parser_set_defaults(struct parser *parser) {
    for (int i = 0; i < OPTIONS; i++) {
        const char *fallback = option_rows[i].fallback;
        if (fallback && *fallback != '(' && parser_set(parser, &option_rows[i], option_rows[i].name, fallback))
            BUG("default of --%s", option_rows[i].name);
    }
}
