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

void rt_progress_begin(struct rt_progress *progress, int64_t done, bool off) {
    const char *terminal = getenv("TERM");
    const bool dumb = !terminal || strcmp(terminal, "dumb") == 0;
    *progress = (struct rt_progress){.start = now(), .first = done, .off = off || dumb || !isatty(STDERR_FILENO)};
}

static bool is_due(const struct rt_progress *progress, double at) {
    return !progress->off && at - progress->start >= 1000 && at - progress->shown >= 100;
}

void rt_progress_say(struct rt_progress *progress, const char *what, double left, const char *more) {
    const double at = now();
    if (!is_due(progress, at)) return;
    const int64_t seconds = (int64_t)(left + 0.5);
    fprintf(stderr, "\r%s", what);
    if (left >= 0)
        fprintf(stderr, ", %lld:%02lld:%02lld left", (long long)(seconds / 3600), (long long)(seconds / 60 % 60),
                (long long)(seconds % 60));
    fprintf(stderr, "%s\033[K", more);
    fflush(stderr);
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
    if (progress->drawn) fputs("\r\033[K", stderr), fflush(stderr);
    progress->drawn = false;
}
