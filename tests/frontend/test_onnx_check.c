/* The structure of a model: what is accepted, and what each defect is called. Rows B of the project's list of bad
 * inputs, as far as they need neither operators nor shapes. */
#include "tests/frontend/onnx_wire.h"

/* A model of a graph from x to y with nodes "Op inputs > outputs", NULL-terminated. */
static struct wire *graph_of(const char *const *nodes) {
    struct wire *graph = graph_io();
    for (; *nodes; nodes++) {
        char op[32];
        const char *rest = strchr(*nodes, ' '), *arrow = strchr(*nodes, '>');
        snprintf(op, sizeof op, "%.*s", (int)(rest - *nodes), *nodes);
        put(graph, NODE, node(op, arena_printf(&pool, "%.*s", (int)(arrow - rest), rest), arrow + 1));
    }
    return graph;
}

#define GRAPH(...) graph_of((const char *const[]){__VA_ARGS__, NULL})

/* A message built by copying `base` and adding what `add` holds. */
static struct wire *with(struct wire *base, unsigned field, const struct wire *add) {
    put(base, field, add);
    return base;
}

static struct wire *versions(int64_t ir, const struct wire *graph) {
    struct wire *w = message();
    if (ir >= 0) put_int(w, 1, ir);
    return graph ? with(w, 7, graph) : w;
}

/* ---- the model ---- */

WIRE_TEST(versions_and_imports) {
    struct wire *nothing = versions(8, NULL);
    refused(nothing, 311, EXIT_MALFORMED, "model has no graph");
    static const int64_t irs[] = {0, 2, 15, 99};
    for (int i = 0; i < 4; i++)
        refused(with(versions(irs[i], graph_relu()), 8, opset("", 17)), 312, EXIT_UNSUPPORTED, "that is supported");
    accepted(with(versions(14, graph_relu()), 8, opset("", 17)));
    refused(with(versions(-1, graph_relu()), 8, opset("", 17)), 312, EXIT_UNSUPPORTED, "the model has no ir_version");
    refused(versions(8, graph_relu()), 314, EXIT_MALFORMED, "no opset_import for the default domain");
    refused(with(versions(8, graph_relu()), 8, opset("com.x", 1)), 314, EXIT_MALFORMED, "no opset_import");
    static const int64_t opsets[] = {0, -1, 999, INT64_MAX};
    for (int i = 0; i < 4; i++)
        refused(with(versions(8, graph_relu()), 8, opset("", opsets[i])), 401, EXIT_UNSUPPORTED, "that is supported");
    struct wire *twice = with(model_of(graph_relu()), 8, opset("ai.onnx", 13));
    refused(twice, 315, EXIT_MALFORMED, "domain 'ai.onnx' is imported twice (17, 13)");
    accepted(with(model_of(graph_relu()), 8, opset("", 17)));
    accepted(with(versions(8, graph_relu()), 8, opset("ai.onnx", 17)));
}

WIRE_TEST(model_without_default_domain) {
    struct wire *adam = node("Adam", "x", "y"), *graph = graph_io();
    put_text(adam, 7, "ai.onnx.preview.training");
    put(graph, NODE, adam);
    accepted(with(versions(8, graph), 8, opset("ai.onnx.preview.training", 1)));
}

WIRE_TEST(graph_without_outputs) {
    struct wire *graph = message();
    put(graph, INPUT, value("x", FLOAT, DIMS(4)));
    put(graph, NODE, node("Relu", "x", "y"));
    refused(model_of(graph), 326, EXIT_MALFORMED, "graph has no outputs");
}

WIRE_TEST(features_that_are_ignored) {
    struct wire *noted = message();
    put_text(noted, 1, "x");
    accepted(model_of(with(graph_relu(), 14, noted)));
}

/* ---- values ---- */

WIRE_TEST(cycles) {
    refused(model_of(GRAPH("Add x b > a", "Relu a > b", "Relu b > y")), 322, EXIT_MALFORMED,
            "cycle: node #0, which reads node #1, which reads node #0");
    refused(model_of(GRAPH("Add x y > y")), 322, EXIT_MALFORMED, "cycle: node #0, which reads node #0");
    struct wire *graph = graph_io();
    for (int i = 0; i < 10000; i++)
        put(graph, NODE, node("Add", arena_printf(&pool, "x v%d", (i + 9999) % 10000), arena_printf(&pool, "v%d", i)));
    put(graph, NODE, node("Relu", "v5", "y"));
    refused(model_of(graph), 322, EXIT_MALFORMED, "... (10000 nodes)");
}

/* The model is accepted, and a remark says that its nodes were sorted: of the first late value, as `text`. */
static struct opened *sorted(const struct wire *w, const char *text) {
    struct opened *o = open_wire(w);
    assert_sound(o);
    assert_int_equal(o->diags.all.n, 1);
    assert_int_equal(o->diags.all.at[0].severity, RT_SEVERITY_NOTE);
    assert_non_null(strstr(o->diags.all.at[0].text, text));
    return o;
}

/* The first outputs of the nodes, and in places the nodes have their index in the file. */
static void assert_order(struct opened *o, Onnx__NodeProto *const *nodes, int n, const char *const *outputs,
                         const int *indices) {
    for (int i = 0; i < n; i++) {
        assert_string_equal(nodes[i]->output[0], outputs[i]);
        assert_int_equal(onnx_node_index(o->model, nodes[i], i), indices[i]);
    }
}

WIRE_TEST(nodes_out_of_order) {
    const struct wire *late = model_of(GRAPH("Relu x > a", "Add d c > y", "Relu a > b", "Relu b > c", "Neg x > d"));
    struct opened *o = sorted(late, "node #1 reads 'd' before node #4 writes it");
    assert_order(o, o->model->proto->graph->node, 5, (const char *const[]){"a", "d", "b", "c", "y"},
                 (const int[]){0, 4, 2, 3, 1});
    assert_non_null(strstr(onnx_where_node(o->model, o->model->proto->graph->node[4], 4), "node 1 (Add)"));
    release(o);
    struct wire *graph = graph_io();
    for (int i = 10000; i >= 0; i--)
        put(graph, NODE, node("Relu", i ? arena_printf(&pool, "v%d", i) : "x", arena_printf(&pool, "v%d", i + 1)));
    put(graph, NODE, node("Relu", "v10001", "y"));
    release(sorted(model_of(graph), "node #0 reads 'v10000' before node #1 writes it"));
}

WIRE_TEST(values_written_twice) {
    refused(model_of(GRAPH("Relu x > y", "Relu x > y")), 321, EXIT_MALFORMED,
            "value 'y' is written by node #0 and node #1");
    refused(model_of(GRAPH("Split x > y y")), 321, EXIT_MALFORMED, "value 'y' is written by node #0 and node #0");
    refused(model_of(GRAPH("Relu x > x", "Relu x > y")), 321, EXIT_MALFORMED,
            "value 'x' is a graph input and written by node #0");
    struct wire *graph = GRAPH("Relu x > w", "Relu x > y");
    put(graph, INITIALIZER, tensor_raw("w", FLOAT, DIMS(1), "1234", 4));
    refused(model_of(graph), 321, EXIT_MALFORMED, "value 'w' is an initializer and written by node #0");
}

WIRE_TEST(values_declared_twice) {
    const struct wire *w = tensor_raw("w", FLOAT, DIMS(1), "1234", 4);
    refused(model_of(with(graph_relu(), INPUT, value("x", FLOAT, DIMS(4)))), 321, EXIT_MALFORMED,
            "input 'x' is given twice");
    accepted(model_of(with(graph_relu(), OUTPUT, value("y", FLOAT, DIMS(4)))));
    refused(model_of(with(with(graph_relu(), INITIALIZER, w), INITIALIZER, w)), 321, EXIT_MALFORMED,
            "initializer 'w' is given twice");
}

WIRE_TEST(values_that_nobody_writes) {
    refused(model_of(GRAPH("Relu zzz > y")), 324, EXIT_MALFORMED, "node #0 Relu input 0 'zzz' is not defined");
    refused(model_of(GRAPH("Relu x > z")), 325, EXIT_MALFORMED, "graph output 'y' is not produced");
}

WIRE_TEST(inputs_without_name) {
    refused(model_of(with(graph_relu(), INPUT, value("", FLOAT, DIMS(4)))), 338, EXIT_MALFORMED, "input 1 has no name");
}

/* What is supported is the importer's to say; the reader accepts every type and can name it. */
WIRE_TEST(types_that_are_not_tensors) {
    static const struct {
        unsigned field;
        const char *text;
    } kinds[] = {{4, "sequence(tensor)"}, {5, "map"}, {8, "sparse_tensor"}, {9, "optional(tensor)"}};
    for (int i = 0; i < 4; i++) {
        struct wire *element = with(message(), 1, message());
        struct wire *kind = kinds[i].field == 4 || kinds[i].field == 9 ? with(message(), 1, element) : message();
        struct wire *info = message();
        put_text(info, 1, "s");
        put(info, 2, with(message(), kinds[i].field, kind));
        struct opened *o = open_wire(model_of(with(graph_relu(), INPUT, info)));
        assert_sound(o);
        assert_string_equal(onnx_type_text(o->model, o->model->proto->graph->input[1]->type), kinds[i].text);
        release(o);
    }
}

WIRE_TEST(initializer_unlike_its_input) {
    struct wire *graph = graph_relu(), *fits = graph_relu();
    put(graph, INPUT, value("w", FLOAT, DIMS(2)));
    put(graph, INITIALIZER, tensor_raw("w", FLOAT, DIMS(1), "1234", 4));
    refused(model_of(graph), 342, EXIT_MALFORMED, "initializer 'w' has another type");
    put(fits, INPUT, value("w", FLOAT, DIMS(INT64_MAX)));
    put(fits, INITIALIZER, tensor_raw("w", FLOAT, DIMS(1), "1234", 4));
    accepted(model_of(fits));
}

/* ---- subgraphs ---- */

/* y = If(x) with a branch from outer values to `output`. */
static struct wire *model_if(const struct wire *branch, const char *const *before, const char *const *after) {
    struct wire *graph = graph_io(), *attribute = message(), *holder = node("If", "x", "y");
    put_text(attribute, 1, "then_branch");
    put(attribute, 6, branch);
    put(holder, 5, attribute);
    for (; before && *before; before++) put(graph, NODE, node("Relu", "x", *before));
    put(graph, NODE, holder);
    for (; after && *after; after++) put(graph, NODE, node("Relu", "x", *after));
    return model_of(graph);
}

static struct wire *branch_reading(const char *inputs) {
    struct wire *branch = message();
    put(branch, NODE, node("Neg", inputs, "r"));
    put(branch, OUTPUT, value("r", FLOAT, DIMS(4)));
    return branch;
}

WIRE_TEST(subgraphs_see_outer_values) {
    accepted(model_if(branch_reading("x"), NULL, NULL));
    accepted(model_if(branch_reading("a"), (const char *const[]){"a", NULL}, NULL));
    refused(model_if(branch_reading("a"), NULL, NULL), 324, EXIT_MALFORMED, "input 0 'a' is not defined");
    struct opened *o = sorted(model_if(branch_reading("a"), NULL, (const char *const[]){"a", NULL}),
                              "node #0 reads 'a' before node #1 writes it");
    assert_order(o, o->model->proto->graph->node, 2, (const char *const[]){"a", "y"}, (const int[]){1, 0});
    release(o);
    struct wire *branch = message();
    put(branch, NODE, node("Neg", "s", "r"));
    put(branch, NODE, node("Relu", "x", "s"));
    put(branch, OUTPUT, value("r", FLOAT, DIMS(4)));
    o = sorted(model_if(branch, NULL, NULL), "node #0 reads 's' before node #1 writes it");
    assert_order(o, o->model->proto->graph->node[0]->attribute[0]->g->node, 2, (const char *const[]){"s", "r"},
                 (const int[]){1, 0});
    release(o);
    refused(model_if(branch_reading("y"), NULL, NULL), 322, EXIT_MALFORMED, "cycle: node #0");
    struct wire *empty = message();
    put(empty, OUTPUT, value("q", FLOAT, DIMS(4)));
    refused(model_if(empty, NULL, NULL), 325, EXIT_MALFORMED, "graph output 'q' is not produced");
}

WIRE_TEST(places_name_the_subgraph) {
    struct wire *branch = branch_reading("a");
    put_text(branch, 2, "body");
    struct opened *o = open_wire(model_if(branch, NULL, NULL));
    assert_non_null(strstr(only_error(o)->where, "model.onnx: subgraph 'body': node 0 (Neg)"));
    release(o);
}

/* ---- nodes and attributes ---- */

static struct wire *model_with_attributes(int count, struct wire *const *attributes) {
    struct wire *relu = node("Relu", "x", "y");
    for (int i = 0; i < count; i++) put(relu, 5, attributes[i]);
    return model_of(with(graph_io(), NODE, relu));
}

static struct wire *attribute(const char *name, int type) {
    struct wire *w = message();
    put_text(w, 1, name);
    if (type) put_int(w, 20, type);
    return w;
}

static struct wire *attribute_int(const char *name, int type, unsigned field) {
    struct wire *w = attribute(name, type);
    put_int(w, field, 1);
    return w;
}

#define ATTRIBUTES(...)                                                                                                \
    model_with_attributes((int)(sizeof(struct wire *[]){__VA_ARGS__} / sizeof(struct wire *)),                         \
                          (struct wire *const[]){__VA_ARGS__})

WIRE_TEST(op_types) {
    refused(model_of(with(graph_io(), NODE, node("", "x", "y"))), 311, EXIT_MALFORMED, "node #0 has no op_type");
    refused(model_of(with(graph_io(), NODE, node("Re\xfflu", "x", "y"))), 313, EXIT_MALFORMED, "not UTF-8");
    struct wire *graph = message();
    put(graph, INPUT, value("x\xff", FLOAT, DIMS(4)));
    put(graph, OUTPUT, value("y", FLOAT, DIMS(4)));
    put(graph, NODE, node("Relu", "x\xff", "y"));
    accepted(model_of(graph)); /* A16: names need not be UTF-8 */
}

WIRE_TEST(attributes_given_twice) {
    refused(ATTRIBUTES(attribute_int("k", 2, 3), attribute_int("j", 2, 3), attribute_int("k", 2, 3)), 333,
            EXIT_MALFORMED, "attribute 'k' is given twice");
    struct wire *many[41];
    for (int i = 0; i < 41; i++) many[i] = attribute_int(arena_printf(&pool, "a%d", i % 40), 2, 3);
    refused(model_with_attributes(41, many), 333, EXIT_MALFORMED, "attribute 'a0' is given twice");
    refused(ATTRIBUTES(attribute_int("", 2, 3)), 334, EXIT_MALFORMED, "has no name");
}

WIRE_TEST(attribute_types_and_values) {
    struct wire *float_as_ints = attribute("k", 7), *two = attribute_int("k", 2, 3);
    put_float(float_as_ints, 2, 1);
    put_float(two, 2, 1);
    refused(ATTRIBUTES(float_as_ints), 335, EXIT_MALFORMED, "its value does not have its declared type INTS");
    refused(ATTRIBUTES(two), 335, EXIT_MALFORMED, "more than one value");
    refused(ATTRIBUTES(attribute("k", 0)), 335, EXIT_MALFORMED, "neither type nor value");
    refused(ATTRIBUTES(attribute("k", 4)), 335, EXIT_MALFORMED, "it has no TENSOR");
    refused(ATTRIBUTES(attribute_int("k", 99, 3)), 335, EXIT_MALFORMED, "unknown attribute type 99");
    accepted(ATTRIBUTES(attribute("k", 7), attribute("i", 2), attribute("s", 3)));
    struct opened *o = open_wire(ATTRIBUTES(attribute_int("k", 0, 3)));
    assert_sound(o);
    assert_int_equal(o->model->proto->graph->node[0]->attribute[0]->type, 2); /* told by the value */
    release(o);
}

WIRE_TEST(references_outside_a_function) {
    struct wire *reference = attribute("k", 2);
    put_text(reference, 21, "alpha");
    refused(ATTRIBUTES(reference), 337, EXIT_MALFORMED, "'k' refers to 'alpha', but is not in a function");
}

/* ---- functions ---- */

/* A function my::name(a) -> b. */
static struct wire *function(const char *name, int count, struct wire *const *nodes) {
    struct wire *w = message();
    put_text(w, 1, name);
    put_text(w, 4, "a");
    put_text(w, 5, "b");
    put_text(w, 10, "my");
    put(w, 9, opset("", 17));
    for (int i = 0; i < count; i++) put(w, 7, nodes[i]);
    return w;
}

static struct wire *call(const char *name, const char *inputs, const char *outputs) {
    struct wire *w = node(name, inputs, outputs);
    put_text(w, 7, "my");
    return w;
}

#define FUNCTION(name, ...)                                                                                            \
    function(name, (int)(sizeof(struct wire *[]){__VA_ARGS__} / sizeof(struct wire *)),                                \
             (struct wire *const[]){__VA_ARGS__})

static struct wire *model_calling(const char *name) {
    struct wire *w = model_of(with(graph_io(), NODE, call(name, "x", "y")));
    return with(w, 8, opset("my", 1));
}

WIRE_TEST(functions_are_accepted) {
    struct wire *reference = attribute("k", 2), *body = node("Relu", "a", "b");
    put_text(reference, 21, "alpha");
    put(body, 5, reference);
    accepted(with(model_calling("F"), 25, FUNCTION("F", body)));
    struct opened *o =
        sorted(with(model_calling("F"), 25, FUNCTION("F", node("Neg", "c", "b"), node("Relu", "a", "c"))),
               "node #0 reads 'c' before node #1 writes it");
    assert_order(o, o->model->proto->functions[0]->node, 2, (const char *const[]){"c", "b"}, (const int[]){1, 0});
    release(o);
    refused(with(model_calling("F"), 25, FUNCTION("F", node("Add", "a c", "b"), node("Relu", "b", "c"))), 322,
            EXIT_MALFORMED, "cycle: node #0, which reads node #1, which reads node #0");
}

WIRE_TEST(functions_that_call_themselves) {
    refused(with(model_calling("F"), 25, FUNCTION("F", call("F", "a", "b"))), 327, EXIT_MALFORMED,
            "function my::F calls itself");
    struct wire *w = with(model_calling("F"), 25, FUNCTION("F", call("G", "a", "b")));
    refused(with(w, 25, FUNCTION("G", call("F", "a", "b"))), 327, EXIT_MALFORMED, "calls itself through my::");
}

WIRE_TEST(functions_that_explode) {
    struct wire *w = model_calling("f0");
    for (int i = 0; i < 30; i++) {
        const char *next = arena_printf(&pool, "f%d", i + 1);
        put(w, 25, FUNCTION(arena_printf(&pool, "f%d", i), call(next, "a", "m"), call(next, "m", "b")));
    }
    put(w, 25, FUNCTION("f30", node("Relu", "a", "b")));
    refused(w, 504, EXIT_LIMIT, "expansion of functions exceeds");
}

WIRE_TEST(functions_that_are_wrong) {
    refused(with(model_calling("F"), 25, FUNCTION("F", node("Relu", "q", "b"))), 328, EXIT_MALFORMED,
            "'q' is not defined");
    refused(with(model_calling("F"), 25, FUNCTION("F", node("Relu", "a", "c"))), 328, EXIT_MALFORMED,
            "output 'b' is not produced");
    struct wire *twice = with(model_calling("F"), 25, FUNCTION("F", node("Relu", "a", "b")));
    refused(with(twice, 25, FUNCTION("F", node("Neg", "a", "b"))), 328, EXIT_MALFORMED,
            "function my::F is defined twice");
}

/* ---- many errors, many nodes ---- */

WIRE_TEST(errors_are_collected_up_to_a_bound) {
    struct wire *graph = graph_relu(), *more = graph_relu();
    for (int i = 0; i < 30; i++) {
        put(more, NODE, node("Relu", arena_printf(&pool, "absent%d", i), arena_printf(&pool, "v%d", i)));
        if (i < 3) put(graph, NODE, node("Relu", arena_printf(&pool, "absent%d", i), arena_printf(&pool, "v%d", i)));
    }
    struct opened *o = open_wire(model_of(graph));
    assert_int_equal(o->diags.errors, 3);
    release(o);
    o = open_wire(model_of(more));
    assert_int_equal(o->diags.errors, CHECK_ERRORS);
    assert_string_equal(o->diags.all.at[CHECK_ERRORS - 1].notes.at[0], "note: 10 more errors");
    release(o);
}

WIRE_TEST(names_are_printable_in_errors) {
    struct opened *o = open_wire(model_of(GRAPH("Relu \x1b]0;evil\x07 > y")));
    assert_non_null(strstr(only_error(o)->text, "'\\x1b]0;evil\\x07'"));
    release(o);
}

static struct wire *chain(int count) {
    struct wire *graph = message();
    put(graph, INPUT, value("v0", FLOAT, DIMS(4)));
    put(graph, OUTPUT, value(arena_printf(&pool, "v%d", count), FLOAT, DIMS(4)));
    for (int i = 0; i < count; i++) {
        char names[2][16];
        snprintf(names[0], sizeof names[0], "v%d", i);
        snprintf(names[1], sizeof names[1], "v%d", i + 1);
        put(graph, NODE, node("Relu", names[0], names[1]));
    }
    return model_of(graph);
}

WIRE_TEST(long_chains_and_wide_nodes) {
    accepted(chain(100000));
    struct wire *wide = node("Sum", "", "y"), *fan = graph_io();
    for (int i = 0; i < 1000000; i++) put_text(wide, 1, "x");
    accepted(model_of(with(graph_io(), NODE, wide)));
    for (int i = 0; i < 100000; i++) put(fan, NODE, node("Relu", "x", ""));
    put(fan, NODE, node("Relu", "x", "y"));
    accepted(model_of(fan));
}

WIRE_TEST(more_nodes_than_the_limit) {
    struct wire *graph = graph_io();
    static const char relu[] = "\x0a\x12\x0a\x01x\x22\x04Relu\x32\x07ignored"; /* a node with a doc string */
    for (int i = 0; i <= ONNX_NODES; i++) put_bytes(graph, relu, sizeof relu - 1);
    refused(model_of(graph), 504, EXIT_LIMIT, "more than 1048576 nodes");
}

/* Names and arrangements that look odd and are valid. */
WIRE_TEST(odd_but_valid_models) {
    struct wire *odd = message();
    put(odd, INPUT, value("0/a:b.c-d", FLOAT, DIMS(0, 4)));
    put(odd, INPUT, value("unused", FLOAT, SCALAR));
    put(odd, INITIALIZER, tensor_raw("int", FLOAT, SCALAR, "1234", 4));
    put(odd, INITIALIZER, tensor("nothing", FLOAT, DIMS(0)));
    put(odd, OUTPUT, value("while", FLOAT, DIMS(0, 4)));
    put(odd, OUTPUT, value("int", FLOAT, SCALAR));
    put(odd, OUTPUT, value("unused", FLOAT, SCALAR));
    struct wire *clip = node("Clip", "0/a:b.c-d - int", "while"), *again = node("Neg", "while", "- z");
    put_text(clip, 3, "same name");
    put_text(again, 3, "same name");
    put_text(again, 6, "a doc string \x01");
    put(odd, NODE, clip);
    put(odd, NODE, again);
    accepted(with(with(model_of(odd), 8, opset("ai.onnx.preview.training", 1)), 14, entry("k", "v")));
    struct wire *through = message(); /* B16: a graph without nodes */
    put(through, INPUT, value("x", FLOAT, DIMS(4)));
    put(through, OUTPUT, value("x", FLOAT, DIMS(4)));
    accepted(model_of(through));
}

/* Training graphs read the values of the main graph. */
WIRE_TEST(training_graphs_see_the_model) {
    struct wire *info = message(), *bad = message();
    put(info, 2, branch_reading("y"));
    accepted(with(model_of(graph_relu()), 20, info));
    put(bad, 2, branch_reading("absent"));
    refused(with(model_of(graph_relu()), 20, bad), 324, EXIT_MALFORMED, "'absent' is not defined");
}

int main(void) {
    return run_all_tests("onnx_check", NULL, NULL);
}
