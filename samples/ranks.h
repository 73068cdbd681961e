/* Runs the ranks of a model as threads of this program, which communicate through shared memory. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rankc/rt.h>

struct rank {
    void *job;            /* the argument of all ranks */
    struct rt_comm *comm; /* for struct rt_options */
    pthread_t thread;
    int status; /* final status of the rank, and its error text */
    char error[256];
};

/* Calls run(struct rank *) for each rank of a job of `units` scale units, on its own thread. Returns 0, or 1 after
 * printing an error. A rank that fails must abort its communicator; otherwise the other ranks wait for it. */
static int run_ranks(const struct rt_program *program, int units, void *(*run)(void *rank), void *job) {
    const int world = program->plan_ngpus * units;
    const size_t symmetric = rt_program_symmetric(program), bytes = rt_comm_shared_bytes(world, symmetric);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* zeros */
    struct rank *ranks = calloc((size_t)world, sizeof *ranks);
    int failed = segment == MAP_FAILED || !ranks;
    for (int r = 0; !failed && r < world; r++) {
        ranks[r].job = job;
        failed = rt_comm_open_shared(&ranks[r].comm, segment, r, world, symmetric);
    }
    if (failed) {
        fprintf(stderr, "%s: no memory for %d ranks\n", program->name, world);
        return 1;
    }
    for (int r = 0; r < world; r++) pthread_create(&ranks[r].thread, NULL, run, &ranks[r]);
    for (int r = 0; r < world; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (ranks[r].status && ranks[r].status != RT_ERROR_PEER)
            fprintf(stderr, "%s: rank %d: %s\n", program->name, r, ranks[r].error);
        failed |= ranks[r].status;
        ranks[r].comm->driver->close(ranks[r].comm);
    }
    munmap(segment, bytes);
    free(ranks);
    return failed != 0;
}
