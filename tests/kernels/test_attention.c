/* Attention and rotary embedding: against their definitions in long double, and bit for bit where rows are computed
 * elsewhere: in other blocks, on other threads, or with keys that weigh nothing. */
#include "kernel_test.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* A case: extents, and which masks there are with which extents (0: none, 1: repeated, 2: whole) for batch, heads,
 * queries and keys. */
struct trial {
    int64_t b, kv, g, t, s, d, e;
    int keep[4], bias[4];
    int causal, offset, drop, bias_first, clamp, window, nan_to_zero, sink;
    double scale, fill, cap;
};

#define NONE                                                                                                           \
    { 0 }
static const struct trial trials[] = {
    {1, 1, 1, 1, 1, 1, 1, NONE, NONE, .scale = 1},
    {2, 3, 1, 5, 7, 4, 3, NONE, NONE, .scale = 0.5},
    {1, 2, 3, 11, 64, 8, 9, NONE, NONE, .scale = 0.25},
    {1, 2, 1, 33, 65, 64, 64, NONE, NONE, .scale = 0.125},
    {1, 1, 1, 3, 5, 300, 270, NONE, NONE, .scale = 0.05},
    {1, 4, 1, 1, 130, 16, 16, NONE, NONE, .scale = 0.25},
    {2, 2, 2, 37, 70, 8, 8, {2, 1, 1, 2}, NONE, .scale = 0.3, .fill = -FLT_MAX},
    {2, 2, 2, 37, 70, 8, 8, {1, 2, 2, 2}, NONE, .scale = 0.3, .fill = -3, .drop = 1},
    {2, 2, 2, 37, 70, 8, 8, {2, 2, 2, 1}, NONE, .scale = 0.3, .fill = -2},
    {2, 2, 2, 37, 70, 8, 8, NONE, {2, 2, 2, 2}, .scale = 0.3},
    {2, 2, 2, 37, 70, 8, 8, NONE, {1, 2, 1, 2}, .scale = 0.3, .clamp = 1},
    {1, 2, 2, 70, 70, 8, 8, NONE, NONE, .causal = 1, .scale = 0.3, .fill = -INFINITY},
    {1, 2, 1, 150, 200, 8, 8, NONE, NONE, .causal = 1, .offset = 50, .scale = 0.3, .fill = -FLT_MAX},
    {1, 2, 1, 150, 150, 8, 8, NONE, NONE, .causal = 1, .scale = 0.3, .fill = -1},
    {2, 1, 2, 70, 140, 8, 8, {2, 1, 2, 2}, {1, 1, 2, 2}, .causal = 1, .offset = 70, .scale = 0.3, .fill = -5},
    {2, 1, 2, 70, 140, 8, 8, {2, 1, 2, 2}, {1, 1, 2, 2}, .bias_first = 1, .scale = 0.3, .fill = -5},
    {2, 2, 1, 150, 150, 8, 8, NONE, NONE, .causal = 1, .window = 17, .scale = 0.3, .fill = -INFINITY},
    {1, 2, 1, 90, 150, 8, 8, NONE, NONE, .causal = 1, .offset = 70, .window = 66, .scale = 0.3, .fill = -FLT_MAX},
    {1, 2, 1, 90, 70, 8, 8, NONE, NONE, .causal = 1, .offset = -9, .window = 5, .scale = 0.3, .fill = -INFINITY,
     .nan_to_zero = 1},
    {1, 2, 2, 40, 70, 8, 8, {1, 1, 2, 2}, {1, 1, 2, 2}, .cap = 0.75, .scale = 0.3, .fill = -INFINITY},
    {2, 2, 2, 70, 70, 8, 8, NONE, NONE, .causal = 1, .sink = 1, .scale = 0.3, .fill = -INFINITY},
    {2,
     2,
     2,
     70,
     90,
     8,
     8,
     {2, 1, 1, 2},
     NONE,
     .causal = 1,
     .offset = -5,
     .window = 9,
     .sink = 1,
     .cap = 2,
     .scale = 0.3,
     .fill = -INFINITY},
    /* several pieces of keys, and few heads */
    {1, 1, 1, 1, 1300, 16, 16, NONE, NONE, .scale = 0.25},
    {1, 1, 5, 3, 1025, 64, 80, NONE, NONE, .causal = 1, .offset = 1022, .scale = 0.125, .fill = -FLT_MAX},
    {1, 1, 2, 9, 1600, 24, 24, NONE, NONE, .causal = 1, .offset = 1100, .window = 600, .scale = 0.2, .fill = -INFINITY},
    {1, 1, 1, 5, 1100, 32, 8, {1, 1, 1, 2}, {1, 1, 2, 2}, .sink = 1, .scale = 0.2, .fill = -FLT_MAX},
    {1, 1, 2, 70, 1100, 8, 8, NONE, NONE, .causal = 1, .offset = -20, .scale = 0.3, .fill = -FLT_MAX},
    {1, 1, 1, 20, 1100, 8, 8, NONE, {1, 1, 2, 2}, .causal = 1, .offset = 600, .clamp = 1, .scale = 0.3, .fill = -1e9},
};
#define TRIALS (int)(sizeof trials / sizeof *trials)

/* Operands in both types, and shapes as the kernel takes them. */
struct operands {
    int64_t q_dims[4], keep_dims[4], bias_dims[4], sink_dims[4], rows, results;
    float *q, *k, *v, *bias, *sink;
    double *q64, *k64, *v64, *bias64, *sink64;
    uint8_t *keep;
    struct rt_attention shape;
};

static int64_t mask_dims(const int *which, const int64_t *full, int64_t *dims) {
    for (int d = 0; d < 4; d++) dims[d] = which[d] == 2 ? full[d] : 1;
    return which[0] ? test_count(dims, 4) : 0;
}

static void both(float **narrow, double **wide, int64_t n) {
    *narrow = test_new(n, 4);
    *wide = test_new(n, 8);
    test_f32(*narrow, n);
    for (int64_t i = 0; i < n; i++) (*wide)[i] = (double)(*narrow)[i];
}

static void make(struct operands *o, const struct trial *c) {
    const int64_t q_dims[] = {c->b, c->kv * c->g, c->t, c->d}, scores[] = {c->b, c->kv * c->g, c->t, c->s};
    memcpy(o->q_dims, q_dims, sizeof q_dims);
    int64_t nkeep = mask_dims(c->keep, scores, o->keep_dims), nbias = mask_dims(c->bias, scores, o->bias_dims);
    o->rows = c->b * c->kv * c->g * c->t;
    o->results = o->rows * c->e;
    both(&o->q, &o->q64, o->rows * c->d);
    both(&o->k, &o->k64, c->b * c->kv * c->s * c->d);
    both(&o->v, &o->v64, c->b * c->kv * c->s * c->e);
    both(&o->bias, &o->bias64, nbias);
    o->sink_dims[0] = o->sink_dims[2] = o->sink_dims[3] = 1;
    o->sink_dims[1] = c->kv * c->g;
    both(&o->sink, &o->sink64, o->sink_dims[1]);
    o->keep = test_new(nkeep, 1);
    for (int64_t i = 0; i < nkeep; i++) o->keep[i] = test_random(3) > 0;
    o->shape = (struct rt_attention){.ndim = 4,
                                     .q = o->q_dims,
                                     .kv = c->kv,
                                     .s = c->s,
                                     .e = c->e,
                                     .keep = nkeep ? o->keep_dims : NULL,
                                     .bias = nbias ? o->bias_dims : NULL,
                                     .sink = c->sink ? o->sink_dims : NULL,
                                     .causal = c->causal,
                                     .offset = c->offset,
                                     .drop = c->drop,
                                     .bias_first = c->bias_first,
                                     .clamp = c->clamp,
                                     .window = c->window,
                                     .nan_to_zero = c->nan_to_zero,
                                     .scale = c->scale,
                                     .fill = c->fill,
                                     .cap = c->cap};
}

/* Steps of contiguous q, k, v and y (b.., heads, lines, elements). */
struct steps {
    int64_t q[4], k[4], v[4], y[4];
};

static void dense(int64_t *step, int ndim, const int64_t *q, int64_t heads, int64_t lines, int64_t width) {
    const int64_t inner[] = {heads, lines, width};
    int64_t size = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        step[d] = size;
        size *= d >= ndim - 3 ? inner[d - (ndim - 3)] : q[d];
    }
}

static struct steps dense_steps(const struct rt_attention *shape) {
    const int64_t *q = shape->q, n = shape->ndim;
    struct steps steps;
    dense(steps.q, (int)n, q, q[n - 3], q[n - 2], q[n - 1]);
    dense(steps.k, (int)n, q, shape->kv, shape->s, q[n - 1]);
    dense(steps.v, (int)n, q, shape->kv, shape->s, shape->e);
    dense(steps.y, (int)n, q, q[n - 3], q[n - 2], shape->e);
    return steps;
}

/* Contiguous operands. */
#define DEFINE_RUN(T, s)                                                                                               \
    static int attend_##s(struct rt *rt, T *y, T *q, T *k, T *v, const uint8_t *keep, const T *bias, const T *sink,    \
                          const struct rt_attention *shape) {                                                          \
        const struct steps to = dense_steps(shape);                                                                    \
        return rt_attention_##s(rt, &(struct rt_strided){y, to.y}, &(struct rt_strided){q, to.q},                      \
                                &(struct rt_strided){k, to.k}, &(struct rt_strided){v, to.v}, keep, bias, sink,        \
                                shape);                                                                                \
    }
DEFINE_RUN(float, f32)
DEFINE_RUN(double, f64)

static int run_f32(struct rt *rt, float *y, const struct operands *o, const struct rt_attention *shape) {
    return attend_f32(rt, y, o->q, o->k, o->v, shape->keep ? o->keep : NULL, shape->bias ? o->bias : NULL,
                      shape->sink ? o->sink : NULL, shape);
}

static int run_f64(struct rt *rt, double *y, const struct operands *o, const struct rt_attention *shape) {
    return attend_f64(rt, y, o->q64, o->k64, o->v64, shape->keep ? o->keep : NULL, shape->bias ? o->bias64 : NULL,
                      shape->sink ? o->sink64 : NULL, shape);
}

/* Definition ---------------------------------------------------------------------------------------------------- */

static int64_t mask_at(const int64_t *dims, const int64_t *at) {
    int64_t index[4];
    for (int d = 0; d < 4; d++) index[d] = dims[d] == 1 ? 0 : at[d];
    return test_offset(index, dims, 4);
}

/* at: batch, head, query, key. */
static long double score(const struct operands *o, const struct trial *c, const int64_t *at) {
    int64_t head = at[0] * c->kv + at[1] / c->g;
    const double *q = o->q64 + ((at[0] * c->kv * c->g + at[1]) * c->t + at[2]) * c->d;
    const double *k = o->k64 + (head * c->s + at[3]) * c->d;
    long double sum = 0, bias = o->shape.bias ? (long double)o->bias64[mask_at(o->bias_dims, at)] : 0;
    for (int64_t p = 0; p < c->d; p++) sum += (long double)q[p] * (long double)k[p];
    sum *= (long double)c->scale;
    if (c->cap > 0) sum = (long double)c->cap * tanhl(sum / (long double)c->cap);
    int64_t last = at[2] + c->offset;
    int masked = c->causal && (at[3] > last || (c->window && at[3] <= last - c->window));
    if (o->shape.keep && (o->keep[mask_at(o->keep_dims, at)] != 0) == c->drop) masked = 1;
    sum = masked ? (long double)c->fill + (c->bias_first ? 0 : bias) : sum + bias;
    return c->clamp ? fmaxl(sum, -(long double)FLT_MAX) : sum;
}

static void define(long double *y, const struct operands *o, const struct trial *c) {
    for (int64_t row = 0; row < o->rows; row++) {
        int64_t at[] = {row / (c->t * c->kv * c->g), row / c->t % (c->kv * c->g), row % c->t, 0};
        const double *v = o->v64 + (at[0] * c->kv + at[1] / c->g) * c->s * c->e;
        long double sink = c->sink ? (long double)o->sink64[at[1]] : -INFINITY, high = sink, sum;
        for (at[3] = 0; at[3] < c->s; at[3]++) high = fmaxl(high, score(o, c, at));
        sum = c->sink ? expl(sink - high) : 0;
        for (int64_t j = 0; j < c->e; j++) y[row * c->e + j] = 0;
        for (at[3] = 0; at[3] < c->s; at[3]++) {
            long double weight = expl(score(o, c, at) - high);
            sum += weight;
            for (int64_t j = 0; j < c->e; j++) y[row * c->e + j] += weight * (long double)v[at[3] * c->e + j];
        }
        bool hidden = c->nan_to_zero && isinf(high) && high < 0;
        for (int64_t j = 0; j < c->e; j++) y[row * c->e + j] = hidden ? 0 : y[row * c->e + j] / sum;
    }
}

/* A score of factors below 1 is wrong by at most d eps sum|q k| scale and some eps, a weight by as much relatively;
 * numerator and denominator have that, and s roundings each. */
static double bound(const struct trial *c, double epsilon) {
    return epsilon * (2 * ((double)(c->d * c->d) * c->scale + 16) + 2 * (double)c->s);
}

static void check_definition(const struct trial *c, const char *kernels) {
    struct rt *rt = test_open(kernels);
    struct operands o;
    make(&o, c);
    float *y = test_new(o.results, 4);
    double *y64 = test_new(o.results, 8);
    long double *expected = test_new(o.results, sizeof *expected);
    define(expected, &o, c);
    assert_int_equal(run_f32(rt, y, &o, &o.shape), RT_OK);
    assert_int_equal(run_f64(rt, y64, &o, &o.shape), RT_OK);
    for (int64_t j = 0; j < o.results; j++) {
        test_near((double)y[j], (double)expected[j], bound(c, FLT_EPSILON), "attention f32", j);
        test_near(y64[j], (double)expected[j], bound(c, DBL_EPSILON), "attention f64", j);
    }
    test_close(rt);
    test_free_all();
}

TEST(test_definition) {
    for (int i = 0; i < TRIALS; i++) {
        check_definition(&trials[i], "auto");
        check_definition(&trials[i], "reference");
    }
}

/* Steps of decoding: few rows share a head of keys, of all sizes. */
static void each_step(void (*check)(const struct trial *c)) {
    static const int64_t sizes[] = {1, 3, 64, 80, 128, 200}, keys[] = {1, 63, 64, 65, 512, 513, 1000};
    static const int64_t rows[][2] = {{1, 1}, {8, 1}, {3, 2}, {1, 9}}; /* of a group, and positions */
    for (int i = 0; i < 6 * 7 * 4; i++) {
        const int64_t d = sizes[i % 6], s = keys[i / 6 % 7], g = rows[i / 42][0], t = rows[i / 42][1];
        struct trial c = {1, 2, g, t, s, d, d, NONE, NONE, .scale = 1 / sqrt((double)d), .fill = -FLT_MAX};
        c.keep[0] = c.keep[1] = c.keep[2] = c.bias[0] = c.bias[1] = c.bias[2] = 1;
        c.keep[3] = c.bias[3] = 2;
        if (i % 5 != 0) c.bias[0] = 0;
        if (i % 5 != 1) c.keep[0] = 0;
        c.causal = i % 5 == 2 || i % 5 == 3;
        c.offset = (int)(s - t);
        c.window = i % 5 == 3 ? (int)(s / 3 + 1) : 0;
        check(&c);
    }
}

static void check_step(const struct trial *c) {
    check_definition(c, "auto");
}

TEST(test_steps) {
    each_step(check_step);
}

/* Bits ---------------------------------------------------------------------------------------------------------- */

/* Copies n rows from row `from` on, of the second half those `jump` further. */
static void copy_rows(void *to, const void *rows, int64_t from, int64_t n, int64_t jump, int64_t bytes) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = from + i + (i < n / 2 ? 0 : jump);
        memcpy((char *)to + i * bytes, (const char *)rows + row * bytes, (size_t)bytes);
    }
}

/* n rows of the queries of each head from row `from` on, of the second half those `jump` further, as a rank that holds
 * them computes them. */
static void run_part(struct rt *rt, float *y, const struct operands *o, const struct trial *c, int64_t from, int64_t n,
                     int64_t jump) {
    int64_t heads = c->b * c->kv * c->g, dims[] = {c->b, c->kv * c->g, n, c->d}, keep[4], bias[4];
    struct operands part = *o;
    part.shape.q = dims;
    part.shape.start = from;
    part.shape.jump = jump;
    part.q = test_new(heads * n * c->d, 4);
    for (int64_t h = 0; h < heads; h++)
        copy_rows(part.q + h * n * c->d, o->q + h * c->t * c->d, from, n, jump, c->d * 4);
    memcpy(keep, o->keep_dims, sizeof keep);
    memcpy(bias, o->bias_dims, sizeof bias);
    if (o->shape.keep && keep[2] > 1) {
        int64_t outer = keep[0] * keep[1];
        part.keep = test_new(outer * n * keep[3], 1);
        for (int64_t i = 0; i < outer; i++)
            copy_rows(part.keep + i * n * keep[3], o->keep + i * c->t * keep[3], from, n, jump, keep[3]);
        keep[2] = n;
    }
    if (o->shape.bias && bias[2] > 1) {
        int64_t outer = bias[0] * bias[1];
        part.bias = test_new(outer * n * bias[3], 4);
        for (int64_t i = 0; i < outer; i++)
            copy_rows(part.bias + i * n * bias[3], o->bias + i * c->t * bias[3], from, n, jump, bias[3] * 4);
        bias[2] = n;
    }
    if (o->shape.keep) part.shape.keep = keep;
    if (o->shape.bias) part.shape.bias = bias;
    assert_int_equal(run_f32(rt, y, &part, &part.shape), RT_OK);
}

TEST(test_cuts_change_nothing) {
    struct rt *rt = test_open("auto");
    for (int i = 0; i < TRIALS; i++) {
        const struct trial *c = &trials[i];
        struct operands o;
        make(&o, c);
        float *y = test_new(o.results, 4), *part = test_new(o.results, 4);
        run_f32(rt, y, &o, &o.shape);
        for (int64_t from = 0, n; from < c->t; from += n) {
            n = from + 1 + from / 2 > c->t ? c->t - from : 1 + from / 2;
            run_part(rt, part, &o, c, from, n, 0);
            for (int64_t h = 0; h < c->b * c->kv * c->g; h++)
                test_same_f32(part + h * n * c->e, y + (h * c->t + from) * c->e, n * c->e, "part of the queries");
        }
        for (int64_t piece = c->t / 6, r = 0; r < 3 && piece; r++) { /* mirrored among 3 ranks */
            const int64_t second = (5 - r) * piece;
            float *two = test_new(2 * piece * c->e, 4);
            run_part(rt, part, &o, c, r * piece, 2 * piece, second - (r + 1) * piece);
            for (int64_t h = 0; h < c->b * c->kv * c->g; h++) {
                copy_rows(two, y + h * c->t * c->e, r * piece, 2 * piece, second - (r + 1) * piece, c->e * 4);
                test_same_f32(part + h * 2 * piece * c->e, two, 2 * piece * c->e, "mirrored part of the queries");
            }
        }
        rt_kernels_threads(5);
        run_f32(rt, part, &o, &o.shape);
        rt_kernels_threads(1);
        test_same_f32(part, y, o.results, "threads");
        test_free_all();
    }
    test_close(rt);
}

static void check_threads(const struct trial *c) {
    struct rt *rt = test_open("auto");
    struct operands o;
    make(&o, c);
    float *y = test_new(o.results, 4), *other = test_new(o.results, 4);
    run_f32(rt, y, &o, &o.shape);
    for (int threads = 2; threads < 8; threads += threads - 1) {
        rt_kernels_threads(threads);
        run_f32(rt, other, &o, &o.shape);
        rt_kernels_threads(1);
        test_same_f32(other, y, o.results, "threads");
    }
    test_close(rt);
    test_free_all();
}

TEST(test_threads_change_nothing) {
    each_step(check_threads);
    for (int i = 0; i < TRIALS; i++) check_threads(&trials[i]);
}

/* q and k as they stand in a product (b,t,3,heads,d), v in a cache (b,heads,more,e), y as (b,t,heads,e). */
TEST(test_strides_change_nothing) {
    struct rt *rt = test_open("auto");
    for (int i = 0; i < TRIALS; i++) {
        const struct trial *c = &trials[i];
        if (c->t != c->s || c->g > 1) continue;
        struct operands o;
        make(&o, c);
        const int64_t heads = c->kv, more = c->s + 7, packed = 3 * heads * c->d;
        const int64_t q_step[] = {c->t * packed, c->d, packed, 1},
                      v_step[] = {heads * more * c->e, more * c->e, c->e, 1},
                      y_step[] = {c->t * heads * c->e, c->e, heads * c->e, 1};
        float *y = test_new(o.results, 4), *lies = test_new(o.results, 4), *turned = test_new(o.results, 4);
        float *product = test_new(c->b * c->t * packed, 4), *cache = test_new(c->b * heads * more * c->e, 4);
        for (int64_t r = 0; r < c->b * heads * c->t; r++) {
            const int64_t b = r / (heads * c->t), h = r / c->t % heads, t = r % c->t;
            float *to = product + b * q_step[0] + h * q_step[1] + t * q_step[2];
            memcpy(to, o.q + r * c->d, (size_t)c->d * 4);
            memcpy(to + heads * c->d, o.k + r * c->d, (size_t)c->d * 4);
            memcpy(cache + b * v_step[0] + h * v_step[1] + t * v_step[2], o.v + r * c->e, (size_t)c->e * 4);
        }
        run_f32(rt, y, &o, &o.shape);
        assert_int_equal(rt_attention_f32(rt, &(struct rt_strided){lies, y_step}, &(struct rt_strided){product, q_step},
                                          &(struct rt_strided){product + heads * c->d, q_step},
                                          &(struct rt_strided){cache, v_step}, o.shape.keep ? o.keep : NULL,
                                          o.shape.bias ? o.bias : NULL, c->sink ? o.sink : NULL, &o.shape),
                         RT_OK);
        for (int64_t r = 0; r < c->b * heads * c->t; r++) {
            const int64_t b = r / (heads * c->t), h = r / c->t % heads, t = r % c->t;
            memcpy(turned + r * c->e, lies + b * y_step[0] + h * y_step[1] + t * y_step[2], (size_t)c->e * 4);
        }
        test_same_f32(turned, y, o.results, "strides");
        test_free_all();
    }
    test_close(rt);
}

/* Keys that causal rows do not see, of whole and of divided tiles, have no part in the result, whatever they are; nor
 * are they read, but for up to 15 before a window. */
TEST(test_hidden_keys_are_not_read) {
    enum { D = 64, S = 640, LAST_KEY = 319, WINDOW = 128, PAGE = 4096 }; /* 16 keys a page */
    struct rt *rt = test_open("auto");
    const int64_t dims[] = {1, 1, 2, D}, step[] = {S * D, S * D, D, 1}, row_step[] = {2 * D, 2 * D, D, 1};
    struct rt_attention shape = {.ndim = 4,
                                 .q = dims,
                                 .kv = 1,
                                 .s = S,
                                 .e = D,
                                 .scale = 0.1,
                                 .causal = 1,
                                 .offset = LAST_KEY - 1,
                                 .window = WINDOW,
                                 .fill = -FLT_MAX};
    const size_t bytes = S * D * sizeof(float), before = (LAST_KEY + 1 - WINDOW - 16) * D * sizeof(float),
                 behind = (LAST_KEY + 1) * D * sizeof(float);
    float *lines[2], q[2 * D], expected[2 * D], y[2 * D];
    test_f32(q, 2 * D);
    for (int i = 0; i < 2; i++) {
        lines[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(lines[i] != MAP_FAILED);
        test_f32(lines[i], S * D);
    }
    const struct rt_strided to_q = {q, row_step}, to_k = {lines[0], step}, to_v = {lines[1], step};
    rt_attention_f32(rt, &(struct rt_strided){expected, row_step}, &to_q, &to_k, &to_v, NULL, NULL, NULL, &shape);
    for (int i = 0; i < 2; i++) /* what the first row does not see, and the second does */
        for (int p = 0; p < D; p++) lines[i][LAST_KEY * D + p] = p % 2 ? NAN : INFINITY;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mprotect(lines[i], before, PROT_NONE), 0);
        assert_int_equal(mprotect((char *)lines[i] + behind, bytes - behind, PROT_NONE), 0);
    }
    rt_attention_f32(rt, &(struct rt_strided){y, row_step}, &to_q, &to_k, &to_v, NULL, NULL, NULL, &shape);
    test_same_f32(y, expected, D, "row that does not see the key");
    for (int p = 0; p < D; p++) assert_true(isnan(y[D + p]));
    for (int i = 0; i < 2; i++) munmap(lines[i], bytes);
    test_close(rt);
}

/* Flash attention and its gradient in calls with some of the keys each (more_before, more_behind). Scores, and so the
 * largest, have the same bits; sums are rounded to f32 between calls. */
struct flash {
    float *y, *stats, *dq, *dk, *dv;
};

static struct flash new_flash(const struct operands *o, const struct trial *c) {
    const int64_t keys = c->b * c->kv * c->s;
    return (struct flash){test_new(o->results, 4), test_new(o->rows * 2, 4), test_new(o->rows * c->d, 4),
                          test_new(keys * c->d, 4), test_new(keys * c->e, 4)};
}

/* Keys [from, from + n); `dy` NULL: the forward pass. */
static void run_keys(struct rt *rt, const struct flash *f, const struct operands *o, const struct trial *c,
                     int64_t from, int64_t n, const float *dy, float *sums) {
    const int64_t heads = c->kv * c->g;
    const int64_t q_step[] = {heads * c->t * c->d, c->t * c->d, c->d, 1},
                  y_step[] = {heads * c->t * c->e, c->t * c->e, c->e, 1};
    const int64_t k_step[] = {c->kv * c->s * c->d, c->s * c->d, c->d, 1},
                  v_step[] = {c->kv * c->s * c->e, c->s * c->e, c->e, 1};
    const struct rt_strided q = {o->q, q_step}, k = {o->k + from * c->d, k_step}, v = {o->v + from * c->e, v_step};
    const struct rt_strided y = {f->y, y_step}, up = {(void *)dy, y_step}, dq = {f->dq, q_step};
    const struct rt_strided dk = {f->dk + from * c->d, k_step}, dv = {f->dv + from * c->e, v_step};
    const uint8_t *keep = o->shape.keep ? o->keep + (o->keep_dims[3] > 1 ? from : 0) : NULL;
    const float *bias = o->shape.bias ? o->bias + (o->bias_dims[3] > 1 ? from : 0) : NULL;
    struct rt_attention shape = o->shape;
    shape.s = n;
    shape.offset -= from;
    shape.more_before = from > 0;
    shape.more_behind = from + n < c->s;
    shape.sums = sums;
    if (dy)
        assert_int_equal(
            rt_flash_attention_grad_f32(rt, &dq, &dk, &dv, &up, &q, &k, &v, &y, f->stats, keep, bias, &shape), RT_OK);
    else
        assert_int_equal(
            rt_flash_attention_f32(rt, &y, f->stats, &q, &k, &v, keep, bias, c->sink ? o->sink : NULL, &shape), RT_OK);
}

/* Each call rounds. */
static void near(const float *got, const float *expected, int64_t n, int64_t calls, const char *what) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = isfinite(expected[i]) ? fmaxf(most, fabsf(expected[i])) : most;
    for (int64_t i = 0; i < n; i++)
        if (!(got[i] == expected[i] || (isnan(got[i]) && isnan(expected[i])) ||
              fabsf(got[i] - expected[i]) <= (float)(8 + calls) * FLT_EPSILON * most))
            fail_msg("%s: element %lld is %g, not %g", what, (long long)i, (double)got[i], (double)expected[i]);
}

static void check_keys_in_calls(struct rt *rt, const struct operands *o, const struct trial *c, int64_t step) {
    const int64_t keys = c->b * c->kv * c->s;
    const struct flash whole = new_flash(o, c), parts = new_flash(o, c);
    float *dy = test_new(o->results, 4), *sums = test_new(o->results, 4);
    test_f32(dy, o->results);
    run_keys(rt, &whole, o, c, 0, c->s, NULL, NULL);
    for (int64_t from = 0; from < c->s; from += step)
        run_keys(rt, &parts, o, c, from, step < c->s - from ? step : c->s - from, NULL, sums);
    near(parts.y, whole.y, o->results, c->s / step, "y");
    near(parts.stats, whole.stats, o->rows * 2, c->s / step, "statistics");
    if (c->sink) return; /* sinks get no gradient */
    run_keys(rt, &whole, o, c, 0, c->s, dy, NULL);
    memcpy(parts.stats, whole.stats, (size_t)o->rows * 2 * 4);
    memcpy(parts.y, whole.y, (size_t)o->results * 4);
    for (int64_t from = 0; from < c->s; from += step)
        run_keys(rt, &parts, o, c, from, step < c->s - from ? step : c->s - from, dy, NULL);
    near(parts.dq, whole.dq, o->rows * c->d, c->s / step, "dq");
    near(parts.dk, whole.dk, keys * c->d, c->s / step, "dk");
    near(parts.dv, whole.dv, keys * c->e, c->s / step, "dv");
}

TEST(test_keys_in_calls) {
    struct rt *rt = test_open("auto");
    for (int i = 0; i < TRIALS; i++) {
        struct operands o;
        if (trials[i].d > RT_FLASH_HEAD) continue;
        for (int64_t step = 1; step <= 128; step = step == 1 ? 7 : step == 7 ? 64 : 2 * step) {
            make(&o, &trials[i]);
            check_keys_in_calls(rt, &o, &trials[i], step);
            test_free_all();
        }
    }
    test_close(rt);
}

/* A mask of values that leave nothing of a score gives the bits of the causal flag, which leaves keys out; so does
 * the other mask. */
TEST(test_masks_agree) {
    struct rt *rt = test_open("auto");
    enum { T = 300 };
    const struct trial flag = {1, 2, 1, T, T, 16, 16, NONE, NONE, .causal = 1, .scale = 0.25, .fill = -FLT_MAX};
    struct operands o;
    make(&o, &flag);
    int64_t dims[] = {1, 1, T, T};
    float *causal = test_new(o.results, 4), *kept = test_new(o.results, 4), *added = test_new(o.results, 4);
    o.keep = test_new(T * T, 1);
    o.bias = test_new(T * T, 4);
    for (int64_t i = 0; i < T * T; i++) o.keep[i] = i % T <= i / T;
    for (int64_t i = 0; i < T * T; i++) o.bias[i] = o.keep[i] ? 0 : -FLT_MAX;
    run_f32(rt, causal, &o, &o.shape);
    struct rt_attention shape = o.shape;
    shape.causal = 0;
    shape.keep = dims;
    run_f32(rt, kept, &o, &shape);
    shape.keep = NULL;
    shape.bias = dims;
    run_f32(rt, added, &o, &shape);
    test_same_f32(kept, causal, o.results, "keep");
    test_same_f32(added, causal, o.results, "bias");
    test_close(rt);
    test_free_all();
}

/* Special values ------------------------------------------------------------------------------------------------ */

enum { KEYS = 150, LAST = 140 }; /* more than one tile, and a key in the last */

/* One query, one head of size 1. */
static float one(struct rt *rt, float *k, float *v, const uint8_t *keep, const float *bias, double fill) {
    const int64_t q_dims[] = {1, 1, 1}, mask[] = {1, 1, KEYS};
    struct rt_attention shape = {.ndim = 3, .q = q_dims, .kv = 1, .s = KEYS, .e = 1, .scale = 1, .fill = fill};
    float q = 1, y;
    if (keep) shape.keep = mask;
    if (bias) shape.bias = mask;
    assert_int_equal(attend_f32(rt, &y, &q, k, v, keep, bias, NULL, &shape), RT_OK);
    return y;
}

TEST(test_special_values) {
    struct rt *rt = test_open("auto");
    float k[KEYS] = {0}, v[KEYS] = {0}, bias[KEYS];
    uint8_t nothing[KEYS] = {0}, first[KEYS] = {1}, last[KEYS] = {0};
    v[0] = KEYS;
    v[LAST] = 2 * KEYS;
    last[LAST] = 1;
    assert_true(fabsf(one(rt, k, v, nothing, NULL, -FLT_MAX) - 3) < 1e-5f); /* all alike: the mean */
    assert_true(isnan(one(rt, k, v, nothing, NULL, -INFINITY)));
    assert_true(one(rt, k, v, first, NULL, -INFINITY) == KEYS);
    assert_true(one(rt, k, v, last, NULL, -INFINITY) == 2 * KEYS); /* tiles of -inf come first */
    assert_true(one(rt, k, v, last, NULL, -FLT_MAX) == 2 * KEYS);
    v[LAST] = NAN;
    assert_true(isnan(one(rt, k, v, first, NULL, -INFINITY))); /* 0 x NaN, as the product has it */
    v[LAST] = 0;
    k[LAST] = NAN;
    assert_true(isnan(one(rt, k, v, NULL, NULL, 0)));
    assert_true(one(rt, k, v, first, NULL, -INFINITY) == KEYS); /* replaced */
    for (int j = 0; j < KEYS; j++) bias[j] = j ? -FLT_MAX : 0;
    assert_true(isnan(one(rt, k, v, NULL, bias, 0))); /* added to a NaN */
    k[LAST] = FLT_MAX;
    v[LAST] = 7;
    assert_true(one(rt, k, v, NULL, bias, 0) == (KEYS + 7) / 2.0f); /* -FLT_MAX + FLT_MAX = 0, as the first score */
    bias[LAST] = NAN;
    assert_true(isnan(one(rt, k, v, NULL, bias, 0)));
    test_close(rt);
}

TEST(test_nothing) {
    struct rt *rt = test_open("auto");
    const int64_t none[] = {0, 2, 3, 4}, some[] = {1, 1, 1, 4};
    struct rt_attention shape = {.ndim = 4, .q = none, .kv = 2, .s = 3, .e = 4, .scale = 1};
    float x[4] = {1, 1, 1, 1}, y[4] = {5, 5, 5, 5};
    assert_int_equal(attend_f32(rt, y, x, x, x, NULL, NULL, NULL, &shape), RT_OK);
    assert_true(y[0] == 5);
    shape.q = some;
    shape.kv = 1;
    shape.s = 0; /* no keys: an empty sum */
    assert_int_equal(attend_f32(rt, y, x, x, x, NULL, NULL, NULL, &shape), RT_OK);
    assert_true(y[0] == 0 && y[3] == 0);
    test_close(rt);
}

/* Rotary embedding ---------------------------------------------------------------------------------------------- */

#define CHECK_ROPE(T, s, interleaved, fill)                                                                            \
    do {                                                                                                               \
        enum { B = 2, H = 3, N = 5, C = 6 };                                                                           \
        const int64_t y_dims[] = {B, H, N, C}, t_dims[] = {1, 1, N, C};                                                \
        T *y = test_new(B * H * N * C, sizeof(T)), *x = test_new(B * H * N * C, sizeof(T));                            \
        T *c = test_new(N * C, sizeof(T)), *sn = test_new(N * C, sizeof(T));                                           \
        fill(x, B *H *N *C);                                                                                           \
        fill(c, N *C);                                                                                                 \
        fill(sn, N *C);                                                                                                \
        const int64_t heads[] = {N * H * C, C, H * C, 1}, lines[] = {H * N * C, N * C, C, 1}; /* x: (B,N,H,C) */       \
        rt_rope_##s##_by_##s(&(struct rt_strided){y, lines}, &(struct rt_strided){x, heads}, c, sn, 4, y_dims, 4,      \
                             y_dims, t_dims, t_dims, interleaved);                                                     \
        for (int i = 0; i < B * H * N * C; i++) {                                                                      \
            int at = i % (N * C), p = i % C, first = interleaved ? p % 2 == 0 : p < C / 2;                             \
            int from = (i / (H * N * C) * N + i / C % N) * H * C + i / (N * C) % H * C + p;                            \
            int other = from + (interleaved ? 1 : C / 2) * (first ? 1 : -1);                                           \
            T turned = first ? -x[other] : x[other];                                                                   \
            assert_true(y[i] == x[from] * c[at] + turned * sn[at]);                                                    \
        }                                                                                                              \
        test_free_all();                                                                                               \
    } while (0)

TEST(test_rope) {
    CHECK_ROPE(float, f32, 0, test_f32);
    CHECK_ROPE(float, f32, 1, test_f32);
    CHECK_ROPE(double, f64, 0, test_f64);
    CHECK_ROPE(double, f64, 1, test_f64);
}

int main(void) {
    return run_all_tests("attention", NULL, NULL);
}
