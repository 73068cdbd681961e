/* The verbs: cli_<verb>() of every VERB row of frontend/cli/options.def, a file each. They may print results to stdout;
 * diagnostics go to cli->diags, which main prints. */
#ifndef FRONTEND_CLI_CLI_H
#define FRONTEND_CLI_CLI_H

#include "frontend/cli/options.h"
#include "ir/base/own.h"
#include "ir/base/str.h"

struct cli {
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
};

/* Returns an exit code, or -1: the diagnostics say. */
#define VERB(ID, NAME, ...) int cli_##NAME(struct cli *cli);
#include "frontend/cli/options.def"

/* Prints the diagnostics. main does so after the verb; a verb only where it does not return. */
void cli_report(struct cli *cli);

/* Ends the text and prints it to stdout; 0, or -1 with a diagnostic. */
int cli_print_json(struct cli *cli, struct rt_json_writer *writer);

/* Prints a result that is a text for people or other programs; with --json {"format": 1, "text": ".."}. 0, or -1 with a
 * diagnostic. */
int cli_print_text(struct cli *cli, const char *text);

/* --dump-after: prints the graph after that pass. */
int cli_dump(struct cli *cli);

#endif
