/* Derivatives of operators, for reverse-mode differentiation (FEATURES D1): the gradients of a node's inputs from those
 * of its result, as nodes.
 *
 * A row of ops.def has the derivative in one of two columns. `gradient`, for elementwise operators, has an expression
 * per input, separated by " | ", of dy (the gradient of the result), the inputs (x, or a b c), the result y and the
 * attributes; "0" means no gradient. The expressions become core operators, which fold, fuse and map partial sums as
 * any others. Gradients of broadcast inputs are summed over the repeated dimensions. `grad`, for other operators, is a
 * function.
 *
 * The formulas are those of PyTorch's autograd (derivatives.yaml), also where a function is not differentiable:
 * relu'(0) = 0, and equal operands of Max get equal shares. */
#ifndef IR_GRADIENT_H
#define IR_GRADIENT_H

#include "ir/build.h"

struct gradient {
    struct build builder;      /* its `node` is the forward node's name */
    struct build_known *known; /* of gradient_expr; may be NULL */
    struct node node;          /* the forward node, a copy */
    const char *place;         /* node_place of it, for diagnostics */
    const bool *wanted;        /* per input: whether its gradient is needed */
    int dy, *dx; /* tensor ids. dy: gradient of the result; dx[i]: set by the function per wanted input, -1: zero */
};

/* Adds the nodes and sets dx of every wanted input: 0, or -1 after a diagnostic (E0411: no derivative). */
int gradient_make(struct gradient *gradient);

/* For the functions of column `grad`. They return tensor ids, or -1 after a diagnostic. */

/* The forward node's operand `input`, and its first result. */
const struct tensor *gradient_input(const struct gradient *gradient, int input);
const struct tensor *gradient_output(const struct gradient *gradient);

/* Adds an expression (build_expr) in which names[i] stands for tensors[i] and other names for attributes of the forward
 * node. */
int gradient_expr(struct gradient *gradient, const char *text, int n, const char *const *names, const int *tensors);

/* gradient_expr of up to three tensors, named a, b and c; -1 if one of them is -1. */
int gradient_of(struct gradient *gradient, const char *text, int a, int b, int c);

/* Adds a node of the n inputs with the attributes of the forward node, and with *more unless that is NULL; -1 if an
 * input is -1. */
int gradient_like(struct gradient *gradient, enum op_id op, int n, const int *inputs, const struct attr *more);

/* Zeros of the shape and type of the forward node's operand `input`. */
int gradient_zeros(struct gradient *gradient, int input);

/* Sums `tensor` over the dimensions in which `like` was broadcast to its shape; the result has the shape of `like`. */
int gradient_sum_to(struct gradient *gradient, int tensor, const struct tensor *like);

/* Sums over the `count` dimensions `axes`, in rising order. If `keep`, they stay with extent 1; else they are
 * removed. */
int gradient_sum(struct gradient *gradient, int tensor, int count, const int64_t *axes, bool keep);

#endif
