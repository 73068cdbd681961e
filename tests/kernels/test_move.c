/* Data movement, each kernel against its definition in index notation, for every element size. */
#include "kernel_test.h"

#include <string.h>

struct moves {
    size_t size;
    void (*transpose)(void *, const void *, int, const int64_t *, const int *);
    void (*slice)(void *, const void *, int, const int64_t *, const int64_t *, const int64_t *, const int64_t *);
    void (*expand)(void *, const void *, int, const int64_t *, const int64_t *);
    void (*tile)(void *, const void *, int, const int64_t *, const int64_t *);
    void (*pad)(void *, const void *, int, const int64_t *, const int64_t *, const int64_t *, const void *);
    void (*concat)(void *, int, const void *const *, int64_t, const int64_t *);
    void (*trilu)(void *, const void *, int64_t, int64_t, int64_t, int64_t, int, int64_t, int64_t, int64_t);
};

#define MOVES(N)                                                                                                       \
    { N, rt_transpose_b##N, rt_slice_b##N, rt_expand_b##N, rt_tile_b##N, rt_pad_b##N, rt_concat_b##N, rt_trilu_b##N }
static const struct moves kinds[] = {MOVES(1), MOVES(2), MOVES(4), MOVES(8)};

#define ROUNDS 60

/* One tensor and what a kernel should make of it. */
struct scene {
    const struct moves *kernel;
    int ndim;
    int64_t x_dims[8], y_dims[8];
    unsigned char *x, *y, *expected;
};

/* Random extents; every tenth round is large enough for threads. */
static struct scene scene_begin(const struct moves *kernel, int round) {
    static const int64_t small[] = {1, 2, 3, 5, 7, 1, 4, 11, 13, 0};
    struct scene s = {.kernel = kernel};
    if (round % 10 == 9) {
        s.ndim = 3;
        for (int d = 0; d < 3; d++) s.x_dims[d] = 29 + (int64_t)test_random(12);
    } else {
        s.ndim = (int)test_random(6);
        for (int d = 0; d < s.ndim; d++) s.x_dims[d] = small[test_random(round % 7 == 0 ? 10 : 9)];
    }
    s.x = test_new(test_count(s.x_dims, s.ndim), kernel->size);
    test_bytes(s.x, test_count(s.x_dims, s.ndim), kernel->size);
    rt_kernels_threads(1 + round % 3);
    return s;
}

static void scene_outputs(struct scene *s) {
    s->y = test_new(test_count(s->y_dims, s->ndim), s->kernel->size);
    s->expected = test_new(test_count(s->y_dims, s->ndim), s->kernel->size);
}

static void scene_end(struct scene *s, const char *what) {
    test_same_bytes(s->y, s->expected, test_count(s->y_dims, s->ndim), s->kernel->size, what);
    test_free_all();
}

#define EACH_INDEX(index, dims, ndim)                                                                                  \
    for (int64_t index[WALK_NDIM] = {0}, more = test_count(dims, ndim); more > 0; more = test_next(index, dims, ndim))

static void expect(struct scene *s, const int64_t *y_index, const void *value) {
    memcpy(s->expected + (size_t)test_offset(y_index, s->y_dims, s->ndim) * s->kernel->size, value, s->kernel->size);
}

static const unsigned char *element(const struct scene *s, const int64_t *x_index) {
    return s->x + (size_t)test_offset(x_index, s->x_dims, s->ndim) * s->kernel->size;
}

static void transpose_once(const struct moves *kernel, int round) {
    struct scene s = scene_begin(kernel, round);
    int perm[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int d = s.ndim - 1; d > 0; d--) {
        int other = (int)test_random((uint64_t)d + 1), held = perm[d];
        perm[d] = perm[other];
        perm[other] = held;
    }
    for (int d = 0; d < s.ndim; d++) s.y_dims[d] = s.x_dims[perm[d]];
    scene_outputs(&s);
    EACH_INDEX(index, s.y_dims, s.ndim) {
        int64_t from[8] = {0};
        for (int d = 0; d < s.ndim; d++) from[perm[d]] = index[d];
        expect(&s, index, element(&s, from));
    }
    kernel->transpose(s.y, s.x, s.ndim, s.x_dims, perm);
    scene_end(&s, "transpose");
}

static void slice_once(const struct moves *kernel, int round) {
    struct scene s = scene_begin(kernel, round);
    int64_t start[8], step[8];
    for (int d = 0; d < s.ndim; d++) {
        int64_t extent = s.x_dims[d], stride = 1 + (int64_t)test_random(3);
        int backwards = test_random(3) == 0;
        start[d] = extent ? (int64_t)test_random((uint64_t)extent) : 0;
        step[d] = backwards ? -stride : stride;
        int64_t room = extent == 0 ? 0 : backwards ? start[d] / stride + 1 : (extent - 1 - start[d]) / stride + 1;
        s.y_dims[d] = room ? 1 + (int64_t)test_random((uint64_t)room) : 0;
        if (test_random(40) == 0) s.y_dims[d] = 0;
    }
    scene_outputs(&s);
    EACH_INDEX(index, s.y_dims, s.ndim) {
        int64_t from[8];
        for (int d = 0; d < s.ndim; d++) from[d] = start[d] + index[d] * step[d];
        expect(&s, index, element(&s, from));
    }
    kernel->slice(s.y, s.x, s.ndim, s.x_dims, start, step, s.y_dims);
    scene_end(&s, "slice");
}

static void expand_once(const struct moves *kernel, int round) {
    struct scene s = scene_begin(kernel, round);
    for (int d = 0; d < s.ndim; d++) s.y_dims[d] = s.x_dims[d] == 1 ? (int64_t)test_random(5) : s.x_dims[d];
    scene_outputs(&s);
    EACH_INDEX(index, s.y_dims, s.ndim) {
        int64_t from[8];
        for (int d = 0; d < s.ndim; d++) from[d] = s.x_dims[d] == 1 ? 0 : index[d];
        expect(&s, index, element(&s, from));
    }
    kernel->expand(s.y, s.x, s.ndim, s.x_dims, s.y_dims);
    scene_end(&s, "expand");
}

static void tile_once(const struct moves *kernel, int round) {
    struct scene s = scene_begin(kernel, round);
    for (int d = 0; d < s.ndim; d++) s.y_dims[d] = s.x_dims[d] * (int64_t)(1 + test_random(2));
    if (s.ndim > 0 && round % 11 == 0) s.y_dims[0] = 0;
    scene_outputs(&s);
    EACH_INDEX(index, s.y_dims, s.ndim) {
        int64_t from[8];
        for (int d = 0; d < s.ndim; d++) from[d] = index[d] % s.x_dims[d];
        expect(&s, index, element(&s, from));
    }
    kernel->tile(s.y, s.x, s.ndim, s.x_dims, s.y_dims);
    scene_end(&s, "tile");
}

static void pad_once(const struct moves *kernel, int round) {
    struct scene s = scene_begin(kernel, round);
    const unsigned char value[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t begin[8];
    for (int d = 0; d < s.ndim; d++) {
        begin[d] = (int64_t)test_random(6) - 2;
        s.y_dims[d] = s.x_dims[d] + begin[d] + (int64_t)test_random(6) - 2;
        if (s.y_dims[d] < 0) s.y_dims[d] = 0;
    }
    scene_outputs(&s);
    EACH_INDEX(index, s.y_dims, s.ndim) {
        int64_t from[8];
        int inside = 1;
        for (int d = 0; d < s.ndim; d++) {
            from[d] = index[d] - begin[d];
            inside = inside && from[d] >= 0 && from[d] < s.x_dims[d];
        }
        expect(&s, index, inside ? element(&s, from) : value);
    }
    kernel->pad(s.y, s.x, s.ndim, s.x_dims, begin, s.y_dims, value);
    scene_end(&s, "pad");
}

/* Parts of random extents; y is checked part by part, row by row. */
static void concat_once(const struct moves *kernel, int round) {
    int64_t outer = round % 7 == 0 ? 0 : 1 + (int64_t)test_random(round % 10 == 9 ? 900 : 6), extents[5], sum = 0;
    int count = 1 + (int)test_random(5);
    unsigned char *x[5];
    for (int j = 0; j < count; j++) {
        extents[j] = (int64_t)test_random(20);
        x[j] = test_new(outer * extents[j], kernel->size);
        test_bytes(x[j], outer * extents[j], kernel->size);
        sum += extents[j];
    }
    unsigned char *y = test_new(outer * sum, kernel->size);
    kernel->concat(y, count, (const void *const *)x, outer, extents);
    for (int64_t row = 0, at = 0; row < outer; row++)
        for (int j = 0; j < count; j++, at += extents[j - 1])
            test_same_bytes(y + (size_t)at * kernel->size, x[j] + (size_t)(row * extents[j]) * kernel->size, extents[j],
                            kernel->size, "concat");
    test_free_all();
}

static void trilu_once(const struct moves *kernel, int round) {
    int64_t outer = (int64_t)test_random(4), rows = (int64_t)test_random(round % 10 == 9 ? 200 : 9);
    int64_t columns = (int64_t)test_random(round % 10 == 9 ? 200 : 9), k = (int64_t)test_random(11) - 5;
    int64_t row_start = (int64_t)test_random(4), column_start = (int64_t)test_random(4), count = outer * rows * columns;
    int64_t row_jump = (int64_t)test_random(4);
    int upper = (int)test_random(2);
    unsigned char *x = test_new(count, kernel->size), *y = test_new(count, kernel->size);
    test_bytes(x, count, kernel->size);
    kernel->trilu(y, x, outer, rows, columns, k, upper, row_start, row_jump, column_start);
    const int64_t dims[3] = {outer, rows, columns};
    EACH_INDEX(index, dims, 3) {
        static const unsigned char zero[8];
        int64_t row = index[1] + row_start + (index[1] < rows / 2 ? 0 : row_jump), column = index[2] + column_start;
        int kept = upper ? column >= row + k : column <= row + k;
        size_t at = (size_t)test_offset(index, dims, 3) * kernel->size;
        assert_memory_equal(y + at, kept ? x + at : zero, kernel->size);
    }
    kernel->trilu(x, x, outer, rows, columns, k, upper, row_start, row_jump, column_start);
    test_same_bytes(x, y, count, kernel->size, "trilu in place");
    test_free_all();
}

static void run(void (*once)(const struct moves *, int)) {
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int round = 0; round < ROUNDS; round++) once(&kinds[kind], round);
    rt_kernels_threads(1);
}

#define KIND_TEST(name)                                                                                                \
    TEST(test_##name) {                                                                                                \
        run(name##_once);                                                                                              \
    }
KIND_TEST(transpose)
KIND_TEST(slice)
KIND_TEST(expand)
KIND_TEST(tile)
KIND_TEST(pad)
KIND_TEST(concat)
KIND_TEST(trilu)

int main(void) {
    return run_all_tests("move", NULL, NULL);
}
