/* Reading ONNX files: what a good model gives, and how files, framing, tensors and external data go wrong. The rows
 * are those of the project's list of bad inputs: A files, C tensors, D external data. */
#include "tests/frontend/onnx_wire.h"

#include <dirent.h>
#include <math.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static void assert_tensor(struct opened *o, int index, struct onnx_tensor *out) {
    assert_sound(o);
    assert_int_equal(onnx_tensor(o->model, o->model->proto->graph->initializer[index], NULL, out), 0);
}

/* ---- good models ---- */

WIRE_TEST(raw_data_stays_in_the_file) {
    const float raw[4] = {1, -0.0f, 1e-40f, NAN};
    const struct wire *w = model_with(tensor_raw("w", FLOAT, DIMS(2, 2), raw, sizeof raw));
    struct opened *o = open_wire(w);
    struct onnx_tensor t;
    assert_tensor(o, 0, &t);
    assert_int_equal(t.dtype, RT_F32);
    assert_int_equal(t.ndim, 2);
    assert_int_equal(t.dims[1], 2);
    assert_int_equal(t.bytes, 16);
    assert_true(t.in_file);
    assert_int_equal(t.file, 0);
    assert_string_equal(t.name, "w");
    assert_memory_equal(t.data, raw, sizeof raw); /* C12: bits as they are */
    assert_memory_equal(w->data.at + t.offset, raw, sizeof raw);
    assert_int_equal(o->model->files.at[0].bytes, w->data.n);
    release(o);
}

WIRE_TEST(large_payload_is_no_part_of_the_tree) {
    enum { BYTES = 1 << 20 };
    struct opened *o = open_wire(model_with(tensor_raw("w", 2, DIMS(BYTES), ARENA_ARRAY(&pool, char, BYTES), BYTES)));
    assert_sound(o);
    assert_true(o->arena.used < 200000);
    release(o);
}

WIRE_TEST(typed_data_is_decoded) {
    struct wire *f = tensor("f", FLOAT, DIMS(2)), *i = tensor("i", INT64, DIMS(3)), *h = tensor("h", FLOAT16, DIMS(2));
    put_data(f, 4, (const float[]){1.5f, -2}, 8);
    struct wire *packed = message(), *halves = message();
    put_varint(packed, 7);
    put_varint(packed, (uint64_t)-1);
    put_varint(packed, (uint64_t)INT64_MIN);
    put(i, 7, packed);
    put_varint(halves, 0x3c00);
    put_varint(halves, 0xffff);
    put(h, 5, halves);
    struct wire *graph = graph_relu();
    put(graph, INITIALIZER, f);
    put(graph, INITIALIZER, i);
    put(graph, INITIALIZER, h);
    struct opened *o = open_wire(model_of(graph));
    struct onnx_tensor t;
    assert_tensor(o, 0, &t);
    assert_true(t.in_file); /* packed floats are as raw data would be */
    assert_memory_equal(t.data, ((const float[]){1.5f, -2}), 8);
    assert_memory_equal(o->model->files.at[0].data + t.offset, ((const float[]){1.5f, -2}), 8);
    assert_tensor(o, 1, &t);
    assert_false(t.in_file);
    assert_memory_equal(t.data, ((const int64_t[]){7, -1, INT64_MIN}), 24);
    assert_tensor(o, 2, &t);
    assert_memory_equal(t.data, ((const uint16_t[]){0x3c00, 0xffff}), 4);
    release(o);
}

WIRE_TEST(data_may_be_unpacked_and_in_pieces) {
    struct wire *f = tensor("f", FLOAT, DIMS(4)), *i = tensor("i", INT32, DIMS(3));
    put_float(f, 4, 1);
    put_float(f, 4, 2);
    put_data(f, 4, (const float[]){3, 4}, 8);
    put_int(i, 5, -5);
    put_int(i, 5, 1 << 30);
    put_text(i, 12, "a doc string between");
    put_int(i, 5, 6);
    struct wire *graph = graph_relu();
    put(graph, INITIALIZER, f);
    put(graph, INITIALIZER, i);
    struct opened *o = open_wire(model_of(graph));
    struct onnx_tensor t;
    assert_tensor(o, 0, &t);
    assert_false(t.in_file);
    assert_memory_equal(t.data, ((const float[]){1, 2, 3, 4}), 16);
    assert_tensor(o, 1, &t);
    assert_memory_equal(t.data, ((const int32_t[]){-5, 1 << 30, 6}), 12);
    release(o);
}

WIRE_TEST(unknown_fields_and_doc_strings_are_dropped) {
    struct wire *w = model_of(graph_relu());
    put_data(w, 6, "\0\xff", 2);
    put_int(w, 999, 5);
    put_float(w, 1000, 5);
    put_text(w, 77777, "unknown");
    put(w, 14, entry("key", "value"));
    accepted(w);
}

WIRE_TEST(model_over_2_gb_is_mapped) {
    const uint64_t bytes = 3ull << 30;
    struct wire *t = tensor("w", 2, DIMS(3ll << 30)), *head = model_of(graph_relu()), *graph = message();
    put_varint(t, 9 << 3 | 2);
    put_varint(t, bytes);
    put_varint(graph, INITIALIZER << 3 | 2);
    put_varint(graph, (uint64_t)t->data.n + bytes);
    put_bytes(graph, t->data.at, (size_t)t->data.n);
    struct wire *w = message(), *inner = graph_relu();
    put_bytes(w, head->data.at, (size_t)(head->data.n - inner->data.n - 2)); /* all but the graph and its header */
    put_varint(w, 7 << 3 | 2);
    put_varint(w, (uint64_t)(inner->data.n + graph->data.n) + bytes);
    put_bytes(w, inner->data.at, (size_t)inner->data.n);
    put_bytes(w, graph->data.at, (size_t)graph->data.n);
    write_file("model.onnx", w->data.at, (size_t)w->data.n);
    const char *path = in_directory("model.onnx");
    assert_int_equal(truncate(path, (off_t)((uint64_t)w->data.n + bytes)), 0); /* sparse: the payload is a hole */
    struct opened *o = open_path(path, false);
    struct onnx_tensor out;
    assert_tensor(o, 0, &out);
    assert_int_equal(out.bytes, bytes);
    assert_int_equal(out.offset, w->data.n);
    assert_int_equal(((const unsigned char *)out.data)[bytes - 1], 0);
    unsigned char byte = 1;
    assert_true(onnx_copy(o->model, 0, out.offset, &byte, 1));
    assert_int_equal(byte, 0);
    assert_int_equal(truncate(path, 4096), 0); /* A18: a page that is gone is an error, not a signal */
    assert_false(onnx_copy(o->model, 0, out.offset + (1u << 30), &byte, 1));
    release(o);
}

/* ---- A: files and framing ---- */

static void assert_path(const char *path, int code, enum exit_code exit, const char *text) {
    assert_error(open_path(path, false), code, exit, text);
}

static void assert_bytes(const void *bytes, size_t count, int code, enum exit_code exit, const char *text) {
    write_file("model.onnx", bytes, count);
    assert_path(in_directory("model.onnx"), code, exit, text);
}

WIRE_TEST(what_is_no_regular_file) {
    assert_path(in_directory("absent.onnx"), 601, EXIT_SYSTEM, "No such file");
    assert_path(directory, 602, EXIT_SYSTEM, "is a directory, not a model file");
    assert_int_equal(mkfifo(in_directory("fifo"), 0600), 0);
    assert_path(in_directory("fifo"), 602, EXIT_SYSTEM, "not a regular file");
    assert_path("/dev/zero", 602, EXIT_SYSTEM, "not a regular file");
}

WIRE_TEST(what_is_not_onnx) {
    static const struct {
        const char *bytes;
        size_t count;
        const char *text;
    } files[] = {
        {"\0", 1, "bad protobuf tag at byte 0"},
        {"This is a text file.\n", 21, "looks like text"},
        {"{\"irVersion\": 8}", 16, "text ONNX is not supported"},
        {"ir_version: 8\ngraph {\n}\n", 24, "text ONNX is not supported"},
        {"\x89PNG\r\n\x1a\n", 8, "looks like a PNG image"},
        {"\x7f"
         "ELF\2\1\1",
         7, "looks like an ELF program"},
        {"PK\3\4\0\0\0\0", 8, "looks like a zip archive"},
        {"GGUF\3\0\0\0", 8, "looks like a GGUF model"},
        {"\x10\0\0\0\0\0\0\0{\"w\":{}}       ", 24, "looks like a safetensors file"},
        {"\x08\x01\x12\x04\x0a\x02\x2a\x00", 8, "looks like a TensorFlow SavedModel"},
        {"\x08\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 14, "bad protobuf tag at byte 2"},
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "more than 10 bytes"},
        {"\x08\x08\x00\x00", 4, "bad protobuf tag at byte 2"},
        {"\x08\x08\x03\x00", 4, "bad protobuf tag at byte 2"},
        {"\x08\x08\x4c\x00", 4, "bad protobuf tag at byte 2"},
        {"\x08\x08\x4e\x00", 4, "bad protobuf tag at byte 2"},
        {"\x08\x08\x4f\x00", 4, "bad protobuf tag at byte 2"},
        {"\x0d\0\0\0\0", 5, "wrong type of field ir_version"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_bytes(files[i].bytes, files[i].count, 302, EXIT_MALFORMED, files[i].text);
    assert_bytes("", 0, 301, EXIT_MALFORMED, "model file is empty");
    assert_bytes("\xb8\x3e\x01", 3, 311, EXIT_MALFORMED, "model has no graph"); /* A19 */
}

WIRE_TEST(lengths_past_the_end) {
    static const uint64_t lengths[] = {100, 1ull << 32, 1ull << 63, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        struct wire *w = message();
        put_int(w, 1, 8);
        put_varint(w, 7 << 3 | 2);
        put_varint(w, lengths[i]);
        put_bytes(w, "abc", 3);
        refused(w, 303, EXIT_MALFORMED, arena_printf(&pool, "field 7 at byte 2 needs %lu bytes, 3 remain", lengths[i]));
    }
}

WIRE_TEST(every_cut_of_a_model) {
    const struct wire *w = model_of(graph_relu());
    for (int n = 1; n < w->data.n; n++) {
        write_file("model.onnx", w->data.at, (size_t)n);
        struct opened *o = open_path(in_directory("model.onnx"), false);
        assert_int_equal(o->status, -1);
        int code = only_error(o)->code;
        assert_true(code == 303 || code == 311); /* 311 where the cut falls between two fields */
        assert_int_equal(diags_exit(&o->diags), EXIT_MALFORMED);
        release(o);
    }
}

WIRE_TEST(trailing_and_doubled_bytes) {
    struct wire *tail = model_of(graph_relu()), *twice = model_of(graph_relu());
    int end = tail->data.n;
    put_bytes(tail, "\xff\xff\xff", 3);
    refused(tail, 302, EXIT_MALFORMED, arena_printf(&pool, "bad protobuf tag at byte %d", end));
    put_bytes(twice, twice->data.at, (size_t)end);
    refused(twice, 321, EXIT_MALFORMED, "graph is given twice");
}

static struct wire *nested(int depth) {
    struct wire *graph = message();
    for (int i = 0; i < depth; i++) {
        struct wire *attribute = message(), *holder = node("If", "", ""), *outer = message();
        put_text(attribute, 1, "g");
        put(attribute, 6, graph);
        put(holder, 5, attribute);
        put(outer, NODE, holder);
        graph = outer;
    }
    put(graph, OUTPUT, value("x", FLOAT, DIMS(4)));
    put(graph, INPUT, value("x", FLOAT, DIMS(4)));
    return model_of(graph);
}

WIRE_TEST(nesting_is_bounded) {
    accepted(nested(64));
    refused(nested(65), 501, EXIT_LIMIT, "subgraph nesting deeper than 64");
    refused(nested(200), 501, EXIT_LIMIT, "subgraph nesting deeper than 64");
    refused(nested(3000), 501, EXIT_LIMIT, "subgraph nesting deeper than 64");
    struct wire *type = message(); /* sequence(sequence(... */
    for (int i = 0; i < 2000; i++) {
        struct wire *sequence = message(), *outer = message();
        put(sequence, 1, type);
        put(outer, 4, sequence);
        type = outer;
    }
    struct wire *info = message(), *graph = graph_relu();
    put_text(info, 1, "s");
    put(info, 2, type);
    put(graph, VALUE_INFO, info);
    refused(model_of(graph), 501, EXIT_LIMIT, "nested deeper");
}

WIRE_TEST(many_empty_messages) {
    struct wire *tensors = message(), *nodes = message();
    for (int i = 0; i < 1000000; i++) {
        put_bytes(tensors, "\x2a\0", 2);
        put_bytes(nodes, "\x0a\0", 2);
    }
    refused(model_of(tensors), 502, EXIT_LIMIT, "MiB of memory");
    refused(model_of(nodes), 311, EXIT_MALFORMED, "node #0 has no op_type");
}

WIRE_TEST(file_of_zeros) {
    write_file("model.onnx", "", 0);
    const char *path = in_directory("model.onnx");
    assert_int_equal(truncate(path, 5ll << 30), 0);
    assert_path(path, 302, EXIT_MALFORMED, "not an ONNX model: bad protobuf tag at byte 0");
}

/* A18: another process cuts the file off again and again. Reading ends in an error or in a sound model. */
WIRE_TEST(file_that_shrinks_while_read) {
    enum { BYTES = 66 << 20 }; /* large enough to be mapped */
    struct wire *t = tensor("w", 2, DIMS(BYTES)), *graph = graph_relu();
    put_data(t, 9, ARENA_ARRAY(&pool, char, BYTES), BYTES);
    put(graph, INITIALIZER, t);
    const struct wire *w = model_of(graph);
    write_file("model.onnx", w->data.at, (size_t)w->data.n);
    const char *path = in_directory("model.onnx");
    pid_t child = fork();
    if (child == 0)
        for (;;) {
            if (truncate(path, 1000) || truncate(path, w->data.n)) _exit(1);
        }
    for (int i = 0; i < 50; i++) {
        struct opened *o = open_path(path, false);
        int code = o->status ? only_error(o)->code : 0;
        assert_true(code == 0 || code == 604 || (code >= 302 && code <= 311));
        release(o);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

WIRE_TEST(names_with_nul) {
    struct wire *n = node("Relu", "x", "y"), *graph = graph_io();
    put_data(n, 3, "a\0b", 3);
    put(graph, NODE, n);
    refused(model_of(graph), 338, EXIT_MALFORMED, "name contains a NUL byte");
}

/* ---- C: tensors ---- */

WIRE_TEST(shapes_that_cannot_be) {
    const char raw[16] = {0};
    refused(model_with(tensor_raw("w", FLOAT, DIMS(1ll << 62, 4), raw, 16)), 351, EXIT_MALFORMED,
            "tensor 'w': element count overflows");
    refused(model_with(tensor_raw("w", FLOAT, DIMS(1ll << 62), raw, 16)), 351, EXIT_MALFORMED, "overflows");
    refused(model_with(tensor_raw("w", FLOAT, DIMS(-1), raw, 4)), 352, EXIT_MALFORMED, "dimension 0 is -1");
    refused(model_with(tensor_raw("w", FLOAT, DIMS(2, INT64_MIN), raw, 4)), 352, EXIT_MALFORMED, "dimension 1 is -9");
    static const int64_t ones[1000] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    refused(model_with(tensor_raw("w", FLOAT, 9, ones, raw, 4)), 506, EXIT_LIMIT, "9 dimensions, at most 8");
    refused(model_with(tensor_raw("w", FLOAT, 1000, ones, raw, 4)), 506, EXIT_LIMIT, "1000 dimensions");
    accepted(model_with(tensor_raw("w", FLOAT, 8, ones, raw, 4)));
}

WIRE_TEST(values_that_cannot_be) {
    struct wire *huge = message(), *graph = graph_relu(), *negative = graph_relu(), *deep = graph_relu();
    put(huge, INPUT, value("x", FLOAT, DIMS(1ll << 40, 1ll << 40)));
    put(huge, OUTPUT, value("x", FLOAT, DIMS(4)));
    refused(model_of(huge), 505, EXIT_LIMIT, "value 'x' needs 4.8e+24 bytes");
    put(graph, INPUT, value("u", FLOAT, DIMS(1ll << 31, 1ll << 31)));
    refused(model_of(graph), 505, EXIT_LIMIT, "value 'u' needs 1.8e+19 bytes");
    put(negative, VALUE_INFO, value("y", FLOAT, DIMS(-1))); /* of any size */
    accepted(model_of(negative));
    put(negative, VALUE_INFO, value("z", FLOAT, DIMS(-1, -2)));
    refused(model_of(negative), 352, EXIT_MALFORMED, "value 'z': dimension 1 is -2");
    static const int64_t ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    put(deep, VALUE_INFO, value("y", FLOAT, 9, ones));
    refused(model_of(deep), 506, EXIT_LIMIT, "value 'y' has 9 dimensions");
}

WIRE_TEST(wrong_amounts_of_data) {
    const char raw[17] = {0};
    refused(model_with(tensor_raw("w", FLOAT, DIMS(4), raw, 15)), 353, EXIT_MALFORMED,
            "'w' FLOAT [4] needs 16 bytes, but has 15");
    refused(model_with(tensor_raw("w", FLOAT, DIMS(4), raw, 17)), 353, EXIT_MALFORMED, "has 17");
    refused(model_with(tensor_raw("w", FLOAT, DIMS(4), raw, 0)), 353, EXIT_MALFORMED, "has 0");
    refused(model_with(tensor("w", FLOAT, SCALAR)), 353, EXIT_MALFORMED, "'w' FLOAT scalar needs 4 bytes, but has 0");
    struct wire *few = tensor("w", FLOAT, DIMS(4)), *many = tensor("w", INT64, DIMS(1)),
                *odd = tensor("w", FLOAT, DIMS(1));
    put_data(few, 4, raw, 12);
    put_data(many, 7, raw, 2);
    put_data(odd, 4, raw, 5);
    refused(model_with(few), 353, EXIT_MALFORMED, "needs 16 bytes, but has 12");
    refused(model_with(many), 353, EXIT_MALFORMED, "needs 8 bytes, but has 16");
    refused(model_with(odd), 302, EXIT_MALFORMED, "bad packed field");
}

WIRE_TEST(data_in_two_places) {
    const char raw[16] = {0};
    struct wire *both = tensor_raw("w", FLOAT, DIMS(4), raw, 16), *twice = tensor_raw("w", FLOAT, DIMS(4), raw, 16);
    struct wire *other = tensor("w", FLOAT, DIMS(4));
    put_data(both, 4, raw, 16);
    refused(model_with(both), 354, EXIT_MALFORMED, "both raw_data and typed data");
    put_data(twice, 9, raw, 16);
    refused(model_with(twice), 354, EXIT_MALFORMED, "raw_data twice");
    put_data(other, 5, raw, 4);
    refused(model_with(other), 354, EXIT_MALFORMED, "does not store FLOAT");
}

/* The error that onnx_tensor gives for a model that opens. */
static void refused_tensor(const struct wire *initializer, int code, enum exit_code exit, const char *text) {
    struct opened *o = open_wire(model_with(initializer));
    struct onnx_tensor t;
    assert_sound(o);
    assert_int_equal(onnx_tensor(o->model, o->model->proto->graph->initializer[0], NULL, &t), -1);
    o->status = exit == EXIT_UNSUPPORTED ? 0 : -1;
    assert_error(o, code, exit, text);
}

static struct wire *int32_data(int type, int64_t element) {
    struct wire *w = tensor("w", type, DIMS(1));
    put_int(w, 5, element);
    return w;
}

WIRE_TEST(elements_out_of_range) {
    refused_tensor(int32_data(FLOAT16, 65536), 355, EXIT_MALFORMED, "value 65536 does not fit FLOAT16");
    refused_tensor(int32_data(2, 256), 355, EXIT_MALFORMED, "does not fit UINT8");
    refused_tensor(int32_data(3, -129), 355, EXIT_MALFORMED, "does not fit INT8");
    refused_tensor(int32_data(INT32, 1ll << 32), 355, EXIT_MALFORMED, "does not fit INT32");
    refused_tensor(int32_data(BOOL, 2), 358, EXIT_MALFORMED, "a BOOL is 0 or 1, not 2");
    refused_tensor(tensor_raw("w", BOOL, DIMS(2), "\1\7", 2), 358, EXIT_MALFORMED, "a BOOL is 0 or 1, not 7");
}

WIRE_TEST(element_types) {
    static const int64_t wrong[] = {0, 99, -1, 1ll << 31};
    for (int i = 0; i < 4; i++) {
        struct wire *w = message();
        put_int(w, 2, wrong[i]);
        put_text(w, 8, "w");
        refused(model_with(w), 356, EXIT_MALFORMED, "unknown element type");
    }
    refused_tensor(tensor_raw("w", COMPLEX64, DIMS(1), "12345678", 8), 407, EXIT_UNSUPPORTED,
                   "dtype COMPLEX64 not supported: 'w'");
    refused_tensor(tensor("w", STRING, SCALAR), 407, EXIT_UNSUPPORTED, "dtype STRING");
    refused_tensor(tensor_raw("w", 15, DIMS(1), "1234567812345678", 16), 407, EXIT_UNSUPPORTED, "dtype COMPLEX128");
}

/* Elements of fewer than 8 bits are packed, the first in the lowest bits. */
WIRE_TEST(packed_elements) {
    struct onnx_tensor t;
    struct opened *o = open_wire(model_with(tensor_raw("w", 22, DIMS(3), "\x21\x03", 2))); /* INT4 */
    assert_tensor(o, 0, &t);
    assert_int_equal(t.dtype, RT_I4);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.bytes, 2);
    assert_int_equal(t.bits, 4);
    unsigned char codes[3];
    rt_unpack(codes, t.data, t.dtype, 0, 3);
    assert_memory_equal(codes, "\1\2\3", 3);
    release(o);
    refused(model_with(tensor_raw("w", 22, DIMS(3), "123", 3)), 353, EXIT_MALFORMED, "needs 2 bytes, but has 3");
    refused(model_with(tensor_raw("w", 28, DIMS(4), "1234", 4)), 353, EXIT_MALFORMED, "needs 3 bytes, but has 4");
}

WIRE_TEST(empty_tensors) {
    struct opened *o = open_wire(model_with(tensor("w", FLOAT, DIMS(1ll << 40, 0, 1ll << 40))));
    struct onnx_tensor t;
    assert_tensor(o, 0, &t);
    assert_int_equal(t.count, 0);
    assert_int_equal(t.bytes, 0);
    release(o);
}

WIRE_TEST(segments_and_names) {
    struct wire *segment = tensor_raw("w", FLOAT, DIMS(1), "1234", 4);
    put(segment, 3, message());
    refused(model_with(segment), 357, EXIT_MALFORMED, "is a segment");
    refused(model_with(tensor_raw(NULL, FLOAT, DIMS(1), "1234", 4)), 357, EXIT_MALFORMED, "an initializer has no name");
}

/* ---- D: external data ---- */

/* A FLOAT [4] with these external_data entries, NULL-terminated pairs. */
static struct wire *external(const char *const *pairs) {
    struct wire *w = tensor("w", FLOAT, DIMS(4));
    for (; *pairs; pairs += 2) put(w, 13, entry(pairs[0], pairs[1]));
    put_int(w, 14, 1);
    return model_with(w);
}

#define EXTERNAL(...) external((const char *const[]){__VA_ARGS__, NULL})

WIRE_TEST(external_data_is_found) {
    const float data[6] = {9, 1, 2, 3, 4, 9};
    assert_int_equal(mkdir(in_directory("sub"), 0700), 0);
    write_file("ok.bin", data, sizeof data);
    write_file("sub/ok.bin", data, sizeof data);
    static const char *const places[] = {"ok.bin", "sub/ok.bin", "./sub/../ok.bin", "sub//ok.bin"};
    for (int i = 0; i < 4; i++) {
        struct opened *o = open_wire(EXTERNAL("location", places[i], "offset", "4", "length", "16"));
        struct onnx_tensor t;
        assert_tensor(o, 0, &t);
        assert_true(t.in_file);
        assert_int_equal(t.file, 1);
        assert_int_equal(t.offset, 4);
        assert_memory_equal(t.data, data + 1, 16);
        assert_string_equal(o->model->files.at[1].location, places[i]);
        assert_int_equal(o->model->files.at[1].bytes, sizeof data);
        release(o);
    }
}

WIRE_TEST(locations_outside) {
    static const char *const places[] = {"../secret",      "sub/../../secret", "/etc/passwd", "file:///etc/passwd",
                                         "http://host/it", "a/./../../b",      "..",          "*/_ORT_MEM_ADDR_/*"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        refused(EXTERNAL("location", places[i]), 361, EXIT_MALFORMED, "is outside of the model's directory");
}

WIRE_TEST(linked_files) {
    write_file("one.bin", "0123456789abcdef", 16);
    assert_int_equal(mkdir(in_directory("real"), 0700), 0);
    write_file("real/two.bin", "0123456789abcdef", 16);
    assert_int_equal(symlink("/etc/passwd", in_directory("outside")), 0);
    assert_int_equal(symlink("one.bin", in_directory("soft.bin")), 0);
    assert_int_equal(symlink("real", in_directory("softdir")), 0);
    refused(EXTERNAL("location", "outside"), 362, EXIT_MALFORMED, "is a symbolic link");
    refused(EXTERNAL("location", "soft.bin"), 362, EXIT_MALFORMED, "is a symbolic link");
    refused(EXTERNAL("location", "softdir/two.bin"), 362, EXIT_MALFORMED, "is a symbolic link");
    assert_int_equal(link(in_directory("one.bin"), in_directory("hard.bin")), 0);
    refused(EXTERNAL("location", "hard.bin"), 363, EXIT_MALFORMED, "more than one hard link");
    static const char *const places[] = {"hard.bin", "soft.bin", "softdir/two.bin"};
    for (int i = 0; i < 3; i++) {
        const struct wire *w = EXTERNAL("location", places[i]);
        write_file("model.onnx", w->data.at, (size_t)w->data.n);
        struct opened *o = open_path(in_directory("model.onnx"), true);
        assert_sound(o);
        release(o);
    }
}

WIRE_TEST(locations_that_are_no_files) {
    assert_int_equal(mkfifo(in_directory("fifo"), 0600), 0);
    assert_int_equal(mkdir(in_directory("sub"), 0700), 0);
    char *longest = ARENA_ARRAY(&pool, char, 5001);
    memset(longest, 'a', 5000);
    const char *const places[] = {"fifo", "sub", ".", "", "sub/..", longest};
    for (int i = 0; i < 6; i++) refused(EXTERNAL("location", places[i]), 364, EXIT_MALFORMED, "external data");
    refused(EXTERNAL("offset", "0"), 364, EXIT_MALFORMED, "has no location");
    refused(EXTERNAL("location", "absent.bin"), 601, EXIT_SYSTEM, "No such file");
    struct wire *w = tensor("w", FLOAT, DIMS(4)), *nul = message();
    put_text(nul, 1, "location");
    put_data(nul, 2, "ok\0.bin", 7);
    put(w, 13, nul);
    put_int(w, 14, 1);
    refused(model_with(w), 364, EXIT_MALFORMED, "NUL");
}

WIRE_TEST(offsets_and_lengths) {
    write_file("ok.bin", "0123456789abcdefghij", 20);
    static const char *const offsets[] = {
        "-1", "abc", "", "0x10", "1e3", "9223372036854775808", "18446744073709551616"};
    for (int i = 0; i < 7; i++)
        refused(EXTERNAL("location", "ok.bin", "offset", offsets[i]), 365, EXIT_MALFORMED, "is not a valid number");
    static const char *const lengths[] = {"-1", "1152921504606846976", "18446744073709551608", "21"};
    for (int i = 0; i < 4; i++)
        refused(EXTERNAL("location", "ok.bin", "offset", "16", "length", lengths[i]), 366, EXIT_MALFORMED,
                "needs more bytes than the file has (20)");
    refused(EXTERNAL("location", "ok.bin", "offset", "5"), 366, EXIT_MALFORMED, "needs more bytes");
    refused(EXTERNAL("location", "ok.bin", "offset", "21", "length", "0"), 366, EXIT_MALFORMED, "needs more bytes");
    refused(EXTERNAL("location", "ok.bin", "length", "12"), 353, EXIT_MALFORMED, "needs 16 bytes, but has 12");
    refused(EXTERNAL("location", "ok.bin", "length", "x"), 365, EXIT_MALFORMED, "length 'x'");
}

WIRE_TEST(external_keys) {
    write_file("ok.bin", "0123456789abcdef", 16);
    refused(EXTERNAL("location", "ok.bin", "evil", "1"), 367, EXIT_MALFORMED, "unknown key 'evil'");
    refused(EXTERNAL("location", "ok.bin", "location", "ok.bin"), 367, EXIT_MALFORMED, "gives location twice");
    struct wire *both = tensor_raw("w", FLOAT, DIMS(4), "0123456789abcdef", 16), *where = tensor("w", FLOAT, DIMS(4));
    put(both, 13, entry("location", "ok.bin"));
    put_int(both, 14, 1);
    refused(model_with(both), 354, EXIT_MALFORMED, "both external data and data in the model");
    put_int(where, 14, 7);
    refused(model_with(where), 364, EXIT_MALFORMED, "unknown data_location 7");
}

/* D15; the digests are those of the SHA-1 standard's examples. */
WIRE_TEST(checksums_of_external_data) {
    write_file("abc.bin", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
    write_file("empty.bin", "", 0);
    static const char right[] = "84983E441C3BD26EBAAE4AA1F95129E5E54670F1",
                      nothing[] = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
    accepted(EXTERNAL("location", "abc.bin", "checksum", right));
    refused(EXTERNAL("location", "abc.bin", "checksum", nothing), 368, EXIT_MISMATCH,
            "checksum of the external data of 'w'");
    refused(EXTERNAL("location", "abc.bin", "checksum", "none"), 368, EXIT_MISMATCH, "not 'none'");
    struct wire *w = tensor("w", FLOAT, DIMS(0));
    put(w, 13, entry("location", "empty.bin"));
    put(w, 13, entry("checksum", nothing));
    put_int(w, 14, 1);
    accepted(model_with(w));
}

WIRE_TEST(external_data_in_an_attribute) {
    struct wire *t = tensor(NULL, FLOAT, DIMS(4)), *attribute = message(), *constant = node("Constant", "", "c");
    put(t, 13, entry("location", "../secret"));
    put_int(t, 14, 1);
    put_text(attribute, 1, "value");
    put(attribute, 5, t);
    put(constant, 5, attribute);
    struct wire *graph = graph_relu();
    put(graph, NODE, constant);
    refused(model_of(graph), 361, EXIT_MALFORMED, "is outside of the model's directory");
}

/* A process that puts `one` in the place of `other` and back, until it is killed. */
static pid_t start_swapping(const char *one, const char *other) {
    pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == 0) {
    }
    _exit(1);
}

/* D18: what was looked at is what is read, whatever lies there a moment later. */
WIRE_TEST(file_that_becomes_a_link_and_back) {
    enum { ROUNDS = 10000 };
    static const char data[] = "0123456789abcdef", secret[] = "secretsecretsecr";
    const struct wire *w = EXTERNAL("location", "w.bin");
    int read = 0, links = 0;
    write_file("model.onnx", w->data.at, (size_t)w->data.n);
    write_file("w.bin", data, 16);
    write_file("secret", secret, 16);
    assert_int_equal(symlink("secret", in_directory("link")), 0);
    pid_t other = start_swapping(in_directory("w.bin"), in_directory("link"));
    assert_true(other > 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct opened *o = open_path(in_directory("model.onnx"), false);
        const struct diagnostic *error = only_error(o);
        struct onnx_tensor t;
        if (!error) {
            assert_tensor(o, 0, &t);
            assert_memory_equal(t.data, data, 16);
        } else if (o->diags.errors != 1 || error->code != 362)
            fail_msg("E%04d: %s", error->code, error->text);
        *(error ? &links : &read) += 1;
        release(o);
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    assert_true(read > 0 && links > 0); /* or nothing was swapped */
}

WIRE_TEST(one_bad_file_is_one_error) {
    struct wire *graph = graph_relu();
    for (int i = 0; i < 50; i++) {
        struct wire *t = tensor(arena_printf(&pool, "w%d", i), FLOAT, DIMS(4));
        put(t, 13, entry("location", "absent.bin"));
        put_int(t, 14, 1);
        put(graph, INITIALIZER, t);
    }
    refused(model_of(graph), 601, EXIT_SYSTEM, "absent.bin");
}

/* ---- memory ---- */

static int open_descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(all)) n++;
    closedir(all);
    return n;
}

/* The status of opening within a budget; 1: it ran out. */
static int open_within(const char *path, size_t budget) {
    struct arena arena;
    struct diags diags;
    jmp_buf failed;
    struct onnx_model *volatile model = NULL;
    volatile int status = 1;
    arena_init(&arena, budget, &failed);
    diags_init(&diags, &arena);
    if (!setjmp(failed)) status = onnx_open(&arena, &diags, path, false, (struct onnx_model **)&model);
    onnx_close(model);
    arena_free(&arena);
    return status;
}

/* H14: wherever the arena runs out, nothing is lost and nothing stays open. */
WIRE_TEST(memory_may_run_out_anywhere) {
    write_file("ok.bin", "0123456789abcdef", 16);
    struct wire *t = tensor("w", FLOAT, DIMS(4)), *body = graph_relu(), *holder = message(),
                *branch = node("If", "x", "z");
    put(t, 13, entry("location", "ok.bin"));
    put_int(t, 14, 1);
    put_text(holder, 1, "then_branch");
    put(holder, 6, graph_relu());
    put(branch, 5, holder);
    put(body, INITIALIZER, t);
    put(body, NODE, branch);
    const struct wire *w = model_of(body);
    write_file("model.onnx", w->data.at, (size_t)w->data.n);
    int before = open_descriptors(), status = 1;
    for (size_t budget = 16; status == 1 && budget < 1u << 20; budget += 16)
        status = open_within(in_directory("model.onnx"), budget);
    assert_int_equal(status, 0);
    assert_int_equal(open_descriptors(), before);
}

/* ---- the ONNX test suite ---- */

static const char suite[] = "/usr/share/libonnx-testdata/data";
static int models, malformed;

static int open_suite_model(const char *path, const struct stat *status, int type, struct FTW *ftw) {
    size_t length = strlen(path);
    if (type != FTW_F || length < 5 || strcmp(path + length - 5, ".onnx") != 0 || ftw->level > 8) return 0;
    struct opened *o = open_path(path, false);
    models++;
    if (o->status || diags_exit(&o->diags) == EXIT_MALFORMED) {
        malformed++;
        print_error("%s: %s\n", path, only_error(o)->text);
    }
    release(o);
    return 0;
}

WIRE_TEST(no_model_of_the_suite_is_malformed) {
    if (access(suite, R_OK)) skip();
    assert_int_equal(nftw(suite, open_suite_model, 16, FTW_PHYS), 0);
    assert_int_equal(malformed, 0);
    assert_true(models > 1000);
}

int main(void) {
    return run_all_tests("onnx_read", NULL, NULL);
}
