#include "tests/faults/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct fault armed;
static long points;
static bool was_hit;
static long live_blocks;

void faults_arm(const struct fault *fault) {
    points = 0;
    was_hit = false;
    armed = *fault;
}

long faults_disarm(bool *hit) {
    armed = (struct fault){FAULT_NONE};
    *hit = was_hit;
    return points;
}

long faults_live_blocks(void) {
    return live_blocks;
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void __libc_free(void *block);

static bool memory_fails(void) {
    if (armed.kind != FAULT_MEMORY && armed.kind != FAULT_NO_MEMORY) return false;
    points++;
    bool fails = points == armed.at || (points > armed.at && armed.kind == FAULT_NO_MEMORY);
    if (fails) was_hit = true, errno = ENOMEM;
    return fails;
}

static void *counted(void *block) {
    if (block) live_blocks++;
    return block;
}

void *malloc(size_t bytes) {
    return memory_fails() ? NULL : counted(__libc_malloc(bytes));
}
void *calloc(size_t count, size_t bytes) {
    return memory_fails() ? NULL : counted(__libc_calloc(count, bytes));
}
void *realloc(void *block, size_t bytes) {
    if (memory_fails()) return NULL;
    void *moved = __libc_realloc(block, bytes);
    if (!block && moved) live_blocks++;
    return moved;
}
void free(void *block) {
    if (block) live_blocks--;
    __libc_free(block);
}

/* System calls ----------------------------------------------------------------------------------------------------- */

/* Whether the call that is about to be made shall fail; *bytes: what it may move at most, NULL if it moves none. */
static bool call_fails(size_t *bytes) {
    if (armed.kind < FAULT_ERROR || ++points != armed.at) return false;
    was_hit = true;
    if (armed.kind == FAULT_KILL) kill(getpid(), SIGKILL);
    if (armed.kind == FAULT_SHORT && bytes && *bytes > 1) *bytes = 1;
    errno = armed.error;
    return armed.kind == FAULT_ERROR;
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    return call_fails(NULL) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    return call_fails(NULL) ? -1 : (int)syscall(SYS_openat, directory, path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    return call_fails(&count) ? -1 : syscall(SYS_write, fd, bytes, count);
}
ssize_t read(int fd, void *bytes, size_t count) {
    return call_fails(&count) ? -1 : syscall(SYS_read, fd, bytes, count);
}
ssize_t pread(int fd, void *bytes, size_t count, off_t offset) {
    return call_fails(&count) ? -1 : syscall(SYS_pread64, fd, bytes, count, offset);
}
int fsync(int fd) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_fsync, fd);
}

/* A close that fails has closed. */
int close(int fd) {
    bool fails = call_fails(NULL);
    int error = errno, status = (int)syscall(SYS_close, fd);
    if (!fails) return status;
    errno = error;
    return -1;
}

void *mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset) {
    return call_fails(NULL) ? MAP_FAILED : (void *)syscall(SYS_mmap, at, bytes, access, flags, fd, offset);
}

int rename(const char *from, const char *to) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
    if (call_fails(NULL)) return -1;
    if (armed.no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
}
int mkdir(const char *path, mode_t mode) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_mkdir, path, mode);
}
int unlink(const char *path) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_unlink, path);
}
int unlinkat(int directory, const char *path, int flags) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_unlinkat, directory, path, flags);
}
int remove(const char *path) {
    if (call_fails(NULL)) return -1;
    int status = (int)syscall(SYS_unlink, path);
    return status < 0 && errno == EISDIR ? (int)syscall(SYS_rmdir, path) : status;
}
int flock(int fd, int operation) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_flock, fd, operation);
}
int stat(const char *path, struct stat *status) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}
int lstat(const char *path, struct stat *status) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
int fstat(int fd, struct stat *status) {
    return call_fails(NULL) ? -1 : (int)syscall(SYS_fstat, fd, status);
}
