/* Preloaded: the process dies at its KILL_AT-th call that changes files below KILL_BELOW. */
#define _GNU_SOURCE 1
#undef _FILE_OFFSET_BITS /* open and open64 are two functions here */

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void count(const char *path) {
    static atomic_int calls;
    const char *at = getenv("KILL_AT"), *below = getenv("KILL_BELOW");
    if (at && below && strstr(path, below) && atomic_fetch_add(&calls, 1) + 1 == atoi(at)) raise(SIGKILL);
}

static void count_fd(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    count(path);
}

#define REAL(name, type) ((type)(void *)dlsym(RTLD_NEXT, name))

static int open_counted(const char *name, const char *path, int flags, int mode) {
    if (flags & O_CREAT) count(path);
    return REAL(name, int (*)(const char *, int, ...))(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = va_arg(arguments, int);
    va_end(arguments);
    return open_counted("open", path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = va_arg(arguments, int);
    va_end(arguments);
    return open_counted("open64", path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t n) {
    count_fd(fd);
    return REAL("write", ssize_t(*)(int, const void *, size_t))(fd, bytes, n);
}

int fsync(int fd) {
    count_fd(fd);
    return REAL("fsync", int (*)(int))(fd);
}

int mkdir(const char *path, mode_t mode) {
    count(path);
    return REAL("mkdir", int (*)(const char *, mode_t))(path, mode);
}

int rename(const char *from, const char *to) {
    count(from);
    return REAL("rename", int (*)(const char *, const char *))(from, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    count(from);
    return REAL("renameat2", int (*)(int, const char *, int, const char *, unsigned))(from_fd, from, to_fd, to,
                                                                                      flags);
}

int unlink(const char *path) {
    count(path);
    return REAL("unlink", int (*)(const char *))(path);
}

int rmdir(const char *path) {
    count(path);
    return REAL("rmdir", int (*)(const char *))(path);
}
