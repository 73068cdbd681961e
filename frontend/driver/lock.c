#include "frontend/driver/lock.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { TRIES_PER_SECOND = 100, NAME_BYTES = 256, TIME_BYTES = 32 };

static const int operations[] = {[LOCK_READING] = LOCK_SH, [LOCK_WRITING] = LOCK_EX};

struct owner {
    long process;
    char host[NAME_BYTES], since[TIME_BYTES];
};

static void name_host(char host[NAME_BYTES]) {
    if (gethostname(host, NAME_BYTES) < 0) strcpy(host, "?");
    host[NAME_BYTES - 1] = 0;
}

/* Writes process, host and time into the lock file, for the text of E0701 of other processes; so errors are ignored. */
static void sign(int fd) {
    char host[NAME_BYTES], since[TIME_BYTES];
    time_t now = time(NULL);
    struct tm utc;
    name_host(host);
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    if (ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0) dprintf(fd, "%ld %s %s\n", (long)getpid(), host, since);
}

/* Reads the owner; false if there is none, or if it is a process of this host that has ended. */
static bool read_owner(int fd, struct owner *owner) {
    char text[NAME_BYTES + TIME_BYTES + 32], here[NAME_BYTES];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    if (length <= 0) return false;
    text[length] = 0;
    if (sscanf(text, "%ld %255s %31s", &owner->process, owner->host, owner->since) != 3 || owner->process <= 0)
        return false;
    name_host(here);
    return strcmp(owner->host, here) != 0 || kill((pid_t)owner->process, 0) == 0 || errno != ESRCH;
}

static int busy(int fd, const char *path, long timeout, struct diags *diags) {
    struct owner owner;
    diag_error(diags, 701, EXIT_BUSY, NULL, "%s is locked by another rankc", diag_quote(diags, path));
    if (read_owner(fd, &owner))
        diag_note(diags, "process %ld on %s since %s", owner.process, diag_quote(diags, owner.host),
                  diag_quote(diags, owner.since));
    diag_help(diags, "waited %ld s (--lock-timeout)", timeout);
    return -1;
}

int lock_take(int fd, const char *path, enum lock_mode mode, long timeout, struct diags *diags) {
    const struct timespec pause = {.tv_nsec = 1000000000 / TRIES_PER_SECOND};
    for (long tries = 0; flock(fd, operations[mode] | LOCK_NB); tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return diag_error(diags, 611, EXIT_SYSTEM, NULL, "cannot lock %s: %s", diag_quote(diags, path),
                              strerror(errno));
        if (tries >= timeout * TRIES_PER_SECOND) return busy(fd, path, timeout, diags);
        nanosleep(&pause, NULL);
    }
    if (mode == LOCK_WRITING) sign(fd);
    return 0;
}

void lock_release(int fd, enum lock_mode mode) {
    if (fd < 0) return;
    if (mode == LOCK_WRITING && ftruncate(fd, 0) < 0) {
        /* a failure leaves the owner's name, which does not matter: the lock itself is the kernel's */
    }
    close(fd);
}
