#include "conv_shape.h"
#include "types.h"

#include <string.h>

/* Note [Direct convolution]
 * With few input channels per group, as in depthwise convolutions, collecting columns (Note [Convolution as product])
 * costs more than their product. Here a band of x is copied to the stack with its zero padding, and the sums of many
 * pixels stay in registers while the window elements are added.
 *
 * The copy makes all vector loads contiguous. Element (row, column) of a channel, counted from the first window of the
 * band, is stored in plane (row % stride, column % stride) at (row / stride, column / stride); planes have `width`
 * columns. Window element k of the pixel at f = row * width + column is then at f plus an offset that depends on k
 * only, for every stride. f runs over whole bands: the few columns beyond those of y are computed and dropped.
 *
 * Terms are added in the same order and with the same roundings as by the product: the results have the same bits.
 *
 * The gradient of weights that belong to one channel alone is computed from the same band: the sums of a few window
 * elements stay in registers while the pixels are added. Pixel f goes to lane f % (64 / element size), whatever the
 * instruction set; the lanes are added at the end. Columns beyond those of y are left out, as x need not be finite. */
#define BAND_BYTES   65536
#define MOST_VECTORS 8
#define WEIGHED      4096 /* pixels of a band, whose products with x are added up for weights */
#define TOGETHER     5    /* window elements whose sums stay in registers */
#define DOWN         4    /* neighbouring rows of y that are computed together */

/* The layout, except for what depends on the number of rows; each plane has room for a tile behind its last row. */
static struct rt_direct layout(const struct rt_conv *conv) {
    const struct rt_window *w = &conv->window;
    struct rt_direct direct;
    int64_t far[2];
    for (int d = 0; d < 2; d++) {
        int64_t reach = (w->k[1 + d] - 1) * w->dilation[1 + d];
        direct.phases[d] = min_i64(w->stride[1 + d], reach + 1);
        far[d] = reach / w->stride[1 + d];
    }
    direct.below = far[0];
    direct.width = w->y[2] + far[1];
    return direct;
}

static int is_direct(const struct rt_conv *conv) {
    const struct rt_window *w = &conv->window;
    if (conv->c > RT_DIRECT_CHANNELS || conv->pointwise || w->taps > RT_DIRECT_TAPS) return 0;
    if (w->k[0] > 1 || w->x[0] > 1 || w->begin[0]) return 0; /* three dimensions */
    for (int d = 1; d < 3; d++)
        if (w->y[d] > 1 << 16 || w->stride[d] > 64 || w->dilation[d] > 1 << 16) return 0;
    return 1;
}

/* True if the windows of DOWN neighbouring rows of y overlap, and their rows of x lie one after the other. */
static int shares_rows(const struct rt_window *w) {
    return w->stride[1] == 1 && w->dilation[1] == 1 && w->k[1] >= DOWN;
}

int rt_conv_direct_weighs(struct rt_direct *direct, const struct rt_conv *conv, size_t element) {
    return conv->c == 1 && conv->m == 1 && rt_conv_direct_plan(direct, conv, element) && direct->width <= WEIGHED;
}

int rt_conv_direct_plan(struct rt_direct *direct, const struct rt_conv *conv, size_t element) {
    const struct rt_window *w = &conv->window;
    if (!is_direct(conv)) return 0;
    *direct = layout(conv);
    int64_t planes = conv->c * direct->phases[0] * direct->phases[1], slack = MOST_VECTORS * 64 / (int64_t)element;
    int64_t room = BAND_BYTES / (int64_t)element / planes - slack;
    direct->most = min_i64(room / direct->width - direct->below, w->y[1]);
    if (direct->most < 1) return 0;
    direct->plane = (direct->most + direct->below) * direct->width + slack;
    direct->channel = planes / conv->c * direct->plane;
    for (int64_t k = 0; k < w->taps; k++) {
        int64_t row = k / w->k[2] * w->dilation[1], column = k % w->k[2] * w->dilation[2];
        int64_t phase = row % w->stride[1] * direct->phases[1] + column % w->stride[2];
        direct->offset[k] = phase * direct->plane + row / w->stride[1] * direct->width + column / w->stride[2];
    }
    return 1;
}

#define T           TYPE(SUFFIX)
#define INTEGER     PASTE(INTEGER, SUFFIX) /* as long as T */
#define INTEGER_f32 int32_t
#define INTEGER_f64 int64_t
#define PART        "conv_direct.inc"
#define TYPES       FLOATS
#include "sets.inc"
#undef T

#define DEFINE_DIRECT(T, s)                                                                                            \
    void rt_conv_direct_##s(T *y, const T *x, const T *w, const struct rt_conv *conv, const struct rt_direct *direct,  \
                            int64_t first, int64_t rows) {                                                             \
        BEST(band_##s)(y, x, w, conv, direct, first, rows);                                                            \
    }                                                                                                                  \
    void rt_conv_direct_weigh_##s(T *dw, const T *x, const T *dy, const struct rt_conv *conv,                          \
                                  const struct rt_direct *direct, int64_t x_sample, int64_t y_sample) {                \
        BEST(weigh_##s)(dw, x, dy, conv, direct, x_sample, y_sample);                                                  \
    }

RT_FLOATS(DEFINE_DIRECT)
