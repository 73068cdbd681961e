/* How a rank finds out its number and joins the job's communicator. */
#include "core/private.h"

#include "base/io/location.h"
#include "comm/comm_shared.h"
#include "comm/join_mpi.h"
#include "comm/mpi_library.h"
#include "comm/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Environment variables of launchers, in order of precedence. */
static const struct launcher {
    const char *rank, *world, *local, *local_world;
} launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, /* torchrun */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},                                 /* Open MPI */
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, /* MPICH */
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL},        /* srun */
};

#define JOIN_SECONDS 300

static bool parse_int(const char *text, int *out) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > RT_MAX_RANKS) return false;
    *out = (int)value;
    return true;
}

/* Ranks on this node, from SLURM_STEP_TASKS_PER_NODE, such as "2(x3),1" (tasks of each node in turn); 0: not known. */
static int slurm_local_world(void) {
    const char *at = getenv("SLURM_STEP_TASKS_PER_NODE"), *node_text = getenv("SLURM_NODEID");
    int node, tasks, times, used;
    if (!at || !node_text || !parse_int(node_text, &node)) return 0;
    for (; sscanf(at, "%d%n", &tasks, &used) == 1 && tasks > 0; at += *at == ',') {
        at += used;
        times = 1;
        if (sscanf(at, "(x%d)%n", &times, &used) == 1) at += used;
        if (node < times) return tasks;
        node -= times;
    }
    return 0;
}

/* The number in a variable of a launcher, `otherwise` where it is not set. False, with the reason, if it is none. */
static bool read_number(const char *variable, int otherwise, int *number, struct rt_reason *why) {
    const char *text = variable ? getenv(variable) : NULL;
    *number = otherwise;
    return !text || parse_int(text, number) ||
           rt_refuse(why, "%s is '%s', not a number of at most %d", variable, rt_quote_text(text).text, RT_MAX_RANKS);
}

static bool read_seat(const struct launcher *launcher, struct rt_seat *seat, struct rt_reason *why) {
    if (!read_number(launcher->rank, 0, &seat->rank, why) || !read_number(launcher->world, 1, &seat->world, why) ||
        !read_number(launcher->local, seat->rank, &seat->local, why) ||
        !read_number(launcher->local_world, launcher->local_world ? 0 : slurm_local_world(), &seat->local_world, why))
        return false;
    if (seat->rank >= seat->world)
        return rt_refuse(why, "%s is %d, but %s is %d", launcher->rank, seat->rank, launcher->world, seat->world);
    return seat->local_world <= seat->world || rt_refuse(why, "more ranks on this machine (%d) than %s, %d",
                                                         seat->local_world, launcher->world, seat->world);
}

bool rt_seat_from_environment(struct rt_seat *seat, struct rt_reason *why) {
    why->text[0] = 0;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (!getenv(launchers[i].rank) || !getenv(launchers[i].world)) continue;
        read_seat(&launchers[i], seat, why);
        return true;
    }
    return false;
}

bool rt_reaches(const struct rt_rank_class *class, enum rt_arena arena) {
    bool fixed = arena == RT_COMMUNICATION || arena == RT_GRADIENTS;
    for (int i = 0; i < class->nflats; i++) fixed = fixed && class->flats[i].arena != arena;
    return fixed;
}

size_t rt_symmetric_bytes(const struct rt_rank_class *class) {
    size_t bytes = 0;
    for (int a = 0; a < RT_ARENAS; a++) bytes += rt_reaches(class, (enum rt_arena)a) ? class->bytes[a] : 0;
    return bytes;
}

size_t rt_program_symmetric(const struct rt_program *program) {
    size_t most = 0;
    for (int c = 0; c < program->nclasses && !program->device->remote; c++) {
        const size_t bytes = rt_symmetric_bytes(&program->classes[c]);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* The caller's options take precedence. If the launcher's environment gives the same rank, it supplies the number on
 * this machine. */
static int find_rank(struct rt *rt, const struct rt_options *options) {
    struct rt_seat seat = {0, 1, 0, 1};
    struct rt_reason why;
    bool found = rt_seat_from_environment(&seat, &why);
    if (options->world > 0) {
        found = found && !why.text[0] && seat.rank == options->rank && !getenv(RT_SHM_FD_VARIABLE);
        seat = (struct rt_seat){options->rank, options->world, found ? seat.local : options->rank,
                                found ? seat.local_world : 0};
        why.text[0] = 0;
    }
    rt->rank = seat.rank;
    rt->world = seat.world;
    rt->internal->local_rank = seat.local;
    rt->internal->local_world = seat.local_world;
    if (why.text[0]) return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_WORLD, "%s", why.text);
    if (rt->rank >= 0 && rt->rank < rt->world) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_WORLD, "invalid rank %d of %d rank(s)", rt->rank, rt->world);
}

/* The launcher made the segment without its symmetric part, sealed against shrinking: ranks may grow it concurrently,
 * and no mapping loses pages. */
static int grow_segment(struct rt *rt, int fd, size_t bytes) {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_SEGMENT, RT_SHM_FD_VARIABLE " does not refer to shared memory");
    if ((size_t)status.st_size >= bytes || ftruncate(fd, (off_t)bytes) == 0) return RT_OK;
    int error = errno;
    if (fstat(fd, &status) == 0 && (size_t)status.st_size >= bytes) return RT_OK; /* another rank has grown it */
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT, "cannot allocate %zu bytes of shared memory: %s", bytes,
                        strerror(error));
}

int rt_open_segment(struct rt *rt, int fd, int rank, int size, struct rt_comm **out) {
    struct rt_private *private = rt->internal;
    const size_t symmetric = rt_program_symmetric(rt->program), bytes = rt_comm_shared_bytes(size, symmetric);
    RT_TRY(grow_segment(rt, fd, bytes));
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (segment == MAP_FAILED)
        return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_SEGMENT, "cannot map %zu bytes of shared memory: %s", bytes,
                            strerror(errno));
    private->mapping = segment;
    private->mapping_bytes = bytes;
    int status = rt_comm_open_shared(out, segment, rank, size, symmetric);
    if (status == RT_ERROR_MISMATCH)
        return rt_fail_code(rt, status, RT_CODE_KEY, "rank %d runs another program than the job's other ranks",
                            rt->rank);
    return status ? rt_fail(rt, status, "cannot open the shared memory of %d rank(s)", size) : RT_OK;
}

static int join_segment(struct rt *rt, int fd) {
    return rt_open_segment(rt, fd, rt->rank, rt->world, &rt->comm);
}

static int join_launched(struct rt *rt, const char *fd_text) {
    int fd;
    if (parse_int(fd_text, &fd)) return join_segment(rt, fd);
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_SEGMENT, RT_SHM_FD_VARIABLE " is not a file descriptor");
}

/* Rendezvous of ranks that were started one by one. */
static int join_meeting(struct rt *rt, const struct rt_options *options) {
    int fd = -1;
    RT_TRY(rt_meet(rt, options->rendezvous, options->join_timeout > 0 ? options->join_timeout : JOIN_SECONDS, &fd));
    int status = join_segment(rt, fd);
    if (!status) status = rt_meeting_watch(rt, rt->internal->mapping);
    if (options->segment && !status)
        *options->segment = fd;
    else
        close(fd);
    return status;
}

/* True if an MPI launcher says that it has started ranks on other hosts, and no rendezvous is given. */
static bool mpi_spans_hosts(const struct rt *rt, const struct rt_options *options) {
    return rt_mpi_launched() && rt->internal->local_world > 0 && rt->internal->local_world < rt->world &&
           !options->rendezvous && !getenv("MASTER_ADDR");
}

static int join_by_name(struct rt *rt, const struct rt_options *options, const char *name) {
    const char *fd = getenv(RT_SHM_FD_VARIABLE);
    const bool self = strcmp(name, "self") == 0, shm = strcmp(name, "shm") == 0;
    if (strcmp(name, "mpi") == 0 || (strcmp(name, "auto") == 0 && mpi_spans_hosts(rt, options))) return rt_join_mpi(rt);
    if (!self && !shm && strcmp(name, "auto") != 0)
        return rt_fail(rt, RT_ERROR_USAGE, "transport '%s' is not available here", name);
    if (!self && fd) return join_launched(rt, fd);
    if (self && rt->world > 1)
        return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_WORLD,
                            "transport self is for a single rank, not for rank %d of %d", rt->rank, rt->world);
    if (rt->world > 1) return join_meeting(rt, options);
    return rt_comm_open_self(&rt->comm) ? rt_fail_memory(rt) : RT_OK;
}

int rt_local_rank(const struct rt *rt) {
    return rt ? rt->internal->local_rank : -1;
}

int rt_join(struct rt *rt, const struct rt_options *options) {
    const char *name = options->comm ? options->comm : "auto";
    if (options->segment) *options->segment = -1;
    if (options->joined) {
        rt->comm = options->joined;
        rt->rank = rt->internal->local_rank = rt->comm->rank;
        rt->world = rt->internal->local_world = rt->comm->size;
    } else if (options->mpi_comm) {
        RT_TRY(rt_adopt_mpi(rt, options));
    } else {
        RT_TRY(find_rank(rt, options));
    }
    if (!rt_ranks_fit(rt->world, rt->program->plan_ngpus))
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_WORLD, RT_RANKS_DO_NOT_FIT, rt->program->name,
                            rt->program->plan_ngpus, RT_MAX_RANKS, rt->world);
    if (options->joined) return RT_OK;
    rt->internal->owns_comm = true;
    return options->mpi_comm ? rt_join_mpi(rt) : join_by_name(rt, options, name);
}
