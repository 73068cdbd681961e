/* Files, complete: read, mapped, or written. Only regular files; a FIFO or a device neither blocks nor is read. */
#ifndef RT_BASE_FILE_H
#define RT_BASE_FILE_H

#include "reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file's bytes in memory of their own, followed by a NUL that `bytes` does not count. Files larger than `limit`
 * are refused. */
bool rt_file_read(const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why);

struct rt_file_info {
    int64_t bytes, mtime_ns, ctime_ns;
};

/* A private read-only mapping; an empty file gives NULL. */
bool rt_file_map(const char *path, const void **bytes, struct rt_file_info *info, struct rt_reason *why);
void rt_file_unmap(const void *bytes, int64_t count);

/* Writes the pieces one after the other to a temporary file beside `path` and renames it: readers see the old file
 * or the new one. */
struct rt_piece {
    const void *bytes;
    size_t count;
};
bool rt_file_write(const char *path, const struct rt_piece *pieces, int npieces, struct rt_reason *why);

/* Writes a new file, and returns when it is on the disk; of one that fails nothing stays. */
bool rt_file_create(const char *path, const struct rt_piece *pieces, int64_t npieces, struct rt_reason *why);

/* Returns when a directory's entries are on the disk. */
bool rt_file_sync_directory(const char *path, struct rt_reason *why);

#endif
