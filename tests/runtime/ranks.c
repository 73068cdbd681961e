#define _GNU_SOURCE 1

#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const transport_names[TRANSPORTS] = {"self", "loopback", "shm"};

const struct rank_layer *rank_layer;

struct job {
    rank_fn *function;
    const void *argument;
    int ranks, memfd;
    size_t symmetric, bytes;
    void *segment;
};

struct rank {
    const struct job *job;
    int rank, failed;
    pthread_t thread;
};

static int run_above(struct rank_context *context, rank_fn *function, size_t symmetric) {
    struct rt_comm *host = context->comm;
    void *kept = NULL;
    if (!rank_layer) return function(context);
    CHECK(rank_layer->open(host, &context->comm, &kept) == RT_OK);
    context->memory = calloc(1, symmetric);
    const int failed = function(context);
    if (failed) context->comm->driver->abort(context->comm);
    free(context->memory);
    rank_layer->close(context->comm, kept);
    context->comm = host;
    return failed;
}

static int run_rank(const struct job *job, int rank, void *segment) {
    struct rank_context context = {.argument = job->argument};
    int status = segment ? rt_comm_open_shared(&context.comm, segment, rank, job->ranks, job->symmetric)
                         : rt_comm_open_self(&context.comm);
    int failed = status ? 1 : run_above(&context, job->function, job->symmetric);
    if (failed) fprintf(stderr, "rank %d of %d: %s\n", rank, job->ranks, status ? "cannot open" : context.why);
    if (failed && !status) context.comm->driver->abort(context.comm);
    if (!status) context.comm->driver->close(context.comm);
    return failed;
}

static void *run_thread(void *argument) {
    struct rank *rank = argument;
    rank->failed = run_rank(rank->job, rank->rank, rank->job->segment);
    return NULL;
}

static int run_threads(struct job *job, struct rank *ranks) {
    int failed = 0;
    job->segment = mmap(NULL, job->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (job->segment == MAP_FAILED) return job->ranks;
    for (int r = 0; r < job->ranks; r++) {
        ranks[r] = (struct rank){.job = job, .rank = r};
        if (pthread_create(&ranks[r].thread, NULL, run_thread, &ranks[r])) abort();
    }
    for (int r = 0; r < job->ranks; r++) {
        pthread_join(ranks[r].thread, NULL);
        failed += ranks[r].failed;
    }
    munmap(job->segment, job->bytes);
    return failed;
}

static int run_process(const struct job *job, int rank) {
    /* Every process has a mapping, and so addresses, of its own. */
    if (rank % 2) mmap(NULL, 4096 * (size_t)(rank + 1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *segment = mmap(NULL, job->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, job->memfd, 0);
    return segment == MAP_FAILED ? 1 : run_rank(job, rank, segment);
}

static int run_processes(struct job *job) {
    int failed = 0;
    job->memfd = memfd_create("test", MFD_CLOEXEC);
    if (job->memfd < 0 || ftruncate(job->memfd, (off_t)job->bytes) != 0) return job->ranks;
    fflush(NULL);
    for (int r = 0; r < job->ranks; r++) {
        pid_t pid = fork();
        if (pid < 0) abort();
        if (pid == 0) _exit(run_process(job, r));
    }
    for (int r = 0; r < job->ranks; r++) {
        int status;
        if (wait(&status) < 0) abort();
        failed += status != 0;
    }
    close(job->memfd);
    return failed;
}

int run_ranks(enum transport transport, int ranks, size_t symmetric, rank_fn *function, const void *argument) {
    struct job job = {.function = function,
                      .argument = argument,
                      .ranks = ranks,
                      .symmetric = symmetric,
                      .bytes = rt_comm_shared_bytes(ranks, symmetric)};
    if (transport == SELF) return run_rank(&job, 0, NULL);
    if (transport == SHM) return run_processes(&job);
    struct rank *list = calloc((size_t)ranks, sizeof *list);
    int failed = list ? run_threads(&job, list) : ranks;
    free(list);
    return failed;
}
