/* Texts made of frontend/options.def: help, the manual page, completions. They only append to a buffer. */
#ifndef FRONTEND_HELP_H
#define FRONTEND_HELP_H

#include "frontend/options.h"
#include "ir/base/str.h"

#ifndef RANKC_VERSION
#define RANKC_VERSION "unreleased" /* the build passes the project's */
#endif

/* `rankc help`: the verbs. */
void help_overview(struct strbuf *out);
/* `rankc VERB --help`. */
void help_verb(struct strbuf *out, enum verb verb);
/* `rankc help --man`: roff, man(7) macros. */
void help_man(struct strbuf *out);
/* `rankc completions SHELL`; false if the shell is not one of help_shells (NULL-terminated). */
bool help_completions(struct strbuf *out, const char *shell);
extern const char *const help_shells[];

#endif
