#include "kernels.h"

#include "../../rt.h"
#include "internal.h"

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

#define DEFINE_ROPE(T, s)                                                                                              \
    static void rope_halves_##s(T *restrict y, const T *x, const T *cos, const T *sin, int64_t half) {                 \
        for (int64_t i = 0; i < half; i++) y[i] = x[i] * cos[i] + -x[half + i] * sin[i];                               \
        for (int64_t i = half; i < 2 * half; i++) y[i] = x[i] * cos[i] + x[i - half] * sin[i];                         \
    }                                                                                                                  \
    static void rope_pairs_##s(T *restrict y, const T *x, const T *cos, const T *sin, int64_t half) {                  \
        for (int64_t i = 0; i < 2 * half; i += 2) {                                                                    \
            y[i] = x[i] * cos[i] + -x[i + 1] * sin[i];                                                                 \
            y[i + 1] = x[i + 1] * cos[i + 1] + x[i] * sin[i + 1];                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    void rt_rope_##s(T *y, const T *x, const T *cos, const T *sin, int ndim, const int64_t *y_dims,                    \
                     const int64_t *x_dims, const int64_t *cos_dims, const int64_t *sin_dims, int interleaved) {       \
        const int64_t *const dims[] = {x_dims, cos_dims, sin_dims};                                                    \
        struct walk walk = walk_of(ndim, y_dims, dims);                                                                \
        int64_t c = y_dims[ndim - 1];                                                                                  \
        void (*run)(T *, const T *, const T *, const T *, int64_t) = interleaved ? rope_pairs_##s : rope_halves_##s;   \
        _Pragma("omp parallel for schedule(static) if (walk.rows * c >= PARALLEL_WORK)") for (int64_t row = 0;         \
                                                                                              row < walk.rows;         \
                                                                                              row++) {                 \
            int64_t at[3];                                                                                             \
            walk_row(&walk, row, at);                                                                                  \
            run(y + row * c, x + at[0] * c, cos + at[1] * c, sin + at[2] * c, c / 2);                                  \
        }                                                                                                              \
    }

DEFINE_ROPE(float, f32)
DEFINE_ROPE(double, f64)
