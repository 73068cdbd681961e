/* Peak of fused multiply-adds in f32 on this machine, now: fma THREADS prints one JSON number, GFLOP/s.
 * The best of several short bursts, with vectors as wide as the compiler was told the machine has. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#if defined __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define STEPS       2000000
#define BURSTS      9
#define MAX_THREADS 64

typedef float vector __attribute__((vector_size(LANES * 4)));

/* Independent sums, by name so that they stay in registers: more than latency times units, 4 times 2. */
#define SUMS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define COUNT    12

/* start: not known to the compiler, which else leaves out a sum that does not change (1 * 0.999 + 0.001 is 1). */
static float burst(float start) {
    vector a = (vector){0} + 0.999f, b = (vector){0} + 1e-3f;
#define DECLARE(i) vector sum##i = (vector){0} + start + i;
    SUMS(DECLARE)
    for (int step = 0; step < STEPS; step++) {
#define STEP(i) sum##i = sum##i * a + b;
        SUMS(STEP)
    }
    vector all = {0};
#define GATHER(i) all += sum##i;
    SUMS(GATHER)
    return all[0];
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    double best = 0, sink = 0;
    if (threads < 1 || threads > MAX_THREADS) return 2;
    for (int i = 0; i < BURSTS; i++) {
        double begin = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : sink)
        sink += burst((float)threads);
        double rate = 2.0 * LANES * COUNT * STEPS * threads / (omp_get_wtime() - begin) / 1e9;
        if (rate > best) best = rate;
    }
    printf("%.1f\n", best);
    return sink == 0; /* it is not, but that the compiler must not know */
}
