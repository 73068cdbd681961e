#include "kernels.h"

#include "internal.h"
#include "types.h"

#include <string.h>

/* Note [Boxes]
 * Every kernel here copies boxes: for each index i of `extent`, y[sum i to] = x[sum i from], strides in elements.
 * What differs is how the strides come about: permuted (transpose), scaled and with an offset (slice), 0 (expand,
 * tile), of a larger y (concat, pad). A box is brought into few dimensions of long runs first; the order in which a
 * box is walked does not matter to the result, so dimensions may change places and threads may share one. */
#define MAX_BOX    16   /* twice RT_MAX_NDIM: tile makes two dimensions of each */
#define TILE       32   /* side of the squares in which a transposed pair of dimensions is walked */
#define NARROW     8    /* extent below which a square would be mostly empty */
#define STRIP      1024 /* elements of the other dimension that are then walked at a time */
#define SAME_PLACE 512  /* bytes; lines at a multiple of it share few places of a cache of 64 sets of lines */
#define SHORT_RUN  128  /* bytes at most that are copied without a call */
#define LANE_BYTES 16   /* of a vector in which elements change places */

#if defined __clang__ || __GNUC__ >= 12
#define SHUFFLE(vector, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(vector, a, b, ...) __builtin_shuffle(a, b, (vector){__VA_ARGS__})
#endif

struct box {
    int ndim;
    int64_t extent[MAX_BOX], to[MAX_BOX], from[MAX_BOX];
};

static void box_push(struct box *box, int64_t extent, int64_t to, int64_t from) {
    box->extent[box->ndim] = extent;
    box->to[box->ndim] = to;
    box->from[box->ndim++] = from;
}

static int64_t box_count(const struct box *box) {
    int64_t count = 1;
    for (int d = 0; d < box->ndim; d++) count *= box->extent[d];
    return count;
}

/* The same box without dimensions of extent 1. Adjacent dimensions that can be walked as one, in x and in y, are
 * merged. */
static struct box box_merge(const struct box *box) {
    struct box merged = {0};
    for (int d = 0; d < box->ndim; d++) {
        int64_t extent = box->extent[d];
        int last = merged.ndim - 1;
        if (extent == 1) continue;
        if (last >= 0 && merged.to[last] == box->to[d] * extent && merged.from[last] == box->from[d] * extent) {
            merged.extent[last] *= extent;
            merged.to[last] = box->to[d];
            merged.from[last] = box->from[d];
        } else {
            box_push(&merged, extent, box->to[d], box->from[d]);
        }
    }
    if (merged.ndim == 0) box_push(&merged, 1, 1, 1);
    return merged;
}

/* Moves the dimension along which x is contiguous to the place before the last, unless it is the last itself. Returns
 * true if there are two such dimensions to transpose. */
static int box_pair(struct box *box) {
    int last = box->ndim - 1;
    if (box->to[last] != 1 || box->from[last] == 1 || box->from[last] == 0) return 0;
    for (int d = 0; d < last; d++) {
        if (box->from[d] != 1) continue;
        int64_t extent = box->extent[d], to = box->to[d];
        for (; d < last - 1; d++) {
            box->extent[d] = box->extent[d + 1];
            box->to[d] = box->to[d + 1];
            box->from[d] = box->from[d + 1];
        }
        box->extent[d] = extent;
        box->to[d] = to;
        box->from[d] = 1;
        return 1;
    }
    return 0;
}

/* Steps to the next index of the first `ndim` dimensions; false after the last. */
static inline int box_next(const struct box *box, int ndim, int64_t *index, int64_t *to, int64_t *from) {
    for (int d = ndim - 1; d >= 0; d--) {
        *to += box->to[d];
        *from += box->from[d];
        if (++index[d] < box->extent[d]) return 1;
        *to -= box->to[d] * box->extent[d];
        *from -= box->from[d] * box->extent[d];
        index[d] = 0;
    }
    return 0;
}

static int box_longest(const struct box *box) {
    int longest = 0;
    for (int d = 1; d < box->ndim; d++)
        if (box->extent[d] > box->extent[longest]) longest = d;
    return longest;
}

/* strides[d] = distance of neighbours along d in a dense tensor; returns its number of elements. */
static int64_t dense(int64_t *strides, const int64_t *dims, int ndim) {
    int64_t count = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        strides[d] = count;
        count *= dims[d];
    }
    return count;
}

/* memcpy, without a call for short runs of LANE_BYTES or more, which are copied in pieces; the last two may overlap. */
static inline void copy_bytes(char *y, const char *x, int64_t n) {
    if (n < LANE_BYTES || n > SHORT_RUN) {
        memcpy(y, x, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n - LANE_BYTES; i += LANE_BYTES) memcpy(y + i, x + i, LANE_BYTES);
    memcpy(y + n - LANE_BYTES, x + n - LANE_BYTES, LANE_BYTES);
}

/* The orders of lanes that interleave halves of two vectors. */
#define LOWER_HALVES    PASTE(LOWER_HALVES, SUFFIX)
#define UPPER_HALVES    PASTE(UPPER_HALVES, SUFFIX)
#define LOWER_HALVES_b1 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER_HALVES_b1 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOWER_HALVES_b2 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER_HALVES_b2 4, 12, 5, 13, 6, 14, 7, 15
#define LOWER_HALVES_b4 0, 4, 1, 5
#define UPPER_HALVES_b4 2, 6, 3, 7
#define LOWER_HALVES_b8 0, 2
#define UPPER_HALVES_b8 1, 3

#define T     TYPE(SUFFIX)
#define PART  "move.inc"
#define TYPES SIZES
#include "each.inc"

void rt_sizes_b8(void *y, int64_t n, const int64_t *values) {
    memcpy(y, values, (size_t)n * sizeof *values);
}
