/* A line on stderr that says how far something long has come: nothing unless stderr is a terminal, and nothing in the
 * first second. The line is overwritten in place, at most ten times a second, without colours. */
#ifndef RT_BASE_PROGRESS_H
#define RT_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct rt_progress {
    double start, shown; /* ms of the monotonic clock */
    int64_t first;       /* what was done at the start */
    bool off, drawn;
};

/* Begins with `done` of the work done. `off`: nothing is shown (-q, --json). */
void rt_progress_begin(struct rt_progress *progress, int64_t done, bool off);
/* Shows "<what> <done> of <all>, <time left> left<more>" if it is time to. `more` may be "". */
void rt_progress_show(struct rt_progress *progress, const char *what, int64_t done, int64_t all, const char *more);
/* Shows "<what>, <time left> left<more>" if it is time to. `left`: seconds; negative if it is not known. */
void rt_progress_say(struct rt_progress *progress, const char *what, double left, const char *more);
/* Removes the line. Call it before anything else is written to the terminal. */
void rt_progress_end(struct rt_progress *progress);

#endif
