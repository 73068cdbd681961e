/* A directory of our own for a while. */
#ifndef FRONTEND_CLI_TEMPORARY_H
#define FRONTEND_CLI_TEMPORARY_H

#include "frontend/cli/cli.h"

/* Makes $TMPDIR/rankc-<what>-XXXXXX, below /tmp without that variable; NULL with a diagnostic. */
const char *temporary_make(struct cli *cli, const char *what);
/* Removes it with all that is in it; links are not followed. */
void temporary_remove(const char *path);

#endif
