/* Manual pages, man(7) macros: rankc(1), and a page for each verb. */
#include <ctype.h>
#include <string.h>

#include "frontend/options/help_text.h"

/* Escapes text for roff: no line becomes a request, and "-" is printed as a hyphen-minus. */
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

static void put_option(struct strbuf *out, const struct option *row) {
    const char *letter = row->letter ? arena_printf(out->arena, "-%c, ", row->letter) : "";
    const char *argument = option_argument(row, out->arena);
    put_tag(out, arena_printf(out->arena, row->bare ? "%s--%s[=%s]" : "%s--%s", letter, row->name, argument),
            row->bare ? "" : argument, arena_printf(out->arena, "%s.", help_option_text(row, out->arena)));
    for (int i = 1; row->choices && i < CHOICES; i++) {
        const struct choice_row *word = &choice_rows[i];
        if (word->group != row->choices || word->later || !*word->help) continue;
        strbuf_puts(out, ".br\n");
        put_paragraph(out, arena_printf(out->arena, "%s: %s.", word->word, word->help));
    }
    for (int i = 0; row->kind == OPTION_POLICY && i < DECISIONS; i++) {
        const struct decision *setting = &decision_rows[i];
        if (!setting->policies) continue;
        strbuf_puts(out, ".br\n");
        put_paragraph(out, arena_printf(out->arena, "%s=%s %s.", setting->name, setting->words,
                                        help_setting_text(setting, out->arena)));
    }
}

static void put_section(struct strbuf *out, const char *title) {
    strbuf_printf(out, ".SH %s\n", title);
}

/* Of options; those of a verb that has few need no title beside the section's. */
static void put_subsection(struct strbuf *out, const char *title) {
    if (strcmp(title, "Options") != 0) strbuf_printf(out, ".SS %s\n", title);
}

static void put_synopsis(struct strbuf *out, const struct verb_row *row) {
    strbuf_printf(out, "\\fBrankc %s\\fR ", row->name);
    put_roff(out, row->operand);
    strbuf_puts(out, " [options]\n");
}

static const struct {
    enum exit_code code;
    const char *meaning;
} exit_meanings[] = {
    {EXIT_OK, "success"},
    {EXIT_INTERNAL, "a bug in rankc"},
    {EXIT_USAGE, "wrong usage, or an input dimension without a size"},
    {EXIT_MALFORMED, "malformed input of any kind, or a wrong shape or data type"},
    {EXIT_UNSUPPORTED, "valid input that is not supported"},
    {EXIT_LIMIT, "not enough memory, an impossible split, or an exceeded limit"},
    {EXIT_SYSTEM, "a failed file access or another error of the operating system"},
    {EXIT_BUSY, "another process has locked the output or the checkpoint directory"},
    {EXIT_MISMATCH, "an artifact belongs to another model, plan or version, or verification failed"},
    {EXIT_RANK, "a rank failed"},
    {EXIT_INTERRUPTED, "interrupted"},
};

static const struct {
    const char *name, *meaning;
} environment[] = {
    {"NO_COLOR", "if set and not empty, diagnostics are printed without color."},
    {"RANKC_PROGRESS",
     "milliseconds after which a line tells how far a long operation is, also where standard error is no "
     "terminal; by default 1000, on terminals only."},
    {"RANKC_TOKEN",
     "shared secret, 16 to 255 bytes, with which the ranks of a job authenticate each other at HOST:PORT. "
     "Required if they are on several machines. See docs/launch.md."},
    {"XDG_CACHE_HOME", "parent of the directory rankc in which 'rankc run MODEL.onnx' caches compiled programs; by "
                       "default $HOME/.cache."},
};

static void put_examples(struct strbuf *out, enum verb verb) {
    bool first = true;
    for (const struct manual_row *row = manual_rows; row->text; row++) {
        if (row->is_file || row->verb != verb) continue;
        if (first) put_section(out, "EXAMPLES");
        first = false;
        strbuf_puts(out, ".PP\n");
        put_paragraph(out, help_sentence(row->what, out->arena));
        strbuf_puts(out, ".PP\n.RS 4\n.nf\n");
        put_paragraph(out, row->text);
        strbuf_puts(out, ".fi\n.RE\n");
    }
}

static void put_files(struct strbuf *out, enum verb verb) {
    bool first = true;
    for (const struct manual_row *row = manual_rows; row->text; row++) {
        if (!row->is_file || row->verb != verb) continue;
        if (first) put_section(out, "FILES");
        first = false;
        put_tag(out, row->text, "", arena_printf(out->arena, "%s.", row->what));
    }
}

static void put_exit_status(struct strbuf *out) {
    put_section(out, "EXIT STATUS");
    for (size_t i = 0; i < sizeof exit_meanings / sizeof *exit_meanings; i++)
        put_tag(out, arena_printf(out->arena, "%d", (int)exit_meanings[i].code), "", exit_meanings[i].meaning);
}

static void put_environment(struct strbuf *out) {
    put_section(out, "ENVIRONMENT");
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++)
        put_tag(out, environment[i].name, "", environment[i].meaning);
}

void help_man(struct strbuf *out) {
    strbuf_puts(out, ".TH RANKC 1 \"\" \"rankc " RANKC_VERSION "\"\n");
    put_section(out, "NAME");
    put_paragraph(out, "rankc - compile ONNX models into parallel programs");
    put_section(out, "SYNOPSIS");
    strbuf_puts(out, "\\fBrankc\\fR VERB [operand] [options]\n");
    put_section(out, "DESCRIPTION");
    put_paragraph(out, "rankc compiles an ONNX model into one program per rank of a parallel job, and runs the job. An "
                       "argument @FILE is replaced by the arguments in FILE, which are separated by white space and "
                       "may be quoted; # at the beginning of an argument begins a comment, up to the end of the line.");
    put_section(out, "VERBS");
    for (int i = 0; i < VERBS; i++) {
        const struct verb_row *row = &verb_rows[verb_order[i]];
        put_tag(out, arena_printf(out->arena, "rankc-%s(1)", row->name), "", row->help);
    }
    put_section(out, "OPTIONS OF EVERY VERB");
    for (int i = 0; i < OPTIONS; i++)
        if (option_of_verb(&option_rows[i], VERB_HELP) && option_of_verb(&option_rows[i], VERB_COMPILE))
            put_option(out, &option_rows[i]);
    put_exit_status(out);
    put_environment(out);
}

void help_man_verb(struct strbuf *out, enum verb verb) {
    const struct verb_row *row = &verb_rows[verb];
    const char *later = help_later_text(verb, out->arena);
    strbuf_puts(out, ".TH RANKC\\-");
    for (const char *c = row->name; *c; c++) strbuf_putc(out, (char)toupper((unsigned char)*c));
    strbuf_puts(out, " 1 \"\" \"rankc " RANKC_VERSION "\"\n");
    put_section(out, "NAME");
    put_paragraph(out, arena_printf(out->arena, "rankc-%s - %s", row->name, row->help));
    put_section(out, "SYNOPSIS");
    put_synopsis(out, row);
    put_section(out, "DESCRIPTION");
    put_paragraph(out, help_sentence(row->help, out->arena));
    if (*action_names(verb, "", out->arena)) put_section(out, "ACTIONS");
    for (int i = 1; i < ACTIONS; i++)
        if (action_rows[i].verb == verb)
            put_tag(out, action_rows[i].name, action_rows[i].operands, action_rows[i].help);
    put_section(out, "OPTIONS");
    help_each_option(out, verb, put_subsection, put_option);
    if (*later) put_section(out, "NOT SUPPORTED YET");
    if (*later) put_paragraph(out, arena_printf(out->arena, "%s.", later));
    put_files(out, verb);
    put_exit_status(out);
    put_examples(out, verb);
    put_section(out, "SEE ALSO");
    put_paragraph(out, "rankc(1)");
}
