/* The text IR: round trips, the canonical form, and what is said of bad texts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/dims.h"
#include "ir/number.h"
#include "ir/op.h"
#include "ir/text.h"
#include "tests/ir/golden.h"
#include "tests/ir/random.h"
#include "tests/test.h"

static struct golden golden;

static struct graph *parse(struct arena *arena, const char *text, struct diags *diags) {
    struct graph *graph = NULL;
    diags_init(diags, arena);
    if (text_parse(arena, diags, "t.rir", text, strlen(text), &graph) < 0) return NULL;
    return graph;
}

static const char *printed_again(struct arena *arena, const char *text) {
    struct diags diags;
    const struct graph *graph = parse(arena, text, &diags);
    return graph ? text_print(arena, graph) : golden_diags(arena, &diags);
}

/* The canonical form, which must give itself back. */
static const char *canonical(struct arena *arena, const char *text) {
    const char *once = printed_again(arena, text);
    assert_string_equal(printed_again(arena, once), once);
    return once;
}

static const char *errors_of(struct arena *arena, const char *text) {
    struct diags diags;
    if (*text == '!')
        text++;
    else
        text = arena_printf(arena, "rankc-ir 1\ngraph \"g\" level=TYPED\n%s", text);
    return parse(arena, text, &diags) ? "no error\n" : golden_diags(arena, &diags);
}

TEST(test_canonical_form) {
    assert_int_equal(golden_run(&golden, "tests/ir/text_round.txt", canonical), 0);
}

TEST(test_errors) {
    assert_int_equal(golden_run(&golden, "tests/ir/text_errors.txt", errors_of), 0);
}

static void round_trip_case(const char *name, const char *statements) {
    struct arena arena;
    arena_init(&arena, 0, NULL);
    const struct graph *graph = golden_graph(&arena, statements);
    assert_non_null(graph);
    const char *text = text_print(&arena, graph);
    assert_string_equal(printed_again(&arena, text), text);
    arena_free(&arena);
}

TEST(test_every_row_round_trips) {
    golden_each(&golden, "tests/dims/elementwise.txt", round_trip_case);
    golden_each(&golden, "tests/dims/contract.txt", round_trip_case);
    golden_each(&golden, "tests/dims/conv.txt", round_trip_case);
    golden_each(&golden, "tests/dims/attention.txt", round_trip_case);
    golden_each(&golden, "tests/dims/move.txt", round_trip_case);
}

/* Random graphs ------------------------------------------------------------------------------------------------ */

static const char *random_name(struct arena *arena, struct random *random) {
    int length = 1 + (int)random_below(random, 6);
    char *name = arena_alloc(arena, (size_t)length + 1, 1);
    for (int i = 0; i < length; i++) name[i] = (char)(1 + random_below(random, 255));
    return name;
}

/* Cuts of one dimension nest in the order of the axes or against it. */
static void random_layout(struct graph *graph, struct random *random, struct tensor *tensor) {
    const bool turned = random_below(random, 2);
    for (int i = 0; i < graph->mesh.naxes; i++) {
        const int a = turned ? graph->mesh.naxes - 1 - i : i;
        struct placement placement = {PLACED_WHOLE};
        switch (random_below(random, 4)) {
        case 0:
            placement = (struct placement){.kind = PLACED_PARTIAL, .reduce = (enum rt_reduce)random_below(random, 3)};
            break;
        case 1:
            if (!tensor->ndim) break;
            int dim = (int)random_below(random, tensor->ndim);
            int64_t grain = tensor->dims[dim] % 2 ? 1 : 2;
            placement = (struct placement){
                .kind = PLACED_PART, .dim = dim, .blocks = tensor->dims[dim] / grain, .grain = grain};
            break;
        case 2:
            if (!tensor->ndim) break;
            placement = (struct placement){.kind = PLACED_WINDOW,
                                           .dim = (int)random_below(random, tensor->ndim),
                                           .blocks = 1,
                                           .grain = 3,
                                           .reach = {.positions = 3 * (1 + random_below(random, 9)),
                                                     .stride = 1 + random_below(random, 4),
                                                     .before = random_below(random, 9) - 4,
                                                     .span = 1 + random_below(random, 5)}};
            break;
        default: break;
        }
        layout_place(graph->arena, &tensor->layout, a, placement);
    }
}

static void random_splits(struct graph *graph, struct random *random, struct node *node) {
    struct dims dims;
    const char *why;
    assert_int_equal(dims_bind(graph->arena, graph, node, &dims, &why), 0);
    for (int a = 0; a < graph->mesh.naxes && dims.nfactors; a++) {
        if (random_below(random, 2)) continue;
        int factor = (int)random_below(random, dims.nfactors);
        const struct node_split split = {.factor = (int16_t)factor, .blocks = 1, .grain = dims.factor[factor].extent};
        dims_nest(node->split, graph->mesh.naxes, a, &split);
    }
}

static int random_tensor(struct graph *graph, struct random *random) {
    static const int64_t dims[] = {3, 4, 2};
    enum rt_dtype dtype = (enum rt_dtype)random_below(random, RT_DTYPE_COUNT);
    int kind = (int)random_below(random, 3), ndim = (int)random_below(random, 4);
    const char *name = random_name(graph->arena, random);
    unsigned char bytes[24 * 8];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] =
            dtype == RT_BOOL
                ? (unsigned char)random_below(random, 2)
                : (unsigned char)random_below(random, rt_dtype_bits(dtype) < 8 ? 1 << rt_dtype_bits(dtype) : 256);
    if (kind == 0) return graph_add_const(graph, name, dtype, ndim, dims, bytes);
    int id = graph_add_tensor(graph, kind == 1 ? TENSOR_WEIGHT : TENSOR_INPUT, name, dtype, ndim, dims);
    if (kind == 2)
        VEC_PUSH(graph->arena, &graph->inputs, id);
    else
        graph->tensors.at[id].stored = (struct stored){(int)random_below(random, 3) - 1, 77, RT_F16};
    random_layout(graph, random, &graph->tensors.at[id]);
    return id;
}

static struct attr random_attr(struct graph *graph, struct random *random, int i) {
    const char *key = arena_printf(graph->arena, "a%d", i);
    uint64_t bits = random_bits(random);
    int64_t *ints = ARENA_ARRAY(graph->arena, int64_t, 3);
    double number;
    memcpy(&number, &bits, sizeof number);
    for (int k = 0; k < 3; k++) ints[k] = (int64_t)random_bits(random);
    switch (random_below(random, 4)) {
    case 0: return attr_of_int(key, (int64_t)bits);
    case 1: return attr_of_float(key, random_below(random, 2) ? number : (double)random_below(random, 1000));
    case 2: return attr_of_ints(key, (int)random_below(random, 4), ints);
    default: return attr_of_text(key, random_name(graph->arena, random));
    }
}

static void random_node(struct graph *graph, struct random *random, struct diags *diags) {
    static const enum op_id some[] = {OP_Neg, OP_Sign, OP_Add, OP_Concat, OP_Max, OP_AllGather};
    const struct op *op = &ops[some[random_below(random, 6)]];
    int x = (int)random_below(random, graph->tensors.n), inputs[] = {x, x}, out;
    int ninputs = op->types[1] == '-' ? 1 : 2, nattrs = (int)random_below(random, 4);
    struct attr attrs[4];
    for (int i = 0; i < nattrs; i++) attrs[i] = random_attr(graph, random, i);
    if (op->id == OP_Concat) attrs[nattrs++] = attr_of_int("axis", 0);
    if (op->id == OP_Concat && !graph->tensors.at[x].ndim) return;
    if (!op_takes(op, graph->tensors.at[x].dtype)) return;
    out = graph_add_tensor(graph, TENSOR_VALUE, random_name(graph->arena, random), RT_F32, 0, NULL);
    int node = graph_add_node(graph, op, random_below(random, 3) ? random_name(graph->arena, random) : "", ninputs,
                              inputs, 1, &out, nattrs, attrs);
    assert_int_equal(op_infer(graph, node, diags), 0);
    random_layout(graph, random, &graph->tensors.at[out]);
    random_splits(graph, random, &graph->nodes.at[node]);
    graph->nodes.at[node].stage = (int)random_below(random, 3);
}

static void random_graph(struct graph *graph, struct arena *arena, struct random *random) {
    static const struct mesh meshes[] = {{0}, {1, {{"tensor", 2}}}, {4, {{"a", 2}, {"b_2", 1}, {"C", 3}, {"d", 5}}}};
    struct diags diags;
    diags_init(&diags, arena);
    graph_init(graph, arena, random_name(arena, random));
    graph->level = (enum level)random_below(random, LEVELS);
    graph->train = random_below(random, 2);
    graph->mesh = meshes[random_below(random, 3)];
    for (int i = 0; i < 4; i++) random_tensor(graph, random);
    for (int i = 0; i < 12; i++) random_node(graph, random, &diags);
    for (int i = 0; i < 3; i++) {
        VEC_PUSH(arena, &graph->outputs, (int)random_below(random, graph->tensors.n));
        VEC_PUSH(arena, &graph->output_names, random_name(arena, random));
    }
    for (int t = 0; t < graph->tensors.n; t++)
        if (graph->tensors.at[t].kind == TENSOR_WEIGHT) VEC_PUSH(arena, &graph->updates, (struct update){t, t});
}

TEST(test_random_graphs_round_trip) {
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct random random = {seed};
        struct arena arena;
        struct graph graph;
        arena_init(&arena, 0, NULL);
        random_graph(&graph, &arena, &random);
        const char *text = text_print(&arena, &graph);
        assert_string_equal(printed_again(&arena, text), text);
        arena_free(&arena);
    }
}

/* Cutting a text anywhere must give an error or a graph, and nothing worse. */
TEST(test_truncated_texts) {
    struct random random = {7};
    struct arena arena;
    struct graph graph;
    arena_init(&arena, 0, NULL);
    random_graph(&graph, &arena, &random);
    const char *text = text_print(&arena, &graph);
    for (size_t length = 0; length < strlen(text); length++) {
        struct arena own;
        struct diags diags;
        struct graph *out;
        arena_init(&own, 0, NULL);
        diags_init(&diags, &own);
        char *piece = malloc(length + 1); /* of just that size, so that memory tools see a read beyond it */
        memcpy(piece, text, length);
        text_parse(&own, &diags, "t", piece, length, &out);
        free(piece);
        arena_free(&own);
    }
    arena_free(&arena);
}

/* Numbers ------------------------------------------------------------------------------------------------------ */

TEST(test_numbers_round_trip) {
    struct random random = {11};
    for (int t = 0; t < RT_DTYPE_COUNT; t++)
        for (int i = 0; i < 3000; i++) {
            uint64_t bits = random_bits(&random), again = 0;
            char text[NUMBER_TEXT];
            if (t == RT_BOOL) bits &= 1;
            if (rt_dtype_bits((enum rt_dtype)t) < 8) bits &= (1u << rt_dtype_bits((enum rt_dtype)t)) - 1;
            number_print(text, (enum rt_dtype)t, &bits);
            assert_true(number_parse(text, (enum rt_dtype)t, &again));
            assert_memory_equal(&again, &bits, rt_dtype_bytes((enum rt_dtype)t));
        }
}

TEST(test_every_half_round_trips) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits, again;
        char text[NUMBER_TEXT];
        number_print(text, RT_F16, &half);
        assert_true(number_parse(text, RT_F16, &again) && again == half);
        number_print(text, RT_BF16, &half);
        assert_true(number_parse(text, RT_BF16, &again) && again == half);
    }
}

TEST(test_numbers_are_short) {
    static const struct {
        double value;
        const char *f32, *f64;
    } rows[] = {{0.1, "0.1", "0.1"},          {-0.0, "-0", "-0"},      {1.0 / 3, "0.33333334", "0.3333333333333333"},
                {999999, "999999", "999999"}, {1e6, "1e+06", "1e+06"}, {INFINITY, "inf", "inf"},
                {-INFINITY, "-inf", "-inf"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[NUMBER_TEXT];
        float single = (float)rows[i].value;
        number_print(text, RT_F32, &single);
        assert_string_equal(text, rows[i].f32);
        number_print(text, RT_F64, &rows[i].value);
        assert_string_equal(text, rows[i].f64);
    }
}

TEST(test_texts_that_are_no_numbers) {
    static const char *const bad[] = {"",       "-",       "+",    ".",        "e5", "1e", "0x1", "1_0",  "nan:",
                                      "nan:0x", "nan:0x0", "nanx", "infinity", "1 ", " 1", "--1", "1e999"};
    unsigned char bits[8];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(number_parse(bad[i], RT_F32, bits));
        assert_false(number_parse(bad[i], RT_I64, bits));
        assert_false(number_parse(bad[i], RT_U8, bits));
    }
}

int main(int argc, char **argv) {
    golden = golden_options(argc, argv);
    return run_all_tests("text", NULL, NULL);
}
