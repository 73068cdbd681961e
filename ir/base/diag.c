#include "ir/base/diag.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"

void diags_init(struct diags *diags, struct arena *arena) {
    *diags = (struct diags){.arena = arena};
}

/* Callers escape names and texts of files. This escapes any that a caller did not. */
static const char *printable(struct arena *arena, const char *text) {
    for (const char *at = text; *at; at++)
        if (*at < ' ' || *at > '~') return str_escape(arena, text, strlen(text), 0);
    return text;
}

void diags_add(struct diags *diags, const struct diagnostic *item) {
    VEC_PUSH(diags->arena, &diags->all, *item);
    if (item->severity == RT_SEVERITY_ERROR) diags->errors++;
}

static void record(struct diags *diags, enum rt_severity severity, int code, enum exit_code exit, const char *where,
                   const char *text) {
    struct diagnostic item = {.severity = severity, .code = code, .exit = exit, .text = printable(diags->arena, text)};
    if (where) item.where = printable(diags->arena, arena_strdup(diags->arena, where));
    diags_add(diags, &item);
}

#define FORMATTED(text, diags, format)                                                                                 \
    va_list args;                                                                                                      \
    va_start(args, format);                                                                                            \
    char *text = rt_plurals(arena_vprintf((diags)->arena, format, args));                                              \
    va_end(args)

int diag_error(struct diags *diags, int code, enum exit_code exit, const char *where, const char *format, ...) {
    FORMATTED(text, diags, format);
    record(diags, RT_SEVERITY_ERROR, code, exit, where, text);
    return -1;
}

int diag_refusal(struct diags *diags, int code, enum exit_code exit, const char *where, const struct rt_reason *why) {
    const struct rt_report report = rt_reason_report(why, (struct rt_report){code, exit});
    const bool is_named = report.code != code && report.exit != EXIT_MISMATCH; /* the text names the file */
    return diag_error(diags, report.code, report.exit, is_named ? NULL : where, "%s", why->text);
}

int diag_errno(struct diags *diags, int code, const char *where, const char *verb, const char *path) {
    const int error = errno;
    if (error == ENOMEM) return diag_error(diags, 500, EXIT_LIMIT, NULL, "out of memory");
    return diag_error(diags, code, EXIT_SYSTEM, where, "cannot %s %s: %s", verb, diag_quote(diags, path),
                      strerror(error));
}

void diag_warning(struct diags *diags, int code, const char *where, const char *format, ...) {
    FORMATTED(text, diags, format);
    record(diags, RT_SEVERITY_WARNING, code, EXIT_OK, where, text);
}

void diag_remark(struct diags *diags, const char *where, const char *format, ...) {
    FORMATTED(text, diags, format);
    record(diags, RT_SEVERITY_NOTE, 0, EXIT_OK, where, text);
}

static int add_line(struct diags *diags, const char *kind, const char *text) {
    if (!diags->all.n) BUG("%s: there is no diagnostic to add it to", kind);
    struct diagnostic *last = &diags->all.at[diags->all.n - 1];
    VEC_PUSH(diags->arena, &last->notes, arena_printf(diags->arena, "%s: %s", kind, printable(diags->arena, text)));
    return -1;
}

int diag_note(struct diags *diags, const char *format, ...) {
    FORMATTED(text, diags, format);
    return add_line(diags, "note", text);
}

int diag_help(struct diags *diags, const char *format, ...) {
    FORMATTED(text, diags, format);
    return add_line(diags, "help", text);
}

const char *diag_place(struct diags *diags, const char *file, int line, int column) {
    return arena_printf(diags->arena, "%s:%d:%d", str_name(diags->arena, file), line, column);
}

const char *diag_quote(struct diags *diags, const char *name) {
    return arena_printf(diags->arena, "'%s'", str_name(diags->arena, name));
}

void diags_append(struct diags *diags, const struct diags *from) {
    for (int i = 0; i < from->all.n; i++) diags_add(diags, &from->all.at[i]);
}

void diags_take(struct diags *diags, int first, struct diags *taken) {
    diags_init(taken, diags->arena);
    for (int i = first; i < diags->all.n; i++) diags_add(taken, &diags->all.at[i]);
    diags->all.n = first;
    diags->errors -= taken->errors;
}

enum exit_code diags_exit(const struct diags *diags) {
    for (int i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == RT_SEVERITY_ERROR) return diags->all.at[i].exit;
    return EXIT_OK;
}

void diags_print(const struct diags *diags, FILE *out, enum rt_diagnostic_style style, enum rt_severity least) {
    VEC_EACH(&diags->all, i, const struct diagnostic *item) {
        const struct rt_diagnostic line = {item->severity, item->code,     item->text,
                                           item->where,    item->notes.at, item->notes.n};
        if (item->severity <= least) rt_diagnostic_print(&line, out, style);
    }
}

void diag_bug(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "rankc: internal error: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n  --> %s:%d\n  help: please report this with the command and the model\n", file, line);
    va_end(args);
    exit(EXIT_INTERNAL);
}
