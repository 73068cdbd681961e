#include "frontend/options/help_text.h"

#include <ctype.h>
#include <string.h>

enum { LEFT_COLUMNS = 34, LINE_COLUMNS = 100, FEW_OPTIONS = 14 };

void help_each_option(struct strbuf *out, enum verb verb, void (*title)(struct strbuf *out, const char *text),
                      void (*option)(struct strbuf *out, const struct option *row)) {
    const enum option_id *next = option_order;
    int shown = 0;
    for (int i = 0; i < OPTIONS; i++) shown += option_of_verb(&option_rows[i], verb);
    if (shown <= FEW_OPTIONS) title(out, "Options");
    for (const struct section *section = option_sections; section->n; next += section->n, section++)
        for (int i = 0, listed = 0; i < section->n; i++) {
            const struct option *row = &option_rows[next[i]];
            if (!option_of_verb(row, verb)) continue;
            if (!listed++ && shown > FEW_OPTIONS) title(out, section->title);
            option(out, row);
        }
}

void help_put_wrapped(struct strbuf *out, const char *text, size_t column, size_t indent) {
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

/* Prints an item in the left column and its explanation beside it. */
static void put_item(struct strbuf *out, const char *left, const char *text) {
    size_t length = strlen(left);
    strbuf_puts(out, left);
    if (length + 2 > LEFT_COLUMNS)
        strbuf_printf(out, "\n%*s", LEFT_COLUMNS, "");
    else
        strbuf_printf(out, "%*s", (int)(LEFT_COLUMNS - length), "");
    help_put_wrapped(out, text, LEFT_COLUMNS, LEFT_COLUMNS);
}

const char *help_option_text(const struct option *row, struct arena *arena) {
    const char *fallback = row->fallback;
    if (!fallback) return row->help;
    size_t length = strlen(fallback);
    if (*fallback == '(') return arena_printf(arena, "%s [%.*s]", row->help, (int)length - 2, fallback + 1);
    return arena_printf(arena, "%s [%s]", row->help, fallback);
}

/* Lists the words of an option of kind CHOICE or POLICY with their explanations. */
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

const char *help_setting_text(const struct decision *row, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    for (const char *c = row->policies; c && *c; c++) strbuf_puts(&text, *c == ' ' ? ", " : (char[]){*c, 0});
    return row->policies ? arena_printf(arena, "with %s: %s", strbuf_text(&text), row->help) : NULL;
}

static void put_settings(struct strbuf *out) {
    for (const struct decision *row = decision_rows; row < decision_rows + DECISIONS; row++)
        if (row->policies)
            put_item(out, arena_printf(out->arena, "          %s=%s", row->name, row->words),
                     help_setting_text(row, out->arena));
}

static void put_option(struct strbuf *out, const struct option *row) {
    const char *argument = option_argument(row, out->arena);
    const char *letter = row->letter ? arena_printf(out->arena, "-%c,", row->letter) : "   ";
    const char *left = arena_printf(out->arena,
                                    row->bare   ? "  %s --%s[=%s]"
                                    : *argument ? "  %s --%s %s"
                                                : "  %s --%s%s",
                                    letter, row->name, argument);
    put_item(out, left, help_option_text(row, out->arena));
    if (row->choices) put_words(out, row);
    if (row->kind == OPTION_POLICY) put_settings(out);
}

const char *help_later_text(enum verb verb, struct arena *arena) {
    struct strbuf list = {.arena = arena};
    EACH(option_rows, OPTIONS, i, const struct option *row) {
        if (!option_of_verb(row, verb)) continue;
        for (int c = 1; row->choices && c < CHOICES; c++)
            if (choice_rows[c].group == row->choices && choice_rows[c].later)
                strbuf_printf(&list, "%s--%s %s", list.length ? ", " : "", row->name, choice_rows[c].word);
    }
    return strbuf_text(&list);
}

const char *help_sentence(const char *text, struct arena *arena) {
    char *sentence = arena_printf(arena, "%s.", text);
    sentence[0] = (char)toupper((unsigned char)sentence[0]);
    return sentence;
}

const struct manual_row manual_rows[] = {
#define EXAMPLE(verb, command, what)  {VERB_##verb, false, command, what},
#define SHOWN(verb, command, what)    {VERB_##verb, false, command, what},
#define MANUAL_FILE(verb, name, what) {VERB_##verb, true, name, what},
#include "frontend/options/manual.def"
    {VERBS, false, NULL, NULL},
};

void help_examples(struct strbuf *out, enum verb verb) {
    for (const struct manual_row *row = manual_rows; row->text; row++) {
        if (verb != VERB_HELP && row->verb != verb) continue;
        const char *title = row->is_file ? "File" : "Example";
        strbuf_printf(out, "\n%s: ", title);
        help_put_wrapped(out, row->what, strlen(title) + 2, 0);
        strbuf_printf(out, "  %s\n", row->text);
    }
}

static void put_title(struct strbuf *out, const char *text) {
    strbuf_printf(out, "\n%s:\n", text);
}

static void put_verb(struct strbuf *out, const struct verb_row *verb) {
    const char *space = *verb->operand ? " " : "";
    put_item(out, arena_printf(out->arena, "  %s%s%s", verb->name, space, verb->operand), verb->help);
}

void help_overview(struct strbuf *out) {
    strbuf_puts(out, "usage: rankc VERB ... ; rankc VERB --help\n\n");
    help_put_wrapped(out, "Rankc compiles an ONNX model into one program per rank of a parallel job, and runs the job.",
                     0, 0);
    const enum verb *next = verb_order;
    for (const struct section *section = verb_sections; section->n; next += section->n, section++) {
        put_title(out, section->title);
        for (int i = 0; i < section->n; i++) put_verb(out, &verb_rows[next[i]]);
    }
    help_each_option(out, VERB_HELP, put_title, put_option);
    strbuf_puts(out, "\nAn argument @FILE is replaced by the arguments in FILE; # begins a comment.\n");
}

void help_verb(struct strbuf *out, enum verb verb) {
    const struct verb_row *row = &verb_rows[verb];
    const char *later = help_later_text(verb, out->arena);
    strbuf_printf(out, "usage: rankc %s%s%s [options]\n\n", row->name, *row->operand ? " " : "", row->operand);
    help_put_wrapped(out, help_sentence(row->help, out->arena), 0, 0);
    if (*action_names(verb, "", out->arena)) strbuf_puts(out, "\nActions:\n");
    for (int i = 1; i < ACTIONS; i++) {
        const struct action_row *action = &action_rows[i];
        const char *left = arena_printf(out->arena, "  %s %s", action->name, action->operands);
        if (action->verb == verb) put_item(out, left, action->help);
    }
    help_each_option(out, verb, put_title, put_option);
    if (!*later) return;
    strbuf_putc(out, '\n');
    help_put_wrapped(out, arena_printf(out->arena, "Not supported yet: %s.", later), 0, 0);
}
