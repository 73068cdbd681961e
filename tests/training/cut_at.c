/* Preloaded: the file whose path ends with CUT_FILE is cut to CUT_TO bytes just after the process has asked for its
 * size, or read of it, for the CUT_AT-th time. A program that relies on the size it was told reads what is gone. */
#define _GNU_SOURCE 1
#undef _FILE_OFFSET_BITS /* fstat and fstat64 are two functions here */

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void look(int fd) {
    static atomic_int calls;
    char link[64], path[4096];
    const char *file = getenv("CUT_FILE"), *at = getenv("CUT_AT"), *to = getenv("CUT_TO");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0 || !file || !at || !to || (size_t)length < strlen(file)) return;
    path[length] = 0;
    if (strcmp(path + length - strlen(file), file) != 0) return;
    if (atomic_fetch_add(&calls, 1) + 1 == atoi(at) && truncate(path, atol(to)) != 0) abort();
}

#define REAL(name, type) ((type)(void *)dlsym(RTLD_NEXT, name))

int fstat(int fd, struct stat *status) {
    const int result = REAL("fstat", int (*)(int, struct stat *))(fd, status);
    look(fd);
    return result;
}

int fstat64(int fd, struct stat64 *status) {
    const int result = REAL("fstat64", int (*)(int, struct stat64 *))(fd, status);
    look(fd);
    return result;
}

ssize_t read(int fd, void *bytes, size_t n) {
    const ssize_t result = REAL("read", ssize_t(*)(int, void *, size_t))(fd, bytes, n);
    look(fd);
    return result;
}

ssize_t pread(int fd, void *bytes, size_t n, off_t offset) {
    const ssize_t result = REAL("pread", ssize_t(*)(int, void *, size_t, off_t))(fd, bytes, n, offset);
    look(fd);
    return result;
}

ssize_t pread64(int fd, void *bytes, size_t n, off64_t offset) {
    const ssize_t result = REAL("pread64", ssize_t(*)(int, void *, size_t, off64_t))(fd, bytes, n, offset);
    look(fd);
    return result;
}
