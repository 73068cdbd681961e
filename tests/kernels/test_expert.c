/* Products of a mixture of experts against their definition: blocks of rows and columns that are full, begun and empty,
 * parts of the experts, all rows with one expert; bits that do not depend on the other rows. */
#include "kernel_test.h"

#include <omp.h>
#include <string.h>

#include "../../runtime/base/number/half.h"

static struct rt *rt;

static int open_auto(void **state) {
    rt = test_open("auto");
    return 0;
}

static int open_reference(void **state) {
    rt = test_open("reference");
    return 0;
}

static int close_rank(void **state) {
    test_close(rt);
    return 0;
}

struct shape {
    int64_t count, total, start, experts, k, n;
    int trans_b;
};

static const struct shape shapes[] = {{7, 3, 0, 3, 5, 11, 0},    {70, 2, 0, 2, 65, 257, 0}, {70, 2, 0, 2, 130, 258, 1},
                                      {33, 1, 0, 1, 64, 513, 1}, {40, 8, 2, 3, 63, 1, 0},   {40, 8, 5, 3, 129, 2, 1},
                                      {9, 4, 3, 1, 0, 5, 0},     {0, 4, 0, 4, 3, 5, 0},     {200, 40, 0, 40, 16, 3, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Experts of all, one of them with most rows; some counted from the end. */
static int64_t *random_experts(const struct shape *s) {
    int64_t *index = test_new(s->count, 8);
    for (int64_t i = 0; i < s->count; i++) {
        index[i] = test_random(2) ? s->start : (int64_t)test_random((uint64_t)s->total);
        if (test_random(2)) index[i] -= s->total;
    }
    return index;
}

static int64_t own_expert(const struct shape *s, int64_t index) {
    int64_t expert = (index < 0 ? index + s->total : index) - s->start;
    return expert >= 0 && expert < s->experts ? expert : -1;
}

static float *random_f32(int64_t count) {
    float *x = test_new(count, sizeof *x);
    test_f32(x, count);
    return x;
}

TEST(test_products) {
    for (int i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        int64_t *index = random_experts(s);
        float *x = random_f32(s->count * s->k), *w = random_f32(s->experts * s->k * s->n);
        float *y = test_new(s->count * s->n, sizeof *y), *alone = test_new(s->n, sizeof *alone);
        assert_int_equal(rt_expert_matmul_f32(rt, y, x, w, index, 1, s->count, s->experts, s->k, s->n, s->trans_b,
                                              s->start, s->total),
                         RT_OK);
        for (int64_t row = 0; row < s->count; row++) {
            const int64_t expert = own_expert(s, index[row]);
            for (int64_t j = 0; j < s->n; j++) {
                double sum = 0;
                for (int64_t p = 0; p < s->k && expert >= 0; p++)
                    sum += (double)x[row * s->k + p] *
                           w[expert * s->k * s->n + (s->trans_b ? j * s->k + p : p * s->n + j)];
                test_near(y[row * s->n + j], sum, 4e-6 * (double)(s->k + 1), "product", row * s->n + j);
            }
            assert_int_equal(rt_expert_matmul_f32(rt, alone, x + row * s->k, w, index + row, 1, 1, s->experts, s->k,
                                                  s->n, s->trans_b, s->start, s->total),
                             RT_OK);
            if (rt->reference_kernels || s->n > 1) test_same_f32(alone, y + row * s->n, s->n, "a row alone");
        }
        test_free_all();
    }
}

/* Weights of 16 bits: the same bits as the widened ones. */
TEST(test_halves) {
    for (int i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        const int64_t all = s->experts * s->k * s->n;
        int64_t *index = random_experts(s);
        float *x = random_f32(s->count * s->k), *w = random_f32(all), *y = test_new(s->count * s->n, sizeof *y);
        float *expected = test_new(s->count * s->n, sizeof *expected), *wide = test_new(all, sizeof *wide);
        uint16_t *half = test_new(all, sizeof *half);
        for (int fp16 = 0; fp16 < 2; fp16++) {
            for (int64_t p = 0; p < all; p++) {
                half[p] = fp16 ? rt_f32_to_f16(w[p]) : rt_f32_to_bf16(w[p]);
                wide[p] = fp16 ? rt_f16_to_f32(half[p]) : rt_bf16_to_f32(half[p]);
            }
            assert_int_equal(rt_expert_matmul_f32(rt, expected, x, wide, index, 1, s->count, s->experts, s->k, s->n,
                                                  s->trans_b, s->start, s->total),
                             RT_OK);
            const enum rt_dtype dtype = fp16 ? RT_F16 : RT_BF16;
            assert_int_equal(rt_dequant_expert_matmul_f32(rt, y, x, half, NULL, index, 1, s->count, s->experts, s->k,
                                                          s->n, 0, dtype, dtype, 0, s->trans_b, 0, s->start, s->total),
                             RT_OK);
            test_same_f32(y, expected, s->count * s->n, "weights of 16 bits");
        }
        test_free_all();
    }
}

/* A batch of products with weights of codes: near those in f64, and the same bits whatever threads share columns. */
TEST(test_threads) {
    enum { BATCH = 2, M = 70, K = 96, N = 200, GROUPS = 4 };
    const int usual = omp_get_max_threads();
    for (int kind = 0; kind < 8; kind++) {
        const int turned = kind & 1, across = kind >> 1 & 1, nibbles = kind >> 2, bits = nibbles ? 4 : 8;
        const enum rt_dtype codes = nibbles ? RT_U4 : RT_I8, type = nibbles ? RT_U8 : RT_I8;
        const int64_t scales = (int64_t)BATCH * GROUPS * (across ? K : N), all = (int64_t)BATCH * M * N;
        float *x = random_f32((int64_t)BATCH * M * K), *scale = random_f32(scales);
        float *y = test_new(all, sizeof *y), *one = test_new(all, sizeof *one);
        double *wide_x = test_new((int64_t)BATCH * M * K, 8), *wide_scale = test_new(scales, 8),
               *real = test_new(all, 8);
        uint8_t *w = test_new((int64_t)BATCH * K * N * bits / 8, 1);
        test_bytes(w, (int64_t)BATCH * K * N * bits / 8, 1);
        for (int64_t i = 0; i < (int64_t)BATCH * M * K; i++) wide_x[i] = x[i];
        for (int64_t i = 0; i < scales; i++) wide_scale[i] = scale[i];
        rt_dequant_matmul_f64(rt, real, wide_x, w, wide_scale, NULL, BATCH, M, K, N, GROUPS, type, codes, 3, turned,
                              across);
        for (int threads = 1; threads <= 4; threads++) {
            omp_set_num_threads(threads);
            rt_dequant_matmul_f32(rt, y, x, w, scale, NULL, BATCH, M, K, N, GROUPS, type, codes, 3, turned, across);
            if (threads == 1) memcpy(one, y, (size_t)all * sizeof *y);
            test_same_f32(y, one, all, "threads");
        }
        for (int64_t i = 0; i < all; i++) test_near(y[i], real[i], 4e-6 * 128 * K, "product", i);
        test_free_all();
    }
    omp_set_num_threads(usual);
}

/* Weights of codes: the same bits as (code - offset) * scale. */
TEST(test_codes) {
    enum { GROUPS = 3 };
    for (int bits = 4; bits <= 8; bits += 4)
        for (int i = 0; i < SHAPES; i++) {
            struct shape of = shapes[i], *s = &of;
            s->k = (s->k + 5) / 6 * 6; /* groups of whole bytes */
            if (!s->k) continue;
            const int64_t rows = s->experts * s->n, line = s->k * bits / 8, run = s->k / GROUPS;
            int64_t *index = random_experts(s);
            float *x = random_f32(s->count * s->k), *scales = random_f32(rows * GROUPS);
            float *y = test_new(s->count * s->n, sizeof *y), *expected = test_new(s->count * s->n, sizeof *expected);
            float *wide = test_new(rows * s->k, sizeof *wide);
            uint8_t *codes = test_new(rows * line, 1);
            test_bytes(codes, rows * line, 1);
            for (int64_t p = 0; p < rows * s->k; p++) {
                const uint8_t byte = codes[p * bits / 8];
                const int code = bits == 8 ? (int8_t)byte : (p % 2 ? byte >> 4 : byte & 15) - 8;
                wide[p] = (float)code * scales[p / run];
            }
            assert_int_equal(rt_expert_matmul_f32(rt, expected, x, wide, index, 1, s->count, s->experts, s->k, s->n, 1,
                                                  s->start, s->total),
                             RT_OK);
            const enum rt_dtype of_codes = bits == 8 ? RT_I8 : RT_U4;
            assert_int_equal(rt_dequant_expert_matmul_f32(rt, y, x, codes, scales, index, 1, s->count, s->experts, s->k,
                                                          s->n, GROUPS, bits == 8 ? RT_I8 : RT_U8, of_codes,
                                                          bits == 8 ? 0 : 8, 1, 0, s->start, s->total),
                             RT_OK);
            test_same_f32(y, expected, s->count * s->n, "weights of codes");
            test_free_all();
        }
}

TEST(test_gradients) {
    for (int i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        int64_t *index = random_experts(s);
        float *x = random_f32(s->count * s->k), *dy = random_f32(s->count * s->n);
        float *y = test_new(s->experts * s->k * s->n, sizeof *y);
        assert_int_equal(
            rt_expert_weight_grad_f32(rt, y, x, dy, index, 1, s->count, s->experts, s->k, s->n, s->start, s->total),
            RT_OK);
        for (int64_t at = 0; at < s->experts * s->k * s->n; at++) {
            double sum = 0;
            for (int64_t row = 0; row < s->count; row++)
                if (own_expert(s, index[row]) == at / (s->k * s->n))
                    sum += (double)x[row * s->k + at / s->n % s->k] * dy[row * s->n + at % s->n];
            test_near(y[at], sum, 4e-6 * (double)(s->count + 1), "gradient", at);
        }
        test_free_all();
    }
}

TEST(test_experts_out_of_range) {
    const int64_t wrong[] = {4, -5};
    float x[3] = {1, 2, 3}, w[12] = {0}, y[3] = {7};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rt_expert_matmul_f32(rt, y, x, w, &wrong[i], 1, 1, 4, 3, 1, 0, 0, 4), RT_ERROR_INPUT);
        assert_int_equal(rt_expert_weight_grad_f32(rt, w, x, x, &wrong[i], 1, 1, 4, 3, 1, 0, 4), RT_ERROR_INPUT);
        assert_true(y[0] == 7);
    }
}

int main(void) {
    int failed = run_all_tests("reference", open_reference, close_rank);
    return failed + run_all_tests("auto", open_auto, close_rank);
}
