#include "passes/plan/policy/rules.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"

enum { MAX_RULES = 100000, MAX_ERRORS = 20 };

struct reader {
    struct arena *arena;
    struct diags *diags;
    const char *file, *at, *line_start;
    int line, errors;
};

static int fail(struct reader *r, const char *what) {
    const char *where = diag_place(r->diags, r->file, r->line, (int)(r->at - r->line_start) + 1);
    r->errors++;
    return diag_error(r->diags, 424, EXIT_MALFORMED, where, "rules: %s", what);
}

static void skip_blanks(struct reader *r) {
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r') r->at++;
}

static bool at_end(struct reader *r) {
    skip_blanks(r);
    return !*r->at || *r->at == '\n' || *r->at == '#';
}

static const char *take_bytes(struct reader *r, size_t n) {
    r->at += n;
    return arena_copy(r->arena, r->at - n, n);
}

/* A word of letters, digits, _ and -; "" if there is none. */
static const char *take_word(struct reader *r) {
    size_t n = 0;
    skip_blanks(r);
    while (isalnum((unsigned char)r->at[n]) || (r->at[n] && strchr("_-", r->at[n]))) n++;
    return take_bytes(r, n);
}

static bool take(struct reader *r, char c) {
    if (*r->at != c) return false;
    r->at++;
    return true;
}

/* The text between double quotes on one line; NULL after a diagnostic. */
static const char *take_quoted(struct reader *r) {
    skip_blanks(r);
    if (!take(r, '"')) return fail(r, "a name in double quotes is expected"), NULL;
    size_t n = strcspn(r->at, "\"\n");
    if (r->at[n] != '"') return fail(r, "unclosed quotes"), NULL;
    const char *text = take_bytes(r, n);
    r->at++;
    return text;
}

static bool take_number(struct reader *r, int64_t least, int64_t *out) {
    const char *word = take_word(r);
    char *end;
    if (!isdigit((unsigned char)*word) || strlen(word) > 9) return fail(r, "a number is expected"), false;
    *out = strtoll(word, &end, 10);
    if (*end || *out < least) return fail(r, "the number is out of range"), false;
    return true;
}

/* NAME or NAME,NAME .. after axis=: the outermost cut first. */
static int parse_axes(struct reader *r, struct constraint *rule) {
    rule->naxes = 0;
    do {
        const char *name = take_word(r);
        if (!*name) return fail(r, "axis needs a name");
        for (int i = 0; i < rule->naxes; i++)
            if (strcmp(rule->axis[i], name) == 0) return fail(r, "the axis is given twice");
        if (rule->naxes == RT_MAX_AXES)
            return fail(r, arena_printf(r->arena, "a mesh has at most %d axes", RT_MAX_AXES));
        rule->axis[rule->naxes++] = name;
    } while (take(r, ','));
    return 0;
}

/* axis=NAME or stride=N after a split. */
static int parse_setting(struct reader *r, struct constraint *rule) {
    const char *key = take_word(r);
    if (!take(r, '=')) return fail(r, "axis=NAME or stride=N is expected");
    if (strcmp(key, "axis") == 0) return parse_axes(r, rule);
    if (strcmp(key, "stride") == 0) return take_number(r, 1, &rule->stride) ? 0 : -1;
    return fail(r, "unknown setting; the settings are axis=NAME and stride=N");
}

static int parse_split(struct reader *r, struct constraint *rule) {
    int64_t dim;
    skip_blanks(r);
    rule->kind = CONSTRAINT_PIN;
    rule->axis[0] = axis_rows[AXIS_TENSOR].name;
    rule->naxes = 1;
    rule->stride = 1;
    const char *tensor = *r->at == '"' ? take_quoted(r) : take_word(r);
    if (!tensor) return -1;
    if (!*tensor || !take(r, '.')) return fail(r, "TENSOR.DIM is expected: in0.1, out0.2, \"*.weight\".0");
    if (!take_number(r, 0, &dim)) return -1;
    if (dim >= RT_MAX_NDIM) return fail(r, arena_printf(r->arena, "there are at most %d dimensions", RT_MAX_NDIM));
    VEC_PUSH(r->arena, &rule->dims, ((struct constraint_dim){tensor, (int)dim}));
    while (!at_end(r))
        if (parse_setting(r, rule) < 0) return -1;
    return 0;
}

static int parse_action(struct reader *r, struct constraint *rule) {
    const char *action = take_word(r);
    if (strcmp(action, "split") == 0) return parse_split(r, rule);
    if (strcmp(action, "replicate") == 0) return 0; /* it may be split in no dimension */
    if (strcmp(action, "stage") == 0) {
        rule->kind = CONSTRAINT_STAGE;
        return take_number(r, 0, &rule->stage) ? 0 : -1;
    }
    return fail(r, strcmp(action, "recompute") == 0
                       ? "the action recompute is not supported yet; use --recompute names:GLOB"
                       : "split, replicate or stage is expected");
}

static int parse_mesh(struct reader *r, struct constraints *rules) {
    const char *why = NULL;
    if (rules->mesh.naxes || rules->all.n) return fail(r, "mesh must come first, and only once");
    while (!at_end(r) && !why) {
        struct rt_mesh_axis axis = {0};
        int64_t size;
        const char *name = take_word(r);
        if (!*name || !take(r, '=') || !take_number(r, 1, &size)) return fail(r, "AXIS=SIZE is expected");
        axis.size = size > RT_MAX_RANKS ? RT_MAX_RANKS + 1 : (int)size;
        if (!rt_mesh_parse_stages(take_bytes(r, strcspn(r->at, " \t\r\n#")), &axis.first, &axis.end))
            return fail(r, "@FIRST or @FIRST-LAST is expected, the pipeline stages that have the axis");
        why = mesh_take_axis(&rules->mesh, name, &axis);
    }
    if (!rules->mesh.naxes && !why) why = "a mesh needs at least one axis";
    if (!why) why = mesh_refused(&rules->mesh);
    return why ? fail(r, why) : 0;
}

static int parse_statement(struct reader *r, struct constraints *rules) {
    struct constraint rule = {.kind = CONSTRAINT_ALLOW, .source = FROM_RULES, .replica = true};
    const char *word = take_word(r);
    if (strcmp(word, "mesh") == 0) return parse_mesh(r, rules);
    if (strcmp(word, "match") != 0) return fail(r, "match or mesh is expected");
    rule.place = arena_printf(r->arena, "%s:%d", r->file, r->line);
    if (!(rule.node = take_quoted(r)) || parse_action(r, &rule) < 0) return -1;
    if (!at_end(r)) return fail(r, "unexpected text after the statement");
    if (rules->all.n == MAX_RULES) return fail(r, "too many rules");
    VEC_PUSH(r->arena, &rules->all, rule);
    return 0;
}

int rules_parse(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
                struct constraints **out) {
    const char *text = arena_copy(arena, bytes, length);
    struct reader r = {.arena = arena, .diags = diags, .file = file, .at = text, .line_start = text, .line = 1};
    *out = ARENA_NEW(arena, struct constraints);
    (*out)->file = file;
    if (strlen(text) != length) return fail(&r, "the file contains a NUL byte");
    while (*r.at && r.errors < MAX_ERRORS) {
        if (!at_end(&r)) parse_statement(&r, *out);
        r.at += strcspn(r.at, "\n");
        if (take(&r, '\n')) r.line++, r.line_start = r.at;
    }
    return r.errors ? -1 : 0;
}
