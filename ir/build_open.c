/* Constants that depend on open sizes (ir/open.h): folding them, and computing them at run time. */
#include "ir/build.h"

#include "ir/expr/eval.h"

enum { OPEN_VALUES = 256 /* of a constant that are looked at */ };

bool build_is_open(const struct graph *graph, int id) {
    const struct tensor *tensor = id < 0 ? NULL : &graph->tensors.at[id];
    if (!graph->open || !tensor || tensor->kind != TENSOR_CONST || rt_dtype_is_float(tensor->dtype)) return false;
    const int64_t n = tensor_elements(tensor);
    if (n > OPEN_VALUES || rt_dtype_bytes(tensor->dtype) < 4) return false;
    for (int64_t i = 0; i < n; i++)
        if (open_is(graph->open, eval_load(tensor->data, tensor->dtype, i).i)) return true;
    return false;
}

bool build_has_open_extent(const struct graph *graph, int id) {
    const struct tensor *tensor = &graph->tensors.at[id];
    for (int d = 0; graph->open && d < tensor->ndim; d++)
        if (open_is(graph->open, tensor->dims[d])) return true;
    return false;
}

static int64_t difference(struct open_sizes *open, int64_t a, int64_t b) {
    return open_sum(open, a, -b);
}
static int64_t negative(struct open_sizes *open, int64_t a, int64_t b) {
    (void)open, (void)b;
    return -a;
}
static int64_t same(struct open_sizes *open, int64_t a, int64_t b) {
    (void)open, (void)b;
    return a;
}

/* Operators on open numbers. `least`: lower bounds of the two operands. The row holds only for operands that are never
 * below these bounds. */
static const struct arithmetic {
    enum op_id op;
    int64_t (*of)(struct open_sizes *open, int64_t a, int64_t b);
    int64_t least[2];
} arithmetic[] = {
    {OP_Add, open_sum, {INT64_MIN, INT64_MIN}},
    {OP_Sub, difference, {INT64_MIN, INT64_MIN}},
    {OP_Div, open_quotient, {0, 1}},
    {OP_Mod, open_rest, {INT64_MIN, 1}},
    {OP_Min, open_lesser, {INT64_MIN, INT64_MIN}},
    {OP_Max, open_greater, {INT64_MIN, INT64_MIN}},
    {OP_Neg, negative, {INT64_MIN, INT64_MIN}},
    {OP_Abs, same, {0, INT64_MIN}},
};

/* Orders of the operands for which a comparison holds, and for which it does not, for all sizes: bit sets. */
enum {
    LESS = 1 << OPEN_LESS,
    NOT_MORE = 1 << OPEN_LESS_OR_EQUAL,
    EQUAL = 1 << OPEN_EQUAL,
    NOT_LESS = 1 << OPEN_GREATER_OR_EQUAL,
    MORE = 1 << OPEN_MORE
};
static const struct comparison {
    enum op_id op;
    int holds, fails;
} comparisons[] = {
    {OP_Equal, EQUAL, LESS | MORE},
    {OP_Less, LESS, EQUAL | NOT_LESS | MORE},
    {OP_LessOrEqual, LESS | NOT_MORE | EQUAL, MORE},
    {OP_Greater, MORE, EQUAL | NOT_MORE | LESS},
    {OP_GreaterOrEqual, MORE | NOT_LESS | EQUAL, LESS},
};

/* Sets *result to the value of the operator for open numbers. False if it is another one for other sizes. */
static bool fold_numbers(struct open_sizes *open, enum op_id op, int64_t a, int64_t b, int64_t *result) {
    if (op == OP_Mul) return !__builtin_mul_overflow(a, b, result);
    for (size_t i = 0; i < sizeof arithmetic / sizeof *arithmetic; i++) {
        const struct arithmetic *row = &arithmetic[i];
        if (row->op != op) continue;
        if (open_least(open, a) < row->least[0] || open_least(open, b) < row->least[1]) return false;
        *result = row->of(open, a, b);
        return true;
    }
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        const int order = 1 << open_order(open, a, b);
        if (comparisons[i].op != op) continue;
        *result = (comparisons[i].holds & order) != 0;
        return (order & (comparisons[i].holds | comparisons[i].fails)) != 0;
    }
    return false;
}

/* The same; false also if the result cannot be told from other numbers of the specimen. */
static bool folds(struct open_sizes *open, enum op_id op, int64_t a, int64_t b, int64_t *result) {
    const bool before = open->spoiled;
    open->spoiled = false;
    const bool folded = fold_numbers(open, op, a, b, result) && !open->spoiled;
    open->spoiled = before;
    return folded;
}

/* True for operators that move elements, or multiply them: what they compute from numbers in a specimen is right for
 * all sizes. */
static bool keeps_numbers(const struct graph *graph, const struct node *node) {
    static const enum op_id kept[] = {OP_Reshape,         OP_Transpose, OP_Expand,    OP_Slice,
                                      OP_Concat,          OP_Gather,    OP_GatherND,  OP_GatherElements,
                                      OP_ScatterElements, OP_ScatterND, OP_ReduceProd};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (node->op->id == kept[i]) return true;
    if (node->op->id == OP_Cast)
        return !rt_dtype_is_float(graph->tensors.at[node->outputs[0]].dtype) &&
               rt_dtype_bytes(graph->tensors.at[node->outputs[0]].dtype) >= 4;
    return node->op->id == OP_Where && !build_is_open(graph, node->inputs[0]);
}

/* Where in operand k of an elementwise node its element for element `at` of the result lies. */
static int64_t element_of(const struct tensor *out, const struct tensor *in, int64_t at) {
    int64_t index = 0, stride = 1;
    for (int d = in->ndim - 1, o = out->ndim - 1; d >= 0; d--, o--) {
        if (in->dims[d] != 1) index += at % out->dims[o] * stride;
        stride *= in->dims[d];
        at /= out->dims[o];
    }
    return index;
}

const void *build_fold_open(struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    const struct tensor out = graph->tensors.at[node->outputs[0]];
    const int64_t n = tensor_elements(&out);
    if (n > OPEN_VALUES || rt_dtype_is_float(out.dtype)) return NULL;
    if (keeps_numbers(graph, node)) return eval_node(graph, id);
    if (node->op->id == OP_ReduceSum && n == 1) {
        int count;
        const int64_t *ints = build_known_ints(graph, node->inputs[0], &count);
        int64_t sum = 0;
        for (int i = 0; i < count; i++) sum = open_sum(graph->open, sum, ints[i]);
        return eval_node(graph, id);
    }
    if (node->op->kind != OP_ELEMENTWISE || node->ninputs > 2) return NULL;
    int64_t *values = ARENA_ARRAY(graph->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t operand[2] = {0};
        for (int k = 0; k < node->ninputs; k++) {
            const struct tensor *in = &graph->tensors.at[node->inputs[k]];
            if (rt_dtype_is_float(in->dtype)) return NULL;
            operand[k] = eval_load(eval_bytes(graph, in), in->dtype, element_of(&out, in, i)).i;
        }
        if (!folds(graph->open, node->op->id, operand[0], operand[1], &values[i])) return NULL;
    }
    void *bytes = arena_alloc(graph->arena, (size_t)n + 1, rt_dtype_bytes(out.dtype));
    rt_convert(bytes, out.dtype, values, RT_I64, (size_t)n);
    return bytes;
}

bool build_reads_open(const struct graph *graph, const struct node *node) {
    for (int i = 0; i < node->ninputs; i++)
        if (build_is_open(graph, node->inputs[i])) return true;
    return false;
}

/* A tensor with the values, which a node at the end of the order computes. */
static int computed(struct graph *graph, int id, struct diags *diags) {
    const struct tensor tensor = graph->tensors.at[id];
    struct build builder = {graph, diags, tensor.name};
    int n, sizes;
    const int64_t *values = build_known_ints(graph, id, &n);
    const struct attr attr = attr_of_ints("values", n, values);
    if (build_many(&builder, OP_Sizes, 0, NULL, 1, &sizes, 1, &attr) < 0) return -1;
    const int cast = build_cast(&builder, sizes, tensor.dtype);
    return cast < 0 ? -1 : build_reshape(&builder, cast, tensor.ndim, tensor.dims);
}

/* The last `n` nodes of the order become the first. */
static void move_to_front(struct graph *graph, int n) {
    const int others = graph->order.n - n;
    if (!n) return;
    int *order = ARENA_ARRAY(graph->arena, int, graph->order.n + 1);
    memcpy(order, graph->order.at + others, (size_t)n * sizeof *order);
    memcpy(order + n, graph->order.at, (size_t)others * sizeof *order);
    memcpy(graph->order.at, order, (size_t)graph->order.n * sizeof *order);
}

int build_compute_open(struct graph *graph, struct diags *diags) {
    const int tensors = graph->tensors.n, nodes = graph->order.n;
    int *instead = ARENA_ARRAY(graph->arena, int, tensors + 1); /* of a constant; 0: none yet */
    for (int i = 0; i < nodes + graph->outputs.n && graph->open; i++) {
        const bool output = i >= nodes;
        const int id = output ? -1 : graph->order.at[i];
        for (int k = 0; k < (output ? 1 : graph->nodes.at[id].ninputs); k++) {
            int *read = output ? &graph->outputs.at[i - nodes] : &graph->nodes.at[id].inputs[k];
            const int tensor = *read;
            if (tensor < 0 || !build_is_open(graph, tensor)) continue;
            if (!instead[tensor] && (instead[tensor] = computed(graph, tensor, diags)) < 0) return -1;
            read = output ? &graph->outputs.at[i - nodes] : &graph->nodes.at[id].inputs[k];
            *read = instead[tensor];
        }
    }
    move_to_front(graph, graph->order.n - nodes);
    return 0;
}
