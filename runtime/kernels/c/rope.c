#include "kernels.h"

#include "../../generated.h"
#include "internal.h"
#include "stored.h"
#include "types.h"

#define BLOCK 256 /* elements that are rotated together; even */

/* Rows of the last dimension, walked with a step per dimension and operand, in elements; 0: repeated. */
enum { WALK_Y, WALK_X, WALK_COS, WALK_SIN, WALKED };
struct walk {
    int ndim; /* without the last */
    int64_t rows;
    int64_t extent[RT_MAX_NDIM], step[WALKED][RT_MAX_NDIM];
};

static void walk_dense(struct walk *walk, int operand, const int64_t *dims) {
    int64_t step = dims[walk->ndim];
    for (int d = walk->ndim - 1; d >= 0; d--) {
        walk->step[operand][d] = dims[d] == 1 ? 0 : step;
        step *= dims[d];
    }
}

static struct walk walk_of(int ndim, const int64_t *y_dims, const int64_t *y_step, int x_ndim, const int64_t *x_dims,
                           const int64_t *x_step, const int64_t *cos_dims, const int64_t *sin_dims) {
    struct walk walk = {.ndim = ndim - 1, .rows = 1};
    for (int d = 0; d < ndim - 1; d++) {
        walk.extent[d] = y_dims[d];
        walk.rows *= y_dims[d];
        walk.step[WALK_Y][d] = y_step[d];
        walk.step[WALK_X][d] = x_dims[d] == 1 ? 0 : x_step[d - (ndim - x_ndim)];
    }
    walk_dense(&walk, WALK_COS, cos_dims);
    walk_dense(&walk, WALK_SIN, sin_dims);
    return walk;
}

/* Offsets of row number `row`. */
static void walk_row(const struct walk *walk, int64_t row, int64_t at[WALKED]) {
    for (int k = 0; k < WALKED; k++) at[k] = 0;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        for (int k = 0; k < WALKED; k++) at[k] += row % walk->extent[d] * walk->step[k][d];
        row /= walk->extent[d];
    }
}

/* cos and sin of the same type, or of f32. */
#define T     TYPE(WIDE)
#define E     TYPE(SUFFIX)
#define TABLE SUFFIX
#define PART  "rope.inc"
#define TYPES (FLOATS | HALVES)
#include "each.inc"

#undef TABLE
#define TABLE f32
#define PART  "rope.inc"
#define TYPES HALVES
#include "each.inc"
