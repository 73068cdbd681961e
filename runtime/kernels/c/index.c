#include "kernels.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "internal.h"
#include "types.h"
#include "math.h"

#include <stdio.h>
#include <string.h>

enum { GRAD_SHARES = 16 }; /* of the rows of a table, for threads; each goes through all indices */

enum { CHECKED = 4096 }; /* indices that are checked at a time, without looking for the first that is bad */

/* A block of rt_gather, for one thread: about GATHER_WORK elements in GATHER_ROWS or more rows of y, where a row has at
 * most GATHER_PICKS indices. With shorter rows the processor's prefetching would start anew too often. */
enum { GATHER_PICKS = 256, GATHER_ROWS = 4, GATHER_WORK = 32768 };

static inline int64_t from_front(int64_t index, int64_t total) {
    return index < 0 ? index + total : index;
}

/* True if an index is outside of [-total, total): a loop without branches, which GCC vectorises. */
CLONES static int any_outside(const void *index, int is_64, int64_t count, int64_t total) {
    const uint64_t valid = 2 * (uint64_t)total;
    int outside = 0;
    if (is_64)
        for (int64_t p = 0; p < count; p++) outside |= (uint64_t)((const int64_t *)index)[p] + (uint64_t)total >= valid;
    else
        for (int64_t p = 0; p < count; p++) outside |= (uint64_t)((const int32_t *)index)[p] + (uint64_t)total >= valid;
    return outside;
}

int rt_check_indices(struct rt *rt, const void *index, int is_64, int64_t count, const int64_t *totals,
                     int64_t period) {
    int64_t bad = count;
    const int64_t parts = (count + CHECKED - 1) / CHECKED;
#pragma omp parallel for num_threads(rt_pieces(parts)) reduction(min : bad) if (count >= PARALLEL_WORK)
    for (int64_t part = 0; part < parts; part++) {
        const int64_t first = part * CHECKED, end = min_i64(first + CHECKED, count);
        const char *from = (const char *)index + first * (is_64 ? 8 : 4);
        if (period == 1 && !any_outside(from, is_64, end - first, totals[0])) continue;
        for (int64_t p = first; p < end; p++) {
            int64_t value = index_at(index, is_64, p), total = totals[period == 1 ? 0 : p % period];
            if (value < -total || value >= total) bad = min_i64(bad, p);
        }
    }
    if (bad == count) return RT_OK;
    long long total = totals[bad % period];
    return rt_fail(rt, RT_ERROR_INPUT, "index %lld at position %lld is outside [-%lld, %lld)",
                   (long long)index_at(index, is_64, bad), (long long)bad, total, total);
}

static int64_t product(const int64_t *dims, int ndim) {
    int64_t count = 1;
    for (int d = 0; d < ndim; d++) count *= dims[d];
    return count;
}

/* Offset in dims of the block that the row of `depth` indices names, in blocks. */
static inline int64_t block_at(const int64_t *row, const int64_t *dims, int depth) {
    int64_t block = 0;
    for (int d = 0; d < depth; d++) block = block * dims[d] + from_front(row[d], dims[d]);
    return block;
}

/* Where the elements of a tensor of index_dims (whose last dimension is a row) fall in a tensor of x_dims, when the
 * index along `axis` is replaced. */
struct walk {
    int ndim, axis;
    const int64_t *x_dims, *index_dims;
};

/* Offset in x of element 0 of row `row`, with index 0 along the axis. */
static int64_t walk_row(const struct walk *walk, int64_t row) {
    int64_t offset = 0, stride = 1;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        if (d < walk->ndim - 1) {
            if (d != walk->axis) offset += row % walk->index_dims[d] * stride;
            row /= walk->index_dims[d];
        }
        stride *= walk->x_dims[d];
    }
    return offset;
}

/* Indices of a gather as places in this rank's part of the dimension. */
struct picks {
    int64_t count;
    int64_t place[GATHER_PICKS];  /* -1: in another rank's part */
    int64_t length[GATHER_PICKS]; /* of the run of adjacent places, or of places -1, that begins here, if one does */
    int single; /* all places are here, and most runs so short that elements are better copied alone */
};

/* The `count` indices at `first`. */
static void picks_fill(struct picks *picks, const void *index, int is_64, int64_t first, int64_t count, int64_t extent,
                       int64_t start, int64_t total) {
    int64_t *place = picks->place, runs = 0, missing = 0, begin = 0;
    for (int64_t j = 0; j < count; j++) {
        place[j] = from_front(index_at(index, is_64, first + j), total) - start;
        if (place[j] < 0 || place[j] >= extent) place[j] = -1, missing++;
        if (j == 0 || place[j] != (place[j - 1] < 0 ? -1 : place[j - 1] + 1)) begin = j, runs++;
        picks->length[begin] = j + 1 - begin;
    }
    picks->count = count;
    picks->single = missing == 0 && runs > count / 8;
}

#define T     TYPE(SUFFIX)
#define PART  "index.inc"
#define TYPES SIZES
#include "each.inc"

#define PART  "index_add.inc"
#define TYPES FLOATS
#include "each.inc"

/* Sums and products of elements; integers wrap. */
#define SUM(a, b)         PASTE(SUM, SUFFIX)(a, b)
#define SUM_f64(a, b)     ((a) + (b))
#define SUM_f32(a, b)     ((a) + (b))
#define SUM_i64(a, b)     rt_add_i64(a, b)
#define SUM_i32(a, b)     rt_add_i32(a, b)
#define PRODUCT(a, b)     PASTE(PRODUCT, SUFFIX)(a, b)
#define PRODUCT_f64(a, b) ((a) * (b))
#define PRODUCT_f32(a, b) ((a) * (b))
#define PRODUCT_i64(a, b) rt_mul_i64(a, b)
#define PRODUCT_i32(a, b) rt_mul_i32(a, b)

#define PART  "index_folds.inc"
#define TYPES NUMBERS
#include "each.inc"

/* shift: what is added to elements of u8 in panels. */
#define DEFINE_GATHER_PACKED(T, s, rt_place, shift)                                                                    \
    int rt_gather_packed_##s(struct rt *rt, void *y, const void *x, const void *index, enum rt_dtype dtype,            \
                             int index_is_64, int64_t extent, int64_t inner, int64_t count, int64_t start,             \
                             int64_t total) {                                                                          \
        T *to = y;                                                                                                     \
        const T *from = x, flip = dtype == RT_U8 ? shift : 0;                                                          \
        RT_TRY(rt_check_indices(rt, index, index_is_64, count, &total, 1));                                            \
        _Pragma("omp parallel for schedule(static) if (count * inner >= PARALLEL_WORK)") for (int64_t row = 0;         \
                                                                                              row < count; row++) {    \
            int64_t place = from_front(index_at(index, index_is_64, row), total) - start;                              \
            if (place < 0 || place >= extent)                                                                          \
                memset(to + row * inner, 0, (size_t)inner * sizeof *to);                                               \
            else                                                                                                       \
                for (int64_t p = 0; p < inner; p++) to[row * inner + p] = from[rt_place(inner, p, place)] ^ flip;      \
        }                                                                                                              \
        return RT_OK;                                                                                                  \
    }

DEFINE_GATHER_PACKED(uint32_t, b4, rt_panel_place, 0)
DEFINE_GATHER_PACKED(uint16_t, b2, rt_pair_place, 0)
DEFINE_GATHER_PACKED(uint8_t, b1, rt_quad_place, 0x80)

/* "[1, 3]" */
static void format_index(char *text, size_t size, int64_t position, int ndim, const int64_t *dims,
                         const int64_t *starts) {
    int64_t at[RT_MAX_NDIM];
    size_t length = (size_t)snprintf(text, size, "[");
    for (int d = ndim - 1; d >= 0; d--) at[d] = position % dims[d] + starts[d], position /= dims[d];
    for (int d = 0; d < ndim; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%lld", d ? ", " : "", (long long)at[d]);
    snprintf(text + length, size - length, "]");
}

static int fail_divisor(struct rt *rt, int64_t position, int ndim, const int64_t *dims, const int64_t *starts) {
    char place[RT_MAX_NDIM * 22 + 2];
    format_index(place, sizeof place, position, ndim, dims, starts);
    return rt_fail(rt, RT_ERROR_INPUT, "integer division by zero: the divisor at %s is 0", place);
}

#define PART  "divisor.inc"
#define TYPES SIZES
#include "each.inc"

int rt_class_index(struct rt *rt, int64_t *y, const void *x, int x_is_64, int ndim, const int64_t *dims,
                   const int64_t *starts, int64_t classes, int ignores, int64_t ignored) {
    const int64_t count = product(dims, ndim);
    int64_t bad = count;
    char place[RT_MAX_NDIM * 22 + 2];
#pragma omp parallel for num_threads(rt_pieces(count)) reduction(min : bad) if (count >= PARALLEL_WORK)
    for (int64_t p = 0; p < count; p++) {
        y[p] = index_at(x, x_is_64, p);
        if ((y[p] < 0 || y[p] >= classes) && !(ignores && y[p] == ignored)) bad = min_i64(bad, p);
    }
    if (bad == count) return RT_OK;
    format_index(place, sizeof place, bad, ndim, dims, starts);
    return rt_fail(rt, RT_ERROR_INPUT, "label %lld at %s is outside of the %lld classes",
                   (long long)index_at(x, x_is_64, bad), place, (long long)classes);
}
