#include "kernels.h"

#include "../../generated.h"
#include "internal.h"
#include "stored.h"

#define BLOCK 256 /* elements that are rotated together; even */

/* Rows of the last dimension, walked with a stride per dimension and operand. */
struct walk {
    int ndim; /* without the last */
    int64_t rows;
    int64_t extent[RT_MAX_NDIM], stride[3][RT_MAX_NDIM]; /* of x, cos, sin in rows; 0: repeated */
};

static struct walk walk_of(int ndim, const int64_t *y_dims, const int64_t *const dims[3]) {
    struct walk walk = {.ndim = ndim - 1, .rows = 1};
    int64_t step[3] = {1, 1, 1};
    for (int d = ndim - 2; d >= 0; d--) {
        walk.extent[d] = y_dims[d];
        walk.rows *= y_dims[d];
        for (int k = 0; k < 3; k++) {
            walk.stride[k][d] = dims[k][d] == 1 ? 0 : step[k];
            step[k] *= dims[k][d];
        }
    }
    return walk;
}

/* Which row of each operand makes row `row` of y. */
static void walk_row(const struct walk *walk, int64_t row, int64_t at[3]) {
    at[0] = at[1] = at[2] = 0;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        for (int k = 0; k < 3; k++) at[k] += row % walk->extent[d] * walk->stride[k][d];
        row /= walk->extent[d];
    }
}

#define T      float
#define E      float
#define SUFFIX f32
#include "rope.inc"

#define T      double
#define E      double
#define SUFFIX f64
#include "rope.inc"

#define T      float
#define E      uint16_t
#define SUFFIX bf16
#include "rope.inc"

#define T      float
#define E      uint16_t
#define SUFFIX fp16
#include "rope.inc"
