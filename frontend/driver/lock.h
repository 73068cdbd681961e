/* The lock of a compiled model: <output>/.lock-<model>-<instance>, shared for who reads it, exclusive for who writes.
 *
 * The lock is the kernel's (flock), so that of a dead process is free at once and nothing is ever to be cleaned up.
 * While it is exclusive the file says whose it is; what a killed process left there is only text. */
#ifndef FRONTEND_DRIVER_LOCK_H
#define FRONTEND_DRIVER_LOCK_H

#include "ir/base/diag.h"

enum lock_mode { LOCK_READING, LOCK_WRITING };

/* Takes the lock of the open file `fd`, waiting at most `timeout` seconds (E0701, EXIT_BUSY, which names the owner).
 * What `fd` held in the other mode is given up first: another process may have it in between. */
int lock_take(int fd, const char *path, enum lock_mode mode, long timeout, struct diags *diags);

/* Closes the file, and with it the lock. */
void lock_release(int fd, enum lock_mode mode);

#endif
