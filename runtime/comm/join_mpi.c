/* Joins the ranks that MPI connects: those of a host by shared memory. */
#include "comm/join_mpi.h"

#include "comm/comm_mpi.h"
#include "comm/hosts.h"
#include "comm/memory.h"
#include "core/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct seat {
    char host[RT_HOST_ROOM];
    char identity[RT_HASH_HEX]; /* of the program */
    int32_t rank, world;
};

static int fail(struct rt *rt, const char *why) {
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT, "--comm mpi: %s", why);
}

/* All ranks gather the same, so all find the same error. */
static int gather_seats(struct rt *rt, struct rt_mpi_job *job, struct seat *seats) {
    struct seat mine = {.rank = rt->rank, .world = rt->world};
    rt_host_name(mine.host);
    rt_identify(rt->program, mine.identity);
    if (rt_mpi_job_gather(job, seats, &mine, sizeof mine)) return fail(rt, "MPI_Allgather failed");
    for (int r = 0; r < rt->world; r++)
        if (seats[r].rank != r || seats[r].world != rt->world)
            return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_WORLD,
                                "rank %d of %d is rank %d of %d for MPI: start the ranks with this MPI's launcher",
                                seats[r].rank, seats[r].world, r, rt->world);
    for (int r = 1; r < rt->world; r++) RT_TRY(rt_compare_identities(rt, r, seats[0].identity, seats[r].identity));
    return RT_OK;
}

/* host[r]: lowest rank of r's host. */
static void find_hosts(struct rt *rt, const struct seat *seats, int *host) {
    struct rt_private *private = rt->internal;
    private->local_rank = private->local_world = 0;
    for (int r = 0; r < rt->world; r++)
        for (host[r] = 0; strcmp(seats[host[r]].host, seats[r].host) != 0;) host[r]++;
    for (int r = 0; r < rt->world; r++) {
        const bool here = host[r] == host[rt->rank];
        private->local_world += here;
        private->local_rank += here && r < rt->rank;
    }
}

/* Where a host's memory is: a memfd of its lowest rank. ok: the rank has opened it. */
struct card {
    struct rt_memory memory;
    int32_t ok;
};

static int share_memory(struct rt *rt, struct rt_mpi_job *job, const int *host, struct card *cards, int *fd) {
    struct card mine = {.ok = 1};
    const bool first = host[rt->rank] == rt->rank;
    if (first) mine.ok = (*fd = rt_memory_make(rt->internal->local_world, &mine.memory)) >= 0;
    if (rt_mpi_job_gather(job, cards, &mine, sizeof mine)) return fail(rt, "MPI_Allgather failed");
    if (!first) mine.ok = (*fd = rt_memory_find(&cards[host[rt->rank]].memory)) >= 0;
    if (rt_mpi_job_gather(job, cards, &mine, sizeof mine)) return fail(rt, "MPI_Allgather failed");
    for (int r = 0; r < rt->world; r++)
        if (!cards[r].ok)
            return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT,
                                "rank %d cannot share memory with rank %d, which is on the same host, but of another "
                                "user or container: set " RT_HOST_VARIABLE " to a name of its own there",
                                r, host[r]);
    return RT_OK;
}

static int connect(struct rt *rt, const int *host, int fd) {
    struct rt_comm *inside = NULL;
    RT_TRY(rt_open_segment(rt, fd, rt->internal->local_rank, rt->internal->local_world, &inside));
    if (!rt_mpi_job_connect(rt->internal->mpi, host, inside, &rt->comm)) return RT_OK;
    inside->driver->close(inside);
    rt->comm = NULL;
    return rt_fail_memory(rt);
}

static int join(struct rt *rt, struct seat *seats, struct card *cards, int *host) {
    int fd = -1, status;
    if (!seats || !cards || !host) return rt_fail_memory(rt);
    RT_TRY(gather_seats(rt, rt->internal->mpi, seats));
    find_hosts(rt, seats, host);
    status = share_memory(rt, rt->internal->mpi, host, cards, &fd);
    if (!status) status = connect(rt, host, fd);
    rt->internal->segment = fd;
    return status;
}

static int fail_callers(struct rt *rt, int status, const char *why) {
    const int code = status == RT_ERROR_USAGE ? RT_CODE_USAGE : RT_CODE_SEGMENT;
    return rt_fail_code(rt, status, code, "the caller's MPI communicator: %s", why);
}

int rt_adopt_mpi(struct rt *rt, const struct rt_options *options) {
    const char *name = options->comm;
    char why[320];
    if (name && strcmp(name, "auto") != 0 && strcmp(name, "mpi") != 0)
        return rt_fail(rt, RT_ERROR_USAGE, "transport '%s' with a caller's MPI communicator", name);
    const int status = rt_mpi_job_open(&rt->internal->mpi, options->mpi_comm, why, sizeof why);
    if (status) return fail_callers(rt, status, why);
    rt->rank = rt_mpi_job_rank(rt->internal->mpi);
    rt->world = rt_mpi_job_size(rt->internal->mpi);
    return RT_OK;
}

int rt_check_mpi_threads(struct rt *rt) {
    if (!rt->internal->mpi || !rt_mpi_job_single(rt->internal->mpi) || rt->threads == 1) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE,
                   "MPI was initialised with MPI_THREAD_SINGLE, but the kernels of this rank use %d threads: call "
                   "MPI_Init_thread with MPI_THREAD_FUNNELED, or set options.threads to 1",
                   rt->threads);
}

/* MPI of the launcher, which must count the ranks as the launcher's variables do. */
static int open_launchers(struct rt *rt) {
    char why[320];
    const int status = rt_mpi_job_open(&rt->internal->mpi, NULL, why, sizeof why);
    if (status == RT_ERROR_MISMATCH) return rt_fail_agreed(rt, why);
    if (status) return fail(rt, why);
    const int rank = rt_mpi_job_rank(rt->internal->mpi), size = rt_mpi_job_size(rt->internal->mpi);
    if (size == rt->world) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_WORLD,
                        "rank %d of %d is rank %d of %d for MPI: start the ranks with this MPI's launcher", rt->rank,
                        rt->world, rank, size);
}

int rt_join_mpi(struct rt *rt) {
    if (!rt->internal->mpi) RT_TRY(open_launchers(rt));
    struct seat *seats = calloc((size_t)rt->world, sizeof *seats);
    struct card *cards = calloc((size_t)rt->world, sizeof *cards);
    int *host = calloc((size_t)rt->world, sizeof *host);
    const int status = join(rt, seats, cards, host);
    free(seats);
    free(cards);
    free(host);
    return status;
}
