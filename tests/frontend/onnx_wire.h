/* Small ONNX files for tests, written field by field in the protobuf wire format, and what reading one gives.
 *
 * Field numbers are those of frontend/read/onnx.proto. All memory is the pool's; wire_setup and wire_teardown are the
 * fixture of every test.
 */
#ifndef TESTS_ONNX_WIRE_H
#define TESTS_ONNX_WIRE_H

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/read/onnx_check.h"
#include "frontend/read/onnx_read.h"
#include "tests/frontend/wire.h"
#include "tests/test.h"

enum { FLOAT = 1, INT32 = 6, INT64 = 7, STRING = 8, BOOL = 9, FLOAT16 = 10, COMPLEX64 = 14 };

static struct arena pool;
static char directory[64]; /* of the test: model.onnx and its external data */

static inline struct wire *message(void) {
    return wire_new(&pool);
}

/* ---- ONNX ---- */

/* Inputs and outputs are lists of names separated by blanks; "-" is the empty name. */
static inline void put_names(struct wire *w, unsigned field, const char *names) {
    char *copy = arena_strdup(&pool, names), *rest;
    for (char *name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        put_text(w, field, strcmp(name, "-") == 0 ? "" : name);
}

static inline struct wire *node(const char *op, const char *inputs, const char *outputs) {
    struct wire *w = message();
    put_names(w, 1, inputs);
    put_names(w, 2, outputs);
    put_text(w, 4, op);
    return w;
}

static inline struct wire *entry(const char *key, const char *value) {
    struct wire *w = message();
    put_text(w, 1, key);
    put_text(w, 2, value);
    return w;
}

static inline struct wire *tensor(const char *name, int type, int ndim, const int64_t *dims) {
    struct wire *w = message();
    for (int i = 0; i < ndim; i++) put_int(w, 1, dims[i]);
    put_int(w, 2, type);
    if (name) put_text(w, 8, name);
    return w;
}

#define DIMS(...)                                                                                                      \
    (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (const int64_t[]) {                                       \
        __VA_ARGS__                                                                                                    \
    }
#define SCALAR 0, NULL

static inline struct wire *tensor_raw(const char *name, int type, int ndim, const int64_t *dims, const void *raw,
                                      size_t bytes) {
    struct wire *w = tensor(name, type, ndim, dims);
    put_data(w, 9, raw, bytes);
    return w;
}

/* ValueInfo of a tensor; a dimension of INT64_MAX is left without a size. */
static inline struct wire *value(const char *name, int type, int ndim, const int64_t *dims) {
    struct wire *shape = message(), *of_tensor = message(), *whole = message(), *w = message();
    for (int i = 0; i < ndim; i++) {
        struct wire *dim = message();
        if (dims[i] != INT64_MAX) put_int(dim, 1, dims[i]);
        put(shape, 1, dim);
    }
    put_int(of_tensor, 1, type);
    put(of_tensor, 2, shape);
    put(whole, 1, of_tensor);
    put_text(w, 1, name);
    put(w, 2, whole);
    return w;
}

static inline struct wire *opset(const char *domain, int64_t version) {
    struct wire *w = message();
    if (*domain) put_text(w, 1, domain);
    put_int(w, 2, version);
    return w;
}

enum { NODE = 1, INITIALIZER = 5, INPUT = 11, OUTPUT = 12, VALUE_INFO = 13 };

/* A graph from x to y, both FLOAT [4], without nodes. */
static inline struct wire *graph_io(void) {
    struct wire *w = message();
    put(w, INPUT, value("x", FLOAT, DIMS(4)));
    put(w, OUTPUT, value("y", FLOAT, DIMS(4)));
    return w;
}

/* graph_io with y = Relu(x). */
static inline struct wire *graph_relu(void) {
    struct wire *w = graph_io();
    put(w, NODE, node("Relu", "x", "y"));
    return w;
}

static inline struct wire *model_of(const struct wire *graph) {
    struct wire *w = message();
    put_int(w, 1, 8);
    put(w, 8, opset("", 17));
    put(w, 7, graph);
    return w;
}

/* A sound model with one more initializer, that nothing reads. */
static inline struct wire *model_with(const struct wire *initializer) {
    struct wire *graph = graph_relu();
    put(graph, INITIALIZER, initializer);
    return model_of(graph);
}

/* ---- reading ---- */

static inline const char *in_directory(const char *name) {
    return arena_printf(&pool, "%s/%s", directory, name);
}

static inline void write_file(const char *name, const void *bytes, size_t count) {
    FILE *file = fopen(in_directory(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* A model that was opened, or not. */
struct opened {
    struct arena arena;
    struct diags diags;
    struct onnx_model *model;
    int status;
};

static inline struct opened *open_path(const char *path, bool allow_links) {
    struct opened *o = ARENA_NEW(&pool, struct opened);
    arena_init(&o->arena, 0, NULL);
    diags_init(&o->diags, &o->arena);
    o->status = onnx_open(&o->arena, &o->diags, path, allow_links, &o->model);
    return o;
}

static inline struct opened *open_wire(const struct wire *w) {
    write_file("model.onnx", w->data.at, (size_t)w->data.n);
    return open_path(in_directory("model.onnx"), false);
}

static inline void release(struct opened *o) {
    onnx_close(o->model);
    arena_free(&o->arena);
}

static inline const struct diagnostic *only_error(const struct opened *o) {
    const struct diagnostic *found = NULL;
    for (int i = 0; i < o->diags.all.n; i++)
        if (o->diags.all.at[i].severity == RT_SEVERITY_ERROR && !found) found = &o->diags.all.at[i];
    return found;
}

/* Exactly one error, of this code and exit code, with `text` in it and a place. */
static inline void assert_error(struct opened *o, int code, enum exit_code exit, const char *text) {
    const struct diagnostic *error = only_error(o);
    if (!error) fail_msg("no error, expected E%04d %s", code, text);
    if (o->diags.errors != 1 || error->code != code || error->exit != exit || !strstr(error->text, text) ||
        !error->where)
        fail_msg("%d errors, the first E%04d exit %d: %s --> %s; expected E%04d exit %d: %s", o->diags.errors,
                 error->code, error->exit, error->text, error->where ? error->where : "(nowhere)", code, exit, text);
    assert_int_equal(o->status, exit == EXIT_UNSUPPORTED ? 0 : -1);
    release(o);
}

static inline void assert_sound(struct opened *o) {
    const struct diagnostic *error = only_error(o);
    if (error) fail_msg("E%04d: %s --> %s", error->code, error->text, error->where);
    assert_int_equal(o->status, 0);
}

/* The model of this wire has this error. */
static inline void refused(const struct wire *w, int code, enum exit_code exit, const char *text) {
    assert_error(open_wire(w), code, exit, text);
}

static inline void accepted(const struct wire *w) {
    struct opened *o = open_wire(w);
    assert_sound(o);
    release(o);
}

static inline int wire_setup(void **state) {
    arena_init(&pool, 0, NULL);
    snprintf(directory, sizeof directory, "/tmp/rankc-onnx-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw) {
    return remove(path);
}

static inline int wire_teardown(void **state) {
    arena_free(&pool);
    return nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#define WIRE_TEST(name) TEST_BETWEEN(name, wire_setup, wire_teardown)

#endif
