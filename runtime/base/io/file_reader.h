/* Reads pieces of files that others may change meanwhile.
 *
 * Note [Files that shrink]
 * Training data, models and checkpoints are the user's files, which may be truncated or overwritten while in use. They
 * are not mapped: access to a truncated mapping kills the process with SIGBUS, or reads zeros within the last page, and
 * a library must not install a signal handler in its host program. All bytes are read with pread, which reports missing
 * bytes, and afterwards the file's size is compared with the size at opening. A file that changed is refused with
 * RT_REASON_CHANGED (E0604, exit code 6). The compiler, which is a program, does map models too large to copy:
 * frontend/read/onnx_mapping.h. */
#ifndef RT_BASE_FILE_READER_H
#define RT_BASE_FILE_READER_H

#include "file.h"

struct rt_reader {
    int fd;
    char *path;               /* NULL: closed */
    struct rt_file_info info; /* at opening */
};

/* Opens a regular file. After a failure the reader is closed, like one of zeros; closing it again does nothing. */
bool rt_reader_open(struct rt_reader *reader, const char *path, struct rt_reason *why);
/* The same, of a file below a directory, as rt_file_read_below. */
bool rt_reader_open_below(struct rt_reader *reader, const char *directory, const char *name, struct rt_reason *why);
/* The same, of a file in an open directory, as rt_file_read_at. */
bool rt_reader_open_at(struct rt_reader *reader, int directory, const char *path, struct rt_reason *why);
void rt_reader_close(struct rt_reader *reader);

/* Reads `count` bytes at `offset` into `to`. Several threads may use one reader. */
bool rt_reader_get(const struct rt_reader *reader, int64_t offset, void *to, size_t count, struct rt_reason *why);

/* Called after reading. True if the file has not become shorter since it was opened and, with `whole`, is unchanged in
 * length and modification time: all reads then saw one version of it. */
bool rt_reader_check(const struct rt_reader *reader, bool whole, struct rt_reason *why);

#endif
