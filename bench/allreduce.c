/* Times rankc's shared-memory all-reduce: allreduce RANKS BYTES REPEAT staged|symmetric.
 *
 * Sums f32 out of place. Buffers are private memory (staged through the segment) or lie in the ranks' symmetric
 * memory, as those of compiled programs do. A repetition is timed from a barrier to the slowest rank's end, like
 * that of allreduce_mpi.c; the result is checked. Prints {"step_ms": {min, median, max}}. */
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, WARMUP = 3 };

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(int status, const char *what) {
    if (!status) return;
    fprintf(stderr, "allreduce: %s failed with status %d\n", what, status);
    exit(1);
}

static void print_times(double *ms, int count) {
    qsort(ms, (size_t)count, sizeof *ms, ascending);
    printf("{\"step_ms\": {\"min\": %.6f, \"median\": %.6f, \"max\": %.6f}}\n", ms[0], ms[count / 2], ms[count - 1]);
}

/* One timed all-reduce; the time of the slowest rank. */
static double reduce_once(struct rt_comm *comm, float *dst, const float *src, size_t count) {
    check(comm->driver->barrier(comm), "barrier");
    double begin = now_ms();
    check(comm->driver->all_reduce(comm, dst, src, count, RT_F32, RT_SUM), "all_reduce");
    double mine = now_ms() - begin, slowest;
    check(comm->driver->all_reduce(comm, &slowest, &mine, 1, RT_F64, RT_MAX), "all_reduce of times");
    return slowest;
}

static void rank_main(struct rt_comm *comm, size_t count, int repeat, int symmetric) {
    size_t bytes = count * sizeof(float);
    float *src = symmetric ? rt_comm_segment(comm) : aligned_alloc(4096, 2 * bytes), *dst = src + count;
    double *ms = malloc((size_t)repeat * sizeof *ms);
    if (!src || !ms) check(1, "malloc");
    for (size_t i = 0; i < count; i++) src[i] = (float)(comm->rank + 1), dst[i] = 0;
    for (int i = -WARMUP; i < repeat; i++) {
        double slowest = reduce_once(comm, dst, src, count);
        if (i >= 0) ms[i] = slowest;
    }
    for (size_t i = 0; i < count; i++) check(dst[i] != (float)(comm->size * (comm->size + 1) / 2), "comparison");
    if (comm->rank == 0) print_times(ms, repeat);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int ranks = atoi(argv[1]), repeat = atoi(argv[3]), symmetric = strcmp(argv[4], "symmetric") == 0, status, bad = 0;
    size_t count = strtoull(argv[2], NULL, 10) / 4096 * 4096 / sizeof(float);
    size_t shared = symmetric ? 2 * count * sizeof(float) : 0;
    if (ranks < 1 || ranks > MAX_RANKS || repeat < 1 || count == 0) return 2;
    void *segment = mmap(NULL, rt_comm_shared_bytes(ranks, shared), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(segment == MAP_FAILED, "mmap");
    for (int rank = 0; rank < ranks; rank++) {
        if (fork() > 0) continue;
        struct rt_comm *comm;
        check(rt_comm_open_shared(&comm, segment, rank, ranks, shared), "open");
        rank_main(comm, count, repeat, symmetric);
        exit(0);
    }
    while (wait(&status) > 0) bad |= status != 0;
    return bad;
}
