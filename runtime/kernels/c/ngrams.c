#include "kernels.h"

#include "internal.h"
#include "ngrams.h"

void rt_count_ngrams(int64_t *y, const int64_t *x, const int64_t *grams, int64_t n, int64_t c, int64_t g, int64_t l,
                     int64_t distances) {
    const int64_t counts = n * g;
#pragma omp parallel for num_threads(rt_pieces(counts)) if (counts * c >= PARALLEL_WORK)
    for (int64_t i = 0; i < counts; i++) y[i] = rt_ngrams_in(x + i / g * c, grams + i % g * l, c, l, distances);
}
