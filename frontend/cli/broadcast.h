/* rankc compile --broadcast: rank 0 of an MPI job compiles and sends the result to the other hosts. */
#ifndef FRONTEND_CLI_BROADCAST_H
#define FRONTEND_CLI_BROADCAST_H

#include "frontend/cli/cli.h"
#include "frontend/driver/driver.h"

/* Rank 0 compiles as driver_compile does, and sends the files of --broadcast. The lowest rank of each other host writes
 * them below options->output as an atomic replacement, and builds the programs if rank 0's are not for its processor.
 * No host writes anything unless all have received everything. *first: this is rank 0, and *result is set.
 *
 * 0; the exit code of the first rank that failed, whose diagnostics are printed already; or -1 after diagnostics. */
int broadcast_compile(struct cli *cli, struct driver_result *result, bool *first);

#endif
