/* What a read of memory reaches on this machine, now: stream THREADS prints GB/s, the best of several reads of 1 GiB.
 */
#define _DEFAULT_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BYTES ((size_t)1 << 30)
#define TIMES 7
#define LANES 16

typedef float vector __attribute__((vector_size(LANES * 4)));

static float sum_of(const vector *from, size_t n) {
    vector sum[8] = {0};
    for (size_t i = 0; i < n; i += 8)
        for (int v = 0; v < 8; v++) sum[v] += from[i + (size_t)v];
    for (int v = 1; v < 8; v++) sum[0] += sum[v];
    return sum[0][0];
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    vector *memory = aligned_alloc(1 << 21, BYTES);
    const size_t n = BYTES / sizeof *memory;
    double best = 0;
    float sink = 0;
    if (!memory || threads < 1) return 2;
    madvise(memory, BYTES, MADV_HUGEPAGE);
    omp_set_num_threads(threads);
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) memory[i] = (vector){0} + 1;
    for (int time = 0; time < TIMES; time++) {
        const double begin = omp_get_wtime();
#pragma omp parallel reduction(+ : sink)
        {
            const size_t share = n / (size_t)threads / 8 * 8;
            sink += sum_of(memory + share * (size_t)omp_get_thread_num(), share);
        }
        const double rate = (double)BYTES / (omp_get_wtime() - begin) / 1e9;
        if (rate > best) best = rate;
    }
    printf("%.1f\n", best);
    return sink == 0; /* it is not, but that the compiler must not know */
}
