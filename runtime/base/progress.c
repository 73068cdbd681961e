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

void rt_progress_show(struct rt_progress *progress, const char *what, int64_t done, int64_t all, const char *more) {
    const double at = now();
    if (progress->off || done <= progress->first || at - progress->start < 1000 || at - progress->shown < 100) return;
    const double per_one = (at - progress->start) / (double)(done - progress->first);
    const int64_t left = (int64_t)(per_one * (double)(all - done) / 1000 + 0.5);
    fprintf(stderr, "\r%s %lld of %lld, %lld:%02lld:%02lld left%s\033[K", what, (long long)done, (long long)all,
            (long long)(left / 3600), (long long)(left / 60 % 60), (long long)(left % 60), more);
    fflush(stderr);
    progress->shown = at;
    progress->drawn = true;
}

void rt_progress_end(struct rt_progress *progress) {
    if (progress->drawn) fputs("\r\033[K", stderr), fflush(stderr);
    progress->drawn = false;
}
