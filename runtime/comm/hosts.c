#include "comm/hosts.h"

#include "comm.h"
#include "comm/mpi_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20, TAG = 1, PAUSE_NS = 2000000 };

struct rt_hosts {
    struct rt_mpi mpi;
    int rank, size;
    bool receives;
    int *values; /* of each rank */
};

void rt_host_name(char host[RT_HOST_ROOM]) {
    const char *given = getenv(RT_HOST_VARIABLE);
    char name[64] = "", boot[40] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(boot, sizeof boot, file)) boot[0] = 0;
    if (file) fclose(file);
    if (gethostname(name, sizeof name - 1) != 0) name[0] = 0;
    if (given)
        snprintf(host, RT_HOST_ROOM, "%s", given);
    else
        snprintf(host, RT_HOST_ROOM, "%s %s", name, boot);
}

/* Finds the lowest rank on this host. */
static int find_receivers(struct rt_hosts *hosts) {
    const struct rt_mpi *mpi = &hosts->mpi;
    char mine[RT_HOST_ROOM] = "", *names = malloc((size_t)hosts->size * RT_HOST_ROOM);
    int lowest = 0;
    if (!names) return RT_ERROR_SYSTEM;
    rt_host_name(mine);
    const int failed = mpi->Allgather(mine, RT_HOST_ROOM, mpi->byte, names, RT_HOST_ROOM, mpi->byte, mpi->world);
    while (!failed && strcmp(names + (size_t)lowest * RT_HOST_ROOM, mine) != 0) lowest++;
    hosts->receives = lowest == hosts->rank && hosts->rank > 0;
    free(names);
    return failed ? RT_ERROR_SYSTEM : RT_OK;
}

int rt_hosts_open(struct rt_hosts **out, char *why, size_t room) {
    struct rt_hosts *hosts = *out = calloc(1, sizeof *hosts);
    snprintf(why, room, "out of memory");
    if (!hosts) return RT_ERROR_SYSTEM;
    const struct rt_mpi *mpi = &hosts->mpi;
    int status = rt_mpi_open(&hosts->mpi, RT_MPI_SENDS, why, room);
    if (!status) {
        snprintf(why, room, "MPI cannot connect the processes");
        status = mpi->Comm_set_errhandler(mpi->world, mpi->errors_return) || mpi->Comm_rank(mpi->world, &hosts->rank) ||
                         mpi->Comm_size(mpi->world, &hosts->size)
                     ? RT_ERROR_SYSTEM
                     : RT_OK;
    }
    if (!status && !(hosts->values = calloc((size_t)hosts->size, sizeof *hosts->values))) status = RT_ERROR_SYSTEM;
    if (!status) status = find_receivers(hosts);
    if (!status) return RT_OK;
    free(hosts->values);
    free(hosts);
    *out = NULL;
    return status;
}

int rt_hosts_rank(const struct rt_hosts *hosts) {
    return hosts->rank;
}

bool rt_hosts_receives(const struct rt_hosts *hosts) {
    return hosts->receives;
}

/* Sends a byte to every other rank. */
static int wake(struct rt_hosts *hosts) {
    const struct rt_mpi *mpi = &hosts->mpi;
    char byte = 0;
    int failed = 0;
    for (int r = 1; r < hosts->size && !failed; r++) {
        rt_mpi_handle request;
        failed = mpi->Isend(&byte, 1, mpi->byte, r, TAG, mpi->world, &request);
        if (!failed) failed = mpi->Wait(&request, mpi->status_ignore);
    }
    return failed ? RT_ERROR_SYSTEM : RT_OK;
}

int rt_hosts_wait(struct rt_hosts *hosts) {
    const struct rt_mpi *mpi = &hosts->mpi;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    rt_mpi_handle request;
    char byte;
    int done = 0;
    if (hosts->rank == 0) return wake(hosts);
    int failed = mpi->Irecv(&byte, 1, mpi->byte, 0, TAG, mpi->world, &request);
    while (!failed && !done) {
        failed = mpi->Test(&request, &done, mpi->status_ignore);
        if (!failed && !done) nanosleep(&pause, NULL);
    }
    return failed ? RT_ERROR_SYSTEM : RT_OK;
}

int rt_hosts_broadcast(struct rt_hosts *hosts, void *data, size_t bytes) {
    const struct rt_mpi *mpi = &hosts->mpi;
    unsigned char *at = data;
    int failed = 0;
    for (size_t done = 0, piece; done < bytes && !failed; done += piece) {
        piece = bytes - done < PIECE ? bytes - done : PIECE;
        failed = mpi->Bcast(at + done, (int)piece, mpi->byte, 0, mpi->world);
    }
    return failed ? RT_ERROR_SYSTEM : RT_OK;
}

int rt_hosts_first(struct rt_hosts *hosts, int mine, int *first) {
    const struct rt_mpi *mpi = &hosts->mpi;
    const int size = sizeof mine;
    if (mpi->Allgather(&mine, size, mpi->byte, hosts->values, size, mpi->byte, mpi->world)) return RT_ERROR_SYSTEM;
    *first = 0;
    for (int r = 0; r < hosts->size && !*first; r++) *first = hosts->values[r];
    return RT_OK;
}

void rt_hosts_close(struct rt_hosts *hosts) {
    rt_mpi_close(false);
    free(hosts->values);
    free(hosts);
}
