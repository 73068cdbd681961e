#include "c/kernels.h"

#include "../generated.h"
#include "gemm.h"

#include <omp.h>
#include <string.h>

int rt_kernels_select(struct rt *rt, const char *name) {
    static const struct {
        const char *name;
        int reference, tf32;
    } sets[] = {{"auto", 0, 0}, {"reference", 1, 0}, {"tf32", 0, 1}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (strcmp(sets[i].name, name ? name : "auto") != 0) continue;
        rt->reference_kernels = sets[i].reference;
        rt->tf32 = sets[i].tf32;
        return 0;
    }
    return -1;
}

int rt_kernels_threads(int threads) {
    int before = omp_get_max_threads();
#ifdef RT_HAS_TEAMS
    rt_team_set_threads(threads < 1 ? 1 : threads);
#else
    omp_set_num_threads(threads < 1 ? 1 : threads);
#endif
    return before;
}

/* The probe: one product, and every way of computing its first `rows` rows and `columns` columns must give the same
 * bits. k is more than one block of any library's. */
#define M 17
#define K 395
#define N 37

struct probe {
    float a[M * K], b[K * N], turned_a[K * M], turned_b[N * K], y[M * N];
};

static void probe_fill(struct probe *probe) {
    for (int i = 0; i < M * K; i++) probe->a[i] = (float)(i * 7919 % 1009) / 1009 - 0.5f;
    for (int i = 0; i < K * N; i++) probe->b[i] = (float)(i * 6101 % 1013) / 1013 - 0.5f;
    for (int i = 0; i < M; i++)
        for (int p = 0; p < K; p++) probe->turned_a[p * M + i] = probe->a[i * K + p];
    for (int p = 0; p < K; p++)
        for (int j = 0; j < N; j++) probe->turned_b[j * K + p] = probe->b[p * N + j];
    rt_gemm_library_f32(probe->y, N, probe->a, K, 0, probe->b, N, 0, M, K, N);
}

static int probe_agrees(const struct probe *probe, int rows, int columns, int trans_a, int trans_b) {
    float y[M * N];
    const float *a = trans_a ? probe->turned_a : probe->a, *b = trans_b ? probe->turned_b : probe->b;
    if (rt_gemm_library_f32(y, N, a, trans_a ? M : K, trans_a, b, trans_b ? K : N, trans_b, rows, K, columns)) return 0;
    for (int i = 0; i < rows; i++)
        if (memcmp(y + i * N, probe->y + i * N, (size_t)columns * sizeof *y) != 0) return 0;
    return 1;
}

int rt_kernels_invariant(const struct rt *rt) {
    static const int rows[] = {1, 2, 3, 8, M}, columns[] = {1, 2, 7, 16, 33, N};
    struct probe probe;
    if (rt->reference_kernels || !rt_gemm_library_present()) return 1;
    probe_fill(&probe);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++)
            for (int trans = 0; trans < 4; trans++)
                if (!probe_agrees(&probe, rows[i], columns[j], trans & 1, trans >> 1)) return 0;
    return 1;
}
