/* rankc run DIR|MODEL.onnx, rankc train DIR: start the ranks of a compiled model. */
#include "frontend/cli/cache.h"
#include "frontend/cli/cli.h"
#include "frontend/cli/run_sizes.h"
#include "frontend/cli/start.h"

/* True if the model may be compiled with other bounds. */
static bool is_refused(const struct diags *diags) {
    const enum exit_code exit = diags_exit(diags);
    return exit == EXIT_UNSUPPORTED || exit == EXIT_LIMIT || exit == EXIT_MALFORMED;
}

/* Compiles with bounds for the dimensions that have no size, and says which; with the sizes of the inputs where the
 * model cannot have others. */
static int compile_with_bounds(const struct options *given, const char *directory, struct cli *cli,
                               struct driver_result *result) {
    struct option_sizes sizes;
    if (driver_sizes_of_inputs(given, cli->arena, &sizes) < 0 || !sizes.all.n)
        return driver_compile(given, cli->arena, cli->diags, result);
    for (enum run_bounds bounds = BOUNDS_FROM_ONE;; bounds++) {
        struct options options = *given;
        struct diags diags = {.arena = cli->arena};
        const char *said = run_sizes_add(&options, &sizes, bounds, directory, cli->arena);
        const int status = driver_compile(&options, cli->arena, &diags, result);
        if (status && bounds + 1 < RUN_BOUNDS && is_refused(&diags)) continue;
        if (!status && result->made != MADE_NOTHING)
            diag_remark(&diags, options.operand,
                        bounds == BOUNDS_FIXED
                            ? "compiled for the sizes of the inputs, as it cannot have others: %s"
                            : "compiled for all sizes of %s, from those of the inputs; --dim gives others",
                        said);
        diags_append(cli->diags, &diags);
        return status;
    }
}

int cli_train(struct cli *cli) {
    struct compiled_model compiled;
    if (compiled_open(&compiled, cli->options->operand, cli)) return -1;
    int status = start_program(&compiled, NULL, cli);
    compiled_close(&compiled);
    return status;
}

/* --dim of a program whose sizes are fixed. */
static int refuse_dims(struct cli *cli) {
    return diag_error(cli->diags, 200, EXIT_USAGE, NULL,
                      "--dim is a compile option where no size is open, but %s is already compiled",
                      diag_quote(cli->diags, cli->options->operand));
}

int cli_run(struct cli *cli) {
    struct compiled_model compiled;
    bool is_compiled = is_directory(cli->options->operand);
    if (is_compiled && compiled_refuses_options(cli)) return -1;
    if (is_compiled ? compiled_open(&compiled, cli->options->operand, cli)
                    : cache_open(&compiled, compile_with_bounds, cli))
        return -1;
    const bool fixed = is_compiled && cli->options->dims.all.n && !rt_json_member(compiled.root, "sizes");
    int status = fixed ? refuse_dims(cli) : start_program(&compiled, NULL, cli);
    compiled_close(&compiled);
    return status;
}
