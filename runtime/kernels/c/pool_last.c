#include "conv.h"

#include "pool.h"
#include "types.h"

/* Pooling of channels last: a block of channels stays in registers while the elements of a window are combined, in the
 * order of pool.c. */
enum { BLOCK = 32, NARROW = 8 };

struct pool_last {
    struct rt_window window;
    int64_t channels, lines; /* lines of y, of all samples */
    struct rt_pool_padding padding;
};

static struct pool_last pool_of(int ndim, const int64_t *x_dims, const int64_t *y_dims, const int64_t *window,
                                const int64_t *stride, const int64_t *dilation, const int64_t *begin) {
    struct pool_last pool = {.window = rt_window_last(ndim, x_dims, window, y_dims, stride, dilation, begin),
                             .channels = y_dims[ndim - 1]};
    pool.lines = y_dims[0] * pool.window.y[0] * pool.window.y[1];
    return pool;
}

static int pays(const struct pool_last *pool) {
    const struct rt_window *w = &pool->window;
    return (double)pool->lines * (double)w->y[2] * (double)pool->channels * (double)w->taps >= PARALLEL_WORK;
}

#define T     TYPE(SUFFIX)
#define PART  "larger.inc"
#define TYPES FLOATS
#include "each.inc"

#define PART  "pool_last.inc"
#define TYPES FLOATS
#include "each.inc"
