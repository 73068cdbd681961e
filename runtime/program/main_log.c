#include "program/main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* True for a complete line that is not of a step after `step`. */
static bool stays(const char *line, size_t bytes, int64_t step) {
    long long of = 0;
    return bytes && line[bytes - 1] == '\n' && (sscanf(line, "{\"step\": %lld", &of) != 1 || of <= step);
}

static bool is_evaluation(const char *line, int64_t step) {
    long long of = 0;
    return sscanf(line, "{\"step\": %lld", &of) == 1 && of == step && strstr(line, "\"eval_loss\"");
}

/* The bytes of the log up to the first line that does not stay. */
static off_t bytes_kept(FILE *log, int64_t step, bool *evaluated) {
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    for (ssize_t bytes; (bytes = getline(&line, &room, log)) > 0 && stays(line, (size_t)bytes, step); kept += bytes)
        *evaluated = *evaluated || is_evaluation(line, step);
    free(line);
    return kept;
}

FILE *log_open(const char *path, int64_t step, bool *evaluated) {
    struct stat about;
    *evaluated = false;
    if (step < 0 || stat(path, &about) || !S_ISREG(about.st_mode)) return fopen(path, step < 0 ? "we" : "ae");
    FILE *log = fopen(path, "r+e");
    if (!log) return NULL;
    const off_t kept = bytes_kept(log, step, evaluated);
    if (!ferror(log) && !ftruncate(fileno(log), kept) && !fseeko(log, kept, SEEK_SET)) return log;
    const int error = errno;
    fclose(log);
    errno = error;
    return NULL;
}
