/* Graphs with fewer repetitions of their layers (passes/plan/shorten.h): a shortened graph is the graph of the model
 * that was made with as many layers. */

#include "ir/build.h"
#include "ir/verify.h"
#include "passes/plan/shorten.h"
#include "tests/ir/pool.h"

enum ends {
    ENDS_PLAIN,
    ENDS_CACHES, /* every layer has an input and an output of its own */
    ENDS_SUMS    /* a last node reads the results of the first and the last layer */
};

/* Layers of five nodes: norm, product, product, and sums with the mask and the residual. */
static struct graph *model_of(struct arena *arena, int layers, enum ends ends) {
    struct diags *diags = ARENA_NEW(arena, struct diags);
    struct graph *graph = ARENA_NEW(arena, struct graph);
    const int64_t dims[] = {4, 8}, square[] = {8, 8};
    int first = -1;
    diags_init(diags, arena);
    graph_init(graph, arena, "layers");
    struct build builder = {graph, diags, "layer"};
    int x = graph_add_tensor(graph, TENSOR_INPUT, "x", RT_F32, 2, dims);
    const int mask = graph_add_tensor(graph, TENSOR_INPUT, "mask", RT_F32, 2, dims);
    VEC_PUSH(arena, &graph->inputs, x);
    VEC_PUSH(arena, &graph->inputs, mask);
    x = build1(&builder, OP_Exp, x);
    for (int l = 0; l < layers; l++) {
        const int up = graph_add_tensor(graph, TENSOR_WEIGHT, arena_printf(arena, "up%d", l), RT_F32, 2, square);
        const int down = graph_add_tensor(graph, TENSOR_WEIGHT, arena_printf(arena, "down%d", l), RT_F32, 2, square);
        int added = mask;
        if (ends == ENDS_CACHES) {
            added = graph_add_tensor(graph, TENSOR_INPUT, arena_printf(arena, "past%d", l), RT_F32, 2, dims);
            VEC_PUSH(arena, &graph->inputs, added);
        }
        const int h = build2(&builder, OP_MatMul, build1(&builder, OP_Tanh, x), up);
        const int sum = build2(&builder, OP_Add, build2(&builder, OP_MatMul, h, down), added);
        if (ends == ENDS_CACHES) {
            VEC_PUSH(arena, &graph->outputs, h);
            VEC_PUSH(arena, &graph->output_names, arena_printf(arena, "present%d", l));
        }
        x = build2(&builder, OP_Mul, x, sum);
        if (first < 0) first = x;
    }
    x = build1(&builder, OP_Exp, x);
    if (ends == ENDS_SUMS) x = build2(&builder, OP_Sub, x, first);
    VEC_PUSH(arena, &graph->outputs, x);
    VEC_PUSH(arena, &graph->output_names, "y");
    graph->level = TYPED;
    return graph;
}

/* The place in the order of the node that computes the tensor; -1: none does. */
static int place_of(const struct graph *graph, int tensor) {
    for (int i = 0; i < graph->order.n; i++)
        if (graph->order.at[i] == graph->tensors.at[tensor].producer) return i;
    return -1;
}

static void check_same_tensor(const struct graph *a, int x, const struct graph *b, int y) {
    assert_int_equal(place_of(a, x), place_of(b, y));
    if (place_of(a, x) < 0) assert_string_equal(a->tensors.at[x].name, b->tensors.at[y].name);
}

static void check_same(const struct graph *a, const struct graph *b) {
    assert_int_equal(a->order.n, b->order.n);
    for (int i = 0; i < a->order.n; i++) {
        const struct node *m = &a->nodes.at[a->order.at[i]], *n = &b->nodes.at[b->order.at[i]];
        assert_ptr_equal(m->op, n->op);
        for (int k = 0; k < m->ninputs; k++) check_same_tensor(a, m->inputs[k], b, n->inputs[k]);
    }
    assert_int_equal(a->inputs.n, b->inputs.n);
    for (int i = 0; i < a->inputs.n; i++) check_same_tensor(a, a->inputs.at[i], b, b->inputs.at[i]);
    assert_int_equal(a->outputs.n, b->outputs.n);
    for (int i = 0; i < a->outputs.n; i++) check_same_tensor(a, a->outputs.at[i], b, b->outputs.at[i]);
}

/* A model of `layers`, shortened to `left`, is the model of `left` layers. */
static void check(int layers, int left, enum ends ends) {
    struct diags diags;
    struct repeated repeated;
    diags_init(&diags, &pool);
    const struct graph *whole = model_of(&pool, layers, ends);
    const int nodes = whole->order.n;
    repeated_find(whole, &pool, 2, &repeated);
    assert_int_equal(repeated.all.n, 1);
    struct graph *graph = graph_copy(whole, &pool);
    shorten(graph, &repeated, &left);
    assert_int_equal(verify_graph(graph, &diags), 0);
    check_same(graph, model_of(&pool, left < layers ? left : layers, ends));
    assert_int_equal(whole->order.n, nodes); /* the original is as it was */
}

TEST(test_layers) {
    for (int left = 2; left < 9; left++) check(7, left, ENDS_PLAIN);
    check(100, 4, ENDS_PLAIN);
}

TEST(test_layers_with_inputs_and_outputs) {
    for (int left = 2; left < 6; left++) check(6, left, ENDS_CACHES);
}

/* What reads an early layer keeps reading it. */
TEST(test_layers_that_are_read_later) {
    check(6, 3, ENDS_SUMS);
}

/* Nothing is left to be removed of two layers. */
TEST(test_too_few_layers) {
    struct repeated repeated;
    repeated_find(model_of(&pool, 2, ENDS_PLAIN), &pool, 2, &repeated);
    assert_int_equal(repeated.all.n, 0);
}

int main(void) {
    return run_all_tests("shorten", open_pool, close_pool);
}
