/* Softmax and its logarithm, layer and RMS normalisation: against values recorded from PyTorch, against their
 * definitions on odd shapes, and for layout, threads and special values. */
#include "kernel_test.h"

#include <float.h>
#include <math.h>

#include "recorded_normalize.h"

/* An e^x is right to 1.05 ulp, its argument is rounded where |x - max| is large (eps |x - max| relative), and the
 * quotient is rounded twice. */
static double softmax_bound(double expected, double distance, double epsilon) {
    return expected * epsilon * (4 + distance) + (double)FLT_TRUE_MIN;
}

TEST(test_recorded) {
    enum { COUNT = OUTER * C * INNER };
    float y[COUNT], z[COUNT];
    double wide[COUNT], w[COUNT], v[COUNT];
    for (int i = 0; i < COUNT; i++) wide[i] = (double)recorded_x[i];
    rt_softmax_f32(y, recorded_x, OUTER, C, INNER);
    rt_log_softmax_f32(z, recorded_x, OUTER, C, INNER);
    rt_softmax_f64(w, wide, OUTER, C, INNER);
    rt_log_softmax_f64(v, wide, OUTER, C, INNER);
    for (int i = 0; i < COUNT; i++) {
        double soft = recorded_softmax[i], logarithm = recorded_log_softmax[i];
        test_near((double)y[i], soft, softmax_bound(soft, 110, FLT_EPSILON), "softmax f32", i);
        test_near((double)z[i], logarithm, 2 * (double)FLT_EPSILON * (1 + fabs(logarithm)), "log_softmax f32", i);
        test_near(w[i], soft, softmax_bound(soft, 110, DBL_EPSILON), "softmax f64", i);
        test_near(v[i], logarithm, 4 * DBL_EPSILON * (1 + fabs(logarithm)), "log_softmax f64", i);
    }
}

TEST(test_recorded_norms) {
    enum { COUNT = OUTER * C };
    float y[COUNT], plain[COUNT], rms[COUNT];
    rt_layernorm_f32(y, recorded_rows, recorded_scale, recorded_bias, OUTER, C, 1e-5);
    rt_layernorm_f32(plain, recorded_rows, recorded_scale, NULL, OUTER, C, 1e-5);
    rt_rmsnorm_f32(rms, recorded_rows, recorded_scale, OUTER, C, 1e-6);
    for (int i = 0; i < COUNT; i++) { /* the quotient, the product and the sum are rounded, each below 8 */
        test_near((double)y[i], recorded_layernorm[i], 8 * (double)FLT_EPSILON, "layernorm", i);
        test_near((double)plain[i], recorded_layernorm_plain[i], 8 * (double)FLT_EPSILON, "layernorm, no bias", i);
        test_near((double)rms[i], recorded_rmsnorm[i], 8 * (double)FLT_EPSILON, "rmsnorm", i);
    }
}

static void softmax_once(int64_t outer, int64_t c, int64_t inner) {
    int64_t count = outer * c * inner;
    float *x = test_new(count, 4), *y = test_new(count, 4), *z = test_new(count, 4);
    test_f32(x, count);
    for (int64_t i = 0; i < count; i++) x[i] *= 20;
    rt_softmax_f32(y, x, outer, c, inner);
    rt_log_softmax_f32(z, x, outer, c, inner);
    for (int64_t at = 0; at < count; at++) {
        int64_t i = at / inner % c;
        const float *column = x + at - i * inner;
        double max = -INFINITY, sum = 0;
        for (int64_t p = 0; p < c; p++) max = fmax(max, (double)column[p * inner]);
        for (int64_t p = 0; p < c; p++) sum += exp((double)column[p * inner] - max);
        double distance = (double)x[at] - max, soft = exp(distance) / sum, logarithm = distance - log(sum);
        test_near((double)y[at], soft, softmax_bound(soft, -distance, FLT_EPSILON), "softmax", at);
        test_near((double)z[at], logarithm, 2 * (double)FLT_EPSILON * (1 + fabs(logarithm)), "log_softmax", at);
    }
    rt_log_softmax_f32(x, x, outer, c, inner);
    test_same_f32(x, z, count, "log_softmax in place");
    rt_softmax_f32(y, z, outer, c, inner);
    rt_softmax_f32(z, z, outer, c, inner);
    test_same_f32(z, y, count, "softmax in place");
    test_free_all();
}

TEST(test_softmax_shapes) {
    static const int64_t lengths[] = {0, 1, 2, 7, 16, 17, 513, 1031}, inners[] = {0, 1, 2, 5, 64, 67};
    for (int c = 0; c < 8; c++)
        for (int i = 0; i < 6; i++) softmax_once(c % 4, lengths[c], inners[i] > 5 && c > 5 ? 3 : inners[i]);
}

static void norm_once(int64_t outer, int64_t c) {
    int64_t count = outer * c;
    float *x = test_new(count, 4), *scale = test_new(c, 4), *bias = test_new(c, 4);
    float *y = test_new(count, 4), *rms = test_new(count, 4);
    test_f32(x, count);
    test_f32(scale, c);
    test_f32(bias, c);
    for (int64_t i = 0; i < count; i++) x[i] += 100; /* a mean that would eat the variance if squares were summed */
    rt_layernorm_f32(y, x, scale, bias, outer, c, 1e-5);
    rt_rmsnorm_f32(rms, x, scale, outer, c, 1e-5);
    for (int64_t at = 0; at < count; at++) {
        const float *row = x + at / c * c;
        double mean = 0, variance = 0, square = 0;
        for (int64_t i = 0; i < c; i++) mean += (double)row[i] / (double)c;
        for (int64_t i = 0; i < c; i++) {
            variance += ((double)row[i] - mean) * ((double)row[i] - mean) / (double)c;
            square += (double)row[i] * (double)row[i] / (double)c;
        }
        double factor = (double)scale[at % c], offset = (double)bias[at % c];
        double normal = ((double)x[at] - mean) / sqrt(variance + 1e-5), root = (double)x[at] / sqrt(square + 1e-5);
        double bound = 2 * (double)FLT_EPSILON * (fabs(normal * factor) + fabs(offset)) + 1e-9;
        test_near((double)y[at], normal * factor + offset, bound, "layernorm", at);
        test_near((double)rms[at], root * factor, 2 * (double)FLT_EPSILON, "rmsnorm", at);
    }
    rt_rmsnorm_f32(y, y, scale, outer, c, 1e-5);
    rt_layernorm_f32(x, x, scale, bias, outer, c, 1e-5);
    rt_rmsnorm_f32(x, x, scale, outer, c, 1e-5);
    test_same_f32(x, y, count, "norms in place");
    test_free_all();
}

TEST(test_norm_shapes) {
    static const int64_t lengths[] = {0, 1, 2, 7, 8, 9, 31, 257};
    for (int c = 0; c < 8; c++)
        for (int64_t outer = 0; outer < 5; outer += 2) norm_once(outer, lengths[c]);
}

/* f64 kernels share the body; one value each shows that they compute in f64. */
TEST(test_f64_precision) {
    const double x[] = {1, 2, 4}, one[] = {1, 1, 1};
    double y[3];
    double sum = exp(-3) + exp(-2) + 1;
    rt_softmax_f64(y, x, 1, 3, 1);
    test_near(y[0], exp(-3) / sum, 4 * DBL_EPSILON, "softmax", 0);
    rt_rmsnorm_f64(y, x, one, 1, 3, 0);
    test_near(y[2], 4 / sqrt(7), 4 * DBL_EPSILON, "rmsnorm", 2);
    rt_layernorm_f64(y, x, one, NULL, 1, 3, 0);
    test_near(y[0], -4 / sqrt(14), 4 * DBL_EPSILON, "layernorm", 0);
}

/* Columns stored as rows, alone, and on several threads: equal bits. */
TEST(test_layout_changes_nothing) {
    enum { LENGTH = 601, WIDE = 70, COUNT = LENGTH * WIDE };
    float *x = test_new(COUNT, 4), *rows = test_new(COUNT, 4), *y = test_new(COUNT, 4), *z = test_new(COUNT, 4);
    float *back = test_new(COUNT, 4), *scale = test_new(LENGTH, 4);
    static void (*const kernels[])(float *, const float *, int64_t, int64_t, int64_t) = {rt_softmax_f32,
                                                                                         rt_log_softmax_f32};
    test_f32(x, COUNT);
    test_f32(scale, LENGTH);
    for (int p = 0; p < LENGTH; p++)
        for (int j = 0; j < WIDE; j++) rows[j * LENGTH + p] = x[p * WIDE + j];
    for (int kind = 0; kind < 2; kind++) {
        rt_kernels_threads(1);
        kernels[kind](y, x, 1, LENGTH, WIDE);
        for (int threads = 1; threads <= 3; threads++) {
            rt_kernels_threads(threads);
            kernels[kind](z, x, 1, LENGTH, WIDE);
            test_same_f32(z, y, COUNT, "threads");
            kernels[kind](z, rows, WIDE, LENGTH, 1);
            for (int i = 0; i < COUNT; i++) back[i % LENGTH * WIDE + i / LENGTH] = z[i];
            test_same_f32(back, y, COUNT, "rows");
        }
    }
    rt_kernels_threads(1);
    rt_layernorm_f32(y, rows, scale, scale, WIDE, LENGTH, 1e-5);
    rt_kernels_threads(2);
    rt_layernorm_f32(z, rows, scale, scale, WIDE, LENGTH, 1e-5);
    test_same_f32(z, y, COUNT, "layernorm with threads");
    rt_kernels_threads(1);
    test_free_all();
}

TEST(test_special_values) {
    const float masked[] = {-INFINITY, -INFINITY, -INFINITY}, partly[] = {-INFINITY, 1, -INFINITY};
    const float infinite[] = {0, INFINITY, 1}, huge[] = {3e38f, -3e38f, 3e38f}, nan[] = {0, NAN, 1};
    float y[3];
    rt_softmax_f32(y, masked, 1, 3, 1);
    assert_true(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
    rt_softmax_f32(y, masked, 1, 1, 3);
    assert_true(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
    rt_softmax_f32(y, partly, 1, 3, 1);
    assert_true(y[0] == 0 && y[1] == 1 && y[2] == 0);
    rt_log_softmax_f32(y, partly, 1, 3, 1);
    assert_true(y[0] == -INFINITY && y[1] == 0 && y[2] == -INFINITY);
    rt_softmax_f32(y, infinite, 1, 3, 1);
    assert_true(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
    rt_softmax_f32(y, huge, 1, 3, 1);
    assert_true(y[0] == 0.5f && y[1] == 0 && y[2] == 0.5f);
    rt_softmax_f32(y, nan, 1, 3, 1);
    assert_true(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
}

/* Wherever it stands, in a whole vector or in a tail, in a row or in a column. */
TEST(test_one_nan_spoils_all) {
    enum { LENGTH = 533, COUNT = 3 * LENGTH };
    static void (*const kernels[])(float *, const float *, int64_t, int64_t, int64_t) = {rt_softmax_f32,
                                                                                         rt_log_softmax_f32};
    static const float values[] = {NAN, INFINITY};
    static const int places[] = {0, 17, 511, 512, 520, LENGTH - 1};
    float x[COUNT] = {0}, y[COUNT];
    for (int n = 0; n < 2 * 2 * 6; n++) {
        const int at = places[n / 4];
        x[LENGTH + at] = values[n % 2];
        kernels[n / 2 % 2](y, x, 3, LENGTH, 1);
        for (int i = 0; i < COUNT; i++) assert_int_equal(isnan(y[i]) != 0, i / LENGTH == 1);
        x[LENGTH + at] = 0;
        x[at * 3 + 1] = values[n % 2];
        kernels[n / 2 % 2](y, x, 1, LENGTH, 3);
        for (int i = 0; i < COUNT; i++) assert_int_equal(isnan(y[i]) != 0, i % 3 == 1);
        x[at * 3 + 1] = 0;
    }
}

int main(void) {
    return run_all_tests("normalize", NULL, NULL);
}
