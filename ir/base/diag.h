/* Diagnostics: what the user is told. They are collected, and printed by whoever owns the terminal.
 * How they look: runtime/base/diagnostic.h.
 *
 * A function that reports an error returns -1 up to the driver; it goes on where it can, so that one run shows all
 * that is wrong. Names from a model pass through str_escape (diag_quote).
 */
#ifndef IR_BASE_DIAG_H
#define IR_BASE_DIAG_H

#include <stdio.h>

#include "ir/base/arena.h"
#include "ir/base/vec.h"
#include "runtime/base/diagnostic.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/reason.h"

struct diagnostic {
    enum rt_severity severity;
    int code; /* 331 prints as E0331; 0: none */
    enum exit_code exit;
    const char *text, *where; /* where: NULL if nowhere in particular */
    VEC(const char *) notes;  /* complete lines: "note: ..." or "help: ..." */
};

struct diags {
    struct arena *arena;
    VEC(struct diagnostic) all;
    int errors;
};

void diags_init(struct diags *diags, struct arena *arena);

/* Records an error; returns -1, so that `return diag_error(...)` reads well. `where` is copied. Whatever is
 * not printable ASCII in the end is escaped, but names ought to be quoted (diag_quote), which also bounds them. */
int diag_error(struct diags *diags, int code, enum exit_code exit, const char *where, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void diag_warning(struct diags *diags, int code, const char *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* What base/ refused: E0500 where memory was short, E0601 where the file or the system was (but a code of EXIT_SYSTEM
 * stays), E0802 where a file is not as rankc wrote it, else as given. */
int diag_refusal(struct diags *diags, int code, enum exit_code exit, const char *where, const struct rt_reason *why);
/* A remark of its own, such as what a policy could not split. */
void diag_remark(struct diags *diags, const char *where, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Lines under the latest diagnostic. */
void diag_note(struct diags *diags, const char *format, ...) __attribute__((format(printf, 2, 3)));
void diag_help(struct diags *diags, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A name from a model, quoted and made printable, at most 120 characters. */
const char *diag_quote(struct diags *diags, const char *name);

/* The exit code of the first error, EXIT_OK if there is none. */
enum exit_code diags_exit(const struct diags *diags);

/* Prints those of at most `least` severity (RT_SEVERITY_WARNING: errors and warnings), in order. */
void diags_print(const struct diags *diags, FILE *out, enum rt_diagnostic_style style, enum rt_severity least);

/* A broken invariant of rankc itself: says where and what, and ends the process with EXIT_INTERNAL. */
#define BUG(...) diag_bug(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void diag_bug(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
