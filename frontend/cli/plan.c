/* rankc plan MODEL.onnx. */
#include "frontend/cli/cli.h"
#include "frontend/cli/show/show.h"

int cli_plan(struct cli *cli) {
    return cli->options->dump_after ? cli_dump(cli) : show_model(cli);
}
