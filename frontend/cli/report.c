/* Printing diagnostics the way the user and the terminal want them. */
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
    enum rt_diagnostic_style style = options->json ? RT_DIAGNOSTIC_JSON : wants_color(options->color) ? RT_DIAGNOSTIC_COLOR : RT_DIAGNOSTIC_PLAIN;
    diags_print(cli->diags, stderr, style, options->quiet ? RT_SEVERITY_WARNING : RT_SEVERITY_NOTE);
}
