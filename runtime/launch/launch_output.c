/* Forwards the output of ranks. */
#include "launch/launch_private.h"

#include "base/io/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX_BYTES 16
/* per call: as much as a pipe holds, so that a rank that prints without end does not block the launcher */
#define MOST_READS 16

int relay_open(struct relay *relay, int ends[2], bool json) {
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK); /* only the launcher's end: the rank's writes block */
    relay->fd = ends[0];
    relay->json = json;
    return 0;
}

/* The descriptors that dup2() makes stay open across exec. */
void relay_become(const struct launch *job, int rank, int end) {
    if (job->what->no_results) dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    if (job->what->ranks == 1) return;
    if (rank > 0) dup2(end, STDOUT_FILENO);
    dup2(end, STDERR_FILENO);
}

static void write_all(const char *text, size_t count) {
    while (count > 0) {
        const ssize_t done = write(STDERR_FILENO, text, count);
        if (done < 0 && errno != EINTR) return; /* a closed stderr must not end the job */
        if (done > 0) text += done, count -= (size_t)done;
    }
}

void relay_clear(bool *drawn) {
    if (!drawn || !*drawn) return;
    write_all(RT_PROGRESS_BEGIN RT_PROGRESS_END, strlen(RT_PROGRESS_BEGIN RT_PROGRESS_END));
    *drawn = false;
}

static bool begins(const struct relay *relay, const char *text) {
    return relay->used >= strlen(text) && memcmp(relay->line, text, strlen(text)) == 0;
}

/* True for "rankc: error[E0382]: ..." and the indented lines after it, or the JSON form. */
static bool is_diagnostic(const struct relay *relay) {
    if (relay->json) return begins(relay, "{\"format\": 1, \"severity\": ");
    return begins(relay, "rankc: ") || (relay->diagnostic && begins(relay, "  "));
}

static bool has_code(const struct relay *relay, const char *code) {
    char text[32];
    snprintf(text, sizeof text, relay->json ? "\"code\": \"%s\"" : "error[%s]", code);
    return memmem(relay->line, relay->used, text, strlen(text)) != NULL;
}

/* True for the first line of a diagnostic that is an error of the program: not that another rank failed, or hangs. */
static bool is_error(const struct relay *relay) {
    const char *start = relay->json ? "{\"format\": 1, \"severity\": \"error\"" : "rankc: error";
    return begins(relay, start) && !has_code(relay, "E0911") && !has_code(relay, "E0912");
}

/* Forwards a line with one write, so that lines of different ranks do not mix. */
static void pass_on(struct relay *relay, int rank, bool line_ends) {
    char text[PREFIX_BYTES + LINE_BYTES];
    size_t used = 0;
    relay_clear(relay->drawn);
    if (!relay->continues) {
        relay->diagnostic = is_diagnostic(relay);
        relay->error = relay->error || is_error(relay);
        if (!relay->diagnostic && rank != RELAY_ALL) used = (size_t)snprintf(text, PREFIX_BYTES, "[%d] ", rank);
    }
    memcpy(text + used, relay->line, relay->used);
    write_all(text, used + relay->used);
    relay->used = 0;
    relay->continues = !line_ends;
}

/* True if the line so far is a complete line of progress. */
static bool is_progress(const struct relay *relay) {
    const size_t end = strlen(RT_PROGRESS_END);
    return relay->drawn && !relay->continues && begins(relay, RT_PROGRESS_BEGIN) && relay->used > end &&
           memcmp(relay->line + relay->used - end, RT_PROGRESS_END, end) == 0;
}

static void pass_progress(struct relay *relay) {
    *relay->drawn = relay->used > strlen(RT_PROGRESS_BEGIN RT_PROGRESS_END);
    write_all(relay->line, relay->used);
    relay->used = 0;
}

static void take(struct relay *relay, int rank, const char *text, size_t count) {
    for (size_t i = 0; i < count; i++) {
        relay->line[relay->used++] = text[i];
        if (is_progress(relay))
            pass_progress(relay);
        else if (text[i] == '\n' || relay->used == LINE_BYTES - 1)
            pass_on(relay, rank, text[i] == '\n');
    }
}

void relay_read(struct relay *relay, int rank) {
    char text[LINE_BYTES];
    for (int reads = 0; relay->fd >= 0 && reads < MOST_READS; reads++) {
        const ssize_t count = read(relay->fd, text, sizeof text);
        if (count > 0) {
            take(relay, rank, text, (size_t)count);
        } else if (count == 0) {
            close(relay->fd);
            relay->fd = -1;
        } else if (errno != EINTR) {
            return;
        }
    }
}

/* Reads until the pipe is empty rather than to its end: a process that the rank left behind may hold the other end
 * open. */
void relay_close(struct relay *relay, int rank) {
    relay_read(relay, rank);
    if (relay->used > 0 || relay->continues) {
        relay->line[relay->used++] = '\n';
        pass_on(relay, rank, true);
    }
    if (relay->fd >= 0) close(relay->fd);
    relay->fd = -1;
}
