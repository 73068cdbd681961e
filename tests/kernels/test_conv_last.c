/* Convolutions of channels last with weights that are not packed, and their gradients, and those of pooling: against
 * values recorded from PyTorch, against the kernels of channels before the spatial dimensions, and bit for bit with any
 * number of threads. */
#include "kernel_test.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "../../runtime/base/shape/conv_room.h"

#include "recorded_case.h"
#include "recorded_conv.h"

/* Recorded values ------------------------------------------------------------------------------------------------- */

static void fill(float *to, int64_t count, int64_t factor, int64_t modulus, int64_t offset) {
    for (int64_t i = 0; i < count; i++) to[i] = (float)(factor * i % modulus - offset) / 8;
}

/* Moves the elements of an image of those dimensions, which has channels before the others, to channels last or
 * back. */
static void move(float *last, float *image, const int64_t *dims, int ndim, int back) {
    const int64_t n = test_count(dims, ndim), channels = dims[1], plane = n / dims[0] / (channels ? channels : 1);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (i / (channels * plane) * plane + i % plane) * channels + i / plane % channels;
        if (back)
            image[i] = last[at];
        else
            last[at] = image[i];
    }
}

static float *moved(float *image, const int64_t *dims, int ndim) {
    float *last = test_new(test_count(dims, ndim), 4);
    move(last, image, dims, ndim, 0);
    return last;
}

static int64_t taps_of(const struct recorded *r) {
    return test_count(r->w + 2, r->ndim - 2);
}

/* What is recorded, by the kernel of channels last: from x and the second operand `w`, a weight or a gradient. */
static void compute(struct rt *rt, float *to, float *x, float *w, const struct recorded *r) {
    const int n = r->ndim;
    int64_t x_dims[5], y_dims[5], elements = test_count(r->y, n);
    last_dims(x_dims, r->x, n), last_dims(y_dims, r->y, n);
    float *x_last = moved(x, r->x, n), *result = test_new(elements, 4);
    if (r->kind == RECORDED_CONV) {
        void *room = test_new(rt_conv_room(taps_of(r) * r->x[1], r->y[1]), 4);
        assert_int_equal(
            rt_conv_last_f32(rt, result, x_last, w, room, n, x_dims, r->w, y_dims, r->stride, r->dilation, r->begin),
            RT_OK);
        move(result, to, r->y, n, 1);
    } else if (r->kind == RECORDED_TRANSPOSE) {
        void *room = test_new(rt_conv_transpose_room(taps_of(r), r->y[1], r->x[1], elements), 4);
        assert_int_equal(rt_conv_transpose_last_f32(rt, result, x_last, w, room, n, x_dims, r->w, y_dims, r->stride,
                                                    r->dilation, r->begin),
                         RT_OK);
        move(result, to, r->y, n, 1);
    } else if (r->kind == RECORDED_WEIGHTS) {
        const int64_t pixels = r->y[1] ? elements / r->y[1] : 0;
        void *room = test_new(rt_conv_weight_grad_room(pixels, r->y[1], taps_of(r) * r->x[1]), 4);
        assert_int_equal(rt_conv_weight_grad_last_f32(rt, to, x_last, moved(w, r->y, n), room, n, x_dims, r->w, y_dims,
                                                      r->stride, r->dilation, r->begin),
                         RT_OK);
    } else {
        float *dx = test_new(test_count(r->x, n), 4);
        rt_max_pool_grad_last_f32(dx, x_last, moved(w, r->y, n), n, x_dims, y_dims, r->w + 2, r->stride, r->dilation,
                                  r->begin);
        move(dx, to, r->x, n, 1);
    }
}

static void check_recorded(struct rt *rt, const struct recorded *r) {
    const int64_t nx = test_count(r->x, r->ndim), nw = test_count(operand_dims(r), r->ndim),
                  ny = test_count(result_dims(r), r->ndim);
    float *x = test_new(nx, 4), *w = test_new(nw, 4), *y = test_new(ny, 4);
    fill(x, nx, 7, 23, 11);
    fill(w, nw, 5, 19, 9);
    if (r->kind == RECORDED_MAX_GRAD) x[5] = NAN, x[17] = -INFINITY;
    compute(rt, y, x, w, r);
    for (int64_t i = 0; i < ny; i++) test_near((double)y[i], r->expected[i], 0, "channels last", i);
    test_free_all();
}

TEST(test_recorded) {
    static const char *const kernels[] = {"reference", "auto"};
    for (int k = 0; k < 2; k++) {
        struct rt *rt = test_open(kernels[k]);
        int checked = 0;
        for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
            const enum recorded_kind kind = recorded[i].kind;
            if (recorded[i].group != 1 || kind == RECORDED_MAX || kind == RECORDED_AVERAGE) continue;
            check_recorded(rt, &recorded[i]);
            checked++;
        }
        assert_true(checked >= 10);
        test_close(rt);
    }
}

/* Shapes that nobody chose ----------------------------------------------------------------------------------------- */

/* A case without values: x, w and y of a convolution without groups. */
static struct recorded random_case(void) {
    struct recorded r = {.ndim = 3 + (int)below(3), .group = 1};
    r.x[0] = r.y[0] = 1 + below(3);
    r.x[1] = r.w[1] = 1 + below(below(3) ? 6 : 70);
    r.w[0] = r.y[1] = 1 + below(below(3) ? 6 : 70);
    for (int d = 0; d < r.ndim - 2; d++) {
        r.w[2 + d] = 1 + below(r.ndim == 5 ? 2 : 4), r.stride[d] = 1 + below(3), r.dilation[d] = 1 + below(3);
        r.begin[d] = below(4);
        const int64_t span = (r.w[2 + d] - 1) * r.dilation[d] + 1;
        r.x[2 + d] = span + below(r.ndim == 3 ? 900 : r.ndim == 4 ? 24 : 6);
        r.y[2 + d] = (r.x[2 + d] + r.begin[d] + below(3) - span) / r.stride[d] + 1;
    }
    return r;
}

static float *whole_numbers(int64_t n) {
    float *to = test_new(n, 4);
    for (int64_t i = 0; i < n; i++) to[i] = (float)(below(9) - 4);
    return to;
}

/* Sums of small whole numbers are exact in every order: equal to the kernels of channels before the others. */
static void check_equal(struct rt *rt, const struct recorded *conv) {
    const int n = conv->ndim;
    const int64_t nx = test_count(conv->x, n), nw = test_count(conv->w, n), ny = test_count(conv->y, n);
    float *x = whole_numbers(nx), *w = whole_numbers(nw), *dy = whole_numbers(ny), *y = test_new(ny, 4),
          *dx = test_new(nx, 4), *dw = test_new(nw, 4), *y_last = test_new(ny, 4), *dx_last = test_new(nx, 4),
          *dw_last = test_new(nw, 4);
    struct recorded back = *conv, weights = *conv, forward = *conv;
    forward.kind = RECORDED_CONV, weights.kind = RECORDED_WEIGHTS, back.kind = RECORDED_TRANSPOSE;
    memcpy(back.x, conv->y, sizeof back.x), memcpy(back.y, conv->x, sizeof back.y);
    rt_conv_f32(rt, y, x, w, n, conv->x, conv->w, conv->y, 1, conv->stride, conv->dilation, conv->begin);
    rt_conv_transpose_f32(rt, dx, dy, w, n, conv->y, conv->w, conv->x, 1, conv->stride, conv->dilation, conv->begin);
    rt_conv_weight_grad_f32(rt, dw, x, dy, n, conv->x, conv->w, conv->y, 1, conv->stride, conv->dilation, conv->begin);
    compute(rt, y_last, x, w, &forward);
    compute(rt, dx_last, dy, w, &back);
    compute(rt, dw_last, x, dy, &weights);
    for (int64_t i = 0; i < ny; i++) test_near((double)y_last[i], (double)y[i], 0, "convolution", i);
    for (int64_t i = 0; i < nx; i++) test_near((double)dx_last[i], (double)dx[i], 0, "gradient of x", i);
    for (int64_t i = 0; i < nw; i++) test_near((double)dw_last[i], (double)dw[i], 0, "gradient of weights", i);
    test_free_all();
}

TEST(test_random_shapes) {
    static const char *const kernels[] = {"reference", "auto"};
    for (int k = 0; k < 2; k++) {
        struct rt *rt = test_open(kernels[k]);
        for (int i = 0; i < 60; i++) {
            const struct recorded conv = random_case();
            check_equal(rt, &conv);
        }
        test_close(rt);
    }
}

/* The same bits with any number of threads. */
TEST(test_threads) {
    struct rt *rt = test_open("auto");
    const int usual = omp_get_max_threads();
    for (int i = 0; i < 20; i++) {
        struct recorded r = random_case();
        for (int kind = RECORDED_CONV; kind <= RECORDED_WEIGHTS; kind++) {
            struct recorded one = r;
            one.kind = (enum recorded_kind)kind;
            if (kind == RECORDED_TRANSPOSE) memcpy(one.x, r.y, sizeof one.x), memcpy(one.y, r.x, sizeof one.y);
            const int64_t ny = test_count(result_dims(&one), one.ndim), nx = test_count(one.x, one.ndim),
                          nw = test_count(operand_dims(&one), one.ndim);
            float *x = test_new(nx, 4), *w = test_new(nw, 4), *y = test_new(ny, 4), *again = test_new(ny, 4);
            test_f32(x, nx);
            test_f32(w, nw);
            omp_set_num_threads(1);
            compute(rt, y, x, w, &one);
            for (int threads = 2; threads <= 5; threads++) {
                omp_set_num_threads(threads);
                compute(rt, again, x, w, &one);
                test_same_f32(again, y, ny, "threads");
            }
            test_free_all();
        }
    }
    omp_set_num_threads(usual);
    test_close(rt);
}

int main(void) {
    return run_all_tests("conv_last", NULL, NULL);
}
