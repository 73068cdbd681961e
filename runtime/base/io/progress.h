/* A line on stderr that says how far something long has come: nothing unless stderr is a terminal, and nothing in the
 * first second. The line is overwritten in place, at most ten times a second, without colours.
 *
 * The variable RT_PROGRESS_VARIABLE has the milliseconds after which the line is shown, also where stderr is no
 * terminal. A rank of several writes to a pipe of the launcher, which sets it if its own stderr is a terminal, and
 * forwards lines from RT_PROGRESS_BEGIN to RT_PROGRESS_END as they are (launch/launch_output.c). An MPI launcher
 * forwards all bytes: its ranks find out whether it does so to a terminal. */
#ifndef RT_BASE_PROGRESS_H
#define RT_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define RT_PROGRESS_VARIABLE "RANKC_PROGRESS"
#define RT_PROGRESS_BEGIN    "\r"
#define RT_PROGRESS_END      "\033[K"

struct rt_progress {
    double start, shown; /* ms of the monotonic clock */
    double delay;        /* ms before the line is shown */
    int64_t first;       /* what was done at the start */
    bool off, drawn;
};

/* Begins with `done` of the work done. `off`: nothing is shown (-q, --json). */
void rt_progress_begin(struct rt_progress *progress, int64_t done, bool off);
/* Shows "<what> <done> of <all>, <time left> left<more>" if it is time to. `more` may be "". */
void rt_progress_show(struct rt_progress *progress, const char *what, int64_t done, int64_t all, const char *more);
/* Shows "<what>, <time left> left<more>" if it is time to. `left`: seconds; negative if it is not known. */
void rt_progress_say(struct rt_progress *progress, const char *what, double left, const char *more);
#define RT_PROGRESS_DELAY 1000

/* True if such a line is shown: RT_PROGRESS_VARIABLE is set, or stderr is a terminal that can show it. */
bool rt_progress_is_shown(void);
/* Sets RT_PROGRESS_VARIABLE, unless it is set, for processes whose stderr is forwarded to that of this one. */
void rt_progress_pass_on(void);
/* In a rank of an MPI launcher: does that if stderr of the launcher, on this host, is a terminal. */
void rt_progress_find_launcher(void);
/* Removes a line that another process may have drawn. */
void rt_progress_clear(void);
/* Removes the line. Call it before anything else is written to the terminal. */
void rt_progress_end(struct rt_progress *progress);

#endif
