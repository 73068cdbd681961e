/* Meshes, layouts, attributes and uses: what ir.h promises about a graph. */

#include "ir/base/str.h"
#include "ir/op.h"
#include "tests/ir/golden.h"
#include "tests/ir/pool.h"

static const struct mesh mesh = {3, {{"tensor", 4}, {"pipeline", 2}, {"data", 2}}};

/* The groups of an axis, each once: "{0 1 2 3} {4 5 6 7} ..". */
static const char *groups(struct arena *arena, int axis) {
    struct strbuf out;
    strbuf_init(&out, arena);
    for (int shard = 0; shard < mesh_size(&mesh); shard++) {
        int coordinate[RT_MAX_AXES];
        mesh_coordinate(&mesh, shard, coordinate);
        if (coordinate[axis] != 0) continue;
        for (int i = 0; i < mesh.axis[axis].size; i++)
            strbuf_printf(&out, "%s%d", i ? " " : "{", shard + i * mesh_stride(&mesh, axis, 0));
        strbuf_putc(&out, '}');
    }
    return strbuf_text(&out);
}

TEST(test_groups_of_each_axis) {
    assert_int_equal(mesh_size(&mesh), 16);
    assert_string_equal(groups(&pool, 0), "{0 1 2 3}{4 5 6 7}{8 9 10 11}{12 13 14 15}");
    assert_string_equal(groups(&pool, 1), "{0 4}{1 5}{2 6}{3 7}{8 12}{9 13}{10 14}{11 15}");
    assert_string_equal(groups(&pool, 2), "{0 8}{1 9}{2 10}{3 11}{4 12}{5 13}{6 14}{7 15}");
}

/* Every shard is in its own group, at its own coordinate. */
TEST(test_groups_agree_with_coordinates) {
    for (int shard = 0; shard < 16; shard++) {
        int coordinate[RT_MAX_AXES];
        mesh_coordinate(&mesh, shard, coordinate);
        assert_int_equal(coordinate[0] + 4 * coordinate[1] + 8 * coordinate[2], shard);
        assert_int_equal(coordinate[3], 0);
        for (int axis = 0; axis < 3; axis++) {
            int first[RT_MAX_AXES];
            mesh_coordinate(&mesh, shard - coordinate[axis] * mesh_stride(&mesh, axis, 0), first);
            for (int a = 0; a < 3; a++) assert_int_equal(first[a], a == axis ? 0 : coordinate[a]);
        }
    }
}

/* Stages of 4, 2 and 6 ranks: tensor belongs to stages 0 and 1, data to 0, context to 2. */
static const struct mesh unequal = {
    4, {{"tensor", 2, 0, 2}, {"data", 2, 0, 1}, {"context", 6, 2, 3}, {"pipeline", 3, 0, 0}}, 0};

/* Shards of unequal stages are numbered stage by stage. */
TEST(test_unequal_stages) {
    static const int ranks[] = {4, 2, 6};
    assert_int_equal(mesh_size(&unequal), 12);
    assert_null(mesh_refused(&unequal));
    for (int stage = 0, shard = 0; stage < 3; stage++)
        for (int r = 0; r < ranks[stage]; r++, shard++) {
            int coordinate[RT_MAX_AXES];
            mesh_coordinate(&unequal, shard, coordinate);
            assert_int_equal(coordinate[3], stage);
            assert_int_equal(coordinate[0] + 2 * coordinate[1] + coordinate[2], r);
            assert_int_equal(mesh_shard(&unequal, coordinate), shard);
        }
}

/* Every rank receives from one rank of the other stage, which has its coordinates on the axes that both stages have;
 * ranks that could all send take turns. */
TEST(test_senders_of_unequal_stages) {
    const struct rt_mesh positions = mesh_positions(&unequal);
    static const int first[] = {0, 4, 6, 12};
    for (int to = 0; to < 3; to++)
        for (int from = 0; from < 3; from++) {
            int sent[12] = {0}, most = 0, least = 12;
            for (int receiver = first[to]; receiver < first[to + 1]; receiver++) {
                int own[RT_MAX_AXES], other[RT_MAX_AXES];
                mesh_coordinate(&unequal, receiver, own);
                const int sender = rt_mesh_sender(&positions, own, from);
                mesh_coordinate(&unequal, sender, other);
                assert_int_equal(other[3], from);
                for (int a = 0; a < 3; a++)
                    if (mesh_has(&unequal, a, to) && mesh_has(&unequal, a, from)) assert_int_equal(own[a], other[a]);
                sent[sender]++;
            }
            for (int s = first[from]; s < first[from + 1]; s++) {
                most = sent[s] > most ? sent[s] : most;
                least = sent[s] < least ? sent[s] : least;
            }
            assert_true(most - least <= 1);
        }
}

TEST(test_axes_by_name) {
    assert_int_equal(mesh_axis_by_name(&mesh, "pipeline"), 1);
    assert_int_equal(mesh_axis_by_name(&mesh, "pipe"), -1);
    assert_int_equal(mesh_size(&(struct mesh){0}), 1);
}

/* 10 columns in 2 blocks of units of 1 among 4: 2 1 1 1 of each block. */
TEST(test_local_extents) {
    struct graph graph;
    graph_init(&graph, &pool, "g");
    graph.mesh = mesh;
    int id = graph_add_tensor(&graph, TENSOR_WEIGHT, "w", RT_F32, 2, (const int64_t[]){6, 10});
    struct tensor *w = &graph.tensors.at[id];
    layout_place(&pool, &w->layout, 0, (struct placement){.kind = PLACED_PART, .dim = 1, .blocks = 2, .grain = 1});
    layout_place(&pool, &w->layout, 1, (struct placement){.kind = PLACED_PARTIAL, .reduce = RT_SUM});
    layout_place(&pool, &w->layout, 2, (struct placement){.kind = PLACED_PART, .dim = 0, .blocks = 1, .grain = 2});
    for (int shard = 0; shard < 16; shard++) {
        int coordinate[RT_MAX_AXES];
        int64_t dims[RT_MAX_NDIM];
        mesh_coordinate(&mesh, shard, coordinate);
        tensor_local_dims(&graph, w, coordinate, dims);
        assert_int_equal(dims[0], coordinate[2] == 0 ? 4 : 2);
        assert_int_equal(dims[1], coordinate[0] == 0 ? 4 : 2);
    }
}

/* Columns 0..9 in 2 parts, each in 3: 2 2 1 of each part; 10 rows in 2 blocks, each 3 2 and then 1 1 1 and 1 1 0. */
TEST(test_nested_extents) {
    static const int64_t columns[2][3] = {{2, 2, 1}, {2, 2, 1}}, rows[2][3] = {{2, 2, 2}, {2, 2, 0}};
    const struct mesh nested = {.naxes = 4, .axis = {{"a", 3}, {"b", 2}, {"c", 2}, {"d", 3}}};
    struct graph graph;
    graph_init(&graph, &pool, "g");
    graph.mesh = nested;
    int id = graph_add_tensor(&graph, TENSOR_WEIGHT, "w", RT_F32, 2, (const int64_t[]){10, 10});
    struct tensor *w = &graph.tensors.at[id];
    const struct placement plain = {.kind = PLACED_PART, .dim = 1, .blocks = 1, .grain = 1},
                           strided = {.kind = PLACED_PART, .dim = 0, .blocks = 2, .grain = 1};
    layout_place(&pool, &w->layout, 1, plain);
    layout_place(&pool, &w->layout, 0, plain);
    layout_place(&pool, &w->layout, 2, strided);
    layout_place(&pool, &w->layout, 3, strided);
    assert_int_equal(layout_inner_axis(&w->layout, 1), 0);
    assert_int_equal(layout_inner_axis(&w->layout, 0), -1);
    assert_int_equal(layout_inner_axis(&w->layout, 2), 3);
    for (int shard = 0; shard < 36; shard++) {
        int at[RT_MAX_AXES];
        int64_t dims[RT_MAX_NDIM];
        mesh_coordinate(&nested, shard, at);
        tensor_local_dims(&graph, w, at, dims);
        assert_int_equal(dims[0], rows[at[2]][at[3]]);
        assert_int_equal(dims[1], columns[at[1]][at[0]]);
        const struct rt_placement group = placement_of_ranks(&graph, w, 0, at);
        assert_true(group.extent == 5 && group.cut.extent == 5 && group.cut.ways == 3);
    }
}

/* Layouts are equal whatever the order in which their cuts were made, but for the order of cuts of one dimension. */
TEST(test_layouts_are_equal) {
    const struct placement part = {.kind = PLACED_PART, .dim = 0, .blocks = 1, .grain = 1},
                           other = {.kind = PLACED_PART, .dim = 1, .blocks = 1, .grain = 1}, flat = {PLACED_FLAT},
                           sum = {.kind = PLACED_PARTIAL, .reduce = RT_SUM};
    struct layout a = {0}, b = {0}, turned = {0};
    const struct placement *const along[] = {&part, &other, &part, &flat, &sum};
    for (int axis = 0; axis < 5; axis++) layout_place(&pool, &a, axis, *along[axis]);
    static const int order[] = {4, 3, 1, 0, 2}, reversed[] = {2, 1, 0, 3, 4};
    for (int i = 0; i < 5; i++) layout_place(&pool, &b, order[i], *along[order[i]]);
    for (int i = 0; i < 5; i++) layout_place(&pool, &turned, reversed[i], *along[reversed[i]]);
    assert_true(layout_equal(&a, &b));
    assert_false(layout_equal(&a, &turned));
    assert_int_equal(layout_flat_axes(&a), 8);
    layout_place(&pool, &a, 0, (struct placement){PLACED_WHOLE});
    layout_place(&pool, &b, 0, (struct placement){PLACED_OWN});
    assert_false(layout_equal(&a, &b));
    assert_true(layout_same_part(&a, &b));
    assert_int_equal(layout_along(&a, 2).kind, PLACED_PART);
}

TEST(test_equal_placements) {
    const struct placement whole = {PLACED_WHOLE}, odd = {.kind = PLACED_WHOLE, .dim = 3, .grain = 7};
    const struct placement part = {.kind = PLACED_PART, .dim = 1, .blocks = 1, .grain = 1};
    const struct placement strided = {.kind = PLACED_PART, .dim = 1, .blocks = 2, .grain = 1};
    const struct placement sum = {.kind = PLACED_PARTIAL}, max = {.kind = PLACED_PARTIAL, .reduce = RT_MAX};
    assert_true(placement_equal(&whole, &odd));
    assert_true(placement_equal(&part, &part));
    assert_false(placement_equal(&part, &strided));
    assert_false(placement_equal(&part, &whole));
    assert_false(placement_equal(&sum, &max));
}

TEST(test_shapes_that_fit) {
    assert_true(tensor_shape_fits(0, NULL));
    assert_true(tensor_shape_fits(2, (const int64_t[]){0, INT64_MAX}));
    assert_false(tensor_shape_fits(2, (const int64_t[]){0, -1}));
    assert_false(tensor_shape_fits(2, (const int64_t[]){INT64_MAX, 2}));
    assert_false(tensor_shape_fits(1, (const int64_t[]){(int64_t)1 << 43}));
    assert_true(tensor_shape_fits(1, (const int64_t[]){((int64_t)1 << 43) - 1}));
}

TEST(test_attributes) {
    struct graph graph;
    graph_init(&graph, &pool, "g");
    int64_t ints[] = {1, 2, 3};
    const struct attr attrs[] = {attr_of_int("i", 7), attr_of_ints("list", 3, ints), attr_of_text("t", "text")};
    int x = graph_add_tensor(&graph, TENSOR_INPUT, "x", RT_F32, 0, NULL), n;
    int y = graph_add_tensor(&graph, TENSOR_VALUE, "y", RT_F32, 0, NULL);
    int id = graph_add_node(&graph, &ops[OP_Relu], "relu", 1, &x, 1, &y, 3, attrs);
    struct node *node = &graph.nodes.at[id];
    ints[0] = 99; /* the node has its own copy */
    assert_int_equal(attr_ints(node, "list", &n)[0], 1);
    assert_int_equal(n, 3);
    assert_int_equal(attr_int(node, "i", 0), 7);
    assert_true(attr_float(node, "i", 0) == 7);
    assert_int_equal(attr_int(node, "t", 5), 5);
    assert_null(attr_ints(node, "none", &n));
    assert_int_equal(n, 0);
    const struct node before = *node;
    attr_set(&graph, node, attr_of_float("i", 0.5));
    attr_set(&graph, node, attr_of_int("new", 1));
    assert_int_equal(attr_int(&before, "i", 0), 7); /* a copied node keeps its attributes */
    assert_true(attr_float(node, "i", 0) == 0.5);
    assert_int_equal(node->nattrs, 4);
    assert_int_equal(graph.tensors.at[y].producer, id);
}

TEST(test_uses_in_order) {
    const struct graph *graph = golden_graph(&pool, "input %0 \"x\" f32[2]\n"
                                                    "%1 \"y\" = Relu(%0)\n"
                                                    "%2 \"z\" = Mul(%1, %1)\n"
                                                    "%3 \"w\" = Add(%0, %1)\n");
    assert_non_null(graph);
    const struct uses uses = graph_uses(graph, &pool);
    const int expected[] = {0, 2, 1, 1, 2};
    const int first[] = {0, 2, 5, 5, 5};
    assert_memory_equal(uses.users, expected, sizeof expected);
    assert_memory_equal(uses.first, first, sizeof first);
}

TEST(test_places_are_printable) {
    struct graph graph;
    graph_init(&graph, &pool, "m\033.onnx");
    int x = graph_add_tensor(&graph, TENSOR_INPUT, "x", RT_F32, 2, (const int64_t[]){2, 0});
    int y = graph_add_tensor(&graph, TENSOR_VALUE, "y", RT_F32, 0, NULL);
    int id = graph_add_node(&graph, &ops[OP_Relu], "a\nb", 1, &x, 1, &y, 0, NULL);
    assert_string_equal(node_place(&graph, id), "m\\x1b.onnx: node 0 'a\\x0ab' (Relu)");
    assert_string_equal(tensor_type(&pool, &graph.tensors.at[x]), "f32[2,0]");
}

int main(void) {
    return run_all_tests("graph", open_pool, close_pool);
}
