/* The log of a training run, --log: a JSON line per step. */
#ifndef RT_PROGRAM_MAIN_LOG_H
#define RT_PROGRAM_MAIN_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Opens the log. step >= 0: the run continues the log after that step; lines of later steps, which it computes again,
 * are removed, and what follows them, and a last line that was not written to its end. step < 0: the log is new.
 * *evaluated: the log has an evaluation after that step. NULL with errno if it cannot be opened or shortened. */
FILE *log_open(const char *path, int64_t step, bool *evaluated);

#endif
