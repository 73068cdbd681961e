/* Bounds of the sizes of a model that is run by its file name (run_sizes.c). */
#ifndef FRONTEND_CLI_RUN_SIZES_H
#define FRONTEND_CLI_RUN_SIZES_H

#include "frontend/cli/cli.h"

/* Tried in this order: not every model can have all sizes. */
enum run_bounds { BOUNDS_FROM_ONE, BOUNDS_FROM_SIZE, BOUNDS_FIXED, RUN_BOUNDS };

/* Adds the sizes to options->dims, with bounds that have those of the program in `directory`, if there is one. Returns
 * them as text. */
const char *run_sizes_add(struct options *options, const struct option_sizes *sizes, enum run_bounds bounds,
                          const char *directory, struct arena *arena);

#endif
