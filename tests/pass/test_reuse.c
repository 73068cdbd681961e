/* Reuse distances (passes/rank/reuse.h) of tensors that share addresses. */

#include "passes/rank/reuse.h"
#include "tests/test.h"

enum { SMALL, LARGE, WEIGHT, MISSING, TENSORS };

/* f32 tensors: of 64 bytes and of 256 bytes at the same address, 128 bytes in another arena, and one that the rank does
 * not hold. */
struct fixture {
    struct arena arena;
    struct graph graph;
    struct rank_class class;
    int64_t dims[TENSORS][RT_MAX_NDIM];
    struct plan_place place[TENSORS];
};

static void begin(struct fixture *f) {
    static const int64_t elements[TENSORS] = {16, 64, 32, 8};
    *f = (struct fixture){.place = {{.arena = RT_ACTIVATIONS, .offset = 0},
                                    {.arena = RT_ACTIVATIONS, .offset = 0},
                                    {.arena = RT_WEIGHTS, .offset = 0},
                                    {.arena = RT_WEIGHTS, .offset = -1}}};
    arena_init(&f->arena, 0, NULL);
    graph_init(&f->graph, &f->arena, "reuse");
    for (int t = 0; t < TENSORS; t++) {
        f->dims[t][0] = elements[t];
        graph_add_tensor(&f->graph, TENSOR_WEIGHT, arena_printf(&f->arena, "t%d", t), RT_F32, 1, &elements[t]);
    }
    f->class.dims = f->dims, f->class.place = f->place;
    f->class.bytes[RT_ACTIVATIONS] = 256, f->class.bytes[RT_WEIGHTS] = 128;
}

static void touch(struct reuse *reuse, int tensor) {
    int inputs[] = {tensor};
    const struct node node = {.inputs = inputs, .ninputs = 1};
    reuse_touch(reuse, &node);
}

TEST(parts_of_a_tensor_have_distances_of_their_own) {
    struct fixture f;
    begin(&f);
    struct reuse reuse = reuse_begin(&f.graph, &f.class, &f.arena);
    assert_int_equal(reuse.pieces.end[SMALL] - reuse.pieces.first[SMALL], 1);
    assert_int_equal(reuse.pieces.end[LARGE] - reuse.pieces.first[LARGE], 2);
    assert_int_equal(reuse.pieces.first[LARGE], reuse.pieces.first[SMALL]);
    touch(&reuse, SMALL);
    touch(&reuse, WEIGHT);
    assert_true(reuse_distance(&reuse, reuse.pieces.first[LARGE]) == 128);     /* where SMALL is */
    assert_true(reuse_distance(&reuse, reuse.pieces.first[LARGE] + 1) == 384); /* never touched: all of the memory */
    arena_free(&f.arena);
}

TEST(distances_are_at_most_the_whole_memory) {
    struct fixture f;
    begin(&f);
    struct reuse reuse = reuse_begin(&f.graph, &f.class, &f.arena);
    touch(&reuse, SMALL);
    for (int i = 0; i < 10; i++) touch(&reuse, WEIGHT);
    assert_true(reuse_distance(&reuse, reuse.pieces.first[SMALL]) == 384);
    assert_true(reuse_distance(&reuse, reuse.pieces.first[WEIGHT]) == 0);
    arena_free(&f.arena);
}

TEST(a_tensor_of_other_ranks_has_no_pieces) {
    struct fixture f;
    begin(&f);
    struct reuse reuse = reuse_begin(&f.graph, &f.class, &f.arena);
    touch(&reuse, MISSING);
    assert_int_equal(reuse.pieces.first[MISSING], reuse.pieces.end[MISSING]);
    assert_true(reuse.now == 0);
    arena_free(&f.arena);
}

int main(void) {
    return run_all_tests("reuse", NULL, NULL);
}
