#include "frontend/driver/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/driver/output/temporary.h"
#include "runtime/base/io/file.h"

static int fail(struct output *output, const char *what, const char *path) {
    int reason = errno;
    if (reason == ENOMEM) return diag_error(output->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    return diag_error(output->diags, 611, EXIT_SYSTEM, NULL, "cannot %s %s: %s", what, diag_quote(output->diags, path),
                      strerror(reason));
}

/* Creates the directory and its parents. */
static int make_directories(struct output *output, const char *path) {
    return rt_make_directories(path) ? 0 : fail(output, "create directory", path);
}

/* Removes a file or tree. Symbolic links are removed, not followed. A missing path is no error. */
static int remove_tree(struct output *output, const char *path) {
    struct stat info;
    if (lstat(path, &info) < 0) return errno == ENOENT ? 0 : fail(output, "access", path);
    if (temporary_remove(path) != 0) return fail(output, "remove", path);
    return 0;
}

/* E0613 if `path` exists and is not a directory, or is a link to one. */
static int check_place(struct output *output, const char *path) {
    struct stat info;
    if (lstat(path, &info) < 0) return errno == ENOENT ? 0 : fail(output, "access", path);
    if (S_ISDIR(info.st_mode)) return 0;
    if (S_ISLNK(info.st_mode))
        return diag_error(output->diags, 613, EXIT_SYSTEM, NULL, "%s is a symbolic link, which is not followed",
                          diag_quote(output->diags, path));
    errno = ENOTDIR;
    return fail(output, "use", path);
}

/* Opens the lock file; if it cannot be written, for reading only. */
static int open_lock(struct output *output) {
    const char *path = output->lock_path;
    output->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (output->lock >= 0) return 0;
    if (errno == ELOOP)
        return diag_error(output->diags, 613, EXIT_SYSTEM, NULL, "%s is a symbolic link, which is not followed",
                          diag_quote(output->diags, path));
    if (errno != EACCES && errno != EROFS && errno != EPERM) return fail(output, "open lock", path);
    output->unwritable = errno;
    output->lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return 0;
}

/* Removes the staging directory without diagnostics: the compile has failed already, and the next one clears it. */
static void drop_staged(struct output *output) {
    if (output->staged) temporary_remove(output->staging);
    output->staged = false;
}

static void give_up(void *opened) {
    struct output *output = opened;
    drop_staged(output);
    lock_release(output->lock, output->mode);
    output->lock = -1;
}

/* Under the lock for reading nobody writes: a staging directory is what a compile left that was killed or failed. */
static void clear_leftover(const struct output *output) {
    if (output->lock >= 0 && !output->unwritable && access(output->staging, F_OK) == 0)
        temporary_remove(output->staging);
}

int output_open(struct output *output, struct arena *arena, struct diags *diags, const char *root, const char *model,
                const char *instance, long timeout) {
    *output = (struct output){.arena = arena, .diags = diags, .lock = -1, .timeout = timeout};
    arena_own(arena, output, give_up);
    output->parent = arena_printf(arena, "%s/%s", root, model);
    output->directory = arena_printf(arena, "%s/%s", output->parent, instance);
    output->staging = arena_printf(arena, "%s/.%s.new", output->parent, instance);
    output->old = arena_printf(arena, "%s/.%s.old", output->parent, instance);
    output->lock_path = lock_path(root, model, instance, arena);
    if (check_place(output, output->parent) < 0 || make_directories(output, output->parent) < 0 ||
        open_lock(output) < 0)
        return -1;
    if (output->lock >= 0 && lock_take(output->lock, output->lock_path, LOCK_READING, timeout, diags) < 0) return -1;
    clear_leftover(output);
    return check_place(output, output->directory);
}

/* Recovers from a compile that was killed in swap_by_renaming: between its renames the old result must be moved back,
 * after them it is removed. */
static int restore_old(struct output *output) {
    struct stat info;
    if (lstat(output->directory, &info) == 0) return remove_tree(output, output->old);
    if (lstat(output->old, &info) < 0 || !S_ISDIR(info.st_mode)) return 0;
    return rename(output->old, output->directory) < 0 ? fail(output, "restore", output->directory) : 0;
}

int output_own(struct output *output) {
    if (output->unwritable) {
        errno = output->unwritable;
        return fail(output, "write", output->lock_path);
    }
    if (lock_take(output->lock, output->lock_path, LOCK_WRITING, output->timeout, output->diags) < 0) return -1;
    output->mode = LOCK_WRITING;
    if (check_place(output, output->directory) < 0) return -1;
    return restore_old(output);
}

int output_begin(struct output *output) {
    if (remove_tree(output, output->staging) < 0) return -1;
    if (mkdir(output->staging, 0777) < 0) return fail(output, "create directory", output->staging);
    output->staged = true;
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

struct output_stream {
    struct output *output;
    const char *path;
    int fd;    /* -1: it could not be created, which was reported */
    int error; /* the first errno of a write */
};

/* The full path of `path` in the staging directory, whose parents are created; NULL after a diagnostic. */
static const char *stage_path(struct output *output, const char *path) {
    char *full = arena_printf(output->arena, "%s/%s", output->staging, path);
    char *slash = strrchr(full, '/');
    *slash = 0;
    if (make_directories(output, full) < 0) return NULL;
    *slash = '/';
    return full;
}

struct output_stream *output_stream_open(struct output *output, const char *path) {
    struct output_stream *stream = ARENA_NEW(output->arena, struct output_stream);
    *stream = (struct output_stream){.output = output, .path = stage_path(output, path), .fd = -1};
    if (!stream->path) return stream;
    stream->fd = open(stream->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (stream->fd < 0) fail(output, "create", stream->path);
    if (stream->fd >= 0) arena_own_fd(output->arena, stream->fd);
    return stream;
}

void output_put(struct output_stream *stream, const void *bytes, size_t count) {
    if (stream->fd < 0 || stream->error) return;
    if (write_all(stream->fd, bytes, count) < 0) stream->error = errno;
}

int output_stream_close(struct output_stream *stream) {
    if (stream->fd < 0) return -1;
    if (!stream->error && fsync(stream->fd) < 0) stream->error = errno;
    arena_close_fd(stream->output->arena, stream->fd);
    errno = stream->error;
    return stream->error ? fail(stream->output, "write", stream->path) : 0;
}

int output_write(struct output *output, const char *path, const void *bytes, size_t count) {
    struct output_stream *stream = output_stream_open(output, path);
    output_put(stream, bytes, count);
    return output_stream_close(stream);
}

/* Writes the new file outside of the result and renames it, so that a killed compile leaves no partial file there. */
int output_replace(struct output *output, const char *path, const void *bytes, size_t count) {
    const char *full = arena_printf(output->arena, "%s/%s", output->directory, path);
    if (output_begin(output) < 0 || output_write(output, path, bytes, count) < 0) return -1;
    const char *fresh = arena_printf(output->arena, "%s/%s", output->staging, path);
    return rename(fresh, full) < 0 ? fail(output, "write", full) : 0;
}

static int sync_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int status = fsync(fd);
    close(fd);
    return status;
}

static int rename_into_place(struct output *output) {
    if (rename(output->staging, output->directory) == 0) return 0;
    return fail(output, "create", output->directory);
}

/* Replaces the result by two renames, on file systems without RENAME_EXCHANGE. */
static int swap_by_renaming(struct output *output) {
    if (remove_tree(output, output->old) < 0) return -1;
    if (rename(output->directory, output->old) < 0) return fail(output, "replace", output->directory);
    if (rename_into_place(output) < 0) {
        rename(output->old, output->directory);
        return -1;
    }
    return remove_tree(output, output->old);
}

/* Exchanges the result and the staging directory, which then holds the old result and is removed. */
int output_commit(struct output *output) {
    struct stat info;
    bool exists = lstat(output->directory, &info) == 0;
    int status;
    sync_directory(output->staging);
    if (!exists)
        status = rename_into_place(output);
    else if (renameat2(AT_FDCWD, output->staging, AT_FDCWD, output->directory, RENAME_EXCHANGE) == 0)
        status = remove_tree(output, output->staging);
    else
        status = swap_by_renaming(output);
    sync_directory(output->parent);
    if (!status) output->staged = false;
    return status;
}

void output_close(struct output *output) {
    if (output->arena) arena_release(output->arena, output);
}
