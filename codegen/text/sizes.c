#include "codegen/text/sizes.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/op.h"

enum { NO_ITEM = -1, SUFFIX_MOST = 40, MOST_DEPTH = 8 };

/* A factor of a product, the slowest first: of the size of an item, or NO_ITEM and a number. */
struct size_factor {
    int item;
    int64_t extent;
};

/* An item is a dimension of a tensor. Items of one size have the same root. */
struct sizes {
    const struct graph *graph;
    struct arena *arena;
    int nitems;
    int *first;  /* per tensor: the item of its first dimension */
    int *parent; /* per item: another of the same size; itself: it is the root */
    struct size {
        const char *name, *what;
        int nfactors; /* 0: it is no product */
        struct size_factor *factors;
    } * of; /* per root */
};

static int root_of(const struct sizes *sizes, int item) {
    while (sizes->parent[item] != item) item = sizes->parent[item] = sizes->parent[sizes->parent[item]];
    return item;
}

static void join(struct sizes *sizes, int a, int b) {
    a = root_of(sizes, a), b = root_of(sizes, b);
    if (a == b) return;
    sizes->parent[b] = a;
    if (!sizes->of[a].nfactors) sizes->of[a] = sizes->of[b];
}

static int tensor_of(const struct node *node, const struct dims *dims, int operand) {
    if (operand >= dims->ninputs) return node->outputs[operand - dims->ninputs];
    return operand < node->ninputs ? node->inputs[operand] : NO_ITEM;
}

static bool is_alike(const struct dim_factors *a, const struct dim_factors *b) {
    return a->n == b->n && memcmp(a->factor, b->factor, (size_t)a->n) == 0;
}

/* Joins a dimension that is a product of several factors with the first that is the same product. */
static void join_product(struct sizes *sizes, const struct node *node, const struct dims *dims, int operand, int dim) {
    for (int o = 0; o <= operand; o++)
        for (int d = 0; d < dims->operand[o].ndim && tensor_of(node, dims, o) >= 0; d++)
            if (is_alike(&dims->operand[o].dim[d], &dims->operand[operand].dim[dim]))
                return join(sizes, sizes->first[tensor_of(node, dims, o)] + d,
                            sizes->first[tensor_of(node, dims, operand)] + dim);
}

/* Joins the dimensions that are the same factor of the node, or the same product; item[f] is one that is factor f
 * alone, or NO_ITEM. */
static void join_factors(struct sizes *sizes, const struct node *node, const struct dims *dims, int *item) {
    for (int f = 0; f < dims->nfactors; f++) item[f] = NO_ITEM;
    for (int o = 0; o < dims->ninputs + dims->noutputs; o++) {
        const int tensor = tensor_of(node, dims, o);
        for (int d = 0; tensor >= 0 && d < dims->operand[o].ndim; d++) {
            const struct dim_factors *of = &dims->operand[o].dim[d];
            if (of->n > 1) join_product(sizes, node, dims, o, d);
            if (of->n != 1 || dims->factor[of->factor[0]].kind == FACTOR_HALO) continue;
            int *known = &item[of->factor[0]];
            if (*known >= 0) join(sizes, *known, sizes->first[tensor] + d);
            *known = sizes->first[tensor] + d;
        }
    }
}

/* Notes the dimensions that are products of factors, at least one of which is a dimension elsewhere. */
static void note_products(struct sizes *sizes, const struct node *node, const struct dims *dims, const int *item) {
    for (int o = 0; o < dims->ninputs + dims->noutputs; o++) {
        const int tensor = tensor_of(node, dims, o);
        for (int d = 0; tensor >= 0 && d < dims->operand[o].ndim; d++) {
            const struct dim_factors *of = &dims->operand[o].dim[d];
            const int root = root_of(sizes, sizes->first[tensor] + d);
            bool known = false;
            for (int i = 0; i < of->n; i++)
                known = known || (item[of->factor[i]] >= 0 && root_of(sizes, item[of->factor[i]]) != root &&
                                  dims->factor[of->factor[i]].extent > 1);
            if (of->n < 2 || !known || sizes->of[root].nfactors) continue;
            sizes->of[root].nfactors = of->n;
            sizes->of[root].factors = ARENA_ARRAY(sizes->arena, struct size_factor, of->n);
            for (int i = 0; i < of->n; i++)
                sizes->of[root].factors[i] =
                    (struct size_factor){item[of->factor[i]], dims->factor[of->factor[i]].extent};
        }
    }
}

static int item_at(const struct sizes *sizes, int tensor, int dim) {
    return sizes->first[tensor] + (dim < 0 ? sizes->graph->tensors.at[tensor].ndim : 0) + dim;
}

static bool has_dim(const struct sizes *sizes, int tensor, int dim) {
    const int ndim = tensor < 0 ? 0 : sizes->graph->tensors.at[tensor].ndim;
    return dim < 0 ? -dim <= ndim : dim < ndim;
}

/* True if the size is samples times something else. */
static bool has_samples(const struct sizes *sizes, const struct size *size) {
    for (int f = 0; f < size->nfactors; f++) {
        const int item = size->factors[f].item;
        const char *name = item < 0 ? NULL : sizes->of[root_of(sizes, item)].name;
        if (name && strcmp(name, "B") == 0) return true;
    }
    return false;
}

/* True if a size of that name is the item's times something else: scales of groups of features are no features. */
static bool divides_called(const struct sizes *sizes, int root, const char *name) {
    for (int i = 0; i < sizes->nitems; i++)
        for (int f = 0; f < sizes->of[i].nfactors; f++) {
            const int item = sizes->of[i].factors[f].item;
            if (item >= 0 && root_of(sizes, item) == root && sizes->of[i].name && strcmp(sizes->of[i].name, name) == 0)
                return true;
        }
    return false;
}

static void name_size(struct sizes *sizes, int tensor, int dim, const char *name, const char *what) {
    if (!has_dim(sizes, tensor, dim)) return;
    const int root = root_of(sizes, item_at(sizes, tensor, dim));
    struct size *size = &sizes->of[root];
    if (!size->name && !has_samples(sizes, size) && !divides_called(sizes, root, name))
        size->name = name, size->what = what;
}

static bool is_called(const struct sizes *sizes, int tensor, int dim, const char *name) {
    if (!has_dim(sizes, tensor, dim)) return false;
    const char *known = sizes->of[root_of(sizes, item_at(sizes, tensor, dim))].name;
    return known && strcmp(known, name) == 0;
}

/* True for a size that is computed from several open sizes, such as the number of cached and new keys of a mask. */
static bool is_made(const struct graph *graph, int64_t extent) {
    return open_is(graph->open, extent) && !open_names_alone(graph->open, extent);
}

/* Samples, and positions of tokens. */
static void name_inputs(struct sizes *sizes) {
    const struct graph *graph = sizes->graph;
    VEC_EACH_VALUE(&graph->inputs, i, const int input) {
        const struct tensor *t = &graph->tensors.at[input];
        if (t->ndim < 2) continue;
        name_size(sizes, input, 0, "B", "samples");
        if (t->ndim != 2 || (t->dtype != RT_I64 && t->dtype != RT_I32)) continue;
        if (is_made(graph, t->dims[1]))
            name_size(sizes, input, 1, "S", "positions of keys and values");
        else
            name_size(sizes, input, 1, "T", "positions");
    }
}

/* True if the tensor is an input of the model, or the same values in another form. */
static bool is_given(const struct graph *graph, int tensor) {
    while (tensor >= 0 && graph->tensors.at[tensor].producer >= 0) {
        const struct node *node = &graph->nodes.at[graph->tensors.at[tensor].producer];
        if (node->op->kind != OP_VIEW && node->op->id != OP_Cast && node->op->id != OP_Chunk) return false;
        tensor = node->inputs[0];
    }
    return tensor >= 0 && graph->tensors.at[tensor].kind == TENSOR_INPUT;
}

static bool attends(const struct sizes *sizes, const struct node *node) {
    (void)sizes;
    return op_is_attention(node->op) && node->op->id != OP_FlashAttentionGrad && node->op->id != OP_RingAttentionGrad;
}

static bool looks_up_tokens(const struct sizes *sizes, const struct node *node) {
    return node->op->id == OP_Gather && tensor_is_stored(&sizes->graph->tensors.at[node->inputs[0]]) &&
           !attr_int(node, "axis", 0) && is_given(sizes->graph, node->inputs[1]);
}

/* The same of a table whose rows are features: no packed codes or scales of groups. */
static bool looks_up_features(const struct sizes *sizes, const struct node *node) {
    return looks_up_tokens(sizes, node) && !rt_coding_is_code(&sizes->graph->tensors.at[node->inputs[0]].stored.coding);
}

static bool multiplies_by_weights(const struct sizes *sizes, const struct node *node) {
    return (node->op->id == OP_MatMul || node->op->id == OP_DequantMatMul) &&
           tensor_is_stored(&sizes->graph->tensors.at[node->inputs[1]]) &&
           sizes->graph->tensors.at[node->inputs[1]].ndim == 2;
}

/* Products of heads of two computed tensors: (batch, heads, rows, columns). */
static bool multiplies_heads(const struct sizes *sizes, const struct node *node) {
    const struct tensor *all = sizes->graph->tensors.at;
    return node->op->id == OP_MatMul && all[node->inputs[0]].ndim == 4 && all[node->inputs[1]].ndim == 4 &&
           !tensor_is_stored(&all[node->inputs[0]]) && !tensor_is_stored(&all[node->inputs[1]]);
}

/* Of these, the products of queries and keys: (batch, heads, T, size of a head) x (batch, heads, size of a head, T). */
static bool multiplies_keys(const struct sizes *sizes, const struct node *node) {
    return multiplies_heads(sizes, node) && is_called(sizes, node->outputs[0], -1, "T") &&
           is_called(sizes, node->outputs[0], -2, "T") && !is_called(sizes, node->inputs[0], -1, "T");
}

/* True if the last dimension of the tensor is a product in which the size of a head is. */
static bool has_heads(const struct sizes *sizes, int tensor) {
    const struct size *size = &sizes->of[root_of(sizes, item_at(sizes, tensor, -1))];
    for (int depth = 0; size->nfactors && depth < MOST_DEPTH; depth++) {
        const struct size_factor *last = &size->factors[size->nfactors - 1];
        if (last->item < 0) return false;
        size = &sizes->of[root_of(sizes, last->item)];
    }
    return size->name && strcmp(size->name, "HS") == 0;
}

static bool multiplies_to_heads(const struct sizes *sizes, const struct node *node) {
    return multiplies_by_weights(sizes, node) && has_heads(sizes, node->outputs[0]);
}

/* What operands of operators say. */
static const struct role {
    bool (*is)(const struct sizes *sizes, const struct node *node);
    int operand, dim;
    const char *name, *what;
} roles[] = {
    {attends, 0, -3, "NH", "heads of attention"},
    {attends, 1, -3, "NKV", "heads of keys and values"},
    {attends, 0, -1, "HS", "size of a head"},
    {attends, 2, -1, "HS", "size of a head"},
    {attends, 0, -2, "T", "positions"},
    {attends, 1, -2, "S", "positions of keys and values"},
    {multiplies_heads, 0, -3, "NH", "heads of attention"},
    {multiplies_keys, 0, -1, "HS", "size of a head"},
    {looks_up_tokens, 0, 0, "V", "vocabulary"},
    {looks_up_features, 0, 1, "C", "features of a position"},
    {multiplies_to_heads, 0, -1, "C", "features of a position"},
};

static void name_operands(struct sizes *sizes) {
    const struct graph *graph = sizes->graph;
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
        GRAPH_EACH(graph, i, const struct node *node) {
            if (roles[r].is(sizes, node))
                name_size(sizes, node->inputs[roles[r].operand], roles[r].dim, roles[r].name, roles[r].what);
        }
}

/* The rank of low-rank adapters: rows of their first matrix, columns of the second. */
static void name_adapters(struct sizes *sizes) {
    VEC_EACH(&sizes->graph->tensors, id, const struct tensor *tensor) {
        if (tensor->mark != MARK_ADAPTER || tensor->ndim != 2) continue;
        if (strstr(tensor->name, "lora_A")) name_size(sizes, id, 0, "R", "rank of an adapter");
        if (strstr(tensor->name, "lora_B")) name_size(sizes, id, 1, "R", "rank of an adapter");
    }
}

/* The last dimension of an output that has an element for each token of the vocabulary. */
static void name_predictions(struct sizes *sizes) {
    const struct graph *graph = sizes->graph;
    int64_t vocabulary = -1;
    for (int i = 0; i < graph->order.n && vocabulary < 0; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (looks_up_tokens(sizes, node)) vocabulary = graph->tensors.at[node->inputs[0]].dims[0];
    }
    for (int i = 0; i < graph->outputs.n; i++) {
        const struct tensor *output = &graph->tensors.at[graph->outputs.at[i]];
        if (output->ndim > 1 && output->dims[output->ndim - 1] == vocabulary)
            name_size(sizes, graph->outputs.at[i], -1, "V", "vocabulary");
    }
}

/* Names the width of a feed-forward layer: the features that the layer's second product reads. Its result has the
 * features of positions. */
static void name_hidden(struct sizes *sizes) {
    const struct graph *graph = sizes->graph;
    GRAPH_EACH(graph, i, const struct node *node) {
        if (node->phase != PHASE_FORWARD || !multiplies_by_weights(sizes, node)) continue;
        const int from = node->inputs[0], to = node->outputs[0];
        if (is_called(sizes, to, -1, "C") && !has_heads(sizes, from))
            name_size(sizes, from, -1, "FF", "features inside of a feed-forward layer");
    }
}

struct sizes *sizes_find(const struct graph *graph) {
    struct arena *arena = graph->arena;
    struct sizes *sizes = ARENA_NEW(arena, struct sizes);
    int items = 0, item[MAX_FACTORS];
    *sizes = (struct sizes){.graph = graph, .arena = arena, .first = ARENA_ARRAY(arena, int, graph->tensors.n + 1)};
    for (int t = 0; t < graph->tensors.n; t++) {
        sizes->first[t] = items;
        items += graph->tensors.at[t].ndim;
    }
    sizes->nitems = items;
    sizes->parent = ARENA_ARRAY(arena, int, items + 1);
    sizes->of = ARENA_ARRAY(arena, struct size, items + 1);
    for (int i = 0; i < items; i++) sizes->parent[i] = i;
    if (graph->operators.n) return sizes; /* their sources may define macros of any name */
    GRAPH_EACH(graph, i, const struct node *node) {
        struct dims dims;
        if (dims_bind(arena, graph, node, &dims, NULL) < 0) continue;
        join_factors(sizes, node, &dims, item);
        note_products(sizes, node, &dims, item);
    }
    name_inputs(sizes);
    name_adapters(sizes);
    name_operands(sizes);
    name_predictions(sizes);
    name_hidden(sizes);
    return sizes;
}

static const char *number_text(struct arena *arena, int64_t value) {
    return arena_printf(arena, "%lld", (long long)value);
}

/* A name of the source for the value: the stem if that is new or has this value, else with a number. */
static const char *use(const struct sizes *sizes, struct size_names *names, const char *stem, const char *what,
                       int64_t value) {
    const char *name = stem;
    for (int number = 2, i = 0; i < names->all.n; i++) {
        if (strcmp(names->all.at[i].name, name) != 0) continue;
        if (names->all.at[i].value == value) return name;
        name = arena_printf(sizes->arena, "%s_%d", stem, number++);
        i = -1;
    }
    VEC_PUSH(sizes->arena, &names->all, ((struct size_name){name, what, value}));
    return name;
}

/* True if the value does not fit an int of the program. Of an open size the largest value decides: each specimen has
 * another number for it. */
static bool is_too_large(const struct sizes *sizes, int64_t value) {
    return open_most(sizes->graph->open, value) > INT_MAX;
}

static const char *marked(struct arena *arena, const char *name, int64_t value) {
    return arena_printf(arena, "%c%s=%lld%c", SIZE_MARK, name, (long long)value, SIZE_END);
}

/* How mesh axes cut a dimension. */
struct cutting {
    int axes;
    const char *suffix, *said; /* "_TENSOR", "tensor" */
    struct placement last;     /* of the last of them */
};

static struct cutting cutting_of(const struct sizes *sizes, const struct layout *layout, int dim) {
    const struct mesh *mesh = &sizes->graph->mesh;
    struct cutting cutting = {0};
    bool plain = true;
    struct strbuf suffix = {.arena = sizes->arena}, said = {.arena = sizes->arena};
    for (int axis = 0; axis < mesh->naxes; axis++) {
        const struct placement held = layout_along(layout, axis);
        if (!placement_divides(&held) || held.dim != dim) continue;
        plain = plain && str_is_plain(mesh->axis[axis].name);
        strbuf_printf(&said, "%s%s", cutting.axes++ ? " and " : "", mesh->axis[axis].name);
        strbuf_putc(&suffix, '_');
        for (const char *c = mesh->axis[axis].name; *c; c++)
            strbuf_putc(&suffix, isalnum((unsigned char)*c) ? (char)toupper((unsigned char)*c) : '_');
        cutting.last = held;
    }
    cutting.suffix = strbuf_text(&suffix), cutting.said = strbuf_text(&said);
    if (suffix.length > SUFFIX_MOST || !plain) cutting.axes = 0;
    return cutting;
}

/* The size, or `part` of it, as a marked text; NULL: it has no name. */
static const char *named(const struct sizes *sizes, struct size_names *names, const struct size *size, int64_t whole,
                         int64_t part, const struct cutting *cutting) {
    if (!size->name || is_too_large(sizes, whole) || (part != whole && !cutting->axes)) return NULL;
    const char *name = use(sizes, names, size->name, size->what, whole);
    if (part != whole)
        name = use(sizes, names, arena_printf(sizes->arena, "%s%s", name, cutting->suffix),
                   arena_printf(sizes->arena, "this rank's part of %s along %s", name, cutting->said), part);
    return marked(sizes->arena, name, part);
}

/* The text of a size, or of a rank's part of it; NULL if it has no letter. If the size is a product, the rank's part
 * may come from a cut of one factor: its blocks are then a multiple of the product of the factors before, its grain a
 * multiple of the product of the factors behind. Products within products are followed up to `depth`. */
static const char *text_of_item(const struct sizes *sizes, struct size_names *names, int item, int64_t whole,
                                int64_t part, const struct cutting *cutting, int depth) {
    const struct size *size = &sizes->of[root_of(sizes, item)];
    const char *text = named(sizes, names, size, whole, part, cutting), **texts;
    int64_t before = 1;
    bool divided = part == whole, letters = false;
    if (text || !whole || !size->nfactors || !depth || is_too_large(sizes, part) || (!divided && cutting->axes != 1))
        return text;
    texts = ARENA_ARRAY(sizes->arena, const char *, size->nfactors);
    EACH(size->factors, size->nfactors, f, const struct size_factor *factor) {
        const int64_t behind = whole / before / factor->extent;
        const bool here = !divided && factor->extent * part % whole == 0 && cutting->last.blocks % before == 0 &&
                          cutting->last.grain % behind == 0;
        const int64_t own = here ? factor->extent * part / whole : factor->extent;
        struct cutting inside = *cutting;
        inside.last.blocks /= before, inside.last.grain /= behind;
        text =
            factor->item < 0 ? NULL : text_of_item(sizes, names, factor->item, factor->extent, own, &inside, depth - 1);
        letters = letters || text;
        texts[f] = text ? text : number_text(sizes->arena, own);
        divided = divided || here;
        before *= factor->extent;
    }
    return divided && letters ? sizes_times(sizes->arena, size->nfactors, texts) : NULL;
}

/* The size of a dimension, of which a rank has `part`. */
static const char *text_of(const struct sizes *sizes, struct size_names *names, int tensor, int dim, int64_t part) {
    const struct tensor *t = &sizes->graph->tensors.at[tensor];
    const struct cutting cutting = cutting_of(sizes, &t->layout, dim);
    const char *text =
        text_of_item(sizes, names, item_at(sizes, tensor, dim), t->dims[dim], part, &cutting, MOST_DEPTH);
    return text ? text : number_text(sizes->arena, part);
}

const char *sizes_times(struct arena *arena, int n, const char *const *texts) {
    int64_t number = 1;
    struct strbuf letters = {.arena = arena};
    for (int i = 0; i < n; i++) {
        const char *mark = strchr(texts[i], SIZE_MARK);
        if (mark != texts[i]) number *= strtoll(texts[i], NULL, 10);
        if (mark) strbuf_printf(&letters, "%s%s", letters.length ? " * " : "", mark);
    }
    if (!letters.length || !number) return number_text(arena, number);
    return number == 1 ? strbuf_text(&letters)
                       : arena_printf(arena, "%lld * %s", (long long)number, strbuf_text(&letters));
}

const char *sizes_letter(const struct sizes *sizes, int64_t extent) {
    for (int t = 0; t < sizes->graph->tensors.n; t++)
        for (int d = 0; d < sizes->graph->tensors.at[t].ndim; d++) {
            const char *name = sizes->of[root_of(sizes, sizes->first[t] + d)].name;
            if (name && sizes->graph->tensors.at[t].dims[d] == extent) return name;
        }
    return NULL;
}

const char *sizes_extent(const struct sizes *sizes, struct size_names *names, const struct rank_class *class,
                         int tensor, int dim) {
    return text_of(sizes, names, tensor, dim, class->dims[tensor][dim]);
}

const char *sizes_whole(const struct sizes *sizes, struct size_names *names, int tensor, int dim) {
    return text_of(sizes, names, tensor, dim, sizes->graph->tensors.at[tensor].dims[dim]);
}

const char *sizes_product(const struct sizes *sizes, struct size_names *names, const struct rank_class *class,
                          int tensor, int from, int to) {
    const char *texts[RT_MAX_NDIM];
    int64_t product = 1;
    for (int d = from; d < to; d++) {
        texts[d - from] = sizes_extent(sizes, names, class, tensor, d);
        product *= class->dims[tensor][d];
    }
    return is_too_large(sizes, product) ? number_text(sizes->arena, product)
                                        : sizes_times(sizes->arena, to - from, texts);
}

size_t sizes_name(const char *marked, const char **name, const char **end) {
    *name = marked + 1;
    *end = strchr(marked, SIZE_END) + 1;
    return strcspn(*name, "=");
}

/* The text with each mark replaced by its name, or by its value. */
static const char *without_marks(struct arena *arena, const char *marked, bool values) {
    struct strbuf out = {.arena = arena};
    while (*marked) {
        const char *name, *end;
        const size_t length = *marked == SIZE_MARK ? sizes_name(marked, &name, &end) : 0;
        if (!length) {
            strbuf_putc(&out, *marked++);
            continue;
        }
        if (values)
            strbuf_add(&out, name + length + 1, (size_t)(end - name) - length - 2);
        else
            strbuf_add(&out, name, length);
        marked = end;
    }
    return strbuf_text(&out);
}

const char *sizes_shown(struct arena *arena, const char *marked) {
    return without_marks(arena, marked, false);
}

const char *sizes_valued(struct arena *arena, const char *marked) {
    return without_marks(arena, marked, true);
}
