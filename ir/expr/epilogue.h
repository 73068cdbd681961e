/* Epilogues of matrix products: elementwise operations on the product that a BLAS library does in the same kernel
 * (cuBLASLt's epilogues).
 *
 *   s = product + bias + residual        y = s or y = gelu(s); s may be a second result
 *   y = product gelu'(s)                 the gradient of the latter
 *
 * gelu is the tanh approximation, operator GeluTanh. A MatMul node states its epilogue as an expression (ops.def,
 * MatMul), from which it is recognised here. */
#ifndef IR_EXPR_EPILOGUE_H
#define IR_EXPR_EPILOGUE_H

#include "ir/ir.h"

struct epilogue {
    enum rt_activation activation;
    int bias, residual, sum; /* tensor ids, -1: none. bias: one row. sum: s, operand of gelu' or second result */
};

/* Recognises the epilogue of the MatMul `node`; false if it has none, or none of these forms. */
bool epilogue_read(struct arena *arena, const struct graph *graph, const struct node *node, struct epilogue *out);

#endif
