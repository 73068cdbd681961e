/* Matrix products: against a loop in long double within k eps, and bit for bit where kernels.h promises it. */
#include "kernel_test.h"

#include "../../runtime/base/number/half.h"
#include "../../runtime/base/shape/panel.h"
#include "../../runtime/kernels/gemm.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t m, k, n;
};

static const struct shape shapes[] = {{0, 3, 4},    {3, 0, 4},     {3, 4, 0},   {1, 1, 1},     {1, 7, 1},
                                      {1, 5, 37},   {37, 5, 1},    {2, 3, 5},   {4, 16, 8},    {5, 17, 33},
                                      {31, 64, 65}, {33, 129, 31}, {8, 257, 9}, {13, 401, 47}, {1, 800, 67},
                                      {70, 390, 1}, {67, 97, 101}};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

/* Operands of one product, each stored both ways. */
struct operands {
    struct shape shape;
    float *a[2], *b[2]; /* [trans] */
    double *a64[2], *b64[2];
    int64_t *ai[2], *bi[2];
    int32_t *aw[2], *bw[2];
};

#define TURN(to, from, rows, columns)                                                                                  \
    for (int64_t i = 0; i < (rows); i++)                                                                               \
        for (int64_t j = 0; j < (columns); j++) (to)[j * (rows) + i] = (from)[i * (columns) + j];

#define MAKE(field, T, fill, rows, columns)                                                                            \
    field[0] = test_new((rows) * (columns), sizeof(T));                                                                \
    field[1] = test_new((rows) * (columns), sizeof(T));                                                                \
    fill(field[0], (rows) * (columns));                                                                                \
    TURN(field[1], field[0], rows, columns)

static struct operands make(struct shape s) {
    struct operands o = {.shape = s};
    MAKE(o.a, float, test_f32, s.m, s.k)
    MAKE(o.b, float, test_f32, s.k, s.n)
    MAKE(o.a64, double, test_f64, s.m, s.k)
    MAKE(o.b64, double, test_f64, s.k, s.n)
    MAKE(o.ai, int64_t, test_i64, s.m, s.k)
    MAKE(o.bi, int64_t, test_i64, s.k, s.n)
    MAKE(o.aw, int32_t, test_i32, s.m, s.k)
    MAKE(o.bw, int32_t, test_i32, s.k, s.n)
    return o;
}

/* Rounding of k products and sums: |error| <= k eps sum|a b|, and the factors are below 1. */
static void products_are_near(struct rt *rt, const struct operands *o, int ta, int tb) {
    struct shape s = o->shape;
    float *y = test_new(s.m * s.n, 4);
    double *y64 = test_new(s.m * s.n, 8);
    int64_t *yi = test_new(s.m * s.n, 8);
    int32_t *yw = test_new(s.m * s.n, 4);
    assert_int_equal(rt_matmul_f32(rt, y, o->a[ta], o->b[tb], s.m, s.k, s.n, ta, tb), RT_OK);
    assert_int_equal(rt_matmul_f64(rt, y64, o->a64[ta], o->b64[tb], s.m, s.k, s.n, ta, tb), RT_OK);
    assert_int_equal(rt_matmul_i64(rt, yi, o->ai[ta], o->bi[tb], s.m, s.k, s.n, ta, tb), RT_OK);
    assert_int_equal(rt_matmul_i32(rt, yw, o->aw[ta], o->bw[tb], s.m, s.k, s.n, ta, tb), RT_OK);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = 0, size = 0;
            long double sum64 = 0, size64 = 0;
            int64_t whole = 0;
            int32_t word = 0;
            for (int64_t p = 0; p < s.k; p++) {
                int64_t l = i * s.k + p, r = p * s.n + j;
                double term = (double)o->a[0][l] * (double)o->b[0][r];
                long double term64 = (long double)o->a64[0][l] * o->b64[0][r];
                sum += term, size += fabs(term);
                sum64 += term64, size64 += fabsl(term64);
                whole += o->ai[0][l] * o->bi[0][r];
                word += o->aw[0][l] * o->bw[0][r];
            }
            int64_t at = i * s.n + j;
            test_near((double)y[at], sum, (double)s.k * FLT_EPSILON * size, "f32", at);
            test_near(y64[at], (double)sum64, (double)s.k * DBL_EPSILON * (double)size64, "f64", at);
            assert_int_equal(yi[at], whole);
            assert_int_equal(yw[at], word);
        }
}

static void products_of(const char *kernels) {
    struct rt *rt = test_open(kernels);
    for (int s = 0; s < SHAPES; s++)
        for (int trans = 0; trans < 4; trans++) {
            struct operands o = make(shapes[s]);
            products_are_near(rt, &o, trans & 1, trans >> 1);
            test_free_all();
        }
    test_close(rt);
}

TEST(test_reference) {
    products_of("reference");
}

TEST(test_library) {
    products_of("auto");
}

TEST(test_reference_is_the_loop) {
    struct rt *rt = test_open("reference");
    for (int s = 0; s < SHAPES; s++) {
        struct operands o = make(shapes[s]);
        struct shape d = o.shape;
        float *expected = test_new(d.m * d.n, 4), *y = test_new(d.m * d.n, 4);
        for (int64_t i = 0; i < d.m; i++)
            for (int64_t j = 0; j < d.n; j++) {
                volatile float sum = 0; /* volatile: neither fused nor reordered */
                for (int64_t p = 0; p < d.k; p++) {
                    volatile float term = o.a[0][i * d.k + p] * o.b[0][p * d.n + j];
                    sum = sum + term;
                }
                expected[i * d.n + j] = sum;
            }
        for (int trans = 0; trans < 4; trans++) {
            rt_matmul_f32(rt, y, o.a[trans & 1], o.b[trans >> 1], d.m, d.k, d.n, trans & 1, trans >> 1);
            test_same_f32(y, expected, d.m * d.n, "reference");
        }
        test_free_all();
    }
    test_close(rt);
}

/* Rows [i0, i0 + m) and columns [j0, j0 + n) of the product, computed alone. */
static void part_is_equal(struct rt *rt, const struct operands *o, const float *whole, int64_t i0, int64_t m,
                          int64_t j0, int64_t n, int ta, int tb) {
    struct shape s = o->shape;
    float *a = test_new(m * s.k, 4), *b = test_new(s.k * n, 4), *y = test_new(m * n, 4);
    for (int64_t p = 0; p < s.k; p++) {
        for (int64_t i = 0; i < m; i++) a[ta ? p * m + i : i * s.k + p] = o->a[0][(i0 + i) * s.k + p];
        for (int64_t j = 0; j < n; j++) b[tb ? j * s.k + p : p * n + j] = o->b[0][p * s.n + j0 + j];
    }
    assert_int_equal(rt_matmul_f32(rt, y, a, b, m, s.k, n, ta, tb), RT_OK);
    for (int64_t i = 0; i < m; i++) test_same_f32(y + i * n, whole + (i0 + i) * s.n + j0, n, "part");
}

/* Where oneDNN was found to be invariant; an upper bound on its instructions takes other kernels. */
static int must_be_invariant(void) {
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512vl") && !getenv("DNNL_MAX_CPU_ISA") && !getenv("ONEDNN_MAX_CPU_ISA");
#else
    return 0;
#endif
}

static void cuts_change_nothing(const char *kernels) {
    static const struct shape cut[] = {{33, 401, 67}, {130, 800, 129}, {7, 385, 515}, {300, 64, 5}, {20, 390, 1024}};
    struct rt *rt = test_open(kernels);
    if (!rt_kernels_invariant(rt)) {
        test_close(rt);
        if (must_be_invariant()) fail_msg("the probe found products that depend on m or n");
        skip();
    }
    for (size_t s = 0; s < sizeof cut / sizeof *cut; s++)
        for (int trans = 0; trans < 4; trans++) {
            struct operands o = make(cut[s]);
            int64_t m = cut[s].m, n = cut[s].n;
            float *y = test_new(m * n, 4);
            rt_kernels_threads(1);
            rt_matmul_f32(rt, y, o.a[0], o.b[0], m, cut[s].k, n, 0, 0);
            for (int threads = 1; threads <= 3; threads++) {
                rt_kernels_threads(threads);
                part_is_equal(rt, &o, y, 0, m, 0, n, trans & 1, trans >> 1);
            }
            rt_kernels_threads(2);
            part_is_equal(rt, &o, y, 0, m / 2, 0, n, trans & 1, trans >> 1);
            part_is_equal(rt, &o, y, m / 2, m - m / 2, 0, n, trans & 1, trans >> 1);
            part_is_equal(rt, &o, y, 0, m, 0, n / 3, trans & 1, trans >> 1);
            part_is_equal(rt, &o, y, 0, m, n / 3, n - n / 3, trans & 1, trans >> 1);
            part_is_equal(rt, &o, y, m - 1, 1, 0, n, trans & 1, trans >> 1);
            part_is_equal(rt, &o, y, 1, m - 1, n - 1, 1, trans & 1, trans >> 1);
            part_is_equal(rt, &o, y, 2, 1, 1, 1, trans & 1, trans >> 1);
            test_free_all();
        }
    test_close(rt);
}

TEST(test_reference_cuts) {
    cuts_change_nothing("reference");
}

TEST(test_library_cuts) {
    cuts_change_nothing("auto");
}

TEST(test_threads_change_nothing) {
    static const struct shape large = {150, 100, 130};
    for (int kind = 0; kind < 2; kind++) {
        struct rt *rt = test_open(kind ? "reference" : "auto");
        struct operands o = make(large);
        double *once = test_new(large.m * large.n, 8), *twice = test_new(large.m * large.n, 8);
        rt_kernels_threads(1);
        rt_matmul_f64(rt, once, o.a64[0], o.b64[0], large.m, large.k, large.n, 0, 0);
        rt_kernels_threads(2);
        rt_matmul_f64(rt, twice, o.a64[0], o.b64[0], large.m, large.k, large.n, 0, 0);
        test_same_f64(twice, once, large.m * large.n, "f64 with threads");
        test_free_all();
        test_close(rt);
    }
}

TEST(test_batches) {
    enum { BATCH = 5, M = 9, K = 70, N = 11 };
    for (int kind = 0; kind < 2; kind++)
        for (int trans = 0; trans < 4; trans++)
            for (int threads = 1; threads <= 7; threads += 3) {
                struct rt *rt = test_open(kind ? "reference" : "auto");
                float *a = test_new(BATCH * M * K, 4), *b = test_new(BATCH * K * N, 4);
                float *y = test_new(BATCH * M * N, 4), *one = test_new(M * N, 4);
                test_f32(a, BATCH * M * K);
                test_f32(b, BATCH * K * N);
                rt_kernels_threads(threads);
                assert_int_equal(rt_bmm_f32(rt, y, a, b, BATCH, M, K, N, trans & 1, trans >> 1), RT_OK);
                assert_int_equal(rt_bmm_f32(rt, y, a, b, 0, M, K, N, 0, 0), RT_OK);
                rt_kernels_threads(1);
                for (int i = 0; i < BATCH; i++) {
                    rt_matmul_f32(rt, one, a + i * M * K, b + i * K * N, M, K, N, trans & 1, trans >> 1);
                    for (int j = 0; j < M * N; j++)
                        test_near((double)y[i * M * N + j], (double)one[j], K * FLT_EPSILON * K, "batch", j);
                    if (rt_kernels_invariant(rt)) test_same_f32(y + i * M * N, one, M * N, "batch");
                }
                test_free_all();
                test_close(rt);
            }
}

/* Halves: rounded once from f32 ------------------------------------------------------------------------------------ */

/* oneDNN's own product of bf16, which programs use where the processor has AMX; elsewhere it is slow. */
static int onednn_bf16(struct rt *rt, uint16_t *y, const uint16_t *a, const uint16_t *b, int64_t m, int64_t k,
                       int64_t n, int trans_a, int trans_b) {
    if (m && k && n && !rt_gemm_onednn_bf16(y, n, a, trans_a ? m : k, trans_a, b, trans_b ? k : n, trans_b, m, k, n))
        return RT_OK;
    return rt_matmul_bf16(rt, y, a, b, m, k, n, trans_a, trans_b);
}

static const struct half {
    const char *name;
    int (*matmul)(struct rt *rt, uint16_t *y, const uint16_t *a, const uint16_t *b, int64_t m, int64_t k, int64_t n,
                  int trans_a, int trans_b);
    enum rt_dtype dtype;
    double eps;
    int native; /* oneDNN decides how bf16 is summed: bits are not promised */
} halves[] = {{"bf16", rt_matmul_bf16, RT_BF16, 0x1p-8, .native = -1},
              {"fp16", rt_matmul_fp16, RT_F16, 0x1p-11, .native = 0},
              {"bf16 by oneDNN", onednn_bf16, RT_BF16, 0x1p-8, .native = 1}};
#define HALVES (int)(sizeof halves / sizeof *halves)

static int keeps_bits(struct rt *rt, const struct half *half) {
    int native = half->native < 0 ? !rt->reference_kernels && rt_gemm_has_tiles() : half->native;
    return !native && rt_kernels_invariant(rt);
}

static uint16_t *halved(const struct half *half, const float *x, int64_t n) {
    uint16_t *y = test_new(n, 2);
    rt_convert(y, half->dtype, x, RT_F32, (size_t)n);
    return y;
}

static float *widened(const struct half *half, const uint16_t *x, int64_t n) {
    float *y = test_new(n, 4);
    rt_convert(y, RT_F32, x, half->dtype, (size_t)n);
    return y;
}

/* The product of one rank with itself, cut in four at odd places: no bit changes. */
static void half_cuts_change_nothing(struct rt *rt, const struct half *half, struct shape s, const uint16_t *a,
                                     const uint16_t *b, const uint16_t *whole) {
    int64_t m0 = s.m / 2, n0 = s.n / 3;
    for (int part = 0; part < 4; part++) {
        int64_t i0 = part & 1 ? m0 : 0, m = part & 1 ? s.m - m0 : m0, j0 = part & 2 ? n0 : 0,
                n = part & 2 ? s.n - n0 : n0;
        uint16_t *right = test_new(s.k * n, 2), *y = test_new(m * n, 2);
        for (int64_t p = 0; p < s.k; p++)
            for (int64_t j = 0; j < n; j++) right[p * n + j] = b[p * s.n + j0 + j];
        assert_int_equal(half->matmul(rt, y, a + i0 * s.k, right, m, s.k, n, 0, 0), RT_OK);
        for (int64_t i = 0; i < m; i++) test_same_bytes(y + i * n, whole + (i0 + i) * s.n + j0, n, 2, "part of halves");
    }
}

static void half_products(struct rt *rt, const struct half *half, struct shape s, int exact) {
    struct operands o = make(s);
    uint16_t *a[2], *b[2], *y = test_new(s.m * s.n, 2);
    float *sum = test_new(s.m * s.n, 4);
    for (int t = 0; t < 2; t++) a[t] = halved(half, o.a[t], s.m * s.k), b[t] = halved(half, o.b[t], s.k * s.n);
    float *left = widened(half, a[0], s.m * s.k), *right = widened(half, b[0], s.k * s.n);
    assert_int_equal(rt_matmul_f32(rt, sum, left, right, s.m, s.k, s.n, 0, 0), RT_OK);
    for (int trans = 0; trans < 4; trans++) {
        assert_int_equal(half->matmul(rt, y, a[trans & 1], b[trans >> 1], s.m, s.k, s.n, trans & 1, trans >> 1), RT_OK);
        if (exact && half->native < 1) test_same_bytes(y, halved(half, sum, s.m * s.n), s.m * s.n, 2, half->name);
        float *wide = widened(half, y, s.m * s.n);
        for (int64_t i = 0; i < s.m * s.n; i++)
            test_near((double)wide[i], (double)sum[i],
                      half->eps * fabs((double)sum[i]) + (double)s.k * FLT_EPSILON * (double)s.k, half->name, i);
        if (keeps_bits(rt, half)) half_cuts_change_nothing(rt, half, s, a[0], b[0], y);
    }
    test_free_all();
}

TEST(test_halves) {
    static const struct shape large[] = {{129, 385, 131}, {260, 40, 257}, {241, 775, 289}};
    for (int kind = 0; kind < 2; kind++)
        for (int h = 0; h < HALVES; h++) {
            struct rt *rt = test_open(kind ? "reference" : "auto");
            for (int s = 0; s < SHAPES; s++) half_products(rt, &halves[h], shapes[s], kind);
            for (int s = 0; s < 3; s++) half_products(rt, &halves[h], large[s], kind);
            test_close(rt);
        }
}

/* Halves with a packed right side ---------------------------------------------------------------------------------- */

static uint16_t *pack_halves(const uint16_t *b, int64_t k, int64_t n) {
    uint16_t *panels = test_new(rt_pair_elements(k, n), 2);
    memset(panels, 0, (size_t)rt_pair_elements(k, n) * sizeof *panels);
    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < n; j++) panels[rt_pair_place(k, p, j)] = b[p * n + j];
    return panels;
}

/* One way of computing a packed product of halves. */
struct half_path {
    const struct rt_gemm_packed *set;
    int pairs;
};

static uint16_t *half_product_by(struct half_path path, enum rt_dtype dtype, const uint16_t *a, const uint16_t *panels,
                                 struct shape s, const struct rt_epilogue_half *epilogue) {
    uint16_t *y = test_new(s.m * s.n, 2);
    const struct rt_packed_half product = {
        .y = y, .a = a, .b = panels, .m = s.m, .k = s.k, .n = s.n, .dtype = dtype, .epilogue = epilogue};
    rt_gemm_half(&product, (struct rt_block){0, s.m, 0, s.n}, path.set, path.pairs);
    return y;
}

/* Each path against the product in f64 of the same halves: half a unit of the rounding, and k sums in f32. Rows and
 * columns that are computed alone have the same bits. */
static void half_path_is_near(struct half_path path, const struct half *half, struct shape s) {
    struct operands o = make(s);
    uint16_t *a = halved(half, o.a[0], s.m * s.k), *b = halved(half, o.b[0], s.k * s.n);
    const float *left = widened(half, a, s.m * s.k), *right = widened(half, b, s.k * s.n);
    const uint16_t *y = half_product_by(path, half->dtype, a, pack_halves(b, s.k, s.n), s, NULL);
    const float *wide = widened(half, y, s.m * s.n);
    for (int64_t i = 0; i < s.m * s.n; i++) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < s.k; p++) {
            const double term = (double)left[i / s.n * s.k + p] * (double)right[p * s.n + i % s.n];
            sum += term, size += fabs(term);
        }
        test_near((double)wide[i], sum, half->eps * fabs(sum) + (double)(s.k + 1) * FLT_EPSILON * size + 0x1p-25,
                  path.pairs ? "pairs" : path.set->name, i);
    }
    const int64_t row = s.m / 2, column = s.n / 2, m = s.m - row, n = s.n - column;
    uint16_t *columns = test_new(s.k * n, 2);
    for (int64_t p = 0; p < s.k; p++) memcpy(columns + p * n, b + p * s.n + column, (size_t)n * sizeof *b);
    const uint16_t *part = half_product_by(path, half->dtype, a + row * s.k, pack_halves(columns, s.k, n),
                                           (struct shape){m, s.k, n}, NULL);
    for (int64_t i = 0; i < m; i++)
        test_same_bytes(part + i * n, y + (row + i) * s.n + column, n, 2, "part of a packed product of halves");
    test_free_all();
}

static const struct shape half_shapes[] = {{3, 0, 40},    {1, 1, 1},     {1, 301, 33},   {2, 17, 31},   {15, 1, 257},
                                           {29, 769, 47}, {14, 384, 32}, {113, 385, 70}, {130, 66, 300}};
#define HALF_SHAPES (int)(sizeof half_shapes / sizeof *half_shapes)

TEST(test_packed_halves) {
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < HALF_SHAPES; s++) {
            for (const struct rt_gemm_packed *set = rt_gemm_packed;; set++) {
                if (!set->is_present || set->is_present())
                    half_path_is_near((struct half_path){set, 0}, &halves[h], half_shapes[s]);
                if (!set->is_present) break;
            }
            if (halves[h].dtype == RT_BF16 && rt_processor_has_pairs())
                half_path_is_near((struct half_path){rt_gemm_packed_choose(0), 1}, &halves[h], half_shapes[s]);
        }
}

/* f32 by panels of halves: the product of halves is its rounding, where both operands are halves that are widened. */
static void wide_path_is_exact(struct half_path path, const struct half *half, struct shape s) {
    struct operands o = make(s);
    const uint16_t *a = halved(half, o.a[0], s.m * s.k),
                   *panels = pack_halves(halved(half, o.b[0], s.k * s.n), s.k, s.n);
    const uint16_t *expected = half_product_by(path, half->dtype, a, panels, s, NULL);
    float *y = test_new(s.m * s.n, 4);
    const struct rt_packed_half product = {.wide_y = y,
                                           .wide_a = widened(half, a, s.m * s.k),
                                           .b = panels,
                                           .m = s.m,
                                           .k = s.k,
                                           .n = s.n,
                                           .dtype = half->dtype};
    rt_gemm_half(&product, (struct rt_block){0, s.m, 0, s.n}, path.set, path.pairs);
    test_same_bytes(halved(half, y, s.m * s.n), expected, s.m * s.n, 2, path.pairs ? "pairs" : path.set->name);
    test_free_all();
}

/* y(m,n) = y + x[row] */
struct of_rows {
    const float *of_row;
    int64_t n;
};

static void add_row_wide(float *y, const void *const *x, struct rt_block at) {
    const struct of_rows *rows = x[0];
    for (int64_t i = at.row; i < at.row + at.rows; i++)
        for (int64_t j = at.column; j < at.column + at.columns; j++) y[i * rows->n + j] += rows->of_row[i];
}

typedef int by_half(struct rt *, float *, const float *, const uint16_t *, int64_t, int64_t, int64_t,
                    const struct rt_epilogue *);

/* Against the product in f64 of the same weights; the same bits for any number of threads; with an epilogue. */
TEST(test_packed_by_halves_of_a_program) {
    static const struct shape of[] = {{1, 769, 2300}, {130, 401, 300}};
    static by_half *const products[] = {rt_matmul_packed_f32_by_bf16, rt_matmul_packed_f32_by_fp16,
                                        rt_matmul_packed_f32_as_bf16};
    for (int i = 0; i < 12; i++) {
        const struct shape s = of[i % 2];
        by_half *multiply = products[i / 2 % 3];
        const struct half *half = &halves[multiply == rt_matmul_packed_f32_by_fp16];
        struct rt *rt = test_open(i / 6 ? "reference" : "auto");
        struct operands o = make(s);
        const uint16_t *b = halved(half, o.b[0], s.k * s.n), *panels = pack_halves(b, s.k, s.n);
        const float *right = widened(half, b, s.k * s.n), *left = o.a[0];
        if (multiply == rt_matmul_packed_f32_as_bf16 && i / 6 == 0 && rt_processor_has_pairs())
            left = widened(half, halved(half, left, s.m * s.k), s.m * s.k);
        float *y = test_new(s.m * s.n, 4), *again = test_new(s.m * s.n, 4), *of_row = test_new(s.m, 4);
        assert_int_equal(multiply(rt, y, o.a[0], panels, s.m, s.k, s.n, NULL), RT_OK);
        for (int64_t at = 0; at < s.m * s.n; at++) {
            double sum = 0, size = 0;
            for (int64_t p = 0; p < s.k; p++) {
                const double term = (double)left[at / s.n * s.k + p] * (double)right[p * s.n + at % s.n];
                sum += term, size += fabs(term);
            }
            test_near((double)y[at], sum, (double)(s.k + 1) * FLT_EPSILON * size, half->name, at);
        }
        test_f32(of_row, s.m);
        const struct of_rows rows = {of_row, s.n};
        const void *x[] = {&rows};
        const struct rt_epilogue epilogue = {add_row_wide, x};
        rt_kernels_threads(3);
        assert_int_equal(multiply(rt, again, o.a[0], panels, s.m, s.k, s.n, &epilogue), RT_OK);
        for (int64_t at = 0; at < s.m * s.n; at++) y[at] += of_row[at / s.n];
        test_same_bytes(again, y, s.m * s.n, 4, "threads and epilogue");
        rt_kernels_threads(1);
        test_free_all();
        test_close(rt);
    }
}

TEST(test_packed_by_halves) {
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < HALF_SHAPES; s++) {
            for (const struct rt_gemm_packed *set = rt_gemm_packed;; set++) {
                if (!set->is_present || set->is_present())
                    wide_path_is_exact((struct half_path){set, 0}, &halves[h], half_shapes[s]);
                if (!set->is_present) break;
            }
            if (halves[h].dtype == RT_BF16 && rt_processor_has_pairs())
                wide_path_is_exact((struct half_path){rt_gemm_packed_choose(0), 1}, &halves[h], half_shapes[s]);
        }
}

/* y = sum + x[row], in bf16. */
static void add_of_row(uint16_t *y, const float *sum, int64_t sum_row, const void *const *x, struct rt_block at) {
    const float *of_row = x[0];
    for (int64_t i = 0; i < at.rows; i++)
        for (int64_t j = 0; j < at.columns; j++)
            y[(at.row + i) * 300 + at.column + j] = rt_f32_to_bf16(sum[i * sum_row + j] + of_row[at.row + i]);
}

/* The same bits for any number of threads; the reference's are those of the product that is not packed; an epilogue
 * reads the sum in f32, since (1 + 2^-5)^2 - 1 would be 2^-4 if the product were rounded first. */
TEST(test_packed_halves_of_a_program) {
    const struct shape s = {130, 401, 300};
    for (int kind = 0; kind < 2; kind++)
        for (int h = 0; h < 2; h++) {
            struct rt *rt = test_open(kind ? "reference" : "auto");
            struct operands o = make(s);
            const uint16_t *a = halved(&halves[h], o.a[0], s.m * s.k), *b = halved(&halves[h], o.b[0], s.k * s.n);
            const uint16_t *panels = pack_halves(b, s.k, s.n);
            uint16_t *y = test_new(s.m * s.n, 2), *again = test_new(s.m * s.n, 2);
            int (*multiply)(struct rt *, uint16_t *, const uint16_t *, const uint16_t *, int64_t, int64_t, int64_t,
                            const struct rt_epilogue_half *) = h ? rt_matmul_packed_fp16 : rt_matmul_packed_bf16;
            assert_int_equal(multiply(rt, y, a, panels, s.m, s.k, s.n, NULL), RT_OK);
            rt_kernels_threads(3);
            assert_int_equal(multiply(rt, again, a, panels, s.m, s.k, s.n, NULL), RT_OK);
            test_same_bytes(again, y, s.m * s.n, 2, "threads");
            rt_kernels_threads(1);
            if (kind) assert_int_equal(halves[h].matmul(rt, again, a, b, s.m, s.k, s.n, 0, 0), RT_OK);
            if (kind) test_same_bytes(again, y, s.m * s.n, 2, "not packed");
            test_free_all();
            test_close(rt);
        }
    struct rt *rt = test_open("auto");
    float *of_row = test_new(s.m, 4);
    uint16_t *a = test_new(s.m, 2), *b = test_new(s.n, 2), *y = test_new(s.m * s.n, 2);
    for (int64_t i = 0; i < s.m; i++) of_row[i] = -1, a[i] = rt_f32_to_bf16(1 + 0x1p-5f);
    for (int64_t j = 0; j < s.n; j++) b[j] = rt_f32_to_bf16(1 + 0x1p-5f);
    const void *x[] = {of_row};
    const struct rt_epilogue_half epilogue = {add_of_row, x};
    assert_int_equal(rt_matmul_packed_bf16(rt, y, a, pack_halves(b, 1, s.n), s.m, 1, s.n, &epilogue), RT_OK);
    for (int64_t i = 0; i < s.m * s.n; i++) /* (1 + e)^2 - 1 = 2 e + e^2, which is exact in bf16 */
        assert_true(rt_bf16_to_f32(y[i]) == 0x1p-4f + 0x1p-10f);
    test_free_all();
    test_close(rt);
}

TEST(test_nan_and_infinity_pass) {
    for (int kind = 0; kind < 2; kind++) {
        struct rt *rt = test_open(kind ? "reference" : "auto");
        const float a[] = {0, 1, INFINITY, 1, NAN, 0}, b[] = {INFINITY, 0, 1, 2};
        float y[6];
        assert_int_equal(rt_matmul_f32(rt, y, a, b, 3, 2, 2, 0, 0), RT_OK);
        assert_true(isnan(y[0]));      /* 0 inf + 1 1 */
        assert_true(y[1] == 2);        /* 0 0 + 1 2 */
        assert_true(y[2] == INFINITY); /* inf inf + 1 1 */
        assert_true(isnan(y[3]));      /* inf 0 + 1 2 */
        assert_true(isnan(y[4]) && isnan(y[5]));
        test_close(rt);
    }
}

TEST(test_integers_wrap) {
    struct rt *rt = test_open("auto");
    const int32_t a = INT32_MIN, b = -1;
    int32_t y;
    assert_int_equal(rt_matmul_i32(rt, &y, &a, &b, 1, 1, 1, 0, 0), RT_OK);
    assert_int_equal(y, INT32_MIN);
    test_close(rt);
}

TEST(test_selection) {
    struct rt *rt = test_open("reference");
    assert_true(rt_kernels_invariant(rt));
    assert_int_equal(rt_kernels_select(rt, "fastest"), -1);
    assert_int_equal(rt_kernels_select(rt, "auto"), 0);
    assert_int_equal(rt_kernels_select(rt, NULL), 0);
    int before = rt_kernels_threads(3);
    assert_int_equal(rt_kernels_threads(before), 3);
    test_close(rt);
}

/* Packed right sides ----------------------------------------------------------------------------------------------- */

static float *pack(const float *b, int64_t k, int64_t n) {
    float *panels = test_new(rt_panel_elements(k, n), 4);
    memset(panels, 0, (size_t)rt_panel_elements(k, n) * sizeof *panels);
    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < n; j++) panels[rt_panel_place(k, p, j)] = b[p * n + j];
    return panels;
}

/* What Note [Products with panels] says: C's fmaf in order of k; the reference rounds each product. */
static float *chain(const struct operands *o, int fused) {
    struct shape s = o->shape;
    float *y = test_new(s.m * s.n, 4);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            volatile float sum = 0; /* volatile: neither fused nor reordered */
            for (int64_t p = 0; p < s.k; p++) {
                float left = o->a[0][i * s.k + p], right = o->b[0][p * s.n + j];
                volatile float term = left * right;
                sum = fused ? fmaf(left, right, sum) : sum + term;
            }
            y[i * s.n + j] = sum;
        }
    return y;
}

static const struct shape packed_shapes[] = {{3, 0, 40},    {1, 1, 1},      {1, 300, 33},  {2, 17, 31},  {5, 256, 32},
                                             {6, 257, 64},  {7, 512, 65},   {13, 40, 290}, {14, 4, 256}, {15, 1, 257},
                                             {29, 513, 47}, {43, 259, 100}, {85, 7, 9}};
#define PACKED_SHAPES (int)(sizeof packed_shapes / sizeof *packed_shapes)

TEST(test_packed_sets_are_chains) {
    for (int s = 0; s < PACKED_SHAPES; s++) {
        struct operands o = make(packed_shapes[s]);
        struct shape d = o.shape;
        float *b = pack(o.b[0], d.k, d.n), *y = test_new(d.m * d.n, 4);
        for (const struct rt_gemm_packed *set = rt_gemm_packed;; set++) {
            int fused = set->is_present != NULL;
            if (!fused || set->is_present()) {
                memset(y, 0xff, (size_t)(d.m * d.n) * sizeof *y);
                struct rt_packed_product product = {y, o.a[0], b, d.m, d.k, d.n, NULL};
                set->multiply(&product, (struct rt_block){0, d.m, 0, d.n});
                test_same_f32(y, chain(&o, fused), d.m * d.n, set->name);
            }
            if (!fused) break;
        }
        test_free_all();
    }
}

/* A block is computed, and nothing is written beside it. */
TEST(test_packed_blocks) {
    enum { M = 40, K = 300, N = 197 };
    static const struct rt_block blocks[] = {
        {0, M, 0, N}, {3, 1, 32, 1}, {5, 16, 64, 37}, {39, 1, 192, 5}, {0, 29, 32, 64}};
    struct operands o = make((struct shape){M, K, N});
    float *b = pack(o.b[0], K, N), *y = test_new(M * N, 4), *before = test_new(M * N, 4);
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(0);
    const float *expected = chain(&o, set->is_present != NULL);
    for (size_t t = 0; t < sizeof blocks / sizeof *blocks; t++) {
        const struct rt_block at = blocks[t];
        const struct rt_packed_product product = {y, o.a[0], b, M, K, N, NULL};
        memcpy(y, before, M * N * sizeof *y);
        set->multiply(&product, at);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                int inside = i >= at.row && i < at.row + at.rows && j >= at.column && j < at.column + at.columns;
                test_same_bytes(y + i * N + j, (inside ? expected : before) + i * N + j, 1, 4, "block");
            }
    }
    test_free_all();
}

/* y = max(y + bias, 0) - residual, as separate loops would compute it. */
static void bias_and_more(float *y, const void *const *x, struct rt_block at) {
    const float *bias = x[0], *residual = x[1];
    int64_t n = *(const int64_t *)x[2];
    for (int64_t i = at.row; i < at.row + at.rows; i++)
        for (int64_t j = at.column; j < at.column + at.columns; j++) {
            float sum = y[i * n + j] + bias[j];
            y[i * n + j] = (sum < 0 ? 0 : sum) - residual[i * n + j];
        }
}

TEST(test_epilogue_sees_every_element_once) {
    static const struct shape some[] = {{1, 1, 1}, {3, 0, 40}, {130, 300, 290}, {29, 513, 47}, {900, 64, 31}};
    for (int kind = 0; kind < 2; kind++)
        for (int s = 0; s < 5; s++)
            for (int threads = 1; threads <= 3; threads++) {
                struct rt *rt = test_open(kind ? "reference" : "auto");
                struct operands o = make(some[s]);
                struct shape d = o.shape;
                float *y = test_new(d.m * d.n, 4), *expected = test_new(d.m * d.n, 4), *bias = test_new(d.n, 4);
                float *residual = test_new(d.m * d.n, 4), *b = pack(o.b[0], d.k, d.n);
                test_f32(bias, d.n);
                test_f32(residual, d.m * d.n);
                const void *const x[] = {bias, residual, &d.n};
                const struct rt_epilogue epilogue = {bias_and_more, x};
                rt_kernels_threads(threads);
                assert_int_equal(rt_matmul_packed_f32(rt, expected, o.a[0], b, d.m, d.k, d.n, NULL), RT_OK);
                bias_and_more(expected, x, (struct rt_block){0, d.m, 0, d.n});
                assert_int_equal(rt_matmul_packed_f32(rt, y, o.a[0], b, d.m, d.k, d.n, &epilogue), RT_OK);
                test_same_f32(y, expected, d.m * d.n, "epilogue");
                test_free_all();
                test_close(rt);
            }
}

TEST(test_packed_threads_and_cuts_change_nothing) {
    static const struct shape large[] = {{130, 300, 200}, {900, 70, 31}, {1, 1100, 1000}, {3, 4000, 97}};
    for (int kind = 0; kind < 2; kind++)
        for (int s = 0; s < 4; s++) {
            struct rt *rt = test_open(kind ? "reference" : "auto");
            struct operands o = make(large[s]);
            struct shape d = o.shape;
            float *b = pack(o.b[0], d.k, d.n), *y = test_new(d.m * d.n, 4), *part = test_new(d.m * d.n, 4);
            float *expected = chain(&o, !kind && rt_gemm_packed_choose(0)->is_present);
            for (int threads = 1; threads <= 5; threads++) {
                rt_kernels_threads(threads);
                assert_int_equal(rt_matmul_packed_f32(rt, y, o.a[0], b, d.m, d.k, d.n, NULL), RT_OK);
                test_same_f32(y, expected, d.m * d.n, "threads");
            }
            int64_t first = d.n / 3, n = d.n - first, row = d.m / 2;
            float *columns = test_new(d.k * n, 4);
            for (int64_t p = 0; p < d.k; p++)
                memcpy(columns + p * n, o.b[0] + p * d.n + first, (size_t)n * sizeof *columns);
            rt_matmul_packed_f32(rt, part, o.a[0] + row * d.k, pack(columns, d.k, n), d.m - row, d.k, n, NULL);
            for (int64_t i = row; i < d.m; i++)
                test_same_f32(part + (i - row) * n, expected + i * d.n + first, n, "part");
            test_free_all();
            test_close(rt);
        }
}

TEST(test_packed_special_values) {
    for (int kind = 0; kind < 2; kind++) {
        struct rt *rt = test_open(kind ? "reference" : "auto");
        const float a[] = {0, 1, INFINITY, 1, NAN, 0}, b[] = {INFINITY, 0, 1, 2};
        float y[6] = {1, 1, 1, 1, 1, 1}, *panels = pack(b, 2, 2);
        assert_int_equal(rt_matmul_packed_f32(rt, y, a, panels, 3, 2, 2, NULL), RT_OK);
        assert_true(isnan(y[0]) && y[1] == 2 && y[2] == INFINITY && isnan(y[3]) && isnan(y[4]) && isnan(y[5]));
        assert_int_equal(rt_matmul_packed_f32(rt, y, a, panels, 3, 0, 2, NULL), RT_OK); /* over nothing */
        for (int i = 0; i < 6; i++) assert_true(y[i] == 0);
        assert_int_equal(rt_matmul_packed_f32(rt, NULL, a, panels, 0, 2, 2, NULL), RT_OK);
        assert_int_equal(rt_matmul_packed_f32(rt, NULL, a, panels, 3, 2, 0, NULL), RT_OK);
        test_free_all();
        test_close(rt);
    }
}

int main(void) {
    return run_all_tests("product", NULL, NULL);
}
