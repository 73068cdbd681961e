/* Products with the weights of experts (mixture of experts): dimension annotations, derivative. */
#include <string.h>

#include "ir/ops/grad.h"
#include "ir/ops/ops.h"

int check_expert_rows(struct dims *dims, const struct tensor *rows, const struct tensor *index, const char **why) {
    bool fits = index->ndim == rows->ndim - 1;
    for (int d = 0; fits && d < index->ndim; d++) fits = index->dims[d] == rows->dims[d];
    return fits ? 0
                : refuse(dims, why, "%s is not the number of an expert for each row of %s",
                         tensor_type(dims->arena, index), tensor_type(dims->arena, rows));
}

DIMS_FN(dims_expert_matmul) {
    const char *text = attr_int(node, "trans_b", 0) ? "* k+, e+ n k, * -> * n" : "* k+, e+ k n, * -> * n";
    if (check_expert_rows(dims, input(graph, node, 0), input(graph, node, 2), why) < 0) return -1;
    return dims_bind_text(dims, text, graph, node, why);
}

DIMS_FN(dims_expert_weight_grad) {
    const struct tensor *x = input(graph, node, 0), *dy = input(graph, node, 1), *index = input(graph, node, 2);
    int64_t experts = attr_int(node, "experts", -1);
    struct operand *operand = dims->operand;
    if (check_expert_rows(dims, x, index, why) < 0 || check_expert_rows(dims, dy, index, why) < 0) return -1;
    if (experts < 0) return refuse(dims, why, "experts is not a number of experts");
    for (int d = 0; d < index->ndim; d++) {
        int row = dims_factor(dims, "r", d, index->dims[d], FACTOR_SUM);
        for (int k = 0; k < 3; k++) dims_set(&operand[k], d, row);
    }
    for (int k = 0; k < 3; k++) operand[k].ndim = index->ndim + (k < 2);
    dims_set(&operand[0], index->ndim, dims_factor(dims, "k", -1, x->dims[index->ndim], FACTOR_PASS));
    dims_set(&operand[1], index->ndim, dims_factor(dims, "n", -1, dy->dims[index->ndim], FACTOR_PASS));
    operand[3].ndim = 3;
    dims_set(&operand[3], 0, dims_factor(dims, "e", -1, experts, FACTOR_PASS));
    operand[3].dim[1] = operand[0].dim[index->ndim];
    operand[3].dim[2] = operand[1].dim[index->ndim];
    return 0;
}

SPLIT_ATTR(split_experts) {
    attr_set(graph, node, attr_of_int("experts", local[dims->ninputs][0]));
}

/* Note [Buffers of experts]
 * Along mesh axis `expert`, ranks divide the experts of a mixture. The rows of each expert lie in a buffer of its own,
 * of `capacity` places for each group of tokens (Lepikhin et al., GShard, arXiv 2006.16668, section 3.2). The product
 * with the experts' weights is then one batch of products, whose batch dimension ranks divide. A group is a part of the
 * batch that is routed by itself, so a rank can hold a group of tokens or a part of the experts, and redistribution
 * between the two is an all-to-all. Buffers are of static size: rows beyond the capacity have no place, and take no
 * part in the sum of their token. With a place for every token in the buffer of every expert none is left out. */

enum { EXPERTS_MOST = 4096, CHOICES_MOST = 64 }; /* limits of the kernels */

/* Factors of (experts, groups, capacity, h), of (groups, tokens, h) and of (groups, rows). */
static int bind_buffers(struct dims *dims, struct operand *buffer, struct operand *tokens, struct operand *index,
                        const int64_t extents[6], enum factor_kind experts, const char **why) {
    static const char *const names[] = {"e", "g", "c", "h", "t", "r"};
    const enum factor_kind kinds[] = {experts, FACTOR_PASS, FACTOR_WHOLE, FACTOR_PASS, FACTOR_WHOLE, FACTOR_WHOLE};
    int factor[6];
    const int64_t t = extents[4], r = extents[5];
    if (extents[0] > EXPERTS_MOST || t < 1 || r % t || r / t > CHOICES_MOST)
        return refuse(dims, why, "%lld rows of %lld tokens, or %lld experts, are too many", (long long)r, (long long)t,
                      (long long)extents[0]);
    for (int i = 0; i < 6; i++) factor[i] = dims_factor(dims, names[i], -1, extents[i], kinds[i]);
    buffer->ndim = 4;
    for (int d = 0; d < 4; d++) dims_set(buffer, d, factor[d]);
    tokens->ndim = 3;
    dims_set(tokens, 0, factor[1]);
    dims_set(tokens, 1, factor[4]);
    dims_set(tokens, 2, factor[3]);
    index->ndim = 2;
    dims_set(index, 0, factor[1]);
    dims_set(index, 1, factor[5]);
    return 0;
}

DIMS_FN(dims_expert_dispatch) {
    const struct tensor *x = input(graph, node, 0), *index = input(graph, node, 1);
    const int64_t experts = attr_int(node, "experts", -1), capacity = attr_int(node, "capacity", -1);
    struct operand *operand = dims->operand;
    if (experts < 0 || capacity < 0) return refuse(dims, why, "experts and capacity are not given");
    if (x->ndim != 3 || index->ndim != 2 || !open_meet(graph->open, x->dims[0], index->dims[0]))
        return refuse(dims, why, "%s is not the number of an expert for each row of groups %s",
                      tensor_type(dims->arena, index), tensor_type(dims->arena, x));
    const int64_t extents[] = {experts, x->dims[0], capacity, x->dims[2], x->dims[1], index->dims[1]};
    return bind_buffers(dims, &operand[2], &operand[0], &operand[1], extents, FACTOR_PASS, why);
}

DIMS_FN(dims_expert_combine) {
    const struct tensor *x = input(graph, node, 0), *index = input(graph, node, 1);
    const int64_t choices = attr_int(node, "choices", -1);
    struct operand *operand = dims->operand;
    if (x->ndim != 4 || index->ndim != 2 || x->dims[1] != index->dims[0] || choices < 1 || index->dims[1] % choices)
        return refuse(dims, why, "%s is not the number of an expert for each row of buffers %s",
                      tensor_type(dims->arena, index), tensor_type(dims->arena, x));
    const int64_t extents[] = {x->dims[0],    x->dims[1], x->dims[2], x->dims[3], index->dims[1] / choices,
                               index->dims[1]};
    return bind_buffers(dims, &operand[0], &operand[2], &operand[1], extents, FACTOR_SUM, why);
}

/* The expert of row `row`, which the last input gives; -1 if it is out of range. */
static int64_t expert_of(const struct eval *eval, int64_t row, int64_t experts) {
    const int last = eval->node->ninputs - 1;
    int64_t expert = eval_load(eval->x[last], eval->in[last]->dtype, row).i;
    if (expert < -experts || expert >= experts) return -1;
    return expert < 0 ? expert + experts : expert;
}

EVAL(eval_expert_matmul) {
    const struct tensor *x = eval->in[0], *w = eval->in[1], *y = eval->out;
    const bool turned = attr_int(eval->node, "trans_b", 0);
    const int64_t k = x->dims[x->ndim - 1], n = y->dims[y->ndim - 1], rows = tensor_elements(eval->in[2]);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t expert = expert_of(eval, row, w->dims[0]);
        if (expert < 0) return -1;
        for (int64_t j = 0; j < n; j++) {
            struct number sum = {true, 0, 0};
            for (int64_t p = 0; p < k; p++)
                sum.f += eval_load(eval->x[0], x->dtype, row * k + p).f *
                         eval_load(eval->x[1], w->dtype, expert * k * n + (turned ? j * k + p : p * n + j)).f;
            eval_store(eval->y, y->dtype, row * n + j, sum);
        }
    }
    return 0;
}

EVAL(eval_expert_weight_grad) {
    const struct tensor *x = eval->in[0], *dy = eval->in[1], *y = eval->out;
    const int64_t k = y->dims[1], n = y->dims[2], rows = tensor_elements(eval->in[2]);
    for (int64_t row = 0; row < rows; row++)
        if (expert_of(eval, row, y->dims[0]) < 0) return -1;
    for (int64_t i = 0; i < tensor_elements(y); i++) {
        struct number sum = {true, 0, 0};
        for (int64_t row = 0; row < rows; row++)
            if (expert_of(eval, row, y->dims[0]) == i / (k * n))
                sum.f += eval_load(eval->x[0], x->dtype, row * k + i / n % k).f *
                         eval_load(eval->x[1], dy->dtype, row * n + i % n).f;
        eval_store(eval->y, y->dtype, i, sum);
    }
    return 0;
}

/* The place of a row in the buffers, in rows; -1: it has none. A row of an expert outside the part has none. */
static int64_t place_of_row(const struct eval *eval, int64_t row, int64_t experts, int64_t capacity) {
    const int64_t groups = eval->in[1]->dims[0], rows = eval->in[1]->dims[1], group = row / rows;
    const int64_t expert = expert_of(eval, row, experts);
    int64_t place = 0;
    for (int64_t before = group * rows; before < row; before++) place += expert_of(eval, before, experts) == expert;
    return expert >= 0 && place < capacity ? (expert * groups + group) * capacity + place : -1;
}

EVAL(eval_expert_dispatch) {
    const struct tensor *x = eval->in[0], *index = eval->in[1], *y = eval->out;
    const int64_t experts = y->dims[0], capacity = y->dims[2], h = y->dims[3], rows = tensor_elements(index);
    for (int64_t i = 0; i < tensor_elements(y); i++) eval_store(eval->y, y->dtype, i, (struct number){true, 0, 0});
    for (int64_t row = 0; row < rows; row++) {
        const int64_t place = place_of_row(eval, row, experts, capacity);
        const int64_t token = row / (index->dims[1] / x->dims[1]);
        for (int64_t j = 0; j < h && place >= 0; j++)
            eval_store(eval->y, y->dtype, place * h + j, eval_load(eval->x[0], x->dtype, token * h + j));
    }
    return 0;
}

EVAL(eval_expert_combine) {
    const struct tensor *x = eval->in[0], *y = eval->out;
    const int64_t experts = x->dims[0], capacity = x->dims[2], h = x->dims[3];
    const int64_t choices = attr_int(eval->node, "choices", 1);
    for (int64_t i = 0; i < tensor_elements(y); i++) {
        struct number sum = {true, 0, 0};
        for (int64_t row = i / h * choices; row < (i / h + 1) * choices; row++) {
            const int64_t place = place_of_row(eval, row, experts, capacity);
            if (place >= 0) sum.f += eval_load(eval->x[0], x->dtype, place * h + i % h).f;
        }
        eval_store(eval->y, y->dtype, i, sum);
    }
    return 0;
}

/* dx is the product of dy with the same expert's weights, transposed. */
GRAD(grad_expert_matmul) {
    const struct node *node = &gradient->node;
    const bool turned = attr_int(node, "trans_b", 0);
    const int x = node->inputs[0], w = node->inputs[1], index = node->inputs[2];
    if (gradient->wanted[0]) {
        struct attr other = attr_of_int("trans_b", !turned);
        gradient->dx[0] = build(&gradient->builder, OP_ExpertMatMul, 3, (int[]){gradient->dy, w, index}, 1, &other);
        if (gradient->dx[0] < 0) return -1;
    }
    if (!gradient->wanted[1]) return 0;
    struct attr experts = attr_of_int("experts", gradient_input(gradient, 1)->dims[0]);
    const int rows[] = {turned ? gradient->dy : x, turned ? x : gradient->dy, index};
    return gradient->dx[1] = build(&gradient->builder, OP_ExpertWeightGrad, 3, rows, 1, &experts);
}

/* The gradient of tokens is the sum of the gradients of their rows. */
GRAD(grad_expert_dispatch) {
    const struct tensor *x = gradient_input(gradient, 0), *index = gradient_input(gradient, 1);
    const struct attr choices = attr_of_int("choices", x->dims[1] ? index->dims[1] / x->dims[1] : 1);
    if (!gradient->wanted[0]) return 0;
    const int operands[] = {gradient->dy, gradient->node.inputs[1]};
    return gradient->dx[0] = build(&gradient->builder, OP_ExpertCombine, 2, operands, 1, &choices);
}

GRAD(grad_expert_combine) {
    const struct tensor *x = gradient_input(gradient, 0);
    const struct attr attrs[] = {attr_of_int("experts", x->dims[0]), attr_of_int("capacity", x->dims[2])};
    if (!gradient->wanted[0]) return 0;
    const int operands[] = {gradient->dy, gradient->node.inputs[1]};
    return gradient->dx[0] = build(&gradient->builder, OP_ExpertDispatch, 2, operands, 2, attrs);
}
