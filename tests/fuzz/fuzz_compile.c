/* Fuzz target: an ONNX model in any state, through the whole compiler: import, passes under a policy or for training,
 * memory plan, sources written. Nothing is built.
 *
 * The bytes choose the options (a row of `choices`), so that an input is compiled in one way whoever gives it. Symbolic
 * dimensions of the model's inputs are bound to small sizes. A model is refused with diagnostics, or compiled; internal
 * errors (E11xx: passes that made a wrong graph) are findings. With FUZZ_VERBOSE in the environment, options and errors
 * are printed. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/driver/driver.h"
#include "frontend/read/onnx_read.h"
#include "ir/base/map.h"
#include "runtime/base/io/file.h"
#include "runtime/base/number/hash.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_WORDS = 64, MOST_CHOSEN = 8, SIZE = 3, FIRST_INTERNAL = 1100, LAST_INTERNAL = 1199 };

static const char *const choices[][MOST_CHOSEN] = {
    {"--pas", "dp"},
    {"--pas", "tp:tensor=2"},
    {"--pas", "tp:tensor=3", "--dtype", "bf16"},
    {"--pas", "data:data=2"},
    {"--pas", "pp:pipeline=2"},
    {"--pas", "pp:pipeline=3"},
    {"--pas", "hybrid:tensor=2,pipeline=2"},
    {"--pas", "hybrid:tensor=2,data=2,pipeline=2", "--dtype", "f64"},
    {"--pas", "tp:tensor=2", "--target", "cuda", "--attention", "flash"},
    {"--pas", "hybrid:tensor=2,data=2", "--target", "cuda", "--dtype", "fp16"},
    {"--pas", "dp", "--runtime-ngpus", "2", "--train"},
    {"--pas", "tp:tensor=2", "--train", "--recompute", "full", "--optimizer", "adamw"},
    {"--pas", "hybrid:tensor=2,data=2", "--train", "--amp", "bf16", "--accumulate", "2"},
    {"--pas", "tp:tensor=2", "--train", "--target", "cuda"},
};
enum { NCHOICES = sizeof choices / sizeof *choices };

struct words {
    int n;
    char *at[MOST_WORDS];
};

static void add_word(struct words *words, struct arena *arena, const char *word) {
    if (words->n < MOST_WORDS) words->at[words->n++] = arena_strdup(arena, word);
}

/* --dim NAME=3 of every symbolic dimension; a name twice is bound once. */
static void bind_dims(struct words *words, struct arena *arena, const Onnx__GraphProto *graph) {
    struct map seen;
    map_init(&seen, arena);
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TypeProto *type = graph->input[i]->type;
        bool is_tensor = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
        const Onnx__TensorShapeProto *shape = is_tensor ? type->tensor_type->shape : NULL;
        for (size_t d = 0; shape && d < shape->n_dim; d++) {
            const Onnx__TensorShapeProto__Dimension *dim = shape->dim[d];
            bool is_symbolic = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            const char *name = is_symbolic ? dim->dim_param : NULL;
            if (!name || !*name || map_get(&seen, name, strlen(name)) >= 0) continue;
            map_put(&seen, name, strlen(name), 1);
            add_word(words, arena, "--dim");
            add_word(words, arena, arena_printf(arena, "%s=%d", name, SIZE));
        }
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Holds the model and what is written; there only while an input is compiled. */
static char directory[] = "/dev/shm/rankc-fuzz.XXXXXX";

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_check(mkdtemp(directory) != NULL && rmdir(directory) == 0);
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static const char *write_model(const unsigned char *data, size_t size) {
    static char path[sizeof directory + 16];
    struct rt_reason why;
    const struct rt_piece piece = {data, size};
    snprintf(path, sizeof path, "%s/model.onnx", directory);
    fuzz_check((mkdir(directory, 0700) == 0 || errno == EEXIST) && rt_file_write(path, &piece, 1, &why));
    return path;
}

static void check_diagnostics(const struct diags *diags, int status) {
    fuzz_check((status == 0) == (diags_exit(diags) == EXIT_OK) && diags_exit(diags) != EXIT_INTERNAL);
    for (int i = 0; i < diags->all.n; i++) {
        const struct diagnostic *d = &diags->all.at[i];
        if (d->severity == RT_SEVERITY_ERROR && getenv("FUZZ_VERBOSE")) fprintf(stderr, "E%04d %s\n", d->code, d->text);
        if (d->severity != RT_SEVERITY_ERROR || d->code < FIRST_INTERNAL || d->code > LAST_INTERNAL) continue;
        fprintf(stderr, "E%04d: %s (%s)\n", d->code, d->text, d->where ? d->where : "");
        fuzz_check(false);
    }
}

/* The row that the hash of an input chooses. */
static size_t chosen(char *hex) {
    hex[4] = 0;
    return strtoul(hex, NULL, 16) % NCHOICES;
}

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    struct words words = {0};
    struct onnx_model *model;
    struct options options;
    struct driver_result result;
    struct diags ignored, diags;
    char hex[RT_HASH_HEX];
    const char *path = write_model(data, size);
    diags_init(&ignored, arena);
    if (onnx_open(arena, &ignored, path, false, &model) < 0 || !model->proto->graph) return;
    rt_hash_bytes(data, size, hex);
    const char *const fixed[] = {"compile", path, "-q", "--no-build", "--reuse", "override", "-o", directory};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) add_word(&words, arena, fixed[i]);
    const char *const *choice = choices[chosen(hex)];
    for (int i = 0; i < MOST_CHOSEN && choice[i]; i++) add_word(&words, arena, choice[i]);
    bind_dims(&words, arena, model->proto->graph);
    if (getenv("FUZZ_VERBOSE"))
        for (int i = 0; i < words.n; i++) fprintf(stderr, "%s%s", words.at[i], i + 1 < words.n ? " " : "\n");
    diags_init(&diags, arena);
    int status = options_parse(&options, words.n, words.at, arena, &diags);
    if (!status) status = driver_compile(&options, arena, &diags, &result);
    check_diagnostics(&diags, status);
    fuzz_passed = status == 0;
}

static void remove_files(void) {
    nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const struct fuzz_target fuzz_target = {512 << 20, run, remove_files};
