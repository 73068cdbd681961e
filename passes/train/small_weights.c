/* Makes weights of products and embeddings smaller (--weight-dtype): in training those that are frozen, but no adapter.
 *
 *                            16-bit floats                      integers
 *   MatMul(x, w)             MatMul(x, w in 16 bits)            DequantMatMul(x, codes of w, scales)
 *   Gather(w, index)         Cast(Gather(w in 16 bits, index))  the codes' rows are gathered, and then dequantised
 *
 * Weights of 16 bits are rounded when they are loaded, by every rank its part. Kernels widen them in registers; where
 * there is none - of libraries, for other types than f32, of weights that cannot be packed - a Cast does.
 *
 * Integers are codes with scales (runtime/base/number/coding.h), likewise made when they are loaded, or of weights that
 * are known when the program is compiled, then. They lie as (n, k), so a table that is gathered and multiplied by is
 * stored once. A group is never cut by a rank, so ranks have parts of the whole's codes.
 *
 * In training the gradient of x reads the weights too, the other way, so they are not packed: weights of 16 bits are
 * operands of DequantMatMul without scales, which widens them in blocks. Where --amp computes in their type, MatMul
 * takes them as they are.
 *
 * Stacks of experts, of whose matrices each row is multiplied by one, or all rows by each, are weights likewise:
 * DequantExpertMatMul, or a batch of DequantMatMul; also of 16 bits. Of integers, k that is no multiple of the group
 * stays as it is, with a remark. */
#include "passes/train/small_weights.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/build.h"
#include "ir/packing.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/lora.h"
#include "runtime/base/io/coded.h"
#include "runtime/base/shape/panel.h"

enum { GROUP = 32, MOST_GROUP = 1 << 16 };

/* Types of codes --------------------------------------------------------------------------------------------------- */

/* 16-bit floats have no codes. `offset`: what was added to codes as they are stored. */
static const struct small_type {
    const char *name;
    enum rt_dtype codes;
    int bits, offset;
} small_types[] = {{"int8", RT_I8, 8, 0}, {"int4", RT_U4, 4, 8}, {"bf16", RT_BF16, 16, 0}, {"fp16", RT_F16, 16, 0}};
enum { NTYPES = sizeof small_types / sizeof *small_types };

static const struct small_type *type_named(const char *name, size_t length) {
    for (int i = 0; i < NTYPES; i++)
        if (strlen(small_types[i].name) == length && strncmp(small_types[i].name, name, length) == 0)
            return &small_types[i];
    return NULL;
}

static bool is_half(const struct small_type *type) {
    return type->bits == 16;
}

/* The option ------------------------------------------------------------------------------------------------------- */

static int read_group(const char *text, struct small_weights_rule *rule) {
    char *end;
    rule->group = strtoll(text, &end, 10);
    return end != text && !*end && rule->group >= 2 && rule->group <= MOST_GROUP && rule->group % 2 == 0 ? 0 : -1;
}

/* The keys behind the type, each after a colon. */
static int read_keys(char *text, struct small_weights_rule *rule, struct diags *diags) {
    const bool pairs = rule->type->codes == RT_BF16;
    if (text && is_half(rule->type)) {
        rule->rounded = pairs && strcmp(text, "activations=bf16") == 0;
        if (rule->rounded) return 0;
        return diag_error(diags, 205, EXIT_USAGE, "--weight-dtype", "%s has no groups%s", rule->type->name,
                          pairs ? ", but activations=bf16" : " and rounds no activations");
    }
    for (char *next; text; text = next) {
        next = strchr(text, ':');
        if (next) *next++ = 0;
        if (strcmp(text, "activations=int8") == 0)
            rule->rounded = true;
        else if (strncmp(text, "group=", 6) != 0 || read_group(text + 6, rule) < 0)
            return diag_error(diags, 205, EXIT_USAGE, "--weight-dtype",
                              "'%s' is neither group=N, of an even number from 2 to %d, nor activations=int8", text,
                              MOST_GROUP);
    }
    if (!rule->rounded || rule->group <= RT_GROUP_PIECE) return 0;
    return diag_error(diags, 205, EXIT_USAGE, "--weight-dtype", "activations=int8 has groups of at most %d",
                      RT_GROUP_PIECE);
}

static int read_rule(char *text, struct small_weights *weights, struct arena *arena, struct diags *diags) {
    char *equals = strchr(text, '='), *colon = strchr(text, ':');
    struct small_weights_rule rule = {.group = GROUP};
    if (equals && (!colon || equals < colon)) {
        *equals = 0;
        rule.glob = text;
        text = equals + 1;
        colon = strchr(text, ':');
    }
    rule.type = type_named(text, colon ? (size_t)(colon - text) : strlen(text));
    if (!rule.type)
        return diag_error(diags, 202, EXIT_USAGE, "--weight-dtype", "'%s' is none of bf16, fp16, int8 and int4", text);
    if (read_keys(colon ? colon + 1 : NULL, &rule, diags) < 0) return -1;
    VEC_PUSH(arena, &weights->rules, rule);
    return 0;
}

int small_weights_parse(struct small_weights *weights, const char *text, struct arena *arena, struct diags *diags) {
    *weights = (struct small_weights){.text = text};
    for (char *at = text ? arena_strdup(arena, text) : NULL, *next; at; at = next) {
        next = strchr(at, ',');
        if (next) *next++ = 0;
        if (read_rule(at, weights, arena, diags) < 0) return -1;
    }
    return 0;
}

/* Quantised weights ------------------------------------------------------------------------------------------------ */

struct small {
    int codes, scale;
};

struct walk {
    struct build builder;
    const struct pass_context *context;
    const struct small_weights *weights;
    const struct uses *uses; /* before the walk */
    const bool *excluded;    /* from packing */
    bool adapts;             /* the graph has adapters */
    bool *matched;           /* per rule */
    struct map done;         /* tensor, rule and orientation -> index in `all` */
    VEC(struct small) all;
    VEC(int) made; /* weights, each before one that is made of it */
    int left;      /* readers whose weights stay as they are: of another k */
    const char *first_left;
};

static const struct tensor *tensor_of(const struct walk *walk, int tensor) {
    return &walk->builder.graph->tensors.at[tensor];
}

static bool matches(const char *glob, const char *name) {
    return fnmatch(glob, name, 0) == 0;
}

/* The rule for a weight that the node reads, by its name, that of the node, or that of the module, as --lora names it,
 * and its parameter; NULL: none. */
static const struct small_weights_rule *rule_of(struct walk *walk, int weight, const struct node *node) {
    struct graph *graph = walk->builder.graph;
    const struct small_weights_rule *found = NULL;
    const char *module = lora_module_of(graph, node, weight);
    const char *parameter = arena_printf(graph->arena, "%s.weight", module);
    for (int i = 0; i < walk->weights->rules.n; i++) {
        const struct small_weights_rule *rule = &walk->weights->rules.at[i];
        if (rule->glob && !matches(rule->glob, graph->tensors.at[weight].name) && !matches(rule->glob, node->name) &&
            !matches(rule->glob, module) && !matches(rule->glob, parameter))
            continue;
        walk->matched[i] = true;
        found = rule;
    }
    return found;
}

/* n (0) or k (1) of a matrix, or of each of a stack of matrices, w(n,k), or w(k,n) if it is not turned. */
static int64_t extent_of(const struct tensor *w, bool turned, int which) {
    return w->dims[w->ndim - 2 + (turned ? which : 1 - which)];
}

static int64_t matrices_of(const struct tensor *w) {
    return w->ndim == 3 ? w->dims[0] : 1;
}

/* Lists a weight that is made of another; returns it. */
static int note_made(struct walk *walk, int weight, int made) {
    VEC_PUSH(walk->builder.graph->arena, &walk->made, weight);
    VEC_PUSH(walk->builder.graph->arena, &walk->made, made);
    return made;
}

/* Adds the converted weight, which is not trained. It is a constant if the values are known, else a weight that is
 * converted when it is loaded. */
static int add_made(struct walk *walk, int weight, struct rt_coding coding, const char *name, enum rt_dtype dtype,
                    const int64_t *dims) {
    struct graph *graph = walk->builder.graph;
    const struct tensor copy = graph->tensors.at[weight], *w = &copy;
    const bool known = w->kind == TENSOR_CONST;
    const int id = graph_add_tensor(graph, w->kind, name, dtype, w->ndim, dims);
    struct tensor *made = &graph->tensors.at[id];
    made->constant = !known;
    if (!known) {
        made->stored = w->stored;
        made->stored.coding = coding;
        return note_made(walk, weight, id);
    }
    const int64_t n = extent_of(w, coding.turned, 0), k = extent_of(w, coding.turned, 1);
    const struct rt_coded from = {.coding = coding, .bytes = w->data, .stored = w->dtype, .n = n, .k = k};
    struct rt_reason why;
    void *data = arena_alloc(graph->arena, (size_t)tensor_bytes(made) + 1, sizeof(float));
    made->data = data;
    if (rt_coded_make(&from, 0, matrices_of(w) * n, 0, k / coding.group, data, &why)) return id;
    return diag_error(walk->builder.diags, 500, EXIT_LIMIT, NULL, "out of memory");
}

/* The codes (n,k) and scales (n,groups) of weight w(n,k), or w(k,n) if it is not turned; of a stack, of each matrix.
 * scale -1: after a diagnostic. */
static struct small small_of(struct walk *walk, int weight, const struct small_weights_rule *rule, bool turned) {
    struct graph *graph = walk->builder.graph;
    const int64_t key[] = {weight, rule - walk->weights->rules.at, turned};
    const int known = map_get(&walk->done, (const char *)key, sizeof key);
    if (known >= 0) return walk->all.at[known];
    const struct tensor w = graph->tensors.at[weight];
    const struct small_type *type = rule->type;
    const int64_t experts = matrices_of(&w), n = extent_of(&w, turned, 0), k = extent_of(&w, turned, 1);
    const int64_t packed[] = {experts, n, k * type->bits / 8}, groups[] = {experts, n, k / rule->group};
    const int lead = w.ndim == 2; /* a matrix has no experts */
    struct rt_coding coding = {RT_CODES, type->bits, rule->group, turned};
    struct small small;
    small.codes = add_made(walk, weight, coding, arena_printf(graph->arena, "%s.%s", w.name, type->name),
                           type->bits == 8 ? type->codes : RT_U8, packed + lead);
    coding.makes = RT_SCALES;
    small.scale = small.codes < 0 ? -1
                                  : add_made(walk, weight, coding, arena_printf(graph->arena, "%s.scale", w.name),
                                             RT_F32, groups + lead);
    map_put(&walk->done, (const char *)key, sizeof key, walk->all.n);
    VEC_PUSH(graph->arena, &walk->all, small);
    return small;
}

/* True if k is a multiple of the group; a weight of another k is listed for the remark. */
static bool fits(struct walk *walk, int weight, int64_t k, const struct small_weights_rule *rule) {
    const struct tensor *w = tensor_of(walk, weight);
    if (k % rule->group == 0 && tensor_elements(w)) return true;
    if (!walk->left++)
        walk->first_left = arena_printf(walk->builder.graph->arena, "%s, of %lld input(s), in groups of %lld", w->name,
                                        (long long)k, (long long)rule->group);
    return false;
}

/* True for stored floats of two dimensions, or of up to `most`, that stay as they are. */
static bool is_weight(const struct walk *walk, int tensor, int most) {
    const struct tensor *t = tensor_of(walk, tensor);
    if (walk->builder.graph->train && weight_is_trained(walk->context->training, walk->adapts, t)) return false;
    return (t->kind == TENSOR_WEIGHT || t->kind == TENSOR_CONST) && t->ndim >= 2 && t->ndim <= most &&
           rt_dtype_is_float(t->dtype) && t->mark != MARK_ADAPTER;
}

/* 16-bit floats ---------------------------------------------------------------------------------------------------- */

/* The weight in 16 bits; -1: it has no more. */
static int half_of(struct walk *walk, int weight, const struct small_weights_rule *rule) {
    struct graph *graph = walk->builder.graph;
    const enum rt_dtype dtype = rule->type->codes;
    const struct tensor w = graph->tensors.at[weight];
    const int64_t key[] = {weight, rule - walk->weights->rules.at};
    const int known = map_get(&walk->done, (const char *)key, sizeof key);
    if (known >= 0 || rt_dtype_bytes(w.dtype) <= rt_dtype_bytes(dtype)) return known;
    const int made = graph_add_tensor(graph, w.kind, w.name, dtype, w.ndim, w.dims);
    struct tensor *half = &graph->tensors.at[made];
    half->data = w.data, half->stored = w.stored, half->mark = w.mark, half->sources = w.sources;
    half->constant = w.constant;
    half->stored.coding = (struct rt_coding){.makes = RT_ROUNDED};
    if (w.kind == TENSOR_CONST) {
        const int64_t n = tensor_elements(&w);
        uint16_t *rounded = ARENA_ARRAY(graph->arena, uint16_t, n + 1);
        rt_convert(rounded, dtype, w.data, w.dtype, (size_t)n);
        half->data = rounded;
    }
    map_put(&walk->done, (const char *)key, sizeof key, made);
    return note_made(walk, weight, made);
}

/* Finds weights that are no longer read themselves. Unless there are both, one of 16 bits keeps the model's name. */
static void find_replaced(struct walk *walk) {
    struct graph *graph = walk->builder.graph;
    const bool *live = graph_live(graph, graph->arena);
    bool *read = graph_kept(graph, graph->arena);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs && live[graph->order.at[i]]; k++)
            if (node->inputs[k] >= 0) read[node->inputs[k]] = true;
    }
    for (int i = 0; i < walk->made.n; i += 2) {
        struct tensor *made = &graph->tensors.at[walk->made.at[i + 1]];
        made->replaces = !read[walk->made.at[i]];
        if (!made->replaces && made->stored.coding.makes == RT_ROUNDED)
            made->name = arena_printf(graph->arena, "%s.%s", made->name, rt_dtypes[made->dtype].name);
    }
}

/* The node's product with matrices that are stored so, and widened in blocks. scale -1: ones. */
static int stored_product(struct walk *walk, const struct node *node, const struct small *small,
                          const struct small_weights_rule *rule, bool turned) {
    const struct attr attrs[] = {attr_of_text("codes", rt_dtypes[rule->type->codes].name),
                                 attr_of_float("offset", rule->type->offset), attr_of_int("trans_b", turned),
                                 attr_of_int("rounded", 1)};
    const bool experts = node->op->id == OP_ExpertMatMul, rounded = rule->rounded && small->scale >= 0 && !experts;
    const int inputs[] = {node->inputs[0], small->codes, small->scale, experts ? node->inputs[2] : -1};
    return build(&walk->builder, experts ? OP_DequantExpertMatMul : OP_DequantMatMul, 4, inputs, 3 + rounded, attrs);
}

/* True if the product's kernel widens weights of 16 bits. */
static bool widens(const struct walk *walk, const struct node *node) {
    return tensor_of(walk, node->outputs[0])->dtype == RT_F32 && !walk->context->library_products &&
           packing_possible(walk->builder.graph, walk->uses, walk->excluded, node->inputs[1]) != RT_PLAIN;
}

static int half_product(struct walk *walk, const struct node *node, const struct small_weights_rule *rule) {
    const struct training *training = walk->builder.graph->train ? walk->context->training : NULL;
    const bool computed = training && training->amp.text && training->amp.dtype == rule->type->codes;
    const bool stack = tensor_of(walk, node->inputs[1])->ndim == 3, widened = !training && !stack && widens(walk, node);
    int half = half_of(walk, node->inputs[1], rule);
    if (half < 0) return REWRITE_KEPT;
    if (!computed && (training || stack))
        return stored_product(walk, node, &(struct small){half, -1}, rule, attr_int(node, "trans_b", 0));
    if (!widened) half = build_cast(&walk->builder, half, tensor_of(walk, node->outputs[0])->dtype);
    if (half < 0) return -1;
    const int operands[] = {node->inputs[0], half, node->ninputs > 2 ? node->inputs[2] : -1};
    const int made = build(&walk->builder, node->op->id, node->ninputs, operands, node->nattrs, node->attrs);
    struct graph *graph = walk->builder.graph;
    if (made >= 0 && rule->rounded && widened)
        attr_set(graph, &graph->nodes.at[tensor_of(walk, made)->producer], attr_of_int("rounded", 1));
    return made;
}

static int half_rows(struct walk *walk, const struct node *node, const struct small_weights_rule *rule) {
    const int half = half_of(walk, node->inputs[0], rule);
    if (half < 0) return REWRITE_KEPT;
    const enum rt_dtype dtype = tensor_of(walk, node->outputs[0])->dtype;
    const int rows = build(&walk->builder, OP_Gather, 2, (int[]){half, node->inputs[1]}, node->nattrs, node->attrs);
    return rows < 0 ? -1 : build_cast(&walk->builder, rows, dtype);
}

/* The pass --------------------------------------------------------------------------------------------------------- */

/* True for products with a matrix, with the matrix of a stack that each row chooses, or with each of a stack. */
static bool takes_stored(const struct walk *walk, const struct node *node) {
    const struct tensor *x = tensor_of(walk, node->inputs[0]), *w = tensor_of(walk, node->inputs[1]);
    if (node->op->id == OP_ExpertMatMul) return true;
    if (node->ninputs != 2 || attr_int(node, "trans_a", 0)) return false;
    return w->ndim == 2 || (x->ndim == 3 && x->dims[0] == w->dims[0]);
}

static int small_product(struct walk *walk, const struct node *node) {
    const int weight = node->inputs[1];
    const bool turned = attr_int(node, "trans_b", 0) != 0;
    if (!is_weight(walk, weight, 3) || !takes_stored(walk, node)) return REWRITE_KEPT;
    const struct small_weights_rule *rule = rule_of(walk, weight, node);
    if (rule && is_half(rule->type)) return half_product(walk, node, rule);
    if (!rule || !fits(walk, weight, extent_of(tensor_of(walk, weight), turned, 1), rule)) return REWRITE_KEPT;
    struct small small = small_of(walk, weight, rule, turned);
    if (small.scale >= 0)
        small.scale = build_cast(&walk->builder, small.scale, op_summed_in(tensor_of(walk, node->inputs[0])->dtype));
    return small.scale < 0 ? -1 : stored_product(walk, node, &small, rule, true);
}

/* Rows of a table: (codes - offset) * scale, in groups. */
static int small_rows(struct walk *walk, const struct node *node) {
    struct build *builder = &walk->builder;
    const int table = node->inputs[0];
    if (!is_weight(walk, table, 2) || attr_int(node, "axis", 0)) return REWRITE_KEPT;
    const struct tensor out = *tensor_of(walk, node->outputs[0]);
    const int64_t k = tensor_of(walk, table)->dims[1];
    const struct small_weights_rule *rule = rule_of(walk, table, node);
    if (rule && is_half(rule->type)) return half_rows(walk, node, rule);
    if (!rule || out.ndim == RT_MAX_NDIM || !fits(walk, table, k, rule)) return REWRITE_KEPT;
    const struct small small = small_of(walk, table, rule, true);
    if (small.scale < 0) return -1;
    const struct attr to = attr_of_text("to", rt_dtypes[rule->type->codes].name);
    int y = build(builder, OP_Gather, 2, (int[]){small.codes, node->inputs[1]}, node->nattrs, node->attrs);
    int scale = build(builder, OP_Gather, 2, (int[]){small.scale, node->inputs[1]}, node->nattrs, node->attrs);
    if (y >= 0 && rule->type->bits < 8) y = build(builder, OP_Unpack, 1, &y, 1, &to);
    if (y < 0 || scale < 0 || (y = build_cast(builder, y, RT_F32)) < 0) return -1;
    int64_t dims[RT_MAX_NDIM];
    memcpy(dims, out.dims, sizeof dims);
    dims[out.ndim - 1] = k / rule->group, dims[out.ndim] = rule->group;
    y = build_reshape(builder, y, out.ndim + 1, dims);
    dims[out.ndim] = 1;
    scale = build_reshape(builder, scale, out.ndim + 1, dims);
    if (y >= 0 && rule->type->offset) y = build2(builder, OP_Sub, y, build_scalar(builder, RT_F32, rule->type->offset));
    if (y < 0 || scale < 0 || (y = build2(builder, OP_Mul, y, scale)) < 0) return -1;
    y = build_reshape(builder, y, out.ndim, out.dims);
    return y < 0 ? -1 : build_cast(builder, y, out.dtype);
}

static int made_small(void *env, int id) {
    struct walk *walk = env;
    const struct node node = walk->builder.graph->nodes.at[id];
    const bool product = node.op->id == OP_MatMul || node.op->id == OP_ExpertMatMul;
    if (!product && node.op->id != OP_Gather) return REWRITE_KEPT;
    walk->builder.node = node.name;
    const int result = product ? small_product(walk, &node) : small_rows(walk, &node);
    if (result >= 0)
        walk->builder.graph->tensors.at[result].name = walk->builder.graph->tensors.at[node.outputs[0]].name;
    return result;
}

/* Each rule must match a weight. */
static int check_rules(const struct walk *walk) {
    for (int i = 0; i < walk->weights->rules.n; i++) {
        const char *glob = walk->weights->rules.at[i].glob;
        if (!walk->matched[i])
            return diag_error(
                walk->builder.diags, 205, EXIT_USAGE, "--weight-dtype",
                glob ? "no %sweight of a product or table, nor its reader or module, has a name that %s matches"
                     : "the model has no %sweights of products or tables",
                walk->builder.graph->train ? "frozen " : "", glob);
    }
    return 0;
}

static const char *and_more(struct arena *arena, int count) {
    return count > 1 ? arena_printf(arena, ", and %d more", count - 1) : "";
}

int pass_small_weights(struct graph *graph, const struct pass_context *context) {
    if (!context->small_weights || !context->small_weights->text || (graph->train && !context->training)) return 0;
    const struct uses uses = graph_uses(graph, graph->arena);
    struct walk walk = {.builder = {graph, context->diags, NULL},
                        .context = context,
                        .weights = context->small_weights,
                        .uses = &uses,
                        .excluded = packing_excluded(graph, graph->arena),
                        .adapts = lora_is_in(graph)};
    walk.matched = ARENA_ARRAY(graph->arena, bool, walk.weights->rules.n + 1);
    map_init(&walk.done, graph->arena);
    if (rewrite_each(graph, made_small, &walk) < 0 || check_rules(&walk) < 0) return -1;
    find_replaced(&walk);
    if (walk.left)
        diag_remark(context->diags, graph->name,
                    "--weight-dtype: weights stay as they are whose inputs are no multiple of the group: %s%s",
                    walk.first_left, and_more(graph->arena, walk.left));
    return 0;
}
