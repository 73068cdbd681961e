/* --global-batch of a model file, whose inputs say which dimension is the batch (import_batch_dim). */
#ifndef FRONTEND_DRIVER_BATCH_H
#define FRONTEND_DRIVER_BATCH_H

#include "frontend/options/options.h"

/* If --global-batch is given and its dimension is not known: *options become a copy in `arena` with batch_dim, and with
 * the size that --shape gives that dimension in --dim; except with --pas autodist, `accumulate` follows. 0, or -1 after
 * a diagnostic: of the file, or E0205 if its inputs have no batch or --global-batch cannot be divided. */
int batch_take(const struct options **options, struct arena *arena, struct diags *diags);

#endif
