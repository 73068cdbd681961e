/* Compiled models in the user's cache, for verbs that take MODEL.onnx in place of a compiled model. */
#ifndef FRONTEND_CLI_CACHE_H
#define FRONTEND_CLI_CACHE_H

#include "frontend/cli/compiled_model.h"

/* Compiles the operand into the cache unless it is there, and opens it. 0, or -1 after diagnostics. If another process
 * has replaced it between compiling and opening, with other rules for example, it is compiled again.
 *
 * bound: gives the dimensions that have no size bounds, and compiles the options that it gets; `directory` is where the
 * result of an earlier call may be. 0, or -1 after diagnostics. */
typedef int cache_bound(const struct options *options, const char *directory, struct cli *cli,
                        struct driver_result *result);
int cache_open(struct compiled_model *compiled, cache_bound *bound, struct cli *cli);

#endif
