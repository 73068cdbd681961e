/* Products with weights of 4 and 8 bits in groups: the bits of Note [Products in groups] by a loop over single
 * elements, for every instruction set of the processor, and near the product in f64. */
#include "kernel_test.h"

#include "../../runtime/base/shape/panel.h"
#include "../../runtime/kernels/gemm_grouped.h"

#include <float.h>
#include <math.h>

/* One row and one column, tiles' heights and more, columns around panels and chunks, one group and many, groups of less
 * than a lane's multiple behind each other, groups longer than a piece, and a last lane that is not full. */
static const struct shape {
    int64_t m, k, n, groups;
} shapes[] = {{1, 8, 1, 1},      {1, 32, 33, 2},   {3, 64, 32, 1},    {7, 96, 45, 3},
              {14, 128, 31, 8},  {15, 256, 65, 1}, {2, 1024, 70, 32}, {29, 2080, 3, 65},
              {113, 64, 257, 4}, {4, 1536, 40, 3}, {1, 1030, 35, 1},  {5, 2048, 290, 8}};

static const enum rt_dtype types[] = {RT_U4, RT_I4, RT_U8, RT_I8};

struct trial {
    struct shape shape;
    enum rt_dtype codes;
    int bits, has_zeros, rounded;
    float *x, *scale, *expected;
    double *real, *bound; /* the product in f64, and what f32 may be off */
    uint8_t *w, *zero;    /* (n,k), (n,groups): a code each */
    uint8_t *panels;
};

static int value_of(const struct trial *t, uint8_t code) {
    const int sign = 1 << (t->bits - 1), value = code & ((1 << t->bits) - 1);
    return rt_dtype_is_signed(t->codes) ? (value ^ sign) - sign : value;
}

/* x as 8 bits with a scale, as ONNX Runtime quantises a block; returns the scale. */
static float quantised(const float *x, int64_t n, int *q) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    for (int64_t i = 0; i < n; i++) q[i] = most == 0 ? 0 : (int)nearbyintf(x[i] * (127 / most));
    return most / 127;
}

static float element(const struct trial *t, int64_t i, int64_t j, double *real, double *bound) {
    const int64_t k = t->shape.k, block = k / t->shape.groups;
    int q[RT_GROUP_PIECE];
    float y = 0;
    *real = *bound = 0;
    for (int64_t p = 0, end; p < k; p = end) {
        const int64_t group = j * t->shape.groups + p / block;
        end = p + RT_GROUP_PIECE < (p / block + 1) * block ? p + RT_GROUP_PIECE : (p / block + 1) * block;
        const float zero = t->has_zeros ? (float)value_of(t, t->zero[group]) : 3, *x = t->x + i * k + p;
        float sum = 0, scale = t->scale[group];
        int64_t exact = 0;
        const float x_scale = quantised(x, end - p, q);
        for (int64_t c = p; c < end; c++) {
            const int code = value_of(t, t->w[j * k + c]);
            sum = fmaf(x[c - p], (float)code - zero, sum);
            exact += (code - (int64_t)zero) * q[c - p];
            *real += (double)x[c - p] * (code - zero) * scale;
            *bound += fabs((double)x[c - p] * (code - zero) * scale) * (double)(end - p + k / block) * FLT_EPSILON;
            if (t->rounded) *bound += x_scale * 0.5001 * fabs((code - zero) * scale);
        }
        y = t->rounded ? fmaf((float)exact, scale * x_scale, y) : fmaf(sum, scale, y);
    }
    return y;
}

static void pack(struct trial *t) {
    const int64_t k = t->shape.k, n = t->shape.n, row = (k * t->bits + 7) / 8, per = 8 / t->bits;
    t->panels = test_new(rt_quad_elements(row, n), 1);
    for (int64_t j = 0; j < n; j++)
        for (int64_t b = 0; b < row; b++) {
            int byte = 0;
            for (int64_t s = 0; s < per && b * per + s < k; s++)
                byte |= (t->w[j * k + b * per + s] & ((1 << t->bits) - 1)) << (s * t->bits);
            t->panels[rt_quad_place(row, b, j)] = (uint8_t)(t->codes == RT_I8 ? byte : byte ^ 0x80);
        }
}

static float *packed_scales(const struct trial *t) {
    const struct shape s = t->shape;
    float *panels = test_new(rt_panel_elements(s.groups, s.n), sizeof *panels);
    for (int64_t j = 0; j < s.n; j++)
        for (int64_t g = 0; g < s.groups; g++) panels[rt_panel_place(s.groups, g, j)] = t->scale[j * s.groups + g];
    return panels;
}

static struct trial make(struct shape s, int kind) {
    struct trial t = {.shape = s, .codes = types[kind & 3], .has_zeros = kind >> 2 & 1, .rounded = kind >> 3};
    t.bits = rt_dtype_bits(t.codes);
    t.x = test_new(s.m * s.k, 4), t.w = test_new(s.k * s.n, 1);
    t.scale = test_new(s.n * s.groups, 4), t.zero = test_new(s.n * s.groups, 1);
    t.expected = test_new(s.m * s.n, 4), t.real = test_new(s.m * s.n, 8), t.bound = test_new(s.m * s.n, 8);
    for (int64_t i = 0; i < s.m * s.k; i++) t.x[i] = (float)test_random(2001) / 1000 - 1;
    for (int64_t i = 0; i < s.k && s.m > 2; i++) t.x[s.k + i] = 0; /* a row without a scale */
    for (int64_t i = 0; i < s.k * s.n; i++) t.w[i] = (uint8_t)test_random(256);
    for (int64_t i = 0; i < s.n * s.groups; i++) {
        t.scale[i] = (float)(1 + test_random(1000)) / 4096;
        t.zero[i] = (uint8_t)(i % 3 == 0 ? 0 : i % 3 == 1 ? 255 : test_random(256)); /* the ends of the range */
        if (t.bits == 4) t.zero[i] = (uint8_t)value_of(&t, t.zero[i]);
    }
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            const int64_t at = i * s.n + j;
            t.expected[at] = element(&t, i, j, &t.real[at], &t.bound[at]);
        }
    pack(&t);
    return t;
}

/* The product of a block, which leaves other elements as they are, and of the whole. */
static void check(const struct rt_gemm_grouped *set, const struct trial *t) {
    const struct shape s = t->shape;
    float *y = test_new(s.m * s.n, 4);
    const struct rt_grouped_product product = {.y = y,
                                               .x = t->x,
                                               .w = t->panels,
                                               .scale = packed_scales(t),
                                               .zero = t->has_zeros ? t->zero : NULL,
                                               .offset = 3,
                                               .m = s.m,
                                               .k = s.k,
                                               .n = s.n,
                                               .groups = s.groups,
                                               .codes = t->codes,
                                               .rounded = t->rounded};
    const int64_t row = s.m / 3, column = s.n > RT_PANEL ? RT_PANEL : 0;
    for (int64_t i = 0; i < s.m * s.n; i++) y[i] = 77;
    set->multiply(&product, (struct rt_block){row, s.m - row, column, s.n - column});
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            const int64_t at = i * s.n + j;
            const float expected = i < row || j < column ? 77 : t->expected[at];
            assert_memory_equal(&y[at], &expected, sizeof expected);
        }
    set->multiply(&product, (struct rt_block){0, s.m, 0, s.n});
    assert_memory_equal(y, t->expected, (size_t)(s.m * s.n) * 4);
    for (int64_t at = 0; at < s.m * s.n; at++) assert_true(fabs(y[at] - t->real[at]) <= t->bound[at]);
}

TEST(test_sets_give_the_same_bits) {
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < 16; kind++) {
            const struct trial t = make(shapes[s], kind);
            for (const struct rt_gemm_grouped *set = rt_gemm_grouped;; set++) {
                if (!set->is_present || set->is_present()) check(set, &t);
                if (!set->is_present) break;
            }
            test_free_all();
        }
}

int main(void) {
    return run_all_tests("grouped", NULL, NULL);
}
