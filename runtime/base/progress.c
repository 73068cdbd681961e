#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

bool rt_progress_is_shown(void) {
    const char *terminal = getenv("TERM");
    return getenv(RT_PROGRESS_VARIABLE) || (terminal && strcmp(terminal, "dumb") != 0 && isatty(STDERR_FILENO));
}

void rt_progress_begin(struct rt_progress *progress, int64_t done, bool off) {
    const char *delay = getenv(RT_PROGRESS_VARIABLE);
    *progress = (struct rt_progress){.start = now(),
                                     .delay = delay ? strtod(delay, NULL) : RT_PROGRESS_DELAY,
                                     .first = done,
                                     .off = off || !rt_progress_is_shown()};
}

/* With one call of write(), so that it is one piece in a pipe. */
static void write_line(const char *text) {
    const ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static bool is_due(const struct rt_progress *progress, double at) {
    return !progress->off && at - progress->start >= progress->delay && at - progress->shown >= 100;
}

void rt_progress_say(struct rt_progress *progress, const char *what, double left, const char *more) {
    const double at = now();
    if (!is_due(progress, at)) return;
    const int64_t seconds = (int64_t)(left + 0.5);
    char text[512], time[64] = "";
    if (left >= 0)
        snprintf(time, sizeof time, ", %lld:%02lld:%02lld left", (long long)(seconds / 3600),
                 (long long)(seconds / 60 % 60), (long long)(seconds % 60));
    snprintf(text, sizeof text, RT_PROGRESS_BEGIN "%.200s%s%.200s" RT_PROGRESS_END, what, time, more);
    fflush(stderr);
    write_line(text);
    progress->shown = at;
    progress->drawn = true;
}

void rt_progress_show(struct rt_progress *progress, const char *what, int64_t done, int64_t all, const char *more) {
    if (done <= progress->first) return;
    const double per_one = (now() - progress->start) / (double)(done - progress->first);
    char text[80];
    snprintf(text, sizeof text, "%s %lld of %lld", what, (long long)done, (long long)all);
    rt_progress_say(progress, text, per_one * (double)(all - done) / 1000, more);
}

void rt_progress_end(struct rt_progress *progress) {
    if (progress->drawn) write_line(RT_PROGRESS_BEGIN RT_PROGRESS_END);
    progress->drawn = false;
}
