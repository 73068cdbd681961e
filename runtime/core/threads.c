/* A job whose ranks are threads of the process: for embedders (rt_run_threads) and for --comm loopback. */
#include "core/private.h"

#include "base/io/location.h"
#include "comm/comm_shared.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct spawned {
    struct rt_comm *comm;
    pthread_t thread;
    void (*run)(struct rt_comm *comm, void *context);
    void *context;
};

/* The communicator is closed at once: ranks that wait for this one must not wait for ever. */
static void *run_spawned(void *argument) {
    struct spawned *rank = argument;
    rank->run(rank->comm, rank->context);
    rank->comm->driver->close(rank->comm);
    rank->comm = NULL;
    return NULL;
}

static int start_and_wait(struct spawned *ranks, int world, void *segment, size_t symmetric) {
    int error = 0, started = 0;
    for (int r = 0; r < world && !error; r++) {
        if (rt_comm_open_shared(&ranks[r].comm, segment, r, world, symmetric)) error = ENOMEM;
        if (!error) error = pthread_create(&ranks[r].thread, NULL, run_spawned, &ranks[r]);
        if (!error) started++;
    }
    if (error) atomic_store(&rt_shared_header(segment)->aborted, 1);
    for (int r = 0; r < started; r++) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < world; r++)
        if (ranks[r].comm) ranks[r].comm->driver->close(ranks[r].comm);
    return error;
}

int rt_spawn_ranks(const struct rt_program *program, int world, void (*run)(struct rt_comm *comm, void *context),
                   void *context) {
    const size_t symmetric = rt_program_symmetric(program), bytes = rt_comm_shared_bytes(world, symmetric);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct spawned *ranks = calloc((size_t)world, sizeof *ranks);
    int error = segment == MAP_FAILED || !ranks ? ENOMEM : 0;
    for (int r = 0; r < world && !error; r++) ranks[r].run = run, ranks[r].context = context;
    if (!error) error = start_and_wait(ranks, world, segment, symmetric);
    if (segment != MAP_FAILED) munmap(segment, bytes);
    free(ranks);
    return error;
}

struct embedded {
    const struct rt_program *program;
    const struct rt_options *options;
    int (*run)(struct rt *rt, void *context);
    void *context;
    struct result {
        int status, code;
        char text[sizeof((struct rt_private *)0)->error];
    } * results; /* of each rank */
};

static void run_embedded(struct rt_comm *comm, void *context) {
    const struct embedded *job = context;
    struct result *result = &job->results[comm->rank];
    struct rt_options options = *job->options;
    struct rt *rt = NULL;
    options.joined = comm;
    options.mpi_comm = options.nccl_comm = options.cuda_stream = NULL;
    options.segment = NULL;
    result->status = rt_open(&rt, job->program, &options);
    if (!result->status) {
        rt->internal->embedded = true;
        result->status = job->run(rt, job->context);
        rt->internal->embedded = false;
        if (!result->status && rt->internal->misclosed) result->status = rt_refuse_close(rt);
    }
    if (result->status) {
        snprintf(result->text, sizeof result->text, "%s", rt_error(rt));
        result->code = rt_error_code(rt);
        comm->driver->abort(comm); /* otherwise the other ranks wait for this one */
    }
    rt_close(rt);
}

/* The first failed rank whose error is not that another rank failed; -1: none failed. */
static int first_cause(const struct result *results, int world) {
    int cause = -1;
    for (int r = 0; r < world; r++)
        if (results[r].status &&
            (cause < 0 || (results[cause].status == RT_ERROR_PEER && results[r].status != RT_ERROR_PEER)))
            cause = r;
    return cause;
}

static int report_cause(const struct result *results, int world) {
    const int cause = first_cause(results, world);
    if (cause < 0) return RT_OK;
    const struct result *result = &results[cause];
    if (!result->text[0])
        return rt_fail_open(result->status, result->code, "rank %d: status %d", cause, result->status);
    return rt_fail_open(result->status, result->code, "rank %d: %s", cause, result->text);
}

int rt_run_threads(const struct rt_program *program, const struct rt_options *options,
                   int (*run)(struct rt *rt, void *context), void *context) {
    static const struct rt_options none;
    RT_NEEDS(NULL, program);
    RT_NEEDS(NULL, run);
    struct embedded job = {program, options ? options : &none, run, context, NULL};
    const int world = job.options->world ? job.options->world : program->plan_ngpus;
    if (!rt_ranks_fit(world, program->plan_ngpus))
        return rt_fail_open(RT_ERROR_MISMATCH, RT_CODE_WORLD, RT_RANKS_DO_NOT_FIT, program->name, program->plan_ngpus,
                            RT_MAX_RANKS, world);
    job.results = calloc((size_t)world, sizeof *job.results);
    int error = job.results ? rt_spawn_ranks(program, world, run_embedded, &job) : ENOMEM;
    const int status =
        error ? rt_fail_open(RT_ERROR_SYSTEM, RT_CODE_MEMORY, "cannot start %d thread(s): %s", world, strerror(error))
              : report_cause(job.results, world);
    free(job.results);
    return status;
}
