/* Starting the ranks of a compiled program on this machine: run, train and generate. */
#ifndef FRONTEND_CLI_START_H
#define FRONTEND_CLI_START_H

#include "frontend/cli/compiled_model.h"

/* Starts all ranks with what the options of the verb say, and waits for their end; warns of edits that are not in the
 * program. An exit code, or -1 after a diagnostic.
 *
 * more: further arguments of the program. NULL: the verb has nothing to do afterwards, and where one process runs all
 * ranks, or mpirun starts them, that takes the place of this process. */
int start_program(const struct compiled_model *compiled, const struct option_texts *more, struct cli *cli);

#endif
