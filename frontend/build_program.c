#include "frontend/build_program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/base/str.h"

extern char **environ;

enum { QUOTED_LINES = 5, KEPT_BYTES = 64 << 10 };

/* Headers and library of the runtime, relative to the directory of the rankc executable. */
static const struct {
    const char *include, *library;
} places[] = {{"include", "../runtime/librankc-rt.a"}, /* build tree */
              {"../include", "../" RANKC_LIBDIR "/librankc-rt.a"}};

static bool exists(const char *path) {
    return access(path, R_OK) == 0;
}

/* "RANKC_CFLAGS=..." and "RANKC_LIBS=..." for make's command line; NULLs where no runtime is beside the executable.
 */
static void find_runtime(struct arena *arena, const char **cflags, const char **libs) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    *cflags = *libs = NULL;
    if (length <= 0) return;
    self[length] = 0;
    *strrchr(self, '/') = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *include = arena_printf(arena, "%s/%s", self, places[i].include);
        const char *library = arena_printf(arena, "%s/%s", self, places[i].library);
        if (!exists(arena_printf(arena, "%s/rankc/rt.h", include)) || !exists(library)) continue;
        *cflags = arena_printf(arena, "RANKC_CFLAGS=-I'%s' %s", include, RANKC_RT_CFLAGS);
        *libs = arena_printf(arena, "RANKC_LIBS='%s' %s", library, RANKC_RT_LIBS);
        return;
    }
}

/* What the child says, up to KEPT_BYTES; more is read and dropped, so that it does not block. */
static void collect(int fd, struct strbuf *said) {
    char bytes[4096];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && said->length < KEPT_BYTES) strbuf_add(said, bytes, (size_t)n);
}

static void quote_lines(struct diags *diags, const char *text) {
    for (int i = 0; i < QUOTED_LINES && *text; i++) {
        size_t length = strcspn(text, "\n");
        diag_note(diags, "%s", str_escape(diags->arena, text, length, 300));
        text += length + (text[length] == '\n');
    }
}

static int report(struct diags *diags, const char *directory, int status, const struct strbuf *said) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    if (WIFSIGNALED(status))
        diag_error(diags, 621, EXIT_SYSTEM, NULL, "make in %s was killed by signal %d",
                   diag_quote(diags, directory), WTERMSIG(status));
    else
        diag_error(diags, 621, EXIT_SYSTEM, NULL, "make in %s failed with status %d", diag_quote(diags, directory),
                   WEXITSTATUS(status));
    quote_lines(diags, strbuf_text(said));
    return -1;
}

static int spawn(char *const *argv, int out, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, out, 2);
    int status = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

int build_program(struct arena *arena, struct diags *diags, const char *directory) {
    const char *cflags, *libs;
    find_runtime(arena, &cflags, &libs);
    const char *jobs = arena_printf(arena, "-j%ld", sysconf(_SC_NPROCESSORS_ONLN));
    const char *argv[] = {"make", "-s", jobs, "-C", directory, "all", cflags, libs, NULL};
    struct strbuf said;
    int fds[2], status;
    pid_t pid;
    strbuf_init(&said, arena);
    if (pipe2(fds, O_CLOEXEC) < 0) return diag_error(diags, 601, EXIT_SYSTEM, NULL, "pipe: %s", strerror(errno));
    int failed = spawn((char *const *)argv, fds[1], &pid);
    close(fds[1]);
    if (failed) {
        close(fds[0]);
        return diag_error(diags, 621, EXIT_SYSTEM, NULL, "cannot run make: %s", strerror(failed));
    }
    collect(fds[0], &said);
    close(fds[0]);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return diag_error(diags, 601, EXIT_SYSTEM, NULL, "waitpid: %s", strerror(errno));
    return report(diags, directory, status, &said);
}
