/* Texts generated from frontend/options/options.def: help, manual pages, shell completions. All functions append to
 * `out`. */
#ifndef FRONTEND_OPTIONS_HELP_TEXT_H
#define FRONTEND_OPTIONS_HELP_TEXT_H

#include "frontend/options/options.h"
#include "ir/base/str.h"

#ifndef RANKC_VERSION
#define RANKC_VERSION "unreleased" /* the build passes the project's */
#endif

/* `rankc help`: the list of verbs. */
void help_overview(struct strbuf *out);
/* `rankc VERB --help`. */
void help_verb(struct strbuf *out, enum verb verb);
/* What the manual page of the verb has beside that: examples and files. VERB_HELP: those of all verbs. */
void help_examples(struct strbuf *out, enum verb verb);
/* `rankc help --man`, `rankc help VERB --man`: manual pages in roff with man(7) macros. */
void help_man(struct strbuf *out);
void help_man_verb(struct strbuf *out, enum verb verb);
/* Words that complete an option's value, or the operand of a verb, separated by spaces. */
struct completion_words {
    int option; /* enum option_id, or COMPLETES_OPERAND */
    enum verb verb;
    const char *words;
};
enum { COMPLETES_OPERAND = -1 };

/* Settings behind a word of an option, "adamw:lr=", separated by spaces, each with its "=". */
struct completion_settings {
    int option; /* enum option_id */
    const char *word, *settings;
};

/* `rankc completions SHELL`, with those words beside the choices of options.def, the settings behind them (which end
 * with a row without a word), and names of a program's inputs behind --data and --input; false if there is no such
 * shell. */
bool help_completions(struct strbuf *out, const char *shell, const struct completion_words *words, int n,
                      const struct completion_settings *settings);
/* The keys that a policy takes, "tensor= prefer=". */
const char *help_policy_settings(enum choice policy, struct arena *arena);

/* `text` and a line break, wrapped; it begins at column `column`, further lines at `indent`. */
void help_put_wrapped(struct strbuf *out, const char *text, size_t column, size_t indent);

/* Shared by the above. */
/* Lists the verb's options in the order of their sections: `option` is called for each, `title` before those of a
 * section, once ("Options") for a verb that has few. */
void help_each_option(struct strbuf *out, enum verb verb, void (*title)(struct strbuf *out, const char *text),
                      void (*option)(struct strbuf *out, const struct option *row));
/* The explanation of an option, with its default in brackets. */
const char *help_option_text(const struct option *row, struct arena *arena);
/* Which policies take the setting, and what it says; NULL: it is none. */
const char *help_setting_text(const struct decision *row, struct arena *arena);
/* The text as a sentence. */
const char *help_sentence(const char *text, struct arena *arena);
/* The rows of manual.def, ended by one without text. */
extern const struct manual_row {
    enum verb verb;
    bool is_file; /* else an example */
    const char *text, *what;
} manual_rows[];
/* Names the words of the verb's options that are not supported yet; "" if there are none. */
const char *help_later_text(enum verb verb, struct arena *arena);

#endif
