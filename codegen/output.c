#include "codegen/output.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRIES_PER_SECOND = 20, MAX_OPEN = 16 };

static int fail(struct output *output, const char *what, const char *path) {
    int reason = errno;
    return diag_error(output->diags, 611, EXIT_SYSTEM, NULL, "cannot %s %s: %s", what,
                      diag_quote(output->diags, path), strerror(reason));
}

static int make_directory(struct output *output, const char *path) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return 0;
    if (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return 0;
    if (errno == EEXIST) errno = ENOTDIR;
    return fail(output, "make directory", path);
}

/* The directory and all above it. */
static int make_directories(struct output *output, const char *path) {
    char *copy = arena_strdup(output->arena, path);
    for (char *c = copy + 1; *c; c++) {
        if (*c != '/') continue;
        *c = 0;
        if (make_directory(output, copy) < 0) return -1;
        *c = '/';
    }
    return make_directory(output, copy);
}

static int take_lock(struct output *output, const char *path, long timeout) {
    const struct timespec pause = {.tv_nsec = 1000000000 / TRIES_PER_SECOND};
    output->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (output->lock < 0) return fail(output, "open lock", path);
    for (long tries = 0; flock(output->lock, LOCK_EX | LOCK_NB); tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR) return fail(output, "lock", path);
        if (tries >= timeout * TRIES_PER_SECOND) {
            diag_error(output->diags, 701, EXIT_BUSY, NULL, "%s is locked by another rankc",
                       diag_quote(output->diags, path));
            diag_help(output->diags, "waited %ld s (--lock-timeout)", timeout);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return 0;
}

int output_open(struct output *output, struct arena *arena, struct diags *diags, const char *root,
                const char *model, const char *instance, long timeout) {
    *output = (struct output){.arena = arena, .diags = diags, .lock = -1};
    const char *parent = arena_printf(arena, "%s/%s", root, model);
    output->directory = arena_printf(arena, "%s/%s", parent, instance);
    output->staging = arena_printf(arena, "%s/.%s.new", parent, instance);
    if (make_directories(output, parent) < 0) return -1;
    return take_lock(output, arena_printf(arena, "%s/.lock-%s-%s", root, model, instance), timeout);
}

/* Removal ---------------------------------------------------------------------------------------------------------
 */

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at) {
    (void)info, (void)type, (void)at;
    return remove(path);
}

/* Links are removed, not followed. Something that is not there is removed already. */
static int remove_tree(struct output *output, const char *path) {
    struct stat info;
    if (lstat(path, &info) < 0) return errno == ENOENT ? 0 : fail(output, "look at", path);
    if (nftw(path, remove_entry, MAX_OPEN, FTW_DEPTH | FTW_PHYS) != 0) return fail(output, "remove", path);
    return 0;
}

/* Writing ---------------------------------------------------------------------------------------------------------
 */

int output_begin(struct output *output) {
    if (remove_tree(output, output->staging) < 0) return -1;
    if (mkdir(output->staging, 0777) < 0) return fail(output, "make directory", output->staging);
    return 0;
}

static int write_all(int fd, const char *bytes, size_t count) {
    while (count) {
        ssize_t n = write(fd, bytes, count);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        bytes += n;
        count -= (size_t)n;
    }
    return 0;
}

static int write_file(struct output *output, const char *path, const void *bytes, size_t count) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return fail(output, "create", path);
    bool written = write_all(fd, bytes, count) == 0 && fsync(fd) == 0;
    int reason = errno;
    if (close(fd) < 0 && written) reason = errno, written = false;
    errno = reason;
    return written ? 0 : fail(output, "write", path);
}

int output_write(struct output *output, const char *path, const void *bytes, size_t count) {
    char *full = arena_printf(output->arena, "%s/%s", output->staging, path);
    for (char *c = full + strlen(output->staging) + 1; *c; c++) {
        if (*c != '/') continue;
        *c = 0;
        if (make_directory(output, full) < 0) return -1;
        *c = '/';
    }
    return write_file(output, full, bytes, count);
}

int output_replace(struct output *output, const char *path, const void *bytes, size_t count) {
    const char *full = arena_printf(output->arena, "%s/%s", output->directory, path);
    const char *fresh = arena_printf(output->arena, "%s.new", full);
    unlink(fresh);
    if (write_file(output, fresh, bytes, count) < 0) return -1;
    return rename(fresh, full) < 0 ? fail(output, "write", full) : 0;
}

static int sync_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int status = fsync(fd);
    close(fd);
    return status;
}

/* The exchange puts the old result where the new one was staged; where the file system cannot exchange, two
 * renames. */
int output_commit(struct output *output) {
    struct stat info;
    bool exists = lstat(output->directory, &info) == 0;
    sync_directory(output->staging);
    if (exists && !S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        return fail(output, "replace", output->directory);
    }
    if (!exists)
        return rename(output->staging, output->directory) < 0 ? fail(output, "create", output->directory) : 0;
    if (renameat2(AT_FDCWD, output->staging, AT_FDCWD, output->directory, RENAME_EXCHANGE) == 0)
        return remove_tree(output, output->staging);
    const char *old = arena_printf(output->arena, "%s.old", output->staging);
    if (remove_tree(output, old) < 0) return -1;
    if (rename(output->directory, old) < 0) return fail(output, "replace", output->directory);
    if (rename(output->staging, output->directory) < 0) {
        int reason = errno;
        rename(old, output->directory);
        errno = reason;
        return fail(output, "create", output->directory);
    }
    return remove_tree(output, old);
}

void output_close(struct output *output) {
    if (output->lock >= 0) close(output->lock);
    output->lock = -1;
}
