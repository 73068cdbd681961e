#include "file_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux transfers at most about 2 GiB per call. */
#define READ_AT_ONCE ((size_t)1 << 30)

/* Makes the reader own `fd`, the result of opening the file; the reader's `info` is known. */
static bool take(struct rt_reader *reader, int fd, const char *path, struct rt_reason *why) {
    reader->fd = fd;
    reader->path = fd < 0 ? NULL : strdup(path);
    if (reader->path) return true;
    if (fd >= 0) {
        close(fd);
        rt_refuse_memory(why, strlen(path) + 1);
    }
    rt_reader_close(reader);
    return false;
}

bool rt_reader_open(struct rt_reader *reader, const char *path, struct rt_reason *why) {
    return take(reader, rt_file_open(path, &reader->info, why), path, why);
}

bool rt_reader_open_below(struct rt_reader *reader, const char *directory, const char *name, struct rt_reason *why) {
    return take(reader, rt_file_open_below(directory, name, &reader->info, why), name, why);
}

bool rt_reader_open_at(struct rt_reader *reader, int directory, const char *path, struct rt_reason *why) {
    return take(reader, rt_file_open_at(directory, path, &reader->info, why), path, why);
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
        if (got == 0) return rt_refuse_changed(why, reader->path);
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
    return (whole ? same : now.bytes >= then->bytes) || rt_refuse_changed(why, reader->path);
}
