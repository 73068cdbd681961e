/* Gradients: how a small change of a node's result reaches its inputs (reverse mode, FEATURES D1).
 *
 * A row of ops.def says it in one of two ways. Elementwise operators have the column `gradient`: an expression per
 * input, separated by " | ", of dy (the gradient of the result), the inputs (x, or a b c), the result y and attributes;
 * "0" where nothing flows. Expressions become core operators, so that they fold, fuse and carry partial sums as any
 * others; what broadcasting repeated is summed. Others have a function `grad`. Formulas are those of PyTorch's autograd
 * (derivatives.yaml), kinks included: relu'(0) = 0, equal operands of Max share alike. */
#ifndef IR_GRADIENT_H
#define IR_GRADIENT_H

#include "ir/build.h"

struct gradient {
    struct build b;     /* the forward node's name goes to the nodes made */
    struct node node;   /* the forward node, a copy */
    const char *place;  /* node_place of it, for diagnostics */
    const bool *wanted; /* per input */
    int dy, *dx;        /* tensors: of the result; per wanted input, to be set, -1: zero */
};

/* Sets dx of every wanted input: 0, or -1 after a diagnostic (E0411 where the operator has no gradient). */
int gradient_make(struct gradient *g);

/* Functions of rows use these. Results are tensor ids, or -1 after a diagnostic. */

/* The forward node's operand and result. */
const struct tensor *gradient_input(const struct gradient *g, int input);
const struct tensor *gradient_output(const struct gradient *g);

/* An expression of named tensors as core operators; names[i] stands for tensors[i], others are attributes of the
 * node. */
int gradient_expr(struct gradient *g, const char *text, int n, const char *const *names, const int *tensors);

/* Sums `tensor` over what broadcasting repeated, so that it has the shape of `like`. */
int gradient_sum_to(struct gradient *g, int tensor, const struct tensor *like);

/* Sum over `count` dimensions, in rising order, which stay with extent 1 if `keep`. */
int gradient_sum(struct gradient *g, int tensor, int count, const int64_t *axes, bool keep);

#endif
