#include "passes/rewrite/known_mask.h"

#include <math.h>
#include <stdlib.h>

#include "ir/expr/eval.h"
#include "ir/op.h"

enum {
    MOST_NODES = 400,
    MOST_ELEMENTS = 1 << 20, /* of tensors that are computed whole */
    SMALL_SIZES = 8,         /* tries */
    POINT_DEPTH = 64
};

/* What a tensor is computed from: nodes of the graph in order of execution. */
struct closure {
    struct graph *graph;
    struct arena *arena;
    int tensor;
    VEC(int) nodes;
};

static bool is_stored(const struct tensor *t) {
    return t->kind == TENSOR_CONST || (t->kind == TENSOR_WEIGHT && t->data);
}

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Lists the nodes by their positions. False if the tensor depends on inputs or on nodes that cannot be evaluated. */
static bool find_closure(struct closure *closure) {
    const struct graph *graph = closure->graph;
    const int *position = graph_positions(graph, closure->arena);
    bool *met = ARENA_ARRAY(closure->arena, bool, graph->nodes.n + 1);
    VEC(int) left = {0};
    VEC_PUSH(closure->arena, &left, closure->tensor);
    while (left.n) {
        const struct tensor *t = &graph->tensors.at[left.at[--left.n]];
        if (is_stored(t)) continue;
        const struct node *node = t->producer < 0 ? NULL : &graph->nodes.at[t->producer];
        if (!node || node->noutputs != 1 || (!eval_can(node->op) && node->op->id != OP_Sizes)) return false;
        if (met[t->producer]) continue;
        met[t->producer] = true;
        if (closure->nodes.n == MOST_NODES) return false;
        VEC_PUSH(closure->arena, &closure->nodes, position[t->producer]);
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) VEC_PUSH(closure->arena, &left, node->inputs[k]);
    }
    if (closure->nodes.n) qsort(closure->nodes.at, (size_t)closure->nodes.n, sizeof(int), by_number);
    for (int i = 0; i < closure->nodes.n; i++) closure->nodes.at[i] = graph->order.at[closure->nodes.at[i]];
    return closure->nodes.n > 0;
}

/* The nodes for given sizes, as a graph of its own. Tensors that are computed whole are constants in it. */
struct sized {
    struct graph graph;
    int *tensor; /* of the other graph: its number here, -1: none */
    int result;
};

static int sized_tensor(struct sized *sized, const struct closure *closure, int tensor, const int64_t *sizes) {
    struct graph *from = closure->graph;
    if (tensor < 0 || sized->tensor[tensor] >= 0) return tensor < 0 ? -1 : sized->tensor[tensor];
    struct tensor t = from->tensors.at[tensor];
    for (int d = 0; d < t.ndim; d++) t.dims[d] = open_at(from->open, t.dims[d], sizes);
    const int id = graph_add_tensor(&sized->graph, t.kind, t.name, t.dtype, t.ndim, t.dims);
    t.producer = -1;
    sized->graph.tensors.at[id] = t;
    return sized->tensor[tensor] = id;
}

static struct attr sized_attr(const struct closure *closure, struct attr attr, const int64_t *sizes) {
    struct open_sizes *open = closure->graph->open;
    if (attr.kind == ATTR_INT) attr.value = open_at(open, attr.value, sizes);
    if (attr.kind != ATTR_INTS) return attr;
    int64_t *ints = ARENA_ARRAY(closure->arena, int64_t, attr.n + 1);
    for (int i = 0; i < attr.n; i++) ints[i] = open_at(open, attr.ints[i], sizes);
    attr.ints = ints;
    return attr;
}

static bool has_data(const struct sized *sized, const struct node *node) {
    for (int k = 0; k < node->ninputs; k++)
        if (node->inputs[k] >= 0 && !sized->graph.tensors.at[node->inputs[k]].data) return false;
    return true;
}

/* Adds the node, and computes its result if that is not too large. */
static bool add_node(struct sized *sized, const struct closure *closure, const struct node *node,
                     const int64_t *sizes) {
    int inputs[EXPR_INPUTS], out = sized_tensor(sized, closure, node->outputs[0], sizes);
    struct attr *attrs = ARENA_ARRAY(closure->arena, struct attr, node->nattrs + 1);
    if (node->ninputs > EXPR_INPUTS) return false;
    for (int k = 0; k < node->ninputs; k++) inputs[k] = sized_tensor(sized, closure, node->inputs[k], sizes);
    for (int a = 0; a < node->nattrs; a++) attrs[a] = sized_attr(closure, node->attrs[a], sizes);
    const int id =
        graph_add_node(&sized->graph, node->op, node->name, node->ninputs, inputs, 1, &out, node->nattrs, attrs);
    struct tensor *t = &sized->graph.tensors.at[out];
    if (!has_data(sized, &sized->graph.nodes.at[id]) || tensor_elements(t) > MOST_ELEMENTS) return true;
    const void *data = node->op->id == OP_Sizes ? (const void *)attr_ints(&sized->graph.nodes.at[id], "values", NULL)
                                                : eval_node(&sized->graph, id);
    t = &sized->graph.tensors.at[out];
    t->kind = TENSOR_CONST, t->data = data;
    return data;
}

static bool compute(struct sized *sized, const struct closure *closure, const int64_t *sizes) {
    *sized = (struct sized){.tensor = ARENA_ARRAY(closure->arena, int, closure->graph->tensors.n + 1)};
    graph_init(&sized->graph, closure->arena, "mask");
    for (int t = 0; t < closure->graph->tensors.n; t++) sized->tensor[t] = -1;
    for (int i = 0; i < closure->nodes.n; i++)
        if (!add_node(sized, closure, &closure->graph->nodes.at[closure->nodes.at[i]], sizes)) return false;
    sized->result = sized->tensor[closure->tensor];
    return true;
}

static bool element(struct sized *sized, int tensor, const int64_t *at, int depth, double *value);

/* Where in the operand of a node that only moves elements the result's element lies. */
static bool moved(const struct graph *graph, const struct node *node, const int64_t *at, int64_t *from) {
    const struct tensor *in = &graph->tensors.at[node->inputs[0]], *out = &graph->tensors.at[node->outputs[0]];
    int n;
    if (node->op->id == OP_Reshape) {
        int64_t offset = eval_offset(at, out->dims, out->ndim);
        for (int d = in->ndim - 1; d >= 0; d--) from[d] = offset % in->dims[d], offset /= in->dims[d];
        return true;
    }
    if (node->op->id == OP_Expand) {
        for (int d = 0; d < in->ndim; d++) from[d] = in->dims[d] == 1 ? 0 : at[out->ndim - in->ndim + d];
        return true;
    }
    if (node->op->id == OP_Transpose) {
        const int64_t *perm = attr_ints(node, "perm", &n);
        for (int d = 0; d < n; d++) from[perm[d]] = at[d];
        return true;
    }
    if (node->op->id != OP_Slice) return false;
    const int64_t *start = attr_ints(node, "start", &n), *step = attr_ints(node, "step", &n);
    for (int d = 0; d < n; d++) from[d] = start[d] + step[d] * at[d];
    return true;
}

/* Evaluates an elementwise node on one element of each operand. */
static bool elementwise(struct sized *sized, int id, const int64_t *at, int depth, double *value) {
    struct graph *graph = &sized->graph;
    const struct node node = graph->nodes.at[id];
    const struct tensor out = graph->tensors.at[node.outputs[0]];
    int inputs[EXPR_INPUTS];
    for (int k = 0; k < node.ninputs; k++) {
        const struct tensor in = graph->tensors.at[node.inputs[k]];
        int64_t from[RT_MAX_NDIM];
        double operand;
        unsigned char bytes[8];
        for (int d = 0; d < in.ndim; d++) from[d] = in.dims[d] == 1 ? 0 : at[out.ndim - in.ndim + d];
        if (!element(sized, node.inputs[k], from, depth - 1, &operand)) return false;
        rt_convert(bytes, in.dtype, &operand, RT_F64, 1);
        inputs[k] = graph_add_const(graph, in.name, in.dtype, 0, NULL, bytes);
    }
    int scalar = graph_add_tensor(graph, TENSOR_VALUE, out.name, out.dtype, 0, NULL);
    const int one =
        graph_add_node(graph, node.op, node.name, node.ninputs, inputs, 1, &scalar, node.nattrs, node.attrs);
    const void *data = eval_node(graph, one);
    if (data) rt_convert(value, RT_F64, data, out.dtype, 1);
    return data;
}

static bool element(struct sized *sized, int tensor, const int64_t *at, int depth, double *value) {
    const struct tensor *t = &sized->graph.tensors.at[tensor];
    if (t->data) {
        const struct number number = eval_load(t->data, t->kind == TENSOR_WEIGHT ? t->stored.dtype : t->dtype,
                                               eval_offset(at, t->dims, t->ndim));
        *value = number.is_float ? number.f : (double)number.i;
        return true;
    }
    if (t->producer < 0 || !depth) return false;
    const struct node *node = &sized->graph.nodes.at[t->producer];
    int64_t from[RT_MAX_NDIM];
    if (node->op->kind == OP_ELEMENTWISE) return elementwise(sized, t->producer, at, depth, value);
    return moved(&sized->graph, node, at, from) && element(sized, node->inputs[0], from, depth - 1, value);
}

/* Of the mask's last two dimensions, in the first item of the others. */
static bool mask_at(struct sized *sized, int64_t row, int64_t column, double *value) {
    const struct tensor *t = &sized->graph.tensors.at[sized->result];
    int64_t at[RT_MAX_NDIM] = {0};
    at[t->ndim - 2] = row, at[t->ndim - 1] = column;
    return element(sized, sized->result, at, POINT_DEPTH, value);
}

/* Sizes of try `number`, from small ones on: of size i least + 0, 1, 2, 4 .. steps, another for each. */
static void small_sizes(const struct open_sizes *open, int number, int64_t *sizes) {
    static const int64_t steps[] = {6, 0, 1, 2, 4, 9, 3, 12};
    for (int i = 0; i < open->all.n; i++) {
        const struct open_range *range = &open->all.at[i].range;
        const int64_t most = (range->most - range->least) / range->step, step = steps[(number + 3 * i) % SMALL_SIZES];
        sizes[i] = range->least + range->step * (step < most ? step : most);
    }
}

static void largest_sizes(const struct open_sizes *open, int64_t *sizes) {
    for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].range.most;
}

/* A mask as attention can have it as attributes: row i sees the keys up to i + offset, the last `window` of them. */
struct hypothesis {
    bool to_last; /* the offset is keys - rows */
    int64_t offset, window;
    double seen, fill;
    bool hides;
};

static bool is_seen(const struct hypothesis *h, int64_t rows, int64_t keys, int64_t row, int64_t key) {
    const int64_t last = row + (h->to_last ? keys - rows : h->offset);
    return key <= last && (!h->window || key > last - h->window);
}

/* Compares an element with the hypothesis; the first hidden one tells the value of all. */
static bool agrees(struct hypothesis *h, int64_t rows, int64_t keys, int64_t row, int64_t key, double value) {
    const bool seen = is_seen(h, rows, keys, row, key);
    if (seen) return value == h->seen;
    if (isnan(h->fill)) h->fill = value;
    h->hides = true;
    return value == h->fill && value != h->seen;
}

/* Compares all elements. */
static bool all_agree(const struct sized *sized, struct hypothesis *h) {
    const struct tensor *t = &sized->graph.tensors.at[sized->result];
    const int64_t n = tensor_elements(t), keys = t->dims[t->ndim - 1], rows = t->dims[t->ndim - 2];
    for (int64_t i = 0; i < n && t->data; i++) {
        const struct number number = eval_load(t->data, t->dtype, i);
        const double value = number.is_float ? number.f : (double)number.i;
        if (!agrees(h, rows, keys, i / keys % rows, i % keys, value)) return false;
    }
    return n == 0 || t->data;
}

/* Compares elements of some rows of a large mask: those beside the last key that a row sees, and the first. */
static bool some_agree(struct sized *sized, struct hypothesis *h) {
    const struct tensor t = sized->graph.tensors.at[sized->result];
    const int64_t keys = t.dims[t.ndim - 1], rows = t.dims[t.ndim - 2];
    const int64_t at[] = {0, 1, rows / 3, rows / 2, rows - 2, rows - 1};
    for (size_t r = 0; r < sizeof at / sizeof *at; r++) {
        const int64_t last = at[r] + (h->to_last ? keys - rows : h->offset), first = h->window ? last - h->window : 0;
        const int64_t columns[] = {0, 1, first - 1, first, first + 1, last / 2, last - 1, last, last + 1, keys - 1};
        for (size_t c = 0; c < sizeof columns / sizeof *columns && at[r] >= 0 && at[r] < rows; c++) {
            double value;
            if (columns[c] < 0 || columns[c] >= keys) continue;
            if (!mask_at(sized, at[r], columns[c], &value) || !agrees(h, rows, keys, at[r], columns[c], value))
                return false;
        }
    }
    return true;
}

/* The first column of the row, from `low` on, that is seen or, with `hidden`, that is not: by bisection. */
static bool bisect(struct sized *sized, int64_t row, int64_t low, int64_t keys, double seen, bool hidden,
                   int64_t *found) {
    int64_t high = keys;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        double value;
        if (!mask_at(sized, row, middle, &value)) return false;
        if ((value == seen) != hidden)
            high = middle;
        else
            low = middle + 1;
    }
    *found = low;
    return true;
}

/* Reads offset and window off the mask of the largest sizes: of its first and its last row. */
static bool guess(struct sized *sized, struct hypothesis *h) {
    const struct tensor t = sized->graph.tensors.at[sized->result];
    if (t.ndim < 2 || !tensor_elements(&t)) return false;
    const int64_t keys = t.dims[t.ndim - 1], rows = t.dims[t.ndim - 2];
    int64_t behind, first;
    if (!bisect(sized, 0, 0, keys, h->seen, true, &behind) || !bisect(sized, rows - 1, 0, keys, h->seen, false, &first))
        return false;
    h->offset = behind - 1;
    h->to_last = h->offset == keys - rows;
    h->window = first && first < keys ? rows + h->offset - first : 0;
    return h->window >= 0 && (behind || h->to_last);
}

static bool find(struct closure *closure, struct hypothesis *h) {
    const struct open_sizes *open = closure->graph->open;
    struct sized sized;
    int64_t sizes[OPEN_SIZES];
    largest_sizes(open, sizes);
    if (!find_closure(closure) || !compute(&sized, closure, sizes) || !guess(&sized, h) || !some_agree(&sized, h))
        return false;
    for (int number = 0; number < SMALL_SIZES; number++) {
        small_sizes(open, number, sizes);
        if (!compute(&sized, closure, sizes) || !all_agree(&sized, h)) return false;
    }
    return true;
}

struct known_mask open_mask(struct graph *graph, int mask, double seen) {
    struct known_mask known = {.fill = NAN, .sees = true};
    const struct tensor *t = &graph->tensors.at[mask];
    if (!graph->open || t->ndim < 2) return known;
    struct arena *scratch = arena_scratch(graph->arena);
    struct closure closure = {.graph = graph, .arena = scratch, .tensor = mask};
    struct hypothesis h = {.seen = seen, .fill = NAN};
    if (find(&closure, &h)) {
        const int64_t keys = t->dims[t->ndim - 1], rows = t->dims[t->ndim - 2];
        known.kind = h.hides ? MASK_CAUSAL : MASK_NOTHING;
        known.fill = h.fill, known.window = h.window;
        known.offset = h.to_last ? open_sum(graph->open, keys, -rows) : h.offset;
        known.sees = open_least(graph->open, known.offset) >= 0;
    }
    arena_release(graph->arena, scratch);
    return known;
}
