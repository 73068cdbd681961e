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
#include "runtime/base/io/file.h"

/* As peft names the matrices. Behind those of a stack is its number. */
static const char *const suffixes[][2] = {[LORA_LINEAR] = {".lora_A.weight", ".lora_B.weight"},
                                          [LORA_EMBEDDING] = {".lora_embedding_A", ".lora_embedding_B"},
                                          [LORA_STACK] = {".lora_A", ".lora_B"}};

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
    if (strcmp(key, "swapped") == 0) return rule->swapped = true, strcmp(value, "true") == 0 ? 0 : -1;
    if (strcmp(key, "init") != 0) return -1;
    rule->gaussian = strcmp(value, "gaussian") == 0;
    return rule->gaussian || strcmp(value, "kaiming") == 0 ? 0 : -1;
}

int lora_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags) {
    static const struct key_options keys = {
        "--lora", "--lora", "r=N alpha=X dropout=P init=kaiming|gaussian rslora swapped", "true", set_key};
    struct lora_rule rule = {.text = text, .globs = arena_copy(arena, text, strcspn(text, ":")), .r = 8, .alpha = 8};
    if (!*rule.globs)
        return diag_error(diags, 205, EXIT_USAGE, "--lora", "%s must have the form GLOB[,GLOB..]:r=8,alpha=16,..",
                          diag_quote(diags, text));
    if (key_options_read(&keys, text, &rule, arena, diags) < 0) return -1;
    const char *a = rule.gaussian ? arena_printf(arena, "*=normal:std=%.17g", 1 / rule.r)
                                  : arena_printf(arena, "*=kaiming_uniform:slope=%.17g", sqrt(5));
    if (init_rule_parse(&rule.a, a, arena, diags) < 0 || init_rule_parse(&rule.zeros, "*=zeros", arena, diags) < 0 ||
        init_rule_parse(&rule.normal, "*=normal", arena, diags) < 0)
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

struct lora_matrix lora_matrix_of_name(struct arena *arena, const char *name) {
    const char *dot = strrchr(name, '.');
    const size_t digits = dot ? strspn(dot + 1, "0123456789") : 0;
    struct lora_matrix matrix = {0};
    if (digits && digits < 6 && !dot[1 + digits]) {
        matrix.stack = atoi(dot + 1);
        name = arena_copy(arena, name, (size_t)(dot - name));
    }
    for (enum lora_kind kind = LORA_LINEAR; kind <= LORA_STACK; kind++) {
        for (int up = 0; up < 2; up++) {
            if ((kind == LORA_STACK) != (digits > 0) || !rt_has_suffix(name, suffixes[kind][up])) continue;
            matrix.letter = up ? 'B' : 'A', matrix.kind = kind;
            matrix.module = arena_copy(arena, name, strlen(name) - strlen(suffixes[kind][up]));
        }
    }
    return matrix;
}

const char *lora_name_of_matrix(struct arena *arena, const struct lora_matrix *of, char letter) {
    const char *suffix = suffixes[of->kind][letter == 'B'];
    return of->kind == LORA_STACK ? arena_printf(arena, "%s%s.%d", of->module, suffix, of->stack)
                                  : arena_printf(arena, "%s%s", of->module, suffix);
}

static struct lora_matrix matrix_of(const struct graph *graph, const struct tensor *weight) {
    return weight->mark == MARK_ADAPTER ? lora_matrix_of_name(graph->arena, weight->name) : (struct lora_matrix){0};
}

const struct init_rule *lora_init_of(const struct training *training, const struct graph *graph,
                                     const struct tensor *weight) {
    const struct init_rule *given = init_rule_of(training, weight->name);
    struct lora_matrix matrix = {0};
    if (training && !given && weight->stored.file < 0) matrix = matrix_of(graph, weight);
    const struct lora_rule *rule = matrix.letter ? lora_rule_of(training, matrix.module) : NULL;
    if (!rule) return given;
    if (matrix.kind == LORA_EMBEDDING) return matrix.letter == 'A' ? &rule->zeros : &rule->normal;
    return matrix.letter == 'A' ? &rule->a : &rule->zeros;
}

int lora_find_matrix(const struct graph *graph, const char *module, enum lora_kind kind, char letter) {
    for (int t = 0; t < graph->tensors.n; t++) {
        const struct lora_matrix matrix = matrix_of(graph, &graph->tensors.at[t]);
        if (matrix.letter == letter && matrix.kind == kind && strcmp(matrix.module, module) == 0) return t;
    }
    return -1;
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

/* Products -------------------------------------------------------------------------------------------------------- */

/* A product with a stored matrix, with one of a stack of them, or with a matrix of ones at numbers of rows. */
struct product {
    enum lora_kind kind;
    int stored;                     /* the weight; a stack has the matrices in its first dimension */
    bool turned;                    /* matrices are (outputs, inputs) */
    bool left;                      /* they are the left operand, of columns */
    int x, index;                   /* what is multiplied; the number of the matrix for each row, -1: rows of all */
    int64_t count, outputs, inputs; /* matrices and their extents */
    bool swapped;                   /* Note [Swapped stacks] */
};

/* Note [Swapped stacks]
 * peft takes the matrices of a stack for (outputs, inputs) unless their module says that it is_transposed. Where a
 * product reads (inputs, outputs) and the module does not say so, as in Llama 4, A has the product's outputs, and B its
 * inputs: y = x B' A'. The extents of a product are those of the adapter then, for which the matrices are turned. */
static void swap(struct product *p) {
    const int64_t inputs = p->inputs;
    if (p->kind != LORA_STACK || p->turned) return;
    p->inputs = p->outputs, p->outputs = inputs;
    p->swapped = p->turned = true;
}

static bool chooses_matrices(const struct graph *graph, const struct node *node) {
    return node->op->id == OP_Gather && attr_int(node, "axis", 0) == 0 && graph->tensors.at[node->inputs[0]].ndim == 3;
}

/* True if the node's result is the matrices of its operand, transposed or some of them. */
static bool has_matrices(const struct graph *graph, const struct node *node) {
    return op_exchanges_last(node) || chooses_matrices(graph, node);
}

/* Finds the weight from which the matrices of the product come. */
static bool find_stored(const struct graph *graph, int tensor, struct product *p) {
    const struct node *node;
    for (; (node = graph_producer(graph, tensor)) && has_matrices(graph, node); tensor = node->inputs[0]) {
        if (op_exchanges_last(node)) {
            p->turned = !p->turned;
        } else {
            if (p->index >= 0) return false;
            p->index = node->inputs[1];
        }
    }
    const struct tensor *weight = &graph->tensors.at[tensor];
    const bool stack = weight->ndim == 3;
    if (weight->kind != TENSOR_WEIGHT || weight->constant || weight->mark == MARK_ADAPTER ||
        !rt_dtype_is_float(weight->dtype) || weight->ndim != 2 + stack || (!stack && (p->left || p->index >= 0)))
        return false;
    if (p->left && p->index < 0) return false; /* rows that a product of linear layers begins with */
    const int64_t *dims = weight->dims + stack;
    p->stored = tensor;
    if (p->kind != LORA_EMBEDDING) p->kind = stack ? LORA_STACK : LORA_LINEAR;
    p->count = stack ? weight->dims[0] : 1;
    p->outputs = dims[!p->turned], p->inputs = dims[p->turned];
    return p->kind != LORA_EMBEDDING || (!stack && rt_has_suffix(weight->name, ".weight"));
}

static bool find_product(const struct graph *graph, const struct node *node, struct product *p) {
    const enum op_id op = node->op->id;
    *p = (struct product){.index = -1, .x = node->ninputs ? node->inputs[0] : -1};
    if (op == OP_Gather && attr_int(node, "axis", 0) == 0 && !chooses_matrices(graph, node)) {
        p->kind = LORA_EMBEDDING, p->x = node->inputs[1];
        return !graph_producer(graph, node->inputs[0]) && find_stored(graph, node->inputs[0], p);
    }
    if (op == OP_ExpertMatMul) p->index = node->inputs[2];
    if (op != OP_ExpertMatMul && (op != OP_MatMul || node->ninputs != 2)) return false;
    p->turned = attr_int(node, "trans_b", 0);
    if (!attr_int(node, "trans_a", 0) && find_stored(graph, node->inputs[1], p)) return true;
    *p = (struct product){.index = -1, .x = node->inputs[1], .left = true, .turned = !attr_int(node, "trans_a", 0)};
    return op == OP_MatMul && !attr_int(node, "trans_b", 0) && find_stored(graph, node->inputs[0], p);
}

/* x by the matrices m, (outputs, inputs) if `turned`, in the way of the node's product. */
static int multiply(struct build *builder, const struct node *node, const struct product *p, int x, int m,
                    bool turned) {
    const struct attr trans = attr_of_int(p->left ? "trans_a" : "trans_b", turned != p->left);
    const struct attr axis = attr_of_int("axis", 0);
    if (p->kind == LORA_EMBEDDING) return build(builder, OP_Gather, 2, (int[]){m, x}, node->nattrs, node->attrs);
    if (node->op->id == OP_ExpertMatMul) return build(builder, OP_ExpertMatMul, 3, (int[]){x, m, p->index}, 1, &trans);
    if (p->index >= 0 && (m = build(builder, OP_Gather, 2, (int[]){m, p->index}, 1, &axis)) < 0) return -1;
    return build(builder, OP_MatMul, 2, p->left ? (int[]){m, x} : (int[]){x, m}, 1, &trans);
}

/* Modules --------------------------------------------------------------------------------------------------------- */

/* "transformer.h.0.attn.c_attn" of "/transformer/h.0/attn/c_attn/Gemm"; NULL: it is no such path. */
static const char *module_of_path(struct arena *arena, const char *path) {
    const char *end = strrchr(path, '/');
    if (*path != '/' || end == path) return NULL;
    char *module = arena_copy(arena, path + 1, (size_t)(end - path - 1));
    for (char *c = module; *c; c++)
        if (*c == '/') *c = '.';
    return module;
}

static const char *module_of(const struct graph *graph, const struct node *node, const struct product *p) {
    static const char end[] = ".weight";
    const struct provenance *from = provenance_of(graph, node->name, NULL);
    const struct tensor *weight = &graph->tensors.at[p->stored];
    const bool folded = p->kind == LORA_STACK && weight->sources && !strchr(weight->sources, ',');
    const char *name = folded ? weight->sources : weight->name, *path = NULL;
    if (p->kind != LORA_STACK && from && *from->scope && !*from->word) return from->scope;
    if (p->kind != LORA_STACK && !from) path = module_of_path(graph->arena, node->name);
    if (path) return path;
    return rt_has_suffix(name, end) ? arena_copy(graph->arena, name, strlen(name) - (sizeof end - 1)) : name;
}

/* The same product as one with a parameter, a stack of one matrix, as peft's target_parameters name it; NULL: it is
 * none. */
static const char *parameter_of(const struct graph *graph, const char *module, struct product *p) {
    if (p->kind != LORA_LINEAR) return NULL;
    p->kind = LORA_STACK;
    return strcmp(module, graph->tensors.at[p->stored].name) == 0 ? module
                                                                  : arena_printf(graph->arena, "%s.weight", module);
}

const char *lora_module_of(const struct graph *graph, const struct node *node, int weight) {
    const bool stack = graph->tensors.at[weight].ndim == 3;
    return module_of(graph, node, &(struct product){.kind = stack ? LORA_STACK : LORA_LINEAR, .stored = weight});
}

const char *lora_list(const struct graph *graph, struct arena *arena) {
    struct strbuf out;
    struct product p;
    strbuf_init(&out, arena);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (!find_product(graph, node, &p)) continue;
        const struct tensor *weight = &graph->tensors.at[p.stored];
        strbuf_printf(&out, "%-40s %-16s %6lld r values   %s\n", module_of(graph, node, &p), tensor_type(arena, weight),
                      (long long)(p.count * (p.inputs + p.outputs)), weight->name);
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
    struct product product;
    const char *module;
    const struct lora_rule *rule;
    const struct lora_given *given;
    int number; /* of a stack, among those of its module */
};

/* How many stacks of the same module there are before the stack, in the order of products. */
static int number_of_stack(const struct graph *graph, const char *parameter) {
    const char *dot = strrchr(parameter, '.');
    const size_t length = dot ? (size_t)(dot + 1 - parameter) : 0;
    const struct lora_modules modules = lora_modules_of(graph);
    int number = 0;
    VEC_EACH(&modules.all, i, const struct lora_module *module) {
        if (module->kind != LORA_STACK) continue;
        if (strcmp(module->name, parameter) == 0) break;
        number += strncmp(module->name, parameter, length) == 0 && !strchr(module->name + length, '.');
    }
    return number;
}

/* A module that is executed twice has one adapter. */
static int add_matrix(struct adapting *a, const struct adapter *adapter, char matrix, enum rt_dtype dtype, int ndim,
                      const int64_t *dims) {
    struct graph *graph = a->builder.graph;
    const struct lora_given *given = adapter->given;
    struct lora_matrix of = {matrix, adapter->product.kind, 0, adapter->module};
    int id = lora_find_matrix(graph, of.module, of.kind, matrix);
    if (id >= 0) return id;
    of.stack = adapter->number;
    id = graph_add_tensor(graph, TENSOR_WEIGHT, lora_name_of_matrix(graph->arena, &of, matrix), dtype, ndim, dims);
    struct tensor *tensor = &graph->tensors.at[id];
    tensor->mark = MARK_ADAPTER;
    tensor->stored = given ? (matrix == 'A' ? given->a : given->b) : (struct stored){.file = -1, .dtype = dtype};
    if (given) tensor->data = matrix == 'A' ? given->a_bytes : given->b_bytes;
    return id;
}

/* False for a parameter that is one matrix. */
static bool is_stack(const struct adapting *a, const struct product *p) {
    return p->kind == LORA_STACK && a->builder.graph->tensors.at[p->stored].ndim == 3;
}

/* A and B as the operands of products: (outputs, inputs), of an embedding A' (rows, r), of a stack for each matrix. */
static int add_down(struct adapting *a, const struct adapter *adapter, enum rt_dtype dtype) {
    const struct product *p = &adapter->product;
    const int64_t r = (int64_t)adapter->rule->r;
    const int id = add_matrix(a, adapter, 'A', dtype, 2, (int64_t[]){p->count * r, p->inputs});
    if (p->kind == LORA_EMBEDDING) return build_transpose(&a->builder, id, (int64_t[]){1, 0});
    return is_stack(a, p) ? build_reshape(&a->builder, id, 3, (int64_t[]){p->count, r, p->inputs}) : id;
}

static int add_up(struct adapting *a, const struct adapter *adapter, enum rt_dtype dtype) {
    const struct product *p = &adapter->product;
    const bool stack = p->kind == LORA_STACK;
    const int64_t dims[] = {p->outputs, (int64_t)adapter->rule->r, p->count};
    const int id = add_matrix(a, adapter, 'B', dtype, 2 + stack, dims);
    if (stack && !is_stack(a, p)) return build_reshape(&a->builder, id, 2, dims);
    return stack ? build_transpose(&a->builder, id, (int64_t[]){2, 0, 1}) : id;
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

/* x A' B' scale, in the type of A and B. As in peft, only what linear layers multiply is dropped. */
static int low_rank(struct adapting *a, const struct adapter *adapter, const struct node *node) {
    struct build *builder = &a->builder;
    struct graph *graph = builder->graph;
    const struct product *p = &adapter->product;
    struct product rows = *p; /* of the matrix B */
    const enum rt_dtype dtype = op_summed_in(graph->tensors.at[node->outputs[0]].dtype);
    const int down = add_down(a, adapter, dtype), up = add_up(a, adapter, dtype);
    int y = p->kind == LORA_EMBEDDING ? p->x : build_cast(builder, p->x, dtype);
    if (down < 0 || up < 0 || y < 0) return -1;
    if (p->kind == LORA_LINEAR && adapter->rule->dropout > 0 && graph->train) y = dropped(a, y, adapter->rule->dropout);
    if (y >= 0) y = multiply(builder, node, p, y, p->swapped ? up : down, p->kind != LORA_EMBEDDING && !p->swapped);
    if (p->kind == LORA_EMBEDDING) rows.kind = LORA_LINEAR;
    if (y >= 0) y = multiply(builder, node, &rows, y, p->swapped ? down : up, !p->swapped);
    return y < 0 ? -1 : build2(builder, OP_Mul, y, build_scalar(builder, dtype, lora_scale(adapter->rule)));
}

/* Adds the adapter behind the product; the sum takes the name of the product's result. */
static int put_beside(struct adapting *a, int id, const struct adapter *adapter) {
    struct graph *graph = a->builder.graph;
    const struct node node = graph->nodes.at[id];
    const struct tensor base = graph->tensors.at[node.outputs[0]];
    a->builder.node = arena_printf(graph->arena, "%s.lora", node.name);
    VEC_PUSH(graph->arena, &graph->order, id);
    struct adapter numbered = *adapter;
    if (numbered.product.kind == LORA_STACK) numbered.number = number_of_stack(graph, adapter->module);
    int y = low_rank(a, &numbered, &node);
    const int whole = y < 0 ? -1 : build_cast(&a->builder, node.outputs[0], graph->tensors.at[y].dtype);
    if (whole < 0 || (y = build2(&a->builder, OP_Add, whole, y)) < 0) return -1;
    if (adapter->given && adapter->given->merged) {
        struct node *sum = &graph->nodes.at[graph->tensors.at[y].producer];
        attr_set(graph, sum, attr_of_float("merged", lora_scale(adapter->rule)));
        attr_set(graph, sum, attr_of_text("module", adapter->module));
        if (adapter->product.swapped) attr_set(graph, sum, attr_of_int("swapped", 1));
    }
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
    struct map known[LORA_STACK + 1];
    struct product p;
    for (int kind = 0; kind <= LORA_STACK; kind++) map_init(&known[kind], graph->arena);
    GRAPH_EACH(graph, i, const struct node *node) {
        if (!find_product(graph, node, &p)) continue;
        const char *name = module_of(graph, node, &p);
        for (; name; name = parameter_of(graph, name, &p))
            if (map_put(&known[p.kind], name, strlen(name), 0))
                VEC_PUSH(graph->arena, &modules.all, ((struct lora_module){name, p.kind}));
    }
    return modules;
}

struct lora_modules lora_modules_adapted(const struct graph *graph) {
    struct lora_modules modules = {0};
    for (int t = 0; t < graph->tensors.n; t++) {
        const struct lora_matrix matrix = matrix_of(graph, &graph->tensors.at[t]);
        if (matrix.letter == 'A')
            VEC_PUSH(graph->arena, &modules.all, ((struct lora_module){matrix.module, matrix.kind}));
    }
    return modules;
}

static bool same_module(const char *module, const char *name) {
    return strcmp(module, name) == 0 || ends_with(module, name) || ends_with(name, module);
}

/* Of the module's parameters that the rule names, in this order, the one that `wraps` later ones are wrapped around. */
static const char *find_stack(const struct lora_modules *modules, const struct lora_given *given, struct arena *arena) {
    VEC(const char *) all = {0};
    for (int i = 0; i < modules->all.n; i++) {
        const char *parameter = modules->all.at[i].name, *dot = strrchr(parameter, '.');
        if (!dot || modules->all.at[i].kind != LORA_STACK || !rule_matches(&given->rule, parameter)) continue;
        if (same_module(arena_copy(arena, parameter, (size_t)(dot - parameter)), given->name))
            VEC_PUSH(arena, &all, parameter);
    }
    return given->wraps < all.n ? all.at[all.n - 1 - given->wraps] : NULL;
}

/* True if the module is the one that `name` means where other modules have the same end, too: an export of a wrapper
 * has the wrapper's names before those of all modules, or else `name` has them. */
static bool is_wrapped(const struct lora_modules *modules, const char *module, const char *name) {
    const size_t n = strlen(module), m = strlen(name);
    for (int i = 0; i < modules->all.n; i++) {
        const char *other = modules->all.at[i].name;
        if (n > m ? strncmp(other, module, n - m) != 0 : ends_with(name, other) && strlen(other) > n) return false;
    }
    return true;
}

const char *lora_find(const struct lora_modules *modules, const struct lora_given *given, struct arena *arena) {
    const char *found = NULL, *wrapped = NULL, *name = given->name;
    int count = 0;
    if (given->kind == LORA_STACK && given->wraps >= 0) return find_stack(modules, given, arena);
    for (int i = 0; i < modules->all.n; i++) {
        const char *module = modules->all.at[i].name;
        if (modules->all.at[i].kind != given->kind) continue;
        if (strcmp(module, name) == 0) return module;
        if (!same_module(module, name)) continue;
        found = module;
        count++;
        if (is_wrapped(modules, module, name)) wrapped = module;
    }
    return count == 1 ? found : wrapped;
}

int lora_name_stacks(const struct graph *graph, struct lora_given *given, int n, struct diags *diags) {
    const struct lora_modules all = lora_modules_of(graph);
    for (int i = 0; i < n; i++) {
        struct lora_given *stack = &given[i];
        const char *parameter = stack->rules ? lora_find(&all, stack, graph->arena) : NULL;
        if (!parameter) continue;
        const struct lora_rule *rule = lora_rule_of(stack->rules, parameter);
        const int64_t rows = stack->count, r = (int64_t)rule->r;
        if (rows % r)
            return diag_error(diags, 393, EXIT_MISMATCH, graph->name,
                              "A of %s has %lld row(s), which r = %lld does not divide", diag_quote(diags, parameter),
                              (long long)rows, (long long)r);
        stack->name = parameter, stack->wraps = -1;
        stack->rule = *rule, stack->count = rows / r;
        stack->rules = NULL; /* the model may be imported again, for its caches */
    }
    return 0;
}

/* The modules of the adapters. -1 after diagnostics: some have none. */
static int find_modules(const struct graph *graph, const struct lora_given *given, int n, struct diags *diags,
                        const char ***modules) {
    const struct lora_modules all = lora_modules_of(graph);
    int none = 0;
    *modules = ARENA_ARRAY(graph->arena, const char *, n + 1);
    for (int i = 0; i < n; i++) {
        if (((*modules)[i] = lora_find(&all, &given[i], graph->arena))) continue;
        const char *name = diag_quote(diags, given[i].name);
        if (!none++)
            diag_error(diags, 393, EXIT_MISMATCH, graph->name, "the model has no product for the adapter of %s", name);
        else
            diag_note(diags, "nor for that of %s", name);
    }
    if (none) diag_help(diags, "--lora list prints the products that the model has");
    return none ? -1 : 0;
}

/* The adapter of the product, or of its matrix as a parameter, and the name of either; -1: it has none. */
static int given_of(const struct adapting *a, const struct node *node, struct product *p, const char **module) {
    const struct graph *graph = a->builder.graph;
    for (*module = module_of(graph, node, p); *module; *module = parameter_of(graph, *module, p))
        for (int i = 0; i < a->ngiven; i++)
            if (strcmp(a->module[i], *module) == 0 && a->given[i].kind == p->kind) return i;
    return -1;
}

/* 1 and *out: the adapter of the product; 0: it has none; -1 after a diagnostic. */
static int adapter_of(const struct adapting *a, int id, struct adapter *out) {
    const struct graph *graph = a->builder.graph;
    const struct node *node = &graph->nodes.at[id];
    const char *module;
    struct product p;
    if (!find_product(graph, node, &p)) return 0;
    const int i = given_of(a, node, &p, &module);
    if (i < 0) return 0;
    const struct lora_given *given = &a->given[i];
    if ((given->rule.swapped || p.inputs != given->inputs) && p.outputs == given->inputs) swap(&p);
    *out = (struct adapter){p, module, &given->rule, given, 0};
    if (p.inputs == given->inputs && p.outputs == given->outputs && p.count == given->count) return 1;
    if (p.count != given->count)
        return diag_error(a->builder.diags, 393, EXIT_MISMATCH, node_place(graph, id),
                          "the adapter of %s is for %lld matrices of %g rows, and the product has %lld",
                          diag_quote(a->builder.diags, given->name), (long long)given->count, given->rule.r,
                          (long long)p.count);
    return diag_error(a->builder.diags, 393, EXIT_MISMATCH, node_place(graph, id),
                      "the adapter of %s has %lld input(s) and %lld output(s), and the product %lld and %lld",
                      diag_quote(a->builder.diags, given->name), (long long)given->inputs, (long long)given->outputs,
                      (long long)p.inputs, (long long)p.outputs);
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

/* True if the tensor is the weight, or matrices of it. */
static bool is_of(const struct graph *graph, int tensor, int weight) {
    const struct node *node = tensor < 0 || tensor == weight ? NULL : graph_producer(graph, tensor);
    return tensor == weight || (node && has_matrices(graph, node) && is_of(graph, node->inputs[0], weight));
}

/* True if the node reads the weight, and not only to give matrices of it to others. */
static bool reads(const struct graph *graph, const struct node *node, int weight) {
    for (int i = 0; i < node->ninputs && !has_matrices(graph, node); i++)
        if (is_of(graph, node->inputs[i], weight)) return true;
    return false;
}

static bool is_shared(const struct graph *graph, const struct adapter *adapter) {
    struct product p;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (!reads(graph, node, adapter->product.stored)) continue;
        const char *name = find_product(graph, node, &p) ? module_of(graph, node, &p) : NULL;
        if (name && p.kind != adapter->product.kind) name = parameter_of(graph, name, &p);
        if (!name || p.kind != adapter->product.kind || strcmp(name, adapter->module) != 0) return true;
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
        VEC_PUSH(graph->arena, &out->all,
                 ((struct lora_place){adapter.given, adapter.module, graph->nodes.at[id].name,
                                      graph->tensors.at[adapter.product.stored].name, adapter.product.turned,
                                      is_shared(graph, &adapter)}));
    }
    return 0;
}

/* Merged adapters -------------------------------------------------------------------------------------------------- */

/* The node from which the tensor is made by casts. */
static const struct node *behind_casts(const struct graph *graph, int tensor) {
    const struct node *node = graph_producer(graph, tensor);
    while (node && node->op->id == OP_Cast) node = graph_producer(graph, node->inputs[0]);
    return node;
}

static float *values_of(const struct graph *graph, int weight) {
    const struct tensor *w = &graph->tensors.at[weight];
    const int64_t n = tensor_elements(w);
    float *values = ARENA_ARRAY(graph->arena, float, n + 1);
    rt_convert(values, RT_F32, w->data, w->kind == TENSOR_CONST ? w->dtype : w->stored.dtype, (size_t)n);
    return values;
}

void lora_add(const struct lora_sum *sum, float *matrices, bool turned, struct arena *arena) {
    const int64_t inputs = sum->inputs, outputs = sum->outputs, r = sum->r, count = sum->count;
    float *row = ARENA_ARRAY(arena, float, inputs + 1);
    for (int64_t eo = 0; eo < count * outputs; eo++) {
        const int64_t e = eo / outputs, o = eo % outputs;
        float *matrix = matrices + e * inputs * outputs;
        memset(row, 0, (size_t)inputs * sizeof *row);
        for (int64_t k = 0; k < r; k++)
            for (int64_t i = 0; i < inputs; i++)
                row[i] += sum->b[(o * r + k) * count + e] * sum->a[(e * r + k) * inputs + i];
        for (int64_t i = 0; i < inputs; i++)
            matrix[turned ? o * inputs + i : i * outputs + o] += (float)sum->scale * row[i];
    }
}

/* The weight with its adapter added, in its type. */
static const void *merged_bytes(const struct graph *graph, const struct product *p, int a, int b, double scale) {
    const struct tensor w = graph->tensors.at[p->stored];
    const struct lora_sum ba = {
        p->count, p->outputs, p->inputs, graph->tensors.at[b].dims[1], values_of(graph, a), values_of(graph, b), scale};
    float *sum = values_of(graph, p->stored);
    lora_add(&ba, sum, p->turned, graph->arena);
    if (w.dtype == RT_F32) return sum;
    void *bytes = ARENA_ARRAY(graph->arena, char, tensor_bytes(&w) + 1);
    rt_convert(bytes, w.dtype, sum, RT_F32, (size_t)tensor_elements(&w));
    return bytes;
}

/* The weight with its adapter added: a constant, or where the bytes are not known a weight that is stored nowhere. */
static int merged_weight(struct graph *graph, const struct product *p, int a, int b, double scale) {
    const struct tensor w = graph->tensors.at[p->stored];
    const bool known = w.data && graph->tensors.at[a].data && graph->tensors.at[b].data;
    const char *name = arena_printf(graph->arena, "%s.merged", w.name);
    const int id = graph_add_tensor(graph, known ? TENSOR_CONST : TENSOR_WEIGHT, name, w.dtype, w.ndim, w.dims);
    graph->tensors.at[id].data = known ? merged_bytes(graph, p, a, b, scale) : NULL;
    if (!known) graph->tensors.at[id].stored = (struct stored){.file = -1, .dtype = w.dtype};
    return id;
}

static int merged(void *env, int id) {
    struct build *builder = env;
    struct graph *graph = builder->graph;
    const struct node sum = graph->nodes.at[id];
    const struct attr *scale = sum.op->id == OP_Add ? attr_find(&sum, "merged") : NULL;
    const struct node *base = scale ? behind_casts(graph, sum.inputs[0]) : NULL;
    const char *module = scale ? attr_text(&sum, "module", "") : NULL;
    struct product p;
    if (!base || !find_product(graph, base, &p)) return REWRITE_KEPT;
    const struct node product = *base;
    if (lora_find_matrix(graph, module, p.kind, 'A') < 0) p.kind = LORA_STACK; /* of a parameter */
    const int a = lora_find_matrix(graph, module, p.kind, 'A'), b = lora_find_matrix(graph, module, p.kind, 'B');
    if (a < 0 || b < 0) return REWRITE_KEPT;
    if (attr_int(&sum, "swapped", 0)) swap(&p);
    const int weight = merged_weight(graph, &p, a, b, scale->number);
    builder->node = sum.name;
    const int y = multiply(builder, &product, &p, p.x, weight, p.turned != p.swapped);
    if (y >= 0) graph->tensors.at[y].name = graph->tensors.at[sum.outputs[0]].name;
    return y < 0 ? -1 : build_cast(builder, y, graph->tensors.at[sum.outputs[0]].dtype);
}

/* The pass --------------------------------------------------------------------------------------------------------- */

static int adapted(void *env, int id) {
    struct adapting *a = env;
    struct graph *graph = a->builder.graph;
    const struct node *node = &graph->nodes.at[id];
    struct adapter adapter = {0};
    if (!find_product(graph, node, &adapter.product)) return REWRITE_KEPT;
    for (const char *name = module_of(graph, node, &adapter.product); name;
         name = parameter_of(graph, name, &adapter.product)) {
        for (int i = 0; i < a->training->loras.n; i++)
            a->matched[i] = a->matched[i] || rule_matches(&a->training->loras.at[i], name);
        adapter.module = name;
        if ((adapter.rule = lora_rule_of(a->training, name))) break;
    }
    if (!adapter.rule) return REWRITE_KEPT;
    const int known = lora_find_matrix(graph, adapter.module, adapter.product.kind, 'A');
    if (known >= 0 && graph->tensors.at[known].stored.file >= 0) return REWRITE_KEPT; /* --adapter has put it there */
    if (adapter.rule->swapped) swap(&adapter.product);
    return put_beside(a, id, &adapter);
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
