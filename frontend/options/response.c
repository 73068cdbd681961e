#include "frontend/options/response.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/own.h"
#include "ir/base/str.h"

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
    int column = (int)(source->at - source->line_start) + 1;
    const char *name = str_escape(expansion->arena, source->path, strlen(source->path), 120);
    const char *where = arena_printf(expansion->arena, "%s:%d:%d", name, source->line, column);
    return diag_error(expansion->diags, 206, EXIT_USAGE, where, "%s", what);
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
        struct strbuf word;
        strbuf_init(&word, expansion->arena);
        if (read_argument(expansion, source, &word)) return -1;
        if (add_argument(expansion, strbuf_text(&word), source->depth)) return -1;
    }
}

static int expand_file(struct expansion *expansion, const char *path, int depth) {
    if (depth > RESPONSE_DEPTH || ++expansion->files > RESPONSE_FILES)
        return diag_error(expansion->diags, 206, EXIT_USAGE, str_escape(expansion->arena, path, strlen(path), 120),
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

int response_expand(struct arguments *out, int argc, char **argv, struct arena *arena, struct diags *diags) {
    struct expansion expansion = {.out = out, .arena = arena, .diags = diags};
    for (int i = 0; i < argc; i++)
        if (add_argument(&expansion, argv[i], 0)) return -1;
    return 0;
}
