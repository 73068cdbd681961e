#include "conv.h"

#include "../../base/shape/panel.h"
#include "../../base/shape/winograd.h"
#include "../../generated.h"
#include "../gemm.h"
#include "conv_shape.h"
#include "internal.h"
#include "types.h"

#include <string.h>

/* Note [Winograd]
 * Tiles of 4 x 4 pixels are computed from 6 x 6 elements of x (base/shape/winograd.h): these are transformed, each of
 * the 36 elements becomes a row of a matrix (tiles, c), which is multiplied with its own matrix (c, m) of the weights,
 * and the products are transformed back. A block of tiles is transformed once; a panel of output channels then passes
 * through all 36 products, so that weights are read in the order in which they lie (RT_PACK_WINOGRAD).
 *
 * Tiles begin at pixel 0 of a sample, and sums are over the channels in order, so bits do not depend on how samples,
 * output channels or tiles are divided. */
enum { NEAR = RT_GEMM_NEAR_ROW, SPAN = RT_WINOGRAD_SPAN, TILE = RT_WINOGRAD_TILE, PRODUCTS = RT_WINOGRAD_PRODUCTS };

struct winograd {
    const struct rt_conv *conv;
    float *y;
    const float *x, *w;
    int64_t down, across;   /* tiles of a sample */
    int64_t blocks, strips; /* blocks of channels: NEAR of x, RT_PANEL of y */
    const struct rt_epilogue *epilogue;
};

/* Where a tile begins. */
struct tile_at {
    int64_t sample, row, column; /* of y */
};

static struct tile_at tile_at(const struct winograd *call, int64_t tile) {
    const int64_t each = call->down * call->across;
    return (struct tile_at){tile / each, tile % each / call->across * TILE, tile % call->across * TILE};
}

/* The elements of x under a tile, of n channels from `first` on, NEAR apart, with zeros outside of x. */
static void copy_tile(float *to, const struct winograd *call, struct tile_at at, int64_t first, int64_t n) {
    const struct rt_window *w = &call->conv->window;
    const float *x = call->x + at.sample * w->x_plane * call->conv->c + first;
    for (int64_t r = 0; r < SPAN; r++)
        for (int64_t s = 0; s < SPAN; s++, to += NEAR) {
            const int64_t row = at.row + r - w->begin[1], column = at.column + s - w->begin[2];
            const int inside = rt_window_inside(w, 1, row) && rt_window_inside(w, 2, column);
            memset(to, 0, NEAR * sizeof *to);
            if (inside) memcpy(to, x + (row * w->x[2] + column) * call->conv->c, (size_t)n * sizeof *to);
        }
}

#define T     TYPE(SUFFIX)
#define PART  "conv_winograd.inc"
#define TYPES IN_f32
#include "sets.inc"
#undef T

/* How a tile's elements are transformed, and its products back, with the processor's vectors. */
struct transforms {
    void (*in)(float *to, int64_t to_step, const float *from, int64_t row, int64_t column);
    void (*out)(float *y, int64_t row, int64_t column, const float *from, int64_t from_step, int64_t rows,
                int64_t columns, int64_t channels);
};

/* v(36, blocks, tiles, NEAR) */
static void transform_tiles(float *v, const struct winograd *call, int64_t first, int64_t tiles,
                            const struct transforms *transforms) {
    const struct rt_window *w = &call->conv->window;
    const int64_t c = call->conv->c;
    _Alignas(64) float edge[PRODUCTS * NEAR];
    for (int64_t t = 0; t < tiles; t++) {
        const struct tile_at at = tile_at(call, first + t);
        const int64_t row = at.row - w->begin[1], column = at.column - w->begin[2];
        const int within = row >= 0 && column >= 0 && row + SPAN <= w->x[1] && column + SPAN <= w->x[2];
        const float *x = call->x + at.sample * w->x_plane * c;
        for (int64_t block = 0; block < call->blocks; block++) {
            const int64_t n = min_i64(c - block * NEAR, NEAR), step = call->blocks * tiles * NEAR;
            float *to = v + (block * tiles + t) * NEAR;
            if (within && n == NEAR) {
                transforms->in(to, step, x + (row * w->x[2] + column) * c + block * NEAR, w->x[2] * c, c);
            } else {
                copy_tile(edge, call, at, block * NEAR, n);
                transforms->in(to, step, edge, SPAN * NEAR, NEAR);
            }
        }
    }
}

/* m(36, tiles, RT_PANEL) = v times the weights of one panel of output channels. */
static void multiply_tiles(float *m, const float *v, const struct winograd *call, int64_t strip, int64_t tiles,
                           const struct rt_gemm_packed *set) {
    const int64_t c = call->conv->c;
    const float *panel = call->w + strip * PRODUCTS * c * RT_PANEL;
    for (int64_t e = 0; e < PRODUCTS; e++)
        for (int64_t block = 0; block < call->blocks; block++) {
            const int64_t depth = min_i64(c - block * NEAR, NEAR);
            set->multiply_near(m + e * tiles * RT_PANEL, v + (e * call->blocks + block) * tiles * NEAR, panel,
                               panel + depth * RT_PANEL, tiles, depth, block == 0);
            panel += depth * RT_PANEL;
        }
}

static void finish_tiles(const float *m, const struct winograd *call, int64_t strip, int64_t first, int64_t tiles,
                         const struct transforms *transforms) {
    const struct rt_window *w = &call->conv->window;
    const int64_t channels = call->conv->m, column = strip * RT_PANEL, n = min_i64(channels - column, RT_PANEL);
    for (int64_t t = 0; t < tiles; t++) {
        const struct tile_at at = tile_at(call, first + t);
        const int64_t rows = min_i64(w->y[1] - at.row, TILE), columns = min_i64(w->y[2] - at.column, TILE);
        const int64_t pixel = at.sample * w->y_plane + at.row * w->y[2] + at.column;
        transforms->out(call->y + pixel * channels + column, w->y[2] * channels, channels, m + t * RT_PANEL,
                        tiles * RT_PANEL, rows, columns, n);
        for (int64_t r = 0; r < rows && call->epilogue; r++)
            call->epilogue->apply(call->y, call->epilogue->x,
                                  (struct rt_block){pixel + r * w->y[2], columns, column, n});
    }
}

static void convolve_tiles(const struct winograd *call, int64_t first, int64_t tiles, int64_t strip, int64_t strips,
                           const struct rt_gemm_packed *set, const struct transforms *transforms) {
    _Alignas(64) float v[RT_WINOGRAD_ROOM], m[PRODUCTS * RT_WINOGRAD_MOST * RT_PANEL];
    transform_tiles(v, call, first, tiles, transforms);
    for (int64_t s = strip; s < strip + strips; s++) {
        multiply_tiles(m, v, call, s, tiles, set);
        finish_tiles(m, call, s, first, tiles, transforms);
    }
}

static struct transforms transforms_here(void) {
    return (struct transforms){BEST(transform_in_f32), BEST(transform_out_f32)};
}

void rt_conv_winograd(struct rt *rt, float *y, const float *x, const float *w, const struct rt_conv *conv,
                      const struct rt_epilogue *epilogue) {
    const struct rt_window *window = &conv->window;
    const struct winograd call = {.conv = conv,
                                  .y = y,
                                  .x = x,
                                  .w = w,
                                  .down = (window->y[1] + TILE - 1) / TILE,
                                  .across = (window->y[2] + TILE - 1) / TILE,
                                  .blocks = (conv->c + NEAR - 1) / NEAR,
                                  .strips = rt_panels(conv->m),
                                  .epilogue = epilogue};
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(rt->reference_kernels);
    const struct transforms transforms = transforms_here();
    const int64_t all = conv->batch * call.down * call.across, most = rt_winograd_tiles(conv->c),
                  threads = omp_get_max_threads();
    int64_t groups = (all + most - 1) / most;
    const int64_t parts = groups < threads ? min_i64((threads + groups - 1) / groups, call.strips) : 1;
    while (parts == 1 && groups % threads && groups < all) groups++; /* as much for each thread */
    const int64_t blocks = groups * parts;
#pragma omp parallel for num_threads(rt_pieces(blocks)) if (blocks > 1)
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t group = i / parts, part = i % parts, first = all * group / groups,
                      strip = call.strips * part / parts;
        convolve_tiles(&call, first, all * (group + 1) / groups - first, strip,
                       call.strips * (part + 1) / parts - strip, set, &transforms);
    }
}
