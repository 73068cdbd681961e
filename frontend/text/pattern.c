#include "frontend/text/pattern.h"

#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Backtracking of one match, and memory for it (KiB): an expression of a known tokenizer needs a thousandth. */
enum { MATCH_STEPS = 10 * 1000 * 1000, MATCH_DEPTH = 100 * 1000, MATCH_KIB = 64 << 10 };
enum { JIT_STACK_FIRST = 32 << 10, JIT_STACK_MOST = 1 << 20 };

struct pattern {
    struct span text; /* of a pattern without `code` */
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

bool work_too_long(struct work *work, size_t bytes) {
    if (bytes <= MOST_TEXT_BYTES) return false;
    diag_error(work->diags, 507, EXIT_LIMIT, work->path, "the text becomes longer than %d MiB", MOST_TEXT_BYTES >> 20);
    return true;
}

struct pattern *pattern_of_text(struct arena *arena, struct span text) {
    struct pattern *pattern = ARENA_NEW(arena, struct pattern);
    pattern->text = text;
    return pattern;
}

static void release(void *object) {
    struct pattern *pattern = object;
    if (pattern->stack) pcre2_jit_stack_free(pattern->stack);
    if (pattern->context) pcre2_match_context_free(pattern->context);
    if (pattern->data) pcre2_match_data_free(pattern->data);
    pcre2_code_free(pattern->code);
}

/* NULL and the reason if PCRE2 rejects the expression. `.` matches all but \n, and ^ and $ match at lines, as in
 * Oniguruma. */
static pcre2_code *compile(struct arena *arena, const char *expression, const char **why) {
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK;
    int error = 0;
    PCRE2_SIZE at = 0;
    unsigned char message[128];
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context) pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *code =
        context ? pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, options, &error, &at, context) : NULL;
    pcre2_compile_context_free(context);
    if (code || !arena) return code;
    pcre2_get_error_message(error, message, sizeof message);
    *why = arena_strdup(arena, (const char *)message);
    return NULL;
}

static bool is_script(const char *name) {
    char expression[80];
    if (snprintf(expression, sizeof expression, "\\p{sc:%s}", name) >= (int)sizeof expression) return false;
    pcre2_code *code = compile(NULL, expression, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

struct pattern *pattern_of_expression(struct arena *arena, struct span expression, const char **why) {
    const char *translated = expression_for_pcre2(arena, expression, is_script, why);
    pcre2_code *code = translated ? compile(arena, expression_with_newer(arena, translated), why) : NULL;
    if (!code) return NULL;
    struct pattern *pattern = ARENA_NEW(arena, struct pattern);
    pattern->code = code;
    arena_own(arena, pattern, release);
    pattern->data = pcre2_match_data_create(1, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (!pattern->data || !pattern->context) return *why = "out of memory", NULL;
    pcre2_set_match_limit(pattern->context, MATCH_STEPS);
    pcre2_set_depth_limit(pattern->context, MATCH_DEPTH);
    pcre2_set_heap_limit(pattern->context, MATCH_KIB);
    /* Without a compiler for this processor, or where memory must not be executed, expressions are interpreted. */
    if (pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0) {
        pattern->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MOST, NULL);
        if (pattern->stack) pcre2_jit_stack_assign(pattern->context, NULL, pattern->stack);
    }
    return pattern;
}

/* The next match at `from` or later. 0: none, -1: an error of PCRE2, which is in *match. */
static int next_match(const struct pattern *pattern, struct span text, size_t from, struct range *match) {
    if (!pattern->code) {
        const char *found = memmem(text.at + from, text.bytes - from, pattern->text.at, pattern->text.bytes);
        if (!found) return 0;
        match->from = (size_t)(found - text.at);
        match->to = match->from + pattern->text.bytes;
        return 1;
    }
    const int status = pcre2_match(pattern->code, (PCRE2_SPTR)text.at, text.bytes, from, PCRE2_NO_UTF_CHECK,
                                   pattern->data, pattern->context);
    if (status == PCRE2_ERROR_NOMATCH) return 0;
    if (status < 0) return match->from = (size_t)-status, -1;
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(pattern->data);
    match->from = ends[0];
    match->to = ends[1];
    return match->from <= match->to ? 1 : 0; /* \K may put the begin behind the end */
}

static int too_long(struct work *work, int error) {
    unsigned char message[128];
    pcre2_get_error_message(error, message, sizeof message);
    return diag_error(work->diags, 507, EXIT_LIMIT, work->path, "a regular expression: %s", (const char *)message);
}

int pattern_find(const struct pattern *pattern, struct work *work, struct span text, struct ranges *ranges) {
    size_t from = 0, before = 0;
    bool matched = false;
    struct range match = {.match = true};
    while (from <= text.bytes) {
        const int status = next_match(pattern, text, from, &match);
        if (status < 0) return too_long(work, -(int)match.from);
        if (status == 0) break;
        if (match.from == match.to && matched && match.to == before) {
            int32_t code;
            from += from < text.bytes ? (size_t)utf8_get(text.at + from, &code) : 1;
            continue;
        }
        if (before != match.from) VEC_PUSH(work->arena, ranges, (struct range){before, match.from, false});
        VEC_PUSH(work->arena, ranges, match);
        from = before = match.to;
        matched = true;
    }
    if (before != text.bytes) VEC_PUSH(work->arena, ranges, (struct range){before, text.bytes, false});
    return 0;
}

/* Each range joins the one before it where `joins` says so of them. */
static void join(struct ranges *ranges, bool (*joins)(bool before, bool match)) {
    int kept = 0;
    bool before = false;
    VEC_EACH_VALUE(ranges, i, const struct range range) {
        if (kept && joins(before, range.match))
            ranges->at[kept - 1].to = range.to;
        else
            ranges->at[kept++] = (struct range){range.from, range.to, false};
        before = range.match;
    }
    ranges->n = kept;
}

static bool same(bool before, bool match) {
    return before == match;
}

static bool first_of_matches(bool before, bool match) {
    return match && !before;
}

static void reverse(struct ranges *ranges) {
    for (int i = 0, j = ranges->n - 1; i < j; i++, j--) {
        const struct range range = ranges->at[i];
        ranges->at[i] = ranges->at[j];
        ranges->at[j] = range;
    }
    VEC_EACH_VALUE(ranges, i, const struct range range) {
        ranges->at[i].from = range.to;
        ranges->at[i].to = range.from;
    }
}

void ranges_join(struct ranges *ranges, enum behaviour behaviour) {
    switch (behaviour) {
    case BEHAVIOUR_REMOVED: return;
    case BEHAVIOUR_ISOLATED:
        for (int i = 0; i < ranges->n; i++) ranges->at[i].match = false;
        return;
    case BEHAVIOUR_PREVIOUS: join(ranges, first_of_matches); return;
    case BEHAVIOUR_CONTIGUOUS: join(ranges, same); return;
    case BEHAVIOUR_NEXT:
        reverse(ranges);
        join(ranges, first_of_matches);
        reverse(ranges);
    }
}
