#include "codegen/text/tmpl.h"

#include <ctype.h>
#include <string.h>

#include "ir/base/diag.h"
#include "ir/base/vec.h"

struct binding {
    const char *name, *text; /* text NULL: a list */
    VEC(struct tmpl_env *) entries;
};

struct tmpl_env {
    struct arena *arena;
    const struct tmpl_env *outer;
    VEC(struct binding) bindings;
};

struct tmpl_env *tmpl_env(struct arena *arena, const struct tmpl_env *outer) {
    struct tmpl_env *env = ARENA_NEW(arena, struct tmpl_env);
    env->arena = arena;
    env->outer = outer;
    return env;
}

static struct binding *own(struct tmpl_env *env, const char *name) {
    for (int i = 0; i < env->bindings.n; i++)
        if (strcmp(env->bindings.at[i].name, name) == 0) return &env->bindings.at[i];
    VEC_PUSH(env->arena, &env->bindings, (struct binding){.name = arena_strdup(env->arena, name)});
    return &env->bindings.at[env->bindings.n - 1];
}

static const struct binding *find(const struct tmpl_env *env, const char *name) {
    for (; env; env = env->outer)
        for (int i = 0; i < env->bindings.n; i++)
            if (strcmp(env->bindings.at[i].name, name) == 0) return &env->bindings.at[i];
    return NULL;
}

void tmpl_set(struct tmpl_env *env, const char *name, const char *text) {
    own(env, name)->text = arena_strdup(env->arena, text);
}

void tmpl_setf(struct tmpl_env *env, const char *name, const char *format, ...) {
    ARENA_PRINT_TO(own(env, name)->text, env->arena, format);
}

void tmpl_list(struct tmpl_env *env, const char *name) {
    own(env, name);
}

struct tmpl_env *tmpl_entry(struct tmpl_env *env, const char *name) {
    struct tmpl_env *entry = tmpl_env(env->arena, env);
    struct binding *list = own(env, name);
    VEC_PUSH(env->arena, &list->entries, entry);
    return entry;
}

struct line {
    const char *at, *end; /* without the newline */
    const char *word;     /* of a directive, after '@'; else NULL */
    int number;
};

struct filler {
    const char *name;
    struct line *lines;
    int n;
    struct strbuf out;
};

static _Noreturn void complain(const struct filler *filler, const struct line *line, const char *what) {
    BUG("template %s:%d: %s: %.*s", filler->name, line->number, what, (int)(line->end - line->at), line->at);
}

static void split_lines(struct filler *filler, struct arena *arena, const char *text) {
    int count = 1;
    for (const char *c = text; *c; c++) count += *c == '\n';
    filler->lines = ARENA_ARRAY(arena, struct line, count);
    for (int number = 1; *text; number++) {
        struct line *line = &filler->lines[filler->n++];
        size_t length = strcspn(text, "\n");
        const char *first = text + strspn(text, " ");
        *line = (struct line){text, text + length, *first == '@' ? first + 1 : NULL, number};
        text += length + (text[length] == '\n');
    }
}

static bool is_word(const struct line *line, const char *word) {
    size_t length = strlen(word);
    return line->word && strncmp(line->word, word, length) == 0 && !isalnum((unsigned char)line->word[length]);
}

/* The line of the @end (with or_else also of the @else) that belongs to the directive before line `i`. */
static int matching(const struct filler *filler, int i, bool or_else) {
    for (int depth = 0, from = i; i < filler->n; i++) {
        const struct line *line = &filler->lines[i];
        if (is_word(line, "for") || is_word(line, "if")) depth++;
        if (is_word(line, "end") && depth-- == 0) return i;
        if (or_else && depth == 0 && is_word(line, "else")) return i;
        if (i == filler->n - 1) complain(filler, &filler->lines[from - 1], "no @end");
    }
    return filler->n;
}

static const char *name_in(struct filler *filler, const char *at, size_t length) {
    return arena_copy(filler->out.arena, at, length);
}

/* Writes the value of a ${name}; further lines of the value get the indentation of the template's line. */
static void put_value(struct filler *filler, const struct line *line, const char *value) {
    size_t indent = strspn(line->at, " ");
    for (; *value; value++) {
        strbuf_putc(&filler->out, *value);
        if (*value == '\n' && value[1] != '\n' && value[1]) strbuf_add(&filler->out, line->at, indent);
    }
}

static void put_line(struct filler *filler, const struct line *line, const struct tmpl_env *env) {
    for (const char *c = line->at; c < line->end; c++) {
        if (c[0] != '$' || c[1] != '{') {
            strbuf_putc(&filler->out, *c);
            continue;
        }
        const char *close = memchr(c, '}', (size_t)(line->end - c));
        if (!close) complain(filler, line, "hole not closed");
        const struct binding *value = find(env, name_in(filler, c + 2, (size_t)(close - c - 2)));
        if (!value || !value->text) complain(filler, line, "unbound name");
        put_value(filler, line, value->text);
        c = close;
    }
    strbuf_putc(&filler->out, '\n');
}

/* The word at position `index` of a directive: "for x in list" has list at 3. */
static const char *word_at(struct filler *filler, const struct line *line, int index) {
    const char *at = line->word;
    for (; index > 0; index--) {
        at += strcspn(at, " \n");
        at += strspn(at, " ");
    }
    if (at >= line->end) complain(filler, line, "incomplete");
    size_t length = strcspn(at, " \n");
    return name_in(filler, at, at + length > line->end ? (size_t)(line->end - at) : length);
}

static void fill(struct filler *filler, int from, int to, const struct tmpl_env *env) {
    for (int i = from; i < to; i++) {
        const struct line *line = &filler->lines[i];
        if (!line->word) {
            put_line(filler, line, env);
        } else if (is_word(line, "for")) {
            int end = matching(filler, i + 1, false);
            const struct binding *list = find(env, word_at(filler, line, 3));
            if (!list || list->text) complain(filler, line, "no such list");
            for (int e = 0; e < list->entries.n; e++) fill(filler, i + 1, end, list->entries.at[e]);
            i = end;
        } else if (is_word(line, "if")) {
            int other = matching(filler, i + 1, true), end = matching(filler, i + 1, false);
            const struct binding *value = find(env, word_at(filler, line, 1));
            if (!value || !value->text) complain(filler, line, "unbound name");
            if (*value->text)
                fill(filler, i + 1, other, env);
            else if (other != end)
                fill(filler, other + 1, end, env);
            i = end;
        } else if (line->word[0] != '#') {
            complain(filler, line, "unknown directive");
        }
    }
}

const char *tmpl_fill(struct arena *arena, const char *name, const char *text, const struct tmpl_env *env) {
    struct filler filler = {.name = name, .out = {.arena = arena}};
    split_lines(&filler, arena, text);
    fill(&filler, 0, filler.n, env);
    return strbuf_text(&filler.out);
}
