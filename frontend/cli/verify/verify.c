/* rankc verify DIR. */
#include <stdio.h>

#include "frontend/cli/cli.h"
#include "frontend/cli/compiled_model.h"
#include "frontend/cli/verify/numeric.h"
#include "frontend/driver/driver.h"
#include "runtime/base/thread/clock.h"

int cli_verify(struct cli *cli) {
    struct compiled_model compiled;
    if (cli->options->given[OPT_RUNTIME_NGPUS] && !cli->options->numeric)
        return diag_error(cli->diags, 200, EXIT_USAGE, NULL,
                          "--runtime-ngpus needs --numeric: the proof holds for any number of scale units");
    if (compiled_open(&compiled, cli->options->operand, cli)) return -1;
    const int64_t started = rt_now_ms();
    int status = driver_verify(compiled.directory, cli->options, cli->arena, cli->diags);
    if (!status)
        cli_tell(cli,
                 "graph.rir with plan.json gives these files again, and every level of it is equivalent to the model: "
                 "%.1f s",
                 (double)(rt_now_ms() - started) / 1000);
    if (!status && cli->options->numeric) status = numeric_compare(&compiled, cli);
    const char *name = diag_quote(cli->diags, compiled.directory);
    if (!status && cli->options->json)
        puts("{\"format\":1,\"verified\":true}");
    else if (!status && !cli->options->quiet)
        printf("%s computes the same as the model on one device\n", name);
    compiled_close(&compiled);
    return status;
}
