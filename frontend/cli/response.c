#include "frontend/cli/response.h"

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

static int add_argument(struct expansion *e, const char *text, int depth);

static int refuse(struct expansion *e, const struct source *source, const char *what) {
    int column = (int)(source->at - source->line_start) + 1;
    const char *name = str_escape(e->arena, source->path, strlen(source->path), 120);
    const char *where = arena_printf(e->arena, "%s:%d:%d", name, source->line, column);
    return diag_error(e->diags, 206, EXIT_USAGE, where, "%s", what);
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
static int read_argument(struct expansion *e, struct source *source, struct strbuf *word) {
    char quote = 0;
    struct source opened = *source;
    while (source->at < source->end && (quote || !is_space(*source->at))) {
        char c = *source->at;
        if (!c) return refuse(e, source, "a NUL byte in a response file");
        if (c == quote)
            quote = 0;
        else if (!quote && (c == '\'' || c == '"'))
            quote = c, opened = *source;
        else if (c == '\\' && quote != '\'') {
            step(source);
            if (source->at == source->end) return refuse(e, source, "nothing follows the backslash");
            if (!*source->at) return refuse(e, source, "a NUL byte in a response file");
            strbuf_putc(word, *source->at);
        } else
            strbuf_putc(word, c);
        step(source);
    }
    return quote ? refuse(e, &opened, "this quote is not closed") : 0;
}

static int read_arguments(struct expansion *e, struct source *source) {
    for (;;) {
        while (source->at < source->end && is_space(*source->at)) step(source);
        if (source->at == source->end) return 0;
        struct strbuf word;
        strbuf_init(&word, e->arena);
        if (read_argument(e, source, &word)) return -1;
        if (add_argument(e, strbuf_text(&word), source->depth)) return -1;
    }
}

static int expand_file(struct expansion *e, const char *path, int depth) {
    if (depth > RESPONSE_DEPTH || ++e->files > RESPONSE_FILES)
        return diag_error(e->diags, 206, EXIT_USAGE, str_escape(e->arena, path, strlen(path), 120),
                          depth > RESPONSE_DEPTH ? "response files nest deeper than %d" : "more than %d response files",
                          depth > RESPONSE_DEPTH ? RESPONSE_DEPTH : RESPONSE_FILES);
    void *bytes;
    size_t count;
    struct rt_reason why;
    if (!own_file(e->arena, path, RESPONSE_BYTES, &bytes, &count, &why))
        return diag_refusal(e->diags, 206, EXIT_USAGE, NULL, &why);
    const char *text = arena_copy(e->arena, bytes, count);
    arena_release(e->arena, bytes);
    struct source source = {
        .path = path, .at = text, .end = text + count, .line_start = text, .line = 1, .depth = depth};
    return read_arguments(e, &source);
}

static int add_argument(struct expansion *e, const char *text, int depth) {
    if (!e->verbatim && text[0] == '@' && text[1]) return expand_file(e, text + 1, depth + 1);
    if (e->out->all.n == RESPONSE_ARGUMENTS)
        return diag_error(e->diags, 206, EXIT_USAGE, NULL, "more than %d arguments", RESPONSE_ARGUMENTS);
    if (!strcmp(text, "--")) e->verbatim = true;
    VEC_PUSH(e->arena, &e->out->all, text);
    return 0;
}

int response_expand(struct arguments *out, int argc, char **argv, struct arena *arena, struct diags *diags) {
    struct expansion e = {.out = out, .arena = arena, .diags = diags};
    for (int i = 0; i < argc; i++)
        if (add_argument(&e, argv[i], 0)) return -1;
    return 0;
}
