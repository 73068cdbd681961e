/* Diagnostics: errors, warnings and remarks for the user. They are collected here and printed by the program's driver.
 * Their printed form is in runtime/base/text/diagnostic.h.
 *
 * A function that reports an error returns -1, and its callers pass that on up to the driver. Where it can, a function
 * continues after an error, so that one run reports all of them. Names from a model are quoted with diag_quote. */
#ifndef IR_BASE_DIAG_H
#define IR_BASE_DIAG_H

#include <stdio.h>

#include "ir/base/arena.h"
#include "ir/base/vec.h"
#include "runtime/base/text/diagnostic.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/text/reason.h"

struct diagnostic {
    enum rt_severity severity;
    int code; /* 331 prints as E0331; 0: no code */
    enum exit_code exit;
    const char *text, *where; /* `where` is the place, such as a node; NULL: none */
    VEC(const char *) notes;  /* complete lines: "note: ..." or "help: ..." */
};

struct diags {
    struct arena *arena;
    VEC(struct diagnostic) all;
    int errors;
};

/* No diagnostics. Their texts are allocated in `arena`. */
void diags_init(struct diags *diags, struct arena *arena);

/* Records an error and returns -1, so that `return diag_error(...)` works. `exit` is the exit code if this error is the
 * first. `where` is copied and may be NULL. Characters of the message that are not printable ASCII are escaped; quote
 * names with diag_quote, which also limits their length. */
int diag_error(struct diags *diags, int code, enum exit_code exit, const char *where, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Records a warning; arguments as for diag_error. The exit code stays. */
void diag_warning(struct diags *diags, int code, const char *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Records an error from a reason that runtime/base gave. By the kind of reason: E0500 if memory is exhausted, E0601 for
 * a failed system call (unless `exit` is EXIT_SYSTEM, then `code`), E0604 if a file changed while it was read, E0802 if
 * a file is not as rankc wrote it; for other kinds, `code` and `exit`. Returns -1. */
int diag_refusal(struct diags *diags, int code, enum exit_code exit, const char *where, const struct rt_reason *why);
/* Records that a system call failed for a file, with the cause in errno: "cannot open 'x': No such file or directory",
 * with EXIT_SYSTEM; `verb` is "open". If memory is exhausted, E0500 with EXIT_LIMIT. Returns -1. */
int diag_errno(struct diags *diags, int code, const char *where, const char *verb, const char *path);
/* Records a remark, such as a node that a policy could not split. */
void diag_remark(struct diags *diags, const char *where, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Add a line to the latest diagnostic: "note: ..." or "help: ...". Return -1, as diag_error. */
int diag_note(struct diags *diags, const char *format, ...) __attribute__((format(printf, 2, 3)));
int diag_help(struct diags *diags, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds one diagnostic, or those of `from` in order. Their texts are shared. */
void diags_add(struct diags *diags, const struct diagnostic *item);
void diags_append(struct diags *diags, const struct diags *from);
/* Moves those from index `first` on to `taken`, which it initialises. */
void diags_take(struct diags *diags, int first, struct diags *taken);

/* FILE:LINE:COLUMN for `where`, in the arena of `diags`. */
const char *diag_place(struct diags *diags, const char *file, int line, int column);

/* A name from a model in quotes, escaped to printable ASCII, at most 120 characters, in the arena of `diags`. */
const char *diag_quote(struct diags *diags, const char *name);

/* The exit code of the first error, EXIT_OK if there is none. */
enum exit_code diags_exit(const struct diags *diags);

/* Prints the diagnostics that are at least as severe as `least` (RT_SEVERITY_WARNING: errors and warnings), in
 * order. */
void diags_print(const struct diags *diags, FILE *out, enum rt_diagnostic_style style, enum rt_severity least);

/* A broken invariant of rankc itself: prints file, line and message, and ends the process with EXIT_INTERNAL. */
#define BUG(...) diag_bug(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void diag_bug(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
