#include "frontend/read/onnx_mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/io/file.h"

/* All open mappings, global because the signal handler searches them. A mapping is read only while it is in the
 * list. */
static struct {
    struct mapping *all;
    struct sigaction before;
    bool installed;
} open_mappings;

/* Replaces the pages of the mapping from the one with `address` to its end by zeros. */
static bool replace_pages(struct mapping *mapping, uintptr_t address) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = address / page * page;
    const uintptr_t end = (uintptr_t)mapping->bytes + (uintptr_t)mapping->count;
    mapping->lost = 1;
    return mmap((void *)first, end - first, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* If the address is in no mapping, or there is no memory for zeros, restores the previous handler, which gets the
 * signal when the access is repeated. */
static void on_bus_error(int number, siginfo_t *info, void *context) {
    const uintptr_t address = (uintptr_t)info->si_addr;
    const int error = errno;
    (void)context;
    for (struct mapping *mapping = open_mappings.all; mapping; mapping = mapping->next) {
        const uintptr_t start = (uintptr_t)mapping->bytes;
        if (address < start || address - start >= (uintptr_t)mapping->count || !replace_pages(mapping, address))
            continue;
        errno = error;
        return;
    }
    sigaction(number, &open_mappings.before, NULL);
}

static void install(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    if (open_mappings.installed) return;
    sigemptyset(&action.sa_mask);
    open_mappings.installed = sigaction(SIGBUS, &action, &open_mappings.before) == 0;
}

struct mapping *mapping_open(int fd, int64_t count) {
    struct stat status;
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping) return NULL;
    *mapping = (struct mapping){.count = count, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .next = open_mappings.all};
    bool ok = mapping->fd >= 0 && fstat(mapping->fd, &status) == 0;
    void *bytes = ok && count > 0 ? mmap(NULL, (size_t)count, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (!ok || bytes == MAP_FAILED) {
        const int error = errno;
        if (mapping->fd >= 0) close(mapping->fd);
        free(mapping);
        errno = error;
        return NULL;
    }
    mapping->bytes = bytes;
    mapping->mtime_ns = rt_file_info_of(&status).mtime_ns;
    install();
    return open_mappings.all = mapping;
}

void mapping_close(struct mapping *mapping) {
    if (!mapping) return;
    for (struct mapping **at = &open_mappings.all; *at; at = &(*at)->next)
        if (*at == mapping) {
            *at = mapping->next;
            break;
        }
    if (mapping->bytes) munmap((void *)(uintptr_t)mapping->bytes, (size_t)mapping->count);
    close(mapping->fd);
    free(mapping);
}

bool mapping_check(const struct mapping *mapping) {
    struct stat status;
    if (mapping->lost || fstat(mapping->fd, &status) != 0) return false;
    const struct rt_file_info now = rt_file_info_of(&status);
    return now.bytes == mapping->count && now.mtime_ns == mapping->mtime_ns;
}
