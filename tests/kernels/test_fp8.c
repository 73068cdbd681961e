/* 8-bit floats: conversions as ml_dtypes has them (record_fp8.py), quantised tensors, and products against halves'. */
#include "kernel_test.h"

#include "../../runtime/base/number/fp8.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "recorded_fp8.h"

static const struct format {
    const char *name;
    enum rt_fp8 id;
    const uint32_t *values, *thresholds;
    int codes; /* of numbers that are not negative */
    float largest;
    uint8_t infinity;
    float (*to_f32)(uint8_t code);
    uint8_t (*of_f32)(float value);
} formats[] = {{"e4m3", RT_FP8_E4M3, e4m3_values, e4m3_thresholds, 127, 448, 0x7f, rt_e4m3_to_f32, rt_f32_to_e4m3},
               {"e5m2", RT_FP8_E5M2, e5m2_values, e5m2_thresholds, 124, 57344, 0x7c, rt_e5m2_to_f32, rt_f32_to_e5m2}};

TEST(test_codes_are_values) {
    for (int f = 0; f < 2; f++)
        for (int code = 0; code < 256; code++) {
            const float value = formats[f].to_f32((uint8_t)code), expected = rt_f32_of_bits(formats[f].values[code]);
            if (isnan(expected) ? !isnan(value) : rt_f32_bits(value) != rt_f32_bits(expected))
                fail_msg("%s %02x: %g, not %g", formats[f].name, code, (double)value, (double)expected);
        }
}

static void check_code(const struct format *format, uint32_t bits, int code) {
    const uint8_t up = format->of_f32(rt_f32_of_bits(bits)), down = format->of_f32(rt_f32_of_bits(bits | 0x80000000));
    if (up != code || down != (code | 0x80))
        fail_msg("%s of %08x: %02x and %02x, not %02x", format->name, bits, up, down, code);
}

/* Where a code begins, the number before that, and every 997th between. */
TEST(test_values_are_codes) {
    for (int f = 0; f < 2; f++) {
        const struct format *format = &formats[f];
        assert_int_equal(sizeof e4m3_thresholds / 4, formats[0].codes);
        assert_int_equal(sizeof e5m2_thresholds / 4, formats[1].codes);
        for (int code = 0; code < format->codes; code++) {
            const uint32_t first = format->thresholds[code],
                           end = code + 1 < format->codes ? format->thresholds[code + 1] : 0x7f800000;
            for (uint32_t bits = first; bits < end; bits += 997) check_code(format, bits, code);
            check_code(format, end - 1, code);
        }
    }
}

TEST(test_what_is_no_number) {
    for (int f = 0; f < 2; f++) {
        check_code(&formats[f], 0x7f800000, formats[f].infinity);
        assert_true(isnan(formats[f].to_f32(formats[f].of_f32(NAN))));
        assert_true(isnan(formats[f].to_f32(formats[f].of_f32(rt_f32_of_bits(0x7f800001)))));
        assert_false(isfinite(formats[f].to_f32(formats[f].of_f32(-INFINITY))));
    }
}

/* Tensors ---------------------------------------------------------------------------------------------------------- */

static void check_quantised(const struct format *format, const float *x, int64_t m, int64_t c, float scale) {
    uint8_t *q = test_new(m * c, 1);
    float most, largest = 0;
    rt_quantize_f32(q, &most, x, &scale, m, c, format->id);
    for (int64_t i = 0; i < m * c; i++) {
        float value = x[i] * scale;
        if (isinf(value) && !isinf(x[i])) value = copysignf(format->largest, value);
        if (q[i] != format->of_f32(value))
            fail_msg("%s: %g times %g is %02x", format->name, (double)x[i], (double)scale, q[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    assert_true(most == largest);
}

TEST(test_tensors) {
    static const int64_t sizes[][2] = {{0, 3}, {1, 1}, {1, 7}, {5, 33}, {300, 129}};
    static const float scales[] = {1, 448.f / 3, 1e30f, 1e-30f};
    for (int s = 0; s < 5; s++)
        for (int f = 0; f < 2; f++)
            for (int k = 0; k < 4; k++) {
                float *x = test_new(sizes[s][0] * sizes[s][1], 4);
                test_f32(x, sizes[s][0] * sizes[s][1]);
                if (s == 4) x[77] = 1e30f, x[78] = -FLT_MAX, x[79] = -0.f;
                check_quantised(&formats[f], x, sizes[s][0], sizes[s][1], scales[k]);
                test_free_all();
            }
}

TEST(test_not_finite_is_seen) {
    const float x[] = {1, -INFINITY, 3}, y[] = {INFINITY, NAN, 3}, scale = 2;
    uint8_t q[3];
    float most;
    rt_quantize_f32(q, &most, x, &scale, 1, 3, RT_FP8_E5M2);
    assert_true(isinf(most) && q[1] == 0xfc);
    rt_quantize_f32(q, &most, x, &scale, 3, 1, RT_FP8_E4M3);
    assert_true(isinf(most) && isnan(rt_e4m3_to_f32(q[1])));
    rt_quantize_f32(q, &most, y, &scale, 1, 3, RT_FP8_E4M3);
    assert_true(isnan(most) && isnan(rt_e4m3_to_f32(q[1])));
}

/* Other types give the codes of what they are as f32. */
TEST(test_types) {
    enum { N = 200 };
    float x[N], scale = 3, most, expected;
    double wide[N];
    uint16_t half[N];
    uint8_t q[N], codes[N];
    test_f32(x, N);
    for (int i = 0; i < N; i++) wide[i] = (double)x[i];
    rt_quantize_f32(codes, &expected, x, &scale, 10, 20, RT_FP8_E4M3);
    rt_quantize_f64(q, &most, wide, &scale, 10, 20, RT_FP8_E4M3);
    assert_true(most == expected && memcmp(q, codes, N) == 0);
    for (int kind = 0; kind < 2; kind++) {
        rt_convert(half, kind ? RT_F16 : RT_BF16, x, RT_F32, N);
        rt_convert(x, RT_F32, half, kind ? RT_F16 : RT_BF16, N);
        rt_quantize_f32(codes, &expected, x, &scale, 10, 20, RT_FP8_E5M2);
        (kind ? rt_quantize_fp16 : rt_quantize_bf16)(q, &most, half, &scale, 10, 20, RT_FP8_E5M2);
        assert_true(most == expected && memcmp(q, codes, N) == 0);
    }
}

/* Products --------------------------------------------------------------------------------------------------------- */

static uint8_t *some_codes(int64_t n, int seed) {
    uint8_t *codes = test_new(n, 1);
    for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)((i * 7919 + seed * 31) % 0x70 | (i * 104729 + seed) % 2 << 7);
    return codes;
}

static uint16_t *as_fp16(const struct format *format, const uint8_t *codes, int64_t n) {
    uint16_t *halves = test_new(n, 2);
    for (int64_t i = 0; i < n; i++)
        halves[i] = rt_f32_to_f16(format->to_f32(codes[i])); /* exact: e4m3 has fewer bits, e5m2 is half of it */
    return halves;
}

/* The same sums as those of fp16, which are rounded once and here scaled: by powers of two, so nothing else is. */
static void check_product(struct rt *rt, int fa, int fb, const int64_t *shape) {
    const int64_t m = shape[0], k = shape[1], n = shape[2];
    const float unscale_a = 0.5f, unscale_b = 0x1p-6f;
    uint8_t *a = some_codes(m * k, 1), *b = some_codes(n * k, 2);
    uint16_t *y = test_new(m * n, 2), *expected = test_new(m * n, 2);
    float *wide = test_new(m * n, 4);
    assert_int_equal(
        rt_scaled_matmul(rt, y, RT_F16, a, b, &unscale_a, &unscale_b, m, k, n, formats[fa].id, formats[fb].id, 0),
        RT_OK);
    assert_int_equal(
        rt_scaled_matmul(rt, wide, RT_F32, a, b, &unscale_a, &unscale_b, m, k, n, formats[fa].id, formats[fb].id, 1),
        RT_OK);
    float *left = test_new(m * k, 4), *right = test_new(n * k, 4);
    rt_convert(left, RT_F32, as_fp16(&formats[fa], a, m * k), RT_F16, (size_t)(m * k));
    rt_convert(right, RT_F32, as_fp16(&formats[fb], b, n * k), RT_F16, (size_t)(n * k));
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (int64_t p = 0; p < k; p++) {
                sum += (double)left[i * k + p] * (double)right[j * k + p];
                size += fabs((double)left[i * k + p] * (double)right[j * k + p]);
            }
            test_near((double)wide[i * n + j], sum * 0x1p-7, size * 0x1p-7 * (double)k * FLT_EPSILON,
                      "product of codes", i * n + j);
        }
    rt_convert(expected, RT_F16, wide, RT_F32, (size_t)(m * n));
    test_same_bytes(y, expected, m * n, 2, "product rounded once");
    test_free_all();
}

TEST(test_products) {
    static const int64_t shapes[][3] = {{0, 3, 2},   {2, 0, 3},   {1, 1, 1},      {16, 16, 16},
                                        {17, 33, 5}, {1, 500, 3}, {140, 400, 131}};
    for (int kind = 0; kind < 2; kind++) {
        struct rt *rt = test_open(kind ? "reference" : "auto");
        for (int s = 0; s < 7; s++)
            for (int f = 0; f < 4; f++) check_product(rt, f & 1, f >> 1, shapes[s]);
        test_close(rt);
    }
}

int main(void) {
    return run_all_tests("fp8", NULL, NULL);
}
