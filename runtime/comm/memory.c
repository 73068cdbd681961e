#include "comm/memory.h"

#include "comm/comm_shared.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int rt_memory_make(int ranks, struct rt_memory *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(out->name, sizeof out->name, "rankc-%d-%lld-%ld", (int)getpid(), (long long)now.tv_sec, now.tv_nsec);
    out->pid = getpid();
    out->fd = memfd_create(out->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (out->fd < 0 || (ftruncate(out->fd, (off_t)rt_shared_control_bytes(ranks)) == 0 &&
                        fcntl(out->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0))
        return out->fd;
    close(out->fd);
    return out->fd = -1;
}

/* Through /proc. The name proves that the process is on this machine; the kernel allows access only to users who may
 * trace that process. */
int rt_memory_find(const struct rt_memory *memory) {
    char path[64], wanted[96], name[sizeof wanted];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", memory->pid, memory->fd);
    snprintf(wanted, sizeof wanted, "/memfd:%.*s (deleted)", (int)sizeof memory->name, memory->name);
    const ssize_t length = readlink(path, name, sizeof name);
    if (length != (ssize_t)strlen(wanted) || memcmp(name, wanted, (size_t)length) != 0) return -1;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || (fstat(fd, &status) == 0 && status.st_uid == geteuid())) return fd;
    close(fd);
    return -1;
}
