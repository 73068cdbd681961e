#include "kernels.h"

#include "pool.h"
#include "types.h"

#include <math.h>
#include <string.h>

/* Note [Bands of a pool]
 * A band of x, the rows under a few rows of y, is copied to the stack with its padding, which holds the identity of the
 * operation: blocks of neighbouring results then stay in registers while all window elements are added, at the border
 * as inside.
 *
 * The copy makes all loads contiguous. A line is stored as `phases` runs of `width` elements: column c, counted from
 * the first window, is element c / stride of run c % stride. Window element k of the result in column j is then at j
 * plus an offset that depends on k only. A block may reach beyond the last column: what it computes there is dropped.
 *
 * Every result combines the same elements in the same order as without the copy, which is left out where a band does
 * not fit: row by row of y, each window element then adds its row of x. The identities change no bit: a sum begins with
 * +0 and so never is -0, and -inf is larger than nothing. */
enum {
    BAND_BYTES = 32768,
    BAND_COLUMNS = 512, /* of y, at most */
    BAND_TAPS = 512,
    BLOCK = 32 /* neighbouring results in registers */
};

struct band {
    int64_t rows, columns;         /* of y, in each band but the last */
    int64_t down, across;          /* bands of a plane of y at one depth */
    int64_t phases, width;         /* of a line */
    int64_t below;                 /* lines from the first to the last that a row of y reads */
    int64_t line, slab;            /* distance between lines, between the depths of the window */
    int64_t offset[BAND_TAPS + 1]; /* of each window element, and -1 */
};

/* The part of y that one band computes, and its lines: they begin at column `at` of x and have `width` elements in each
 * run, of which those in [first, end) lie inside of x in all runs. */
struct piece {
    int64_t plane, depth, row, rows, column, columns;
    int64_t at, width, first, end;
};

/* Distance between the first and the last window element. */
static int64_t reach(const struct rt_window *w, int d) {
    return (w->k[d] - 1) * w->dilation[d];
}

static void set_offsets(struct band *band, const struct rt_window *w) {
    for (int64_t tap = 0; tap < w->taps; tap++) {
        int64_t slab = tap / (w->k[2] * w->k[1]), line = tap / w->k[2] % w->k[1] * w->dilation[1],
                column = tap % w->k[2] * w->dilation[2];
        band->offset[tap] =
            slab * band->slab + line * band->line + column % w->stride[2] * band->width + column / w->stride[2];
    }
    band->offset[w->taps] = -1;
}

/* 0: no band fits into `room` elements. */
static int band_of(struct band *band, const struct rt_window *w, int64_t room) {
    if (w->taps > BAND_TAPS || w->y_plane == 0) return 0;
    band->columns = min_i64(w->y[2], BAND_COLUMNS);
    band->phases = min_i64(w->stride[2], reach(w, 2) + 1);
    band->width = (band->columns + BLOCK - 1) / BLOCK * BLOCK + reach(w, 2) / w->stride[2];
    band->line = band->phases * band->width;
    band->below = reach(w, 1) + 1;
    int64_t lines = room / (band->line * w->k[0]);
    if (lines < band->below) return 0;
    band->rows = min_i64(w->y[1], (lines - band->below) / w->stride[1] + 1);
    band->slab = ((band->rows - 1) * w->stride[1] + band->below) * band->line;
    band->down = (w->y[1] + band->rows - 1) / band->rows;
    band->across = (w->y[2] + band->columns - 1) / band->columns;
    set_offsets(band, w);
    return 1;
}

/* Piece `number` of y: plane by plane, from the top down and then across. */
static struct piece piece_of(const struct band *band, const struct rt_window *w, int64_t number) {
    int64_t per_depth = band->down * band->across;
    struct piece piece = {.plane = number / (per_depth * w->y[0]), .depth = number / per_depth % w->y[0]};
    piece.row = number / band->across % band->down * band->rows;
    piece.rows = min_i64(band->rows, w->y[1] - piece.row);
    piece.column = number % band->across * band->columns;
    piece.columns = min_i64(band->columns, w->y[2] - piece.column);
    int64_t stride = w->stride[2];
    piece.at = rt_window_at(w, 2, piece.column, 0);
    piece.width = piece.columns + reach(w, 2) / stride;
    int64_t left = w->x[2] - piece.at - band->phases;
    piece.first = piece.at < 0 ? min_i64(piece.width, (stride - 1 - piece.at) / stride) : 0;
    piece.end = left < 0 ? piece.first : max_i64(piece.first, min_i64(piece.width, left / stride + 1));
    return piece;
}

/* Its first element in y. */
static int64_t piece_start(const struct rt_window *w, const struct piece *piece) {
    return piece->plane * w->y_plane + (piece->depth * w->y[1] + piece->row) * w->y[2] + piece->column;
}

/* Planes and rows of the result, as one number. */
struct pool {
    struct rt_window window;
    int64_t rows, items;
    struct rt_pool_padding padding;
};

static struct pool pool_of(struct rt_window window, const int64_t *y_dims) {
    struct pool pool = {.window = window, .rows = window.y[0] * window.y[1]};
    pool.items = window.y[2] ? y_dims[0] * y_dims[1] * pool.rows : 0;
    return pool;
}

static int pays(const struct pool *pool) {
    return (double)pool->items * (double)pool->window.y[2] * (double)pool->window.taps >= PARALLEL_WORK;
}

static int64_t counted(const struct pool *pool, int d, int64_t o) {
    return rt_pool_counted(&pool->window, &pool->padding, d, o);
}

#define T     TYPE(SUFFIX)
#define PART  "larger.inc"
#define TYPES FLOATS
#include "each.inc"

#define PART  "pool.inc"
#define TYPES FLOATS
#include "each.inc"
