#include "progress.h"

#include <fcntl.h>
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

static bool is_terminal(int fd) {
    const char *terminal = getenv("TERM");
    return terminal && strcmp(terminal, "dumb") != 0 && isatty(fd);
}

bool rt_progress_is_shown(void) {
    return getenv(RT_PROGRESS_VARIABLE) || is_terminal(STDERR_FILENO);
}

/* Set for all shells and launchers alike, so that one mechanism tells a process what its stderr leads to. */
static void ask_for_lines(void) {
    char delay[24];
    snprintf(delay, sizeof delay, "%d", RT_PROGRESS_DELAY);
    setenv(RT_PROGRESS_VARIABLE, delay, 0);
}

void rt_progress_pass_on(void) {
    if (rt_progress_is_shown()) ask_for_lines();
}

/* The name and the parent of a process; false if there is none. */
static bool read_process(long pid, char name[64], long *parent) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    const bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *first = strchr(line, '('), *last = strrchr(line, ')'); /* a name may contain either */
    if (!read || !first || !last || sscanf(last, ") %*c %ld", parent) != 1) return false;
    snprintf(name, 64, "%.*s", (int)(last - first - 1), first + 1);
    return true;
}

static bool is_launcher(const char *name) {
    static const char *const launchers[] = {"mpirun", "mpiexec", "orterun", "prterun", "prte"};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (strncmp(name, launchers[i], strlen(launchers[i])) == 0) return true;
    return false;
}

/* A launcher connects the stderr of its ranks to pipes. Its own is that of the nearest ancestor with its name: there
 * are proxies and scripts between the two. Ranks on other hosts have no such ancestor. */
void rt_progress_find_launcher(void) {
    enum { ANCESTORS = 8 };
    char name[64] = "", path[64];
    long pid = (long)getppid(), parent = 0;
    for (int i = 0; i < ANCESTORS && pid > 1 && read_process(pid, name, &parent) && !is_launcher(name); i++)
        pid = parent;
    if (!is_launcher(name)) return;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, STDERR_FILENO);
    const int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return;
    if (is_terminal(fd)) ask_for_lines();
    close(fd);
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

void rt_progress_clear(void) {
    if (rt_progress_is_shown()) write_line(RT_PROGRESS_BEGIN RT_PROGRESS_END);
}

void rt_progress_end(struct rt_progress *progress) {
    if (progress->drawn) write_line(RT_PROGRESS_BEGIN RT_PROGRESS_END);
    progress->drawn = false;
}
