/* Random numbers as a function of an element's index: Note [Masks]. */
#include "kernels.h"

#include "../../base/number/philox.h"
#include "internal.h"
#include "types.h"

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
    uint64_t stream, key;
    uint64_t least; /* a word below drops its element */
    double scale;   /* of the others */
};

static struct draw draw_of(const double *step, const double *micro, int64_t key, double ratio) {
    return (struct draw){(uint64_t)*step << 32 | (uint32_t)*micro, (uint64_t)key, (uint64_t)(ratio * 4294967296.0),
                         1 / (1 - ratio)};
}

/* Elements [at, at + n) of the part, which begin at `place` in the complete tensor. */
typedef void fill_fn(void *y, const void *x, int64_t at, int64_t n, uint64_t place, const struct draw *draw);

static void fill(void *y, const void *x, const struct rt_region *region, const struct draw *draw, fill_fn *some) {
    const struct runs runs = find_runs(region);
    const int64_t pieces = parts_of(runs.length, RUN), all = runs.count * pieces;
#pragma omp parallel for num_threads(rt_pieces(all)) if (runs.count * runs.length >= PARALLEL_WORK)
    for (int64_t piece = 0; piece < all; piece++) {
        const int64_t run = piece / pieces, from = piece % pieces * RUN;
        some(y, x, run * runs.length + from, min_i64(RUN, runs.length - from),
             (uint64_t)(place_of(region, &runs, run) + from), draw);
    }
}

static int64_t elements_of(const struct rt_region *region) {
    const struct runs runs = find_runs(region);
    return runs.count * runs.length;
}

#define T     TYPE(SUFFIX)
#define PART  "random.inc"
#define TYPES FLOATS
#include "each.inc"
