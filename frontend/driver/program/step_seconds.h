/* Timing compiled programs on this machine. */
#ifndef FRONTEND_DRIVER_STEP_SECONDS_H
#define FRONTEND_DRIVER_STEP_SECONDS_H

#include "frontend/driver/program/subprocess.h"

/* Runs a command, `rankc run` or `rankc train` with --json, whose words end with NULL: the median of a step's seconds
 * according to the line of JSON that it prints; negative if it failed or printed none. *said: all that it printed, in
 * `arena`. Steps are timed in microseconds: at least one. `watch` may be NULL. */
double step_seconds(const char *const *words, const struct subprocess_watch *watch, struct arena *arena,
                    const char **said);

#endif
