/* Random numbers as a function of an element's index: Note [Masks]. */
#include "kernels.h"

#include "../../base/number/philox.h"
#include "internal.h"

#include <string.h>

/* Note [Masks]
 * The random number of an element is word i % 4 of Philox block i / 4, where i is the element's index in the complete
 * tensor, the stream is made of step and micro-batch, and the key is the operator's. So a mask does not depend on how
 * the tensor is cut or in which order it is computed, and the backward pass computes it again instead of storing it. */
enum { RUN = 4096 }; /* elements that a thread takes at once */

/* Runs of `length` elements that are contiguous both in the part and in the complete tensor. */
struct runs {
    int outer; /* dimensions that lead from one to the next */
    int64_t length, count;
};

static struct runs find_runs(const struct rt_region *region) {
    struct runs runs = {.outer = region->ndim, .length = 1, .count = 1};
    int whole = 1;
    while (runs.outer > 0 && whole) {
        const int d = --runs.outer;
        runs.length *= region->dims[d];
        whole = region->dims[d] == region->whole[d];
    }
    for (int d = 0; d < runs.outer; d++) runs.count *= region->dims[d];
    return runs;
}

/* Index of the run's first element in the complete tensor. */
static int64_t place_of(const struct rt_region *region, const struct runs *runs, int64_t run) {
    int64_t place = 0, stride = 1;
    for (int d = region->ndim - 1; d >= 0; d--) {
        int64_t at = region->starts[d];
        if (d < runs->outer) at += run % region->dims[d], run /= region->dims[d];
        place += at * stride;
        stride *= region->whole[d];
    }
    return place;
}

/* Parameters of a step's random choices. */
struct draw {
    uint64_t stream, key, least; /* a word below `least` drops its element */
};

#define DEFINE_DROPOUT(T, s)                                                                                           \
    static void drop_##s(T *y, const T *x, int64_t n, uint64_t place, const struct draw *draw, T scale) {              \
        struct rt_philox block = rt_philox_at(place / 4, draw->stream, draw->key);                                     \
        for (int64_t i = 0; i < n; i++, place++) {                                                                     \
            if (place % 4 == 0) block = rt_philox_at(place / 4, draw->stream, draw->key);                              \
            y[i] = x[i] * (block.word[place % 4] < draw->least ? 0 : scale);                                           \
        }                                                                                                              \
    }                                                                                                                  \
    void rt_dropout_##s(T *y, const T *x, const double *training, const double *step, const double *micro,             \
                        const struct rt_region *region, double ratio, int64_t key) {                                   \
        const struct runs runs = find_runs(region);                                                                    \
        const int64_t pieces = (runs.length + RUN - 1) / RUN;                                                          \
        const struct draw draw = {(uint64_t)*step << 32 | (uint32_t)*micro, (uint64_t)key,                             \
                                  (uint64_t)(ratio * 4294967296.0)};                                                   \
        if (*training == 0 || ratio == 0) {                                                                            \
            if (y != x && runs.count * runs.length > 0) memcpy(y, x, (size_t)(runs.count * runs.length) * sizeof *y);  \
            return;                                                                                                    \
        }                                                                                                              \
        _Pragma(                                                                                                       \
            "omp parallel for schedule(static) if (runs.count * runs.length >= PARALLEL_WORK)") for (int64_t piece =   \
                                                                                                         0;            \
                                                                                                     piece <           \
                                                                                                     runs.count *      \
                                                                                                         pieces;       \
                                                                                                     piece++) {        \
            const int64_t run = piece / pieces, from = piece % pieces * RUN, at = run * runs.length + from;            \
            drop_##s(y + at, x + at, min_i64(RUN, runs.length - from),                                                 \
                     (uint64_t)(place_of(region, &runs, run) + from), &draw, (T)(1 / (1 - ratio)));                    \
        }                                                                                                              \
    }

DEFINE_DROPOUT(float, f32)
DEFINE_DROPOUT(double, f64)

#define DEFINE_UNIFORM(T, s, SPARE)                                                                                    \
    static void draw_##s(T *y, int64_t n, uint64_t place, const struct draw *draw) {                                   \
        struct rt_philox block = rt_philox_at(place / 4, draw->stream, draw->key);                                     \
        for (int64_t i = 0; i < n; i++, place++) {                                                                     \
            if (place % 4 == 0) block = rt_philox_at(place / 4, draw->stream, draw->key);                              \
            y[i] = ((T)(block.word[place % 4] >> SPARE) + (T)0.5) * (T)(1.0 / (UINT64_C(1) << (32 - SPARE)));          \
        }                                                                                                              \
    }                                                                                                                  \
    void rt_uniform_##s(T *y, const double *step, const double *micro, const struct rt_region *region, int64_t key) {  \
        const struct runs runs = find_runs(region);                                                                    \
        const int64_t pieces = (runs.length + RUN - 1) / RUN;                                                          \
        const struct draw draw = {(uint64_t)*step << 32 | (uint32_t)*micro, (uint64_t)key, 0};                         \
        _Pragma(                                                                                                       \
            "omp parallel for schedule(static) if (runs.count * runs.length >= PARALLEL_WORK)") for (int64_t piece =   \
                                                                                                         0;            \
                                                                                                     piece <           \
                                                                                                     runs.count *      \
                                                                                                         pieces;       \
                                                                                                     piece++) {        \
            const int64_t run = piece / pieces, from = piece % pieces * RUN;                                           \
            draw_##s(y + run * runs.length + from, min_i64(RUN, runs.length - from),                                   \
                     (uint64_t)(place_of(region, &runs, run) + from), &draw);                                          \
        }                                                                                                              \
    }

DEFINE_UNIFORM(float, f32, 9)
DEFINE_UNIFORM(double, f64, 0)
