#include "frontend/cli/plot/plot.h"

#include <string.h>

#include "runtime/base/io/file.h"

int cli_plot(struct cli *cli) {
    const struct options *options = cli->options;
    struct plot_runs runs = {0};
    struct rt_reason why;
    for (int i = -1; i < options->more.all.n; i++) {
        struct plot_run run = {0};
        if (plot_read(&run, i < 0 ? options->operand : options->more.all.at[i], cli)) return -1;
        VEC_PUSH(cli->arena, &runs.all, run);
    }
    const char *svg = plot_svg(&runs, cli->arena);
    for (int i = 0; i < runs.all.n; i++)
        cli_tell(cli, "%s: %d losses, %d evaluations", diag_quote(cli->diags, runs.all.at[i].name),
                 runs.all.at[i].quantity[PLOT_LOSS].points.n, runs.all.at[i].evaluations.points.n);
    if (!options->plot_output) return cli_print_text(cli, svg);
    const struct rt_piece piece = {svg, strlen(svg)};
    if (!rt_file_write(options->plot_output, &piece, 1, &why))
        return diag_refusal(cli->diags, 611, EXIT_SYSTEM, NULL, &why);
    return 0;
}
