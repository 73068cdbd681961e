#include "passes/rewrite/choose_experts.h"

#include <math.h>

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

struct chosen choose_picked(struct routing *routing, int tensor, const struct order *order) {
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

struct chosen choose_weights(struct routing *routing, int tensor, const struct order *order) {
    const struct tensor t = *tensor_of(routing, tensor);
    const struct node *node;
    if (!order_has_before(order, TOKEN, EXPERT)) return not_chosen;
    if (routing->choices == 1 && is_one_hot(routing, tensor)) return choose_one_hot(routing, &t);
    if ((node = node_of(routing, tensor, OP_ScatterElements))) return choose_scattered(routing, node, &t);
    if ((node = node_of(routing, tensor, OP_ReduceSum))) return choose_counted(routing, node);
    if ((node = node_of(routing, tensor, OP_Softmax))) return choose_softmax(routing, node, &t, order);
    return not_chosen;
}
