#include "frontend/import/import_equal.h"

#include <string.h>

#include "ir/expr/eval.h"
#include "ir/op.h"

enum { MOST_PRODUCERS = 32 /* of an index, one after the other */, UNKNOWN = -1 };

const struct equality *equality_of(const struct equalities *equalities, const char *name, size_t length) {
    VEC_EACH(&equalities->all, i, const struct equality *equality)
        if (strlen(equality->name) == length && memcmp(equality->name, name, length) == 0) return equality;
    return NULL;
}

const char *equality_other(const struct equality *equality) {
    const struct open_sizes *from = equality->from;
    for (int i = 0; i < from->all.n; i++)
        if (from->all.at[i].value == equality->value) return from->all.at[i].name;
    return NULL;
}

bool equality_find(struct equalities *equalities, struct open_sizes *open) {
    struct limited limited = {.from = open};
    int64_t value;
    const int size = open ? open_solve(open, &value) : -1;
    if (size >= 0)
        VEC_PUSH(open->arena, &equalities->all, ((struct equality){open->all.at[size].name, open, value}));
    else if (open && equalities->limits.n < OPEN_SIZES && open_exceeds(open, &limited.limit))
        VEC_PUSH(open->arena, &equalities->limits, limited);
    else
        return false;
    return true;
}

static const struct tensor *input(const struct graph *graph, const struct node *node, int i) {
    return &graph->tensors.at[node->inputs[i]];
}

/* The only value of a constant; UNKNOWN: it has others, or is none. */
static int64_t only_value(const struct tensor *tensor) {
    if (tensor->kind != TENSOR_CONST || !rt_dtype_is_integer(tensor->dtype) || tensor_elements(tensor) != 1)
        return UNKNOWN;
    return eval_load(tensor->data, tensor->dtype, 0).i;
}

/* True for a tensor of ones. */
static bool is_ones(const struct graph *graph, const struct tensor *tensor) {
    const struct node *expand = tensor->producer < 0 ? NULL : &graph->nodes.at[tensor->producer];
    return expand && expand->op->id == OP_Expand && only_value(input(graph, expand, 0)) == 1;
}

/* The operand of a Concat along the last dimension that element `at` of it is from. */
static int part_of(const struct graph *graph, const struct node *concat, int64_t *at) {
    for (int k = 0; k < concat->ninputs; k++) {
        const struct tensor *part = input(graph, concat, k);
        if (*at < part->dims[part->ndim - 1]) return k;
        *at -= part->dims[part->ndim - 1];
    }
    return 0;
}

/* Operators whose result has values of that operand alone. */
static const struct {
    enum op_id op;
    int operand;
} passed_on[] = {{OP_Cast, 0}, {OP_Reshape, 0}, {OP_Expand, 0}, {OP_Transpose, 0}, {OP_Where, 2}};

/* All values of the tensor, or of element `at` along its last dimension, are less than this; UNKNOWN: no bound is
 * found. Negative ones, which count from the end, are not looked at. */
static int64_t limit_of(const struct graph *graph, int id, int64_t at, int depth) {
    const struct tensor *tensor = &graph->tensors.at[id];
    const struct node *node = tensor->producer < 0 ? NULL : &graph->nodes.at[tensor->producer];
    const int64_t value = only_value(tensor);
    if (value != UNKNOWN) return open_sum(graph->open, value, 1);
    if (!node || !depth--) return UNKNOWN;
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        if (passed_on[i].op == node->op->id) return limit_of(graph, node->inputs[passed_on[i].operand], at, depth);
    if (node->op->id == OP_CumSum)
        return is_ones(graph, input(graph, node, 0)) ? tensor->dims[attr_int(node, "axis", 0)] : UNKNOWN;
    if (node->op->id == OP_Concat && at >= 0 && attr_int(node, "axis", 0) == tensor->ndim - 1) {
        const int part = part_of(graph, node, &at);
        return limit_of(graph, node->inputs[part], at, depth);
    }
    if (node->op->id != OP_Add && node->op->id != OP_Mul) return UNKNOWN;
    const int64_t a = limit_of(graph, node->inputs[0], at, depth), b = limit_of(graph, node->inputs[1], at, depth);
    if (a < 1 || b < 1) return UNKNOWN;
    if (node->op->id == OP_Add) return open_sum(graph->open, open_sum(graph->open, a, b), -1);
    return open_sum(graph->open, open_sum(graph->open, a, -1) * open_sum(graph->open, b, -1), 1);
}

/* The number at which a size makes both equal, in all of which it is linear; UNKNOWN: there is none. */
static int64_t root_of(struct open_sizes *open, int size, int64_t a, int64_t b) {
    int64_t sizes[OPEN_SIZES], difference[3];
    for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].value;
    const int64_t own = sizes[size];
    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            const int64_t slope = difference[1] - difference[0];
            if (!slope || difference[0] % slope) return UNKNOWN;
            sizes[size] = own - difference[0] / slope;
        }
        difference[i] = open_at(open, a, sizes) - open_at(open, b, sizes);
        sizes[size]++;
    }
    return difference[2] ? UNKNOWN : sizes[size] - 1;
}

/* The same for a guessed size of an extent whose elements are indexed from 0 up to a limit. */
static bool find_in(struct equalities *equalities, struct open_sizes *open, int64_t extent, int64_t limit) {
    for (int s = open->all.n - equalities->guessed; s < open->all.n && limit > 0; s++) {
        const int64_t value = open_reads(open, extent, s) ? root_of(open, s, extent, limit) : UNKNOWN;
        if (value < 0 || !open_is(open, value) || open_reads(open, value, s)) continue;
        VEC_PUSH(open->arena, &equalities->all, ((struct equality){open->all.at[s].name, open, value}));
        return true;
    }
    return false;
}

bool equality_find_indexed(struct equalities *equalities, const struct graph *graph) {
    for (int i = 0; i < graph->order.n && equalities->guessed; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const bool nd = node->op->id == OP_GatherND;
        if (!nd && node->op->id != OP_Gather) continue;
        const int64_t first = nd ? attr_int(node, "batch_dims", 0) : attr_int(node, "axis", 0);
        const int64_t n = nd ? attr_int(node, "depth", 0) : 1;
        for (int64_t k = 0; k < n; k++) {
            const int64_t limit = limit_of(graph, node->inputs[1], nd ? k : -1, MOST_PRODUCERS);
            if (find_in(equalities, graph->open, input(graph, node, 0)->dims[first + k], limit)) return true;
        }
    }
    return false;
}
