/* Products of 8-bit integers: equal to a loop over 64-bit integers, for every instruction set of the processor. */
#include "kernel_test.h"

#include "../../runtime/base/shape/panel.h"
#include "../../runtime/kernels/gemm_quads.h"

#include <string.h>

/* Depths around quads and the blocks of the kernel, columns around panels and its chunks, rows around its tiles. */
static const struct shape {
    int64_t m, k, n;
} shapes[] = {{1, 1, 1},     {1, 5, 33},    {3, 4, 32},    {7, 37, 45},    {14, 64, 31},   {15, 130, 65},
              {29, 1024, 3}, {2, 1025, 70}, {113, 3, 257}, {5, 2051, 290}, {130, 1029, 34}};

struct matrix {
    const uint8_t *x;
    int64_t k;
};

static void copy_rows(uint8_t *to, const void *source, int64_t row, int64_t rows, int64_t p, int64_t depth) {
    const struct matrix *matrix = source;
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * RT_QUAD_ROW, matrix->x + (row + i) * matrix->k + p, (size_t)depth);
}

static int64_t value(const uint8_t *at, int is_signed) {
    return is_signed ? (int8_t)*at : *at;
}

struct trial {
    struct shape shape;
    int x_signed, w_signed, per_column, zeros;
    uint8_t *x, *w, *w_zero; /* w (k,n) */
    int32_t x_zero;
    int32_t *expected;
};

static struct trial make(struct shape s, int kind) {
    struct trial t = {.shape = s, .x_signed = kind & 1, .w_signed = kind >> 1 & 1, .per_column = kind >> 2 & 1};
    t.x = test_new(s.m * s.k, 1), t.w = test_new(s.k * s.n, 1), t.w_zero = test_new(s.n, 1);
    t.expected = test_new(s.m * s.n, 4);
    for (int64_t i = 0; i < s.m * s.k; i++) t.x[i] = (uint8_t)test_random(256);
    for (int64_t i = 0; i < s.k * s.n; i++) t.w[i] = (uint8_t)test_random(256);
    for (int64_t j = 0; j < s.n; j++) t.w_zero[j] = (uint8_t)test_random(256);
    memset(t.x, t.x_signed ? 0x80 : 0xff, (size_t)s.k); /* the extremes, which saturate sums of 16 bits */
    for (int64_t p = 0; p < s.k; p++) t.w[p * s.n] = t.w_signed ? 0x80 : 0xff;
    t.x_zero = kind & 8 ? 0 : (int32_t)test_random(100);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            int64_t sum = 0;
            for (int64_t p = 0; p < s.k; p++)
                sum += (value(&t.x[i * s.k + p], t.x_signed) - t.x_zero) *
                       (value(&t.w[p * s.n + j], t.w_signed) - value(&t.w_zero[t.per_column ? j : 0], t.w_signed));
            t.expected[i * s.n + j] = (int32_t)sum;
        }
    return t;
}

static uint8_t *turned(const struct trial *t) {
    uint8_t *to = test_new(t->shape.k * t->shape.n, 1);
    for (int64_t p = 0; p < t->shape.k; p++)
        for (int64_t j = 0; j < t->shape.n; j++) to[j * t->shape.k + p] = t->w[p * t->shape.n + j];
    return to;
}

static int8_t *packed(const struct trial *t) {
    const int64_t k = t->shape.k, n = t->shape.n;
    int8_t *to = test_new(rt_quad_elements(k, n) + RT_PANEL, 1);
    memset(to, 0, (size_t)rt_quad_elements(k, n));
    for (int64_t j = 0; j < n; j++) {
        int32_t sum = 0;
        for (int64_t p = 0; p < k; p++) {
            const int8_t w = (int8_t)(t->w[p * n + j] ^ (t->w_signed ? 0 : 0x80));
            to[rt_quad_place(k, p, j)] = w;
            sum += w;
        }
        memcpy(to + j / RT_PANEL * rt_quad_panel(k) + rt_quad_rows(k) * RT_PANEL + j % RT_PANEL * 4, &sum, 4);
    }
    return to;
}

/* The product of a block, which leaves other elements as they are, and of the whole. */
static void check(const struct rt_gemm_quads *set, const struct trial *t, const void *w, int is_packed, int is_turned) {
    const struct shape s = t->shape;
    const struct matrix matrix = {t->x, s.k};
    int32_t *y = test_new(s.m * s.n, 4);
    const struct rt_quad_product product = {.y = y,
                                            .m = s.m,
                                            .k = s.k,
                                            .n = s.n,
                                            .rows = copy_rows,
                                            .source = &matrix,
                                            .x_signed = t->x_signed,
                                            .x_zero = t->x_zero,
                                            .w = w,
                                            .packed = is_packed,
                                            .turned = is_turned,
                                            .w_signed = t->w_signed,
                                            .w_row = is_turned ? s.k : s.n,
                                            .w_zero = t->w_zero,
                                            .per_column = t->per_column};
    const int64_t row = s.m / 3, column = s.n > RT_PANEL ? RT_PANEL : 0;
    for (int64_t i = 0; i < s.m * s.n; i++) y[i] = 77;
    set->multiply(&product, (struct rt_block){row, s.m - row, column, s.n - column});
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++)
            assert_int_equal(y[i * s.n + j], i < row || j < column ? 77 : t->expected[i * s.n + j]);
    set->multiply(&product, (struct rt_block){0, s.m, 0, s.n});
    assert_memory_equal(y, t->expected, (size_t)(s.m * s.n) * 4);
}

TEST(test_sets_are_exact) {
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < 16; kind++) {
            const struct trial t = make(shapes[s], kind);
            for (const struct rt_gemm_quads *set = rt_gemm_quads;; set++) {
                if (set->is_present && !set->is_present()) continue;
                check(set, &t, packed(&t), 1, kind >> 2 & 1);
                check(set, &t, turned(&t), 0, 1);
                check(set, &t, t.w, 0, 0);
                if (!set->is_present) break;
            }
            test_free_all();
        }
}

/* What the epilogue gets: every element's sum once, and the number of its row in the result. */
static void keep(void *y, const int32_t *sum, int64_t sum_row, const void *const *x, struct rt_block at) {
    const int64_t n = *(const int64_t *)x[0];
    for (int64_t i = 0; i < at.rows; i++)
        for (int64_t j = 0; j < at.columns; j++)
            ((int64_t *)y)[(at.row + i) * n + at.column + j] += sum[i * sum_row + j] + (INT64_C(1) << 40);
}

TEST(test_epilogue_sees_every_sum_once) {
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const struct trial t = make(shapes[s], 15);
        const struct matrix matrix = {t.x, t.shape.k};
        const int64_t m = t.shape.m, n = t.shape.n, first = 3;
        int64_t *y = test_new((m + first) * n, 8);
        const void *const operands[] = {&n};
        const struct rt_epilogue_int epilogue = {keep, operands};
        const struct rt_quad_product product = {.y = y,
                                                .m = m,
                                                .k = t.shape.k,
                                                .n = n,
                                                .rows = copy_rows,
                                                .source = &matrix,
                                                .x_signed = t.x_signed,
                                                .x_zero = t.x_zero,
                                                .w = t.w,
                                                .w_signed = t.w_signed,
                                                .w_row = n,
                                                .w_zero = t.w_zero,
                                                .per_column = t.per_column,
                                                .first = first,
                                                .epilogue = &epilogue};
        memset(y, 0, (size_t)((m + first) * n) * 8);
        rt_gemm_quads_choose(0)->multiply(&product, (struct rt_block){0, m, 0, n});
        for (int64_t i = 0; i < (m + first) * n; i++)
            assert_true(y[i] == (i < first * n ? 0 : t.expected[i - first * n] + (INT64_C(1) << 40)));
        test_free_all();
    }
}

int main(void) {
    return run_all_tests("quads", NULL, NULL);
}
