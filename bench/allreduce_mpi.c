/* Times an MPI library's all-reduce like allreduce.c times rankc's: mpirun -n RANKS allreduce_mpi BYTES REPEAT. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARMUP = 3 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double reduce_once(float *dst, const float *src, int count) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), mine, slowest;
    MPI_Allreduce(src, dst, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    mine = (MPI_Wtime() - begin) * 1e3;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    int count = (int)(strtoull(argv[1], NULL, 10) / 4096 * 4096 / sizeof(float)), repeat = atoi(argv[2]);
    if (count < 1 || repeat < 1) MPI_Abort(MPI_COMM_WORLD, 2);
    size_t bytes = (size_t)count * sizeof(float);
    float *src = aligned_alloc(4096, bytes), *dst = aligned_alloc(4096, bytes);
    double *ms = malloc((size_t)repeat * sizeof *ms);
    if (!src || !dst || !ms) MPI_Abort(MPI_COMM_WORLD, 6);
    for (int i = 0; i < count; i++) src[i] = (float)(rank + 1), dst[i] = 0;
    for (int i = -WARMUP; i < repeat; i++) {
        double slowest = reduce_once(dst, src, count);
        if (i >= 0) ms[i] = slowest;
    }
    qsort(ms, (size_t)repeat, sizeof *ms, ascending);
    if (rank == 0)
        printf("{\"step_ms\": {\"min\": %.6f, \"median\": %.6f, \"max\": %.6f}}\n", ms[0], ms[repeat / 2],
               ms[repeat - 1]);
    MPI_Finalize();
    return 0;
}
