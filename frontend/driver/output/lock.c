#include "frontend/driver/output/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/number/hash.h"
#include "runtime/base/io/lock_owner.h"

enum { TRIES_PER_SECOND = 100 };

static const int operations[] = {[LOCK_READING] = LOCK_SH, [LOCK_WRITING] = LOCK_EX};

const char *lock_path(const char *output, const char *model, const char *instance, struct arena *arena) {
    const char *names = arena_printf(arena, "%s-%s", model, instance);
    char hash[RT_HASH_HEX];
    if (strlen(names) + strlen(".lock-") <= NAME_MAX) return arena_printf(arena, "%s/.lock-%s", output, names);
    rt_hash_bytes(names, strlen(names), hash);
    return arena_printf(arena, "%s/.lock-%s", output, hash);
}

static int busy(int fd, const char *path, long timeout, struct diags *diags) {
    struct rt_lock_owner owner;
    diag_error(diags, 701, EXIT_BUSY, NULL, "%s is locked by another rankc", diag_quote(diags, path));
    if (rt_lock_read(fd, &owner) && !rt_lock_owner_ended(&owner))
        diag_note(diags, "process %ld on %s since %s", owner.process, diag_quote(diags, owner.host),
                  diag_quote(diags, owner.since));
    return diag_help(diags, "waited %ld s (--lock-timeout)", timeout);
}

int lock_take(int fd, const char *path, enum lock_mode mode, long timeout, struct diags *diags) {
    const struct timespec pause = {.tv_nsec = 1000000000 / TRIES_PER_SECOND};
    for (long tries = 0; flock(fd, operations[mode] | LOCK_NB); tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR) return diag_errno(diags, 611, NULL, "lock", path);
        if (tries >= timeout * TRIES_PER_SECOND) return busy(fd, path, timeout, diags);
        nanosleep(&pause, NULL);
    }
    if (mode != LOCK_WRITING) return 0;
    rt_lock_sign(fd, getpid());
    fcntl(fd, F_SETFD, 0); /* Note [What a killed compile leaves] */
    return 0;
}

void lock_release(int fd, enum lock_mode mode) {
    if (fd < 0) return;
    if (mode == LOCK_WRITING && ftruncate(fd, 0) < 0) {
        /* a failure leaves the owner's name, which does not matter: the lock itself is the kernel's */
    }
    flock(fd, LOCK_UN);
    close(fd);
}
