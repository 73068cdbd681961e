/* Low-rank adapters of a checkpoint. The rules by which they were trained are among what checkpoint.json says the
 * program was made of. */
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/ckpt/checkpoint.h"
#include "frontend/driver/driver.h"
#include "frontend/import/import.h"

static const char *made_of(const struct checkpoint *from, const char *part) {
    const char *text = rt_json_text(rt_json_member(rt_json_member(rt_saved_root(from->saved), "made_of"), part));
    return text ? text : "";
}

/* The rules of one part of checkpoint.json, a line for each. */
static int read_rules(struct training *training, const char *lines, struct cli *cli) {
    for (const char *at = lines; *at; at += strspn(at, "\n")) {
        const size_t length = strcspn(at, "\n");
        if (lora_rule_add(training, arena_copy(cli->arena, at, length), cli->arena, cli->diags) < 0) return -1;
        at += length;
    }
    return 0;
}

static int mismatch(const struct checkpoint *from, struct cli *cli, const char *text, const char *module) {
    return diag_error(cli->diags, 805, EXIT_MISMATCH, from->path, "the checkpoint has no %s for %s", text,
                      diag_quote(cli->diags, module));
}

/* Of a stack the number of matrices, the last dimension of B. */
static int64_t count_of(const struct rt_saved_tensor *b) {
    return b->ndim == 3 ? b->dims[2] : 1;
}

/* True if A is (r, inputs) and B (outputs, r), or for a stack of E matrices (E r, inputs) and (outputs, r, E). */
static bool are_matrices(const struct rt_saved_tensor *a, const struct rt_saved_tensor *b,
                         const struct lora_rule *rule) {
    return a->ndim == 2 && (b->ndim == 2 || b->ndim == 3) && b->dims[1] == (int64_t)rule->r && a->dims[1] > 0 &&
           b->dims[0] > 0 && count_of(b) > 0 && a->dims[0] / count_of(b) == b->dims[1] &&
           a->dims[0] % count_of(b) == 0 && rt_dtype_is_float(a->dtype) && rt_dtype_is_float(b->dtype);
}

static int add_parameter(struct checkpoint_adapters *adapters, const struct checkpoint *from,
                         const struct rt_saved_tensor *tensor, struct cli *cli) {
    const struct lora_matrix matrix = lora_matrix_of_name(cli->arena, tensor->name);
    const char *module = matrix.module;
    if (tensor->copy_of || matrix.letter == 'B') return 0; /* found with A */
    if (!matrix.letter && !adapters->others++) adapters->first_other = tensor->name;
    if (!matrix.letter) return 0;
    const struct rt_saved_tensor *b =
        rt_saved_find(from->saved, RT_SAVED_PARAMETERS, lora_name_of_matrix(cli->arena, &matrix, 'B'));
    const struct lora_rule *rule = lora_rule_of(&adapters->training, module);
    if (!rule) return mismatch(from, cli, "rule of --lora", module);
    if (!b || !are_matrices(tensor, b, rule)) return mismatch(from, cli, "matrices of that rule", module);
    VEC_PUSH(cli->arena, &adapters->all,
             ((struct checkpoint_adapter){module, matrix.kind, matrix.stack, rule, tensor, b}));
    return 0;
}

int checkpoint_adapters_read(struct checkpoint_adapters *adapters, const struct checkpoint *from, struct cli *cli) {
    *adapters = (struct checkpoint_adapters){0};
    if (read_rules(&adapters->training, made_of(from, "lora"), cli) < 0 ||
        read_rules(&adapters->training, made_of(from, "adapter"), cli) < 0)
        return -1;
    for (int i = 0; i < rt_saved_count(from->saved, RT_SAVED_PARAMETERS); i++)
        if (add_parameter(adapters, from, rt_saved_at(from->saved, RT_SAVED_PARAMETERS, i), cli) < 0) return -1;
    return 0;
}

/* The size of the dimension in "batch=4,sequence=64"; 1: it has none. */
static int64_t size_of(const char *dims, const char *name) {
    const size_t length = strlen(name);
    long long size = 1;
    for (const char *at = dims; *at; at += strspn(at, ",")) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') size = strtoll(at + length + 1, NULL, 10);
        at += strcspn(at, ",");
    }
    return size >= 0 && size <= INT32_MAX ? size : 1;
}

static bool has_size(const struct options *options, const char *name) {
    for (int i = 0; i < options->dims.all.n; i++)
        if (strcmp(options->dims.all.at[i].name, name) == 0) return true;
    return false;
}

/* The graph in which the adapters are looked up: of inference, since training replaces tied copies of weights. */
static struct graph *read_graph(const struct checkpoint *from, const char *path, struct onnx_model *model,
                                struct cli *cli) {
    struct options *options = ARENA_NEW(cli->arena, struct options);
    struct import_open_dims open = {0};
    struct graph *graph;
    options_start(options, VERB_PLAN, path, cli->arena, cli->diags);
    options->state = "none";
    options->allow_links = cli->options->allow_links;
    options->quiet = cli->options->quiet, options->json = cli->options->json;
    VEC_PUSH(cli->arena, &options->loras.all, "list");
    import_open_dims(cli->arena, model, &open);
    for (int i = 0; i < open.all.n; i++) {
        const char *name = open.all.at[i].name;
        const struct option_size size = {name, open_fixed(size_of(made_of(from, "dim"), name))};
        if (!has_size(options, name)) VEC_PUSH(cli->arena, &options->dims.all, size);
    }
    return driver_adaptable(options, cli->arena, cli->diags, &graph) < 0 ? NULL : graph;
}

/* In f32. */
static float *matrix_values(struct cli *cli, const struct checkpoint *from, const struct rt_saved_tensor *tensor) {
    const int64_t n = checkpoint_elements(tensor);
    float *values = ARENA_ARRAY(cli->arena, float, n + 1);
    const void *stored = checkpoint_values(cli, from, tensor);
    if (stored) rt_convert(values, RT_F32, stored, tensor->dtype, (size_t)n);
    return stored ? values : NULL;
}

int checkpoint_adapters_place(const struct checkpoint_adapters *adapters, const struct checkpoint *from,
                              const char *path, struct onnx_model *model, struct cli *cli, struct lora_places *places) {
    const int n = adapters->all.n;
    struct lora_given *given = ARENA_ARRAY(cli->arena, struct lora_given, n + 1);
    *places = (struct lora_places){0};
    if (!n) return 0;
    for (int i = 0; i < n; i++) {
        const struct checkpoint_adapter *adapter = &adapters->all.at[i];
        given[i] =
            (struct lora_given){.name = adapter->module, .kind = adapter->kind, .wraps = -1, .rule = *adapter->rule};
        given[i].inputs = adapter->a->dims[1], given[i].outputs = adapter->b->dims[0];
        given[i].count = count_of(adapter->b);
        given[i].a_bytes = matrix_values(cli, from, adapter->a);
        given[i].b_bytes = matrix_values(cli, from, adapter->b);
        if (!given[i].a_bytes || !given[i].b_bytes) return -1;
    }
    struct graph *graph = read_graph(from, path, model, cli);
    return graph ? lora_find_places(graph, given, n, cli->diags, places) : -1;
}

void checkpoint_add_adapter(struct cli *cli, const struct lora_place *place, void *matrix, enum rt_dtype dtype) {
    const struct lora_given *given = place->given;
    struct arena *scratch = arena_scratch(cli->arena);
    const struct lora_sum sum = {given->count,   given->outputs, given->inputs,           (int64_t)given->rule.r,
                                 given->a_bytes, given->b_bytes, lora_scale(&given->rule)};
    const int64_t n = sum.count * sum.outputs * sum.inputs;
    float *values = ARENA_ARRAY(scratch, float, n + 1);
    rt_convert(values, RT_F32, matrix, dtype, (size_t)n);
    lora_add(&sum, values, place->turned, scratch);
    rt_convert(matrix, dtype, values, RT_F32, (size_t)n);
    arena_release(cli->arena, scratch);
}
