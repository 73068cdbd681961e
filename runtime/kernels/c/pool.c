#include "kernels.h"

#include "conv_shape.h"
#include "internal.h"

#include <math.h>

/* Row by row of y: each window element adds its row of x to it, vectors of neighbours at a time. */

/* How many window elements, from a window that begins at `at`, lie in [least, end). */
static int64_t count_inside(int64_t at, int64_t k, int64_t dilation, int64_t least, int64_t end) {
    int64_t count = 0;
    if (at >= least && at + (k - 1) * dilation < end) return k;
    for (int64_t i = 0; i < k; i++) count += at + i * dilation >= least && at + i * dilation < end;
    return count;
}

/* Planes and rows of the result, as one number. */
struct pool {
    struct rt_window window;
    int64_t rows, items;
    int64_t before[3], after[3]; /* padding that counts as elements of a mean */
};

static struct pool pool_of(struct rt_window window, const int64_t *y_dims) {
    struct pool pool = {.window = window, .rows = window.y[0] * window.y[1]};
    pool.items = window.y[2] ? y_dims[0] * y_dims[1] * pool.rows : 0;
    return pool;
}

static int pays(const struct pool *pool) {
    return (double)pool->items * (double)pool->window.y[2] * (double)pool->window.taps >= PARALLEL_WORK;
}

/* Elements that the window at o counts in dimension d. */
static int64_t counted(const struct pool *pool, int d, int64_t o) {
    const struct rt_window *w = &pool->window;
    return count_inside(rt_window_at(w, d, o, 0), w->k[d], w->dilation[d], -pool->before[d], w->x[d] + pool->after[d]);
}

/* The elements of a window that lie inside of x. */
struct inside {
    int64_t first[3], end[3];
};

static void find_inside(struct inside *inside, const struct rt_window *w, int d, int64_t o) {
    int64_t at = rt_window_at(w, d, o, 0), first = 0, end = w->k[d];
    while (first < end && at + first * w->dilation[d] < 0) first++;
    while (end > first && at + (end - 1) * w->dilation[d] >= w->x[d]) end--;
    inside->first[d] = first;
    inside->end[d] = end;
}

#define T        float
#define SUFFIX   f32
#define INFINITE INFINITY
#include "pool.inc"

#define T        double
#define SUFFIX   f64
#define INFINITE (double)INFINITY
#include "pool.inc"
