/* rankc explain [CODE]: what a code of a diagnostic means and what helps, from codes.def; without a code, the list. */
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cli.h"
#include "frontend/options/help_text.h"
#include "runtime/base/text/json.h"

static const struct code {
    int number;
    const char *title, *cause, *remedy;
} codes[] = {
#define CODE(NUMBER, TITLE, CAUSE, REMEDY) {NUMBER, TITLE, CAUSE, REMEDY},
#include "frontend/cli/explain/codes.def"
#undef CODE
};
enum { CODES = sizeof codes / sizeof *codes, MOST_SHOWN = 8 };

/* "E0801", "0801" or "801", in any case; NULL: no code of that name. */
static const struct code *find_code(const char *text) {
    int number = 0, digits = 0;
    if (*text == 'E' || *text == 'e') text++;
    for (; *text >= '0' && *text <= '9' && digits < 4; text++, digits++) number = 10 * number + (*text - '0');
    for (int i = 0; i < CODES && !*text && digits >= 3; i++)
        if (codes[i].number == number) return &codes[i];
    return NULL;
}

static void put_code(struct strbuf *out, const struct code *code) {
    strbuf_printf(out, "E%04d: %s\n\n", code->number, code->title);
    help_put_wrapped(out, code->cause, 0, 0);
    strbuf_putc(out, '\n');
    help_put_wrapped(out, code->remedy, 0, 0);
}

/* -v: the other codes of its hundred, which are of one kind. */
static void put_related(struct strbuf *out, const struct code *code) {
    strbuf_puts(out, "\nOf its kind:\n");
    for (int i = 0; i < CODES; i++)
        if (&codes[i] != code && codes[i].number / 100 == code->number / 100)
            strbuf_printf(out, "  E%04d  %s\n", codes[i].number, codes[i].title);
}

static void put_code_json(struct cli *cli, struct rt_json_writer *writer, const struct code *code) {
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_text(writer, "code", arena_printf(cli->arena, "E%04d", code->number));
    rt_json_key_text(writer, "title", code->title);
    rt_json_key_text(writer, "cause", code->cause);
    rt_json_key_text(writer, "remedy", code->remedy);
    rt_json_close(writer, '}');
}

static int print_json(struct cli *cli, const struct code *first, int n) {
    struct rt_json_writer *writer = own_json_writer(cli->arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_int(writer, "format", 1);
    rt_json_key_open(writer, "codes", '[', RT_JSON_LINES);
    for (int i = 0; i < n; i++) put_code_json(cli, writer, &first[i]);
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
    return cli_print_json(cli, writer);
}

/* In how many of four digits the numbers differ. */
static int wrong_digits(int a, int b) {
    int wrong = 0;
    for (int i = 0; i < 4; i++, a /= 10, b /= 10) wrong += a % 10 != b % 10;
    return wrong;
}

static bool is_near(const struct code *code, const char *operand, int number, int wrong) {
    return number >= 100 ? wrong_digits(code->number, number) == wrong : !number && strcasestr(code->title, operand);
}

/* For an operand that is no code: the codes that differ from it in one digit, or those about the word. */
static void help_find(struct cli *cli, const char *operand) {
    const int number = (int)strtol(operand + (*operand == 'E' || *operand == 'e'), NULL, 10);
    int shown = 0;
    for (int wrong = 0; wrong < 2 && !shown; wrong++)
        for (int i = 0; i < CODES && shown < MOST_SHOWN; i++) {
            if (!is_near(&codes[i], operand, number, wrong)) continue;
            diag_help(cli->diags, "E%04d is \"%s\"", codes[i].number, codes[i].title);
            shown++;
        }
    if (!shown) diag_help(cli->diags, "codes look like E0801; 'rankc explain' lists them");
}

int cli_explain(struct cli *cli) {
    const char *operand = cli->options->operand;
    const struct code *code = operand ? find_code(operand) : NULL;
    if (operand && !code) {
        diag_error(cli->diags, 202, EXIT_USAGE, NULL, "unknown code %s", diag_quote(cli->diags, operand));
        return help_find(cli, operand), -1;
    }
    if (cli->options->json) return print_json(cli, code ? code : codes, code ? 1 : CODES);
    struct strbuf text = {.arena = cli->arena};
    const bool verbose = cli->options->verbose;
    for (int i = 0; i < CODES && !code; i++) {
        if (verbose)
            put_code(&text, &codes[i]), strbuf_putc(&text, '\n');
        else
            strbuf_printf(&text, "E%04d  %s\n", codes[i].number, codes[i].title);
    }
    if (code) put_code(&text, code);
    if (code && verbose) put_related(&text, code);
    return cli_print_text(cli, strbuf_text(&text));
}
