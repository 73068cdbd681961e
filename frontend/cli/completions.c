/* rankc completions SHELL. */
#include "frontend/cli/cli.h"
#include "frontend/options/help_text.h"

int cli_completions(struct cli *cli) {
    const char *shell = cli->options->operand;
    struct strbuf text;
    strbuf_init(&text, cli->arena);
    if (!help_completions(&text, shell))
        return diag_error(cli->diags, 202, EXIT_USAGE, NULL, "unknown shell %s (%s)", diag_quote(cli->diags, shell),
                          verb_rows[VERB_COMPLETIONS].operand);
    return cli_print_text(cli, strbuf_text(&text));
}
