/* Read-only mappings of model files that are too large to copy.
 *
 * Note [Lost pages]
 * Reading a page of a mapping behind the end of a truncated file raises SIGBUS. mapping_open installs a handler at its
 * first call. (The compiler may do so, being a whole program. The runtime is a library and reads files in pieces:
 * runtime/base/io/file_reader.h.) The handler maps zeros over the lost page and all after it and sets `lost`, so that
 * the read goes on. Callers ask mapping_check before they write any result and drop the result if it says false. A file
 * truncated within its last page raises no signal; mapping_check notices the changed size or time. */
#ifndef FRONTEND_READ_ONNX_MAPPING_H
#define FRONTEND_READ_ONNX_MAPPING_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct mapping {
    const unsigned char *bytes; /* NULL if count is 0 */
    int64_t count, mtime_ns;    /* size and modification time of the file when it was mapped */
    int fd;                     /* a duplicate, owned by the mapping */
    volatile sig_atomic_t lost; /* pages were replaced by zeros (Note [Lost pages]) */
    struct mapping *next;       /* list of all open mappings */
};

/* Maps the first `count` bytes of the open file `fd`, which the caller keeps. NULL with errno on failure. Not thread
 * safe. */
struct mapping *mapping_open(int fd, int64_t count);
/* Unmaps and frees. NULL is allowed. */
void mapping_close(struct mapping *mapping);

/* True if no page was lost and the file still has the size and time it was mapped with: all bytes read were its own. */
bool mapping_check(const struct mapping *mapping);

#endif
