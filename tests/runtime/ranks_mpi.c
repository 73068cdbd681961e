#define _GNU_SOURCE 1

#include "ranks_mpi.h"

#include "comm/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 16 };

static int complain(const char *why) {
    fprintf(stderr, "%s\n", why);
    return 1;
}

/* The memory of the ranks with this rank's letter; `before` of them have lower numbers. */
static void *share(struct rt_mpi_job *job, int first, int rank, int here, size_t bytes) {
    struct rt_memory mine = {.fd = -1}, all[MOST_RANKS];
    int fd = rank == first ? rt_memory_make(here, &mine) : -1;
    if (rt_mpi_job_gather(job, all, &mine, sizeof mine)) return MAP_FAILED;
    if (rank != first) fd = rt_memory_find(&all[first]);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return MAP_FAILED;
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int mpi_ranks_open(const char *hosts, size_t symmetric, struct rt_mpi_job **job, struct rt_comm **comm) {
    struct rt_comm *inside;
    char why[256];
    int host[MOST_RANKS], before = 0, here = 0;
    if (rt_mpi_job_open(job, NULL, why, sizeof why)) return complain(why);
    const int rank = rt_mpi_job_rank(*job), size = rt_mpi_job_size(*job);
    if (size > MOST_RANKS || (int)strlen(hosts) != size) return complain("another number of ranks than hosts lists");
    for (int r = 0; r < size; r++) {
        host[r] = (int)(strchr(hosts, hosts[r]) - hosts);
        here += hosts[r] == hosts[rank];
        before += r < rank && hosts[r] == hosts[rank];
    }
    void *segment = share(*job, host[rank], rank, here, rt_comm_shared_bytes(here, symmetric));
    if (segment == MAP_FAILED) return complain("no shared memory");
    if (rt_comm_open_shared(&inside, segment, before, here, symmetric)) return complain("no communicator inside");
    return rt_mpi_job_connect(*job, host, inside, comm) ? complain("no communicator by MPI") : 0;
}
