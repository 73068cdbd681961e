/* Repeated layers of graphs (ir/blocks.h): cases of tests/ir/blocks.txt, graphs of several layers, their number.
 *
 *     test_blocks [--bless] [ROOT] */
#include <string.h>
#include <time.h>

#include "ir/blocks.h"
#include "ir/build.h"
#include "ir/text.h"
#include "tests/ir/golden.h"
#include "tests/ir/pool.h"

static struct golden golden;

/* The comments that list the blocks. */
static const char *blocks_of(struct arena *arena, const char *input) {
    const struct graph *graph = golden_graph(arena, input);
    if (!graph) return "not a graph\n";
    const char *blocks = strstr(text_print_blocks(arena, graph), "\n# ");
    return blocks ? blocks + 1 : "none\n";
}

TEST(test_cases) {
    assert_int_equal(golden_run(&golden, "tests/ir/blocks.txt", blocks_of), 0);
}

/* Many layers of six nodes: norm, product, activation, product, masked sum, residual. Returns their graph. */
static struct graph *layers_of(struct arena *arena, int layers) {
    struct diags diags;
    struct graph *graph = ARENA_NEW(arena, struct graph);
    const int64_t dims[] = {4, 8}, square[] = {8, 8};
    diags_init(&diags, arena);
    graph_init(graph, arena, "layers");
    struct build builder = {graph, &diags, "layer"};
    int x = graph_add_tensor(graph, TENSOR_INPUT, "x", RT_F32, 2, dims);
    const int mask = graph_add_tensor(graph, TENSOR_INPUT, "mask", RT_F32, 2, dims);
    x = build1(&builder, OP_Exp, x);
    for (int l = 0; l < layers; l++) {
        const int up = graph_add_tensor(graph, TENSOR_WEIGHT, arena_printf(arena, "up%d", l), RT_F32, 2, square);
        const int down = graph_add_tensor(graph, TENSOR_WEIGHT, arena_printf(arena, "down%d", l), RT_F32, 2, square);
        const int h = build1(&builder, OP_Tanh, build2(&builder, OP_MatMul, build1(&builder, OP_Neg, x), up));
        x = build2(&builder, OP_Add, x, build2(&builder, OP_Mul, build2(&builder, OP_MatMul, h, down), mask));
    }
    build1(&builder, OP_Exp, x);
    return graph;
}

static void check_layers(int layers) {
    struct blocks blocks;
    const struct graph *graph = layers_of(&pool, layers);
    const clock_t begin = clock();
    blocks_find(graph, &pool, node_kinds(graph, &pool, ALIKE), 0, graph->order.n, &blocks);
    assert_true(clock() - begin < 10 * CLOCKS_PER_SEC); /* less than a second of 10,000 layers */
    assert_int_equal(graph->order.n, 6 * layers + 2);
    assert_int_equal(blocks.all.n, 1);
    assert_int_equal(blocks.kinds, 1);
    assert_int_equal(blocks.all.at[0].first, 1);
    assert_int_equal(blocks.all.at[0].nodes, 6);
    assert_int_equal(blocks.all.at[0].times, layers);
}

TEST(test_any_number_of_layers) {
    check_layers(2);
    check_layers(3);
    check_layers(96);
    check_layers(10000);
}

/* Nodes that are alike in types may differ in an attribute. */
TEST(test_two_ways_of_being_alike) {
    const struct graph *graph = golden_graph(&pool, "input %0 \"x\" f32[2,4]\n"
                                                    "%1 \"a\" = LeakyRelu(%0) alpha=0.5\n"
                                                    "%2 \"b\" = LeakyRelu(%1) alpha=0.25\n"
                                                    "%3 \"c\" = LeakyRelu(%2) alpha=0.5\n"
                                                    "%4 \"d\" = Relu(%3)\n"
                                                    "output %4 \"d\"\n");
    const int *alike = node_kinds(graph, &pool, ALIKE), *in_types = node_kinds(graph, &pool, ALIKE_IN_TYPES);
    const int expected[] = {0, 1, 0, 2}, expected_in_types[] = {0, 0, 0, 1};
    assert_memory_equal(alike, expected, sizeof expected);
    assert_memory_equal(in_types, expected_in_types, sizeof expected_in_types);
}

/* Alike nodes are verified once, so all that verify.c reads of a node must be part of its kind. Each of these changes
 * the graph's last node, so that it is not alike to the node before it. */

static struct tensor *last_tensor(struct graph *graph) {
    return &graph->tensors.at[graph->nodes.at[graph->order.at[graph->order.n - 1]].outputs[0]];
}

static struct node *last_node(struct graph *graph) {
    return &graph->nodes.at[graph->order.at[graph->order.n - 1]];
}

static void change_dtype(struct graph *graph, int axis) {
    last_tensor(graph)->dtype = RT_F64;
}

static void change_extent(struct graph *graph, int axis) {
    last_tensor(graph)->dims[1]++;
}

static void change_ndim(struct graph *graph, int axis) {
    last_tensor(graph)->ndim = 1;
}

static void change_joined(struct graph *graph, int axis) {
    last_tensor(graph)->joined = JOINED_MAX;
}

static void change_attribute(struct graph *graph, int axis) {
    attr_set(graph, last_node(graph), attr_of_float("alpha", 0.25));
}

static void add_attribute(struct graph *graph, int axis) {
    attr_set(graph, last_node(graph), attr_of_int("packed", 1));
}

static void change_stage(struct graph *graph, int axis) {
    last_node(graph)->stage = 1;
}

static void change_stage_of_input(struct graph *graph, int axis) {
    graph->nodes.at[graph->tensors.at[last_node(graph)->inputs[0]].producer].stage = 1;
}

static void change_operator(struct graph *graph, int axis) {
    last_node(graph)->op = graph->nodes.at[graph->order.at[0]].op;
}

static void change_placement(struct graph *graph, int axis) {
    layout_place(graph->arena, &last_tensor(graph)->layout, axis,
                 (struct placement){.kind = PLACED_PARTIAL, .reduce = RT_SUM});
}

static void change_part(struct graph *graph, int axis) {
    layout_place(graph->arena, &last_tensor(graph)->layout, axis,
                 (struct placement){.kind = PLACED_PART, .dim = 1, .blocks = 1, .grain = 1});
}

static void change_split(struct graph *graph, int axis) {
    last_node(graph)->split[axis].factor = SPLIT_PARTIAL;
}

TEST(test_nodes_that_differ_are_not_alike) {
    static void (*const changes[])(struct graph *, int) = {
        change_dtype,    change_extent, change_ndim,           change_joined,    change_attribute, add_attribute,
        change_operator, change_stage,  change_stage_of_input, change_placement, change_part,      change_split};
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++)
        for (int axis = 0; axis < 4; axis++) {
            struct arena arena;
            arena_init(&arena, 0, NULL);
            struct graph *graph = golden_graph(&arena, "mesh tensor=2 data=2\n"
                                                       "input %0 \"x\" f32[2,4]\n"
                                                       "%1 \"a\" = Sin(%0)\n"
                                                       "%2 \"b\" = LeakyRelu(%1) alpha=0.5\n"
                                                       "%3 \"c\" = LeakyRelu(%2) alpha=0.5\n"
                                                       "%4 \"d\" = LeakyRelu(%3) alpha=0.5\n"
                                                       "output %4 \"d\"\n");
            mesh_add_replicas(&graph->mesh, 2);
            assert_int_equal(mesh_layout_axes(&graph->mesh), 4);
            const int *kinds = node_kinds(graph, &arena, ALIKE);
            assert_true(kinds[1] == kinds[2] && kinds[2] == kinds[3]);
            changes[c](graph, axis);
            kinds = node_kinds(graph, &arena, ALIKE);
            assert_int_not_equal(kinds[1], kinds[3]);
            arena_free(&arena);
        }
}

int main(int argc, char **argv) {
    golden = golden_options(argc, argv);
    return run_all_tests("blocks", open_pool, close_pool);
}
