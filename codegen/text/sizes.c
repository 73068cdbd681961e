#include "codegen/text/sizes.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/op.h"

enum { NO_ITEM = -1, SUFFIX_MOST = 40 };

/* An item is a dimension of a tensor. Items of one size have the same root. */
struct sizes {
    const struct graph *graph;
    struct arena *arena;
    int *first;  /* per tensor: the item of its first dimension */
    int *parent; /* per item: another of the same size; itself: it is the root */
    struct size {
        const char *name, *what;
        int nfactors, *factors; /* items whose product the size is, the slowest first; 0: it is none */
    } * of;                     /* per root */
};

/* Finding equal sizes ---------------------------------------------------------------------------------------------- */

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

/* Joins the dimensions that are a factor of the node alone; item[f] is one of them, or NO_ITEM. */
static void join_factors(struct sizes *sizes, const struct node *node, const struct dims *dims, int *item) {
    for (int f = 0; f < dims->nfactors; f++) item[f] = NO_ITEM;
    for (int o = 0; o < dims->ninputs + dims->noutputs; o++) {
        const int tensor = tensor_of(node, dims, o);
        for (int d = 0; tensor >= 0 && d < dims->operand[o].ndim; d++) {
            const struct dim_factors *of = &dims->operand[o].dim[d];
            if (of->n != 1 || dims->factor[of->factor[0]].kind == FACTOR_HALO) continue;
            int *known = &item[of->factor[0]];
            if (*known >= 0) join(sizes, *known, sizes->first[tensor] + d);
            *known = sizes->first[tensor] + d;
        }
    }
}

/* Notes the dimensions that are products of factors. */
static void note_products(struct sizes *sizes, const struct node *node, const struct dims *dims, const int *item) {
    for (int o = 0; o < dims->ninputs + dims->noutputs; o++) {
        const int tensor = tensor_of(node, dims, o);
        for (int d = 0; tensor >= 0 && d < dims->operand[o].ndim; d++) {
            const struct dim_factors *of = &dims->operand[o].dim[d];
            struct size *size = &sizes->of[root_of(sizes, sizes->first[tensor] + d)];
            bool known = of->n > 1 && !size->nfactors;
            for (int i = 0; i < of->n; i++) known = known && item[of->factor[i]] >= 0;
            if (!known) continue;
            size->nfactors = of->n;
            size->factors = ARENA_ARRAY(sizes->arena, int, of->n);
            for (int i = 0; i < of->n; i++) size->factors[i] = item[of->factor[i]];
        }
    }
}

/* Naming them ------------------------------------------------------------------------------------------------------ */

static int item_at(const struct sizes *sizes, int tensor, int dim) {
    return sizes->first[tensor] + (dim < 0 ? sizes->graph->tensors.at[tensor].ndim : 0) + dim;
}

static bool has_dim(const struct sizes *sizes, int tensor, int dim) {
    const int ndim = tensor < 0 ? 0 : sizes->graph->tensors.at[tensor].ndim;
    return dim < 0 ? -dim <= ndim : dim < ndim;
}

static void name_size(struct sizes *sizes, int tensor, int dim, const char *name, const char *what) {
    if (!has_dim(sizes, tensor, dim)) return;
    struct size *size = &sizes->of[root_of(sizes, item_at(sizes, tensor, dim))];
    if (!size->name) size->name = name, size->what = what;
}

static bool is_called(const struct sizes *sizes, int tensor, int dim, const char *name) {
    if (!has_dim(sizes, tensor, dim)) return false;
    const char *known = sizes->of[root_of(sizes, item_at(sizes, tensor, dim))].name;
    return known && strcmp(known, name) == 0;
}

/* Samples, and positions of tokens. */
static void name_inputs(struct sizes *sizes) {
    const struct graph *graph = sizes->graph;
    for (int i = 0; i < graph->inputs.n; i++) {
        const int input = graph->inputs.at[i];
        const struct tensor *t = &graph->tensors.at[input];
        if (t->ndim < 2) continue;
        name_size(sizes, input, 0, "B", "samples");
        if (t->ndim == 2 && (t->dtype == RT_I64 || t->dtype == RT_I32)) name_size(sizes, input, 1, "T", "positions");
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

static bool multiplies_by_weights(const struct sizes *sizes, const struct node *node) {
    return node->op->id == OP_MatMul && tensor_is_stored(&sizes->graph->tensors.at[node->inputs[1]]) &&
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
    {multiplies_heads, 0, -3, "NH", "heads of attention"},
    {multiplies_keys, 0, -1, "HS", "size of a head"},
    {looks_up_tokens, 0, 0, "V", "vocabulary"},
    {looks_up_tokens, 0, 1, "C", "features of a position"},
};

static void name_operands(struct sizes *sizes) {
    const struct graph *graph = sizes->graph;
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
        for (int i = 0; i < graph->order.n; i++) {
            const struct node *node = &graph->nodes.at[graph->order.at[i]];
            if (roles[r].is(sizes, node))
                name_size(sizes, node->inputs[roles[r].operand], roles[r].dim, roles[r].name, roles[r].what);
        }
}

/* Between a product of features of positions and one that gives such: the width of a feed-forward layer. */
static void name_hidden(struct sizes *sizes) {
    const struct graph *graph = sizes->graph;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (node->phase != PHASE_FORWARD || !multiplies_by_weights(sizes, node)) continue;
        const int from = node->inputs[0], to = node->outputs[0];
        if (is_called(sizes, to, -1, "C") && !sizes->of[root_of(sizes, item_at(sizes, from, -1))].nfactors)
            name_size(sizes, from, -1, "FF", "features inside of a feed-forward layer");
    }
}

struct sizes *sizes_find(const struct graph *graph) {
    struct arena *arena = graph->arena;
    struct sizes *sizes = ARENA_NEW(arena, struct sizes);
    int items = 0, item[MAX_FACTORS];
    const char *why;
    *sizes = (struct sizes){.graph = graph, .arena = arena, .first = ARENA_ARRAY(arena, int, graph->tensors.n + 1)};
    for (int t = 0; t < graph->tensors.n; t++) {
        sizes->first[t] = items;
        items += graph->tensors.at[t].ndim;
    }
    sizes->parent = ARENA_ARRAY(arena, int, items + 1);
    sizes->of = ARENA_ARRAY(arena, struct size, items + 1);
    for (int i = 0; i < items; i++) sizes->parent[i] = i;
    if (graph->operators.n) return sizes; /* their sources may define macros of any name */
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        struct dims dims;
        if (dims_bind(arena, graph, node, &dims, &why) < 0) continue;
        join_factors(sizes, node, &dims, item);
        note_products(sizes, node, &dims, item);
    }
    name_inputs(sizes);
    name_operands(sizes);
    name_hidden(sizes);
    return sizes;
}

/* Using them ------------------------------------------------------------------------------------------------------- */

static const char *number_text(struct arena *arena, int64_t value) {
    return arena_printf(arena, "%lld", (long long)value);
}

/* The name if it is that value, or if it is new: else with a number. */
static const char *use(const struct sizes *sizes, struct size_names *names, const char *stem, const char *what,
                       int64_t value) {
    const char *name = stem;
    if (value > INT_MAX) return number_text(sizes->arena, value);
    for (int number = 2, i = 0; i < names->all.n; i++) {
        if (strcmp(names->all.at[i].name, name) != 0) continue;
        if (names->all.at[i].value == value) break;
        name = arena_printf(sizes->arena, "%s_%d", stem, number++);
        i = -1;
    }
    for (int i = 0; i <= names->all.n; i++) {
        if (i == names->all.n) VEC_PUSH(sizes->arena, &names->all, ((struct size_name){name, what, value}));
        if (strcmp(names->all.at[i].name, name) == 0) break;
    }
    return arena_printf(sizes->arena, "%c%s=%lld%c", SIZE_MARK, name, (long long)value, SIZE_END);
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
    struct strbuf suffix, said;
    bool plain = true;
    strbuf_init(&suffix, sizes->arena);
    strbuf_init(&said, sizes->arena);
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
    if (!size->name) return NULL;
    if (part == whole) return use(sizes, names, size->name, size->what, whole);
    if (!cutting->axes) return NULL;
    return use(sizes, names, arena_printf(sizes->arena, "%s%s", size->name, cutting->suffix),
               arena_printf(sizes->arena, "this rank's part of %s along %s", size->name, cutting->said), part);
}

static int64_t extent_of(const struct sizes *sizes, int item) {
    int tensor = 0;
    for (int step = sizes->graph->tensors.n; step; step /= 2) /* the last tensor that begins at or before the item */
        while (tensor + step < sizes->graph->tensors.n && sizes->first[tensor + step] <= item) tensor += step;
    return sizes->graph->tensors.at[tensor].dims[item - sizes->first[tensor]];
}

/* A product of sizes, of which a rank may have a part: a cut of one of them has grains of those behind it in blocks of
 * those before it. */
static const char *named_product(const struct sizes *sizes, struct size_names *names, const struct size *size,
                                 int64_t whole, int64_t part, const struct cutting *cutting) {
    struct strbuf out;
    int64_t before = 1;
    bool divided = part == whole;
    strbuf_init(&out, sizes->arena);
    if (!whole || !size->nfactors || part > INT_MAX || (!divided && cutting->axes != 1)) return NULL;
    for (int f = 0; f < size->nfactors; f++) {
        const int64_t extent = extent_of(sizes, size->factors[f]), behind = whole / before / extent;
        const bool here = !divided && extent * part % whole == 0 && cutting->last.blocks % before == 0 &&
                          cutting->last.grain % behind == 0;
        const char *text = named(sizes, names, &sizes->of[root_of(sizes, size->factors[f])], extent,
                                 here ? extent * part / whole : extent, cutting);
        if (!text) return NULL;
        strbuf_printf(&out, "%s%s", out.length ? " * " : "", text);
        divided = divided || here;
        before *= extent;
    }
    return divided ? strbuf_text(&out) : NULL;
}

/* The size of a dimension, of which a rank has `part`. */
static const char *text_of(const struct sizes *sizes, struct size_names *names, int tensor, int dim, int64_t part) {
    const struct tensor *t = &sizes->graph->tensors.at[tensor];
    const struct size *size = &sizes->of[root_of(sizes, item_at(sizes, tensor, dim))];
    const struct cutting cutting = cutting_of(sizes, &t->layout, dim);
    const char *text = named(sizes, names, size, t->dims[dim], part, &cutting);
    if (!text) text = named_product(sizes, names, size, t->dims[dim], part, &cutting);
    return text ? text : number_text(sizes->arena, part);
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
    struct strbuf out;
    int64_t product = 1;
    bool all = true;
    strbuf_init(&out, sizes->arena);
    for (int d = from; d < to; d++) {
        const char *text = sizes_extent(sizes, names, class, tensor, d);
        product *= class->dims[tensor][d];
        all = all && strchr(text, SIZE_MARK);
        strbuf_printf(&out, "%s%s", out.length ? " * " : "", text);
    }
    return all && from < to && product <= INT_MAX ? strbuf_text(&out) : number_text(sizes->arena, product);
}

size_t sizes_name(const char *marked, const char **name, const char **end) {
    *name = marked + 1;
    *end = strchr(marked, SIZE_END) + 1;
    return strcspn(*name, "=");
}

const char *sizes_shown(struct arena *arena, const char *marked) {
    struct strbuf out;
    strbuf_init(&out, arena);
    while (*marked) {
        const char *name;
        if (*marked == SIZE_MARK) {
            const size_t length = sizes_name(marked, &name, &marked);
            strbuf_add(&out, name, length);
        } else {
            strbuf_putc(&out, *marked++);
        }
    }
    return strbuf_text(&out);
}
