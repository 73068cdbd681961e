/* Files read piece by piece while others may change them.
 *
 * Note [Files that shrink]
 * Training data, models and checkpoints are the user's files: they may be cut or overwritten while they are in use.
 * They are not mapped, because a mapping of a file that is cut ends the process by SIGBUS, and within its last page
 * reads zeros in silence; and a library cannot catch a signal on behalf of the program it is linked into. Every byte is
 * read by pread, which says when it is not there, and after reading the file's size is compared with that at its
 * opening. A file that changed is refused with RT_REASON_CHANGED, which is E0604 and exit code 6. (The compiler, which
 * is a program, does map models that are too large to copy: frontend/read/onnx_mapping.h.) */
#ifndef RT_BASE_FILE_READER_H
#define RT_BASE_FILE_READER_H

#include "file.h"

struct rt_reader {
    int fd;
    char *path;               /* NULL: it is closed */
    struct rt_file_info info; /* when it was opened */
};

/* Opens a regular file. A reader that could not be opened is closed, as one of zeros is; closing it again does
 * nothing. */
bool rt_reader_open(struct rt_reader *reader, const char *path, struct rt_reason *why);
/* The same of a file below a directory (rt_file_read_below). */
bool rt_reader_open_below(struct rt_reader *reader, const char *directory, const char *name, struct rt_reason *why);
/* The same of a file in an open directory that others may have tampered with (rt_file_read_at). */
bool rt_reader_open_at(struct rt_reader *reader, int directory, const char *path, struct rt_reason *why);
void rt_reader_close(struct rt_reader *reader);

/* The `count` bytes from `offset` on, to `to`. Threads may read from one reader. */
bool rt_reader_get(const struct rt_reader *reader, int64_t offset, void *to, size_t count, struct rt_reason *why);

/* After reading: true if the file is at least as long as it was when it was opened, and, with `whole`, has the same
 * length and was not written to, so that all that was read is of one state of it. */
bool rt_reader_check(const struct rt_reader *reader, bool whole, struct rt_reason *why);

#endif
