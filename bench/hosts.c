/* Times collectives among ranks on several hosts: mpirun -n RANKS hosts LETTERS BYTES REPEAT.
 *
 * LETTERS has a letter per rank; ranks of one letter share memory, as those of one host do, and the others are reached
 * by MPI. BYTES: of the whole data, in symmetric memory. Rank 0 prints the least and the median time of an all-gather
 * and of a reduce-scatter (f32) in ms, from a barrier to the end of the slowest rank. Linked with
 * tests/runtime/ranks_mpi.c. */
#include "tests/runtime/ranks_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_RANKS = 16, WARMUP = 3 };

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(int status) {
    if (!status) return;
    fprintf(stderr, "hosts: status %d\n", status);
    exit(1);
}

/* counts: elements by rank. */
static void call(struct rt_comm *comm, int gathers, float *whole, float *part, const size_t *counts) {
    size_t bytes[MOST_RANKS];
    for (int r = 0; r < comm->size; r++) bytes[r] = counts[r] * sizeof(float);
    check(gathers ? comm->driver->all_gather(comm, whole, part, bytes)
                  : comm->driver->reduce_scatter(comm, part, whole, counts, RT_F32, RT_SUM, false));
}

static void measure(struct rt_comm *comm, int gathers, size_t count, int repeat) {
    size_t counts[MOST_RANKS];
    float *whole = rt_comm_segment(comm), *part = whole + count;
    double *ms = calloc((size_t)repeat, sizeof *ms), slowest;
    if (!whole || !part || !ms) check(RT_ERROR_SYSTEM);
    for (int r = 0; r < comm->size; r++) counts[r] = count / (size_t)comm->size;
    for (int i = -WARMUP; i < repeat; i++) {
        check(comm->driver->barrier(comm));
        const double begin = now_ms();
        call(comm, gathers, whole, part, counts);
        const double mine = now_ms() - begin;
        check(comm->driver->all_reduce(comm, &slowest, &mine, 1, RT_F64, RT_MAX));
        if (i >= 0) ms[i] = slowest;
    }
    qsort(ms, (size_t)repeat, sizeof *ms, ascending);
    if (comm->rank == 0) printf("%s %.3f %.3f\n", gathers ? "all-gather" : "reduce-scatter", ms[0], ms[repeat / 2]);
    free(ms);
}

int main(int argc, char **argv) {
    struct rt_mpi_job *job;
    struct rt_comm *comm;
    if (argc != 4 || mpi_ranks_open(argv[1], 2 * strtoull(argv[2], NULL, 10) + 64, &job, &comm)) return 2;
    measure(comm, 1, strtoull(argv[2], NULL, 10) / sizeof(float), atoi(argv[3]));
    measure(comm, 0, strtoull(argv[2], NULL, 10) / sizeof(float), atoi(argv[3]));
    fflush(stdout);
    comm->driver->close(comm);
    rt_mpi_job_close(job, false);
    return 0;
}
