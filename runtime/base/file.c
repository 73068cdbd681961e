#define _GNU_SOURCE 1

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Large writes and reads go in pieces: Linux moves at most about 2 GiB per call. */
#define FILE_PIECE ((size_t)1 << 30)

static int open_regular(const char *path, struct stat *status, struct rt_reason *why) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        rt_refuse_errno(why, errno, "cannot open '%s'", rt_quote_text(path).text);
        return -1;
    }
    if (fstat(fd, status) == 0 && S_ISREG(status->st_mode)) return fd;
    rt_refuse(why, "'%s' is not a regular file", rt_quote_text(path).text);
    why->kind = RT_REASON_SYSTEM;
    close(fd);
    return -1;
}

static bool refuse_changed(const char *path, struct rt_reason *why) {
    rt_refuse(why, "'%s' changed while it was read", rt_quote_text(path).text);
    why->kind = RT_REASON_CHANGED;
    return false;
}

/* All of the file, which has `count` bytes. */
static bool read_fully(int fd, char *bytes, size_t count, const char *path, struct rt_reason *why) {
    struct stat now;
    for (size_t done = 0; done < count;) {
        ssize_t got = read(fd, bytes + done, count - done < FILE_PIECE ? count - done : FILE_PIECE);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return rt_refuse_errno(why, errno, "cannot read '%s'", rt_quote_text(path).text);
        if (got == 0) return refuse_changed(path, why);
        done += (size_t)got;
    }
    return fstat(fd, &now) == 0 && now.st_size == (off_t)count ? true : refuse_changed(path, why);
}

bool rt_file_read(const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why) {
    struct stat status;
    int fd = open_regular(path, &status, why);
    if (fd < 0) return false;
    size_t size = (size_t)status.st_size;
    char *content = NULL;
    bool ok = true;
    if (size > limit)
        ok = rt_refuse(why, "'%s' has %zu bytes, at most %zu are read", rt_quote_text(path).text, size, limit);
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

static int64_t nanoseconds(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

bool rt_file_map(const char *path, const void **bytes, struct rt_file_info *info, struct rt_reason *why) {
    struct stat status;
    int fd = open_regular(path, &status, why);
    if (fd < 0) return false;
    info->bytes = status.st_size;
    info->mtime_ns = nanoseconds(&status.st_mtim);
    info->ctime_ns = nanoseconds(&status.st_ctim);
    void *mapped = NULL;
    if (status.st_size > 0) mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = errno;
    close(fd);
    if (mapped == MAP_FAILED) return rt_refuse_errno(why, error, "cannot map '%s'", rt_quote_text(path).text);
    *bytes = mapped;
    return true;
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

static int open_new(const char *path) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == EEXIST && unlink(path) == 0) fd = open(path, flags, 0666); /* of a dead process */
    return fd;
}

static int write_new(const char *path, const struct rt_piece *pieces, int64_t npieces, bool durable) {
    int fd = open_new(path);
    if (fd < 0) return errno;
    int error = 0;
    for (int64_t i = 0; i < npieces && !error; i++) error = write_fully(fd, pieces[i].bytes, pieces[i].count);
    if (!error && durable && fsync(fd) != 0) error = errno;
    if (close(fd) != 0 && !error) error = errno;
    if (error) unlink(path);
    return error;
}

bool rt_file_write(const char *path, const struct rt_piece *pieces, int npieces, struct rt_reason *why) {
    size_t room = strlen(path) + 32;
    char *temporary = malloc(room);
    if (!temporary) return rt_refuse_memory(why, room);
    snprintf(temporary, room, "%s.tmp-%ld", path, (long)getpid());
    int error = write_new(temporary, pieces, npieces, false);
    if (!error && rename(temporary, path) != 0) {
        error = errno;
        unlink(temporary);
    }
    free(temporary);
    if (error) return rt_refuse_errno(why, error, "cannot write '%s'", rt_quote_text(path).text);
    return true;
}

bool rt_file_create(const char *path, const struct rt_piece *pieces, int64_t npieces, struct rt_reason *why) {
    int error = write_new(path, pieces, npieces, true);
    return error ? rt_refuse_errno(why, error, "cannot write '%s'", rt_quote_text(path).text) : true;
}

bool rt_file_sync_directory(const char *path, struct rt_reason *why) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0) close(fd);
    return error ? rt_refuse_errno(why, error, "cannot write '%s'", rt_quote_text(path).text) : true;
}
