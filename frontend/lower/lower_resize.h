/* Resize and Upsample: what dimensions of fixed extents (lower_resize.c) share with open ones (lower_resize_open.c). */
#ifndef FRONTEND_LOWER_LOWER_RESIZE_H
#define FRONTEND_LOWER_LOWER_RESIZE_H

#include "frontend/lower/onnx_lower.h"

/* An exact number num / den, den > 0: coordinates are compared and rounded without error. */
struct fraction {
    __int128 num, den;
};

/* Note [Widths of coordinates]: an extent has at most EXTENT_BITS bits, a result's 24, and a scale, a double of at
 * least 1 / extent, 53 behind at most EXTENT_BITS zeros. The ends of what tf_crop_and_resize shows are taken with as
 * many bits as leave room for both extents. No coordinate then needs more than 125 bits. */
enum { EXTENT_BITS = 43, RESULT_LIMIT = 1 << 24, CROP_BITS = 100 };

/* One dimension. */
struct axis {
    int64_t in, out;
    struct fraction scale;      /* of results per element: out / in if sizes are given */
    struct fraction start, end; /* tf_crop_and_resize: the part of the input, in units of its extent; den is equal */
};

static inline int64_t floor_of(struct fraction x) {
    return (int64_t)(x.num / x.den - (x.num % x.den < 0));
}
static inline int64_t ceil_of(struct fraction x) {
    return -floor_of((struct fraction){-x.num, x.den});
}

/* Where result `o` lies in the input. */
typedef struct fraction coordinate_fn(const struct axis *axis, int64_t o);

/* How a coordinate becomes an index: rounded down, or `up`. To the nearest one by `halves`: x + 1/2 is rounded down, or
 * x - 1/2 up. */
struct rounding {
    const char *name;
    int64_t (*of)(struct fraction x);
    bool halves, up;
};

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };

struct resize {
    const char *coordinates; /* coordinate_transformation_mode */
    coordinate_fn *at;
    bool crops; /* it is tf_crop_and_resize */
    const struct rounding *round;
    enum resize_mode mode;
    double cubic;
    bool exclude_outside, antialias;
    double outside; /* tf_crop_and_resize: the value of results outside of the input */
};

/* Tensors and statuses are -1 after a diagnostic. */

/* The product along dimension `dim` with a matrix of weights (out, in). */
int resize_by_weights(struct lower *lower, int x, int dim, int weights);

/* True if an extent or the scale is open. */
bool resize_is_open(const struct lower *lower, const struct axis *axis);
/* Dimension `dim` of x by nodes that compute indices and weights at run time. */
int resize_open(struct lower *lower, int x, int dim, const struct resize *resize, const struct axis *axis);
/* Gives results outside of the input their value, if resize->crops. */
int resize_mask_open(struct lower *lower, int y, int dim, const struct resize *resize, const struct axis *axis);
/* keep_aspect_ratio_policy of the n dimensions `axes`, not_smaller unless `smaller`: sets the results' extents, which
 * are the sizes given so far, and the scale. */
int resize_keep_open_ratio(struct lower *lower, int n, const int *axes, bool smaller, struct axis *axis);

#endif
