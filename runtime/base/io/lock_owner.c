#include "lock_owner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void name_host(struct rt_lock_owner *owner) {
    if (gethostname(owner->host, sizeof owner->host) < 0) strcpy(owner->host, "?");
    owner->host[sizeof owner->host - 1] = 0;
}

void rt_lock_sign(int fd, long process) {
    struct rt_lock_owner owner = {.process = process};
    time_t now = time(NULL);
    struct tm utc;
    name_host(&owner);
    strftime(owner.since, sizeof owner.since, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    if (ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0)
        dprintf(fd, "%ld %s %s\n", owner.process, owner.host, owner.since);
}

bool rt_lock_read(int fd, struct rt_lock_owner *owner) {
    char text[sizeof *owner + 32];
    const ssize_t length = pread(fd, text, sizeof text - 1, 0);
    if (length <= 0) return false;
    text[length] = 0;
    return sscanf(text, "%ld %255s %31s", &owner->process, owner->host, owner->since) == 3 && owner->process > 0;
}

bool rt_lock_owner_ended(const struct rt_lock_owner *owner) {
    struct rt_lock_owner here;
    name_host(&here);
    return strcmp(owner->host, here.host) == 0 && kill((pid_t)owner->process, 0) != 0 && errno == ESRCH;
}
