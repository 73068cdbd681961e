#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Large writes and reads are done in pieces: Linux transfers at most about 2 GiB per call. */
#define FILE_PIECE ((size_t)1 << 30)

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* Returns `fd`, the result of open, if it is a regular file; else closes it and returns -1. */
static int check_regular(int fd, const char *path, struct rt_file_info *info, struct rt_reason *why) {
    struct stat status;
    if (fd < 0) {
        rt_refuse_errno(why, errno, "cannot open '%s'", rt_quote_text(path).text);
        return -1;
    }
    const bool known = fstat(fd, &status) == 0;
    if (known && S_ISREG(status.st_mode)) {
        *info = rt_file_info_of(&status);
        return fd;
    }
    rt_refuse_kind(why, RT_REASON_SYSTEM, "'%s' is not a regular file", rt_quote_text(path).text);
    close(fd);
    return -1;
}

int rt_file_open(const char *path, struct rt_file_info *info, struct rt_reason *why) {
    return check_regular(open(path, OPEN_FLAGS), path, info, why);
}

/* openat of one path component; ELOOP if it is a symbolic link. */
static int open_component(int directory, const char *name, int flags) {
    int fd = openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOTDIR && readlinkat(directory, name, (char[1]){0}, 1) >= 0) errno = ELOOP;
    return fd;
}

/* Opens the directory that contains `name`, below `directory`; *last is the last component. -1: see errno. */
static int open_above(const char *directory, const char *name, const char **last) {
    int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (const char *slash; at >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
        char component[NAME_MAX + 1];
        const size_t length = (size_t)(slash - name);
        int next = -1, error = ENAMETOOLONG;
        if (length < sizeof component) {
            memcpy(component, name, length);
            component[length] = 0;
            next = strcmp(component, "..") == 0 ? (errno = ELOOP, -1)
                                                : open_component(at, component, O_PATH | O_DIRECTORY);
            error = errno;
        }
        close(at);
        errno = error;
        at = next;
    }
    *last = name;
    return at;
}

int rt_file_open_below(const char *directory, const char *name, struct rt_file_info *info, struct rt_reason *why) {
    const char *last;
    int above = open_above(directory, name, &last), fd = -1, error = errno;
    if (above >= 0) {
        fd = open_component(above, last, OPEN_FLAGS);
        error = errno;
        close(above);
    }
    errno = error;
    if (fd >= 0 || error != ELOOP) return check_regular(fd, name, info, why);
    rt_refuse_kind(why, RT_REASON_MISMATCH,
                   "'%s' is a symbolic link, or is reached through one: it was modified after it was written",
                   rt_quote_text(name).text);
    return -1;
}

int rt_file_open_at(int directory, const char *path, struct rt_file_info *info, struct rt_reason *why) {
    int fd = open_component(directory, rt_path_name(path), OPEN_FLAGS);
    struct stat status;
    const char *link = NULL;
    if (fd < 0 && errno == ELOOP) link = "is a symbolic link";
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 1)
        link = "has more than one hard link";
    if (!link) return check_regular(fd, path, info, why);
    rt_refuse_kind(why, RT_REASON_LINK, "'%s' %s, which is not followed", rt_quote_text(path).text, link);
    if (fd >= 0) close(fd);
    return -1;
}

/* Reads all `count` bytes of a file. */
static bool read_fully(int fd, char *bytes, size_t count, const char *path, struct rt_reason *why) {
    struct stat now;
    for (size_t done = 0; done < count;) {
        ssize_t got = read(fd, bytes + done, count - done < FILE_PIECE ? count - done : FILE_PIECE);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return rt_refuse_errno(why, errno, "cannot read '%s'", rt_quote_text(path).text);
        if (got == 0) return rt_refuse_changed(why, path);
        done += (size_t)got;
    }
    return (fstat(fd, &now) == 0 && now.st_size == (off_t)count) || rt_refuse_changed(why, path);
}

/* Reads all of an open file and closes it. */
static bool read_open(int fd, const struct rt_file_info *info, const char *path, size_t limit, void **bytes,
                      size_t *count, struct rt_reason *why) {
    size_t size = (size_t)info->bytes;
    char *content = NULL;
    bool ok = true;
    if (size > limit)
        ok = rt_refuse(why, "'%s' has %zu bytes, more than the limit of %zu", rt_quote_text(path).text, size, limit);
    else if (!(content = malloc(size + 1)))
        ok = rt_refuse_memory(why, size + 1);
    if (ok) ok = read_fully(fd, content, size, path, why);
    close(fd);
    if (!ok) {
        free(content);
        return false;
    }
    content[size] = 0;
    *bytes = content;
    *count = size;
    return true;
}

bool rt_file_read(const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why) {
    struct rt_file_info info;
    int fd = rt_file_open(path, &info, why);
    return fd >= 0 && read_open(fd, &info, path, limit, bytes, count, why);
}

bool rt_file_read_at(int directory, const char *path, size_t limit, void **bytes, size_t *count,
                     struct rt_reason *why) {
    struct rt_file_info info;
    int fd = rt_file_open_at(directory, path, &info, why);
    return fd >= 0 && read_open(fd, &info, path, limit, bytes, count, why);
}

bool rt_file_read_below(const char *directory, const char *name, size_t limit, void **bytes, size_t *count,
                        struct rt_reason *why) {
    struct rt_file_info info;
    int fd = rt_file_open_below(directory, name, &info, why);
    return fd >= 0 && read_open(fd, &info, name, limit, bytes, count, why);
}

static int64_t nanoseconds(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

struct rt_file_info rt_file_info_of(const struct stat *status) {
    return (struct rt_file_info){status->st_size, nanoseconds(&status->st_mtim), nanoseconds(&status->st_ctim)};
}

/* Maps an open file and closes it. */
static bool map_open(int fd, int64_t count, const char *path, const void **bytes, struct rt_reason *why) {
    void *mapped = count > 0 ? mmap(NULL, (size_t)count, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int error = errno;
    close(fd);
    if (mapped == MAP_FAILED) return rt_refuse_errno(why, error, "cannot map '%s'", rt_quote_text(path).text);
    *bytes = mapped;
    return true;
}

bool rt_file_map(const char *path, const void **bytes, struct rt_file_info *info, struct rt_reason *why) {
    int fd = rt_file_open(path, info, why);
    return fd >= 0 && map_open(fd, info->bytes, path, bytes, why);
}

bool rt_file_map_below(const char *directory, const char *name, const void **bytes, struct rt_file_info *info,
                       struct rt_reason *why) {
    int fd = rt_file_open_below(directory, name, info, why);
    return fd >= 0 && map_open(fd, info->bytes, name, bytes, why);
}

void rt_file_unmap(const void *bytes, int64_t count) {
    if (bytes && count > 0) munmap((void *)(uintptr_t)bytes, (size_t)count);
}

static int write_fully(int fd, const char *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t put = write(fd, bytes + done, count - done < FILE_PIECE ? count - done : FILE_PIECE);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put < 0 ? errno : ENOSPC;
        done += (size_t)put;
    }
    return 0;
}

static int open_new(int directory, const char *name) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(directory, name, flags, 0666);
    if (fd < 0 && errno == EEXIST && unlinkat(directory, name, 0) == 0) /* left by a dead process */
        fd = openat(directory, name, flags, 0666);
    return fd;
}

/* `name` may be a path if `directory` is AT_FDCWD. */
static struct rt_new_file begin(int directory, const char *name) {
    struct rt_new_file file = {.path = name, .directory = directory, .descriptor = open_new(directory, name)};
    if (file.descriptor < 0) file.error = errno;
    return file;
}

void rt_file_append(struct rt_new_file *file, const void *bytes, size_t count) {
    if (!file->error) file->error = write_fully(file->descriptor, bytes, count);
}

void rt_file_replace_start(struct rt_new_file *file, const void *bytes, size_t count) {
    if (!file->error && lseek(file->descriptor, 0, SEEK_SET) != 0) file->error = errno;
    rt_file_append(file, bytes, count);
}

/* Returns 0 or the errno of the first failure. */
static int end(struct rt_new_file *file, const char *name, bool durable) {
    if (file->descriptor < 0) return file->error;
    if (!file->error && durable && fsync(file->descriptor) != 0) file->error = errno;
    if (close(file->descriptor) != 0 && !file->error) file->error = errno;
    if (file->error) unlinkat(file->directory, name, 0);
    return file->error;
}

void rt_file_name_beside(const char *path, char *out, size_t room) {
    const int kept = NAME_MAX - RT_BESIDE_BYTES, parents = (int)(rt_path_name(path) - path);
    snprintf(out, room, "%.*s.tmp-%ld", parents + kept, path, (long)getpid());
}

bool rt_file_write(const char *path, const struct rt_piece *pieces, int npieces, struct rt_reason *why) {
    const size_t room = strlen(path) + RT_BESIDE_BYTES;
    char *temporary = malloc(room);
    if (!temporary) return rt_refuse_memory(why, room);
    rt_file_name_beside(path, temporary, room);
    struct rt_new_file file = begin(AT_FDCWD, temporary);
    for (int i = 0; i < npieces; i++) rt_file_append(&file, pieces[i].bytes, pieces[i].count);
    int error = end(&file, temporary, false);
    if (!error && rename(temporary, path) != 0) {
        struct stat taken;
        error = errno;
        if (stat(path, &taken) == 0 && S_ISDIR(taken.st_mode)) error = EISDIR; /* "." is busy to rename */
        unlink(temporary);
    }
    free(temporary);
    if (error) return rt_refuse_errno(why, error, "cannot write '%s'", rt_quote_text(path).text);
    return true;
}

void rt_file_begin_at(struct rt_new_file *file, int directory, const char *path) {
    *file = begin(directory, rt_path_name(path));
    file->path = path;
}

bool rt_file_end(struct rt_new_file *file, struct rt_reason *why) {
    int error = end(file, rt_path_name(file->path), true);
    return error ? rt_refuse_errno(why, error, "cannot write '%s'", rt_quote_text(file->path).text) : true;
}

bool rt_file_create_at(int directory, const char *path, const struct rt_piece *pieces, int64_t npieces,
                       struct rt_reason *why) {
    struct rt_new_file file;
    rt_file_begin_at(&file, directory, path);
    for (int64_t i = 0; i < npieces; i++) rt_file_append(&file, pieces[i].bytes, pieces[i].count);
    return rt_file_end(&file, why);
}

/* True if the directory was made or is there; else errno. */
static bool make_directory(const char *path) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return true;
    const int error = errno;
    const bool exists = stat(path, &info) == 0;
    errno = error == EEXIST ? ENOTDIR : error;
    return exists && S_ISDIR(info.st_mode);
}

bool rt_make_parents(const char *path) {
    char part[PATH_MAX];
    const int length = snprintf(part, sizeof part, "%s", path);
    bool made = length < (int)sizeof part;
    if (!made) errno = ENAMETOOLONG;
    for (char *slash = length ? strchr(part + 1, '/') : NULL; slash && made; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        made = make_directory(part);
        *slash = '/';
    }
    return made;
}

bool rt_make_directories(const char *path) {
    return rt_make_parents(path) && make_directory(path);
}

bool rt_file_sync_directory(int directory, const char *path, struct rt_reason *why) {
    if (fsync(directory) == 0) return true;
    return rt_refuse_errno(why, errno, "cannot write '%s'", rt_quote_text(path).text);
}

const char *rt_path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool rt_has_suffix(const char *text, const char *suffix) {
    const size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

/* Asked of the pipe, since errno of an earlier printf is lost. */
static bool reader_left(void) {
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

bool rt_printed(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    const int why = errno;
    const bool enough = reader_left();
    errno = why;
    return enough;
}
