/* Reads constraint files: the subset of YAML that lists of flat mappings need. Block and flow lists, scalars on one
 * line with or without quotes, comments, one document. Anchors, tags, nested mappings and text of several lines are
 * refused, never guessed. */
#include "passes/plan/constrain/constraints.h"

#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"

enum { MAX_CONSTRAINTS = 10000, MAX_DIMS = 64 };

/* A line without its comment: `text` is what follows `indent` blanks. */
struct line {
    int number, indent;
    char *text;
};

struct reader {
    struct arena *arena;
    struct diags *diags;
    const char *file;
    VEC(struct line) lines; /* none is blank */
    int at;
};

/* The keys of an entry that were given. */
enum { KEY_NAME, KEY_MODULE, KEY_DIMS, KEY_REPLICA, KEYS };
static const char *const keys[KEYS + 1] = {"name", "parent_module", "allowed_partition_dims", "replica_allowed", NULL};

static int fail(const struct reader *r, int number, int column, const char *what) {
    return diag_error(r->diags, 437, EXIT_MALFORMED, diag_place(r->diags, r->file, number, column), "constraints: %s",
                      what);
}

static int fail_line(const struct reader *r, const struct line *line, const char *what) {
    return fail(r, line->number, line->indent + 1, what);
}

/* Cuts the line at its comment: "#" at the beginning or after a blank, outside of quotes. */
static void cut_comment(char *text) {
    char quote = 0;
    for (char *c = text; *c; c++) {
        if (quote ? *c == quote : *c == '"' || *c == '\'') quote = quote ? 0 : *c;
        if (*c != '#' || quote || (c > text && c[-1] != ' ' && c[-1] != '\t')) continue;
        *c = 0;
        return;
    }
}

static void cut_blanks(char *text) {
    size_t n = strlen(text);
    while (n && strchr(" \t\r", text[n - 1])) text[--n] = 0;
}

static int list_lines(struct reader *r, const char *bytes, size_t length) {
    char *text = (char *)arena_copy(r->arena, bytes, length), *end;
    if (strlen(text) != length) return fail(r, 1, 1, "the file contains a NUL byte");
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) text += 3;
    for (int number = 1; *text; text = end, number++) {
        end = text + strcspn(text, "\n");
        if (*end) *end++ = 0;
        struct line line = {number, (int)strspn(text, " "), text};
        line.text += line.indent;
        cut_comment(line.text), cut_blanks(line.text);
        if (*line.text == '\t') return fail_line(r, &line, "a tab cannot indent a line");
        if (!*line.text || (strcmp(line.text, "---") == 0 && !r->lines.n)) continue;
        VEC_PUSH(r->arena, &r->lines, line);
    }
    return 0;
}

/* The scalar in `text`, without quotes; NULL after a diagnostic. */
static const char *scalar(const struct reader *r, const struct line *line, const char *text) {
    const size_t n = strlen(text);
    const char quote = *text == '"' || *text == '\'' ? *text : 0;
    if (!quote) {
        if (!*text || !strchr("&*!|>{}[]%@`", *text)) return text;
        return fail_line(r, line, "a word, a text in quotes, or a list is expected"), NULL;
    }
    const char *inner = n < 2 ? NULL : arena_copy(r->arena, text + 1, n - 2);
    if (n < 2 || text[n - 1] != quote) return fail_line(r, line, "unclosed quotes"), NULL;
    if (strchr(inner, quote) || (quote == '"' && strchr(inner, '\\')))
        return fail_line(r, line, "quotes and escapes inside a text are not supported"), NULL;
    return inner;
}

/* "INPUT,DIM" */
static int add_dim(const struct reader *r, const struct line *line, const char *text, struct constraint *out) {
    const char *word = scalar(r, line, text), *comma = word ? strchr(word, ',') : NULL;
    if (!word) return -1;
    const size_t before = comma ? (size_t)(comma - word) : 0;
    const char *after = comma ? comma + 1 + strspn(comma + 1, " ") : "";
    if (before < 1 || before > 2 || strspn(word, "0123456789") != before || !*after || strlen(after) > 2 ||
        after[strspn(after, "0123456789")])
        return fail_line(r, line, "a dimension is \"INPUT,DIM\", such as 0,1");
    if (out->dims.n == MAX_DIMS) return fail_line(r, line, "too many dimensions");
    const struct constraint_dim dim = {arena_printf(r->arena, "in%d", atoi(word)), atoi(after)};
    VEC_PUSH(r->arena, &out->dims, dim);
    return 0;
}

/* The items of "[a, 'b,c']": a comma in an item needs quotes. */
static int flow_dims(const struct reader *r, const struct line *line, const char *text, struct constraint *out) {
    const char *at = text + 1;
    for (;;) {
        at += strspn(at, " ");
        if (*at == ']') return at[1] ? fail_line(r, line, "unexpected text after the list") : 0;
        const char *end = *at == '"' || *at == '\'' ? strchr(at + 1, *at) : NULL;
        if (!end) return fail_line(r, line, "items of a list in brackets are texts in quotes, such as [\"0,1\"]");
        if (add_dim(r, line, arena_copy(r->arena, at, (size_t)(end + 1 - at)), out) < 0) return -1;
        at = end + 1 + strspn(end + 1, " ");
        if (*at == ',')
            at++;
        else if (*at != ']')
            return fail_line(r, line, "',' or ']' is expected");
    }
}

/* The value of allowed_partition_dims: in the line, or items in the next lines, indented at least as the key. */
static int take_dims(struct reader *r, const struct line *line, const char *text, int indent, struct constraint *out) {
    if (*text == '[') return flow_dims(r, line, text, out);
    if (*text) return fail_line(r, line, "allowed_partition_dims is a list, [] if no dimension is allowed");
    int items = 0;
    for (; r->at < r->lines.n; r->at++, items++) {
        const struct line *item = &r->lines.at[r->at];
        if (item->indent < indent || item->text[0] != '-' || (item->text[1] && item->text[1] != ' ')) break;
        if (item->indent != r->lines.at[r->at - items].indent)
            return fail_line(r, item, "items of a list have the same indentation");
        if (add_dim(r, item, item->text + 1 + strspn(item->text + 1, " "), out) < 0) return -1;
    }
    return items ? 0 : fail_line(r, line, "allowed_partition_dims is a list, [] if no dimension is allowed");
}

static int take_replica(const struct reader *r, const struct line *line, const char *text, bool *out) {
    static const char *const words[] = {"true", "True", "TRUE", "false", "False", "FALSE"};
    for (int i = 0; i < 6; i++) {
        if (strcmp(text, words[i])) continue;
        *out = i < 3;
        return 0;
    }
    return fail_line(r, line, "replica_allowed is true or false");
}

static int take_value(struct reader *r, const struct line *line, int key, const char *text, int indent,
                      struct constraint *out) {
    if (key == KEY_DIMS) return take_dims(r, line, text, indent, out);
    if (key == KEY_REPLICA) return take_replica(r, line, text, &out->replica);
    const char *value = scalar(r, line, text);
    if (!value) return -1;
    if (key == KEY_MODULE) return out->module = *value ? value : NULL, 0;
    out->op = value;
    return *value ? 0 : fail_line(r, line, "name is the name of an operator");
}

/* KEY: VALUE. */
static int take_pair(struct reader *r, const struct line *line, const char *text, int indent, bool given[KEYS],
                     struct constraint *out) {
    const char *colon = strstr(text, ": ");
    const size_t n = strlen(text);
    if (!colon && n && text[n - 1] == ':') colon = text + n - 1;
    if (!colon) return fail_line(r, line, "KEY: VALUE is expected");
    const char *name = arena_copy(r->arena, text, (size_t)(colon - text));
    for (int key = 0; key < KEYS; key++) {
        if (strcmp(keys[key], name)) continue;
        if (given[key]) return fail_line(r, line, arena_printf(r->arena, "%s is given twice", name));
        given[key] = true;
        return take_value(r, line, key, colon + 1 + strspn(colon + 1, " "), indent, out);
    }
    fail_line(r, line, arena_printf(r->arena, "unknown key %s", diag_quote(r->diags, name)));
    const char *near = str_nearest(name, keys);
    if (near) diag_help(r->diags, "did you mean '%s'?", near);
    return -1;
}

/* An entry: "- KEY: VALUE", and further pairs in lines indented as its first one. */
static int take_entry(struct reader *r, struct constraints *constraints, int indent) {
    const struct line *first = &r->lines.at[r->at];
    struct constraint entry = {.kind = CONSTRAINT_ALLOW, .source = FROM_FILE, .replica = true};
    bool given[KEYS] = {false};
    if (first->indent != indent || first->text[0] != '-' || first->text[1] != ' ')
        return fail_line(r, first, "a list of entries that begin with '- ' is expected");
    const int blanks = 1 + (int)strspn(first->text + 1, " "), inner = indent + blanks;
    entry.place = arena_printf(r->arena, "%s:%d", str_name(r->arena, r->file), first->number);
    r->at++;
    if (take_pair(r, first, first->text + blanks, inner, given, &entry) < 0) return -1;
    while (r->at < r->lines.n && r->lines.at[r->at].indent > indent) {
        const struct line *line = &r->lines.at[r->at++];
        if (line->indent != inner) return fail_line(r, line, "keys of an entry have the same indentation");
        if (take_pair(r, line, line->text, inner, given, &entry) < 0) return -1;
    }
    if (!given[KEY_NAME]) return fail_line(r, first, "the entry has no name");
    if (!given[KEY_DIMS]) return fail_line(r, first, "the entry has no allowed_partition_dims");
    if (constraints->all.n == MAX_CONSTRAINTS) return fail_line(r, first, "too many entries");
    VEC_PUSH(r->arena, &constraints->all, entry);
    return 0;
}

int constraints_parse_file(struct constraints *constraints, struct arena *arena, struct diags *diags, const char *file,
                           const char *bytes, size_t length) {
    struct reader r = {.arena = arena, .diags = diags, .file = file};
    constraints->file = file;
    if (list_lines(&r, bytes, length) < 0) return -1;
    if (r.lines.n == 1 && strcmp(r.lines.at[0].text, "[]") == 0) return 0;
    const int indent = r.lines.n ? r.lines.at[0].indent : 0;
    while (r.at < r.lines.n)
        if (take_entry(&r, constraints, indent) < 0) return -1;
    return 0;
}
