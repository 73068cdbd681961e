#include "ir/base/diag.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"

void diags_init(struct diags *diags, struct arena *arena) {
    *diags = (struct diags){.arena = arena};
}

static char *format_text(struct arena *arena, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = arena_alloc(arena, (size_t)(length > 0 ? length : 0) + 1, 1);
    if (length > 0) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

static void record(struct diags *diags, enum severity severity, int code, enum exit_code exit, const char *where,
                   const char *text) {
    struct diagnostic item = {.severity = severity, .code = code, .exit = exit, .text = text};
    if (where) item.where = arena_strdup(diags->arena, where);
    VEC_PUSH(diags->arena, &diags->all, item);
    if (severity == DIAG_ERROR) diags->errors++;
}

#define FORMATTED(text, diags, format)                                                                             \
    va_list args;                                                                                                  \
    va_start(args, format);                                                                                        \
    char *text = format_text((diags)->arena, format, args);                                                        \
    va_end(args)

int diag_error(struct diags *diags, int code, enum exit_code exit, const char *where, const char *format, ...) {
    FORMATTED(text, diags, format);
    record(diags, DIAG_ERROR, code, exit, where, text);
    return -1;
}

int diag_refusal(struct diags *diags, int code, enum exit_code exit, const char *where,
                 const struct rt_reason *why) {
    if (why->kind == RT_REASON_MEMORY) return diag_error(diags, 500, EXIT_LIMIT, NULL, "%s", why->text);
    if (why->kind == RT_REASON_SYSTEM && exit != EXIT_SYSTEM) code = 601, exit = EXIT_SYSTEM, where = NULL;
    return diag_error(diags, code, exit, where, "%s", why->text);
}

void diag_warning(struct diags *diags, int code, const char *where, const char *format, ...) {
    FORMATTED(text, diags, format);
    record(diags, DIAG_WARNING, code, EXIT_OK, where, text);
}

void diag_remark(struct diags *diags, const char *where, const char *format, ...) {
    FORMATTED(text, diags, format);
    record(diags, DIAG_NOTE, 0, EXIT_OK, where, text);
}

static void add_line(struct diags *diags, const char *kind, const char *text) {
    if (!diags->all.n) BUG("a %s without a diagnostic", kind);
    struct diagnostic *last = &diags->all.at[diags->all.n - 1];
    VEC_PUSH(diags->arena, &last->notes, arena_printf(diags->arena, "%s: %s", kind, text));
}

void diag_note(struct diags *diags, const char *format, ...) {
    FORMATTED(text, diags, format);
    add_line(diags, "note", text);
}

void diag_help(struct diags *diags, const char *format, ...) {
    FORMATTED(text, diags, format);
    add_line(diags, "help", text);
}

const char *diag_quote(struct diags *diags, const char *name) {
    return arena_printf(diags->arena, "'%s'", str_escape(diags->arena, name, strlen(name), 120));
}

enum exit_code diags_exit(const struct diags *diags) {
    for (int i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DIAG_ERROR) return diags->all.at[i].exit;
    return EXIT_OK;
}

static const struct {
    const char *name, *color;
} severities[] = {[DIAG_ERROR] = {"error", "\033[1;31m"},
                  [DIAG_WARNING] = {"warning", "\033[1;33m"},
                  [DIAG_NOTE] = {"note", "\033[1;36m"}};

static void print_text(const struct diagnostic *item, FILE *out, bool color) {
    fprintf(out, "rankc: %s%s", color ? severities[item->severity].color : "", severities[item->severity].name);
    if (item->code) fprintf(out, "[E%04d]", item->code);
    fprintf(out, "%s: %s\n", color ? "\033[0m" : "", item->text);
    if (item->where) fprintf(out, "  --> %s\n", item->where);
    for (int i = 0; i < item->notes.n; i++) fprintf(out, "  %s\n", item->notes.at[i]);
}

static void print_json_string(FILE *out, const char *text) {
    putc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            putc(c, out);
    }
    putc('"', out);
}

static void print_json(const struct diagnostic *item, FILE *out) {
    fprintf(out, "{\"format\":1,\"severity\":\"%s\",\"code\":", severities[item->severity].name);
    if (item->code)
        fprintf(out, "\"E%04d\"", item->code);
    else
        fputs("null", out);
    fputs(",\"text\":", out);
    print_json_string(out, item->text);
    fputs(",\"where\":", out);
    if (item->where)
        print_json_string(out, item->where);
    else
        fputs("null", out);
    fputs(",\"notes\":[", out);
    for (int i = 0; i < item->notes.n; i++) {
        if (i) putc(',', out);
        print_json_string(out, item->notes.at[i]);
    }
    fputs("]}\n", out);
}

void diags_print(const struct diags *diags, FILE *out, enum diag_style style, enum severity least) {
    for (int i = 0; i < diags->all.n; i++) {
        const struct diagnostic *item = &diags->all.at[i];
        if (item->severity > least) continue;
        if (style == DIAG_JSON)
            print_json(item, out);
        else
            print_text(item, out, style == DIAG_COLOR);
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
