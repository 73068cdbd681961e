#include "passes/rewrite/choose_experts.h"

#include <math.h>
#include <string.h>

#include "ir/expr/eval.h"
#include "passes/rewrite/known_mask.h"

/* The tensor behind changes of shape and type. */
static int plain(const struct routing *routing, int tensor) {
    const struct node *node = producer_of(routing, tensor);
    while (node && (node->op->id == OP_Reshape || node->op->id == OP_Cast || node->op->id == OP_Expand)) {
        tensor = node->inputs[0];
        node = producer_of(routing, tensor);
    }
    return tensor;
}

/* Numbers of experts, counted from the end if they are negative: those of TopK are not. */
static bool is_index(const struct routing *routing, int tensor) {
    const struct node *where = node_of(routing, plain(routing, tensor), OP_Where);
    if (!where) return plain(routing, tensor) == routing->topk;
    const struct node *less = node_of(routing, plain(routing, where->inputs[0]), OP_Less);
    return less && plain(routing, less->inputs[0]) == routing->topk && scalar_of(routing, less->inputs[1]) == 0 &&
           plain(routing, where->inputs[2]) == routing->topk;
}

static bool counts_experts(const struct routing *routing, int tensor) {
    const struct tensor *t = tensor_of(routing, tensor);
    if (t->kind != TENSOR_CONST || t->ndim < 1 || t->dims[t->ndim - 1] != routing->experts ||
        tensor_elements(t) != routing->experts)
        return false;
    for (int64_t i = 0; i < routing->experts; i++) {
        const struct number value = eval_load(t->data, t->dtype, i);
        if ((value.is_float ? value.f : (double)value.i) != (double)i) return false;
    }
    return true;
}

/* True for (tokens, K, E), or (tokens, E) if K is 1, with 1 at the experts of each token, else 0. */
static bool is_one_hot(const struct routing *routing, int tensor) {
    const struct tensor *t = tensor_of(routing, tensor);
    const struct node *where = node_of(routing, plain(routing, tensor), OP_Where);
    if (where && (scalar_of(routing, where->inputs[1]) != 1 || scalar_of(routing, where->inputs[2]) != 0)) return false;
    const struct node *equal =
        node_of(routing, where ? plain(routing, where->inputs[0]) : plain(routing, tensor), OP_Equal);
    if (!equal || t->ndim < 1 || t->dims[t->ndim - 1] != routing->experts ||
        tensor_elements(t) != routing->tokens * routing->choices * routing->experts ||
        (routing->choices > 1 && (t->ndim < 2 || t->dims[t->ndim - 2] != routing->choices)))
        return false;
    for (int k = 0; k < 2; k++) {
        const struct tensor *index = tensor_of(routing, equal->inputs[k]);
        if (is_index(routing, equal->inputs[k]) && counts_experts(routing, equal->inputs[1 - k]) &&
            tensor_elements(index) == routing->tokens * routing->choices && index->ndim > 0 &&
            index->dims[index->ndim - 1] == 1)
            return true;
    }
    return false;
}

/* A number for each choice, as (T, K, 1). */
static struct chosen of_choices(struct routing *routing, int values, double rest) {
    struct chosen chosen = {.has = {true, true, false}, .rest = rest};
    if (tensor_elements(tensor_of(routing, values)) != routing->tokens * routing->choices) return not_chosen;
    chosen.tensor = build_reshape(builder_of(routing), values, 3, (int64_t[]){routing->tokens, routing->choices, 1});
    return chosen;
}

/* ScatterElements of a number for each choice into equal numbers. */
static struct chosen choose_scattered(struct routing *routing, const struct node *node, const struct tensor *t) {
    double rest;
    if (attr_int(node, "axis", 0) != t->ndim - 1 || plain(routing, node->inputs[1]) != routing->topk ||
        !known_uniform(builder_of(routing)->graph, plain(routing, node->inputs[0]), &rest))
        return not_chosen;
    return of_choices(routing, node->inputs[2], rest);
}

/* The sum over choices of one-hot rows, with a factor for each choice or without. */
static struct chosen choose_counted(struct routing *routing, const struct node *node) {
    const struct tensor *x = tensor_of(routing, node->inputs[0]);
    const struct node *product = node_of(routing, node->inputs[0], OP_Mul);
    int n;
    const int64_t *axes = attr_ints(node, "axes", &n);
    if (n != 1 || axes[0] != x->ndim - 2) return not_chosen;
    for (int k = 0; product && k < 2; k++) {
        const struct tensor *factor = tensor_of(routing, product->inputs[1 - k]);
        if (is_one_hot(routing, product->inputs[k]) && factor->ndim > 0 && factor->dims[factor->ndim - 1] == 1)
            return of_choices(routing, product->inputs[1 - k], 0);
    }
    return not_chosen;
}

/* Softmax over experts, of which only the chosen are not -inf. */
static struct chosen choose_softmax(struct routing *routing, const struct node *node, const struct tensor *t,
                                    const struct order *order) {
    const struct attr axis = attr_of_int("axis", 1);
    const int last = t->ndim - 1;
    if (last < 0 || attr_int(node, "axis", 0) != last || t->dims[last] != routing->experts) return not_chosen;
    struct chosen chosen = choose(routing, node->inputs[0], order);
    if (chosen.tensor < 0 || chosen.rest != -INFINITY) return not_chosen;
    chosen.tensor = build(builder_of(routing), OP_Softmax, 1, (int[]){expanded(routing, &chosen, 1)}, 1, &axis);
    chosen.rest = 0;
    return chosen;
}

/* Chooses any tensor with one number for each token and expert, by picking the chosen ones. */
static struct chosen choose_picked(struct routing *routing, int tensor, const struct order *order) {
    struct chosen chosen = {.has = {true, true, false}, .rest = NAN};
    const struct attr axis = attr_of_int("axis", 1);
    const bool first = !order_has_before(order, TOKEN, EXPERT);
    const int64_t extents[] = {first ? routing->experts : routing->tokens, first ? routing->tokens : routing->experts};
    int table = build_reshape(builder_of(routing), tensor, 2, extents);
    if (first) table = build_transpose(builder_of(routing), table, (int64_t[]){1, 0});
    const int picked = build(builder_of(routing), OP_GatherElements, 2, (int[]){table, routing->index}, 1, &axis);
    chosen.tensor = build_reshape(builder_of(routing), picked, 3, (int64_t[]){routing->tokens, routing->choices, 1});
    return chosen;
}

/* One-hot rows of the only expert of each token. */
static struct chosen choose_one_hot(struct routing *routing, const struct tensor *t) {
    struct chosen chosen = {.rest = 0};
    chosen.tensor =
        build_reshape(builder_of(routing), build_scalar(builder_of(routing), t->dtype, 1), 3, (int64_t[]){1, 1, 1});
    return chosen;
}

/* Chooses a tensor with one number for each token and expert, (.., E): TopK's numbers scattered, one-hot rows, Softmax
 * of these. tensor -1: it is none of them. */
static struct chosen choose_weights(struct routing *routing, int tensor, const struct order *order) {
    const struct tensor t = *tensor_of(routing, tensor);
    const struct node *node;
    if (!order_has_before(order, TOKEN, EXPERT)) return not_chosen;
    if (routing->choices == 1 && is_one_hot(routing, tensor)) return choose_one_hot(routing, &t);
    if ((node = node_of(routing, tensor, OP_ScatterElements))) return choose_scattered(routing, node, &t);
    if ((node = node_of(routing, tensor, OP_ReduceSum))) return choose_counted(routing, node);
    if ((node = node_of(routing, tensor, OP_Softmax))) return choose_softmax(routing, node, &t, order);
    return not_chosen;
}

/* The kind of each dimension; UNIT for extents of 1. False if a dimension belongs to two kinds. */
static bool kinds_of(const struct tensor *t, const struct order *order, enum kind *kind) {
    int d = 0;
    for (int i = 0; i < KINDS; i++) {
        int64_t product = 1;
        while (d < t->ndim && (product < order->extent[order->at[i]] || t->dims[d] == 1)) {
            kind[d] = t->dims[d] == 1 ? UNIT : order->at[i];
            product *= t->dims[d++];
        }
        if (product != order->extent[order->at[i]]) return false;
    }
    return d == t->ndim;
}

bool order_has_before(const struct order *order, enum kind a, enum kind b) {
    int i = 0;
    while (order->at[i] != a && order->at[i] != b) i++;
    return order->at[i] == a || order->extent[a] == 1 || order->extent[b] == 1;
}

static bool is_order(const struct order *order, enum kind a, enum kind b, enum kind c) {
    return order_has_before(order, a, b) && order_has_before(order, b, c) && order_has_before(order, a, c);
}

bool order_fits(const struct routing *routing, const struct tensor *t, struct order *order) {
    const int64_t elements = tensor_elements(t), all = routing->tokens * routing->experts;
    order->extent[CHANNEL] = elements / all;
    return elements > 0 && elements % all == 0;
}

/* Which kinds of dimensions an operand has that is broadcast to a tensor with these kinds. False if it has a part of
 * one. */
static bool operand_has(const struct tensor *t, const enum kind *kind, const struct tensor *operand, bool *has) {
    bool lacks[KINDS + 1] = {false}, full[KINDS + 1] = {false};
    for (int d = 0; d < t->ndim; d++) {
        const int from = d - (t->ndim - operand->ndim);
        const bool broadcast = t->dims[d] != 1 && (from < 0 || operand->dims[from] == 1);
        *(broadcast ? &lacks[kind[d]] : &full[kind[d]]) = true;
    }
    for (int i = 0; i < KINDS; i++) {
        if (lacks[i] && full[i]) return false;
        has[i] = !lacks[i];
    }
    return true;
}

/* Parameters of experts, (E, C): those of the chosen ones. */
static struct chosen choose_parameters(struct routing *routing, int tensor, struct chosen chosen, int64_t channels) {
    const struct attr axis = attr_of_int("axis", 0);
    const int table = build_reshape(builder_of(routing), tensor, 2, (int64_t[]){routing->experts, channels});
    chosen.tensor = build(builder_of(routing), OP_Gather, 2, (int[]){table, routing->index}, 1, &axis);
    chosen.has[TOKEN] = true;
    return chosen;
}

double scalar_of(const struct routing *routing, int tensor) {
    const struct tensor *t = tensor_of(routing, tensor);
    if (t->kind != TENSOR_CONST || tensor_elements(t) != 1) return NAN;
    const struct number value = eval_load(t->data, t->dtype, 0);
    return value.is_float ? value.f : (double)value.i;
}

/* Divides the dimension that holds both the first and the second kind, of a tensor and of an operand that is broadcast
 * to it. */
static void divide_joined(const struct order *order, struct tensor *t, struct tensor *operand) {
    const int64_t first = order->extent[order->at[0]], second = order->extent[order->at[1]];
    int d = 0;
    while (d < t->ndim && t->dims[d] == 1) d++;
    if (first == 1 || second == 1 || d == t->ndim || t->dims[d] != first * second || t->ndim == RT_MAX_NDIM) return;
    const int behind = t->ndim - d;
    struct tensor *divided[] = {t, operand};
    EACH_VALUE(divided, 2, k, struct tensor *const x) {
        const int at = x->ndim - behind;
        if (at < 0) continue;
        memmove(&x->dims[at + 1], &x->dims[at], (size_t)behind * sizeof *x->dims);
        x->ndim++;
        x->dims[at + 1] = x->dims[at] == 1 ? 1 : second;
        x->dims[at] = x->dims[at] == 1 ? 1 : first;
    }
}

/* Operand `operand` of a node whose result `t` has this order. */
static struct chosen choose_operand(struct routing *routing, const struct tensor *t, const struct order *order,
                                    int operand) {
    enum kind kind[RT_MAX_NDIM];
    struct chosen chosen = {.rest = scalar_of(routing, operand)};
    struct tensor u = *tensor_of(routing, operand), result = *t;
    divide_joined(order, &result, &u);
    if (!kinds_of(&result, order, kind) || !operand_has(&result, kind, &u, chosen.has)) return not_chosen;
    const int64_t channels = chosen.has[CHANNEL] ? order->extent[CHANNEL] : 1;
    const bool parameter = u.producer < 0 && u.kind != TENSOR_VALUE && u.kind != TENSOR_INPUT;
    if (chosen.has[EXPERT] && chosen.has[TOKEN] &&
        tensor_elements(&u) == channels * routing->experts * routing->tokens && !(parameter && routing->tokens == 1)) {
        struct order own = *order;
        own.extent[CHANNEL] = channels;
        return choose(routing, operand, &own);
    }
    for (int i = 0; i < CHANNEL; i++)
        if (chosen.has[CHANNEL] && chosen.has[i] && !order_has_before(order, (enum kind)i, CHANNEL)) return not_chosen;
    if (chosen.has[EXPERT]) return choose_parameters(routing, operand, chosen, channels);
    chosen.tensor = build_reshape(builder_of(routing), operand, 3,
                                  (int64_t[]){chosen.has[TOKEN] ? routing->tokens : 1, 1, channels});
    return chosen;
}

int expanded(struct routing *routing, const struct chosen *chosen, int64_t channels) {
    return build_expand(builder_of(routing), chosen->tensor, 3,
                        (int64_t[]){routing->tokens, routing->choices, channels});
}

/* The rest of an elementwise node's result, from those of its operands. */
static double rest_of(struct routing *routing, const struct node *node, const struct chosen *operands) {
    int scalars[3];
    for (int k = 0; k < node->ninputs; k++)
        if (node->op->id == OP_Mul && operands[k].rest == 0) return 0;
    for (int k = 0; k < node->ninputs; k++) {
        if (isnan(operands[k].rest)) return NAN;
        scalars[k] = build_scalar(builder_of(routing), tensor_of(routing, node->inputs[k])->dtype, operands[k].rest);
    }
    const int result = build(builder_of(routing), node->op->id, node->ninputs, scalars, node->nattrs, node->attrs);
    return result < 0 ? NAN : scalar_of(routing, result);
}

static struct chosen choose_elementwise(struct routing *routing, const struct node *node, const struct tensor *t,
                                        const struct order *order) {
    struct chosen operands[3], chosen = not_chosen;
    int inputs[3];
    if (node->ninputs < 1 || node->ninputs > 3 || node->noutputs != 1) return not_chosen;
    for (int k = 0; k < node->ninputs; k++) {
        operands[k] = choose_operand(routing, t, order, node->inputs[k]);
        if ((inputs[k] = operands[k].tensor) < 0) return not_chosen;
        for (int i = 0; i < KINDS; i++) chosen.has[i] = chosen.has[i] || operands[k].has[i];
    }
    chosen.tensor = build(builder_of(routing), node->op->id, node->ninputs, inputs, node->nattrs, node->attrs);
    chosen.rest = rest_of(routing, node, operands);
    return chosen;
}

/* Rows `x` times the weights (E, k, n), or (E, n, k), of the experts. */
static struct chosen product_of_experts(struct routing *routing, const struct chosen *x, int64_t k, int weights,
                                        bool turned) {
    struct chosen chosen = {.has = {true, true, true}, .rest = x->rest == 0 ? 0 : NAN};
    const int rows = expanded(routing, x, k);
    const struct attr trans_b = attr_of_int("trans_b", turned);
    if (rows < 0 || weights < 0) return not_chosen;
    chosen.tensor = build(builder_of(routing), OP_ExpertMatMul, 3, (int[]){rows, weights, routing->index}, 1, &trans_b);
    routing->products++;
    return chosen;
}

/* (E, T, k) times (E, k, n). */
static struct chosen choose_batched(struct routing *routing, const struct node *node, const struct tensor *t,
                                    const struct order *order) {
    const struct tensor *w = tensor_of(routing, node->inputs[1]);
    const bool turned = attr_int(node, "trans_b", 0);
    struct order of_rows = *order;
    if (!is_order(order, EXPERT, TOKEN, CHANNEL) || w->ndim != 3 || t->ndim != 3 || w->dims[0] != routing->experts ||
        t->dims[0] != routing->experts || t->dims[1] != routing->tokens)
        return not_chosen;
    const int64_t k = of_rows.extent[CHANNEL] = w->dims[turned ? 2 : 1];
    const struct chosen x = choose(routing, node->inputs[0], &of_rows);
    return x.tensor < 0 ? not_chosen : product_of_experts(routing, &x, k, node->inputs[1], turned);
}

/* The weights (E, k, n) of a matrix (k, E n). A matrix that was made of them by a Transpose is left aside. */
static int divided_weights(struct routing *routing, int matrix, int64_t k, int64_t n) {
    const int64_t *perm = (int64_t[]){1, 0, 2};
    const int divided = build_reshape(builder_of(routing), matrix, 3, (int64_t[]){k, routing->experts, n});
    const struct node *node = node_of(routing, divided, OP_Transpose);
    if (node && memcmp(attr_ints(node, "perm", NULL), perm, 3 * sizeof *perm) == 0) return node->inputs[0];
    return build_transpose(builder_of(routing), divided, perm);
}

/* (T, k) times (k, E n): the weights of all experts in one matrix. */
static struct chosen choose_joined(struct routing *routing, const struct node *node, const struct order *order) {
    const struct tensor x = *tensor_of(routing, node->inputs[0]), w = *tensor_of(routing, node->inputs[1]);
    const bool turned = attr_int(node, "trans_b", 0);
    const int64_t n = order->extent[CHANNEL], k = x.ndim ? x.dims[x.ndim - 1] : 0;
    struct chosen rows = {.has = {false, true, true}, .rest = NAN};
    if (!is_order(order, TOKEN, EXPERT, CHANNEL) || w.ndim != 2 || k == 0 || tensor_elements(&x) != routing->tokens * k)
        return not_chosen;
    const int weights =
        turned ? build_reshape(builder_of(routing), node->inputs[1], 3, (int64_t[]){routing->experts, n, k})
               : divided_weights(routing, node->inputs[1], k, n);
    rows.tensor = build_reshape(builder_of(routing), node->inputs[0], 3, (int64_t[]){routing->tokens, 1, k});
    return product_of_experts(routing, &rows, k, weights, turned);
}

static struct chosen choose_matmul(struct routing *routing, const struct node *node, const struct tensor *t,
                                   const struct order *order) {
    if (order->extent[CHANNEL] == 1 || !rt_dtype_is_float(t->dtype) || attr_int(node, "trans_a", 0) ||
        node->ninputs != 2 || node->noutputs != 1)
        return not_chosen;
    const struct chosen joined = choose_joined(routing, node, order);
    return joined.tensor >= 0 ? joined : choose_batched(routing, node, t, order);
}

/* A slice of channels, if they are one dimension. */
static struct chosen choose_slice(struct routing *routing, const struct node *node, const struct tensor *t,
                                  const struct order *order) {
    const struct tensor x = *tensor_of(routing, node->inputs[0]);
    struct order of_x = *order;
    enum kind kind[RT_MAX_NDIM];
    int n, channel = -1;
    const int64_t *start = attr_ints(node, "start", &n), *step = attr_ints(node, "step", &n);
    if (!order_fits(routing, &x, &of_x) || !kinds_of(&x, &of_x, kind)) return not_chosen;
    for (int d = 0; d < x.ndim; d++) {
        if (kind[d] == CHANNEL && channel >= 0) return not_chosen;
        if (kind[d] == CHANNEL)
            channel = d;
        else if (t->dims[d] != x.dims[d] || start[d] != 0 || step[d] != 1)
            return not_chosen;
    }
    struct chosen chosen = choose(routing, node->inputs[0], &of_x);
    if (chosen.tensor < 0 || channel < 0 || !chosen.has[CHANNEL]) return not_chosen;
    chosen.tensor = build_piece(builder_of(routing), chosen.tensor, 2, start[channel], step[channel], t->dims[channel]);
    return chosen;
}

/* The operand of a Transpose that keeps the dimensions of a kind together. */
static struct chosen choose_transpose(struct routing *routing, const struct node *node, const struct tensor *t,
                                      const struct order *order) {
    enum kind kind[RT_MAX_NDIM], of_x[RT_MAX_NDIM];
    struct order before = *order;
    int n, seen = 0, last[KINDS] = {-1, -1, -1};
    const int64_t *perm = attr_ints(node, "perm", &n);
    bool has[KINDS] = {false};
    if (!kinds_of(t, order, kind)) return not_chosen;
    for (int d = 0; d < t->ndim; d++) {
        if (kind[d] != UNIT && perm[d] < last[kind[d]]) return not_chosen;
        if (kind[d] != UNIT) last[kind[d]] = (int)perm[d];
        of_x[perm[d]] = kind[d];
    }
    for (int d = 0; d < t->ndim; d++) {
        if (of_x[d] == UNIT || (seen && before.at[seen - 1] == of_x[d])) continue;
        if (has[of_x[d]]) return not_chosen;
        has[of_x[d]] = true;
        before.at[seen++] = of_x[d];
    }
    for (int i = 0; i < KINDS; i++)
        if (!has[i]) before.at[seen++] = (enum kind)i;
    return choose(routing, node->inputs[0], &before);
}

static struct chosen choose_reshape(struct routing *routing, const struct node *node, const struct tensor *t,
                                    const struct order *order) {
    (void)t;
    return choose(routing, node->inputs[0], order);
}

static struct chosen choose_expand(struct routing *routing, const struct node *node, const struct tensor *t,
                                   const struct order *order) {
    return choose_operand(routing, t, order, node->inputs[0]);
}

/* Operators that are not elementwise. */
static const struct {
    enum op_id op;
    struct chosen (*choose)(struct routing *routing, const struct node *node, const struct tensor *t,
                            const struct order *order);
} rows[] = {{OP_Reshape, choose_reshape},
            {OP_Transpose, choose_transpose},
            {OP_Expand, choose_expand},
            {OP_Slice, choose_slice},
            {OP_MatMul, choose_matmul}};

static struct chosen choose_node(struct routing *routing, const struct node *node, const struct tensor *t,
                                 const struct order *order) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (node->op->id == rows[i].op) return rows[i].choose(routing, node, t, order);
    return node->op->kind == OP_ELEMENTWISE ? choose_elementwise(routing, node, t, order) : not_chosen;
}

/* New nodes have the name of the node whose result is chosen. */
static struct chosen choose_anew(struct routing *routing, int tensor, const struct order *order) {
    const struct tensor t = *tensor_of(routing, tensor);
    const char *const name = builder_of(routing)->node;
    const bool weighs = order->extent[CHANNEL] == 1;
    struct chosen chosen = not_chosen;
    if (t.producer >= 0) {
        const struct node node = *producer_of(routing, tensor);
        builder_of(routing)->node = node.name;
        if (weighs) chosen = choose_weights(routing, tensor, order);
        if (chosen.tensor < 0) chosen = choose_node(routing, &node, &t, order);
        builder_of(routing)->node = name;
    }
    return chosen.tensor < 0 && weighs ? choose_picked(routing, tensor, order) : chosen;
}

struct chosen choose(struct routing *routing, int tensor, const struct order *order) {
    for (int i = 0; i < routing->nmemos; i++)
        if (routing->memos[i].tensor == tensor && memcmp(routing->memos[i].at, order->at, sizeof order->at) == 0)
            return routing->memos[i].chosen;
    if (routing->nmemos == MEMOS || routing->depth == CHOOSE_DEPTH) return not_chosen;
    routing->depth++;
    const struct chosen chosen = choose_anew(routing, tensor, order);
    routing->depth--;
    if (routing->nmemos < MEMOS) {
        struct memo *memo = &routing->memos[routing->nmemos++];
        *memo = (struct memo){.tensor = tensor, .chosen = chosen};
        memcpy(memo->at, order->at, sizeof order->at);
    }
    return chosen;
}
