#include <string.h>

#include "ir/text.h"
#include "ir/text/reader.h"
#include "ir/base/str.h"

enum {
    MAX_ERRORS = 20,
    MAX_TEXT_SHIFT = 33 /* longer texts could overflow counts */
};

static const struct {
    const char *keyword;
    bool (*read)(struct reader *r);
} statements[] = {
    {"operator", read_operator}, {"mesh", read_mesh},         {"chunks", read_chunks},   {"file", read_file},
    {"input", read_input},       {"weight", read_weight},     {"const", read_const},     {"output", read_output},
    {"update", read_update},     {"state", read_state},       {"control", read_control}, {"parameter", read_parameter},
    {"segment", read_segment},   {"schedule", read_schedule}, {"run", read_run},         {"post", read_post},
    {"wait", read_wait},         {"model", read_model},       {"from", read_from},       {"size", read_size},
    {"extent", read_extent},     {"next", read_next},         {"limit", read_limit}};

static bool read_statement(struct reader *r) {
    char word[MAX_WORD];
    const char *start = r->at;
    if (peek(r) == '%' || peek(r) == '_') return read_node(r) && expect_line_end(r);
    if (!read_name(r, "a statement", word)) return false;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (strcmp(statements[i].keyword, word) == 0) return statements[i].read(r) && expect_line_end(r);
    return fail_at(r, start, "unknown statement '%s'", word);
}

static bool read_level(struct reader *r) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!expect(r, "level=") || !read_name(r, "a level", word)) return false;
    for (int i = 0; i < LEVELS; i++)
        if (strcmp(level_names[i], word) == 0) return r->graph->level = (enum level)i, true;
    return fail_at(r, start, "unknown level '%s'", word);
}

static bool read_micro_batches(struct reader *r) {
    int64_t n;
    if (r->graph->train || !take(r, "micro_batches=")) return true;
    if (!read_int(r, 2, 1000000, "micro_batches", &n)) return false;
    return r->graph->micro_batches = (int)n, true;
}

static bool read_pair(struct reader *r) {
    int64_t pair;
    if (!take(r, "specimens=")) return true;
    if (!read_int(r, 1, OPEN_SPECIMENS / 2 - 1, "specimens", &pair)) return false;
    return r->pair = (int)pair, true;
}

/* Reads the first two statements. */
static bool read_head(struct reader *r) {
    const char *name;
    next_statement(r);
    if (!expect(r, "rankc-ir") || !expect(r, "1") || !expect_line_end(r)) return false;
    next_statement(r);
    if (!expect(r, "graph") || !read_string(r, &name)) return false;
    graph_init(r->graph, r->arena, name);
    if (!read_level(r)) return false;
    r->graph->train = take(r, "train");
    if (take(r, "elements=") && !read_int(r, 1, INT64_MAX, "elements", &r->graph->loss_elements)) return false;
    return read_micro_batches(r) && read_pair(r) && expect_line_end(r);
}

/* Reads the statements behind the head. */
static void read_body(struct reader *r, bool (*read)(struct reader *r), int errors_before) {
    for (next_line(r); next_statement(r); next_line(r)) {
        end_statement(r, read(r));
        if (r->diags->errors - errors_before < MAX_ERRORS) continue;
        diag_note(r->diags, "there may be more errors");
        return;
    }
    check_operators(r);
}

/* In a file of declarations the first statement is "rankc-operators 1". */
static bool read_declaration(struct reader *r) {
    char word[MAX_WORD];
    const char *start = r->at;
    if (!read_name(r, "a statement", word)) return false;
    if (strcmp(word, "operator") == 0) return read_operator(r) && expect_line_end(r);
    return fail_at(r, start, "unknown statement '%s': a file of operators declares 'operator'", word);
}

static void read_declarations(struct reader *r, int errors_before) {
    next_statement(r);
    if (expect(r, "rankc-operators") && expect(r, "1") && expect_line_end(r))
        read_body(r, read_declaration, errors_before);
}

static struct reader *new_reader(struct arena *arena, struct diags *diags, const char *file, const char *bytes,
                                 size_t length) {
    struct reader *r = ARENA_NEW(arena, struct reader);
    *r = (struct reader){
        .arena = arena, .diags = diags, .at = bytes, .end = bytes + length, .line_start = bytes, .line = 1};
    r->file = str_escape(arena, file, strlen(file), 0);
    r->graph = ARENA_NEW(arena, struct graph);
    map_init(&r->ids, arena);
    return r;
}

int text_parse_operators(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
                         struct graph **out) {
    struct reader *r = new_reader(arena, diags, file, bytes, length);
    int before = diags->errors;
    graph_init(r->graph, arena, file);
    read_declarations(r, before);
    *out = r->graph;
    return diags->errors > before ? -1 : 0;
}

static int parse(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
                 int second, struct graph **out) {
    struct reader *r = new_reader(arena, diags, file, bytes, length);
    int before = diags->errors;
    r->second = second;
    if (length >> MAX_TEXT_SHIFT)
        fail_at(r, bytes, "the text is too long");
    else if (read_head(r))
        read_body(r, read_statement, before);
    if (diags->errors > before) return -1;
    *out = r->graph;
    return 0;
}

int text_parse(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
               struct graph **out) {
    return parse(arena, diags, file, bytes, length, 0, out);
}

int text_parse_twin(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
                    struct graph **out) {
    return parse(arena, diags, file, bytes, length, 1, out);
}

bool text_parse_number(const struct graph *graph, const char *text, int64_t *value) {
    struct arena *scratch = arena_scratch(graph->arena);
    struct diags diags = {.arena = scratch};
    struct reader *r = new_reader(scratch, &diags, "", text, strlen(text));
    *r->graph = *graph;
    const bool good = read_expression(r, value) && at_line_end(r) && r->at == r->end;
    arena_release(graph->arena, scratch);
    return good;
}
