/* What a product does to its result, in the forms that a library of products takes (cuBLASLt's epilogues):
 *
 *   s = product + bias + residual        y = s, or gelu(s), beside which s may be kept as a second result
 *   y = product gelu'(s)                 the gradient of the latter
 *
 * gelu is the approximation by tanh, operator GeluTanh. The node says what it does as an expression (ops.def, MatMul);
 * here it is read from that. */
#ifndef IR_EXPR_EPILOGUE_H
#define IR_EXPR_EPILOGUE_H

#include "ir/ir.h"

struct epilogue {
    enum rt_activation activation;
    int bias, residual, sum; /* tensors, -1: none. bias: one row; sum: s, an operand of the gradient, else a result */
};

/* Reads what the MatMul `node` does to its result; false if it has another form, or none. */
bool epilogue_read(struct arena *arena, const struct graph *graph, const struct node *node, struct epilogue *out);

#endif
