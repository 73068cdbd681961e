/* The lock of a compiled model, <output>/.lock-<model>-<instance>: shared for readers, exclusive for a writer.
 *
 * It is an advisory lock of the kernel (flock), which is released when its process dies. The owner of an exclusive lock
 * writes its process id and host into the file, for diagnostics only.
 *
 * Note [What a killed compile leaves]
 * make and the C compiler write to the staging directory, and end a moment after the compile that was killed. They
 * inherit an exclusive lock, so that the next compile clears the directory after them. */
#ifndef FRONTEND_DRIVER_LOCK_H
#define FRONTEND_DRIVER_LOCK_H

#include "ir/base/diag.h"

/* The path of the lock. Where the two names make a longer one than file systems take, it has their hash. */
const char *lock_path(const char *output, const char *model, const char *instance, struct arena *arena);

enum lock_mode { LOCK_READING, LOCK_WRITING };

/* Locks the open file `fd`, waiting at most `timeout` seconds: 0, or -1 with E0701 (EXIT_BUSY), which names the owner.
 * Changing the mode is not atomic: another process may get the lock in between. */
int lock_take(int fd, const char *path, enum lock_mode mode, long timeout, struct diags *diags);

/* Releases the lock and closes the file. */
void lock_release(int fd, enum lock_mode mode);

#endif
