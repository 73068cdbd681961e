/* Prints diagnostics in the format and colour that options and terminal ask for, and results as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/cli.h"

static bool wants_color(enum choice choice) {
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (choice == OPT_COLOR_ALWAYS) return true;
    if (choice == OPT_COLOR_NEVER || (none && *none)) return false;
    return isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb");
}

void cli_report(struct cli *cli) {
    const struct options *options = cli->options;
    enum rt_diagnostic_style style = options->json                 ? RT_DIAGNOSTIC_JSON
                                     : wants_color(options->color) ? RT_DIAGNOSTIC_COLOR
                                                                   : RT_DIAGNOSTIC_PLAIN;
    diags_print(cli->diags, stderr, style, options->quiet ? RT_SEVERITY_WARNING : RT_SEVERITY_NOTE);
}

int cli_print_json(struct cli *cli, struct rt_json_writer *writer) {
    const char *text = own_json_end(cli->arena, writer);
    if (!text) return diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    fputs(text, stdout);
    return 0;
}

int cli_print_text(struct cli *cli, const char *text) {
    if (!cli->options->json) return fputs(text, stdout), 0; /* main checks the stream */
    struct rt_json_writer *writer = own_json_writer(cli->arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_int(writer, "format", 1);
    rt_json_key_text(writer, "text", text);
    rt_json_close(writer, '}');
    return cli_print_json(cli, writer);
}

int cli_confirm(struct cli *cli, const char *format, ...) {
    char *text;
    ARENA_PRINT_TO(text, cli->arena, format);
    return cli->options->quiet && !cli->options->json ? 0 : cli_print_text(cli, rt_plurals(text));
}

void cli_print(const struct cli *cli, const char *format, ...) {
    char *text;
    ARENA_PRINT_TO(text, cli->arena, format);
    fputs(rt_plurals(text), stdout);
}

void cli_tell(const struct cli *cli, const char *format, ...) {
    char *text;
    ARENA_PRINT_TO(text, cli->arena, format);
    if (cli->options->verbose && !cli->options->json) fprintf(stderr, "rankc: %s\n", rt_plurals(text));
}
