/* Derivatives of operators, by family: the functions of column `grad` of ops.def. They fill gradient->dx and return 0,
 * or -1 after a diagnostic (ir/gradient.h). Formulas: PyTorch, derivatives.yaml. */
#ifndef IR_OPS_GRAD_H
#define IR_OPS_GRAD_H

#include "ir/gradient.h"

#define GRAD(name) int name(struct gradient *gradient)
typedef GRAD(grad_hook);

/* grad_none: there is no gradient. grad_scatter: of ScatterElements and ScatterND, and of those that add; _mul: of
 * those that multiply; _extreme: of those that keep the largest or the smallest. */
grad_hook grad_none, grad_matmul, grad_dequant_matmul, grad_expert_matmul, grad_expert_dispatch, grad_expert_combine,
    grad_det, grad_conv, grad_conv_transpose, grad_max_pool, grad_average_pool, grad_softmax, grad_log_softmax,
    grad_cumsum, grad_cumprod, grad_class_terms, grad_norm, grad_rope, grad_recurrence, grad_sample, grad_roi_pool,
    grad_linear_attention, grad_flash_attention, grad_reduce_sum, grad_reduce_extreme, grad_reduce_prod, grad_reshape,
    grad_transpose, grad_expand, grad_slice, grad_concat, grad_pad, grad_trilu, grad_dropout, grad_cast, grad_gather,
    grad_gather_elements, grad_gather_nd, grad_scatter, grad_scatter_mul, grad_scatter_extreme;

#endif
