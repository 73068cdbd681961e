/* The import: real models against what PyTorch computed, and small models as text against the graph or the diagnostics
 * they must give. */
#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/import/evaluate.h"
#include "tests/import/onnx_text.h"
#include "tests/import/sample.h"
#include "tests/ir/golden.h"
#include "tests/ir/pool.h"

static struct golden golden;

/* Real models ----------------------------------------------------------------------------------------------------- */

enum { MAX_MODELS = 64 };

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The directories of tests/models that hold a model, in order. */
static int list_models(struct arena *arena, char **dirs) {
    int n = 0;
    const char *models = arena_printf(arena, "%s/tests/models", golden.root);
    DIR *directory = opendir(models);
    assert_non_null(directory);
    for (struct dirent *entry; n < MAX_MODELS && (entry = readdir(directory));) {
        char *dir = arena_printf(arena, "%s/%s", models, entry->d_name);
        if (access(arena_printf(arena, "%s/model.onnx", dir), R_OK) == 0) dirs[n++] = dir;
    }
    closedir(directory);
    qsort(dirs, (size_t)n, sizeof *dirs, by_name);
    return n;
}

/* Every model computes what PyTorch did, within the rounding of f32, in each of the ways to import it. */
static void check_models(enum rt_dtype dtype, bool train) {
    char *dirs[MAX_MODELS];
    int n = list_models(&pool, dirs);
    assert_true(n >= 10);
    for (int i = 0; i < n; i++) {
        struct sample sample;
        if (sample_import(&sample, dirs[i], dtype, train) < 0)
            fail_msg("%s: %s", dirs[i], golden_diags(&pool, &sample.diags));
        if (verify_graph(sample.graph, &sample.diags) < 0)
            fail_msg("%s: %s", dirs[i], golden_diags(&pool, &sample.diags));
        const char *why = sample_check(&sample, dirs[i], 1e-4, 1e-5);
        if (why) fail_msg("%s: %s", dirs[i], why);
        sample_close(&sample);
    }
}

TEST(models_as_they_are) {
    check_models(RT_DTYPE_NONE, false);
}

TEST(models_in_f64) {
    check_models(RT_F64, false);
}

TEST(models_for_training) {
    check_models(RT_F32, true);
}

/* Nothing of the 250 nodes per layer that compute shapes is left: what remains are those that compute values. */
TEST(shapes_are_computed_by_import) {
    struct sample sample;
    const char *dir = arena_printf(&pool, "%s/tests/models/gpt2", golden.root);
    assert_int_equal(sample_import(&sample, dir, RT_F32, false), 0);
    assert_in_range(count_live(sample.graph), 1, 3 * 66 + 16);
    sample_close(&sample);
}

/* Models as text -------------------------------------------------------------------------------------------------- */

enum { MAX_OPTIONS = 16 };

static void read_options(struct arena *arena, const char *text, struct import_options *options, struct import_dim *dims,
                         struct import_shape *shapes, struct import_bind *binds) {
    const char *line;
    while (options->ndims < MAX_OPTIONS && (line = onnx_text_option(arena, text, "dim", options->ndims))) {
        char *name = arena_strdup(arena, line), *equal = strchr(name, '=');
        *equal = 0;
        dims[options->ndims++] = (struct import_dim){name, open_fixed(strtoll(equal + 1, NULL, 10))};
    }
    while (options->nshapes < MAX_OPTIONS && (line = onnx_text_option(arena, text, "--shape", options->nshapes))) {
        char *name = arena_strdup(arena, line), *at = strchr(name, '=');
        struct open_range *sizes = ARENA_ARRAY(arena, struct open_range, RT_MAX_NDIM);
        int ndim = 0;
        *at++ = 0;
        if (!isdigit((unsigned char)*at)) {
            ndim = strcmp(at, "none") == 0 ? SHAPE_NONE : strcmp(at, "empty") == 0 ? SHAPE_EMPTY : 0;
            at += strlen(at);
        }
        for (; *at; at += *at == ',') sizes[ndim++] = open_fixed(strtoll(at, &at, 10));
        shapes[options->nshapes++] = (struct import_shape){name, ndim, sizes};
    }
    while (options->nbinds < MAX_OPTIONS && (line = onnx_text_option(arena, text, "bind", options->nbinds))) {
        char *name = arena_strdup(arena, line), *blank = strchr(name, ' ');
        *blank = 0;
        binds[options->nbinds++] = (struct import_bind){name, NULL, onnx_text_tensor(arena, blank + 1)};
    }
    for (int i = 0; options->nbinds < MAX_OPTIONS && (line = onnx_text_option(arena, text, "--bind", i)); i++) {
        char *name = arena_strdup(arena, line), *equal = strchr(name, '=');
        *equal = 0;
        assert_true(import_is_numbers(equal + 1));
        binds[options->nbinds++] = (struct import_bind){.input = name, .numbers = equal + 1};
    }
    line = onnx_text_option(arena, text, "dtype", 0);
    options->dtype = line ? rt_dtype_by_name(line) : RT_DTYPE_NONE;
    options->train = onnx_text_option(arena, text, "train", 0) != NULL;
    options->loss = onnx_text_option(arena, text, "loss", 0);
}

/* The text with every `from` replaced. */
static const char *replaced(struct arena *arena, const char *text, const char *from, const char *to) {
    struct strbuf out;
    strbuf_init(&out, arena);
    for (const char *at; (at = strstr(text, from)); text = at + strlen(from)) {
        strbuf_add(&out, text, (size_t)(at - text));
        strbuf_puts(&out, to);
    }
    strbuf_puts(&out, text);
    return strbuf_text(&out);
}

/* Opens a model in a file of its own, which is gone when this returns. */
static int open_bytes(struct arena *arena, struct diags *diags, const void *bytes, size_t n, char *path,
                      struct onnx_model **model) {
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
    int status = onnx_open(arena, diags, path, false, model);
    unlink(path);
    (*model)->path = (*model)->place = "model.onnx";
    return status;
}

/* The graph that the model gives, or its diagnostics. */
static const char *imported(struct arena *arena, const char *text) {
    struct diags diags;
    struct onnx_model *model;
    struct import_dim dims[MAX_OPTIONS];
    struct import_shape shapes[MAX_OPTIONS];
    struct import_bind binds[MAX_OPTIONS];
    struct import_options options = {.dims = dims, .shapes = shapes, .binds = binds};
    struct graph *graph;
    size_t bytes;
    const void *file = onnx_text_model(arena, text, &bytes);
    read_options(arena, text, &options, dims, shapes, binds);
    diags_init(&diags, arena);
    char path[] = "/tmp/rankc-import-XXXXXX";
    int status = open_bytes(arena, &diags, file, bytes, path, &model);
    if (!status) status = import_model(arena, &diags, model, &options, &graph);
    if (!status) status = verify_graph(graph, &diags);
    const char *result = status ? golden_diags(arena, &diags) : text_print(arena, graph);
    if (status) result = arena_printf(arena, "%sexit %d\n", result, diags_exit(&diags));
    onnx_close(model);
    return replaced(arena, result, path, "model.onnx");
}

TEST(lowerings) {
    assert_int_equal(golden_run(&golden, "tests/import/lowerings.txt", imported), 0);
}

static int occurrences(const char *text, const char *word) {
    int n = 0;
    while ((text = strstr(text, word))) n++, text += strlen(word);
    return n;
}

/* Many frames are multiplied with one matrix: nothing is moved between transforms of parts. */
TEST(short_transforms_are_one_product) {
    const char *graph = imported(&pool, "input x f32 4 600 1\ninit step i64 : 20\ninit length i64 : 100\n"
                                        "y = STFT x step _ length\noutput y\n");
    assert_int_equal(occurrences(graph, "= MatMul("), 1);
    assert_int_equal(occurrences(graph, "= Transpose("), 0);
}

TEST(errors) {
    assert_int_equal(golden_run(&golden, "tests/import/errors.txt", imported), 0);
}

int main(int argc, char **argv) {
    golden = golden_options(argc, argv);
    return run_all_tests("import", open_pool, close_pool);
}
