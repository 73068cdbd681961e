/* Convolutions and pooling: against values recorded from PyTorch, against their definition on odd shapes, and bit for
 * bit where kernels.h promises it. */
#include "kernel_test.h"

#include "../../runtime/base/shape/panel.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "recorded_case.h"
#include "recorded_conv.h"

/* Recorded values ------------------------------------------------------------------------------------------------- */

static void fill(double *to, int64_t count, int64_t factor, int64_t modulus, int64_t offset) {
    for (int64_t i = 0; i < count; i++) to[i] = (double)(factor * i % modulus - offset) / 8;
}

static void narrow(float *to, const double *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (float)from[i];
}

/* One recorded case with kernels of both types; sums are exact, quotients are rounded. */
#define RUN(s, out, in, by)                                                                                            \
    switch (r->kind) {                                                                                                 \
    case RECORDED_CONV:                                                                                                \
        assert_int_equal(                                                                                              \
            rt_conv_##s(rt, out, in, by, r->ndim, r->x, r->w, r->y, r->group, r->stride, r->dilation, r->begin),       \
            RT_OK);                                                                                                    \
        break;                                                                                                         \
    case RECORDED_TRANSPOSE:                                                                                           \
        assert_int_equal(rt_conv_transpose_##s(rt, out, in, by, r->ndim, r->x, r->w, r->y, r->group, r->stride,        \
                                               r->dilation, r->begin),                                                 \
                         RT_OK);                                                                                       \
        break;                                                                                                         \
    case RECORDED_WEIGHTS:                                                                                             \
        assert_int_equal(rt_conv_weight_grad_##s(rt, out, in, by, r->ndim, r->x, r->w, r->y, r->group, r->stride,      \
                                                 r->dilation, r->begin),                                               \
                         RT_OK);                                                                                       \
        break;                                                                                                         \
    case RECORDED_MAX_GRAD:                                                                                            \
        rt_max_pool_grad_##s(out, in, by, r->ndim, r->x, r->y, r->w + 2, r->stride, r->dilation, r->begin);            \
        break;                                                                                                         \
    case RECORDED_MAX: rt_max_pool_##s(out, in, r->ndim, r->x, r->y, r->w + 2, r->stride, r->dilation, r->begin);      \
        break;                                                                                                         \
    case RECORDED_AVERAGE:                                                                                             \
        rt_average_pool_##s(out, in, r->ndim, r->x, r->y, r->w + 2, r->stride, r->dilation, r->begin, r->end,          \
                            r->count_include_pad);                                                                     \
        break;                                                                                                         \
    }

static void check_recorded(struct rt *rt, const struct recorded *r) {
    int64_t nx = test_count(r->x, r->ndim), nw = test_count(operand_dims(r), r->ndim),
            ny = test_count(result_dims(r), r->ndim);
    double *x = test_new(nx, 8), *w = test_new(nw, 8), *y = test_new(ny, 8);
    float *x32 = test_new(nx, 4), *w32 = test_new(nw, 4), *y32 = test_new(ny, 4);
    fill(x, nx, 7, 23, 11);
    fill(w, nw, 5, 19, 9);
    if (r->kind == RECORDED_MAX || r->kind == RECORDED_MAX_GRAD) x[5] = NAN, x[17] = -INFINITY;
    narrow(x32, x, nx);
    narrow(w32, w, nw);
    RUN(f64, y, x, w)
    RUN(f32, y32, x32, w32)
    for (int64_t i = 0; i < ny; i++) {
        double bound = r->kind == RECORDED_AVERAGE ? fabs(r->expected[i]) : 0;
        test_near(y[i], r->expected[i], bound * DBL_EPSILON, "f64", i);
        test_near((double)y32[i], r->expected[i], bound * (double)FLT_EPSILON, "f32", i);
    }
    test_free_all();
}

static void recorded_with(const char *kernels) {
    struct rt *rt = test_open(kernels);
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) check_recorded(rt, &recorded[i]);
    test_close(rt);
}

TEST(test_recorded) {
    recorded_with("reference");
    recorded_with("auto");
}

/* Definition ------------------------------------------------------------------------------------------------------ */

/* A convolution over up to three dimensions; those it does not have are 1 wide. */
struct shape {
    int64_t batch, groups, c, m; /* channels per group */
    int ndim;
    int64_t x[3], k[3], stride[3], dilation[3], begin[3], end[3];
};

static const struct shape shapes[] = {
    /* few channels */
    {2, 1, 1, 1, 4, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 7, 1, 1, 4, {13, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 1, 2, 4, {9, 35}, {5, 3}, {2, 2}, {1, 1}, {2, 1}, {1, 0}},
    {1, 2, 4, 5, 4, {17, 19}, {3, 2}, {3, 2}, {2, 3}, {4, 1}, {0, 3}},
    {1, 1, 3, 9, 4, {20, 150}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}},
    {1, 2, 1, 1, 4, {300, 200}, {3, 1}, {1, 3}, {1, 1}, {1, 0}, {1, 0}},
    {2, 1, 2, 3, 3, {1001}, {9}, {1}, {4}, {16}, {16}},
    {1, 2, 2, 3, 5, {4, 5, 6}, {2, 3, 3}, {1, 2, 1}, {1, 1, 2}, {1, 1, 2}, {0, 1, 2}},
    {1, 1, 2, 2, 4, {3, 3}, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
    {1, 3, 1, 1, 4, {2, 2}, {5, 5}, {1, 1}, {1, 1}, {4, 4}, {4, 4}},
    /* and windows high enough that neighbouring rows share them */
    {1, 3, 2, 3, 4, {11, 70}, {7, 5}, {1, 1}, {1, 1}, {3, 2}, {3, 2}},
    {2, 2, 1, 1, 4, {10, 150}, {4, 3}, {1, 2}, {1, 1}, {1, 0}, {2, 1}},
    /* many */
    {1, 1, 16, 33, 4, {14, 14}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 1, 45, 17, 4, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 2, 23, 5, 4, {9, 33}, {3, 3}, {2, 2}, {1, 1}, {0, 1}, {1, 2}},
    {1, 1, 400, 3, 4, {4, 5}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 1, 401, 300, 4, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 1, 100, 3, 4, {4, 3}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 1, 9, 1, 3, {129}, {1}, {1}, {1}, {0}, {0}},
    {1, 3, 12, 4, 5, {3, 4, 9}, {3, 2, 3}, {2, 1, 2}, {1, 2, 1}, {1, 0, 1}, {1, 2, 0}},
    /* whose windows are read in place: lines that are longer than tiles, and groups that share panels */
    {1, 1, 3, 24, 4, {9, 65}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 4, 24, 24, 4, {5, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 6, 4, 12, 4, {7, 31}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}},
    {2, 1, 33, 40, 4, {7, 17}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 1, 40, 9, 4, {4, 33}, {1, 1}, {1, 2}, {1, 1}, {0, 0}, {0, 0}},
    {1, 1, 300, 72, 3, {40}, {2}, {1}, {3}, {0}, {3}},
    {1, 2, 6, 8, 5, {3, 3, 18}, {2, 2, 3}, {1, 1, 1}, {1, 1, 1}, {1, 0, 1}, {0, 1, 1}},
};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

/* The tensors of a convolution of that shape. */
struct trial {
    const struct shape *shape;
    int ndim;
    int64_t x[5], w[5], y[5], nx, nw, ny;
    float *x32, *w32;
    double *x64, *w64;
};

static int64_t positions(const struct shape *s, int d) {
    return (s->x[d] + s->begin[d] + s->end[d] - (s->k[d] - 1) * s->dilation[d] - 1) / s->stride[d] + 1;
}

static struct trial make(const struct shape *s) {
    struct trial t = {.shape = s, .ndim = s->ndim};
    t.x[0] = t.y[0] = s->batch;
    t.x[1] = s->groups * s->c;
    t.y[1] = t.w[0] = s->groups * s->m;
    t.w[1] = s->c;
    for (int d = 0; d < s->ndim - 2; d++) {
        t.x[2 + d] = s->x[d];
        t.w[2 + d] = s->k[d];
        t.y[2 + d] = positions(s, d);
    }
    t.nx = test_count(t.x, t.ndim);
    t.nw = test_count(t.w, t.ndim);
    t.ny = test_count(t.y, t.ndim);
    t.x32 = test_new(t.nx, 4), t.w32 = test_new(t.nw, 4);
    t.x64 = test_new(t.nx, 8), t.w64 = test_new(t.nw, 8);
    test_f32(t.x32, t.nx);
    test_f32(t.w32, t.nw);
    for (int64_t i = 0; i < t.nx; i++) t.x64[i] = (double)t.x32[i];
    for (int64_t i = 0; i < t.nw; i++) t.w64[i] = (double)t.w32[i];
    return t;
}

static void convolve(struct rt *rt, float *y, const struct trial *t) {
    const struct shape *s = t->shape;
    assert_int_equal(
        rt_conv_f32(rt, y, t->x32, t->w32, t->ndim, t->x, t->w, t->y, s->groups, s->stride, s->dilation, s->begin),
        RT_OK);
}

static void weigh(struct rt *rt, float *dw, const float *dy, const struct trial *t) {
    const struct shape *s = t->shape;
    assert_int_equal(rt_conv_weight_grad_f32(rt, dw, t->x32, dy, t->ndim, t->x, t->w, t->y, s->groups, s->stride,
                                             s->dilation, s->begin),
                     RT_OK);
}

/* Element `at` of y by definition: in f32 rounded after every step, in f64, and the sum of the terms' sizes. */
struct element {
    float rounded;
    double sum, size;
};

static struct element define(const struct trial *t, const int64_t *at) {
    const struct shape *s = t->shape;
    int64_t k[5] = {0}, k_dims[5] = {1, s->c}, x[5] = {at[0]};
    struct element e = {0, 0, 0};
    for (int d = 2; d < t->ndim; d++) k_dims[d] = t->w[d];
    do {
        int outside = 0;
        x[1] = at[1] / s->m * s->c + k[1];
        for (int d = 2; d < t->ndim; d++) {
            x[d] = at[d] * s->stride[d - 2] + k[d] * s->dilation[d - 2] - s->begin[d - 2];
            outside |= x[d] < 0 || x[d] >= t->x[d];
        }
        if (outside) continue;
        int64_t w[5] = {at[1], k[1], k[2], k[3], k[4]}, ix = test_offset(x, t->x, t->ndim),
                iw = test_offset(w, t->w, t->ndim);
        volatile float term = t->x32[ix] * t->w32[iw]; /* volatile: neither fused nor reordered */
        e.rounded = e.rounded + term;
        e.sum += t->x64[ix] * t->w64[iw];
        e.size += fabs(t->x64[ix] * t->w64[iw]);
    } while (test_next(k, k_dims, t->ndim));
    return e;
}

/* The reference is the loop, bit for bit; f64 and the library are within the rounding of so many products and sums. */
static void check_definition(struct rt *reference, struct rt *library, const struct shape *s) {
    struct trial t = make(s);
    float *y = test_new(t.ny, 4), *fast = test_new(t.ny, 4), *expected = test_new(t.ny, 4);
    double *wide = test_new(t.ny, 8);
    convolve(reference, y, &t);
    convolve(library, fast, &t);
    assert_int_equal(
        rt_conv_f64(library, wide, t.x64, t.w64, t.ndim, t.x, t.w, t.y, s->groups, s->stride, s->dilation, s->begin),
        RT_OK);
    int64_t at[5] = {0}, i = 0;
    double terms = (double)(t.nw / (s->groups * s->m));
    do {
        struct element e = define(&t, at);
        expected[i] = e.rounded;
        test_near((double)fast[i], e.sum, terms * FLT_EPSILON * e.size, "f32", i);
        test_near(wide[i], e.sum, terms * DBL_EPSILON * e.size, "f64", i);
        i++;
    } while (test_next(at, t.y, t.ndim));
    test_same_f32(y, expected, t.ny, "reference");
    test_free_all();
}

TEST(test_definition) {
    struct rt *reference = test_open("reference"), *library = test_open("auto");
    for (int s = 0; s < SHAPES; s++) check_definition(reference, library, &shapes[s]);
    test_close(reference);
    test_close(library);
}

/* Channels last ---------------------------------------------------------------------------------------------------- */

/* The offset of element `at` of a tensor whose dimensions are dims, in one with channels last. */
static int64_t last_offset(const int64_t *at, const int64_t *dims, int ndim) {
    int64_t to[5] = {at[0]}, of[5] = {dims[0]};
    for (int d = 2; d < ndim; d++) to[d - 1] = at[d], of[d - 1] = dims[d];
    to[ndim - 1] = at[1], of[ndim - 1] = dims[1];
    return test_offset(to, of, ndim);
}

/* Doubles what a product leaves, so that an element that is not finished once shows. */
static void twice(float *y, const void *const *x, struct rt_block at) {
    const int64_t n = *(const int64_t *)x[0];
    for (int64_t i = at.row; i < at.row + at.rows; i++)
        for (int64_t j = at.column; j < at.column + at.columns; j++) y[i * n + j] *= 2;
}

static void convolve_last(struct rt *rt, float *y, const float *x, const float *w, const struct trial *t) {
    const struct shape *s = t->shape;
    const struct rt_epilogue epilogue = {twice, (const void *const[]){&t->y[1]}};
    int64_t x_dims[5], y_dims[5];
    last_dims(x_dims, t->x, t->ndim);
    last_dims(y_dims, t->y, t->ndim);
    assert_int_equal(rt_conv_packed_f32(rt, y, x, w, t->ndim, x_dims, t->w, y_dims, s->groups, s->stride, s->dilation,
                                        s->begin, RT_CONV_PRODUCT, &epilogue),
                     RT_OK);
}

/* The reference and the fastest kernel are within the rounding of so many products and sums; how pixels are divided
 * among threads does not change a bit. */
static void check_last(struct rt *reference, struct rt *library, const struct shape *s) {
    struct trial t = make(s);
    const struct rt_packed panels = rt_packed_of(RT_PACK_WINDOWS, t.ndim, t.w);
    float *x = test_new(t.nx, 4), *w = test_new(rt_packed_elements(&panels, RT_F32), 4), *y = test_new(t.ny, 4),
          *fast = test_new(t.ny, 4), *divided = test_new(t.ny, 4);
    int64_t at[5] = {0}, depth = t.nw / t.w[0];
    memset(w, 0, (size_t)rt_packed_elements(&panels, RT_F32) * sizeof *w);
    do x[last_offset(at, t.x, t.ndim)] = t.x32[test_offset(at, t.x, t.ndim)];
    while (test_next(at, t.x, t.ndim));
    for (int64_t i = 0; i < t.nw; i++) w[rt_packed_place(&panels, RT_F32, i / depth, i % depth)] = t.w32[i];
    convolve_last(reference, y, x, w, &t);
    convolve_last(library, fast, x, w, &t);
    const int before = rt_kernels_threads(3);
    convolve_last(library, divided, x, w, &t);
    rt_kernels_threads(before);
    test_same_f32(divided, fast, t.ny, "three threads");
    memset(at, 0, sizeof at);
    do {
        const struct element e = define(&t, at);
        const int64_t i = last_offset(at, t.y, t.ndim);
        test_near((double)y[i], 2 * e.sum, 2 * (double)depth * FLT_EPSILON * e.size, "reference", i);
        test_near((double)fast[i], 2 * e.sum, 2 * (double)depth * FLT_EPSILON * e.size, "library", i);
    } while (test_next(at, t.y, t.ndim));
    test_free_all();
}

TEST(test_channels_last) {
    struct rt *reference = test_open("reference"), *library = test_open("auto");
    for (int s = 0; s < SHAPES; s++) check_last(reference, library, &shapes[s]);
    test_close(reference);
    test_close(library);
}

/* <y, conv(x)> = <conv_transpose(y), x>, exact on small whole numbers: one is the other's transpose. */
static void check_adjoint(struct rt *rt, const struct shape *s) {
    struct trial t = make(s);
    double *y = test_new(t.ny, 8), *g = test_new(t.ny, 8), *back = test_new(t.nx, 8), left = 0, right = 0;
    for (int64_t i = 0; i < t.nx; i++) t.x64[i] = (double)test_random(9) - 4;
    for (int64_t i = 0; i < t.nw; i++) t.w64[i] = (double)test_random(9) - 4;
    for (int64_t i = 0; i < t.ny; i++) g[i] = (double)test_random(9) - 4;
    rt_conv_f64(rt, y, t.x64, t.w64, t.ndim, t.x, t.w, t.y, s->groups, s->stride, s->dilation, s->begin);
    rt_conv_transpose_f64(rt, back, g, t.w64, t.ndim, t.y, t.w, t.x, s->groups, s->stride, s->dilation, s->begin);
    for (int64_t i = 0; i < t.ny; i++) left += y[i] * g[i];
    for (int64_t i = 0; i < t.nx; i++) right += back[i] * t.x64[i];
    assert_true(left == right);
    test_free_all();
}

TEST(test_transpose_is_adjoint) {
    struct rt *rt = test_open("reference");
    for (int s = 0; s < SHAPES; s++) check_adjoint(rt, &shapes[s]);
    test_close(rt);
}

/* <conv(x, w), g> = <w, conv_weight_grad(x, g)>, exact on small whole numbers whatever the order of the sums. */
static void check_weights_are_adjoint(struct rt *rt, const struct shape *s) {
    struct trial t = make(s);
    float *y = test_new(t.ny, 4), *g = test_new(t.ny, 4), *back = test_new(t.nw, 4);
    double left = 0, right = 0;
    for (int64_t i = 0; i < t.nx; i++) t.x32[i] = (float)test_random(9) - 4;
    for (int64_t i = 0; i < t.nw; i++) t.w32[i] = (float)test_random(9) - 4;
    for (int64_t i = 0; i < t.ny; i++) g[i] = (float)test_random(9) - 4;
    convolve(rt, y, &t);
    weigh(rt, back, g, &t);
    for (int64_t i = 0; i < t.ny; i++) left += (double)y[i] * (double)g[i];
    for (int64_t i = 0; i < t.nw; i++) right += (double)back[i] * (double)t.w32[i];
    assert_true(left == right);
    test_free_all();
}

TEST(test_weight_gradient_is_adjoint) {
    static const char *const kernels[] = {"reference", "auto"};
    for (int i = 0; i < 2; i++) {
        struct rt *rt = test_open(kernels[i]);
        for (int s = 0; s < SHAPES; s++) check_weights_are_adjoint(rt, &shapes[s]);
        test_close(rt);
    }
}

/* Both gradients of shapes that nobody chose, of few channels and of more. */
TEST(test_gradients_of_random_shapes) {
    struct rt *rt = test_open("reference");
    for (int i = 0; i < 400; i++) {
        struct shape s = {1 + below(3), 1 + below(4), below(3) ? 1 : 1 + below(10), 1 + below(6), 4 - (int)below(2)};
        for (int d = 0; d < s.ndim - 2; d++) {
            s.k[d] = 1 + below(5), s.stride[d] = 1 + below(4), s.dilation[d] = 1 + below(3);
            s.begin[d] = below(4), s.end[d] = below(4);
            s.x[d] = (s.k[d] - 1) * s.dilation[d] + 1 + below(40);
        }
        check_adjoint(rt, &s);
        check_weights_are_adjoint(rt, &s);
    }
    test_close(rt);
}

/* An infinite element of x reaches only the weights whose window elements read it. */
TEST(test_gradient_beside_infinity) {
    enum { ROWS = 6, COLUMNS = 7, TAPS = 9 };
    struct rt *rt = test_open("reference");
    static const int64_t x_dims[] = {1, 1, ROWS, COLUMNS}, w_dims[] = {1, 1, 3, 3}, one[] = {1, 1};
    float x[ROWS * COLUMNS], dy[ROWS * COLUMNS], dw[TAPS];
    for (int at = 0; at < ROWS * COLUMNS; at++) {
        for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = i == at ? INFINITY : 1, dy[i] = 1;
        assert_int_equal(rt_conv_weight_grad_f32(rt, dw, x, dy, 4, x_dims, w_dims, x_dims, 1, one, one, one), RT_OK);
        for (int k = 0; k < TAPS; k++) {
            const int row = at / COLUMNS - (k / 3 - 1), column = at % COLUMNS - (k % 3 - 1);
            const bool reads = row >= 0 && row < ROWS && column >= 0 && column < COLUMNS;
            assert_true(reads ? isinf(dw[k]) : isfinite(dw[k]));
        }
    }
    test_close(rt);
}

/* Cuts and threads ------------------------------------------------------------------------------------------------ */

/* Sample by sample, group by group, and in two parts of a group's output channels: the same bits as all at once. */
static void check_cuts(struct rt *rt, const struct shape *s) {
    struct trial t = make(s);
    int64_t x_group = t.nx / (s->batch * s->groups), y_group = t.ny / (s->batch * s->groups),
            w_group = t.nw / s->groups;
    float *y = test_new(t.ny, 4), *parts = test_new(t.ny, 4);
    convolve(rt, y, &t);
    for (int64_t i = 0; i < s->batch * s->groups; i++)
        for (int64_t m = 0, some; m < s->m; m += some) {
            some = m ? s->m - m : (s->m + 1) / 2;
            struct trial part = t;
            part.x[0] = part.y[0] = 1;
            part.x[1] = s->c;
            part.y[1] = part.w[0] = some;
            struct shape one = *s;
            one.groups = 1;
            part.shape = &one;
            part.x32 = t.x32 + i * x_group;
            part.w32 = t.w32 + i % s->groups * w_group + m * w_group / s->m;
            convolve(rt, parts + i * y_group + m * y_group / s->m, &part);
        }
    test_same_f32(parts, y, t.ny, "cut");
    test_free_all();
}

/* The weights of a part of all samples' output channels, by the gradient of that part. */
static void check_weight_cuts(struct rt *rt, const struct shape *s) {
    struct trial t = make(s), part = t;
    int64_t plane = t.ny / (s->batch * s->groups * s->m), window = t.nw / (s->groups * s->m);
    float *g = test_new(t.ny, 4), *some = test_new(t.ny, 4), *dw = test_new(t.nw, 4), *parts = test_new(t.nw, 4);
    if (s->groups > 1 || s->m == 1) return test_free_all();
    test_f32(g, t.ny);
    weigh(rt, dw, g, &t);
    for (int64_t m = 0; m < s->m; m += part.y[1]) {
        part.y[1] = part.w[0] = m ? s->m - m : (s->m + 1) / 2;
        for (int64_t i = 0; i < s->batch; i++)
            memcpy(some + i * part.y[1] * plane, g + (i * s->m + m) * plane, (size_t)(part.y[1] * plane) * sizeof *g);
        weigh(rt, parts + m * window, some, &part);
    }
    test_same_f32(parts, dw, t.nw, "cut");
    test_free_all();
}

TEST(test_cuts) {
    static const char *const kernels[] = {"reference", "auto"};
    for (int i = 0; i < 2; i++) {
        struct rt *rt = test_open(kernels[i]);
        for (int s = 0; s < SHAPES && rt_kernels_invariant(rt); s++) {
            check_cuts(rt, &shapes[s]);
            check_weight_cuts(rt, &shapes[s]);
        }
        test_close(rt);
    }
}

/* Large enough that work is shared out. */
TEST(test_threads) {
    static const struct shape large[] = {{1, 1, 24, 70, 4, {31, 37}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                                         {1, 90, 1, 1, 4, {41, 37}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                                         {1, 1, 700, 300, 4, {4, 4}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}}};
    static const char *const kernels[] = {"reference", "auto"};
    for (int i = 0; i < 2; i++)
        for (int s = 0; s < 3; s++) {
            struct rt *rt = test_open(kernels[i]);
            struct trial t = make(&large[s]);
            float *one = test_new(t.ny, 4), *many = test_new(t.ny, 4);
            int before = rt_kernels_threads(1);
            convolve(rt, one, &t);
            rt_kernels_threads(3);
            convolve(rt, many, &t);
            rt_kernels_threads(before);
            if (rt_kernels_invariant(rt)) test_same_f32(many, one, t.ny, "3 threads");
            float *dw = test_new(t.nw, 4), *shared = test_new(t.nw, 4);
            before = rt_kernels_threads(1);
            weigh(rt, dw, one, &t);
            rt_kernels_threads(3);
            weigh(rt, shared, one, &t);
            rt_kernels_threads(before);
            if (rt_kernels_invariant(rt)) test_same_f32(shared, dw, t.nw, "weights, 3 threads");
            test_free_all();
            test_close(rt);
        }
}

/* Nothing to do --------------------------------------------------------------------------------------------------- */

TEST(test_empty) {
    static const int64_t one[] = {1, 1}, zero[] = {0, 0}, none[] = {0, 3, 4, 5}, w[] = {2, 3, 1, 1},
                         no_y[] = {0, 2, 4, 5};
    static const int64_t x[] = {1, 0, 2, 2}, no_w[] = {2, 0, 1, 1}, y[] = {1, 2, 2, 2};
    static const int64_t row[] = {1, 3, 0, 2}, pad[] = {1, 0};
    static const int64_t w_row[] = {2, 3, 1, 1}, y_row[] = {1, 2, 2, 2};
    struct rt *rt = test_open("auto");
    float out[8] = {1, 2, 3, 4, 5, 6, 7, 8}, in[1] = {0}, weights[6] = {1, 1, 1, 1, 1, 1};
    assert_int_equal(rt_conv_f32(rt, out, in, weights, 4, none, w, no_y, 1, one, one, zero), RT_OK);
    assert_true(out[0] == 1);
    assert_int_equal(rt_conv_f32(rt, out, in, weights, 4, x, no_w, y, 1, one, one, zero), RT_OK);
    for (int i = 0; i < 8; i++) assert_true(out[i] == 0);
    out[3] = 1;
    assert_int_equal(rt_conv_f32(rt, out, in, weights, 4, row, w_row, y_row, 1, one, one, pad), RT_OK);
    for (int i = 0; i < 8; i++) assert_true(out[i] == 0);
    rt_max_pool_f32(out, in, 4, none, no_y, one, one, one, zero);
    rt_max_pool_grad_f32(out, in, in, 4, none, no_y, one, one, one, zero);
    assert_int_equal(rt_conv_weight_grad_f32(rt, out, in, in, 4, none, w, no_y, 1, one, one, zero), RT_OK);
    for (int i = 0; i < 6; i++) assert_true(out[i] == 0);
    test_close(rt);
}

int main(void) {
    return run_all_tests("conv", NULL, NULL);
}
