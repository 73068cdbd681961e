/* The scalar functions of math.h: accuracy against libm in f64, the same bits in vectors and alone, special values,
 * integers that cannot trap, and casts that agree with rt_convert. */
#include "kernel_test.h"

#include "functions.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* Every 4099th of all floats; sweep_math tries all. */
TEST(test_accuracy) {
    for (size_t f = 0; f < NFUNCTIONS; f++)
        for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 4099) {
            float x = rt_f32_of_bits((uint32_t)bits);
            double error = ulps(functions[f].got(x), functions[f].exact((double)x));
            if (error > functions[f].bound) fail_msg("%s(%a): %g ulp", functions[f].name, (double)x, error);
        }
}

TEST(test_special_values) {
    for (size_t f = 0; f < NFUNCTIONS; f++) {
        static const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MAX};
        for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
            float got = functions[f].got(special[i]), exact = (float)functions[f].exact((double)special[i]);
            if (!(ulps(got, (double)exact) <= 1))
                fail_msg("%s(%a) is %a", functions[f].name, (double)special[i], (double)got);
        }
    }
    assert_true(signbit(rt_tanh_f32(-0.0f)) && signbit(rt_erf_f32(-0.0f)));
    assert_true(rt_log_f32(-0.0f) == -INFINITY);
}

enum { N_VECTOR = 1003 };

TEST(test_vectors_have_the_same_bits) {
    static float x[N_VECTOR], y[N_VECTOR], z[N_VECTOR];
    test_f32(x, N_VECTOR);
    for (int i = 0; i < N_VECTOR; i++) x[i] *= i % 2 ? 5.0f : 100.0f;
    for (size_t f = 0; f < NFUNCTIONS; f++) {
        float (*volatile alone)(float) = functions[f].got;
        functions[f].loop(y, x, N_VECTOR);
        for (int i = 0; i < N_VECTOR; i++) z[i] = alone(x[i]);
        test_same_f32(y, z, N_VECTOR, functions[f].name);
    }
}

TEST(test_max_and_min) {
    assert_true(rt_max_f32(1, 2) == 2 && rt_min_f32(1, 2) == 1);
    assert_true(isnan(rt_max_f32(NAN, 1)) && isnan(rt_max_f32(1, NAN)));
    assert_true(isnan(rt_min_f64((double)NAN, 1)) && isnan(rt_min_f64(1, (double)NAN)));
    assert_true(rt_max_f32(-INFINITY, INFINITY) == INFINITY && rt_min_f64(-5, -(double)INFINITY) == -(double)INFINITY);
    assert_int_equal(rt_max_i64(INT64_MIN, -1), -1);
    assert_int_equal(rt_min_u8(255, 1), 1);
}

TEST(test_round_half_to_even) {
    static const float in[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49999997f, 8388607.5f, 8388609.0f, -3.7f, 1e30f};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        assert_true(rt_round_f32(in[i]) == rintf(in[i]));
        assert_true(rt_round_f64((double)in[i]) == rint((double)in[i]));
    }
    assert_true(signbit(rt_round_f32(-0.0f)) && signbit(rt_round_f32(-0.3f)) && signbit(rt_round_f64(-0.5)));
    assert_true(rt_round_f32(INFINITY) == INFINITY && isnan(rt_round_f32(NAN)) && isnan(rt_round_f64((double)NAN)));
}

TEST(test_sign) {
    assert_true(rt_sign_f32(-3) == -1 && rt_sign_f32(0) == 0 && rt_sign_f32(INFINITY) == 1 && isnan(rt_sign_f32(NAN)));
    assert_int_equal(rt_sign_i64(INT64_MIN), -1);
    assert_int_equal(rt_sign_u32(7), 1);
}

TEST(test_remainders) {
    static const struct {
        int a, b, mod, fmod;
    } cases[] = {{7, 3, 1, 1}, {-7, 3, 2, -1}, {7, -3, -2, 1}, {-7, -3, -1, -1}, {6, -3, 0, 0}, {5, 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int a = cases[i].a, b = cases[i].b;
        assert_int_equal(rt_mod_i32(a, b), cases[i].mod);
        assert_int_equal(rt_mod_i64(a, b), cases[i].mod);
        assert_int_equal(rt_mod_i8((int8_t)a, (int8_t)b), cases[i].mod);
        assert_int_equal(rt_fmod_i16((int16_t)a, (int16_t)b), cases[i].fmod);
        if (b == 0) continue;
        assert_true(rt_mod_f32((float)a, (float)b) == (float)cases[i].mod);
        assert_true(rt_fmod_f64(a, b) == cases[i].fmod);
    }
    assert_true(isnan(rt_mod_f32(1, 0)));
    assert_true(rt_mod_f64(-0.25, 1) == 0.75);
    assert_int_equal(rt_mod_u8(200, 7), 4);
}

TEST(test_shifts) {
    assert_int_equal(rt_shift_left_i8(-64, 1), -128);
    assert_int_equal(rt_shift_left_u64(1, 63), UINT64_C(1) << 63);
    assert_int_equal(rt_shift_left_i32(1, 32), 0);
    assert_int_equal(rt_shift_left_i32(1, -1), 0);
    assert_int_equal(rt_shift_right_i8(-8, 1), -4);
    assert_int_equal(rt_shift_right_i8(-8, 9), -1);
    assert_int_equal(rt_shift_right_u8(0x80, 7), 1);
    assert_int_equal(rt_shift_right_u8(0x80, 8), 0);
}

TEST(test_integers_never_trap) {
    assert_int_equal(rt_div_i32(7, -2), -3);
    assert_int_equal(rt_div_i32(5, 0), 0);
    assert_int_equal(rt_div_i32(INT32_MIN, -1), INT32_MIN);
    assert_int_equal(rt_div_i64(INT64_MIN, -1), INT64_MIN);
    assert_int_equal(rt_div_i8(INT8_MIN, -1), INT8_MIN);
    assert_int_equal(rt_div_u64(1, 0), 0);
    assert_int_equal(rt_mod_i64(INT64_MIN, -1), 0);
    assert_int_equal(rt_neg_i64(INT64_MIN), INT64_MIN);
    assert_int_equal(rt_abs_i32(INT32_MIN), INT32_MIN);
    assert_int_equal(rt_add_i32(INT32_MAX, 1), INT32_MIN);
    assert_int_equal(rt_sub_i64(INT64_MIN, 1), INT64_MAX);
    assert_int_equal(rt_mul_i16(INT16_MAX, INT16_MAX), 1);
    assert_int_equal(rt_mul_u16(65535, 65535), 1);
}

TEST(test_powers) {
    assert_int_equal(rt_pow_i64(3, 13), 1594323);
    assert_int_equal(rt_pow_i64(-2, 63), INT64_MIN);
    assert_int_equal(rt_pow_i32(0, 0), 1);
    assert_int_equal(rt_pow_i32(5, -1), 0);
    assert_int_equal(rt_pow_i32(0, -3), 0);
    assert_int_equal(rt_pow_i32(1, INT32_MIN), 1);
    assert_int_equal(rt_pow_i8(-1, -3), -1);
    assert_int_equal(rt_pow_i8(-1, -128), 1);
    assert_int_equal(rt_pow_i32(10, 10), 1410065408);
    assert_int_equal(rt_pow_u8(255, 2), 1);
    assert_int_equal(rt_pow_u64(UINT64_MAX, 0), 1);
}

/* Every pair of numbers that C's Annex F names, and of others with integers and without. */
TEST(test_powers_of_floats) {
    static const float of[] = {0.0f,         -0.0f,        1.0f,        -1.0f,      2.0f,     -2.0f,    3.0f,
                               -3.0f,        0.5f,         -0.5f,       1.5f,       -1.5f,    INFINITY, -INFINITY,
                               NAN,          FLT_TRUE_MIN, -FLT_MIN,    FLT_MAX,    -FLT_MAX, 0x1p24f,  0xffffffp0f,
                               -0xffffffp0f, 8388607.5f,   0.99999994f, 1.0000001f, 1e-20f,   7.25f,    -13.0f};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (size_t j = 0; j < sizeof of / sizeof *of; j++) {
            const float a = of[i], b = of[j], got = rt_pow_f32(a, b);
            const double exact = pow((double)a, (double)b);
            if (!(ulps(got, exact) <= 0.51) || (!isnan(exact) && !signbit(got) != !signbit(exact)))
                fail_msg("pow(%a, %a) is %a, not %a", (double)a, (double)b, (double)got, exact);
        }
}

CLONES static void loop_pow(float *restrict y, const float *restrict a, const float *restrict b, int n) {
    for (int i = 0; i < n; i++) y[i] = rt_pow_f32(a[i], b[i]);
}

/* a and b such that results are neither 0 nor infinite. */
TEST(test_powers_are_rounded_once) {
    static float a[N_VECTOR], b[N_VECTOR], y[N_VECTOR], z[N_VECTOR];
    float (*volatile alone)(float, float) = rt_pow_f32;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < N_VECTOR; i++) {
            a[i] = rt_f32_of_bits(test_random(0x7f800000));
            b[i] = (float)((test_random(3000) / 10.0 - 150) / log2((double)a[i]));
        }
        loop_pow(y, a, b, N_VECTOR);
        for (int i = 0; i < N_VECTOR; i++) {
            z[i] = alone(a[i], b[i]);
            const double exact = (double)powl((long double)a[i], (long double)b[i]);
            if (!(ulps(z[i], exact) <= 0.5001)) fail_msg("pow(%a, %a) is %a", (double)a[i], (double)b[i], (double)z[i]);
        }
        test_same_f32(y, z, N_VECTOR, "pow");
    }
}

/* Every cast against rt_convert, on values that fit nowhere, lie on bounds, or round to a half from both sides. */
static const double corners[] = {
    /* small */
    0, -0.0, 0.5, -0.5, 1, -1, 1.5, 2.5,
    /* bounds of integers */
    127, 128, -128, -129, 255, 255.9, 256, 32767.5, 32768, 65504, 65519.999, 65520, 65535, 65536, 2147483647.0,
    2147483648.0, -2147483648.0, -2147483649.0, 4294967295.0, 4294967296.0, 9.2233720368547758e18, -9.3e18,
    1.8446744e19,
    /* great, and around the least half */
    1e30, -1e30, 3.4e38, 1e300, 5e-8, 2.98e-8, 6e-8,
    /* between halves */
    1.00390625, 1.00390624999999989, 1.0039062500000002, 2049, 2050.9999,
    /* no numbers */
    INFINITY, -INFINITY, NAN};
#define CORNERS (int)(sizeof corners / sizeof *corners)

static int is_nan(const void *value, enum rt_dtype dtype) {
    double wide;
    rt_convert(&wide, RT_F64, value, dtype, 1);
    return isnan(wide);
}

#undef bool /* a macro of stdbool.h, which would be expanded on the way into the names below */

#define CHECK_CAST(F, f, F_ID, T, t, T_ID)                                                                             \
    do {                                                                                                               \
        F from_value;                                                                                                  \
        memcpy(&from_value, bytes, sizeof from_value);                                                                 \
        T got = rt_cast_##f##_##t(from_value), expected;                                                               \
        rt_convert(&expected, T_ID, &from_value, F_ID, 1);                                                             \
        if (memcmp(&got, &expected, sizeof got) != 0 && !(is_nan(&got, T_ID) && is_nan(&expected, T_ID)))              \
            fail_msg("%s to %s of value %d", #f, #t, value);                                                           \
    } while (0)

#define CHECK_CASTS_FROM(F, f, F_ID)                                                                                   \
    static void casts_from_##f(const void *bytes, int value) {                                                         \
        CHECK_CAST(F, f, F_ID, float, f32, RT_F32);                                                                    \
        CHECK_CAST(F, f, F_ID, double, f64, RT_F64);                                                                   \
        CHECK_CAST(F, f, F_ID, uint16_t, fp16, RT_F16);                                                                \
        CHECK_CAST(F, f, F_ID, uint16_t, bf16, RT_BF16);                                                               \
        CHECK_CAST(F, f, F_ID, int64_t, i64, RT_I64);                                                                  \
        CHECK_CAST(F, f, F_ID, int32_t, i32, RT_I32);                                                                  \
        CHECK_CAST(F, f, F_ID, int16_t, i16, RT_I16);                                                                  \
        CHECK_CAST(F, f, F_ID, int8_t, i8, RT_I8);                                                                     \
        CHECK_CAST(F, f, F_ID, uint64_t, u64, RT_U64);                                                                 \
        CHECK_CAST(F, f, F_ID, uint32_t, u32, RT_U32);                                                                 \
        CHECK_CAST(F, f, F_ID, uint16_t, u16, RT_U16);                                                                 \
        CHECK_CAST(F, f, F_ID, uint8_t, u8, RT_U8);                                                                    \
        CHECK_CAST(F, f, F_ID, uint8_t, bool, RT_BOOL);                                                                \
    }

CHECK_CASTS_FROM(float, f32, RT_F32)
CHECK_CASTS_FROM(double, f64, RT_F64)
CHECK_CASTS_FROM(uint16_t, fp16, RT_F16)
CHECK_CASTS_FROM(uint16_t, bf16, RT_BF16)
CHECK_CASTS_FROM(int64_t, i64, RT_I64)
CHECK_CASTS_FROM(int32_t, i32, RT_I32)
CHECK_CASTS_FROM(int16_t, i16, RT_I16)
CHECK_CASTS_FROM(int8_t, i8, RT_I8)
CHECK_CASTS_FROM(uint64_t, u64, RT_U64)
CHECK_CASTS_FROM(uint32_t, u32, RT_U32)
CHECK_CASTS_FROM(uint16_t, u16, RT_U16)
CHECK_CASTS_FROM(uint8_t, u8, RT_U8)
CHECK_CASTS_FROM(uint8_t, bool, RT_BOOL)

TEST(test_casts_are_rt_convert) {
    static const struct {
        enum rt_dtype dtype;
        void (*check)(const void *, int);
    } from[] = {{RT_F32, casts_from_f32},   {RT_F64, casts_from_f64}, {RT_F16, casts_from_fp16},
                {RT_BF16, casts_from_bf16}, {RT_I64, casts_from_i64}, {RT_I32, casts_from_i32},
                {RT_I16, casts_from_i16},   {RT_I8, casts_from_i8},   {RT_U64, casts_from_u64},
                {RT_U32, casts_from_u32},   {RT_U16, casts_from_u16}, {RT_U8, casts_from_u8},
                {RT_BOOL, casts_from_bool}};
    for (size_t f = 0; f < sizeof from / sizeof *from; f++)
        for (int value = 0; value < CORNERS + 2000; value++) {
            unsigned char bytes[8];
            if (value < CORNERS)
                rt_convert(bytes, from[f].dtype, &corners[value], RT_F64, 1);
            else if (from[f].dtype == RT_BOOL)
                bytes[0] = (unsigned char)test_random(2);
            else
                test_bytes(bytes, 1, 8);
            from[f].check(bytes, value);
        }
}

int main(void) {
    return run_all_tests("math", NULL, NULL);
}
