/* What the files that parse a command line share: parse.c (verbs and arguments), option_values.c (values),
 * option_mesh.c (mesh and settings of --pas) and option_rules.c (what holds between options). Functions that return int
 * give 0, or -1 after a diagnostic. */
#ifndef FRONTEND_OPTIONS_PARSER_H
#define FRONTEND_OPTIONS_PARSER_H

#include "frontend/options/options.h"
#include "ir/base/diag.h"
#include "ir/base/str.h"

struct parser {
    struct options *options;
    struct arena *arena;
    struct diags *diags;
    bool taken[RT_MAX_AXES + DECISIONS]; /* keys of the policy that were given */
};

/* A user's word as a diagnostic shows it. */
const char *parser_quote(struct parser *parser, const char *text);
/* E0200, with the usage of the verb. */
int parser_usage_error(struct parser *parser, const char *what);
/* "did you mean", if one of the NULL-terminated words is near; `dashes` stand before it. */
void parser_suggest(struct parser *parser, const char *dashes, const char *word, const char *const *words);

/* Sets *out to a decimal number from min to max; false if the text is none. */
bool parser_count(const char *text, int64_t min, int64_t max, int64_t *out);
/* Parses the text into the field of the row. `typed` is the option as the user wrote it. */
int parser_set(struct parser *parser, const struct option *row, const char *typed, const char *text);
void parser_set_defaults(struct parser *parser);
/* The word at `index` of an action's operands; NULL: it has fewer. */
const char *parser_operand_name(enum action action, int index, struct arena *arena);

/* The comma-separated members of `list`, NULL-terminated. */
const char **parser_split_list(struct arena *arena, const char *list);
/* The words with blanks between them. */
const char *parser_joined(struct arena *arena, const char *const *words);

/* Takes KEY=VALUE behind the policy of --pas: an axis of the mesh, or a setting of ir/decisions.def. */
int parser_add_setting(struct parser *parser, const char *text);
/* Checks the mesh of --pas, and sets it, plan_ngpus and runtime_ngpus where they are not given. */
int parser_finish_mesh(struct parser *parser);
/* Checks what holds between options. */
int parser_finish(struct parser *parser);

#endif
