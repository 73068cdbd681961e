/* On a mesh with an axis `expert`, replaces products with the weights of experts by batches of products of buffers,
 * one buffer for each expert (Note [Buffers of experts] in ir/ops/experts.c).
 *
 * Note [Rows in buffers]
 * A tensor of rows has a row for each choice of each token. From the first product of a mixture to the sum over the
 * choices, everything is computed for rows: products, biases that are gathered by expert, activations, and products
 * with the routing weights. The walk keeps, for each such tensor, the same rows in buffers (experts, places, width).
 * Operators that compute each row alone are built again for buffers. Where another operator reads a tensor of rows,
 * ExpertCombine brings them back; where the sum over choices reads it, ExpertCombine computes that sum. An unused place
 * is zero in what ExpertDispatch gives, and may have any value after a bias; no token reads it, and its gradient is
 * zero. */
#include <math.h>
#include <string.h>

#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

enum { EXPERTS_MOST = 4096, CHOICES_MOST = 64 }; /* of ExpertDispatch and ExpertCombine */

/* Which expert each row is for, and the buffers of the experts. */
struct routing {
    int index, of_groups; /* the numbers of the experts; the same as (groups, rows of a group) */
    int64_t experts, rows, tokens, groups, capacity;
};

/* What the walk knows of a tensor. Numbers of routings and tensors are one more; 0: none. */
struct rows {
    int routing, buffer;   /* the tensor's rows in buffers */
    int by, dispatched[2]; /* what ExpertDispatch gives for it: of rows, and of tokens; the routing */
};

/* `index` routes rows to one of `experts` experts, for some product. */
struct choice {
    int index;
    int64_t experts;
};

struct walk {
    struct build builder;
    struct graph *graph;
    const struct pass_context *context;
    VEC(struct choice) choices;
    VEC(struct routing) routings;
    VEC(struct rows) rows; /* per tensor; those that lie behind the end are {0} */
};

static const struct tensor *tensor_of(const struct walk *walk, int id) {
    return &walk->graph->tensors.at[id];
}

static struct rows *rows_of(struct walk *walk, int tensor) {
    while (walk->rows.n <= tensor) VEC_PUSH(walk->graph->arena, &walk->rows, (struct rows){0});
    return &walk->rows.at[tensor];
}

/* The tensor of which this is another shape or another integer type. */
static int behind_views(const struct walk *walk, int tensor) {
    for (const struct node *node;;) {
        if (!(node = made_by(walk->graph, tensor, OP_Reshape)) && !(node = made_by(walk->graph, tensor, OP_Cast)))
            return tensor;
        tensor = node->inputs[0];
    }
}

static int64_t product(const int64_t *dims, int n) {
    int64_t product = 1;
    for (int d = 0; d < n; d++) product *= dims[d];
    return product;
}

/* The number of leading dimensions that hold `count` indices together; -1: there is none. */
static int leading(const struct tensor *tensor, int64_t count) {
    for (int d = 0; d <= tensor->ndim; d++)
        if (product(tensor->dims, d) == count) return d;
    return -1;
}

/* How many groups of tokens are routed by themselves: one for each part of the batch along axis data, and with a
 * capacity along axis expert too, so that ranks exchange buffers. One group if the batch cannot be divided evenly. */
static int64_t groups_of(const struct walk *walk, int64_t tokens) {
    const struct graph *graph = walk->graph;
    const struct mesh *mesh = &graph->mesh;
    const int data = mesh_axis(mesh, AXIS_DATA), expert = mesh_axis(mesh, AXIS_EXPERT);
    const struct tensor *first = graph->inputs.n ? &graph->tensors.at[graph->inputs.at[0]] : NULL;
    int64_t groups = data < 0 ? 1 : mesh->axis[data].size;
    if (walk->context->decisions.capacity) groups *= mesh->axis[expert].size;
    const int64_t batch = first && first->ndim ? first->dims[0] : 0;
    if (!batch || tokens % batch || batch % groups) {
        if (groups > 1)
            diag_remark(walk->context->diags, walk->builder.node,
                        "the batch of %lld sample(s) is no multiple of %lld rank(s): its tokens are one group for the "
                        "experts' buffers",
                        (long long)batch, (long long)groups);
        return 1;
    }
    return groups;
}

/* Rows of an expert's buffer in a group: one for each token, or with a capacity factor that part of the mean. */
static int64_t capacity_of(const struct walk *walk, const struct routing *routing, bool distinct) {
    const int64_t rows = routing->rows / routing->groups, factor = walk->context->decisions.capacity;
    const int64_t most = distinct ? routing->tokens / routing->groups : rows;
    if (!factor) return most;
    const int64_t places = (int64_t)ceil((double)factor / 1000 * (double)rows / (double)routing->experts);
    if (places >= most) return most;
    if (!walk->routings.n)
        diag_remark(walk->context->diags, walk->builder.node,
                    "an expert's buffer has places for %lld of the at most %lld rows that it may have of a group of "
                    "tokens, by the given capacity: further rows are dropped",
                    (long long)(places < 1 ? 1 : places), (long long)most);
    return places < 1 ? 1 : places;
}

/* The number, from 1, of the routing by the tensor; 0: the kernels do not support it. The choices of one token that
 * TopK makes are distinct, so that an expert has at most one row of each token. */
static int routing_of(struct walk *walk, int index, int64_t experts) {
    const int root = behind_views(walk, index);
    for (int i = 0; i < walk->routings.n; i++)
        if (walk->routings.at[i].index == root && walk->routings.at[i].experts == experts) return i + 1;
    const struct tensor *chosen = tensor_of(walk, root);
    const bool distinct = made_by(walk->graph, root, OP_TopK) && chosen->ndim &&
                          attr_int(made_by(walk->graph, root, OP_TopK), "axis", -1) == chosen->ndim - 1;
    const int64_t choices = distinct ? chosen->dims[chosen->ndim - 1] : 1;
    struct routing routing = {.index = root, .experts = experts, .rows = tensor_elements(chosen)};
    if (!routing.rows || experts < 1 || experts > EXPERTS_MOST || choices > CHOICES_MOST) return 0;
    routing.tokens = routing.rows / choices;
    routing.groups = groups_of(walk, routing.tokens);
    routing.capacity = capacity_of(walk, &routing, distinct);
    routing.of_groups =
        build_reshape(&walk->builder, root, 2, (int64_t[]){routing.groups, routing.rows / routing.groups});
    if (routing.of_groups < 0) return 0;
    VEC_PUSH(walk->graph->arena, &walk->routings, routing);
    return walk->routings.n;
}

/* The tokens that an Expand repeats for each choice to make this tensor of rows; -1: there are none. */
static int tokens_of(const struct walk *walk, const struct routing *routing, int tensor) {
    const int64_t width = tensor_elements(tensor_of(walk, tensor)) / routing->rows;
    while (made_by(walk->graph, tensor, OP_Reshape)) tensor = made_by(walk->graph, tensor, OP_Reshape)->inputs[0];
    const struct node *expand = made_by(walk->graph, tensor, OP_Expand);
    if (!expand) return -1;
    const struct tensor *y = tensor_of(walk, tensor), *x = tensor_of(walk, expand->inputs[0]);
    const int d = leading(y, routing->tokens), before = y->ndim - x->ndim;
    for (int at = d; at >= 0 && at < y->ndim; at++) {
        if (y->dims[at] == 1 && routing->rows != routing->tokens) continue;
        const bool repeats =
            y->dims[at] == routing->rows / routing->tokens && (at < before || x->dims[at - before] == 1);
        return repeats && tensor_elements(x) == routing->tokens * width ? expand->inputs[0] : -1;
    }
    return -1;
}

/* `count` tokens or rows, as buffers (experts, places, width). */
static int dispatch(struct walk *walk, int number, int tensor, int64_t count) {
    const struct routing *routing = &walk->routings.at[number - 1];
    const int64_t width = tensor_elements(tensor_of(walk, tensor)) / count;
    const int form = count == routing->tokens;
    const struct attr attrs[] = {attr_of_int("experts", routing->experts), attr_of_int("capacity", routing->capacity)};
    if (rows_of(walk, tensor)->by == number && rows_of(walk, tensor)->dispatched[form])
        return rows_of(walk, tensor)->dispatched[form] - 1;
    const int x =
        build_reshape(&walk->builder, tensor, 3, (int64_t[]){routing->groups, count / routing->groups, width});
    const int buffers =
        x < 0 ? -1 : build(&walk->builder, OP_ExpertDispatch, 2, (int[]){x, routing->of_groups}, 2, attrs);
    const int y = buffers < 0
                      ? -1
                      : build_reshape(&walk->builder, buffers, 3,
                                      (int64_t[]){routing->experts, routing->groups * routing->capacity, width});
    struct rows *rows = rows_of(walk, tensor);
    if (rows->by != number) *rows = (struct rows){rows->routing, rows->buffer, number, {0}};
    rows->dispatched[form] = y + 1;
    return y;
}

/* A tensor of rows in buffers; -1 after a diagnostic. */
static int buffer_of(struct walk *walk, int number, int tensor) {
    const struct routing *routing = &walk->routings.at[number - 1];
    const struct rows *rows = rows_of(walk, tensor);
    if (rows->routing == number) return rows->buffer - 1;
    const int tokens = tokens_of(walk, routing, tensor);
    return tokens >= 0 ? dispatch(walk, number, tokens, routing->tokens)
                       : dispatch(walk, number, tensor, routing->rows);
}

/* The rows of buffers, or with choices > 1 the sums for tokens, in the shape of tensor `like`. */
static int combine(struct walk *walk, int number, int buffer, int64_t choices, int like) {
    const struct routing *routing = &walk->routings.at[number - 1];
    const struct tensor shape = *tensor_of(walk, like);
    const int64_t width = tensor_of(walk, buffer)->dims[2];
    const struct attr attr = attr_of_int("choices", choices);
    const int x = build_reshape(&walk->builder, buffer, 4,
                                (int64_t[]){routing->experts, routing->groups, routing->capacity, width});
    const int y = x < 0 ? -1 : build(&walk->builder, OP_ExpertCombine, 2, (int[]){x, routing->of_groups}, 1, &attr);
    return y < 0 ? -1 : build_reshape(&walk->builder, y, shape.ndim, shape.dims);
}

enum { NOT_ROWS = REWRITE_KEPT }; /* the node is no operator on rows */

/* Each function returns the buffers of the node's result, NOT_ROWS, or -1 after a diagnostic. */
static int convert_product(struct walk *walk, const struct node *node, int *number) {
    const bool stored = node->op->id == OP_DequantExpertMatMul;
    const int last = node->ninputs - 1;
    int inputs[4] = {-1, -1, -1, -1};
    if (!(*number = routing_of(walk, node->inputs[last], tensor_of(walk, node->inputs[1])->dims[0]))) return NOT_ROWS;
    for (int k = 1; k < last; k++) inputs[k] = node->inputs[k];
    inputs[0] = buffer_of(walk, *number, node->inputs[0]);
    return inputs[0] < 0 ? -1
                         : build(&walk->builder, stored ? OP_DequantMatMul : OP_MatMul, stored ? 4 : 2, inputs,
                                 node->nattrs, node->attrs);
}

/* A bias of each expert (experts, width), gathered for each row. */
static int convert_gather(struct walk *walk, const struct node *node, int *number) {
    const struct tensor *table = tensor_of(walk, node->inputs[0]);
    const int root = behind_views(walk, node->inputs[1]);
    if (attr_int(node, "axis", 0) != 0 || table->ndim != 2 || !rt_dtype_is_float(table->dtype)) return NOT_ROWS;
    for (int i = 0; i < walk->choices.n && !*number; i++)
        if (walk->choices.at[i].index == root && walk->choices.at[i].experts == table->dims[0])
            *number = routing_of(walk, root, table->dims[0]);
    const int64_t shape[] = {tensor_of(walk, node->inputs[0])->dims[0], 1, tensor_of(walk, node->inputs[0])->dims[1]};
    return *number ? build_reshape(&walk->builder, node->inputs[0], 3, shape) : NOT_ROWS;
}

/* The operand of an elementwise node, the result of which has the shape y with the rows in its first `lead` dimensions:
 * in buffers, or to be broadcast to them. */
static int convert_operand(struct walk *walk, int number, int tensor, const struct tensor *y, int lead) {
    const struct routing routing = walk->routings.at[number - 1];
    const struct tensor x = *tensor_of(walk, tensor);
    const int64_t width = product(y->dims + lead, y->ndim - lead);
    const int missing = y->ndim - x.ndim, own = lead - missing > 0 ? lead - missing : 0;
    if (missing < 0) return NOT_ROWS;
    const int64_t rows = product(x.dims, own), wide = product(x.dims + own, x.ndim - own);
    if (wide != 1 && wide != width) return NOT_ROWS;
    if (rows == 1 && routing.rows > 1) return build_reshape(&walk->builder, tensor, 3, (int64_t[]){1, 1, wide});
    if (rows == routing.rows) return buffer_of(walk, number, tensor);
    const bool tokens = rows == routing.tokens && own == lead && own > 0 && x.dims[own - 1] == 1 &&
                        y->dims[lead - 1] == routing.rows / routing.tokens;
    return tokens ? dispatch(walk, number, tensor, routing.tokens) : NOT_ROWS;
}

static int convert_elementwise(struct walk *walk, const struct node *node, int *number) {
    const struct tensor y = *tensor_of(walk, node->outputs[0]);
    int inputs[3];
    for (int k = 0; k < node->ninputs && !*number; k++)
        if (node->inputs[k] >= 0) *number = rows_of(walk, node->inputs[k])->routing;
    if (!*number || node->ninputs > 3 || node->noutputs != 1) return NOT_ROWS;
    const int lead = leading(&y, walk->routings.at[*number - 1].rows);
    if (lead < 0) return NOT_ROWS;
    for (int k = 0; k < node->ninputs; k++) {
        inputs[k] = node->inputs[k] < 0 ? NOT_ROWS : convert_operand(walk, *number, node->inputs[k], &y, lead);
        if (inputs[k] < 0) return inputs[k];
    }
    return build(&walk->builder, node->op->id, node->ninputs, inputs, node->nattrs, node->attrs);
}

/* Another shape of the same rows. */
static int convert_reshape(struct walk *walk, const struct node *node, int *number) {
    const struct rows *rows = rows_of(walk, node->inputs[0]);
    if (!(*number = rows->routing)) return NOT_ROWS;
    return leading(tensor_of(walk, node->outputs[0]), walk->routings.at[*number - 1].rows) < 0 ? NOT_ROWS
                                                                                               : rows->buffer - 1;
}

/* Some columns of each row. */
static int convert_slice(struct walk *walk, const struct node *node, int *number) {
    const struct tensor *x = tensor_of(walk, node->inputs[0]), *y = tensor_of(walk, node->outputs[0]);
    const int last = x->ndim - 1;
    const int64_t *start = attr_ints(node, "start", NULL), *step = attr_ints(node, "step", NULL);
    const struct rows *rows = rows_of(walk, node->inputs[0]);
    if (!(*number = rows->routing) || last < 0 || memcmp(x->dims, y->dims, (size_t)last * sizeof *x->dims) != 0)
        return NOT_ROWS;
    const struct tensor *buffer = tensor_of(walk, rows->buffer - 1);
    if (buffer->dims[2] != x->dims[last]) return NOT_ROWS;
    return build_piece(&walk->builder, rows->buffer - 1, 2, start[last], step[last], y->dims[last]);
}

static const struct {
    enum op_id op;
    int (*convert)(struct walk *walk, const struct node *node, int *number);
} conversions[] = {{OP_ExpertMatMul, convert_product},
                   {OP_DequantExpertMatMul, convert_product},
                   {OP_Gather, convert_gather},
                   {OP_Reshape, convert_reshape},
                   {OP_Slice, convert_slice}};

static int convert(struct walk *walk, const struct node *node, int *number) {
    *number = 0;
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
        if (conversions[i].op == node->op->id) return conversions[i].convert(walk, node, number);
    return node->op->kind == OP_ELEMENTWISE ? convert_elementwise(walk, node, number) : NOT_ROWS;
}

/* The result of a sum over the choices of each token; NOT_ROWS if the node is none. */
static int convert_sum(struct walk *walk, const struct node *node) {
    const int number = node->op->id == OP_ReduceSum ? rows_of(walk, node->inputs[0])->routing : 0;
    int n;
    if (!number) return NOT_ROWS;
    const struct routing *routing = &walk->routings.at[number - 1];
    const int64_t *axes = attr_ints(node, "axes", &n), choices = routing->rows / routing->tokens;
    const struct tensor *x = tensor_of(walk, node->inputs[0]);
    const int buffer = rows_of(walk, node->inputs[0])->buffer - 1;
    if (n != 1 || product(x->dims, (int)axes[0]) != routing->tokens || x->dims[axes[0]] != choices) return NOT_ROWS;
    return combine(walk, number, buffer, choices, node->outputs[0]);
}

/* The node's result, brought back from buffers, as rewrite_each wants it. */
static int convert_node(void *env, int id) {
    struct walk *walk = env;
    const struct node copy = walk->graph->nodes.at[id], *node = &copy;
    int number;
    walk->builder.node = copy.name;
    const int sum = convert_sum(walk, node);
    if (sum != NOT_ROWS) return sum;
    const int buffer = convert(walk, node, &number);
    if (buffer < 0) return buffer;
    /* a bias alone is broadcast to the places, and stays as it is for other readers */
    const bool wide = tensor_of(walk, buffer)->dims[1] ==
                      walk->routings.at[number - 1].groups * walk->routings.at[number - 1].capacity;
    const int rows = wide ? combine(walk, number, buffer, 1, node->outputs[0]) : node->outputs[0];
    if (rows < 0) return -1;
    rows_of(walk, rows)->routing = number;
    rows_of(walk, rows)->buffer = buffer + 1;
    return wide ? rows : NOT_ROWS;
}

/* Finds by which tensors rows are routed, before the walk: a bias may be gathered before the first product. */
static void find_products(struct walk *walk) {
    const struct graph *graph = walk->graph;
    GRAPH_EACH(graph, i, const struct node *node) {
        if (!op_is_of_experts(node->op)) continue;
        const struct choice choice = {behind_views(walk, node->inputs[node->ninputs - 1]),
                                      tensor_of(walk, node->inputs[1])->dims[0]};
        VEC_PUSH(graph->arena, &walk->choices, choice);
    }
}

int pass_expert_buffers(struct graph *graph, const struct pass_context *context) {
    struct walk walk = {.graph = graph, .context = context, .builder = {.graph = graph, .diags = context->diags}};
    const int axis = mesh_axis(&graph->mesh, AXIS_EXPERT);
    if (axis < 0 || (graph->mesh.axis[axis].size == 1 && !context->decisions.capacity)) return 0;
    find_products(&walk);
    return rewrite_each(graph, convert_node, &walk);
}
