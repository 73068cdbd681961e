/* What the driver and the verbs ask of parsed options: names that follow from them, and their values as text. */
#include <stdlib.h>
#include <string.h>

#include "frontend/options/options.h"
#include "ir/base/str.h"
#include "runtime/base/io/file.h"

enum { NAME_BYTES = 240 }; /* of a directory, so that a number and the ending of a staging directory have room */

const char *option_argument(const struct option *option, struct arena *arena) {
    if (option->kind != OPTION_CHOICE) return option->metavar;
    struct strbuf words = {.arena = arena};
    for (int i = 1; i < CHOICES; i++)
        if (choice_rows[i].group == option->choices && !choice_rows[i].later)
            strbuf_printf(&words, "%s%s", words.length ? "|" : "", choice_rows[i].word);
    return strbuf_text(&words);
}

int options_of(const struct decision *row) {
    for (int i = 0; i < OPTIONS && !row->policies; i++)
        if (!strcmp(option_rows[i].name, row->name)) return i;
    return -1;
}

/* True if the option of compiling also chooses among what a compiled model has. */
static bool chooses(const struct options *options, enum option_id id) {
    if (id == OPT_ADAPTER) return options->verb != VERB_SHOW;
    return (options->verb == VERB_SHOW || options->verb == VERB_RUN) && option_of_verb(&option_rows[id], VERB_VERIFY);
}

const char *options_compiling(const struct options *options, struct arena *arena) {
    for (int i = 0; i < OPTIONS; i++)
        if (options->given[i] && option_of_verb(&option_rows[i], VERB_PLAN) &&
            !option_of_verb(&option_rows[i], VERB_TRAIN) && !chooses(options, (enum option_id)i))
            return arena_printf(arena, "--%s", option_rows[i].name);
    return NULL;
}

char *options_file_name(const char *text, struct arena *arena) {
    char *name = str_filename(arena, text, strnlen(text, NAME_BYTES));
    if (*name == '.') *name = '_';
    return *name ? name : arena_strdup(arena, "_");
}

char *options_stem(const char *path, struct arena *arena) {
    const char *file = rt_path_name(path);
    const char *dot = strrchr(file, '.');
    return arena_copy(arena, file, dot && dot > file ? (size_t)(dot - file) : strlen(file));
}

char *options_model(const struct options *options, struct arena *arena) {
    return options_file_name(options_stem(options->operand, arena), arena);
}

char *options_instance(const struct options *options, struct arena *arena) {
    return options_file_name(options->instance_name, arena);
}

/* "tp:tensor=2,prefer=memory": the mesh, even if only --plan-ngpus was given, and the settings that were made. */
static const char *policy_text(const struct options *options, struct arena *arena) {
    const struct mesh *mesh = &options->decisions.mesh;
    const char *policy = choice_word(options->pas.word);
    int n = 0;
    struct strbuf text = {.arena = arena};
    strbuf_puts(&text, policy);
    if (options->pas.file) strbuf_printf(&text, ":FILE=%s", options->pas.file);
    for (int a = 0; a < mesh->naxes; a++) strbuf_printf(&text, "%c%s", n++ ? ',' : ':', mesh_axis_text(mesh, a, arena));
    for (const struct decision *row = decision_rows; row < decision_rows + DECISIONS; row++) {
        const char *value = row->policies ? decision_text(row, &options->decisions, arena) : NULL;
        if (value) strbuf_printf(&text, "%c%s=%s", n++ ? ',' : ':', row->name, value);
    }
    return strbuf_text(&text);
}

struct pair {
    const char *name, *value;
};

static int compare_pairs(const void *left, const void *right) {
    return strcmp(((const struct pair *)left)->name, ((const struct pair *)right)->name);
}

static const char *pairs_text(struct pair *pairs, int n, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    if (n) qsort(pairs, (size_t)n, sizeof *pairs, compare_pairs);
    for (int i = 0; i < n; i++) strbuf_printf(&text, "%s%s=%s", i ? "," : "", pairs[i].name, pairs[i].value);
    return strbuf_text(&text);
}

static const char *sizes_text(const struct option_sizes *sizes, struct arena *arena) {
    struct pair *pairs = ARENA_ARRAY(arena, struct pair, sizes->all.n);
    for (int i = 0; i < sizes->all.n; i++)
        pairs[i] = (struct pair){sizes->all.at[i].name, open_range_text(arena, &sizes->all.at[i].range)};
    return pairs_text(pairs, sizes->all.n, arena);
}

static const char *shapes_text(const struct option_shapes *shapes, struct arena *arena) {
    struct pair *pairs = ARENA_ARRAY(arena, struct pair, shapes->all.n);
    VEC_EACH(&shapes->all, i, const struct option_shape *shape) {
        struct strbuf sizes = {.arena = arena};
        for (int d = 0; d < shape->ndim; d++)
            strbuf_printf(&sizes, "%s%s", d ? "," : "", open_range_text(arena, &shape->sizes[d]));
        for (const struct option_shape_word *row = option_shape_words; row->word; row++)
            if (row->ndim == shape->ndim) strbuf_puts(&sizes, row->word);
        pairs[i] = (struct pair){shape->name, strbuf_text(&sizes)};
    }
    return pairs_text(pairs, shapes->all.n, arena);
}

static const char *files_text(const struct option_files *files, struct arena *arena) {
    struct pair *pairs = ARENA_ARRAY(arena, struct pair, files->all.n);
    for (int i = 0; i < files->all.n; i++) pairs[i] = (struct pair){files->all.at[i].name, files->all.at[i].path};
    return pairs_text(pairs, files->all.n, arena);
}

/* Joins the texts by line breaks, which none of them contains. */
static const char *texts_text(const struct option_texts *texts, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    for (int i = 0; i < texts->all.n; i++) strbuf_printf(&text, "%s%s", i ? "\n" : "", texts->all.at[i]);
    return strbuf_text(&text);
}

const char *options_text(const struct options *options, enum option_id id, struct arena *arena) {
    const struct option *row = &option_rows[id];
    const void *field = (const char *)options + row->offset;
    switch (row->kind) {
    case OPTION_FLAG: return *(const bool *)field ? "1" : "";
    case OPTION_TEXT:
    case OPTION_PATH: return *(const char *const *)field ? *(const char *const *)field : "";
    case OPTION_COUNT:
        if (row->word && *(const int64_t *)field <= 0) return *(const int64_t *)field ? row->word : "";
        return arena_printf(arena, "%lld", (long long)*(const int64_t *)field);
    case OPTION_BYTES: return arena_printf(arena, "%lld", (long long)*(const int64_t *)field);
    case OPTION_CHOICE: return choice_word(*(const enum choice *)field);
    case OPTION_POLICY: return policy_text(options, arena);
    case OPTION_SIZES: return sizes_text(field, arena);
    case OPTION_SHAPES: return shapes_text(field, arena);
    case OPTION_FILES: return files_text(field, arena);
    case OPTION_TEXTS: return texts_text(field, arena);
    }
    BUG("unknown kind %d of an option", (int)row->kind);
}
