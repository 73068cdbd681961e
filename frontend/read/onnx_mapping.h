/* Files of a model that are too large to copy, in memory as mappings.
 *
 * Note [Lost pages]
 * Reading a mapping where its file has been cut raises SIGBUS. The first mapping installs a handler for it, which the
 * compiler may do, being a program of its own (the runtime is a library and reads files in pieces:
 * runtime/base/file_reader.h). The handler puts zeros in the place of the pages that are gone, from the first one to
 * the mapping's end, and notes it in the mapping: reading goes on, and what was made of the file is given up where
 * mapping_check is asked, before anything is written. A cut within the last page raises nothing; mapping_check sees it
 * by the file's size and time. */
#ifndef FRONTEND_READ_ONNX_MAPPING_H
#define FRONTEND_READ_ONNX_MAPPING_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct mapping {
    const unsigned char *bytes; /* NULL: closed, or of no bytes */
    int64_t count, mtime_ns;
    int fd;                     /* of the mapping's own */
    volatile sig_atomic_t lost; /* the file was cut, and pages are zeros now */
    struct mapping *next;       /* of all that are open */
};

/* Maps the open file `fd`, which stays the caller's: NULL where that fails, with the cause in errno. Not from several
 * threads at once. mapping_close takes NULL too. */
struct mapping *mapping_open(int fd, int64_t count);
void mapping_close(struct mapping *mapping);

/* True if the file is the one that was mapped, by size and time. */
bool mapping_check(const struct mapping *mapping);

#endif
