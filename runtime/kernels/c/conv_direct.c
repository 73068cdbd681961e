#include "conv_shape.h"
#include "internal.h"

#include <string.h>

/* Note [Direct convolution]
 * With few input channels in a group, depthwise above all, the columns of Note [Convolution as product] would cost more
 * than their product. Here a band of x is copied to the stack with zeros around it, and sums for many pixels stay in
 * registers while each window element is added to them.
 *
 * The copy makes all vectors contiguous. Element (row, column) of a channel, counted from where the band's first window
 * begins, is in plane (row % stride, column % stride) at (row / stride, column / stride), and these planes have `width`
 * columns each. So the window element k of the pixel at distance f = row * width + column lies at f plus an offset that
 * depends on k alone, whatever the stride; and f runs over whole bands: the few columns beyond y's are computed and dropped.
 *
 * Terms are added in the order of a product's, with the same roundings: the results are the same bits. */
#define FEW          8   /* input channels */
#define MAX_TAPS     128 /* elements of a window */
#define BAND_BYTES   65536
#define MOST_VECTORS 8

/* How the band of a given number of rows of y is laid out; extents in elements. */
struct band {
    int64_t phases[2];      /* by row and by column */
    int64_t rows, width;    /* of a phase's plane */
    int64_t plane, channel; /* from one phase, one channel to the next */
};

static struct band band_of(const struct rt_conv *conv, int64_t rows, int64_t slack) {
    const struct rt_window *w = &conv->window;
    struct band band;
    int64_t far[2];
    for (int d = 0; d < 2; d++) {
        int64_t reach = (w->k[1 + d] - 1) * w->dilation[1 + d];
        band.phases[d] = min_i64(w->stride[1 + d], reach + 1);
        far[d] = reach / w->stride[1 + d];
    }
    band.rows = rows + far[0];
    band.width = w->y[2] + far[1];
    band.plane = band.rows * band.width + slack;
    band.channel = band.phases[0] * band.phases[1] * band.plane;
    return band;
}

static int64_t slack_of(size_t element) {
    return MOST_VECTORS * 64 / (int64_t)element;
}

/* Rows of y whose band fits; the same for every cut. */
static int64_t rows_that_fit(const struct rt_conv *conv, size_t element) {
    int64_t room = BAND_BYTES / (int64_t)element, slack = slack_of(element);
    struct band one = band_of(conv, 1, slack);
    int64_t left = room - conv->c * one.channel, more = conv->c * one.phases[0] * one.phases[1] * one.width;
    return left < 0 ? 0 : min_i64(1 + left / more, conv->window.y[1]);
}

int64_t rt_conv_direct_rows(const struct rt_conv *conv, size_t element) {
    const struct rt_window *w = &conv->window;
    if (conv->c > FEW || conv->pointwise || w->taps > MAX_TAPS || w->k[0] > 1 || w->x[0] > 1 || w->begin[0])
        return 0;
    for (int d = 1; d < 3; d++)
        if (w->y[d] > 1 << 16 || w->stride[d] > 64 || w->dilation[d] > 1 << 16) return 0;
    return rows_that_fit(conv, element);
}

#define T      float
#define PREFIX direct_f32
#define TARGET
#define BYTES 16
#include "conv_direct.inc"

#define T      double
#define PREFIX direct_f64
#define TARGET
#define BYTES 16
#include "conv_direct.inc"

#ifdef __x86_64__

#define T      float
#define PREFIX direct_f32_avx2
#define TARGET __attribute__((target("avx2")))
#define BYTES  32
#include "conv_direct.inc"

#define T      double
#define PREFIX direct_f64_avx2
#define TARGET __attribute__((target("avx2")))
#define BYTES  32
#include "conv_direct.inc"

#define T      float
#define PREFIX direct_f32_avx512
#define TARGET __attribute__((target("avx512f")))
#define BYTES  64
#include "conv_direct.inc"

#define T      double
#define PREFIX direct_f64_avx512
#define TARGET __attribute__((target("avx512f")))
#define BYTES  64
#include "conv_direct.inc"

#define WIDEST(s)                                                                                                  \
    (__builtin_cpu_supports("avx512f") ? direct_##s##_avx512_band                                                  \
     : __builtin_cpu_supports("avx2")  ? direct_##s##_avx2_band                                                    \
                                       : direct_##s##_band)
#else
#define WIDEST(s) direct_##s##_band
#endif

#define DEFINE_DIRECT(T, s)                                                                                        \
    void rt_conv_direct_##s(T *y, const T *x, const T *w, const struct rt_conv *conv, int64_t first,               \
                            int64_t rows) {                                                                        \
        (WIDEST(s))(y, x, w, conv, first, rows);                                                                   \
    }

DEFINE_DIRECT(float, f32)
DEFINE_DIRECT(double, f64)
