/* Chooses the linear layers that compute in 8-bit floats and marks their products, before autodiff.
 *
 * Note [Marks]
 * Policies and plans see ordinary matrix products. Only when their splits are known does quantize.c decide which of
 * the marked ones compute in 8 bits. Attributes of a marked product: fp8_layer, a unique name of the layer, which
 * the products of its gradients have too; fp8_a and fp8_b, "FORMAT:NAME" of each operand's format and scale; and of
 * the forward product fp8_dy, the same of the gradient of its result. A tensor that several layers read has one
 * scale. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/training.h"

enum { HISTORY = 1024 };

static int read_count(const char *text, double most, double *value) {
    char *end;
    *value = (double)strtoll(text, &end, 10);
    return end != text && !*end && *value >= 0 && *value <= most ? 0 : -1;
}

static int set_key(void *env, const char *key, const char *value, struct arena *arena) {
    struct fp8 *fp8 = env;
    bool exclude = strcmp(key, "exclude") == 0;
    if (exclude || strcmp(key, "include") == 0) {
        VEC_PUSH(arena, &fp8->rules, (struct fp8_rule){value, exclude});
        return 0;
    }
    if (strcmp(key, "history") == 0) return read_count(value, 1 << 20, &fp8->history) < 0 || fp8->history < 1 ? -1 : 0;
    return strcmp(key, "margin") == 0 ? read_count(value, 64, &fp8->margin) : -1;
}

int fp8_parse(struct fp8 *fp8, const char *text, struct arena *arena, struct diags *diags) {
    static const struct key_options keys = {"--fp8", "--fp8", "include=GLOB exclude=GLOB history=STEPS margin=N", NULL,
                                            set_key};
    static const struct { const char *name, *gradient; } recipes[] = {{"hybrid", "e5m2"}, {"e4m3", "e4m3"}};
    *fp8 = (struct fp8){.text = text, .history = HISTORY};
    if (!text) return 0;
    size_t name = strcspn(text, ":");
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (strlen(recipes[i].name) == name && strncmp(recipes[i].name, text, name) == 0)
            fp8->gradient = recipes[i].gradient;
    if (!fp8->gradient)
        return diag_error(diags, 202, EXIT_USAGE, "--fp8", "'%.*s' is neither hybrid nor e4m3", (int)name, text);
    return key_options_read(&keys, text, fp8, arena, diags);
}

struct marking {
    struct rewrite rewrite;
    struct build builder;
    const struct fp8 *fp8;
    bool *feeds;      /* per tensor of the old graph: a layer depends on it */
    bool *matched;    /* per rule: a layer has matched it */
    struct map names; /* names in use -> tensor */
    struct map rows;  /* id of a tensor -> the tensor reshaped to a matrix */
    int layers, marked;
};

/* The stored matrix, possibly cast, that the product reads as its second operand; -1 if there is none. */
static int weight_of(const struct graph *graph, const struct node *node) {
    if (node->op->id != OP_MatMul || node->ninputs != 2 || attr_int(node, "trans_a", 0)) return -1;
    const struct node *cast = made_by(graph, node->inputs[1], OP_Cast);
    const int w = cast ? cast->inputs[0] : node->inputs[1];
    const struct tensor *weight = &graph->tensors.at[w];
    return weight->kind == TENSOR_WEIGHT && weight->ndim == 2 && rt_dtype_is_float(weight->dtype) ? w : -1;
}

static void find_feeding(struct marking *m) {
    const struct graph *graph = m->builder.graph;
    m->feeds = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    GRAPH_EACH_BACK(graph, i, const struct node *node) {
        bool feeds = weight_of(graph, node) >= 0;
        for (int o = 0; o < node->noutputs; o++) feeds = feeds || m->feeds[node->outputs[o]];
        for (int k = 0; k < node->ninputs && feeds; k++)
            if (node->inputs[k] >= 0) m->feeds[node->inputs[k]] = true;
    }
}

/* What the user's rules say about the layer. */
struct verdict {
    bool included, excluded, has_includes;
};

static struct verdict judge(struct marking *m, const char *name) {
    struct verdict verdict = {false, false, false};
    VEC_EACH(&m->fp8->rules, i, const struct fp8_rule *rule) {
        bool matches = fnmatch(rule->pattern, name, 0) == 0;
        m->matched[i] = m->matched[i] || matches;
        verdict.has_includes = verdict.has_includes || !rule->exclude;
        *(rule->exclude ? &verdict.excluded : &verdict.included) |= matches;
    }
    return verdict;
}

/* Why the layer's shapes or type do not allow 8-bit floats; NULL if they do. */
static const char *misfit(const struct graph *graph, const struct node *node) {
    const struct tensor *x = &graph->tensors.at[node->inputs[0]], *y = &graph->tensors.at[node->outputs[0]];
    int64_t columns = y->dims[y->ndim - 1], k = x->dims[x->ndim - 1], rows = columns ? tensor_elements(y) / columns : 0;
    const struct {
        const char *what;
        int64_t extent;
    } extents[] = {{"rows", rows}, {"inputs", k}, {"outputs", columns}};
    if (x->dtype == RT_F64) return "it computes in f64";
    for (int i = 0; i < 3; i++)
        if (extents[i].extent % FP8_MULTIPLE || !extents[i].extent)
            return arena_printf(graph->arena, "it has %lld %s, which is not a multiple of %d",
                                (long long)extents[i].extent, extents[i].what, FP8_MULTIPLE);
    return NULL;
}

static int leave_out(struct marking *m, const struct node *node, const char *why) {
    diag_remark(m->builder.diags, node->name, "fp8: this layer is not converted to 8-bit floats: %s", why);
    return 0;
}

/* 1: mark the layer; 0: do not; -1 after a diagnostic: an include rule matches a layer that cannot be marked. */
static int choose(struct marking *m, const struct node *node) {
    const struct verdict verdict = judge(m, node->name);
    const char *why = misfit(m->builder.graph, node);
    if (verdict.excluded) return leave_out(m, node, "it is excluded");
    if (verdict.has_includes && !verdict.included) return leave_out(m, node, "it is not included");
    if (!verdict.included && !m->feeds[node->outputs[0]])
        return leave_out(m, node, "it is the last layer, which computes logits; include=GLOB converts it too");
    if (!why) return 1;
    if (!verdict.included) return leave_out(m, node, why);
    return diag_error(m->builder.diags, 425, EXIT_LIMIT, node->name, "--fp8 includes this layer: %s", why);
}

/* The wanted name, with a number appended if another tensor has it. */
static const char *name_for(struct marking *m, const char *wanted, int tensor) {
    const char *name = wanted;
    for (int i = 2;; i++) {
        int known = map_find(&m->names, name);
        if (known < 0) map_set(&m->names, name, tensor);
        if (known < 0 || known == tensor) return name;
        name = arena_printf(m->builder.graph->arena, "%s.%d", wanted, i);
    }
}

static struct attr mark(struct marking *m, const char *key, const char *format, const char *name) {
    return attr_of_text(key, arena_printf(m->builder.graph->arena, "%s:%s", format, name));
}

/* Builds the marked product as a product of matrices, in which leading dimensions are merged to rows. */
static int build_marked(struct marking *m, int id, int rows, int weight) {
    struct graph *graph = m->builder.graph;
    const struct node node = graph->nodes.at[id];
    const char *layer = name_for(m, node.name, node.outputs[0]), *x = graph->tensors.at[node.inputs[0]].name;
    struct attr attrs[] = {
        attr_of_int("trans_a", 0),
        attr_of_int("trans_b", attr_int(&node, "trans_b", 0)),
        attr_of_text("fp8_layer", layer),
        mark(m, "fp8_a", "e4m3", name_for(m, x, rows)),
        mark(m, "fp8_b", "e4m3", name_for(m, graph->tensors.at[weight].name, weight)),
        mark(m, "fp8_dy", m->fp8->gradient,
             name_for(m, arena_printf(graph->arena, "%s.gradient", layer), node.outputs[0])),
    };
    return build(&m->builder, OP_MatMul, 2, (int[]){rows, node.inputs[1]}, sizeof attrs / sizeof *attrs, attrs);
}

/* Reshapes the tensor to a matrix. Layers that read the same tensor get the same matrix, so that they share a scale. */
static int as_rows(struct marking *m, int x) {
    const struct tensor t = m->builder.graph->tensors.at[x];
    const char *key = arena_printf(m->builder.graph->arena, "%d", x);
    int rows = map_find(&m->rows, key);
    if (rows >= 0) return rows;
    rows = build_reshape(&m->builder, x, 2, (int64_t[]){tensor_elements(&t) / t.dims[t.ndim - 1], t.dims[t.ndim - 1]});
    if (rows >= 0) map_set(&m->rows, key, rows);
    return rows;
}

static int mark_layer(struct marking *m, int id, int weight) {
    const struct node node = m->builder.graph->nodes.at[id];
    const struct tensor y = m->builder.graph->tensors.at[node.outputs[0]];
    m->builder.node = node.name;
    int rows = as_rows(m, node.inputs[0]), product = rows < 0 ? -1 : build_marked(m, id, rows, weight);
    int result = product < 0 ? -1 : build_reshape(&m->builder, product, y.ndim, y.dims);
    if (result >= 0) rewrite_replace(&m->rewrite, node.outputs[0], result);
    return result < 0 ? -1 : 0;
}

static int visit(struct marking *m, int id) {
    const struct node *node = &m->builder.graph->nodes.at[id];
    int weight = weight_of(m->builder.graph, node), chosen = 0;
    if (weight >= 0) m->layers++, chosen = choose(m, node);
    if (chosen < 0) return -1;
    if (chosen) return m->marked++, mark_layer(m, id, weight);
    rewrite_keep(&m->rewrite, id);
    return 0;
}

static int check_rules(const struct marking *m) {
    for (int i = 0; i < m->fp8->rules.n; i++)
        if (!m->matched[i])
            return diag_error(m->builder.diags, 424, EXIT_USAGE, "--fp8", "no linear layer's name matches '%s'",
                              m->fp8->rules.at[i].pattern);
    return 0;
}

int pass_fp8(struct graph *graph, const struct pass_context *context) {
    if (!context->training || !context->training->fp8.text || graph->level != TYPED) return 0;
    struct marking m = {.builder = {graph, context->diags, NULL}, .fp8 = &context->training->fp8};
    int errors = context->diags->errors;
    map_init(&m.names, graph->arena);
    map_init(&m.rows, graph->arena);
    m.matched = ARENA_ARRAY(graph->arena, bool, m.fp8->rules.n + 1);
    find_feeding(&m);
    rewrite_begin(&m.rewrite, graph);
    for (int i = 0; i < m.rewrite.order_n; i++)
        if (visit(&m, rewrite_next(&m.rewrite, i)) < 0 && context->diags->errors == errors) return -1;
    rewrite_end(&m.rewrite);
    if (context->diags->errors > errors || check_rules(&m) < 0) return -1;
    if (m.marked) return 0;
    return diag_error(context->diags, 426, EXIT_UNSUPPORTED, graph->name,
                      "--fp8: none of the %d linear layers can compute in 8-bit floats", m.layers);
}
