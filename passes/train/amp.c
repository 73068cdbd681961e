/* Mixed precision: inserts casts so that each operator computes in the type that amp.def and the user's rules give
 * it. Only the forward graph is rewritten. Autodiff reverses the casts, so gradients of parameters are f32. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/training.h"

enum { FIRST_SCALE = 65536, GROWTH_INTERVAL = 2000 }; /* GradScaler's defaults */

static int read_dtype(struct amp *amp, const char *text, size_t length, struct diags *diags) {
    static const enum rt_dtype halves[] = {RT_BF16, RT_F16};
    for (size_t i = 0; i < 2; i++)
        if (strlen(rt_dtypes[halves[i]].name) == length && strncmp(rt_dtypes[halves[i]].name, text, length) == 0)
            return amp->dtype = halves[i], 0;
    return diag_error(diags, 202, EXIT_USAGE, "--amp",
                      "'%.*s' is not a type of mixed precision; the types are bf16 fp16", (int)length, text);
}

/* Parses a number in [least, most]: 0, or -1. */
static int read_number(const char *text, double least, double most, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= least && *value <= most ? 0 : -1;
}

static int set_key(void *env, const char *key, const char *value, struct arena *arena) {
    struct amp *amp = env;
    double number;
    const bool deny = strcmp(key, "deny") == 0;
    if (deny || strcmp(key, "allow") == 0) {
        VEC_PUSH(arena, &amp->rules, (struct amp_rule){value, deny ? AMP_DENY : AMP_ALLOW});
        return 0;
    }
    if (strcmp(key, "init_scale") == 0) {
        if (amp->growth_interval == 0) amp->growth_interval = GROWTH_INTERVAL;
        return read_number(value, 0x1p-100, 0x1p100, &amp->loss_scale);
    }
    if (strcmp(key, "growth_interval") == 0) return read_number(value, 1, 1e9, &amp->growth_interval);
    if (strcmp(key, "loss_scale") == 0) {
        amp->growth_interval = 0;
        return read_number(value, 0x1p-100, 0x1p100, &amp->loss_scale);
    }
    if (strcmp(key, "skip_if_nonfinite") != 0 || read_number(value, 0, 1, &number) < 0) return -1;
    amp->skip = number != 0;
    return 0;
}

int amp_parse(struct amp *amp, const char *text, struct arena *arena, struct diags *diags) {
    static const struct key_options keys = {
        "--amp", "mixed precision",
        "allow=GLOB deny=GLOB init_scale=X growth_interval=N loss_scale=X skip_if_nonfinite", "1", set_key};
    *amp = (struct amp){.text = text};
    if (!text) return 0;
    if (read_dtype(amp, text, strcspn(text, ":"), diags) < 0) return -1;
    if (amp->dtype == RT_F16)
        *amp = (struct amp){text, RT_F16, .loss_scale = FIRST_SCALE, .growth_interval = GROWTH_INTERVAL, .skip = true};
    if (key_options_read(&keys, text, amp, arena, diags) < 0) return -1;
    amp->skip = amp->skip || (amp->loss_scale != 0 && amp->growth_interval != 0);
    amp->matched = ARENA_ARRAY(arena, bool, amp->rules.n + 1);
    return 0;
}

struct caster {
    struct rewrite rewrite;
    struct build builder;
    const struct amp *amp;
    int tensors;             /* before any cast */
    enum rt_dtype *original; /* per tensor */
    int *half, *wide;        /* per tensor: its cast to 16 bits, to f32; -1: not made yet */
    bool *follows;           /* per tensor: a parameter or scalar, which takes the type of the other operands */
};

static enum amp_cast cast_of(const struct caster *c, const struct node *node) {
    static const struct {
        enum op_id op;
        enum amp_cast cast;
    } rows[] = {
#define AMP(cast, op) {OP_##op, AMP_##cast},
#include "passes/train/amp.def"
#undef AMP
    };
    enum amp_cast cast = AMP_PROMOTE;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == node->op->id) cast = rows[i].cast;
    for (int i = 0; i < c->amp->rules.n; i++) {
        if (fnmatch(c->amp->rules.at[i].pattern, node->name, 0) != 0) continue;
        c->amp->matched[i] = true;
        cast = c->amp->rules.at[i].cast;
    }
    return cast;
}

static enum rt_dtype type_of(const struct caster *c, int tensor) {
    return tensor < 0 ? RT_DTYPE_NONE : c->builder.graph->tensors.at[tensor].dtype;
}

/* True for operands of f32 or 16 bits that take the type in which the node computes: not of those whose letter names
 * another. */
static bool is_ours(const struct caster *c, const struct node *node, int k) {
    const enum rt_dtype dtype = type_of(c, node->inputs[k]);
    return (dtype == RT_F32 || dtype == c->amp->dtype) && !strchr("wc", *op_input_letter(node->op, k));
}

/* The type in which the node is to compute; NONE: it stays as it is. */
static enum rt_dtype wanted(const struct caster *c, const struct node *node) {
    enum amp_cast cast = cast_of(c, node);
    bool half = false, wide = false;
    if (node->op->id == OP_Cast) return RT_DTYPE_NONE;
    if (cast != AMP_PROMOTE) return cast == AMP_ALLOW ? c->amp->dtype : RT_F32;
    EACH_VALUE(node->inputs, node->ninputs, k, int tensor) {
        if (!is_ours(c, node, k) || c->follows[tensor]) continue;
        half = half || type_of(c, tensor) == c->amp->dtype;
        wide = wide || type_of(c, tensor) == RT_F32;
    }
    return wide ? RT_F32 : half ? c->amp->dtype : RT_DTYPE_NONE;
}

static int as(struct caster *c, int tensor, enum rt_dtype dtype) {
    int *made = dtype == RT_F32 ? &c->wide[tensor] : &c->half[tensor];
    if (type_of(c, tensor) == dtype) return tensor;
    const char *name = c->builder.graph->tensors.at[tensor].name;
    c->builder.node = arena_printf(c->builder.graph->arena, "%s.%s", name, rt_dtypes[dtype].name);
    return *made >= 0 ? *made : (*made = build_cast(&c->builder, tensor, dtype));
}

/* True for reshaped or otherwise moved parameters and scalars. */
static bool result_follows(const struct caster *c, const struct node *node) {
    bool moves = node->ninputs == 1 && node->op->flops == 0 && node->op->id != OP_Cast;
    return moves && c->follows[node->inputs[0]];
}

static int cast_operands(struct caster *c, int id) {
    struct graph *graph = c->builder.graph;
    enum rt_dtype dtype = wanted(c, &graph->nodes.at[id]);
    for (int k = 0; dtype != RT_DTYPE_NONE && k < graph->nodes.at[id].ninputs; k++) {
        if (!is_ours(c, &graph->nodes.at[id], k)) continue;
        int cast = as(c, graph->nodes.at[id].inputs[k], dtype);
        if (cast < 0) return -1;
        graph->nodes.at[id].inputs[k] = cast;
    }
    rewrite_keep(&c->rewrite, id);
    return op_infer(graph, id, c->builder.diags);
}

/* Casts an output or new value back to f32 if it was f32. */
static int restore(struct caster *c, int *tensor) {
    if (*tensor < 0 || c->original[*tensor] != RT_F32) return 0;
    return (*tensor = as(c, *tensor, RT_F32)) < 0 ? -1 : 0;
}

static int check_rules(const struct caster *c) {
    for (int i = 0; i < c->amp->rules.n; i++)
        if (!c->amp->matched[i])
            return diag_error(c->builder.diags, 424, EXIT_USAGE, "--amp", "no node's name matches '%s'",
                              c->amp->rules.at[i].pattern);
    return 0;
}

static struct caster new_caster(struct graph *graph, const struct pass_context *context) {
    struct caster c = {
        .builder = {graph, context->diags, NULL}, .amp = &context->training->amp, .tensors = graph->tensors.n};
    c.original = ARENA_ARRAY(graph->arena, enum rt_dtype, c.tensors + 1);
    c.half = ARENA_ARRAY(graph->arena, int, c.tensors + 1);
    c.wide = ARENA_ARRAY(graph->arena, int, c.tensors + 1);
    c.follows = ARENA_ARRAY(graph->arena, bool, c.tensors + 1);
    EACH(graph->tensors.at, c.tensors, t, const struct tensor *tensor) {
        c.original[t] = tensor->dtype;
        c.half[t] = c.wide[t] = -1;
        c.follows[t] = tensor->kind == TENSOR_WEIGHT || (tensor->kind == TENSOR_CONST && tensor_elements(tensor) == 1);
    }
    return c;
}

static void report(const struct caster *c) {
    const struct graph *graph = c->builder.graph;
    int halves = 0, products = 0, half_products = 0;
    GRAPH_EACH(graph, i, const struct node *node) {
        bool half = type_of(c, node->outputs[0]) == c->amp->dtype, product = node->op->columns != NULL;
        halves += half && node->op->id != OP_Cast;
        products += product, half_products += product && half;
    }
    diag_remark(c->builder.diags, graph->name, "amp: %s for %d node(s), and %d of %d matrix products and convolutions",
                rt_dtypes[c->amp->dtype].name, halves, half_products, products);
}

int pass_amp(struct graph *graph, const struct pass_context *context) {
    if (!context->training || !context->training->amp.text || graph->level != TYPED) return 0;
    struct caster c = new_caster(graph, context);
    rewrite_begin(&c.rewrite, graph);
    for (int i = 0; i < c.rewrite.order_n; i++) {
        int id = rewrite_next(&c.rewrite, i);
        if (cast_operands(&c, id) < 0) return -1;
        const struct node *node = &graph->nodes.at[id];
        if (node->noutputs == 1) c.follows[node->outputs[0]] = result_follows(&c, node);
    }
    rewrite_end(&c.rewrite);
    for (int i = 0; i < graph->outputs.n; i++)
        if (restore(&c, &graph->outputs.at[i]) < 0) return -1;
    for (int i = 0; i < graph->updates.n; i++)
        if (restore(&c, &graph->updates.at[i].value) < 0) return -1;
    report(&c);
    return check_rules(&c);
}
