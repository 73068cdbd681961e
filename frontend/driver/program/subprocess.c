#include "frontend/driver/program/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/exit_code.h"

extern char **environ;

enum { KEPT_BYTES = 64 << 10, LOOK_MS = 100 };

/* Reads the child's output to its end. What exceeds the limit is dropped, but read, so that the child does not
 * block. */
static void collect(int fd, const struct subprocess_watch *watch, struct strbuf *said) {
    char bytes[4096];
    ssize_t n;
    do {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        while (watch && poll(&readable, 1, LOOK_MS) == 0) watch->look(watch->of);
        n = read(fd, bytes, sizeof bytes);
        if (n > 0 && said->length < KEPT_BYTES) strbuf_add(said, bytes, (size_t)n);
    } while (n > 0 || (n < 0 && errno == EINTR));
}

static bool is_hidden(const char *entry, const char *const *hidden) {
    for (; hidden && *hidden; hidden++) {
        size_t length = strlen(*hidden);
        if (strncmp(entry, *hidden, length) == 0 && entry[length] == '=') return true;
    }
    return false;
}

/* The environment without the hidden variables. */
static char **child_environment(const char *const *hidden, struct arena *arena) {
    int count = 0, kept = 0;
    while (environ[count]) count++;
    char **entries = ARENA_ARRAY(arena, char *, count + 1);
    for (int i = 0; i < count; i++)
        if (!is_hidden(environ[i], hidden)) entries[kept++] = environ[i];
    return entries;
}

/* Executes the program in the child. The child is terminated when its parent ends; a make that is terminated ends its
 * own children. */
static _Noreturn void become(char *const *argv, char **environment, int out, pid_t parent, int failed) {
    const int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_SYSTEM);
    dup2(none, 0), dup2(out, 1), dup2(out, 2);
    execvpe(argv[0], argv, environment);
    const int error = errno;
    const ssize_t told = write(failed, &error, sizeof error);
    (void)told;
    _exit(EXIT_SYSTEM);
}

static int start(char *const *argv, char **environment, int out, pid_t *pid) {
    const pid_t parent = getpid();
    int failed[2], error = 0;
    if (pipe2(failed, O_CLOEXEC) < 0) return errno;
    *pid = fork();
    if (*pid == 0) become(argv, environment, out, parent, failed[1]);
    if (*pid < 0) error = errno;
    close(failed[1]);
    while (!error && read(failed[0], &error, sizeof error) < 0 && errno == EINTR) continue;
    close(failed[0]);
    if (error && *pid > 0) waitpid(*pid, NULL, 0);
    return error;
}

int subprocess_run(const char *const *argv, const char *const *hidden, const struct subprocess_watch *watch,
                   struct strbuf *said, int *status) {
    int fds[2];
    pid_t pid = 0;
    if (pipe2(fds, O_CLOEXEC) < 0) return errno;
    int error = start((char *const *)argv, child_environment(hidden, said->arena), fds[1], &pid);
    close(fds[1]);
    if (!error) collect(fds[0], watch, said);
    close(fds[0]);
    while (!error && waitpid(pid, status, 0) < 0)
        if (errno != EINTR) error = errno;
    return error;
}
