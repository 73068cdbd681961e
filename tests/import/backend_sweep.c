/* The ONNX backend tests, as a command: imports each DIR/model.onnx, evaluates it on DIR/test_data_set_*, compares.
 *
 *     backend_sweep [-v] DIR...          (Debian's libonnx-testdata has them in data/node, data/simple, ...)
 *
 * An operand that must be known at compile time is bound (--bind), where the test gives it as an input. Prints the
 * counts and what is not supported, by reason; with -v each test that did not pass. Exit status 1 if one failed that
 * should have passed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/import/import.h"
#include "runtime/base/io/tensor_pb.h"
#include "tests/import/evaluate.h"

enum { MAX_TENSORS = 32 };

enum verdict { PASSED, PASSED_BOUND, UNSUPPORTED, FAILED, VERDICTS };
static const char *const verdict_names[VERDICTS] = {"passed", "passed with bound inputs", "not supported", "failed"};

/* Which inputs become constants: tried in this order, while the import says that something must be known. */
enum binding { BIND_NONE, BIND_INTEGERS, BIND_ALL, BINDINGS };

struct test {
    struct arena arena;
    struct diags diags;
    struct onnx_model *model;
    int ninputs;
    struct given inputs[MAX_TENSORS];
    const char *why;
};

static const char *data_path(struct test *test, const char *dir, int set, const char *kind, int i) {
    return arena_printf(&test->arena, "%s/test_data_set_%d/%s_%d.pb", dir, set, kind, i);
}

/* Some files say UINT16 where the model has BFLOAT16: NumPy has no such type. */
static bool read_tensor(const char *path, const Onnx__ValueInfoProto *info, struct rt_tensor *out) {
    struct rt_reason why;
    if (!rt_tensor_pb_read(out, path, &why)) return false;
    const Onnx__TypeProto *type = info->type;
    bool is_tensor = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    if (is_tensor && rt_dtype_by_onnx(type->tensor_type->elem_type) == RT_BF16 && out->dtype == RT_U16)
        out->dtype = RT_BF16;
    return true;
}

/* The graph's inputs without a default, in order, with the data of the set: false if one is no tensor. */
static bool read_inputs(struct test *test, const char *dir, int set) {
    const Onnx__GraphProto *graph = test->model->proto->graph;
    test->ninputs = 0;
    for (size_t i = 0; i < graph->n_input; i++) {
        bool has_default = false;
        for (size_t k = 0; k < graph->n_initializer; k++)
            has_default =
                has_default || strcmp(onnx_text(graph->initializer[k]->name), onnx_text(graph->input[i]->name)) == 0;
        if (has_default || test->ninputs == MAX_TENSORS) continue;
        struct given *given = &test->inputs[test->ninputs];
        given->name = onnx_text(graph->input[i]->name);
        if (!read_tensor(data_path(test, dir, set, "input", test->ninputs), graph->input[i], &given->tensor))
            return false;
        test->ninputs++;
    }
    return true;
}

static int import_bound(struct test *test, enum binding binding, struct graph **graph) {
    struct import_bind binds[MAX_TENSORS];
    struct import_options options = {.binds = binds, .dtype = RT_DTYPE_NONE};
    for (int i = 0; i < test->ninputs && binding != BIND_NONE; i++)
        if (binding == BIND_ALL || !rt_dtype_is_float(test->inputs[i].tensor.dtype))
            binds[options.nbinds++] = (struct import_bind){test->inputs[i].name, test->inputs[i].tensor};
    diags_init(&test->diags, &test->arena);
    return import_model(&test->arena, &test->diags, test->model, &options, graph);
}

/* Something was not known that a bound input might tell: an operand, a condition, a size. */
static bool wants_bound(const struct diags *diags) {
    for (int i = 0; i < diags->all.n; i++) {
        int code = diags->all.at[i].code;
        if (code == 409 || code == 405 || code == 410 || code == 343) return true;
    }
    return false;
}

static enum verdict refuse(struct test *test, const char *why) {
    test->why = why;
    return UNSUPPORTED;
}

static enum verdict check_outputs(struct test *test, const char *dir, int set, struct graph *graph) {
    const char *why = evaluate(graph, test->ninputs, test->inputs);
    for (int i = 0; i < graph->outputs.n && !why; i++) {
        struct rt_tensor expected;
        if (!read_tensor(data_path(test, dir, set, "output", i), test->model->proto->graph->output[i], &expected))
            return refuse(test, "an output is no tensor");
        /* halves: a few units in the last place; onnx 1.12 wrote bf16 cut off, not rounded */
        double rtol = expected.dtype == RT_BF16 ? 0x1p-6 : expected.dtype == RT_F16 ? 0x1p-8 : 1e-3;
        why = compare(&test->arena, &graph->tensors.at[graph->outputs.at[i]], &expected, rtol, 1e-6);
        rt_tensor_free(&expected);
    }
    test->why = why;
    return why ? FAILED : PASSED;
}

static enum verdict run_set(struct test *test, const char *dir, int set) {
    struct graph *graph;
    int binding = BIND_NONE;
    if (!read_inputs(test, dir, set)) return refuse(test, "an input is no tensor of a supported type");
    while (import_bound(test, binding, &graph) < 0) {
        if (wants_bound(&test->diags) && ++binding < BINDINGS) continue;
        const struct diagnostic *first = &test->diags.all.at[0];
        test->why = arena_printf(&test->arena, "E%04d %s", first->code, first->text);
        return first->exit == EXIT_UNSUPPORTED ? UNSUPPORTED : FAILED;
    }
    enum verdict verdict = check_outputs(test, dir, set, graph);
    return verdict == PASSED && binding ? PASSED_BOUND : verdict;
}

static enum verdict run_test(struct test *test, const char *dir) {
    arena_init(&test->arena, 0, NULL);
    diags_init(&test->diags, &test->arena);
    const char *path = arena_printf(&test->arena, "%s/model.onnx", dir);
    if (onnx_open(&test->arena, &test->diags, path, false, &test->model) < 0 || test->diags.errors) {
        const struct diagnostic *first = &test->diags.all.at[0];
        test->why = arena_printf(&test->arena, "E%04d %s", first->code, first->text);
        return first->exit == EXIT_UNSUPPORTED ? UNSUPPORTED : FAILED;
    }
    enum verdict verdict = PASSED;
    for (int set = 0; verdict <= PASSED_BOUND; set++) {
        if (set && access(data_path(test, dir, set, "output", 0), R_OK) != 0) break;
        verdict = run_set(test, dir, set);
    }
    return verdict;
}

/* Tests not supported, by reason with the names of values left out. */
struct tally {
    struct arena arena;
    struct map index;
    VEC(int) counts;
};

static void count(struct tally *tally, const char *why) {
    size_t length = strcspn(why, "'(");
    int at = map_get(&tally->index, why, length);
    if (at < 0) {
        at = tally->counts.n;
        map_put(&tally->index, why, length, at);
        VEC_PUSH(&tally->arena, &tally->counts, 0);
    }
    tally->counts.at[at]++;
}

/* Data sets of models to be downloaded are passed over. */
static bool has_model(const char *dir) {
    char path[4096];
    snprintf(path, sizeof path, "%s/model.onnx", dir);
    return access(path, R_OK) == 0;
}

int main(int argc, char **argv) {
    int counts[VERDICTS] = {0};
    struct tally tally = {0};
    bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    arena_init(&tally.arena, 0, NULL);
    map_init(&tally.index, &tally.arena);
    for (int i = verbose ? 2 : 1; i < argc; i++) {
        struct test test = {.model = NULL};
        if (!has_model(argv[i])) continue;
        enum verdict verdict = run_test(&test, argv[i]);
        counts[verdict]++;
        if (verdict == UNSUPPORTED) count(&tally, test.why);
        if (verdict == FAILED || (verbose && verdict == UNSUPPORTED))
            printf("%s: %s: %s\n", argv[i], verdict_names[verdict], test.why);
        fflush(stdout);
        for (int k = 0; k < test.ninputs; k++) rt_tensor_free(&test.inputs[k].tensor);
        onnx_close(test.model);
        arena_free(&test.arena);
    }
    for (int i = 0; i < tally.index.n; i++) printf("%5d %s\n", tally.counts.at[i], tally.index.entries[i].key);
    for (int v = 0; v < VERDICTS; v++) printf("%d %s%s", counts[v], verdict_names[v], v + 1 < VERDICTS ? ", " : "\n");
    arena_free(&tally.arena);
    return counts[FAILED] != 0;
}
