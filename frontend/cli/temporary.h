/* Temporary directories. */
#ifndef FRONTEND_CLI_TEMPORARY_H
#define FRONTEND_CLI_TEMPORARY_H

#include "frontend/cli/cli.h"

/* Creates $TMPDIR/rankc-<what>-XXXXXX (/tmp if the variable is not set) and returns its path; NULL after a
 * diagnostic. */
const char *temporary_make(struct cli *cli, const char *what);
/* Removes the directory and its contents; symbolic links are not followed. */
void temporary_remove(const char *path);

#endif
