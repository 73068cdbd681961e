#include "frontend/help.h"

#include <ctype.h>
#include <string.h>

enum { LEFT_COLUMNS = 34, LINE_COLUMNS = 100 };

static bool is_shown(const struct option *row, enum verb verb) {
    return option_of_verb(row, verb) && !row->later;
}

/* ---- text ---- */

/* Words of `text` on lines of at most LINE_COLUMNS, from column `column` on; following lines start at `indent`. */
static void put_wrapped(struct strbuf *out, const char *text, size_t column, size_t indent) {
    bool first = true;
    while (*text) {
        size_t length = strcspn(text, " ");
        if (!first && column + 1 + length > LINE_COLUMNS) {
            strbuf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            strbuf_putc(out, ' ');
            column++;
        }
        strbuf_add(out, text, length);
        column += length;
        text += length + (text[length] == ' ');
        first = false;
    }
    strbuf_putc(out, '\n');
}

/* A left column and its explanation. */
static void put_item(struct strbuf *out, const char *left, const char *text) {
    size_t length = strlen(left);
    strbuf_puts(out, left);
    if (length + 2 > LEFT_COLUMNS)
        strbuf_printf(out, "\n%*s", LEFT_COLUMNS, "");
    else
        strbuf_printf(out, "%*s", (int)(LEFT_COLUMNS - length), "");
    put_wrapped(out, text, LEFT_COLUMNS, LEFT_COLUMNS);
}

/* "a value [default]". */
static const char *option_text(const struct option *row, struct arena *arena) {
    const char *fallback = row->fallback;
    if (!fallback) return row->help;
    size_t length = strlen(fallback);
    if (*fallback == '(') return arena_printf(arena, "%s [%.*s]", row->help, (int)length - 2, fallback + 1);
    return arena_printf(arena, "%s [%s]", row->help, fallback);
}

/* The words of an option, where there is a choice to explain. */
static void put_words(struct strbuf *out, const struct option *row) {
    if (!strchr(option_argument(row, out->arena), '|') && row->kind == OPTION_CHOICE) return;
    for (int i = 1; i < CHOICES; i++) {
        const struct choice_row *word = &choice_rows[i];
        if (word->group != row->choices || word->later || !*word->help) continue;
        bool file = strcmp(word->keys, "FILE") == 0;
        const char *keys = file ? ":FILE" : *word->keys ? arena_printf(out->arena, "[:%s=N]", word->keys) : "";
        put_item(out, arena_printf(out->arena, "          %s%s", word->word, keys), word->help);
    }
}

static void put_option(struct strbuf *out, const struct option *row) {
    const char *argument = option_argument(row, out->arena);
    const char *letter = row->letter ? arena_printf(out->arena, "-%c,", row->letter) : "   ";
    const char *left = arena_printf(out->arena, "  %s --%s%s%s", letter, row->name, *argument ? " " : "", argument);
    put_item(out, left, option_text(row, out->arena));
    if (row->choices) put_words(out, row);
}

/* What the verb knows of and refuses. */
static const char *later_text(enum verb verb, struct arena *arena) {
    struct strbuf list;
    strbuf_init(&list, arena);
    for (int i = 0; i < OPTIONS; i++) {
        const struct option *row = &option_rows[i];
        if (!option_of_verb(row, verb)) continue;
        if (row->later) strbuf_printf(&list, "%s--%s", list.length ? ", " : "", row->name);
        for (int c = 1; row->choices && c < CHOICES; c++)
            if (choice_rows[c].group == row->choices && choice_rows[c].later)
                strbuf_printf(&list, "%s--%s %s", list.length ? ", " : "", row->name, choice_rows[c].word);
    }
    return strbuf_text(&list);
}

static void put_sentence(struct strbuf *out, const char *text) {
    char *sentence = arena_printf(out->arena, "%s.", text);
    sentence[0] = (char)toupper((unsigned char)sentence[0]);
    put_wrapped(out, sentence, 0, 0);
}

/* ---- rankc help ---- */

void help_overview(struct strbuf *out) {
    strbuf_puts(out, "usage: rankc VERB ... ; rankc VERB --help\n\n");
    put_sentence(out,
                 "rankc compiles an ONNX model into the source of every rank of a parallel program, and runs it");
    strbuf_puts(out, "\nVerbs:\n");
    for (int i = 0; i < VERBS; i++) {
        const struct verb_row *verb = &verb_rows[i];
        if (verb->later) continue;
        const char *space = *verb->operand ? " " : "";
        put_item(out, arena_printf(out->arena, "  %s%s%s", verb->name, space, verb->operand), verb->help);
    }
    strbuf_puts(out, "\nOptions:\n");
    for (int i = 0; i < OPTIONS; i++)
        if (is_shown(&option_rows[i], VERB_HELP)) put_option(out, &option_rows[i]);
    strbuf_puts(out, "\nAn argument @FILE stands for the arguments in FILE.\nNot supported yet:");
    for (int i = 0, n = 0; i < VERBS; i++)
        if (verb_rows[i].later) strbuf_printf(out, "%s %s", n++ ? "," : "", verb_rows[i].name);
    strbuf_puts(out, ".\n");
}

void help_verb(struct strbuf *out, enum verb verb) {
    const struct verb_row *row = &verb_rows[verb];
    const char *later = later_text(verb, out->arena);
    strbuf_printf(out, "usage: rankc %s%s%s [options]\n\n", row->name, *row->operand ? " " : "", row->operand);
    put_sentence(out, row->help);
    strbuf_puts(out, "\nOptions:\n");
    for (int i = 0; i < OPTIONS; i++)
        if (is_shown(&option_rows[i], verb)) put_option(out, &option_rows[i]);
    if (!*later) return;
    strbuf_putc(out, '\n');
    put_wrapped(out, arena_printf(out->arena, "Not supported yet: %s.", later), 0, 0);
}

/* ---- the manual page ---- */

/* Escaped so that nothing reads as a request and hyphens stay hyphens. */
static void put_roff(struct strbuf *out, const char *text) {
    if (*text == '.' || *text == '\'') strbuf_puts(out, "\\&");
    for (; *text; text++) {
        if (*text == '-')
            strbuf_puts(out, "\\-");
        else if (*text == '\\')
            strbuf_puts(out, "\\e");
        else
            strbuf_putc(out, *text);
    }
}

static void put_paragraph(struct strbuf *out, const char *text) {
    put_roff(out, text);
    strbuf_putc(out, '\n');
}

/* A tagged paragraph: the tag in bold. */
static void put_tag(struct strbuf *out, const char *tag, const char *argument, const char *text) {
    strbuf_puts(out, ".TP\n\\fB");
    put_roff(out, tag);
    strbuf_puts(out, "\\fR");
    if (*argument) {
        strbuf_puts(out, " \\fI");
        put_roff(out, argument);
        strbuf_puts(out, "\\fR");
    }
    strbuf_putc(out, '\n');
    put_paragraph(out, text);
}

static void put_man_option(struct strbuf *out, const struct option *row) {
    const char *letter = row->letter ? arena_printf(out->arena, "-%c, ", row->letter) : "";
    put_tag(out, arena_printf(out->arena, "%s--%s", letter, row->name), option_argument(row, out->arena),
            arena_printf(out->arena, "%s.", option_text(row, out->arena)));
    for (int i = 1; row->choices && i < CHOICES; i++) {
        const struct choice_row *word = &choice_rows[i];
        if (word->group != row->choices || word->later || !*word->help) continue;
        strbuf_puts(out, ".br\n");
        put_paragraph(out, arena_printf(out->arena, "%s: %s.", word->word, word->help));
    }
}

static void put_man_verb(struct strbuf *out, enum verb verb) {
    const struct verb_row *row = &verb_rows[verb];
    strbuf_puts(out, ".SS rankc ");
    put_roff(out, row->name);
    strbuf_printf(out, "%s%s\n", *row->operand ? " " : "", row->operand);
    put_sentence(out, row->help);
    for (int i = 0; i < OPTIONS; i++)
        if (is_shown(&option_rows[i], verb) && (verb == VERB_HELP || !option_of_verb(&option_rows[i], VERB_HELP)))
            put_man_option(out, &option_rows[i]);
}

static const struct {
    enum exit_code code;
    const char *meaning;
} exit_meanings[] = {
    {EXIT_OK, "success"},
    {EXIT_INTERNAL, "a bug in rankc"},
    {EXIT_USAGE, "usage, or an input dimension without a size"},
    {EXIT_MALFORMED, "malformed input of any kind, or a wrong shape or type"},
    {EXIT_UNSUPPORTED, "valid, but not supported"},
    {EXIT_LIMIT, "does not fit: memory, a split that cannot be, a limit"},
    {EXIT_SYSTEM, "a file or the operating system"},
    {EXIT_BUSY, "another compile holds the output"},
    {EXIT_MISMATCH, "belongs to something else, or verification failed"},
    {EXIT_RANK, "a rank failed"},
    {EXIT_INTERRUPTED, "interrupted"},
};

static const struct {
    const char *name, *meaning;
} environment[] = {
    {"NO_COLOR", "if not empty, diagnostics have no color."},
    {"XDG_CACHE_HOME",
     "where `rankc run MODEL.onnx` keeps what it compiles: its directory rankc; else $HOME/.cache."},
};

void help_man(struct strbuf *out) {
    strbuf_puts(out, ".TH RANKC 1 \"\" \"rankc " RANKC_VERSION
                     "\"\n.SH NAME\nrankc \\- compile ONNX models into parallel "
                     "programs\n.SH SYNOPSIS\n");
    for (int i = 0; i < VERBS; i++) {
        if (verb_rows[i].later) continue;
        strbuf_printf(out, "%s\\fBrankc %s\\fR %s [options]\n", i ? ".br\n" : "", verb_rows[i].name,
                      verb_rows[i].operand);
    }
    strbuf_puts(out, ".SH DESCRIPTION\n");
    put_paragraph(out,
                  "rankc compiles an ONNX model into the source of every rank of a parallel program, and runs it. "
                  "An argument @FILE stands for the arguments in FILE, separated by white space, with quotes.");
    strbuf_puts(out, ".SH VERBS\n");
    for (int i = 0; i < VERBS; i++)
        if (!verb_rows[i].later) put_man_verb(out, (enum verb)i);
    strbuf_puts(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof exit_meanings / sizeof *exit_meanings; i++)
        put_tag(out, arena_printf(out->arena, "%d", (int)exit_meanings[i].code), "", exit_meanings[i].meaning);
    strbuf_puts(out, ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++)
        put_tag(out, environment[i].name, "", environment[i].meaning);
}
