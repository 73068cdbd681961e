/* Where an expression or a text occurs in a text, and what is between. */
#ifndef FRONTEND_TEXT_PATTERN_H
#define FRONTEND_TEXT_PATTERN_H

#include "frontend/text/unicode.h"
#include "ir/base/diag.h"

/* What functions on texts of a call share. Memory is freed after the call. */
struct work {
    struct arena *arena;
    struct diags *diags;
    const char *path; /* of the tokenizer */
};

/* A text grows to at most that many bytes while it is normalized, split or decoded. */
enum { MOST_TEXT_BYTES = 1 << 28 };

/* E0507: true if a text has become too long. */
bool work_too_long(struct work *work, size_t bytes);

/* A part of a text that matches, or one between matches. */
struct range {
    size_t from, to;
    bool match;
};
struct ranges {
    struct range *at;
    int n, capacity;
};

struct pattern;

/* A pattern that finds the text itself, which is not empty and stays. */
struct pattern *pattern_of_text(struct arena *arena, struct span text);
/* One of a regular expression in Oniguruma's syntax, as `tokenizers` reads them: expression.c. NULL and the reason, in
 * the arena, if it is malformed or has what is not supported. */
struct pattern *pattern_of_expression(struct arena *arena, struct span expression, const char **why);

/* Appends all matches in the text, which is valid UTF-8, from left to right, and what is between them: together they
 * are the text. An empty match right behind another one does not count. -1 after E0507 if matching takes too long. */
int pattern_find(const struct pattern *pattern, struct work *work, struct span text, struct ranges *ranges);

/* What becomes of matches when a text is split; names as in tokenizer.json. */
enum behaviour { BEHAVIOUR_REMOVED, BEHAVIOUR_ISOLATED, BEHAVIOUR_PREVIOUS, BEHAVIOUR_NEXT, BEHAVIOUR_CONTIGUOUS };

/* The ranges that remain, in order, with `match` for those that are removed. */
void ranges_join(struct ranges *ranges, enum behaviour behaviour);

/* The expression for PCRE2 that means what Oniguruma's does, in the arena; NULL and the reason for one that is not
 * supported. is_script says whether PCRE2 knows a script of that name. */
const char *expression_for_pcre2(struct arena *arena, struct span expression, bool (*is_script)(const char *name),
                                 const char **why);

/* The same expression for PCRE2, whose properties of characters have those that PCRE2's Unicode may be too old for: in
 * the arena. */
const char *expression_with_newer(struct arena *arena, const char *expression);

#endif
