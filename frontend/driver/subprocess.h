/* Other programs, started without a shell. */
#ifndef FRONTEND_DRIVER_SUBPROCESS_H
#define FRONTEND_DRIVER_SUBPROCESS_H

#include "ir/base/str.h"

/* Runs argv[0] (looked up in PATH) to its end, with nothing to read, and without the variables `hidden` of the
 * environment (ends with NULL; NULL: with all). What it prints on both streams, the first 64 KiB, is appended to
 * `said`; *status is waitpid's. 0, or the errno of what could not be done. */
int subprocess_run(const char *const *argv, const char *const *hidden, struct strbuf *said, int *status);

#endif
