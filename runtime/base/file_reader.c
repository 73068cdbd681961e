#define _GNU_SOURCE 1

#include "file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux transfers at most about 2 GiB per call. */
#define READ_AT_ONCE ((size_t)1 << 30)

static bool refuse_changed(const struct rt_reader *reader, struct rt_reason *why) {
    rt_refuse(why, "'%s' changed while it was read", rt_quote_text(reader->path).text);
    why->kind = RT_REASON_CHANGED;
    return false;
}

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* Initialises a reader that owns the descriptor. */
static bool take(struct rt_reader *reader, int fd, const char *path, struct rt_reason *why) {
    struct stat status;
    *reader = (struct rt_reader){.fd = fd, .path = strdup(path)};
    if (!reader->path) {
        close(fd);
        return rt_refuse_memory(why, strlen(path) + 1);
    }
    if (fstat(fd, &status) != 0) {
        rt_refuse_errno(why, errno, "cannot open '%s'", rt_quote_text(path).text);
    } else if (!S_ISREG(status.st_mode)) {
        rt_refuse(why, "'%s' is not a regular file", rt_quote_text(path).text);
        why->kind = RT_REASON_SYSTEM;
    } else {
        reader->info = rt_file_info_of(&status);
        return true;
    }
    rt_reader_close(reader);
    return false;
}

bool rt_reader_open(struct rt_reader *reader, const char *path, struct rt_reason *why) {
    *reader = (struct rt_reader){.fd = -1};
    const int fd = open(path, OPEN_FLAGS);
    if (fd < 0) return rt_refuse_errno(why, errno, "cannot open '%s'", rt_quote_text(path).text);
    return take(reader, fd, path, why);
}

bool rt_reader_open_below(struct rt_reader *reader, const char *directory, const char *name, struct rt_reason *why) {
    *reader = (struct rt_reader){.fd = -1};
    const int fd = rt_file_open_below(directory, name, OPEN_FLAGS, why);
    return fd >= 0 && take(reader, fd, name, why);
}

bool rt_reader_open_at(struct rt_reader *reader, int directory, const char *path, struct rt_reason *why) {
    *reader = (struct rt_reader){.fd = -1};
    const int fd = rt_file_open_at(directory, path, why);
    return fd >= 0 && take(reader, fd, path, why);
}

void rt_reader_close(struct rt_reader *reader) {
    if (reader->path && reader->fd >= 0) close(reader->fd);
    free(reader->path);
    *reader = (struct rt_reader){.fd = -1};
}

bool rt_reader_get(const struct rt_reader *reader, int64_t offset, void *to, size_t count, struct rt_reason *why) {
    for (size_t done = 0; done < count;) {
        const size_t left = count - done < READ_AT_ONCE ? count - done : READ_AT_ONCE;
        const ssize_t got = pread(reader->fd, (char *)to + done, left, (off_t)(offset + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return rt_refuse_errno(why, errno, "cannot read '%s'", rt_quote_text(reader->path).text);
        if (got == 0) return refuse_changed(reader, why);
        done += (size_t)got;
    }
    return true;
}

bool rt_reader_check(const struct rt_reader *reader, bool whole, struct rt_reason *why) {
    struct stat status;
    if (fstat(reader->fd, &status) != 0)
        return rt_refuse_errno(why, errno, "cannot read '%s'", rt_quote_text(reader->path).text);
    const struct rt_file_info *then = &reader->info, now = rt_file_info_of(&status);
    const bool same = now.bytes == then->bytes && now.mtime_ns == then->mtime_ns;
    return (whole ? same : now.bytes >= then->bytes) || refuse_changed(reader, why);
}
