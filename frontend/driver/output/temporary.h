/* Temporary directories. */
#ifndef FRONTEND_DRIVER_TEMPORARY_H
#define FRONTEND_DRIVER_TEMPORARY_H

#include "ir/base/diag.h"

/* Creates $TMPDIR/rankc-<what>-XXXXXX (/tmp if the variable is not set) and returns its path; NULL after a
 * diagnostic. */
const char *temporary_make(const char *what, struct arena *arena, struct diags *diags);
/* Removes the file or the directory with its contents; symbolic links are not followed. 0, or -1 with errno. */
int temporary_remove(const char *path);

#endif
