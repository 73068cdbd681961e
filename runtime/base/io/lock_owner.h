/* The record in a lock file that says which process holds the lock. Locks themselves are the kernel's (flock); the
 * record serves only the messages of processes that find the lock taken. */
#ifndef RT_BASE_LOCK_OWNER_H
#define RT_BASE_LOCK_OWNER_H

#include <stdbool.h>

struct rt_lock_owner {
    long process;
    char host[256], since[32]; /* since: UTC, such as 2026-01-31T12:00:00Z */
};

/* Replaces the content of the lock file by the record of `process`, which runs on this host, with the present time.
 * Errors are ignored: messages are then less precise. */
void rt_lock_sign(int fd, long process);

/* Reads the record; false if there is none. */
bool rt_lock_read(int fd, struct rt_lock_owner *owner);

/* True if the owner is known to have ended: it ran on this host and no longer exists. */
bool rt_lock_owner_ended(const struct rt_lock_owner *owner);

#endif
