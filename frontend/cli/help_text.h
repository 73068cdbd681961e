/* Texts made of frontend/cli/options.def: help, the manual page, completions. They only append to a buffer. */
#ifndef FRONTEND_CLI_HELP_TEXT_H
#define FRONTEND_CLI_HELP_TEXT_H

#include "frontend/cli/options.h"
#include "ir/base/str.h"

#ifndef RANKC_VERSION
#define RANKC_VERSION "unreleased" /* the build passes the project's */
#endif

/* `rankc help`: the verbs. */
void help_overview(struct strbuf *out);
/* `rankc VERB --help`. */
void help_verb(struct strbuf *out, enum verb verb);
/* `rankc help --man`, `rankc help VERB --man`: roff, man(7) macros. */
void help_man(struct strbuf *out);
void help_man_verb(struct strbuf *out, enum verb verb);
/* `rankc completions SHELL`; false if the shell is not one of help_shells (NULL-terminated). */
bool help_completions(struct strbuf *out, const char *shell);
extern const char *const help_shells[];

/* What the above have in common: whether the option is shown under the verb; its explanation, with the default in
 * brackets; what the verb knows of and refuses, "" if nothing. */
bool help_shows(const struct option *row, enum verb verb);
const char *help_option_text(const struct option *row, struct arena *arena);
const char *help_later_text(enum verb verb, struct arena *arena);

#endif
