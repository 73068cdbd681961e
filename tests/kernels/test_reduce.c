/* Reductions, arg-reductions, running sums and ranges: definitions, order, and what IEEE 754 and kernels.h say of
 * NaN, infinities and nothing at all. */
#include "kernel_test.h"

#include <float.h>
#include <math.h>

#define T       float
#define SUFFIX  f32
#define EPSILON FLT_EPSILON
#include "reduce_cases.inc"

#define T       double
#define SUFFIX  f64
#define EPSILON DBL_EPSILON
#include "reduce_cases.inc"

/* Whole numbers are read as long double, so their products stay exact only while short; the fill keeps most below.
 */
static void small_i64(int64_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (int64_t)test_random(3) - 1;
}
static void small_i32(int32_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (int32_t)test_random(3) - 1;
}

#define test_i64 small_i64
#define T        int64_t
#define SUFFIX   i64
#define EPSILON  0
#include "reduce_cases.inc"
#undef test_i64

#define test_i32 small_i32
#define T        int32_t
#define SUFFIX   i32
#define EPSILON  0
#include "reduce_cases.inc"
#undef test_i32

TEST(test_nothing_gives_the_identity) {
    float y[2];
    int64_t w[2];
    int32_t v[2];
    rt_reduce_sum_f32(y, NULL, 1, 0, 2);
    assert_true(y[0] == 0 && y[1] == 0);
    rt_reduce_prod_f32(y, NULL, 2, 0, 1);
    assert_true(y[0] == 1 && y[1] == 1);
    rt_reduce_max_f32(y, NULL, 1, 0, 2);
    assert_true(y[0] == -INFINITY && y[1] == -INFINITY);
    rt_reduce_min_f32(y, NULL, 2, 0, 1);
    assert_true(y[0] == INFINITY && y[1] == INFINITY);
    rt_reduce_max_i64(w, NULL, 1, 0, 2);
    assert_true(w[0] == INT64_MIN);
    rt_reduce_min_i32(v, NULL, 2, 0, 1);
    assert_true(v[1] == INT32_MAX);
}

TEST(test_nan_wins_everywhere) {
    enum { R = 21 };
    for (int place = 0; place < R; place++) {
        float x[R], y;
        int64_t at;
        for (int i = 0; i < R; i++) x[i] = (float)(i % 5);
        x[place] = NAN;
        rt_reduce_max_f32(&y, x, 1, R, 1);
        assert_true(isnan(y));
        rt_reduce_min_f32(&y, x, 1, R, 1);
        assert_true(isnan(y));
        rt_reduce_sum_f32(&y, x, 1, R, 1);
        assert_true(isnan(y));
        for (int last = 0; last < 2; last++) {
            rt_argmax_f32(&at, x, 1, R, 1, last);
            assert_int_equal(at, place);
            rt_argmin_f32(&at, x, 1, R, 1, last);
            assert_int_equal(at, place);
        }
        x[R - 1] = NAN;
        rt_argmax_f32(&at, x, 1, R, 1, 0);
        assert_int_equal(at, place);
        rt_argmax_f32(&at, x, 1, R, 1, 1);
        assert_int_equal(at, R - 1);
    }
}

TEST(test_infinities) {
    const float x[] = {1, INFINITY, 2}, both[] = {-INFINITY, 0, INFINITY};
    float y;
    rt_reduce_sum_f32(&y, x, 1, 3, 1);
    assert_true(y == INFINITY);
    rt_reduce_sum_f32(&y, both, 1, 3, 1);
    assert_true(isnan(y));
    rt_reduce_max_f32(&y, both, 1, 3, 1);
    assert_true(y == INFINITY);
    rt_reduce_min_f32(&y, both, 1, 3, 1);
    assert_true(y == -INFINITY);
}

TEST(test_integers_wrap) {
    const int32_t x[] = {INT32_MAX, 1, INT32_MAX};
    const int64_t w[] = {INT64_MAX, 2};
    int32_t y, sums[3];
    int64_t z;
    rt_reduce_sum_i32(&y, x, 1, 3, 1);
    assert_int_equal(y, -1);
    rt_reduce_prod_i64(&z, w, 1, 2, 1);
    assert_int_equal(z, -2);
    rt_cumsum_i32(sums, x, 1, 3, 1, 0, 0);
    assert_int_equal(sums[1], INT32_MIN);
    rt_range_i32(sums, 3, INT32_MAX, 1, 0);
    assert_int_equal(sums[1], INT32_MIN);
}

TEST(test_range_rounds_once) {
    float y[2];
    rt_range_f32(y, 2, 0.1f, 0.1f, 16777216);
    assert_true(y[1] == (float)((double)0.1f + 16777217.0 * (double)0.1f));
}

int main(void) {
    return run_all_tests("reduce", NULL, NULL);
}
