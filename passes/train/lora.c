#include "passes/train/lora.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/build.h"
#include "ir/provenance.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

static const char *const suffixes[] = {['A'] = ".lora_A.weight", ['B'] = ".lora_B.weight"};

/* The option ------------------------------------------------------------------------------------------------------- */

static int read_number(const char *text, double least, double below, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= least && *value < below ? 0 : -1;
}

static int set_key(void *env, const char *key, const char *value, struct arena *arena) {
    struct lora_rule *rule = env;
    (void)arena;
    if (strcmp(key, "r") == 0)
        return read_number(value, 1, 1 << 20, &rule->r) < 0 || rule->r != floor(rule->r) ? -1 : 0;
    if (strcmp(key, "alpha") == 0) return read_number(value, 0, 1e30, &rule->alpha);
    if (strcmp(key, "dropout") == 0) return read_number(value, 0, 1, &rule->dropout);
    if (strcmp(key, "rslora") == 0) return rule->rslora = true, strcmp(value, "true") == 0 ? 0 : -1;
    if (strcmp(key, "init") != 0) return -1;
    rule->gaussian = strcmp(value, "gaussian") == 0;
    return rule->gaussian || strcmp(value, "kaiming") == 0 ? 0 : -1;
}

int lora_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags) {
    static const struct key_options keys = {"--lora", "--lora", "r=N alpha=X dropout=P init=kaiming|gaussian rslora",
                                            "true", set_key};
    struct lora_rule rule = {.text = text, .globs = arena_copy(arena, text, strcspn(text, ":")), .r = 8, .alpha = 8};
    if (!*rule.globs)
        return diag_error(diags, 205, EXIT_USAGE, "--lora", "%s must have the form GLOB[,GLOB..]:r=8,alpha=16,..",
                          diag_quote(diags, text));
    if (key_options_read(&keys, text, &rule, arena, diags) < 0) return -1;
    const char *a = rule.gaussian ? arena_printf(arena, "*=normal:std=%.17g", 1 / rule.r)
                                  : arena_printf(arena, "*=kaiming_uniform:slope=%.17g", sqrt(5));
    if (init_rule_parse(&rule.a, a, arena, diags) < 0 || init_rule_parse(&rule.b, "*=zeros", arena, diags) < 0)
        return -1;
    VEC_PUSH(arena, &training->loras, rule);
    return 0;
}

static bool glob_matches(const char *glob, const char *module) {
    if (fnmatch(glob, module, 0) == 0) return true;
    for (const char *dot = strchr(module, '.'); dot; dot = strchr(dot + 1, '.'))
        if (fnmatch(glob, dot + 1, 0) == 0) return true;
    return false;
}

static bool rule_matches(const struct lora_rule *rule, const char *module) {
    char glob[256];
    for (const char *at = rule->globs; *at; at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        snprintf(glob, sizeof glob, "%.*s", (int)length, at);
        if (length < sizeof glob && glob_matches(glob, module)) return true;
        at += length;
    }
    return false;
}

const struct lora_rule *lora_rule_of(const struct training *training, const char *module) {
    for (int i = training->loras.n - 1; i >= 0; i--)
        if (rule_matches(&training->loras.at[i], module)) return &training->loras.at[i];
    return NULL;
}

double lora_scale(const struct lora_rule *rule) {
    return rule->alpha / (rule->rslora ? sqrt(rule->r) : rule->r);
}

/* Names ------------------------------------------------------------------------------------------------------------ */

char lora_matrix_of_name(struct arena *arena, const char *name, const char **module) {
    const size_t length = strlen(name), end = strlen(suffixes['A']);
    for (int matrix = 'A'; matrix <= 'B' && length > end; matrix++) {
        if (strcmp(name + length - end, suffixes[matrix]) != 0) continue;
        *module = arena_copy(arena, name, length - end);
        return (char)matrix;
    }
    return 0;
}

const char *lora_name_of_matrix(struct arena *arena, const char *module, char matrix) {
    return arena_printf(arena, "%s%s", module, suffixes[(int)matrix]);
}

static char matrix_of(const struct graph *graph, const struct tensor *weight, const char **module) {
    return weight->mark == MARK_ADAPTER ? lora_matrix_of_name(graph->arena, weight->name, module) : 0;
}

const struct init_rule *lora_init_of(const struct training *training, const struct graph *graph,
                                     const struct tensor *weight) {
    const char *module;
    const struct init_rule *given = init_rule_of(training, weight->name);
    const char matrix = training && !given && weight->stored.file < 0 ? matrix_of(graph, weight, &module) : 0;
    const struct lora_rule *rule = matrix ? lora_rule_of(training, module) : NULL;
    return !rule ? given : matrix == 'A' ? &rule->a : &rule->b;
}

bool lora_is_in(const struct graph *graph) {
    for (int t = 0; t < graph->tensors.n; t++)
        if (graph->tensors.at[t].mark == MARK_ADAPTER) return true;
    return false;
}

bool weight_is_trained(const struct training *training, bool adapts, const struct tensor *tensor) {
    if (tensor->kind != TENSOR_WEIGHT || tensor->constant || !rt_dtype_is_float(tensor->dtype)) return false;
    const struct parameter_rule *rule = parameter_rule_of(training, tensor);
    if (adapts && tensor->mark != MARK_ADAPTER) return rule && rule->train;
    return !rule || !rule->frozen;
}

/* The stored matrix that is the product's second operand, maybe transposed; -1: there is none. */
static int matrix_of_product(const struct graph *graph, const struct node *node) {
    if (node->op->id != OP_MatMul || node->ninputs != 2 || attr_int(node, "trans_a", 0)) return -1;
    const struct node *turned = graph_producer(graph, node->inputs[1]);
    const int stored = turned && op_exchanges_last(turned) ? turned->inputs[0] : node->inputs[1];
    const struct tensor *weight = &graph->tensors.at[stored];
    return weight->kind == TENSOR_WEIGHT && !weight->constant && weight->ndim == 2 && weight->mark != MARK_ADAPTER &&
                   rt_dtype_is_float(weight->dtype)
               ? stored
               : -1;
}

/* "transformer.h.0.attn.c_attn" of "/transformer/h.0/attn/c_attn/Gemm"; NULL: it is no such path. */
static const char *module_of_path(struct arena *arena, const char *path) {
    const char *end = strrchr(path, '/');
    if (*path != '/' || end == path) return NULL;
    char *module = arena_copy(arena, path + 1, (size_t)(end - path - 1));
    for (char *c = module; *c; c++)
        if (*c == '/') *c = '.';
    return module;
}

const char *lora_module_of(const struct graph *graph, const struct node *node) {
    static const char end[] = ".weight";
    const int stored = matrix_of_product(graph, node);
    if (stored < 0) return NULL;
    const struct provenance *from = provenance_of(graph, node->name, NULL);
    const char *name = graph->tensors.at[stored].name, *path = NULL;
    const size_t length = strlen(name), cut = sizeof end - 1;
    if (from && *from->scope && !*from->word) return from->scope;
    if (!from) path = module_of_path(graph->arena, node->name);
    if (path) return path;
    return length > cut && strcmp(name + length - cut, end) == 0 ? arena_copy(graph->arena, name, length - cut) : name;
}

const char *lora_list(const struct graph *graph, struct arena *arena) {
    struct strbuf out;
    strbuf_init(&out, arena);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const char *module = lora_module_of(graph, node);
        if (!module) continue;
        const struct tensor *weight = &graph->tensors.at[matrix_of_product(graph, node)];
        strbuf_printf(&out, "%-40s %-16s %6lld r values   %s\n", module, tensor_type(arena, weight),
                      (long long)(weight->dims[0] + weight->dims[1]), weight->name);
    }
    return strbuf_text(&out);
}

/* The walk --------------------------------------------------------------------------------------------------------- */

struct adapting {
    struct build builder;
    const struct training *training; /* of the pass: its rules */
    bool *matched;                   /* per rule */
    const struct lora_given *given;  /* of lora_attach */
    const char **module;             /* per one of these: of the graph */
    int ngiven;
    int count; /* adapters so far */
};

/* What is put beside a product: given NULL: the matrices begin with the values of the rule. */
struct adapter {
    const char *module;
    const struct lora_rule *rule;
    const struct lora_given *given;
};

static int find_adapter(const struct graph *graph, const char *name) {
    for (int t = 0; t < graph->tensors.n; t++)
        if (graph->tensors.at[t].mark == MARK_ADAPTER && strcmp(graph->tensors.at[t].name, name) == 0) return t;
    return -1;
}

/* A module that is executed twice has one adapter. */
static int add_matrix(struct adapting *a, const struct adapter *adapter, char matrix, enum rt_dtype dtype, int64_t rows,
                      int64_t columns) {
    struct graph *graph = a->builder.graph;
    const char *name = lora_name_of_matrix(graph->arena, adapter->module, matrix);
    const struct lora_given *given = adapter->given;
    int id = find_adapter(graph, name);
    if (id >= 0) return id;
    id = graph_add_tensor(graph, TENSOR_WEIGHT, name, dtype, 2, (const int64_t[]){rows, columns});
    struct tensor *tensor = &graph->tensors.at[id];
    tensor->mark = MARK_ADAPTER;
    tensor->stored = given ? (matrix == 'A' ? given->a : given->b) : (struct stored){.file = -1, .dtype = dtype};
    if (given) tensor->data = matrix == 'A' ? given->a_bytes : given->b_bytes;
    return id;
}

/* Dropout as the model's own are, with keys of its own. */
static int dropped(struct adapting *a, int x, double ratio) {
    static const int64_t seed = 0x6c6f7261; /* "lora" */
    struct graph *graph = a->builder.graph;
    const struct attr attrs[] = {attr_of_float("ratio", ratio), attr_of_int("key", seed << 32 | a->count)};
    const int inputs[] = {x, graph_control(graph, RT_TRAINING), graph_control(graph, RT_STEP),
                          graph_control(graph, RT_MICRO)};
    return build(&a->builder, OP_Dropout, 4, inputs, 2, attrs);
}

/* x A' B' scale, in the type of A and B. */
static int low_rank(struct adapting *a, const struct adapter *adapter, int x, int64_t outputs) {
    struct build *builder = &a->builder;
    struct graph *graph = builder->graph;
    const struct attr turned = attr_of_int("trans_b", 1);
    const enum rt_dtype dtype = op_summed_in(graph->tensors.at[x].dtype);
    const int64_t r = (int64_t)adapter->rule->r, inputs = graph->tensors.at[x].dims[graph->tensors.at[x].ndim - 1];
    const int down = add_matrix(a, adapter, 'A', dtype, r, inputs), up = add_matrix(a, adapter, 'B', dtype, outputs, r);
    int y = build_cast(builder, x, dtype);
    if (y >= 0 && adapter->rule->dropout > 0 && graph->train) y = dropped(a, y, adapter->rule->dropout);
    if (y >= 0) y = build(builder, OP_MatMul, 2, (int[]){y, down}, 1, &turned);
    if (y >= 0) y = build(builder, OP_MatMul, 2, (int[]){y, up}, 1, &turned);
    return y < 0 ? -1 : build2(builder, OP_Mul, y, build_scalar(builder, dtype, lora_scale(adapter->rule)));
}

/* Adds the adapter behind the product; the sum takes the name of the product's result. */
static int put_beside(struct adapting *a, int id, const struct adapter *adapter) {
    struct graph *graph = a->builder.graph;
    const struct node node = graph->nodes.at[id];
    const struct tensor base = graph->tensors.at[node.outputs[0]];
    a->builder.node = arena_printf(graph->arena, "%s.lora", node.name);
    VEC_PUSH(graph->arena, &graph->order, id);
    int y = low_rank(a, adapter, node.inputs[0], base.dims[base.ndim - 1]);
    const int whole = y < 0 ? -1 : build_cast(&a->builder, node.outputs[0], graph->tensors.at[y].dtype);
    if (whole < 0 || (y = build2(&a->builder, OP_Add, whole, y)) < 0) return -1;
    if (adapter->given && adapter->given->merged)
        attr_set(graph, &graph->nodes.at[graph->tensors.at[y].producer],
                 attr_of_float("merged", lora_scale(adapter->rule)));
    if ((y = build_cast(&a->builder, y, base.dtype)) < 0) return -1;
    graph->tensors.at[node.outputs[0]].name = arena_printf(graph->arena, "%s.base", base.name);
    graph->tensors.at[y].name = base.name;
    a->count++;
    return y;
}

/* Adapters of files ------------------------------------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n > m && name[n - m - 1] == '.' && strcmp(name + n - m, end) == 0;
}

struct lora_modules lora_modules_of(const struct graph *graph) {
    struct lora_modules modules = {0};
    struct map known;
    map_init(&known, graph->arena);
    for (int i = 0; i < graph->order.n; i++) {
        const char *module = lora_module_of(graph, &graph->nodes.at[graph->order.at[i]]);
        if (module && map_put(&known, module, strlen(module), 0)) VEC_PUSH(graph->arena, &modules.all, module);
    }
    return modules;
}

struct lora_modules lora_modules_adapted(const struct graph *graph) {
    struct lora_modules modules = {0};
    const char *module;
    for (int t = 0; t < graph->tensors.n; t++)
        if (matrix_of(graph, &graph->tensors.at[t], &module) == 'A') VEC_PUSH(graph->arena, &modules.all, module);
    return modules;
}

const char *lora_find(const struct lora_modules *modules, const char *name) {
    const char *found = NULL;
    int count = 0;
    for (int i = 0; i < modules->all.n; i++) {
        const char *module = modules->all.at[i];
        if (strcmp(module, name) == 0) return module;
        if (!ends_with(module, name) && !ends_with(name, module)) continue;
        found = module;
        count++;
    }
    return count == 1 ? found : NULL;
}

/* The modules of the adapters. -1 after diagnostics: some have none. */
static int find_modules(const struct graph *graph, const struct lora_given *given, int n, struct diags *diags,
                        const char ***modules) {
    const struct lora_modules all = lora_modules_of(graph);
    int none = 0;
    *modules = ARENA_ARRAY(graph->arena, const char *, n + 1);
    for (int i = 0; i < n; i++) {
        if (((*modules)[i] = lora_find(&all, given[i].name))) continue;
        const char *name = diag_quote(diags, given[i].name);
        if (!none++)
            diag_error(diags, 393, EXIT_MISMATCH, graph->name, "the model has no product for the adapter of %s", name);
        else
            diag_note(diags, "nor for that of %s", name);
    }
    if (none) diag_help(diags, "--lora list prints the products that the model has");
    return none ? -1 : 0;
}

/* 1 and *out: the adapter of the product; 0: it has none; -1 after a diagnostic. */
static int adapter_of(const struct adapting *a, int id, struct adapter *out) {
    const struct graph *graph = a->builder.graph;
    const struct node *node = &graph->nodes.at[id];
    const char *module = lora_module_of(graph, node);
    int i = 0;
    while (module && i < a->ngiven && strcmp(a->module[i], module) != 0) i++;
    if (!module || i == a->ngiven) return 0;
    const struct lora_given *given = &a->given[i];
    const struct tensor *x = &graph->tensors.at[node->inputs[0]], *y = &graph->tensors.at[node->outputs[0]];
    *out = (struct adapter){module, &given->rule, given};
    if (x->dims[x->ndim - 1] == given->inputs && y->dims[y->ndim - 1] == given->outputs) return 1;
    return diag_error(a->builder.diags, 393, EXIT_MISMATCH, node_place(graph, id),
                      "the adapter of %s has %lld inputs and %lld outputs, and the product %lld and %lld",
                      diag_quote(a->builder.diags, given->name), (long long)given->inputs, (long long)given->outputs,
                      (long long)x->dims[x->ndim - 1], (long long)y->dims[y->ndim - 1]);
}

static int attached(void *env, int id) {
    struct adapting *a = env;
    struct adapter adapter;
    const int found = adapter_of(a, id, &adapter);
    return found > 0 ? put_beside(a, id, &adapter) : found < 0 ? -1 : REWRITE_KEPT;
}

int lora_attach(struct graph *graph, const struct lora_given *given, int n, struct diags *diags) {
    struct adapting a = {.builder = {graph, diags, NULL}, .given = given, .ngiven = n};
    return find_modules(graph, given, n, diags, &a.module) < 0 ? -1 : rewrite_each(graph, attached, &a);
}

/* True if the matrix is (outputs, inputs) for the product, which reads it transposed or not. */
static bool is_turned(const struct node *product, int stored) {
    return (stored != product->inputs[1]) != (attr_int(product, "trans_b", 0) != 0);
}

/* True if the node reads the matrix, and is no transpose of it. */
static bool reads(const struct graph *graph, const struct node *node, int matrix) {
    for (int i = 0; i < node->ninputs; i++) {
        const struct node *from = node->inputs[i] < 0 ? NULL : graph_producer(graph, node->inputs[i]);
        if (node->inputs[i] == matrix && !op_exchanges_last(node)) return true;
        if (from && op_exchanges_last(from) && from->inputs[0] == matrix) return true;
    }
    return false;
}

static bool is_shared(const struct graph *graph, int matrix, const char *module) {
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const char *reader = reads(graph, node, matrix) ? lora_module_of(graph, node) : module;
        if (!reader || strcmp(reader, module) != 0) return true;
    }
    return false;
}

int lora_find_places(const struct graph *graph, const struct lora_given *given, int n, struct diags *diags,
                     struct lora_places *out) {
    struct adapting a = {.builder = {(struct graph *)graph, diags, NULL}, .given = given, .ngiven = n};
    struct adapter adapter;
    *out = (struct lora_places){0};
    if (find_modules(graph, given, n, diags, &a.module) < 0) return -1;
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i], found = adapter_of(&a, id, &adapter);
        if (found < 0) return -1;
        if (!found) continue;
        const struct node *node = &graph->nodes.at[id];
        const int stored = matrix_of_product(graph, node);
        VEC_PUSH(graph->arena, &out->all,
                 ((struct lora_place){adapter.given, adapter.module, node->name, graph->tensors.at[stored].name,
                                      is_turned(node, stored), is_shared(graph, stored, adapter.module)}));
    }
    return 0;
}

/* Merged adapters -------------------------------------------------------------------------------------------------- */

/* The product with a stored matrix from which the tensor is made by casts and a factor. */
static const struct node *product_before(const struct graph *graph, int tensor) {
    const struct node *node = graph_producer(graph, tensor);
    while (node && (node->op->id == OP_Cast || node->op->id == OP_Mul)) node = graph_producer(graph, node->inputs[0]);
    return node && node->op->id == OP_MatMul ? node : NULL;
}

static float *values_of(const struct graph *graph, int weight) {
    const struct tensor *w = &graph->tensors.at[weight];
    const int64_t n = tensor_elements(w);
    float *values = ARENA_ARRAY(graph->arena, float, n + 1);
    rt_convert(values, RT_F32, w->data, w->kind == TENSOR_CONST ? w->dtype : w->stored.dtype, (size_t)n);
    return values;
}

void lora_add(const struct lora_sum *sum, float *matrix, bool turned, struct arena *arena) {
    const int64_t inputs = sum->inputs, outputs = sum->outputs, r = sum->r;
    float *row = ARENA_ARRAY(arena, float, inputs + 1);
    for (int64_t o = 0; o < outputs; o++) {
        memset(row, 0, (size_t)inputs * sizeof *row);
        for (int64_t k = 0; k < r; k++)
            for (int64_t i = 0; i < inputs; i++) row[i] += sum->b[o * r + k] * sum->a[k * inputs + i];
        for (int64_t i = 0; i < inputs; i++)
            matrix[turned ? o * inputs + i : i * outputs + o] += (float)sum->scale * row[i];
    }
}

/* The weight with its adapter added, in its type. */
static const void *merged_bytes(const struct graph *graph, int weight, bool turned, int a, int b, double scale) {
    const struct tensor w = graph->tensors.at[weight];
    const struct lora_sum ba = {w.dims[!turned],     w.dims[turned],      graph->tensors.at[a].dims[0],
                                values_of(graph, a), values_of(graph, b), scale};
    float *sum = values_of(graph, weight);
    lora_add(&ba, sum, turned, graph->arena);
    if (w.dtype == RT_F32) return sum;
    void *bytes = ARENA_ARRAY(graph->arena, char, tensor_bytes(&w) + 1);
    rt_convert(bytes, w.dtype, sum, RT_F32, (size_t)tensor_elements(&w));
    return bytes;
}

/* The weight with its adapter added: a constant, or where the bytes are not known a weight that is stored nowhere. */
static int merged_weight(struct graph *graph, int weight, bool turned, int a, int b, double scale) {
    const struct tensor w = graph->tensors.at[weight];
    const bool known = w.data && graph->tensors.at[a].data && graph->tensors.at[b].data;
    const char *name = arena_printf(graph->arena, "%s.merged", w.name);
    const int id = graph_add_tensor(graph, known ? TENSOR_CONST : TENSOR_WEIGHT, name, w.dtype, w.ndim, w.dims);
    graph->tensors.at[id].data = known ? merged_bytes(graph, weight, turned, a, b, scale) : NULL;
    if (!known) graph->tensors.at[id].stored = (struct stored){.file = -1, .dtype = w.dtype};
    return id;
}

static int merged(void *env, int id) {
    struct build *builder = env;
    struct graph *graph = builder->graph;
    const struct node node = graph->nodes.at[id];
    const struct attr *scale = node.op->id == OP_Add ? attr_find(&node, "merged") : NULL;
    const struct node *base = scale ? product_before(graph, node.inputs[0]) : NULL;
    const struct node *up = scale ? product_before(graph, node.inputs[1]) : NULL;
    const struct node *down = up ? product_before(graph, up->inputs[0]) : NULL;
    const int stored = base ? matrix_of_product(graph, base) : -1;
    if (stored < 0 || !down) return REWRITE_KEPT;
    const bool turned = is_turned(base, stored);
    const struct attr trans_b = attr_of_int("trans_b", turned);
    const int x = base->inputs[0], a = down->inputs[1], b = up->inputs[1];
    const int weight = merged_weight(graph, stored, turned, a, b, scale->number);
    builder->node = node.name;
    const int y = build(builder, OP_MatMul, 2, (int[]){x, weight}, 1, &trans_b);
    if (y >= 0) graph->tensors.at[y].name = graph->tensors.at[node.outputs[0]].name;
    return y < 0 ? -1 : build_cast(builder, y, graph->tensors.at[node.outputs[0]].dtype);
}

/* The pass --------------------------------------------------------------------------------------------------------- */

static int adapted(void *env, int id) {
    struct adapting *a = env;
    struct graph *graph = a->builder.graph;
    const char *module = lora_module_of(graph, &graph->nodes.at[id]);
    for (int i = 0; module && i < a->training->loras.n; i++)
        a->matched[i] = a->matched[i] || rule_matches(&a->training->loras.at[i], module);
    const struct lora_rule *rule = module ? lora_rule_of(a->training, module) : NULL;
    if (!rule) return REWRITE_KEPT;
    const int known = find_adapter(graph, lora_name_of_matrix(graph->arena, module, 'A'));
    if (known >= 0 && graph->tensors.at[known].stored.file >= 0) return REWRITE_KEPT; /* --adapter has put it there */
    return put_beside(a, id, &(struct adapter){module, rule, NULL});
}

static int check_rules(const struct adapting *a) {
    int status = 0;
    for (int i = 0; i < a->training->loras.n; i++) {
        if (a->matched[i]) continue;
        status = diag_error(a->builder.diags, 414, EXIT_USAGE, "--lora", "no product is of a module that %s names",
                            diag_quote(a->builder.diags, a->training->loras.at[i].text));
        diag_help(a->builder.diags, "--lora list prints the products that can be adapted");
    }
    return status;
}

int pass_lora(struct graph *graph, const struct pass_context *context) {
    struct adapting a = {.builder = {graph, context->diags, NULL}, .training = context->training};
    if (!graph->train) return rewrite_each(graph, merged, &a.builder);
    if (!a.training || !a.training->loras.n) return 0;
    a.matched = ARENA_ARRAY(graph->arena, bool, a.training->loras.n + 1);
    return rewrite_each(graph, adapted, &a) < 0 ? -1 : check_rules(&a);
}
