#include "tests/ir/golden.h"

#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/text.h"

struct golden golden_options(int argc, char **argv) {
    struct golden golden = {.root = "."};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bless") == 0)
            golden.bless = true;
        else
            golden.root = argv[i];
    }
    return golden;
}

static _Noreturn void give_up(const char *what, const char *path) {
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

static char *read_all(struct arena *arena, const char *path) {
    FILE *file = fopen(path, "rb");
    struct strbuf text;
    char piece[4096];
    if (!file) give_up("cannot be read", path);
    strbuf_init(&text, arena);
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) strbuf_add(&text, piece, n);
    fclose(file);
    return arena_strdup(arena, strbuf_text(&text));
}

static void write_all(const char *path, const struct strbuf *text) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(strbuf_text(text), 1, text->length, file) != text->length || fclose(file) != 0)
        give_up("cannot be written", path);
}

struct example {
    const char *name, *input, *expected;
};

/* Cuts the text at the next line that starts with `mark`; returns what follows the mark, NULL if there is none. */
static char *cut_at(char *text, const char *mark) {
    for (char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, mark, strlen(mark)) != 0) continue;
        *line = 0;
        return line + strlen(mark);
    }
    return NULL;
}

/* Takes one case off *rest, the text after its "=== ". */
static struct example next_example(char **rest, const char *path) {
    struct example example = {.name = *rest};
    char *body = strchr(*rest, '\n');
    if (!body) give_up("a case without a body", path);
    *body++ = 0;
    *rest = cut_at(body, "=== ");
    char *expected = cut_at(body, "---\n");
    size_t length = expected ? strlen(expected) : 0;
    if (length > 1 && expected[length - 2] == '\n') expected[length - 1] = 0; /* the blank line between cases */
    example.input = body;
    example.expected = expected ? expected : "";
    return example;
}

/* Adds the case to `blessed` with what the function makes of it. True if that is what the file says, or need not be. */
static bool run_one(struct strbuf *blessed, const struct example *example, const char *path, golden_fn fn, bool bless) {
    struct arena arena;
    arena_init(&arena, (size_t)1 << 30, NULL);
    const char *got = fn(&arena, example->input);
    const bool good = bless || strcmp(got, example->expected) == 0;
    if (!good) fprintf(stderr, "%s: '%s' gives\n%s--- instead of\n%s", path, example->name, got, example->expected);
    strbuf_printf(blessed, "=== %s\n%s---\n%s\n", example->name, example->input, got);
    arena_free(&arena);
    return good;
}

int golden_run(const struct golden *golden, const char *path, golden_fn fn) {
    struct arena arena;
    struct strbuf blessed, names;
    int differing = 0;
    arena_init(&arena, 0, NULL);
    const char *file = arena_printf(&arena, "%s/%s", golden->root, path);
    char *head = read_all(&arena, file), *rest;
    const char *before = arena_strdup(&arena, head);
    if (!(rest = cut_at(head, "=== "))) give_up("no cases", file);
    strbuf_init(&blessed, &arena);
    strbuf_puts(&blessed, head);
    strbuf_init(&names, &arena);
    while (rest) {
        struct example example = next_example(&rest, file);
        if (run_one(&blessed, &example, file, fn, golden->bless)) continue;
        differing++;
        strbuf_printf(&names, "FAILED: %s: '%s'\n", path, example.name);
    }
    fputs(strbuf_text(&names), stderr);
    if (golden->bless)
        write_all(file, &blessed);
    else if (!differing && strcmp(before, strbuf_text(&blessed)) != 0)
        give_up("blank lines are not as --bless writes them", file);
    arena_free(&arena);
    return differing;
}

void golden_each(const struct golden *golden, const char *path, void (*visit)(const char *name, const char *input)) {
    struct arena arena;
    arena_init(&arena, 0, NULL);
    const char *file = arena_printf(&arena, "%s/%s", golden->root, path);
    char *rest = cut_at(read_all(&arena, file), "=== ");
    if (!rest) give_up("no cases", file);
    while (rest) {
        struct example example = next_example(&rest, file);
        visit(example.name, example.input);
    }
    arena_free(&arena);
}

struct graph *golden_graph(struct arena *arena, const char *statements) {
    struct diags diags;
    struct graph *graph;
    diags_init(&diags, arena);
    const char *text = arena_printf(arena, "rankc-ir 1\ngraph \"test\" level=TYPED\n%s", statements);
    if (text_parse(arena, &diags, "test", text, strlen(text), &graph) == 0) return graph;
    fprintf(stderr, "%s%s", statements, golden_diags(arena, &diags));
    return NULL;
}

const char *golden_diags(struct arena *arena, const struct diags *diags) {
    char *text;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    if (!file) give_up("no memory", "golden");
    diags_print(diags, file, RT_DIAGNOSTIC_PLAIN, RT_SEVERITY_NOTE);
    fclose(file);
    const char *copy = arena_strdup(arena, text);
    free(text);
    return copy;
}
