/* Products with the weights of experts (mixture of experts): dimension annotations, derivative. */
#include <string.h>

#include "ir/ops/grad.h"
#include "ir/ops/ops.h"

static const struct tensor *input(const struct graph *graph, const struct node *node, int i) {
    return &graph->tensors.at[node->inputs[i]];
}

/* The index has the leading dimensions of the rows: an expert for each row. */
static int check_rows(struct dims *dims, const struct tensor *rows, const struct tensor *index, const char **why) {
    bool fits = index->ndim == rows->ndim - 1;
    for (int d = 0; fits && d < index->ndim; d++) fits = index->dims[d] == rows->dims[d];
    return fits ? 0
                : refuse(dims, why, "%s is not the number of an expert for each row of %s",
                         tensor_type(dims->arena, index), tensor_type(dims->arena, rows));
}

DIMS_FN(dims_expert_matmul) {
    const char *text = attr_int(node, "trans_b", 0) ? "* k+, e+ n k, * -> * n" : "* k+, e+ k n, * -> * n";
    if (check_rows(dims, input(graph, node, 0), input(graph, node, 2), why) < 0) return -1;
    return dims_bind_text(dims, text, graph, node, why);
}

DIMS_FN(dims_expert_weight_grad) {
    const struct tensor *x = input(graph, node, 0), *dy = input(graph, node, 1), *index = input(graph, node, 2);
    int64_t experts = attr_int(node, "experts", -1);
    struct operand *operand = dims->operand;
    if (check_rows(dims, x, index, why) < 0 || check_rows(dims, dy, index, why) < 0) return -1;
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

SPLIT_ATTR(split_expert_weight_grad) {
    attr_set(graph, node, attr_of_int("experts", local[dims->ninputs][0]));
}

/* Evaluation ------------------------------------------------------------------------------------------------------ */

/* The expert of row `row`; -1 if it is out of range. */
static int64_t expert_of(const struct eval *eval, int64_t row, int64_t experts) {
    int64_t expert = eval_load(eval->x[2], eval->in[2]->dtype, row).i;
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

/* Derivative ------------------------------------------------------------------------------------------------------ */

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
