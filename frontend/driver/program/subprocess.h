/* Running other programs, without a shell. */
#ifndef FRONTEND_DRIVER_SUBPROCESS_H
#define FRONTEND_DRIVER_SUBPROCESS_H

#include "ir/base/str.h"

/* What is called about ten times a second while a program runs. */
struct subprocess_watch {
    void (*look)(void *of);
    void *of;
};

/* Runs argv[0], looked up in PATH, and waits for its end. It gets SIGTERM when this process ends before it. Its
 * standard input is empty; `hidden` lists environment variables that it does not get (ends with NULL; NULL: none). The
 * first 64 KiB of its standard output and error are appended to `said`; *status is that of waitpid. `watch` may be
 * NULL. Returns 0, or an errno if it could not be run. */
int subprocess_run(const char *const *argv, const char *const *hidden, const struct subprocess_watch *watch,
                   struct strbuf *said, int *status);

#endif
