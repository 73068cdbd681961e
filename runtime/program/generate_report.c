/* Rank 0's connection to `rankc generate`. */
#include "program/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct report {
    FILE *out, *in;
};

static int refuse(struct failure *failure, const char *path, int error) {
    return failure_set(failure, EXIT_SYSTEM, RT_CODE_WRITE, "cannot connect to --report '%s': %s",
                       rt_quote_text(path).text, strerror(error));
}

/* A connected socket; -1 with errno. */
static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return errno = ENAMETOOLONG, -1;
    memcpy(address.sun_path, path, strlen(path));
    const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 || connect(descriptor, (const struct sockaddr *)&address, sizeof address) == 0)
        return descriptor;
    const int error = errno;
    close(descriptor);
    return errno = error, -1;
}

int report_open(struct report **out, const char *path, struct failure *failure) {
    const int descriptor = connect_to(path);
    if (descriptor < 0) return refuse(failure, path, errno);
    struct report *report = *out = calloc(1, sizeof *report);
    const int again = report ? dup(descriptor) : -1;
    if (report) report->out = fdopen(descriptor, "w");
    if (again >= 0) report->in = fdopen(again, "r");
    if (report && report->out && report->in) return EXIT_OK;
    return failure_set(failure, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

/* The answer: a number for each row. */
static bool read_answer(struct report *report, int64_t rows, bool *ends) {
    for (int64_t i = 0; i < rows; i++) {
        int end;
        if (fscanf(report->in, "%d", &end) != 1) return false;
        ends[i] = end != 0;
    }
    return true;
}

int report_step(struct report *report, int64_t rows, const int64_t *ids, bool asks, bool *ends,
                struct failure *failure) {
    for (int64_t i = 0; i < rows; i++) fprintf(report->out, "%s%" PRId64, i ? " " : "", ids[i] < 0 ? -1 : ids[i]);
    fputc('\n', report->out);
    if (fflush(report->out) == 0 && (!asks || read_answer(report, rows, ends))) return EXIT_OK;
    return failure_set(failure, EXIT_SYSTEM, RT_CODE_WRITE, "the process that started the generation does not answer");
}

void report_close(struct report *report, const struct spent *spent) {
    if (!report) return;
    if (report->out && spent)
        fprintf(report->out, "done %" PRId64 " %.6f %" PRId64 " %.6f\n", spent->prompt_tokens, spent->prompt_ms,
                spent->tokens, spent->ms);
    if (report->out) fclose(report->out);
    if (report->in) fclose(report->in);
    free(report);
}
