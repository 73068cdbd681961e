/* Kernels of 16-bit floats that compute in f32: the same bits as widening every operand, the f32 kernel, and rounding
 * its result once. Sizes around those of the blocks; infinities, NaNs and subnormals among the elements; in place. */
#include "kernel_test.h"

#include <math.h>

#include "../../runtime/base/number/half.h"
#include "../../runtime/kernels/halves.h"

/* A dtype: conversions of one element, of rows, and the kernels. */
struct half {
    const char *name;
    float (*widen_one)(uint16_t);
    uint16_t (*narrow_one)(float);
    void (*widen)(float *, const uint16_t *, int64_t);
    void (*narrow)(uint16_t *, const float *, int64_t), (*cast_all)(uint16_t *, const float *, int64_t);
    void (*softmax)(uint16_t *, const uint16_t *, int64_t, int64_t, int64_t);
    void (*log_softmax)(uint16_t *, const uint16_t *, int64_t, int64_t, int64_t);
    void (*layernorm)(uint16_t *, const uint16_t *, const uint16_t *, const uint16_t *, int64_t, int64_t, double);
    void (*rmsnorm)(uint16_t *, const uint16_t *, const uint16_t *, int64_t, int64_t, double);
    void (*rope)(const struct rt_strided *, const struct rt_strided *, const uint16_t *, const uint16_t *, int,
                 const int64_t *, int, const int64_t *, const int64_t *, const int64_t *, int);
    void (*rope_by_f32)(const struct rt_strided *, const struct rt_strided *, const float *, const float *, int,
                        const int64_t *, int, const int64_t *, const int64_t *, const int64_t *, int);
    int (*attention)(struct rt *, const struct rt_strided *, const struct rt_strided *, const struct rt_strided *,
                     const struct rt_strided *, const uint8_t *, const uint16_t *, const uint16_t *,
                     const struct rt_attention *);
    int (*attention_by)(struct rt *, const struct rt_strided *, const struct rt_strided *, const struct rt_strided *,
                        const struct rt_strided *, const uint8_t *, const float *, const float *,
                        const struct rt_attention *); /* of f32, keys and values are halves */
};

static const struct half halves[] = {
    {"bf16", rt_bf16_to_f32, rt_f32_to_bf16, rt_widen_bf16, rt_narrow_bf16, rt_cast_all_f32_bf16, rt_softmax_bf16,
     rt_log_softmax_bf16, rt_layernorm_bf16, rt_rmsnorm_bf16, rt_rope_bf16_by_bf16, rt_rope_bf16_by_f32,
     rt_attention_bf16, rt_attention_f32_by_bf16},
    {"fp16", rt_f16_to_f32, rt_f32_to_f16, rt_widen_fp16, rt_narrow_fp16, rt_cast_all_f32_fp16, rt_softmax_fp16,
     rt_log_softmax_fp16, rt_layernorm_fp16, rt_rmsnorm_fp16, rt_rope_fp16_by_fp16, rt_rope_fp16_by_f32,
     rt_attention_fp16, rt_attention_f32_by_fp16}};
#define EACH_HALF(half) for (const struct half *half = halves; half < halves + 2; half++)

/* An array and its widened copy. */
struct array {
    uint16_t *half;
    float *wide;
};

static struct array widened(const struct half *half, uint16_t *from, int64_t n) {
    struct array array = {from, test_new(n, 4)};
    for (int64_t i = 0; i < n; i++) array.wide[i] = half->widen_one(from[i]);
    return array;
}

/* Values up to `most`; with `odd`, one in 97 is subnormal, infinite or NaN. */
static struct array make(const struct half *half, int64_t n, float most, int odd) {
    static const float odds[] = {INFINITY, -INFINITY, NAN, 0x1p-24f, -0x1p-130f, 0};
    float *values = test_new(n, 4);
    uint16_t *from = test_new(n, 2);
    test_f32(values, n);
    for (int64_t i = 0; i < n; i++) {
        const float value = odd && test_random(97) == 0 ? odds[test_random(6)] : values[i] * most;
        from[i] = half->narrow_one(value);
    }
    return widened(half, from, n);
}

/* The 16-bit result is that of f32, rounded; NaN where that is NaN. */
static void same(const struct half *half, const uint16_t *got, const float *expected, int64_t n, const char *what) {
    for (int64_t i = 0; i < n; i++) {
        const uint16_t rounded = half->narrow_one(expected[i]);
        if (isnan(expected[i]) ? !isnan(half->widen_one(got[i])) : got[i] != rounded)
            fail_msg("%s of %s: element %lld is %04x, not %04x", what, half->name, (long long)i, got[i], rounded);
    }
}

TEST(test_rows_of_all_values) {
    enum { ALL = 1 << 16 };
    EACH_HALF(half) {
        uint16_t *from = test_new(ALL, 2), *back = test_new(ALL, 2);
        float *wide = test_new(ALL, 4), *sums = test_new(ALL, 4);
        for (int i = 0; i < ALL; i++) from[i] = (uint16_t)i;
        half->widen(wide, from, ALL);
        for (int i = 0; i < ALL; i++) assert_true(isnan(wide[i]) || wide[i] == half->widen_one(from[i]));
        half->narrow(back, wide, ALL);
        for (int i = 0; i < ALL; i++)
            assert_true(isnan(wide[i]) ? isnan(half->widen_one(back[i])) != 0 : back[i] == from[i]);
        for (int i = 0; i < ALL; i++) sums[i] = rt_f32_of_bits((uint32_t)test_random(1ull << 32));
        for (int i = 0; i + 1 < ALL; i += 2) sums[i] = (wide[i] + wide[i + 1]) / 2; /* in the middle between two */
        half->narrow(back, sums, ALL - 3);
        same(half, back, sums, ALL - 3, "narrowing");
        half->cast_all(back, sums, ALL - 3);
        same(half, back, sums, ALL - 3, "casting");
    }
    test_free_all();
}

static const int64_t lengths[] = {0, 1, 2, 31, 33, 63, 512, 513, 1037};
#define EACH_LENGTH(c)                                                                                                 \
    for (int length_ = 0; length_ < 9; length_++)                                                                      \
        for (int64_t c = lengths[length_]; c >= 0; c = -1)

static void softmax_once(const struct half *half, int64_t outer, int64_t c, int64_t inner, int odd) {
    const int64_t n = outer * c * inner;
    const struct array x = make(half, n, 30, odd);
    uint16_t *y = test_new(n, 2);
    float *wide = test_new(n, 4);
    rt_softmax_f32(wide, x.wide, outer, c, inner);
    half->softmax(y, x.half, outer, c, inner);
    same(half, y, wide, n, "softmax");
    rt_log_softmax_f32(wide, x.wide, outer, c, inner);
    half->log_softmax(x.half, x.half, outer, c, inner); /* in place */
    same(half, x.half, wide, n, "log_softmax");
}

TEST(test_softmax) {
    EACH_HALF(half)
    for (int odd = 0; odd < 2; odd++) {
        EACH_LENGTH(c) softmax_once(half, 3, c, 1, odd);
        softmax_once(half, 2, 70, 3, odd);
        softmax_once(half, 2, 515, 67, odd);
        softmax_once(half, 40, 1024, 1, odd); /* on several threads */
    }
    test_free_all();
}

static void norms_once(const struct half *half, int64_t outer, int64_t c, float most, int odd) {
    const int64_t n = outer * c;
    const struct array x = make(half, n, most, odd), scale = make(half, c, 2, 0), bias = make(half, c, 2, 0);
    uint16_t *y = test_new(n, 2);
    float *wide = test_new(n, 4);
    rt_layernorm_f32(wide, x.wide, scale.wide, bias.wide, outer, c, 1e-5);
    half->layernorm(y, x.half, scale.half, bias.half, outer, c, 1e-5);
    same(half, y, wide, n, "layernorm");
    rt_layernorm_f32(wide, x.wide, scale.wide, NULL, outer, c, 1e-5);
    half->layernorm(y, x.half, scale.half, NULL, outer, c, 1e-5);
    same(half, y, wide, n, "layernorm without bias");
    rt_rmsnorm_f32(wide, x.wide, scale.wide, outer, c, 1e-6);
    half->rmsnorm(x.half, x.half, scale.half, outer, c, 1e-6); /* in place */
    same(half, x.half, wide, n, "rmsnorm");
}

TEST(test_norms) {
    EACH_HALF(half) {
        EACH_LENGTH(c) for (int odd = 0; odd < 2; odd++) norms_once(half, 3, c, 4, odd);
        norms_once(half, 70, 768, 60000, 0); /* squares beyond fp16; on several threads */
    }
    test_free_all();
}

static void rope_once(const struct half *half, int64_t c, int interleaved) {
    const int64_t y_dims[] = {2, 3, 5, c}, table_dims[] = {1, 1, 5, c};
    const struct array x = make(half, 30 * c, 4, 1), cos = make(half, 5 * c, 1, 0), sin = make(half, 5 * c, 1, 0);
    uint16_t *y = test_new(30 * c, 2);
    float *wide = test_new(30 * c, 4);
    const int64_t step[] = {15 * c, 5 * c, c, 1};
    rt_rope_f32_by_f32(&(struct rt_strided){wide, step}, &(struct rt_strided){x.wide, step}, cos.wide, sin.wide, 4,
                       y_dims, 4, y_dims, table_dims, table_dims, interleaved);
    half->rope(&(struct rt_strided){y, step}, &(struct rt_strided){x.half, step}, cos.half, sin.half, 4, y_dims, 4,
               y_dims, table_dims, table_dims, interleaved);
    same(half, y, wide, 30 * c, "rope");
    half->rope_by_f32(&(struct rt_strided){y, step}, &(struct rt_strided){x.half, step}, cos.wide, sin.wide, 4, y_dims,
                      4, y_dims, table_dims, table_dims, interleaved);
    same(half, y, wide, 30 * c, "rope by f32");
}

TEST(test_rope) {
    static const int64_t sizes[] = {0, 2, 6, 64, 256, 258, 514, 1030};
    EACH_HALF(half)
    for (int i = 0; i < 8; i++)
        for (int interleaved = 0; interleaved < 2; interleaved++) rope_once(half, sizes[i], interleaved);
    test_free_all();
}

/* Two heads of queries for each of k and v. */
static void attention_once(const struct half *half, const char *kernels, int64_t t, int64_t s, int64_t d, int odd) {
    const int64_t q_dims[] = {2, 4, t, d}, bias_dims[] = {1, 4, t, s}, keys_dims[] = {1, 1, 1, s},
                  sink_dims[] = {1, 4, 1, 1}, e = d + 1, n = 8 * t * e;
    const struct array q = make(half, 8 * t * d, 2, odd), k = make(half, 4 * s * d, 2, odd),
                       v = make(half, 4 * s * e, 2, odd), bias = make(half, 4 * t * s, 3, odd),
                       sink = make(half, 4, 2, 0);
    const int64_t q_step[] = {4 * t * d, t * d, d, 1}, k_step[] = {2 * s * d, s * d, d, 1},
                  v_step[] = {2 * s * e, s * e, e, 1}, y_step[] = {4 * t * e, t * e, e, 1};
    struct rt_attention shape = {.ndim = 4, .q = q_dims, .bias = bias_dims, .kv = 2, .s = s, .e = e, .scale = 0.3};
    uint16_t *y = test_new(n, 2);
    float *wide = test_new(n, 4), *own = test_new(n, 4);
    struct rt *rt = test_open(kernels);
    for (int way = 0; way < 3; way++) {
        shape.causal = way == 1, shape.fill = -INFINITY, shape.nan_to_zero = way == 1;
        shape.bias = way == 2 ? keys_dims : bias_dims, shape.sink = way == 2 ? sink_dims : NULL;
        const float *wide_sink = way == 2 ? sink.wide : NULL;
        const uint16_t *half_sink = way == 2 ? sink.half : NULL;
        assert_int_equal(rt_attention_f32(rt, &(struct rt_strided){wide, y_step}, &(struct rt_strided){q.wide, q_step},
                                          &(struct rt_strided){k.wide, k_step}, &(struct rt_strided){v.wide, v_step},
                                          NULL, bias.wide, wide_sink, &shape),
                         RT_OK);
        assert_int_equal(half->attention(rt, &(struct rt_strided){y, y_step}, &(struct rt_strided){q.half, q_step},
                                         &(struct rt_strided){k.half, k_step}, &(struct rt_strided){v.half, v_step},
                                         NULL, bias.half, half_sink, &shape),
                         RT_OK);
        same(half, y, wide, n, "attention");
        assert_int_equal(half->attention_by(rt, &(struct rt_strided){own, y_step}, &(struct rt_strided){q.wide, q_step},
                                            &(struct rt_strided){k.half, k_step}, &(struct rt_strided){v.half, v_step},
                                            NULL, bias.wide, wide_sink, &shape),
                         RT_OK);
        for (int64_t i = 0; i < n; i++) assert_true(isnan(wide[i]) ? isnan(own[i]) : own[i] == wide[i]);
    }
    test_close(rt);
}

TEST(test_attention) {
    EACH_HALF(half)
    for (int reference = 0; reference < 2; reference++) {
        const char *kernels = reference ? "reference" : "auto";
        attention_once(half, kernels, 1, 1, 1, 0);
        attention_once(half, kernels, 33, 70, 5, 0);
        attention_once(half, kernels, 7, 129, 64, 1);
        attention_once(half, kernels, 3, 5, 300, 0); /* a head in two parts */
    }
    test_free_all();
}

/* Codes are k and v of their products with their rows' scales, one of which is not finite. */
static void codes_once(const char *kernels, int64_t t, int64_t s, int64_t d) {
    enum { HEADS = 4, KV = 2 };
    const int64_t q_dims[] = {1, HEADS, t, d}, step[] = {HEADS * t * d, t * d, d, 1},
                  k_step[] = {KV * s * d, s * d, d, 1}, scale_step[] = {KV * s, s, 1, 1}, n = HEADS * t * d;
    const struct rt_attention shape = {.ndim = 4,
                                       .q = q_dims,
                                       .kv = KV,
                                       .s = s,
                                       .e = d,
                                       .causal = 1,
                                       .offset = s - t,
                                       .fill = -INFINITY,
                                       .scale = 0.3};
    float *q = test_new(n, 4), *wide[2], *scale[2], *y = test_new(n, 4), *expected = test_new(n, 4);
    int8_t *codes[2];
    struct rt *rt = test_open(kernels);
    test_f32(q, n);
    for (int i = 0; i < 2; i++) {
        codes[i] = test_new(KV * s * d, 1), wide[i] = test_new(KV * s * d, 4), scale[i] = test_new(KV * s, 4);
        test_f32(scale[i], KV * s);
        if (i && s > 1) scale[i][s - 1] = INFINITY;
        for (int64_t p = 0; p < KV * s * d; p++) {
            codes[i][p] = (int8_t)((int)test_random(255) - 127);
            wide[i][p] = (float)codes[i][p] * scale[i][p / d];
        }
    }
    assert_int_equal(rt_attention_f32(rt, &(struct rt_strided){expected, step}, &(struct rt_strided){q, step},
                                      &(struct rt_strided){wide[0], k_step}, &(struct rt_strided){wide[1], k_step},
                                      NULL, NULL, NULL, &shape),
                     RT_OK);
    assert_int_equal(rt_attention_f32_by_i8(rt, &(struct rt_strided){y, step}, &(struct rt_strided){q, step},
                                            &(struct rt_strided){codes[0], k_step},
                                            &(struct rt_strided){codes[1], k_step},
                                            &(struct rt_strided){scale[0], scale_step},
                                            &(struct rt_strided){scale[1], scale_step}, NULL, NULL, NULL, &shape),
                     RT_OK);
    for (int64_t i = 0; i < n; i++) assert_true(isnan(expected[i]) ? isnan(y[i]) : y[i] == expected[i]);
    test_close(rt);
}

TEST(test_attention_of_codes) {
    for (int reference = 0; reference < 2; reference++) {
        const char *kernels = reference ? "reference" : "auto";
        codes_once(kernels, 1, 1, 1);
        codes_once(kernels, 1, 70, 64);
        codes_once(kernels, 33, 70, 5);
        codes_once(kernels, 1, 1300, 128); /* in several pieces */
        codes_once(kernels, 3, 5, 300);    /* a head in two parts */
    }
    test_free_all();
}

int main(void) {
    return run_all_tests("stored", NULL, NULL);
}
