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

/* The same of the file `name` below a directory that a program wrote: links are followed on the way to the directory
 * and not below it (RT_REASON_MISMATCH). `name` has no "..". */
/* a descriptor, or -1 */
int rt_file_open_below(const char *directory, const char *name, int flags, struct rt_reason *why);
bool rt_file_read_below(const char *directory, const char *name, size_t limit, void **bytes, size_t *count,
                        struct rt_reason *why);

struct rt_file_info {
    int64_t bytes, mtime_ns, ctime_ns;
};

/* A private read-only mapping; an empty file gives NULL. */
bool rt_file_map(const char *path, const void **bytes, struct rt_file_info *info, struct rt_reason *why);
bool rt_file_map_below(const char *directory, const char *name, const void **bytes, struct rt_file_info *info,
                       struct rt_reason *why);
void rt_file_unmap(const void *bytes, int64_t count);

/* Writes the pieces one after the other to a temporary file beside `path` and renames it: readers see the old file
 * or the new one. */
struct rt_piece {
    const void *bytes;
    size_t count;
};
bool rt_file_write(const char *path, const struct rt_piece *pieces, int npieces, struct rt_reason *why);

/* Files of an open directory that others may have tampered with: `path` is what messages call the file, and its last
 * component is the file's name in `directory`. Links are not followed: reading refuses a symbolic link, and a file that
 * has another name (RT_REASON_LINK); writing puts a new file in the place of a link. */
bool rt_file_read_at(int directory, const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why);
int rt_file_open_at(int directory, const char *path, struct rt_reason *why); /* to read: a descriptor, or -1 */

/* Writes a new file, and returns when it is on the disk; of one that fails nothing stays. */
bool rt_file_create_at(int directory, const char *path, const struct rt_piece *pieces, int64_t npieces,
                       struct rt_reason *why);

/* Returns when the entries of an open directory, which messages call `path`, are on the disk. */
bool rt_file_sync_directory(int directory, const char *path, struct rt_reason *why);

#endif
