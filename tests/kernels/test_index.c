/* Gather and scatter against their definitions, for every element size; indices out of range; TopK of integers. */
#include "kernel_test.h"

#include "../../runtime/base/shape/panel.h"

#include <string.h>

struct kernels {
    size_t size;
    int (*gather)(struct rt *, void *, const void *, const void *, int, int64_t, int64_t, int64_t, int64_t, int64_t,
                  int64_t);
    int (*gather_elements)(struct rt *, void *, const void *, const void *, int, int, const int64_t *, const int64_t *,
                           int);
    int (*gather_nd)(struct rt *, void *, const void *, const int64_t *, int64_t, int64_t, int, const int64_t *,
                     int64_t);
    int (*scatter_elements)(struct rt *, void *, const void *, const void *, int, const void *, int, const int64_t *,
                            const int64_t *, int);
    int (*scatter_nd)(struct rt *, void *, const void *, const int64_t *, const void *, int64_t, int64_t, int,
                      const int64_t *, int64_t);
};

#define KERNELS(N)                                                                                                     \
    { N, rt_gather_b##N, rt_gather_elements_b##N, rt_gather_nd_b##N, rt_scatter_elements_b##N, rt_scatter_nd_b##N }
static const struct kernels kinds[] = {KERNELS(1), KERNELS(2), KERNELS(4), KERNELS(8)};

#define ROUNDS 60

static struct rt *rt;

static int open_rank(void **state) {
    rt = test_open("reference");
    return 0;
}

static int close_rank(void **state) {
    test_close(rt);
    return 0;
}

static unsigned char *random_tensor(int64_t count, size_t size) {
    unsigned char *x = test_new(count, size);
    test_bytes(x, count, size);
    return x;
}

/* `count` indices in [-total, total), and the same as places counted from the front; every other one follows on the one
 * before it. */
struct indices {
    int64_t *wide, *place;
    int32_t *narrow;
};

static struct indices random_indices(int64_t count, int64_t total) {
    struct indices i = {test_new(count, 8), test_new(count, 8), test_new(count, 4)};
    for (int64_t p = 0; p < count; p++) {
        const int follows = p > 0 && test_random(2);
        i.place[p] = follows ? (i.place[p - 1] + 1) % total : (int64_t)test_random((uint64_t)total);
        i.wide[p] = test_random(2) ? i.place[p] : i.place[p] - total;
        i.narrow[p] = (int32_t)i.wide[p];
    }
    return i;
}

static const void *either(const struct indices *indices, int is_64) {
    return is_64 ? (const void *)indices->wide : (const void *)indices->narrow;
}

static void gather_once(const struct kernels *kernel, int round) {
    int large = round % 10 == 9;
    int64_t outer = (int64_t)test_random(round % 7 == 0 ? 200 : 4), total = 1 + (int64_t)test_random(9),
            inner = 1 + (int64_t)test_random(5);
    int64_t count = (int64_t)test_random(large ? 9000 : 7), start = (int64_t)test_random((uint64_t)total);
    int64_t extent = (int64_t)test_random((uint64_t)(total - start) + 1);
    size_t size = kernel->size, row = (size_t)inner * size;
    if (round % 3 == 0) inner = 1, row = size;
    unsigned char *x = random_tensor(outer * extent * inner, size), *y = test_new(outer * count * inner, size);
    unsigned char *zero = test_new(inner, size);
    memset(zero, 0, row);
    struct indices indices = random_indices(count, total);
    int status =
        kernel->gather(rt, y, x, either(&indices, round % 2), round % 2, outer, extent, inner, count, start, total);
    assert_int_equal(status, RT_OK);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < count; i++) {
            int64_t place = indices.place[i] - start;
            int here = place >= 0 && place < extent;
            assert_memory_equal(y + (size_t)(o * count + i) * row, here ? x + (size_t)(o * extent + place) * row : zero,
                                row);
        }
    test_free_all();
}

/* Shapes of the two kernels that replace one index; index_dims are at most x_dims off the axis. */
struct replaced {
    int ndim, axis;
    int64_t x_dims[5], index_dims[5];
    struct indices indices;
};

static struct replaced random_replaced(int round) {
    struct replaced r = {.ndim = 1 + (int)test_random(4)};
    r.axis = (int)test_random((uint64_t)r.ndim);
    for (int d = 0; d < r.ndim; d++) {
        r.x_dims[d] = 1 + (int64_t)test_random(round % 10 == 9 ? 24 : 6);
        r.index_dims[d] = d == r.axis ? (int64_t)test_random(9) : 1 + (int64_t)test_random((uint64_t)r.x_dims[d]);
    }
    r.indices = random_indices(test_count(r.index_dims, r.ndim), r.x_dims[r.axis]);
    return r;
}

/* Where index[position], which stands at index `i`, points in x. */
static int64_t replaced_offset(const struct replaced *r, const int64_t *i, int64_t position) {
    int64_t at[5];
    memcpy(at, i, sizeof at);
    at[r->axis] = r->indices.place[position];
    return test_offset(at, r->x_dims, r->ndim);
}

static void gather_elements_once(const struct kernels *kernel, int round) {
    struct replaced r = random_replaced(round);
    size_t size = kernel->size;
    int64_t count = test_count(r.index_dims, r.ndim);
    unsigned char *x = random_tensor(test_count(r.x_dims, r.ndim), size), *y = test_new(count, size);
    int status = kernel->gather_elements(rt, y, x, either(&r.indices, round % 2), round % 2, r.ndim, r.x_dims,
                                         r.index_dims, r.axis);
    assert_int_equal(status, RT_OK);
    int64_t index[WALK_NDIM] = {0};
    for (int64_t p = 0; p < count; p++, test_next(index, r.index_dims, r.ndim))
        assert_memory_equal(y + (size_t)p * size, x + (size_t)replaced_offset(&r, index, p) * size, size);
    test_free_all();
}

static void scatter_elements_once(const struct kernels *kernel, int round) {
    struct replaced r = random_replaced(round);
    size_t size = kernel->size;
    int64_t count = test_count(r.index_dims, r.ndim), elements = test_count(r.x_dims, r.ndim);
    unsigned char *x = random_tensor(elements, size), *updates = random_tensor(count, size);
    unsigned char *y = test_new(elements, size), *expected = test_new(elements, size);
    memcpy(expected, x, (size_t)elements * size);
    int64_t index[WALK_NDIM] = {0};
    for (int64_t p = 0; p < count; p++, test_next(index, r.index_dims, r.ndim))
        memcpy(expected + (size_t)replaced_offset(&r, index, p) * size, updates + (size_t)p * size, size);
    for (int in_place = 0; in_place < 2; in_place++) {
        unsigned char *to = in_place ? x : y;
        int status = kernel->scatter_elements(rt, to, x, either(&r.indices, round % 2), round % 2, updates, r.ndim,
                                              r.x_dims, r.index_dims, r.axis);
        assert_int_equal(status, RT_OK);
        test_same_bytes(to, expected, elements, size, "scatter_elements");
    }
    test_free_all();
}

/* Rows of `depth` indices into dims, and the block each names. */
static int64_t *random_rows(int64_t *block, int64_t count, int depth, const int64_t *dims) {
    int64_t *rows = test_new(count * depth, 8);
    for (int64_t i = 0; i < count; i++) {
        block[i] = 0;
        for (int d = 0; d < depth; d++) {
            int64_t place = (int64_t)test_random((uint64_t)dims[d]);
            rows[i * depth + d] = test_random(2) ? place : place - dims[d];
            block[i] = block[i] * dims[d] + place;
        }
    }
    return rows;
}

static void gather_nd_once(const struct kernels *kernel, int round) {
    int depth = (int)test_random(4);
    int64_t batch = 1 + (int64_t)test_random(3), count = (int64_t)test_random(round % 10 == 9 ? 9000 : 6), dims[3];
    int64_t inner = 1 + (int64_t)test_random(4);
    for (int d = 0; d < 3; d++) dims[d] = 1 + (int64_t)test_random(5);
    size_t row = (size_t)inner * kernel->size;
    int64_t blocks = test_count(dims, depth), *block = test_new(batch * count, 8);
    int64_t *index = random_rows(block, batch * count, depth, dims);
    unsigned char *x = random_tensor(batch * blocks, row), *y = test_new(batch * count, row);
    assert_int_equal(kernel->gather_nd(rt, y, x, index, batch, count, depth, dims, inner), RT_OK);
    for (int64_t i = 0; i < batch * count; i++)
        assert_memory_equal(y + (size_t)i * row, x + (size_t)(i / count * blocks + block[i]) * row, row);
    test_free_all();
}

static void scatter_nd_once(const struct kernels *kernel, int round) {
    int depth = (int)test_random(4);
    int64_t batch = 1 + (int64_t)test_random(3), count = (int64_t)test_random(7), dims[3];
    int64_t inner = 1 + (int64_t)test_random(4);
    for (int d = 0; d < 3; d++) dims[d] = 1 + (int64_t)test_random(5);
    size_t row = (size_t)inner * kernel->size;
    int64_t blocks = test_count(dims, depth), *block = test_new(batch * count, 8);
    int64_t *index = random_rows(block, batch * count, depth, dims);
    unsigned char *x = random_tensor(batch * blocks, row), *updates = random_tensor(batch * count, row);
    unsigned char *y = test_new(batch * blocks, row), *expected = test_new(batch * blocks, row);
    memcpy(expected, x, (size_t)(batch * blocks) * row);
    for (int64_t i = 0; i < batch * count; i++)
        memcpy(expected + (size_t)(i / count * blocks + block[i]) * row, updates + (size_t)i * row, row);
    for (int in_place = 0; in_place < 2; in_place++) {
        unsigned char *to = in_place ? x : y;
        assert_int_equal(kernel->scatter_nd(rt, to, x, index, updates, batch, count, depth, dims, inner), RT_OK);
        test_same_bytes(to, expected, batch * blocks, row, "scatter_nd");
    }
    test_free_all();
}

/* Adding is scattering one update after the other, each on top of what it falls on. */
TEST(test_adding) {
    const float x[] = {1, 2, 3, 4, 5, 6}, updates[] = {10, 20, 30, 40}, nothing[6] = {0};
    const int64_t index[] = {2, -1, 0, 2}, rows[] = {1, -2, 2, 2}, dims[] = {2, 3}, index_dims[] = {2, 2},
                  three[] = {3};
    float y[6], sums[6];
    assert_int_equal(rt_scatter_elements_add_f32(rt, y, x, index, 1, updates, 2, dims, index_dims, 1), RT_OK);
    test_same_f32(y, (const float[]){1, 2, 33, 34, 5, 46}, 6, "elements");
    memcpy(sums, x, sizeof x);
    assert_int_equal(rt_scatter_nd_add_f32(rt, sums, sums, rows, updates, 2, 2, 1, three, 1), RT_OK);
    test_same_f32(sums, (const float[]){1, 32, 3, 4, 5, 76}, 6, "rows, in place");
    assert_int_equal(rt_scatter_nd_add_f32(rt, y, nothing, rows, nothing, 1, 0, 1, three, 2), RT_OK);
    test_same_f32(y, nothing, 6, "no row");
    assert_int_equal(rt_scatter_elements_add_f32(rt, y, x, rows, 1, updates, 2, index_dims, index_dims, 1),
                     RT_ERROR_INPUT);
    assert_int_equal(rt_scatter_nd_add_f32(rt, y, x, rows, updates, 1, 4, 1, index_dims, 1), RT_ERROR_INPUT);
    test_same_f32(y, nothing, 6, "after an error");
}

static void run(void (*once)(const struct kernels *, int)) {
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int round = 0; round < ROUNDS; round++) {
            rt_kernels_threads(1 + round % 3);
            once(&kinds[kind], round);
        }
    rt_kernels_threads(1);
}

#define KIND_TEST(name)                                                                                                \
    TEST(test_##name) {                                                                                                \
        run(name##_once);                                                                                              \
    }
KIND_TEST(gather)
KIND_TEST(gather_elements)
KIND_TEST(gather_nd)
KIND_TEST(scatter_elements)
KIND_TEST(scatter_nd)

TEST(test_parts_of_a_gather_sum_to_the_whole) {
    const int64_t table[] = {10, 11, 12, 13, 14, 15, 16}, index[] = {6, 0, -1, 3, 4};
    int64_t whole[5], sum[5] = {0};
    assert_int_equal(rt_gather_b8(rt, whole, table, index, 1, 1, 7, 1, 5, 0, 7), RT_OK);
    for (int64_t start = 0; start < 7; start += 4) {
        int64_t part[5];
        assert_int_equal(rt_gather_b8(rt, part, table + start, index, 1, 1, start ? 3 : 4, 1, 5, start, 7), RT_OK);
        for (int i = 0; i < 5; i++) sum[i] += part[i];
    }
    assert_memory_equal(sum, whole, sizeof whole);
}

TEST(test_out_of_range) {
    const float x[] = {1, 2, 3};
    const int64_t high[] = {0, 3}, low[] = {-4, 5};
    const int32_t low32[] = {2, -4};
    const int64_t dims[] = {3}, two[] = {2};
    float y[] = {7, 8, 9};
    assert_int_equal(rt_gather_b4(rt, y, x, high, 1, 1, 3, 1, 2, 0, 3), RT_ERROR_INPUT);
    assert_string_equal(rt_error(rt), "index 3 at position 1 is outside [-3, 3)");
    assert_int_equal(rt_gather_b4(rt, y, x, low, 1, 1, 3, 1, 2, 0, 3), RT_ERROR_INPUT);
    assert_string_equal(rt_error(rt), "index -4 at position 0 is outside [-3, 3)");
    assert_int_equal(rt_gather_b4(rt, y, x, low32, 0, 1, 3, 1, 2, 0, 3), RT_ERROR_INPUT);
    assert_string_equal(rt_error(rt), "index -4 at position 1 is outside [-3, 3)");
    assert_int_equal(rt_gather_elements_b4(rt, y, x, high, 1, 1, dims, two, 0), RT_ERROR_INPUT);
    assert_int_equal(rt_gather_nd_b4(rt, y, x, high, 1, 2, 1, dims, 1), RT_ERROR_INPUT);
    assert_int_equal(rt_scatter_elements_b4(rt, y, x, high, 1, x, 1, dims, two, 0), RT_ERROR_INPUT);
    assert_int_equal(rt_scatter_nd_b4(rt, y, x, high, x, 1, 2, 1, dims, 1), RT_ERROR_INPUT);
    assert_true(y[0] == 7 && y[1] == 8 && y[2] == 9);
}

TEST(test_the_first_bad_index_is_named_by_any_threads) {
    enum { COUNT = 100000 };
    int64_t *index = test_new(COUNT, 8);
    unsigned char x = 0, *y = test_new(COUNT, 1);
    memset(index, 0, COUNT * sizeof *index);
    index[70001] = index[90000] = 5;
    for (int threads = 1; threads <= 3; threads++) {
        rt_kernels_threads(threads);
        assert_int_equal(rt_gather_b1(rt, y, &x, index, 1, 1, 1, 1, COUNT, 0, 1), RT_ERROR_INPUT);
        assert_string_equal(rt_error(rt), "index 5 at position 70001 is outside [-1, 1)");
    }
    rt_kernels_threads(1);
    test_free_all();
}

TEST(test_classes) {
    const int64_t wide[] = {0, 4, -100, 2}, dims[] = {2, 2}, starts[] = {0, 0}, behind[] = {3, 10};
    const int32_t narrow[] = {0, 4, 5, -1};
    int64_t y[4];
    assert_int_equal(rt_class_index(rt, y, wide, 1, 2, dims, starts, 5, 1, -100), RT_OK);
    assert_memory_equal(y, wide, sizeof wide);
    assert_int_equal(rt_class_index(rt, y, wide, 1, 2, dims, starts, 5, 0, -100), RT_ERROR_INPUT);
    assert_string_equal(rt_error(rt), "label -100 at [1, 0] is outside of the 5 classes");
    assert_int_equal(rt_class_index(rt, y, narrow, 0, 2, dims, behind, 5, 1, 7), RT_ERROR_INPUT);
    assert_string_equal(rt_error(rt), "label 5 at [4, 10] is outside of the 5 classes");
    assert_int_equal(rt_class_index(rt, y, narrow + 3, 0, 0, NULL, NULL, 5, 0, 0), RT_ERROR_INPUT);
    assert_string_equal(rt_error(rt), "label -1 at [] is outside of the 5 classes");
    assert_int_equal(rt_class_index(rt, NULL, NULL, 1, 1, (int64_t[]){0}, starts, 0, 0, 0), RT_OK);
}

TEST(test_divisors) {
    const int32_t x[] = {1, -1, 3, 0, 0}, kept[] = {1, -1, 3};
    const int64_t dims[] = {2, 2}, starts[] = {4, 10}, n[] = {3};
    const uint8_t bytes[] = {1, 255, 0, 2};
    int32_t y[4];
    assert_int_equal(rt_divisor_b4(rt, y, x, 1, n, starts), RT_OK);
    assert_memory_equal(y, kept, sizeof kept);
    assert_int_equal(rt_divisor_b4(rt, y, x, 2, dims, starts), RT_ERROR_INPUT);
    assert_string_equal(rt_error(rt), "integer division by zero: the divisor at [5, 11] is 0");
    assert_int_equal(rt_divisor_b1(rt, y, bytes, 2, dims, starts), RT_ERROR_INPUT);
    assert_string_equal(rt_error(rt), "integer division by zero: the divisor at [5, 10] is 0");
    assert_int_equal(rt_divisor_b4(rt, y, x + 3, 0, NULL, NULL), RT_ERROR_INPUT);
    assert_int_equal(rt_divisor_b8(rt, NULL, NULL, 1, (int64_t[]){0}, starts), RT_OK);
}

TEST(test_empty) {
    const int64_t none[] = {0}, dims[] = {3, 0};
    const int64_t index[] = {0};
    char x[1] = {1}, y[1] = {5};
    assert_int_equal(rt_gather_b1(rt, y, x, NULL, 1, 1, 1, 1, 0, 0, 1), RT_OK);
    assert_int_equal(rt_gather_b1(rt, NULL, NULL, index, 1, 1, 3, 0, 1, 0, 3), RT_OK);
    assert_int_equal(rt_gather_elements_b1(rt, y, x, NULL, 1, 1, none, none, 0), RT_OK);
    assert_int_equal(rt_scatter_elements_b1(rt, y, x, NULL, 1, NULL, 1, none, none, 0), RT_OK);
    assert_int_equal(rt_scatter_nd_b1(rt, NULL, NULL, index, NULL, 1, 1, 1, dims, 0), RT_OK);
    assert_int_equal(rt_gather_b1(rt, y, x, index, 1, 1, 0, 1, 1, 0, 0), RT_ERROR_INPUT);
    assert_int_equal(y[0], 5);
}

/* Rows of a matrix that lies in panels of its transpose are the rows of the matrix. */
TEST(test_gather_from_panels) {
    for (int round = 0; round < ROUNDS; round++) {
        int64_t total = 1 + (int64_t)test_random(90), inner = (int64_t)test_random(70), count = (int64_t)test_random(9);
        int64_t start = (int64_t)test_random((uint64_t)total),
                extent = (int64_t)test_random((uint64_t)(total - start) + 1);
        struct indices index = random_indices(count, total);
        unsigned char *x = random_tensor(extent * inner, 4), *expected = test_new(count * inner, 4),
                      *y = test_new(count * inner, 4), *panels = test_new(rt_panel_elements(inner, extent), 4);
        for (int64_t j = 0; j < extent; j++)
            for (int64_t p = 0; p < inner; p++)
                memcpy(panels + 4 * rt_panel_place(inner, p, j), x + 4 * (j * inner + p), 4);
        assert_int_equal(rt_gather_b4(rt, expected, x, index.wide, 1, 1, extent, inner, count, start, total), RT_OK);
        assert_int_equal(rt_gather_packed_b4(rt, y, panels, index.wide, RT_F32, 1, extent, inner, count, start, total),
                         RT_OK);
        test_same_bytes(y, expected, count * inner, 4, "from panels");
        assert_int_equal(
            rt_gather_packed_b4(rt, y, panels, index.narrow, RT_F32, 0, extent, inner, count, start, total), RT_OK);
        test_same_bytes(y, expected, count * inner, 4, "from panels, narrow indices");
        int64_t outside = total;
        assert_int_equal(rt_gather_packed_b4(rt, y, panels, &outside, RT_F32, 1, extent, inner, 1, start, total),
                         RT_ERROR_INPUT);
        test_free_all();
    }
}

/* The same for 16-bit elements, which lie in panels of pairs. */
TEST(test_gather_from_pairs) {
    for (int round = 0; round < ROUNDS; round++) {
        int64_t total = 1 + (int64_t)test_random(90), inner = (int64_t)test_random(70), count = (int64_t)test_random(9);
        struct indices index = random_indices(count, total);
        unsigned char *x = random_tensor(total * inner, 2), *expected = test_new(count * inner, 2),
                      *y = test_new(count * inner, 2), *panels = test_new(rt_pair_elements(inner, total), 2);
        for (int64_t j = 0; j < total; j++)
            for (int64_t p = 0; p < inner; p++)
                memcpy(panels + 2 * rt_pair_place(inner, p, j), x + 2 * (j * inner + p), 2);
        assert_int_equal(rt_gather_b2(rt, expected, x, index.wide, 1, 1, total, inner, count, 0, total), RT_OK);
        assert_int_equal(rt_gather_packed_b2(rt, y, panels, index.wide, RT_BF16, 1, total, inner, count, 0, total),
                         RT_OK);
        test_same_bytes(y, expected, count * inner, 2, "from pairs");
        test_free_all();
    }
}

/* And for bytes, which lie in panels of quads, unsigned ones less 128. */
TEST(test_gather_from_quads) {
    for (int round = 0; round < ROUNDS; round++) {
        int64_t total = 1 + (int64_t)test_random(90), inner = (int64_t)test_random(70), count = (int64_t)test_random(9);
        struct indices index = random_indices(count, total);
        unsigned char *x = random_tensor(total * inner, 1), *expected = test_new(count * inner, 1),
                      *y = test_new(count * inner, 1), *panels = test_new(rt_quad_elements(inner, total), 1);
        const bool is_signed = round % 2;
        for (int64_t j = 0; j < total; j++)
            for (int64_t p = 0; p < inner; p++)
                panels[rt_quad_place(inner, p, j)] = (unsigned char)(x[j * inner + p] - (is_signed ? 0 : 128));
        assert_int_equal(rt_gather_b1(rt, expected, x, index.wide, 1, 1, total, inner, count, 0, total), RT_OK);
        assert_int_equal(
            rt_gather_packed_b1(rt, y, panels, index.wide, is_signed ? RT_I8 : RT_U8, 1, total, inner, count, 0, total),
            RT_OK);
        test_same_bytes(y, expected, count * inner, 1, "from quads");
        test_free_all();
    }
}

/* y as the definition of rt_topk has it, from values(c) of column q of `inner`: an element's place is the number of
 * those before it. */
static void expect_topk(int64_t *y, const int64_t *values, int64_t c, int64_t inner, int64_t q, int64_t k,
                        int largest) {
    for (int64_t i = 0; i < c; i++) {
        int64_t place = 0;
        for (int64_t j = 0; j < c; j++) {
            const int64_t a = values[j * inner + q], b = values[i * inner + q];
            place += a == b ? j < i : largest ? a > b : a < b;
        }
        if (place < k) y[place * inner + q] = i;
    }
}

/* Integers of a small range are counted, others compared. */
TEST(test_topk_of_integers) {
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t c = 200 + (int64_t)test_random(200), k = (int64_t)test_random(4) ? c : c / 2,
                      inner = 1 + round % 3;
        const uint64_t span = round % 4 == 0 ? 1u << 31 : 1 + test_random(300);
        int64_t *wide = test_new(c * inner, 8), *y = test_new(k * inner, 8), *expected = test_new(k * inner, 8);
        int32_t *narrow = test_new(c * inner, 4);
        for (int64_t i = 0; i < c * inner; i++) {
            narrow[i] = (int32_t)(INT32_MAX - (int64_t)test_random(span));
            wide[i] = narrow[i];
        }
        for (int64_t q = 0; q < inner; q++) expect_topk(expected, wide, c, inner, q, k, round % 2);
        rt_topk_i32(y, narrow, 1, c, inner, k, round % 2);
        test_same_bytes(y, expected, k * inner, 8, "topk of i32");
        rt_topk_i64(y, wide, 1, c, inner, k, round % 2);
        test_same_bytes(y, expected, k * inner, 8, "topk of i64");
        test_free_all();
    }
}

int main(void) {
    return run_all_tests("index", open_rank, close_rank);
}
