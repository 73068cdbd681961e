#include "conv.h"

#include "conv_shape.h"
#include "internal.h"
#include "types.h"

/* Pooling of channels last: a block of channels stays in registers while the elements of a window are combined, in the
 * order of pool.c. */
enum { BLOCK = 32, NARROW = 8 };

struct pool_last {
    struct rt_window window;
    int64_t channels, lines;     /* lines of y, of all samples */
    int64_t before[3], after[3]; /* padding that counts as elements of a mean */
};

static struct pool_last pool_of(int ndim, const int64_t *x_dims, const int64_t *y_dims, const int64_t *window,
                                const int64_t *stride, const int64_t *dilation, const int64_t *begin) {
    int64_t x_planes[5], y_planes[5];
    rt_channels_first(x_planes, ndim, x_dims);
    rt_channels_first(y_planes, ndim, y_dims);
    struct pool_last pool = {.window = rt_window_of(ndim, x_planes, window, y_planes, stride, dilation, begin),
                             .channels = y_planes[1]};
    pool.lines = y_dims[0] * pool.window.y[0] * pool.window.y[1];
    return pool;
}

static int pays(const struct pool_last *pool) {
    const struct rt_window *w = &pool->window;
    return (double)pool->lines * (double)w->y[2] * (double)pool->channels * (double)w->taps >= PARALLEL_WORK;
}

/* Elements that the window at o counts in dimension d: inside of x or of the padding that counts. */
static int64_t counted(const struct pool_last *pool, int d, int64_t o) {
    const struct rt_window *w = &pool->window;
    int64_t count = 0;
    for (int64_t k = 0; k < w->k[d]; k++) {
        const int64_t at = rt_window_at(w, d, o, k);
        count += at >= -pool->before[d] && at < w->x[d] + pool->after[d];
    }
    return count;
}

#define T     TYPE(SUFFIX)
#define PART  "pool_last.inc"
#define TYPES FLOATS
#include "each.inc"
