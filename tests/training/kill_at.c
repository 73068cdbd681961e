/* Preloaded: at the KILL_AT-th call that changes files below KILL_BELOW, the process gets KILL_SIGNAL, SIGKILL if there
 * is none. With KILL_ERRNO that call, and each after it that would put something on the disk, fails with this error
 * instead, as on a disk that is full; calls that remove something work then, and are not counted. With KILL_NO_EXCHANGE
 * names cannot be exchanged, as on file systems without that. */
#define _GNU_SOURCE 1
#undef _FILE_OFFSET_BITS /* open and open64 are two functions here */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum change { PUTS, REMOVES };

/* True if the call is to fail, with errno. */
static bool strikes(enum change change, const char *path) {
    static atomic_int calls;
    const char *at = getenv("KILL_AT"), *below = getenv("KILL_BELOW"), *error = getenv("KILL_ERRNO"),
               *with = getenv("KILL_SIGNAL");
    if (!at || !below || !strstr(path, below) || (error && change == REMOVES)) return false;
    const int number = atomic_fetch_add(&calls, 1) + 1;
    if (!error && number == atoi(at)) raise(with ? atoi(with) : SIGKILL);
    if (!error || number < atoi(at)) return false;
    errno = atoi(error);
    return true;
}

/* The same of "name" in a directory, or of the open file where there is none. */
static bool strikes_at(enum change change, int fd, const char *name) {
    char link[64], path[4096];
    if (name && (fd == AT_FDCWD || *name == '/')) return strikes(change, name);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path / 2);
    if (length < 0) return false;
    snprintf(path + length, sizeof path - (size_t)length, "%s%s", name ? "/" : "", name ? name : "");
    return strikes(change, path);
}

#define REAL(name, type) ((type)(void *)dlsym(RTLD_NEXT, name))

static int open_counted(const char *name, int fd, const char *path, int flags, int mode) {
    if ((flags & O_CREAT) && strikes_at(PUTS, fd, path)) return -1;
    return REAL(name, int (*)(int, const char *, int, ...))(fd, path, flags, mode);
}

#define MODE(flags)                                                                                                    \
    va_list arguments;                                                                                                 \
    va_start(arguments, flags);                                                                                        \
    const int mode = va_arg(arguments, int);                                                                           \
    va_end(arguments)

int open(const char *path, int flags, ...) {
    MODE(flags);
    return open_counted("openat", AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags);
    return open_counted("openat64", AT_FDCWD, path, flags, mode);
}

int openat(int fd, const char *path, int flags, ...) {
    MODE(flags);
    return open_counted("openat", fd, path, flags, mode);
}

int openat64(int fd, const char *path, int flags, ...) {
    MODE(flags);
    return open_counted("openat64", fd, path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t n) {
    if (strikes_at(PUTS, fd, NULL)) return -1;
    return REAL("write", ssize_t(*)(int, const void *, size_t))(fd, bytes, n);
}

int fsync(int fd) {
    if (strikes_at(PUTS, fd, NULL)) return -1;
    return REAL("fsync", int (*)(int))(fd);
}

int mkdir(const char *path, mode_t mode) {
    if (strikes(PUTS, path)) return -1;
    return REAL("mkdir", int (*)(const char *, mode_t))(path, mode);
}

int mkdirat(int fd, const char *path, mode_t mode) {
    if (strikes_at(PUTS, fd, path)) return -1;
    return REAL("mkdirat", int (*)(int, const char *, mode_t))(fd, path, mode);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    if (strikes_at(PUTS, from_fd, from)) return -1;
    if (flags && getenv("KILL_NO_EXCHANGE")) {
        errno = EINVAL;
        return -1;
    }
    return REAL("renameat2", int (*)(int, const char *, int, const char *, unsigned))(from_fd, from, to_fd, to, flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    if (strikes_at(PUTS, from_fd, from)) return -1;
    return REAL("renameat", int (*)(int, const char *, int, const char *))(from_fd, from, to_fd, to);
}

int rename(const char *from, const char *to) {
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int fd, const char *path, int flags) {
    if (strikes_at(REMOVES, fd, path)) return -1;
    return REAL("unlinkat", int (*)(int, const char *, int))(fd, path, flags);
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
