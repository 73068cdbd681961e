/* rankc help [VERB]; also rankc --help, --version. */
#include <string.h>

#include "frontend/cli/cli.h"
#include "frontend/options/help_text.h"

static int help_on(struct cli *cli, struct strbuf *text) {
    const char *names[VERBS + 1] = {NULL}, *word = cli->options->operand;
    for (int i = 0; i < VERBS; i++) {
        names[i] = verb_rows[i].name;
        if (strcmp(names[i], word)) continue;
        (cli->options->man ? help_man_verb : help_verb)(text, (enum verb)i);
        if (cli->options->verbose && !cli->options->man) help_examples(text, (enum verb)i);
        return 0;
    }
    diag_error(cli->diags, 200, EXIT_USAGE, NULL, "unknown verb %s", diag_quote(cli->diags, word));
    if (str_nearest(word, names)) diag_help(cli->diags, "did you mean '%s'?", str_nearest(word, names));
    return -1;
}

int cli_help(struct cli *cli) {
    struct strbuf text = {.arena = cli->arena};
    if (cli->options->version)
        strbuf_puts(&text, "rankc " RANKC_VERSION "\n");
    else if (cli->options->operand && help_on(cli, &text) < 0)
        return -1;
    else if (!cli->options->operand)
        (cli->options->man ? help_man : help_overview)(&text);
    if (cli->options->verbose && !cli->options->operand && !cli->options->man) help_examples(&text, VERB_HELP);
    return cli_print_text(cli, strbuf_text(&text));
}
