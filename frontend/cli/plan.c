/* rankc plan MODEL.onnx. */
#include "frontend/cli/cli.h"
#include "frontend/cli/show/show.h"
#include "frontend/cli/rows/rows.h"

static int print_rows(struct cli *cli) {
    struct strbuf out;
    strbuf_init(&out, cli->arena);
    if (rows_predict(cli->arena, cli->diags, cli->options->rows, &out) < 0) return -1;
    return cli_print_text(cli, strbuf_text(&out));
}

int cli_plan(struct cli *cli) {
    if (cli->options->rows) return print_rows(cli);
    return cli->options->dump_after ? cli_dump(cli) : show_model(cli);
}
